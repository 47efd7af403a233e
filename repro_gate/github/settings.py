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
from pathlib import Path

from repro_gate.errors import UsageError
from repro_gate.escape import for_terminal
from repro_gate.github.event import is_commit, is_repository, read_event

COMMENT_WHEN = ("always", "on-failure", "on-change", "never")
FAIL_ON = ("fail", "inconclusive")
GITHUB, GITHUB_API = "https://github.com", "https://api.github.com"

_OWN_FOLDER = "expected a folder of its own inside the workspace"
# YAML 1.2 core: `yes` is a text
_BOOLEANS = {
    "true": True,
    "True": True,
    "TRUE": True,
    "false": False,
    "False": False,
    "FALSE": False,
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
    """The inputs, by their variables `INPUT_…`. One that is empty or not there has its default.
    Raises UsageError for a wrong value."""
    given = {
        name.removeprefix("INPUT_").lower(): value.strip()
        for name, value in environment.items()
        if name.startswith("INPUT_")
    }
    text = {name: value for name, value in given.items() if value}
    default = Inputs()
    inside = "expected a path inside the workspace"
    folder = posixpath.normpath(
        _one(text, "working_directory", _is_inside, inside, "training") or default.working_directory
    )
    above = f"{inside} (it is relative to `working_directory`, `{for_terminal(folder, 100)}`)"
    spec = _one(
        text,
        "spec",
        lambda value: _is_relative(value) and _is_inside(posixpath.join(folder, value)),
        above,
        "repro.yml",
    )
    verdicts = _one(
        text,
        "fail_on",
        _are_verdicts,
        "expected `fail` and `inconclusive`, or `never` alone",
        '"fail, inconclusive"',
    )
    cache = _one(text, "cache", _is_cache, _OWN_FOLDER, ".repro-gate-cache")
    number = _one(
        text,
        "pull_request",
        _is_number,
        "expected a pull request's number",
        "${{ github.event.pull_request.number }}",
    )
    return Inputs(
        spec=posixpath.normpath(spec or default.spec),
        working_directory=folder,
        token=_token(text.get("token", "")),
        comment=_one_of(text, "comment", COMMENT_WHEN, "on-failure") or default.comment,
        fail_on=default.fail_on if verdicts is None else _words(verdicts) - {"never"},
        report=posixpath.normpath(
            _one(text, "report", _is_own_folder, _OWN_FOLDER, default.report) or default.report
        ),
        policy=_one_of(text, "policy", ("head", "base"), "base"),
        base=_one(text, "base", _is_ref, "expected a branch, a tag or a commit", "origin/main"),
        against=_one(
            text, "against", _is_ref, "expected a branch, a tag or a commit", "origin/main"
        ),
        overrides=_overrides(text.get("set", "")),
        pull_request=None if number is None else int(number),
        allow_forks=_boolean(text, "allow_forks", default.allow_forks),
        annotations=_boolean(text, "annotations", default.annotations),
        summary=_boolean(text, "summary", default.summary),
        cache=None if cache is None else posixpath.normpath(cache),
    )


def _one(
    text: Mapping[str, str], name: str, fits: Callable[[str], bool], expected: str, example: str
) -> str | None:
    """The input `name`; None where it was not given. Raises UsageError where it does not fit."""
    value = text.get(name)
    if value is not None and not fits(value):
        message = f"{name}: `{for_terminal(value, 100)}`: {expected}"
        raise UsageError(message, remedy=f"`with: {{{name}: {example}}}`", reason_id="action/input")
    return value


def _one_of(
    text: Mapping[str, str], name: str, allowed: tuple[str, ...], example: str
) -> str | None:
    return _one(
        text,
        name,
        allowed.__contains__,
        f"expected one of {', '.join(f'`{item}`' for item in allowed)}",
        example,
    )


def _boolean(text: Mapping[str, str], name: str, default: bool) -> bool:
    value = _one(text, name, _BOOLEANS.__contains__, "expected `true` or `false`", '"true"')
    return default if value is None else _BOOLEANS[value]


def _words(value: str) -> frozenset[str]:
    return frozenset(value.replace(",", " ").split())


def _are_verdicts(value: str) -> bool:
    words = _words(value)
    return words == {"never"} or (bool(words) and words <= set(FAIL_ON))


def _is_ref(value: str) -> bool:
    return _is_seen(value) and _REF.fullmatch(value) is not None


def _is_seen(value: str) -> bool:
    return for_terminal(value) == value and len(value) <= 1024


def _is_relative(value: str) -> bool:
    return _is_seen(value) and not value.startswith("/")


def _is_inside(value: str) -> bool:
    return _is_relative(value) and posixpath.normpath(value).split("/")[0] != ".."


def _is_own_folder(value: str) -> bool:
    """A folder that is filled, hidden from git and given to another owner: neither the checkout nor
    its `.git`."""
    path = posixpath.normpath(value)
    return _is_inside(value) and path != "." and ".git" not in path.lower().split("/")


def _is_cache(value: str) -> bool:
    """Such a folder, or an absolute path: what `actions/cache` keeps may lie anywhere."""
    return _is_seen(value) and (value.startswith("/") or _is_own_folder(value))


def _overrides(value: str) -> tuple[str, ...]:
    """One `key=value` a line, as `--set` takes it; blank lines and lines that begin with `#` are
    left out."""
    lines = [
        line for line in map(str.strip, value.splitlines()) if line and not line.startswith("#")
    ]
    for line in lines:
        _one(
            {"set": line},
            "set",
            lambda text: bool(_OVERRIDE.fullmatch(text)),
            "expected `key=value`, one a line",
            "train.steps=20",
        )
    return tuple(lines)


def _token(value: str) -> Secret | None:
    if value and not (value.isascii() and value.isprintable() and " " not in value):
        raise UsageError(
            "token: its value is not a token: it has blanks, line ends or characters that a header "
            "cannot carry",
            remedy="`with: {token: ${{ github.token }}}`, or a secret without a line end in it",
            reason_id="action/input",
        )
    return Secret(value) if value else None


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
    return Job(
        repository=_checked(environment, "GITHUB_REPOSITORY", is_repository, "`owner/name`"),
        event_name=_checked(
            environment,
            "GITHUB_EVENT_NAME",
            lambda text: _EVENT.fullmatch(text) is not None,
            "an event's name",
        ),
        sha=_checked(environment, "GITHUB_SHA", is_commit, "a commit of 40 hex digits"),
        ref=environment.get("GITHUB_REF", ""),  # some events have none
        run_id=int(_checked(environment, "GITHUB_RUN_ID", _is_number, "a positive number")),
        run_attempt=int(
            _checked(environment, "GITHUB_RUN_ATTEMPT", _is_number, "a positive number", "1")
        ),
        server_url=server,
        api_url=api,
        graphql_url=graphql,
        workspace=Path(
            _checked(
                environment,
                "GITHUB_WORKSPACE",
                _is_folder,
                "the absolute path of a folder that is there",
            )
        ),
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
    return (
        f"{api_url.removesuffix('/v3')}/graphql"
        if api_url.endswith("/api/v3")
        else f"{api_url}/graphql"
    )


def _url(environment: Mapping[str, str], name: str, default: str) -> str:
    expected = (
        "an address like https://github.example.com, without a name, a password or a query in it"
    )
    return _checked(
        environment, name, lambda text: is_url(text.rstrip("/")), expected, default
    ).rstrip("/")


def is_url(text: str) -> bool:
    """Whether `text` is the plain address of a server: no name, password, query or fragment in it,
    and a port that is one."""
    return _URL.fullmatch(text) is not None


def _path(environment: Mapping[str, str], name: str) -> Path | None:
    return Path(environment[name]) if environment.get(name) else None


def _is_folder(text: str) -> bool:
    return os.path.isabs(text) and os.path.isdir(text)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 15 and int(text) > 0


def _checked(
    environment: Mapping[str, str],
    name: str,
    fits: Callable[[str], bool],
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
