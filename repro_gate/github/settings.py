"""What the step was given: the action's inputs (`INPUT_*`) and the job's own variables (`GITHUB_*`,
`RUNNER_*`), checked in one place.

Errors name the input, its value on one line, and what would be right. The token stands in none.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from repro_gate.errors import UsageError
from repro_gate.escape import for_terminal
from repro_gate.github.event import is_commit, is_repository, read_event

COMMENT_WHEN = ("always", "on-failure", "on-change", "never")
FAIL_ON = ("fail", "inconclusive")
GITHUB, GITHUB_API = "https://github.com", "https://api.github.com"

# YAML 1.2 core: `yes` is a text
_BOOLEANS = {
    word: form == "true"
    for form in ("true", "false")
    for word in (form, form.title(), form.upper())
}
_REF = re.compile(r"[^\s-][^\s]*")
_OVERRIDE = re.compile(r"[^\s=]+\s*=.*")
_URL = re.compile(r"https?://[A-Za-z0-9.-]+(?::[0-9]{1,5})?(?:/[A-Za-z0-9._~-]+)*", re.ASCII)
_EVENT = re.compile(r"[a-z][a-z0-9_]{0,63}", re.ASCII)


class Secret:
    """A value that is never shown: no `str`, no `repr`, no traceback gives it away. `reveal()` is
    for the one header that needs it."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The value itself."""
        return self._value

    def __repr__(self) -> str:
        return "Secret(***)"

    def __bool__(self) -> bool:
        return bool(self._value)


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The action's inputs. The names are those of `action.yml`."""

    spec: str = "repro.yml"  # relative to `working_directory`, inside the workspace
    working_directory: str = "."  # relative to the workspace, inside it
    token: Secret | None = None
    comment: str = "on-change"  # one of COMMENT_WHEN
    # the verdicts that turn the step red; empty for `never`
    fail_on: frozenset[str] = frozenset(FAIL_ON)
    report: str = (
        "repro-gate-report"  # the folder of report.json, report.md, report.html and report.sarif
    )
    policy: str | None = None  # as `run --policy`
    base: str | None = None  # as `run --base`
    against: str | None = None  # as `run --against`
    overrides: tuple[str, ...] = ()  # input `set`: one `key=value` a line
    pull_request: int | None = None  # to comment on, where the event names none
    allow_forks: bool = False
    annotations: bool = True
    summary: bool = True
    cache: str | None = (
        None  # folder that is kept between jobs: environments of `env.install`, digests of data
    )


@dataclass(frozen=True, kw_only=True)
class Job:
    """Where this job runs, by the runner's own variables."""

    repository: str  # owner/name
    event_name: str
    sha: str
    ref: str  # refs/heads/…, refs/pull/7/merge
    run_id: int
    run_attempt: int
    server_url: str
    api_url: str
    graphql_url: str
    workspace: Path
    self_hosted: bool  # whatever is not known to be GitHub's own runner
    workflow: str = ""  # GITHUB_WORKFLOW
    name: str = ""  # GITHUB_JOB: the same in each cell of a matrix
    output_file: Path | None = None  # GITHUB_OUTPUT
    summary_file: Path | None = None  # GITHUB_STEP_SUMMARY
    event: bytes | None = field(default=None, repr=False)  # the payload, of limited size

    @property
    def run_url(self) -> str:
        """The page of this workflow run."""
        return f"{self.server_url}/{self.repository}/actions/runs/{self.run_id}"


def read_inputs(environment: Mapping[str, str]) -> Inputs:
    """Return the inputs, by their variables `INPUT_…`. One that is empty or not there has its
    default. Raises UsageError for a wrong value."""
    found: dict[str, Any] = {}
    for name, (fits, expected, example, read) in _INPUTS.items():
        value = environment.get(f"INPUT_{name.upper()}", "").strip()
        place = posixpath.join(found.get("working_directory", "."), value)
        if value and not (fits(value) and (name != "spec" or _is_inside(place))):
            shown = "***" if name == "token" else for_terminal(value, 100)
            raise UsageError(
                f"{name}: `{shown}`: {expected}",
                remedy=f"`with: {{{name}: {example}}}`",
                reason_id="action/input",
            )
        if value:
            found["overrides" if name == "set" else name] = read(value)
    return Inputs(**found)


