"""What the step was given: the action's inputs (`INPUT_*`) and the job's own variables (`GITHUB_*`,
`RUNNER_*`), checked in one place: each field's type says what its variable may be.

Errors name the input, its value on one line, and what would be right. The token stands in none.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct, field

from repro_gate._version import DOCS_URL
from repro_gate.errors import UsageError
from repro_gate.escape import for_terminal
from repro_gate.github.event import Commit, Number, RepositoryName, read_event

GITHUB = "https://github.com"
GITHUB_API = "https://api.github.com"
_HOST = r"[A-Za-z0-9.-]+(?::[0-9]{1,5})?(?:/[A-Za-z0-9._~-]+)*\Z"
_LOOPBACK = r"http://(?:localhost|127(?:\.[0-9]{1,3}){3})(?![A-Za-z0-9.-])"

# No name, password, query or fragment in it, and a port that is one.
_Site = Annotated[str, Meta(pattern=f"^https?://{_HOST}")]
# A token must not go over the network unencrypted.
_Api = Annotated[str, Meta(pattern=f"^(?:https://|(?={_LOOPBACK})http://){_HOST}")]
_Event = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_]{0,63}\Z")]
_Reference = Annotated[str, Meta(pattern=r"^[^\s-]\S*\Z")]
_Override = Annotated[str, Meta(pattern=r"^[^\s=]+\s*=")]
_ADDRESS = "expected an address like https://github.example.com, and https for the API"
# the allowed values of a variable, if an error from its type would be less clear
_EXPECTED = {
    "INPUT_COMMENT": "expected `always`, `on-failure`, `on-change` or `never`",
    "INPUT_FAIL_ON": "expected `fail` and `inconclusive`, or `never` alone",
    "INPUT_POLICY": "expected `head` or `base`",
    "INPUT_BASE": "expected a branch, a tag or a commit",
    "INPUT_AGAINST": "expected a branch, a tag or a commit",
    "INPUT_SET": "expected `key=value`, one a line",
    "GITHUB_REPOSITORY": "expected `owner/name`",
    "GITHUB_SHA": "expected a commit of 40 hex digits",
    "GITHUB_SERVER_URL": _ADDRESS,
    "GITHUB_API_URL": _ADDRESS,
    "GITHUB_GRAPHQL_URL": _ADDRESS,
}
_Kind = TypeVar("_Kind", bound=Struct)


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


class Inputs(
    Struct, frozen=True, kw_only=True, rename=lambda name: f"INPUT_{name.upper()}"
):
    """The action's inputs. The names are those of `action.yml`."""

    working_directory: str = "."  # relative to the workspace, inside it
    # as given relative to `working_directory`, here to the workspace, and inside it
    spec: str = "repro.yml"
    token: Secret | None = None
    comment: Literal["always", "on-failure", "on-change", "never"] = "on-change"
    # the verdicts that turn the step red; empty for `never`
    fail_on: frozenset[Literal["fail", "inconclusive"]] = frozenset(
        ("fail", "inconclusive")
    )
    # the folder of report.json, report.md, report.html and report.sarif
    report: str = "repro-gate-report"
    policy: Literal["head", "base"] | None = None  # as `run --policy`
    base: _Reference | None = None  # as `run --base`
    against: _Reference | None = None  # as `run --against`
    # one `key=value` a line
    overrides: tuple[_Override, ...] = field(name="INPUT_SET", default=())
    pull_request: Number | None = None  # to comment on, if the event names none
    allow_forks: bool = False
    annotations: bool = True
    summary: bool = True
    # kept between jobs: environments of `env.install`, digests of data
    cache: str | None = None


class Server(
    Struct, frozen=True, kw_only=True, rename=lambda name: f"GITHUB_{name.upper()}"
):
    """A repository, and the GitHub that it is at."""

    repository: RepositoryName
    server_url: _Site
    api_url: _Api
    graphql_url: _Api


class Job(Server, frozen=True, kw_only=True):
    """Where this job runs, by the runner's own variables."""

    event_name: _Event
    sha: Commit
    ref: str = ""  # refs/heads/…, refs/pull/7/merge; some events have none
    run_id: Number
    run_attempt: Number = 1
    workspace: Path
    workflow: str = ""
    # the same in each cell of a matrix
    name: str = field(name="GITHUB_JOB", default="")
    output_file: Path | None = field(name="GITHUB_OUTPUT", default=None)
    # where the report's page has been uploaded
    page_url: str = field(name="REPRO_GATE_PAGE", default="")
    summary_file: Path | None = field(name="GITHUB_STEP_SUMMARY", default=None)
    # whatever is not known to be GitHub's own runner
    self_hosted: bool = field(name="RUNNER_ENVIRONMENT", default=True)
    # the payload, of limited size
    event: bytes = field(name="GITHUB_EVENT_PATH", default=b"")


def read_inputs(environment: Mapping[str, str]) -> Inputs:
    """Return the inputs, by their variables `INPUT_…`. One that is empty or not there has its
    default. Raises UsageError for a wrong value."""
    remedy = f"{DOCS_URL}/action.md lists the inputs and what each may be"
    folder = environment.get("INPUT_WORKING_DIRECTORY", "").strip()
    spec = environment.get("INPUT_SPEC", "").strip() or "repro.yml"
    variables = {**environment, "INPUT_SPEC": posixpath.join(folder, spec)}
    return _read(Inputs, variables, remedy, "action/input")


