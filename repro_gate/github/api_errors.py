"""What GitHub's API refuses, as errors for a person: with GitHub's own message, and the line for
the workflow that would mend it."""

from __future__ import annotations

import re

import msgspec

from repro_gate.errors import GateError
from repro_gate.escape import clip, for_terminal

UNAUTHORIZED, FORBIDDEN, NOT_FOUND, TOO_MANY = 401, 403, 404, 429
_MESSAGE = 300  # characters of GitHub's own message that are shown
_CLOSED = {  # reasons for a 403 that no permission solves
    "locked": "unlock the conversation of the pull request",
    "archived": "the repository is archived: nothing can be written there",
    "saml": "let the organization authorize the token for single sign-on",
}
_PERMISSION = re.compile(r"([a-z_]+)=(read|write|admin)")
# What GitHub says to a token that lacks a permission, in lower case: an installation's
# (GITHUB_TOKEN), a fine-grained and a classic one.
_LACKS_PERMISSION = (
    "resource not accessible by integration",
    "resource not accessible by personal access token",
    "must have admin rights",
)


class ApiError(GateError):
    """GitHub could not be asked, or refused. `status` is the HTTP status, None where no whole
    answer came; `read_only`: the token may not write here, as a fork's never may."""

    exit_code = 3

    def __init__(
        self,
        message: str,
        *,
        remedy: str = "",
        reason_id: str = "github/api",
        status: int | None = None,
        read_only: bool = False,
    ) -> None:
        super().__init__(message, remedy=remedy, reason_id=reason_id)
        self.status, self.read_only = status, read_only


class Uncertain(ApiError):
    """A write that must not be repeated may or may not have been made: its whole answer never came.
    Look before trying again."""


def refused(method: str, path: str, status: int, message: str, accepted: str | None) -> ApiError:
    """The error for a 4xx. `message` is GitHub's, `accepted` the header
    `x-accepted-github-permissions` where it came."""
    text = f"GitHub answered {status} to {method} {path}" + (
        f": {for_terminal(message, _MESSAGE)}" if message else ""
    )
    if status == UNAUTHORIZED:
        remedy = (
            "the token is wrong or has expired: pass `token: ${{ github.token }}`, or renew the "
            "secret that holds it"
        )
        return ApiError(text, remedy=remedy, reason_id="github/unauthorized", status=status)
    lacking = lacks_permission(status, message)
    closed = next((remedy for word, remedy in _CLOSED.items() if word in message.lower()), "")
    if status == FORBIDDEN and closed and not lacking:
        return ApiError(text, remedy=closed, reason_id="github/closed", status=status)
    if lacking or status == FORBIDDEN:
        write = method != "GET"
        line = (
            permission_line(accepted)
            or f"permissions: {{pull-requests: {'write' if write else 'read'}}}"
        )
        fork = (
            "; for a pull request from a fork or from Dependabot GitHub keeps the token read-only "
            "whatever the workflow says: post from a `workflow_run` workflow with "
            "`repro-gate/repro-gate/comment`"
        )
        remedy = f"give the job `{line}`{fork if write else ''}"
        return ApiError(
            text,
            remedy=remedy,
            reason_id="github/permission",
            status=status,
            read_only=lacking and write,
        )
    remedy = (
        "see that the number is right and that the token may read this repository"
        if status == NOT_FOUND
        else ""
    )
    return ApiError(text, remedy=remedy, status=status)


def permission_line(accepted: str | None) -> str:
    """The line for the workflow from `x-accepted-github-permissions`; empty where the header names
    nothing that a workflow can give.

    The header holds sets of permissions, `;` between sets, `,` inside one; any one set will do, and
    one with `pull_requests` is preferred.
    """
    sets = []
    for part in (accepted or "").split(";"):
        pairs = [_PERMISSION.fullmatch(item.strip()) for item in part.split(",")]
        # Every token has `metadata: read`, and a workflow has no word for it.
        named = {
            found[1].replace("_", "-"): found[2]
            for found in pairs
            if found and found[1] != "metadata"
        }
        if named and all(pairs):
            sets.append(named)
    chosen = next((named for named in sets if "pull-requests" in named), sets[0] if sets else None)
    return (
        ""
        if chosen is None
        else "permissions: {"
        + ", ".join(f"{name}: {level}" for name, level in chosen.items())
        + "}"
    )


def lacks_permission(status: int, message: str) -> bool:
    """Whether GitHub says that the token itself may not, which waiting does not change."""
    return status in {FORBIDDEN, NOT_FOUND} and any(
        text in message.lower() for text in _LACKS_PERMISSION
    )


def message_of(body: bytes) -> str:
    """GitHub's `message` from the body of an error, with what `errors` adds to it; empty for a body
    that is not GitHub's JSON."""
    document = json_of(body)
    if not isinstance(document, dict) or not isinstance(document.get("message"), str):
        return ""
    errors = document.get("errors")
    items = errors[:3] if isinstance(errors, list) else []
    details = [
        item if isinstance(item, str) else item.get("message") or item.get("code")
        for item in items
        if isinstance(item, str | dict)
    ]
    return clip(
        "; ".join(
            [document["message"], *(detail for detail in details if isinstance(detail, str))]
        ),
        3000,
    )


def json_of(body: bytes) -> object:
    """The document in `body`; None where it is not JSON."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