def _lines(value: str) -> tuple[str, ...]:
    """Return one `key=value` a line, as `--set` takes it, without blank lines and lines that begin
    with `#`."""
    lines = map(str.strip, value.splitlines())
    return tuple(line for line in lines if line and not line.startswith("#"))


def _are_overrides(value: str) -> bool:
    return all(map(_OVERRIDE.fullmatch, _lines(value)))


def _verdicts(value: str) -> frozenset[str]:
    return frozenset(value.replace(",", " ").split()) - {"never"}


def _are_verdicts(value: str) -> bool:
    words = value.replace(",", " ").split()
    return words == ["never"] or (bool(words) and set(words) <= set(FAIL_ON))


def _is_ref(value: str) -> bool:
    return _is_seen(value) and _REF.fullmatch(value) is not None


def _is_seen(value: str) -> bool:
    return for_terminal(value) == value and len(value) <= 1024


def _is_relative(value: str) -> bool:
    return _is_seen(value) and not value.startswith("/")


def _is_inside(value: str) -> bool:
    return _is_relative(value) and posixpath.normpath(value).split("/")[0] != ".."


def _is_own_folder(value: str) -> bool:
    """Return whether this may be a folder that is filled, hidden from git and given to another
    owner: neither the checkout nor its `.git`."""
    path = posixpath.normpath(value)
    return _is_inside(value) and path != "." and ".git" not in path.lower().split("/")


def _is_cache(value: str) -> bool:
    """Return whether this is such a folder, or an absolute path: what `actions/cache` keeps may lie
    anywhere."""
    return _is_seen(value) and (value.startswith("/") or _is_own_folder(value))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 15 and int(text) > 0


def _one_of(*words: str) -> tuple[Callable[[str], object], str, str, Callable[[str], str]]:
    expected = f"expected one of {', '.join(f'`{word}`' for word in words)}"
    return words.__contains__, expected, words[1], str


_INSIDE = "expected a path inside the workspace"
_OWN_FOLDER = "expected a folder of its own inside the workspace"
_REFERENCE = (_is_ref, "expected a branch, a tag or a commit", "origin/main", str)
_SWITCH = (_BOOLEANS.__contains__, "expected `true` or `false`", '"true"', _BOOLEANS.__getitem__)
# name -> what it may be, how to say so, an example, how it is read; `spec` comes behind the folder
# that it is relative to
_INPUTS: Mapping[str, tuple[Callable[[str], object], str, str, Callable[[str], object]]] = {
    "working_directory": (_is_inside, _INSIDE, "training", posixpath.normpath),
    "spec": (
        _is_relative,
        f"{_INSIDE}, relative to `working_directory`",
        "repro.yml",
        posixpath.normpath,
    ),
    "token": (re.compile("[!-~]+").fullmatch, "it is no token", "${{ github.token }}", Secret),
    "comment": _one_of(*COMMENT_WHEN),
    "fail_on": (
        _are_verdicts,
        "expected `fail` and `inconclusive`, or `never` alone",
        '"fail, inconclusive"',
        _verdicts,
    ),
    "report": (_is_own_folder, _OWN_FOLDER, "repro-gate-report", posixpath.normpath),
    "policy": _one_of("head", "base"),
    "base": _REFERENCE,
    "against": _REFERENCE,
    "set": (_are_overrides, "expected `key=value`, one a line", "train.steps=20", _lines),
    "pull_request": (
        _is_number,
        "expected a pull request's number",
        "${{ github.event.pull_request.number }}",
        int,
    ),
    "allow_forks": _SWITCH,
    "annotations": _SWITCH,
    "summary": _SWITCH,
    "cache": (_is_cache, _OWN_FOLDER, ".repro-gate-cache", posixpath.normpath),
}


