"""What GitHub's answers look like, and what it refuses: the shapes of pull requests, comments,
pages and errors for `server`.

Functions of the state that they are given; nothing here listens or remembers.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from tests.support.github.wire import Answer, Request

BODY_CHARACTERS = 65_536
REPOSITORY_ID = 1296269  # Link headers name the repository by its number, as GitHub's do
_PERMISSIONS = {"x-accepted-github-permissions": "issues=write; pull_requests=write"}


@dataclass
class Pull:
    """A pull request as the server keeps it. `head_repository` is None where the fork has been
    deleted."""

    number: int
    head_sha: str
    head_ref: str
    head_repository: str | None
    base_ref: str
    state: str = "open"
    locked: bool = False
    draft: bool = False
    base_repository: str = ""

    def is_from(self, head: str) -> bool:
        """Whether `head`, `owner:branch`, is where it comes from. Logins do not tell case apart,
        branches do."""
        owner, _, branch = head.partition(":")
        return (self.head_repository or "unknown/").partition("/")[
            0
        ].lower() == owner.lower() and self.head_ref == branch


@dataclass
class Written:
    """A comment as the server keeps it."""

    id: int
    number: int
    login: str
    body: str
    created_at: str


@dataclass(frozen=True)
class Token:
    """Whose token it is, and whether it may write."""

    login: str
    write: bool

    @property
    def app(self) -> bool:
        """Whether it is an app's (`GITHUB_TOKEN` is one)."""
        return self.login.endswith("[bot]")


class Refused(Exception):
    """An answer that is no success. `fault`: what a careful client would not have done."""

    def __init__(
        self,
        status: int,
        message: str,
        fault: str = "",
        headers: Mapping[str, str] | None = None,
        **more: object,
    ) -> None:
        super().__init__(message)
        document = {
            "message": message,
            "documentation_url": "https://docs.github.com/rest",
            "status": str(status),
            **more,
        }
        self.answer = Answer(status, document, dict(headers or {}))
        self.fault = fault


def number_of(login: str) -> int:
    """A made-up id, the same for the same login."""
    return zlib.crc32(login.encode())


def check_headers(request: Request, *, graphql: bool) -> None:
    """What every request must have, whatever it asks for."""
    headers = request.headers
    for problem in request.problems:
        raise Refused(400, "Bad request", problem)
    if not headers.get("user-agent"):
        message = (
            "Request forbidden by administrative rules. Please make sure your request has a "
            "User-Agent header"
        )
        raise Refused(403, message, "no User-Agent")
    if request.body and headers.get("content-type", "").partition(";")[0] != "application/json":
        raise Refused(415, "Unsupported Media Type", "a body that does not say it is JSON")
    if not graphql and headers.get("accept") != "application/vnd.github+json":
        raise Refused(415, "Unsupported 'Accept' header", f"Accept: {headers.get('accept')}")
    if not graphql and headers.get("x-github-api-version") != "2022-11-28":
        raise Refused(
            400,
            "The API version is not supported",
            f"X-GitHub-Api-Version: {headers.get('x-github-api-version')}",
        )


def must_write(who: Token) -> None:
    """Refuse a token that may only read, in GitHub's words and with the header that names what it
    lacks."""
    if not who.write:
        raise Refused(
            403,
            f"Resource not accessible by {'integration' if who.app else 'personal access token'}",
            headers=_PERMISSIONS,
        )


def only(request: Request, *names: str) -> None:
    """Refuse a query parameter that the endpoint does not know, and a body where none belongs."""
    unknown = sorted(set(request.query) - set(names))
    if unknown:
        raise Refused(400, "Bad request", f"unknown query parameters: {unknown}")
    if request.body and request.method in {"GET", "DELETE"}:
        raise Refused(400, "Bad request", "a body where none belongs")


def document_of(request: Request) -> dict[str, Any]:
    """The JSON object that a request carries."""
    try:
        document = json.loads(request.body)
    except ValueError:
        raise Refused(400, "Problems parsing JSON", "a body that is not JSON") from None
    if not isinstance(document, dict):
        raise Refused(400, "Body should be a JSON object", "a body that is not a JSON object")
    return document


