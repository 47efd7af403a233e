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
    "true": True,
    "True": True,
    "TRUE": True,
    "false": False,
    "False": False,
    "FALSE": False,
}
_OVERRIDE = re.compile(r"[^\s=]+\s*=.*")
_URL = re.compile(r"https?://[A-Za-z0-9.-]+(?::[0-9]{1,5})?(?:/[A-Za-z0-9._~-]+)*", re.ASCII)
_EVENT = re.compile(r"[a-z][a-z0-9_]{0,63}", re.ASCII)


class Secret:
    """A token that is never shown: no `str`, no `repr`, no traceback gives it away. `reveal()` is
    for the one header that needs it. Raises UsageError for what no header can carry."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        if not re.fullmatch("[!-~]+", value):
            raise UsageError(
                "token: empty, or holds what no token holds (blanks, line ends)",
                remedy="pass `token: ${{ github.token }}`",
                reason_id="action/input",
            )
        self._value = value

    def reveal(self) -> str:
        """Return the value itself."""
        return self._value

    def __repr__(self) -> str:
        return "Secret(***)"


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
    pull_request: int | None = None  # to comment on, if the event names none
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


def read_inputs(environment: Mapping[str, str]) -> Inputs:
    """Return the inputs, by their variables `INPUT_…`. One that is empty or not there has its
    default. Raises UsageError for a wrong value."""
    values: dict[str, Any] = {}
    for name, (read, expected, example) in _INPUTS.items():
        text = environment.get(f"INPUT_{name.upper()}", "").strip()
        if not text:
            continue
        try:
            if name == "spec":
                _inside(posixpath.join(values.get("working_directory", "."), text))
            values["overrides" if name == "set" else name] = read(text)
        except (ValueError, KeyError):
            raise UsageError(
                f"{name}: `{for_terminal(text, 100)}`: {expected}",
                remedy=f"`with: {{{name}: {example}}}`",
                reason_id="action/input",
            ) from None
    return Inputs(**values)


# What reads an input raises ValueError or KeyError for what it may not be.


def _is_visible(text: str) -> bool:
    return for_terminal(text) == text and len(text) <= 1024


def _matching(pattern: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if not (_is_visible(text) and re.fullmatch(pattern, text)):
            raise ValueError
        return text

    return read


def _inside(text: str) -> str:
    """Return a path that does not lead out of the workspace, normalized."""
    path = posixpath.normpath(text)
    if not _is_visible(text) or path.startswith("/") or path.split("/")[0] == "..":
        raise ValueError
    return path


def _own_folder(text: str) -> str:
    """Return a folder that may be filled, hidden from git and given to another owner: neither the
    checkout nor its `.git`."""
    path = _inside(text)
    if path == "." or ".git" in path.lower().split("/"):
        raise ValueError
    return path


def _cache_folder(text: str) -> str:
    """Return such a folder, or an absolute path: what `actions/cache` keeps may lie anywhere."""
    if text.startswith("/") and _is_visible(text):
        return posixpath.normpath(text)
    return _own_folder(text)


def _overrides(text: str) -> tuple[str, ...]:
    """Return one `key=value` a line, as `--set` takes it, without blank lines and lines that begin
    with `#`."""
    lines = map(str.strip, text.splitlines())
    overrides = tuple(line for line in lines if line and not line.startswith("#"))
    if not all(map(_OVERRIDE.fullmatch, overrides)):
        raise ValueError
    return overrides


def _verdicts(text: str) -> frozenset[str]:
    words = text.replace(",", " ").split()
    if words == ["never"]:
        return frozenset()
    if not words or not set(words) <= set(FAIL_ON):
        raise ValueError
    return frozenset(words)


def _number(text: str) -> int:
    if not _is_number(text):
        raise ValueError
    return int(text)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 15 and int(text) > 0


def _one_of(*words: str) -> tuple[Callable[[str], str], str, str]:
    expected = f"expected one of {', '.join(f'`{word}`' for word in words)}"
    return _matching("|".join(words)), expected, words[1]


_INSIDE = "expected a path inside the workspace"
_OWN_FOLDER = "expected a folder of its own inside the workspace"
_REFERENCE = (_matching(r"[^\s-]\S*"), "expected a branch, a tag or a commit", "origin/main")
_SWITCH = (_BOOLEANS.__getitem__, "expected `true` or `false`", '"true"')
# name -> how it is read, how to say what it may be, an example; `spec` comes behind the folder that
# it is relative to
_INPUTS: Mapping[str, tuple[Callable[[str], object], str, str]] = {
    "working_directory": (_inside, _INSIDE, "training"),
    "spec": (posixpath.normpath, f"{_INSIDE}, relative to `working_directory`", "repro.yml"),
    "token": (Secret, "", ""),  # has an error of its own, which does not show it
    "comment": _one_of(*COMMENT_WHEN),
    "fail_on": (
        _verdicts,
        "expected `fail` and `inconclusive`, or `never` alone",
        '"fail, inconclusive"',
    ),
    "report": (_own_folder, _OWN_FOLDER, "repro-gate-report"),
    "policy": _one_of("head", "base"),
    "base": _REFERENCE,
    "against": _REFERENCE,
    "set": (_overrides, "expected `key=value`, one a line", "train.steps=20"),
    "pull_request": (
        _number,
        "expected a pull request's number",
        "${{ github.event.pull_request.number }}",
    ),
    "allow_forks": _SWITCH,
    "annotations": _SWITCH,
    "summary": _SWITCH,
    "cache": (_cache_folder, _OWN_FOLDER, ".repro-gate-cache"),
}


def read_job(environment: Mapping[str, str]) -> Job:
    """Return where this job runs, and its event's payload.

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
    number, folder = "a positive number", "the absolute path of an existing folder"
    return Job(
        repository=checked("GITHUB_REPOSITORY", is_repository, "`owner/name`"),
        event_name=checked("GITHUB_EVENT_NAME", _EVENT.fullmatch, "an event's name"),
        sha=checked("GITHUB_SHA", is_commit, "a commit of 40 hex digits"),
        ref=environment.get("GITHUB_REF", ""),  # some events have none
        run_id=int(checked("GITHUB_RUN_ID", _is_number, number)),
        run_attempt=int(checked("GITHUB_RUN_ATTEMPT", _is_number, number, "1")),
        server_url=server,
        api_url=api,
        graphql_url=graphql,
        workspace=Path(checked("GITHUB_WORKSPACE", _is_folder, folder)),
        self_hosted=environment.get("RUNNER_ENVIRONMENT") != "github-hosted",
        workflow=environment.get("GITHUB_WORKFLOW", ""),
        name=environment.get("GITHUB_JOB", ""),
        output_file=_path(environment, "GITHUB_OUTPUT"),
        summary_file=_path(environment, "GITHUB_STEP_SUMMARY"),
        event=read_event(_path(environment, "GITHUB_EVENT_PATH")),
    )


