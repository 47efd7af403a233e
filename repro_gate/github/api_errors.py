"""What GitHub's API refuses, as errors for a person: with GitHub's own message, and the line for
the workflow that would mend it."""

from __future__ import annotations

import json
import re

import msgspec

from repro_gate.errors import GateError
from repro_gate.escape import clip, for_terminal

UNAUTHORIZED, FORBIDDEN, NOT_FOUND, TOO_MANY = 401, 403, 404, 429
_MESSAGE = 300  # characters of GitHub's own message that are shown
# reasons for a 403 that no permission solves: a locked conversation, an archived repository, an
# organization that asks for single sign-on
_CLOSED = re.compile("locked|archived|saml", re.IGNORECASE)
# What GitHub says to a token that lacks a permission: an installation's (GITHUB_TOKEN), a
# fine-grained and a classic one.
_LACKS_PERMISSION = re.compile(
    "resource not accessible by (integration|personal access token)|must have admin rights",
    re.IGNORECASE,
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


def refused(method: str, request: str, status: int, message: str) -> ApiError:
    """Return the error for a redirect or a 4xx. `message` is GitHub's."""
    text = f"GitHub answered {status} to {request}" + (
        f": {for_terminal(message, _MESSAGE)}" if message else ""
    )
    lacking, write = lacks_permission(status, message), method != "GET"
    reason_id, remedy = "github/api", ""
    if status < 400:
        reason_id = "github/redirect"
        remedy = (
            "the token is sent to one place only; set GITHUB_API_URL, or the repository's name, to "
            "what it is now"
        )
    elif status == UNAUTHORIZED:
        reason_id = "github/unauthorized"
        remedy = (
            "the token is wrong or has expired: pass `token: ${{ github.token }}`, or renew the "
            "secret that holds it"
        )
    elif status == FORBIDDEN and not lacking and _CLOSED.search(message):
        reason_id = "github/closed"
    elif lacking or status == FORBIDDEN:
        reason_id = "github/permission"
        remedy = f"give the job `permissions: {{pull-requests: {'write' if write else 'read'}}}`"
        if write:
            remedy += (
                "; for a pull request from a fork or from Dependabot GitHub keeps the token "
                "read-only whatever the workflow says: post from a `workflow_run` workflow with "
                "`repro-gate/repro-gate/comment`"
            )
    elif status == NOT_FOUND:
        remedy = "see that the number is right and that the token may read this repository"
    return ApiError(
        text, remedy=remedy, reason_id=reason_id, status=status, read_only=lacking and write
    )


def lacks_permission(status: int, message: str) -> bool:
    """Return whether GitHub says that the token itself may not, which waiting does not change."""
    return status in {FORBIDDEN, NOT_FOUND} and _LACKS_PERMISSION.search(message) is not None


def message_of(body: bytes) -> str:
    """Return GitHub's `message` from the body of an error, with `errors` behind it; empty for a
    body that is not GitHub's JSON."""
    try:
        found = msgspec.json.decode(body, type=dict[str, object])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    parts = [found.get("message", ""), json.dumps(found["errors"]) if "errors" in found else ""]
    return clip("; ".join(str(part) for part in parts if part), 3000)
