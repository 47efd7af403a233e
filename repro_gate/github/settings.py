"""What the step was given: the action's inputs (`INPUT_*`) and the job's own variables (`GITHUB_*`, `RUNNER_*`), cleaned, in one place.

Called by `github.__main__` and `posting`. Values come from a workflow file and are repeated in errors only on one line and clipped; the
token is never repeated. Every mistake names the input, its value, and what would be right.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NoReturn

from repro_gate.errors import UsageError
from repro_gate.escape import for_terminal
from repro_gate.github.event import is_commit, is_repository, read_event
from repro_gate.github.model import COMMANDS, COMMENT_WHEN, FAIL_ON, Inputs, Job, Secret

GITHUB = "https://github.com"
GITHUB_API = "https://api.github.com"

_DEFAULT = Inputs()
_BOOLEANS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}  # YAML 1.2 core: `yes` is a text
_POLICIES = ("head", "base")
_REF = re.compile(r"[^\s-][^\s]*")
_OVERRIDE = re.compile(r"[^\s=]+\s*=.*")
_URL = re.compile(r"https?://[A-Za-z0-9.-]+(?::[0-9]{1,5})?(?:/[A-Za-z0-9._~-]+)*", re.ASCII)
_EVENT = re.compile(r"[a-z][a-z0-9_]{0,63}", re.ASCII)


def read_inputs(environment: Mapping[str, str]) -> Inputs:
    """The inputs of `action.yml`, by their variables `INPUT_…`. One that is empty or not there has the default of `Inputs`.

    Raises UsageError for a value that is not allowed. Inputs that the action does not have are the runner's to warn of.
    """

    def given(name: str) -> str:
        return environment.get(f"INPUT_{name.upper()}", "").strip()

    command = clean_command(given("command"))
    working_directory = clean_working_directory(given("working_directory"))
    return Inputs(
        command=command,
        spec=clean_spec(given("spec"), working_directory),
        working_directory=working_directory,
        token=clean_token(given("token")),
        comment=clean_comment(given("comment")),
        fail_on=clean_fail_on(given("fail_on")),
        report=clean_report(given("report"), command),
        policy=clean_policy(given("policy")),
        base=clean_base(given("base")),
        against=clean_against(given("against")),
        overrides=clean_set(given("set")),
        pull_request=clean_pull_request(given("pull_request")),
        allow_forks=clean_allow_forks(given("allow_forks")),
        annotations=clean_annotations(given("annotations")),
        summary=clean_summary(given("summary")),
        cache=clean_cache(given("cache")),
    )


def clean_command(value: str) -> str:
    """`run` or `comment`."""
    return _one_of("command", value, COMMANDS, _DEFAULT.command, "comment")


def clean_comment(value: str) -> str:
    """One of COMMENT_WHEN."""
    return _one_of("comment", value, COMMENT_WHEN, _DEFAULT.comment, "on-failure")


def clean_fail_on(value: str) -> frozenset[str]:
    """Verdicts between commas or blanks, or `never` alone: no verdict turns the step red."""
    words = frozenset(value.replace(",", " ").split())
    if not words:
        return _DEFAULT.fail_on
    if words == {"never"}:
        return frozenset()
    if not words <= set(FAIL_ON):
        _refuse("fail_on", value, f"expected {' and '.join(f'`{word}`' for word in FAIL_ON)}, or `never` alone", '"fail, inconclusive"')
    return words


def clean_working_directory(value: str) -> str:
    """A folder of the workspace, with `/` between its parts; `.` for the workspace itself."""
    return _inside("working_directory", value or _DEFAULT.working_directory, example="training")


def clean_spec(value: str, working_directory: str = ".") -> str:
    """A file or folder relative to `working_directory` that may lie above it, though not above the workspace."""
    path = _relative("spec", value or _DEFAULT.spec, example="repro.yml")
    if _leaves(posixpath.join(working_directory, path)):
        _refuse(
            "spec", value, f"leads out of the workspace (it is relative to `working_directory`, {_quoted(working_directory)})", "repro.yml"
        )
    return path


def clean_report(value: str, command: str = "run") -> str:
    """The report's folder, relative to the workspace and not the workspace itself; with `command: comment`, a folder or file to read."""
    path = _inside("report", value or _DEFAULT.report, example=_DEFAULT.report)
    return _of_its_own("report", path, _DEFAULT.report) if command == "run" else path