def body_of(request: Request) -> str:
    """The text of a comment that is to be written."""
    document = document_of(request)
    if set(document) != {"body"}:
        raise Refused(
            422,
            'Invalid request.\n\n"body" wasn\'t supplied.',
            f"fields {sorted(document)} instead of `body`",
        )
    body = document["body"]
    if not isinstance(body, str):
        raise Refused(
            422,
            f"Invalid request.\n\nFor 'properties/body', {body!r} is not a string.",
            "a body that is no string",
        )
    if not body.strip():
        _invalid("missing", "body", "Body cannot be blank")
    if len(body) > BODY_CHARACTERS:
        _invalid(
            "unprocessable", "data", f"Body is too long (maximum is {BODY_CHARACTERS} characters)"
        )
    return body


def _invalid(code: str, name: str, message: str) -> None:
    error = {"resource": "IssueComment", "code": code, "field": name, "message": message}
    raise Refused(422, "Validation Failed", errors=[error])


def page(request: Request, url: str, rest: str, found: Sequence[object]) -> Answer:
    """One page of a list, with the Link header to the next and the last. `rest` is the path below
    the repository."""
    size, number = (
        request.query.get(name, default) for name, default in (("per_page", "30"), ("page", "1"))
    )
    if not (
        re.fullmatch(r"[1-9]\d{0,2}", size)
        and int(size) <= 100
        and re.fullmatch(r"[1-9]\d*", number)
    ):
        raise Refused(400, "Bad request", f"per_page={size}, page={number}: 1 to 100 a page")
    count, last = int(size), max(-(-len(found) // int(size)), 1)
    here = int(number)
    links = {"next": here + 1, "last": last} if here < last else {}
    if here > 1:
        links |= {"prev": here - 1, "first": 1}
    at = f"{url}/repositories/{REPOSITORY_ID}{rest}"
    header = ", ".join(
        f'<{at}?{urlencode({**request.query, "page": to})}>; rel="{name}"'
        for name, to in links.items()
    )
    return Answer(
        200, list(found[(here - 1) * count : here * count]), {"Link": header} if header else {}
    )


def pull_json(pull: Pull) -> dict[str, Any]:
    """A pull request as the API gives it: what a client may look at."""
    return {
        "id": 10_000 + pull.number,
        "number": pull.number,
        "state": pull.state,
        "locked": pull.locked,
        "draft": pull.draft,
        "title": f"Change {pull.number}",
        "user": _user((pull.head_repository or "ghost/").split("/")[0]),
        "html_url": f"https://github.com/{pull.base_repository}/pull/{pull.number}",
        "head": _end(pull.head_ref, pull.head_sha, pull.head_repository),
        "base": _end(pull.base_ref, "0" * 40, pull.base_repository),
    }


def _end(ref: str, sha: str, repository: str | None) -> dict[str, Any]:
    owner = repository.split("/")[0] if repository else None
    repo = (
        None
        if repository is None
        else {
            "id": number_of(repository),
            "full_name": repository,
            "name": repository.split("/")[1],
        }
    )
    return {
        "ref": ref,
        "sha": sha,
        "label": f"{owner or 'unknown'}:{ref}",
        "repo": repo,
        "user": _user(owner) if owner else None,
    }


def comment_json(comment: Written, repository: str, url: str) -> dict[str, Any]:
    """A comment as the API gives it."""
    return {
        "id": comment.id,
        "url": f"{url}/repos/{repository}/issues/comments/{comment.id}",
        "html_url": f"https://github.com/{repository}/pull/{comment.number}#issuecomment-{comment.id}",
        "issue_url": f"{url}/repos/{repository}/issues/{comment.number}",
        "user": _user(comment.login),
        "created_at": comment.created_at,
        "updated_at": comment.created_at,
        "author_association": "NONE",
        "body": comment.body,
    }


def _user(login: str) -> dict[str, Any]:
    return {
        "login": login,
        "id": number_of(login),
        "type": "Bot" if login.endswith("[bot]") else "User",
        "site_admin": False,
    }