def read_servers(environment: Mapping[str, str]) -> tuple[str, str, str]:
    """Return the site, its REST and its GraphQL API. A token of one GitHub must not go to another,
    so only github.com's have a default.

    GraphQL is at /api/graphql on a GitHub Enterprise Server, whose REST API is at /api/v3, and at
    /graphql on github.com.
    """

    def address(name: str, default: str) -> str:
        expected = (
            "an address like https://github.example.com, without a name, a password or a query in "
            "it"
        )
        return _checked(environment, name, is_url, expected, default).rstrip("/")

    site = address("GITHUB_SERVER_URL", GITHUB)
    api = address("GITHUB_API_URL", GITHUB_API if site == GITHUB else "")
    return site, api, address("GITHUB_GRAPHQL_URL", re.sub("/api/v3$", "/api", api) + "/graphql")


def is_url(text: str) -> bool:
    """Return whether `text` is the plain address of a server: no name, password, query or fragment
    in it, and a port that is one."""
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
    """Return the variable `name`, or `default` if it is empty. Raises UsageError for a value that
    does not fit."""
    value = environment.get(name) or default
    if not fits(value):
        shown = f"`{for_terminal(value, 100)}`" if value else "nothing"
        raise UsageError(
            f"{name}: expected {expected}, found {shown}",
            remedy="the runner sets it: take it out of `env:`, and hand it on to a container of "
            "your own as it is",
            reason_id="action/no-workflow",
        )
    return value