def clean_cache(value: str) -> str | None:
    """A folder inside the workspace, or an absolute path: what `actions/cache` keeps may lie anywhere. None: nothing is kept."""
    if value.startswith("/"):
        return posixpath.normpath(_printable("cache", value, "/tmp/repro-gate-cache"))  # noqa: S108  an example, and not opened
    return _of_its_own("cache", _inside("cache", value, example=".repro-gate-cache"), ".repro-gate-cache") if value else None


def clean_policy(value: str) -> str | None:
    """`head` or `base`. None: what the base's own spec says."""
    return _one_of("policy", value, _POLICIES, "", "base") or None


def clean_base(value: str) -> str | None:
    """The ref that the change is to be merged into; None: none is known."""
    return _ref("base", value, "origin/main")


def clean_against(value: str) -> str | None:
    """A ref to gate in the same call; None: none."""
    return _ref("against", value, "origin/main")


def clean_set(value: str) -> tuple[str, ...]:
    """One `key=value` a line, as `--set` takes it; blank lines and lines that begin with `#` are left out."""
    lines = (line.strip() for line in value.splitlines())
    kept = tuple(line for line in lines if line and not line.startswith("#"))
    for line in kept:
        if _OVERRIDE.fullmatch(line) is None:
            _refuse("set", line, "expected `key=value`, one a line", "train.steps=20")
    return kept


def clean_pull_request(value: str) -> int | None:
    """A pull request's number; None: the event says."""
    if not value:
        return None
    if not (value.isascii() and value.isdecimal()) or len(value) > 9 or int(value) < 1:
        _refuse("pull_request", value, "expected a pull request's number", "${{ github.event.pull_request.number }}")
    return int(value)


def clean_allow_forks(value: str) -> bool:
    """Whether a stranger's code may run where it is refused by default."""
    return _boolean("allow_forks", value, _DEFAULT.allow_forks)


def clean_annotations(value: str) -> bool:
    """Whether lines of the change that are to blame are annotated."""
    return _boolean("annotations", value, _DEFAULT.annotations)


def clean_summary(value: str) -> bool:
    """Whether the report goes into the job's summary."""
    return _boolean("summary", value, _DEFAULT.summary)


def clean_token(value: str) -> Secret | None:
    """The token for the API, hidden; None: nothing is posted. Its value stands in no error."""
    if value and not (value.isascii() and value.isprintable() and " " not in value):
        raise UsageError(
            "token: its value is no token: it has blanks, line ends or characters that a header cannot carry",
            remedy="`with: {token: ${{ github.token }}}`, or a secret without a line end in it",
            reason_id="action/input",
        )
    return Secret(value) if value else None


def read_job(environment: Mapping[str, str]) -> Job:
    """Where this job runs, by the runner's own variables, and its event's payload.

    Raises UsageError outside a workflow, for a variable that is not as the runner sets it, and for a payload that cannot be read.
    """
    if not environment.get("GITHUB_REPOSITORY") or not environment.get("GITHUB_EVENT_NAME"):
        raise UsageError(
            "this is meant to run in a GitHub workflow, and GITHUB_REPOSITORY or GITHUB_EVENT_NAME is not set",
            remedy="`repro-gate run` gates a checkout anywhere; a container of your own needs the runner's GITHUB_… and RUNNER_… variables",
            reason_id="action/no-workflow",
        )
    server, api, graphql = read_servers(environment)
    event_path = _path(environment, "GITHUB_EVENT_PATH")
    return Job(
        repository=_checked(environment, "GITHUB_REPOSITORY", is_repository, "`owner/name`"),
        event_name=_checked(environment, "GITHUB_EVENT_NAME", lambda text: _EVENT.fullmatch(text) is not None, "an event's name"),
        event_path=event_path,
        sha=_checked(environment, "GITHUB_SHA", is_commit, "a commit of 40 hex digits"),
        ref=environment.get("GITHUB_REF", ""),  # some events have none
        run_id=_number(environment, "GITHUB_RUN_ID"),
        run_attempt=_number(environment, "GITHUB_RUN_ATTEMPT", "1"),
        server_url=server,
        api_url=api,
        graphql_url=graphql,
        workspace=Path(_checked(environment, "GITHUB_WORKSPACE", _is_folder, "the absolute path of a folder that is there")),
        self_hosted=environment.get("RUNNER_ENVIRONMENT") != "github-hosted",
        output_file=_path(environment, "GITHUB_OUTPUT"),
        summary_file=_path(environment, "GITHUB_STEP_SUMMARY"),
        event=read_event(event_path),
    )