def read_job(environment: Mapping[str, str]) -> Job:
    """Return where this job runs, and its event's payload.

    Raises UsageError outside a workflow, for a variable that is not as the runner sets it, and for
    a payload that cannot be read.
    """
    if not all(map(environment.get, ("GITHUB_REPOSITORY", "GITHUB_EVENT_NAME"))):
        raise UsageError(
            "this is meant to run in a GitHub workflow, and GITHUB_REPOSITORY or GITHUB_EVENT_NAME "
            "is not set",
            remedy="`repro-gate run` gates a checkout anywhere; a container of your own needs the "
            "runner's GITHUB_… and RUNNER_… variables",
            reason_id="action/no-workflow",
        )
    return read_variables(Job, environment)


def read_variables(kind: type[_Kind], environment: Mapping[str, str]) -> _Kind:
    """Return a Job, or a Server alone, in a workflow or elsewhere, with defaults for the site, its
    REST and its GraphQL API. A token of one GitHub must not go to another, so only github.com's
    have a default. Raises UsageError for a variable that is not as the runner sets it.

    GraphQL is at /api/graphql on a GitHub Enterprise Server, whose REST API is at /api/v3, and at
    /graphql on github.com.
    """
    site = (environment.get("GITHUB_SERVER_URL") or GITHUB).rstrip("/")
    api = environment.get("GITHUB_API_URL") or (GITHUB_API if site == GITHUB else "")
    api = api.rstrip("/")
    variables = {
        "GITHUB_GRAPHQL_URL": re.sub("/api/v3$", "/api", api) + "/graphql",
        **environment,
        "GITHUB_SERVER_URL": site,
        "GITHUB_API_URL": api,
    }
    remedy = (
        "the runner sets it: take it out of `env:`, and hand it on to a container of your own as "
        "it is"
    )
    return _read(kind, variables, remedy, "action/no-workflow")


def _read(
    kind: type[_Kind], environment: Mapping[str, str], remedy: str, reason_id: str
) -> _Kind:
    """Return a record of the variables that its fields name. Raises UsageError for one that its
    field's type does not allow."""
    values = {}
    for item in msgspec.structs.fields(kind):
        variable = item.encode_name
        text = environment.get(variable, "").strip()
        if not text and not item.required:
            continue
        try:
            values[item.name] = msgspec.convert(
                _READERS.get(variable, str)(text),
                item.type,
                strict=False,  # a number, a switch
                dec_hook=lambda made, text: made(text),  # a Path, a Secret
            )
        except ValueError as error:  # msgspec's is one
            name = variable.removeprefix("INPUT_")
            name = name if name == variable else name.lower()
            expected = _EXPECTED.get(variable, for_terminal(str(error), 200))
            raise UsageError(
                f"{name}: `{for_terminal(text, 100)}`: {expected}",
                remedy=remedy,
                reason_id=reason_id,
            ) from None
    return kind(**values)


# What reads a variable raises ValueError for what it may not be.


def _visible(text: str) -> str:
    if for_terminal(text) != text or len(text) > 1024:
        raise ValueError("expected at most 1024 characters that can all be seen")
    return text


def _inside(text: str) -> str:
    """Return a path that does not lead out of the workspace, normalized."""
    path = posixpath.normpath(_visible(text))
    if path.startswith("/") or path.split("/")[0] == "..":
        raise ValueError("expected a path inside the workspace")
    return path


def _own_folder(text: str) -> str:
    """Return a folder that may be filled, hidden from git and given to another owner: neither the
    checkout nor its `.git`."""
    path = _inside(text)
    if path == "." or ".git" in path.lower().split("/"):
        raise ValueError("expected a folder of its own inside the workspace")
    return path


def _verdicts(text: str) -> list[str]:
    words = text.replace(",", " ").split()
    return [] if words == ["never"] else words or [text]


def _folder(text: str) -> str:
    if not Path(text).is_absolute() or not Path(text).is_dir():
        raise ValueError("expected the absolute path of an existing folder")
    return text


_READERS: Mapping[str, Callable[[str], object]] = {
    "INPUT_WORKING_DIRECTORY": _inside,
    "INPUT_SPEC": _inside,
    "INPUT_FAIL_ON": _verdicts,
    "INPUT_REPORT": _own_folder,
    "INPUT_BASE": _visible,
    "INPUT_AGAINST": _visible,
    # without blank lines and lines that begin with `#`
    "INPUT_SET": re.compile(r"^[^\S\n]*([^#\s].*?)[^\S\n]*$", re.MULTILINE).findall,
    # what `actions/cache` keeps may lie anywhere
    "INPUT_CACHE": lambda text: (
        posixpath.normpath(_visible(text))
        if text.startswith("/")
        else _own_folder(text)
    ),
    "GITHUB_WORKSPACE": _folder,
    "GITHUB_EVENT_PATH": lambda text: read_event(Path(text)),
    "RUNNER_ENVIRONMENT": lambda text: text != "github-hosted",
}
