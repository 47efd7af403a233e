"""GitHub's answers as our own data: a pull request, a comment. What is not of the expected shape is a ShapeError, never a KeyError.
Reads what is needed and no more, so that fields which GitHub adds or an older server lacks do not matter.
"""

from __future__ import annotations

from typing import TypeVar

from repro_gate.github.model import Comment, PullRequest

_T = TypeVar("_T", str, int, bool)


class ShapeError(Exception):
    """An answer lacks something or has it as another type. The message names the field and says nothing of its value."""


def pull_request_of(value: object) -> PullRequest:
    """A pull request from `GET /pulls/N` or from one of the lists. Raises ShapeError."""
    item = object_of(value, "the pull request")
    head, base = object_of(item.get("head"), "head"), object_of(item.get("base"), "base")
    head_repo = head.get("repo")  # null where the fork has been deleted
    return PullRequest(
        number=_field(item, "number", int),
        state=_field(item, "state", str),
        head_sha=_field(head, "sha", str),
        head_ref=_field(head, "ref", str),
        head_repository=None if head_repo is None else _field(object_of(head_repo, "head.repo"), "full_name", str),
        base_repository=_field(object_of(base.get("repo"), "base.repo"), "full_name", str),
        base_ref=_field(base, "ref", str),
        draft=item.get("draft") is True,
    )


def comment_of(value: object) -> Comment:
    """A comment of a conversation. Its author is empty where the account is gone. Raises ShapeError."""
    item = object_of(value, "the comment")
    user = item.get("user")
    return Comment(
        id=_field(item, "id", int),
        body="" if item.get("body") is None else _field(item, "body", str),
        author="" if user is None else _field(object_of(user, "user"), "login", str),
        url=_field(item, "html_url", str),
    )


def login_of(value: object) -> str:
    """The login of an account. Raises ShapeError."""
    return _field(object_of(value, "the account"), "login", str)


def object_of(value: object, name: str) -> dict[str, object]:
    """`value`, which must be a JSON object. Raises ShapeError."""
    if not isinstance(value, dict):
        raise ShapeError(f"{name} is not an object")
    return value


def _field(item: dict[str, object], name: str, kind: type[_T]) -> _T:
    value = item.get(name)
    if type(value) is not kind:  # `True` is an int, and no id
        raise ShapeError(f"`{name}` is {'missing' if name not in item else 'of another type'}")
    return value
