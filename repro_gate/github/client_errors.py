"""What is said when GitHub's API does not do what it is asked: which request, what GitHub answered, and the permission line to add.

Raised by `client` and `transport`, caught by `comment`, `publish` and `cli`. A token never stands in any of it. Imports no HTTP library.
"""

from __future__ import annotations

import json
import re

from repro_gate.errors import GateError
from repro_gate.escape import clip, for_terminal

MESSAGE_LIMIT = 300  # characters of GitHub's own message that are shown
UNAUTHORIZED, FORBIDDEN, NOT_FOUND = 401, 403, 404

# What GitHub says to a token that lacks a permission, in lower case: an installation's (GITHUB_TOKEN), a fine-grained and a classic one.
_LACKS_PERMISSION = (
    "resource not accessible by integration",
    "resource not accessible by personal access token",
    "must have admin rights",
)
# Reasons for a 403 that no permission mends.
_CLOSED = (
    ("locked", "unlock the conversation of the pull request"),
    ("archived", "the repository is archived: nothing can be written there"),
    ("saml", "let the organization authorize the token for single sign-on"),
)
_PERMISSION = re.compile(r"([a-z_]+)=(read|write|admin)")


class ApiError(GateError):
    """GitHub could not be asked, or refused. `status` is the HTTP status; None where no whole answer came.

    `read_only` says that the token may not write here, as a fork's never may: nobody did anything wrong.
    """

    exit_code = 3

    def __init__(
        self, message: str, *, remedy: str = "", reason_id: str = "github/api", status: int | None = None, read_only: bool = False
    ) -> None:
        super().__init__(message, remedy=remedy, reason_id=reason_id)
        self.status = status
        self._read_only = read_only

    @property
    def read_only(self) -> bool:
        """Whether a write failed for want of a permission."""
        return self._read_only


class Uncertain(ApiError):
    """A write that must not be made twice may or may not have been made: its answer never came whole. Look before trying again."""


def refused(method: str, path: str, status: int, message: str, accepted: str | None) -> ApiError:
    """The error for a 4xx. `message` is GitHub's, `accepted` the header `x-accepted-github-permissions` where it came."""
    said = f": {for_terminal(message, MESSAGE_LIMIT)}" if message else ""
    text = f"GitHub answered {status} to {method} {path}{said}"
    if status == UNAUTHORIZED:
        remedy = "the token is wrong or has expired: pass `token: ${{ github.token }}`, or renew the secret that holds it"
        return ApiError(text, remedy=remedy, reason_id="github/unauthorized", status=status)
    lowered = message.lower()
    lacking = lacks_permission(status, message)
    closed = next((remedy for word, remedy in _CLOSED if word in lowered), "")
    if status == FORBIDDEN and closed and not lacking:
        return ApiError(text, remedy=closed, reason_id="github/closed", status=status)
    if lacking or status == FORBIDDEN:
        read_only = lacking and method != "GET"
        return ApiError(
            text, remedy=_permission_remedy(method, accepted), reason_id="github/permission", status=status, read_only=read_only
        )
    remedy = "see that the number is right and that the token may read this repository" if status == NOT_FOUND else ""
    return ApiError(text, remedy=remedy, status=status)


def lacks_permission(status: int, message: str) -> bool:
    """Whether GitHub says that the token itself may not, which waiting does not mend."""
    lowered = message.lower()
    return status in {FORBIDDEN, NOT_FOUND} and any(text in lowered for text in _LACKS_PERMISSION)


def _permission_remedy(method: str, accepted: str | None) -> str:
    line = permission_line(accepted) or f"permissions: {{pull-requests: {'read' if method == 'GET' else 'write'}}}"
    if method == "GET":
        return f"give the job `{line}`"
    return (
        f"give the job `{line}`; for a pull request from a fork or from Dependabot GitHub keeps the token read-only "
        "whatever the workflow says: post from a `workflow_run` workflow with `command: comment`"
    )


def permission_line(accepted: str | None) -> str:
    """The line for the workflow from `x-accepted-github-permissions`; empty where the header names nothing that a workflow can give.

    The header holds sets of permissions, `;` between sets, `,` inside one; any one set will do, and one with `pull_requests` is preferred.
    """
    sets = []
    for part in (accepted or "").split(";"):
        pairs = [_PERMISSION.fullmatch(item.strip()) for item in part.split(",")]
        # Every token has `metadata: read`, and a workflow has no word for it.
        named = {found[1].replace("_", "-"): found[2] for found in pairs if found and found[1] != "metadata"}
        if named and all(pairs):
            sets.append(named)
    chosen = next((named for named in sets if "pull-requests" in named), sets[0] if sets else None)
    return "" if chosen is None else "permissions: {" + ", ".join(f"{name}: {level}" for name, level in chosen.items()) + "}"


def message_of(body: bytes) -> str:
    """GitHub's `message` from the body of an error, with what `errors` adds to it; empty for a body that is not GitHub's JSON."""
    document = json_of(body)
    if not isinstance(document, dict) or not isinstance(document.get("message"), str):
        return ""
    parts = [document["message"]]
    errors = document.get("errors")
    for item in errors[:3] if isinstance(errors, list) else []:
        detail = item if isinstance(item, str) else item.get("message") or item.get("code") if isinstance(item, dict) else None
        if isinstance(detail, str):
            parts.append(detail)
    return clip("; ".join(parts), 10 * MESSAGE_LIMIT)


def json_of(body: bytes) -> object:
    """The document in `body`; `...` where it is not JSON (null is JSON)."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return ...