def read_servers(environment: Mapping[str, str]) -> tuple[str, str, str]:
    """The site, its REST and its GraphQL API. A token of one GitHub must not go to another, so only github.com's have a default.

    Raises UsageError for one that is no address.
    """
    server = _url(environment, "GITHUB_SERVER_URL", GITHUB)
    api = _url(environment, "GITHUB_API_URL", GITHUB_API if server == GITHUB else "")
    return server, api, _url(environment, "GITHUB_GRAPHQL_URL", graphql_beside(api))


def graphql_beside(api_url: str) -> str:
    """Where GraphQL is when nothing says so: /api/v3 and /api/graphql on a GitHub Enterprise Server, /graphql on github.com."""
    return f"{api_url.removesuffix('/v3')}/graphql" if api_url.endswith("/api/v3") else f"{api_url}/graphql"


def _url(environment: Mapping[str, str], name: str, default: str) -> str:
    expected = "an address like https://github.example.com, without a name, a password or a query in it"
    return _checked(environment, name, lambda text: _URL.fullmatch(text.rstrip("/")) is not None, expected, default).rstrip("/")


def _number(environment: Mapping[str, str], name: str, default: str = "") -> int:
    return int(_checked(environment, name, _is_number, "a positive number", default))


def _path(environment: Mapping[str, str], name: str) -> Path | None:
    found = environment.get(name)
    return Path(found) if found else None


def _is_folder(text: str) -> bool:
    return os.path.isabs(text) and os.path.isdir(text)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 15 and int(text) > 0


def _checked(environment: Mapping[str, str], name: str, fits: Callable[[str], bool], expected: str, default: str = "") -> str:
    """The variable `name`, or `default` where it is empty. Raises UsageError where what is found does not fit."""
    found = environment.get(name) or default
    if not fits(found):
        raise UsageError(
            f"{name}: expected {expected}, found {_quoted(found) if found else 'nothing'}",
            remedy="the runner sets it: take it out of `env:`, and hand it on to a container of your own as it is",
            reason_id="action/no-workflow",
        )
    return found


def _one_of(name: str, value: str, allowed: tuple[str, ...], default: str, example: str) -> str:
    if value and value not in allowed:
        _refuse(name, value, f"expected one of {', '.join(f'`{item}`' for item in allowed)}", example)
    return value or default


def _boolean(name: str, value: str, default: bool) -> bool:
    if value and value not in _BOOLEANS:
        _refuse(name, value, "expected `true` or `false`", '"true"')
    return _BOOLEANS.get(value, default)


def _ref(name: str, value: str, example: str) -> str | None:
    if value and _REF.fullmatch(_printable(name, value, example)) is None:
        _refuse(name, value, "expected a branch, a tag or a commit", example)
    return value or None


def _inside(name: str, value: str, *, example: str) -> str:
    path = _relative(name, value, example=example)
    if _leaves(path):
        _refuse(name, value, "leads out of the workspace", example)
    return path


def _of_its_own(name: str, path: str, example: str) -> str:
    """A folder that is filled, hidden from git and given to another owner: neither the checkout nor its `.git`."""
    if path == "." or ".git" in path.lower().split("/"):
        _refuse(name, path, "expected a folder of its own in the workspace", example)
    return path


def _relative(name: str, value: str, *, example: str) -> str:
    if value.startswith("/"):
        _refuse(name, value, "expected a path relative to the workspace", example)
    return posixpath.normpath(_printable(name, value, example))


def _printable(name: str, value: str, example: str) -> str:
    if for_terminal(value) != value or len(value) > 1024:
        _refuse(name, value, "expected at most 1,024 characters, all of which can be seen", example)
    return value


def _leaves(path: str) -> bool:
    return posixpath.normpath(path).split("/")[0] == ".."


def _refuse(name: str, value: str, why: str, example: str) -> NoReturn:
    raise UsageError(f"{name}: {_quoted(value)}: {why}", remedy=f"`with: {{{name}: {example}}}`", reason_id="action/input")


def _quoted(value: str) -> str:
    return f"`{for_terminal(value, 100)}`"