def read_job(environment: Mapping[str, str]) -> Job:
    """Where this job runs, and its event's payload.

    Raises UsageError outside a workflow, for a variable that is not as the runner sets it, and for
    a payload that cannot be read.
    """
    if not environment.get("GITHUB_REPOSITORY") or not environment.get("GITHUB_EVENT_NAME"):
        raise UsageError(
            "this is meant to run in a GitHub workflow, and GITHUB_REPOSITORY or GITHUB_EVENT_NAME "
            "is not set",
            remedy="`repro-gate run` gates a checkout anywhere; a container of your own needs the "
            "runner's GITHUB_… and RUNNER_… variables",
            reason_id="action/no-workflow",
        )
    server, api, graphql = read_servers(environment)
    checked = partial(_checked, environment)
    commit, number = "a commit of 40 hex digits", "a positive number"
    there = "the absolute path of a folder that is there"
    return Job(
        repository=checked("GITHUB_REPOSITORY", is_repository, "`owner/name`"),
        event_name=checked("GITHUB_EVENT_NAME", _EVENT.fullmatch, "an event's name"),
        sha=checked("GITHUB_SHA", is_commit, commit),
        ref=environment.get("GITHUB_REF", ""),  # some events have none
        run_id=int(checked("GITHUB_RUN_ID", _is_number, number)),
        run_attempt=int(checked("GITHUB_RUN_ATTEMPT", _is_number, number, "1")),
        server_url=server,
        api_url=api,
        graphql_url=graphql,
        workspace=Path(checked("GITHUB_WORKSPACE", _is_folder, there)),
        self_hosted=environment.get("RUNNER_ENVIRONMENT") != "github-hosted",
        workflow=environment.get("GITHUB_WORKFLOW", ""),
        name=environment.get("GITHUB_JOB", ""),
        output_file=_path(environment, "GITHUB_OUTPUT"),
        summary_file=_path(environment, "GITHUB_STEP_SUMMARY"),
        event=read_event(_path(environment, "GITHUB_EVENT_PATH")),
    )


def read_servers(environment: Mapping[str, str]) -> tuple[str, str, str]:
    """The site, its REST and its GraphQL API. A token of one GitHub must not go to another, so only
    github.com's have a default."""
    site = _url(environment, "GITHUB_SERVER_URL", GITHUB)
    api = _url(environment, "GITHUB_API_URL", GITHUB_API if site == GITHUB else "")
    return site, api, _url(environment, "GITHUB_GRAPHQL_URL", graphql_beside(api))


def graphql_beside(api_url: str) -> str:
    """Where GraphQL is when nothing says so: /api/v3 and /api/graphql on a GitHub Enterprise
    Server, /graphql on github.com."""
    return f"{api_url.removesuffix('/v3') if api_url.endswith('/api/v3') else api_url}/graphql"


def _url(environment: Mapping[str, str], name: str, default: str) -> str:
    expected = (
        "an address like https://github.example.com, without a name, a password or a query in it"
    )
    return _checked(environment, name, is_url, expected, default).rstrip("/")


def is_url(text: str) -> bool:
    """Whether `text` is the plain address of a server: no name, password, query or fragment in it,
    and a port that is one."""
    return _URL.fullmatch(text.rstrip("/")) is not None


def _path(environment: Mapping[str, str], name: str) -> Path | None:
    return Path(environment[name]) if environment.get(name) else None


def _is_folder(text: str) -> bool:
    return os.path.isabs(text) and os.path.isdir(text)


def _checked(
    environment: Mapping[str, str],
    name: str,
    fits: Callable[[str], object],
    expected: str,
    default: str = "",
) -> str:
    """The variable `name`, or `default` where it is empty. Raises UsageError where what is found
    does not fit."""
    found = environment.get(name) or default
    if not fits(found):
        raise UsageError(
            f"{name}: expected {expected}, found "
            f"{f'`{for_terminal(found, 100)}`' if found else 'nothing'}",
            remedy="the runner sets it: take it out of `env:`, and hand it on to a container of "
            "your own as it is",
            reason_id="action/no-workflow",
        )
    return found
