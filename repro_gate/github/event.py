"""What a workflow's event says: its payload read under limits, and the pull request or workflow run in it as data.
 A payload holds what strangers chose: names of branches, of forks, of
workflows. What is used is checked strictly and every mistake names its JSON path; what is not used may be anything.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from repro_gate.errors import UsageError
from repro_gate.escape import for_terminal
from repro_gate.github.model import PullRequest, WorkflowRun

MAX_BYTES = 25 * 1024 * 1024  # GitHub delivers no larger payload: docs.github.com, "Webhook events and payloads", Payload cap
MAX_DEPTH = 64  # levels; GitHub's own payloads have fewer than 10
MAX_NUMBER = 2**53  # beyond it JSON numbers are no longer exact everywhere

_REPOSITORY = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*/[A-Za-z0-9_.-]+", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?", re.ASCII)  # SHA-1 or SHA-256
_TAMPERED = "start the job anew; if it happens again, a step before this one has changed the event's file"

_Found = TypeVar("_Found")


def read_event(path: Path | None) -> Mapping[str, object] | None:
    """The payload at `path`; None where there is no such file.

    Raises UsageError for what is no regular file, over MAX_BYTES, no JSON object, or nested deeper than MAX_DEPTH.
    """
    if path is None:
        return None
    try:
        data = _bytes(path)
        payload: object = json.loads(data.decode("utf-8"))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unusable(path, f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise _unusable(path, f"not UTF-8 at byte {error.start}") from None
    except RecursionError:
        raise _unusable(path, f"nested deeper than {MAX_DEPTH} levels") from None
    except ValueError as error:  # JSONDecodeError, and an integer of more digits than Python reads
        raise _unusable(path, f"not JSON: {for_terminal(str(error), 200)}") from None
    if not isinstance(payload, dict):
        raise _unusable(path, f"expected a JSON object, found {_kind(payload)}")
    if _deeper_than(payload, MAX_DEPTH):
        raise _unusable(path, f"nested deeper than {MAX_DEPTH} levels")
    return payload


def read_pull_request(payload: Mapping[str, object]) -> PullRequest:
    """The pull request of a `pull_request…` event. Raises UsageError naming the JSON path of what is missing or not as GitHub has it."""
    pull = _Object(payload, "").object("pull_request")
    head, base = pull.object("head"), pull.object("base")
    state = pull.text("state")
    if state not in ("open", "closed"):
        raise pull.wrong("state", "`open` or `closed`")
    return PullRequest(
        number=pull.number("number"),
        state=state,
        head_sha=head.commit("sha"),
        head_ref=head.text("ref"),
        head_repository=_repository(head, "repo"),
        base_repository=base.object("repo").repository("full_name"),
        base_ref=base.text("ref"),
        draft=pull.flag("draft"),
    )


def read_workflow_run(payload: Mapping[str, object]) -> WorkflowRun:
    """The run of a `workflow_run` event. Raises UsageError naming the JSON path of what is missing or not as GitHub has it.

    A run of a fork lists pull requests of other repositories too: only those of the run's own repository are taken.
    """
    run = _Object(payload, "").object("workflow_run")
    own = run.object("repository")
    return WorkflowRun(
        id=run.number("id"),
        attempt=run.number("run_attempt"),
        name=run.optional_text("name") or "",
        event=run.text("event"),
        status=run.text("status"),
        conclusion=run.optional_text("conclusion"),
        head_sha=run.commit("head_sha"),
        head_branch=run.optional_text("head_branch"),
        head_repository=_repository(run, "head_repository"),
        repository=own.repository("full_name"),
        pull_requests=tuple(pull.number("number") for pull in run.objects("pull_requests") if _base_of(pull) == own.number("id")),
    )


def is_repository(text: str) -> bool:
    """Whether `text` is `owner/name` as GitHub spells it: ASCII letters, digits, `-`, `_` and `.`."""
    return len(text) <= 200 and _REPOSITORY.fullmatch(text) is not None and text.partition("/")[2] not in (".", "..")


def is_commit(text: str) -> bool:
    """Whether `text` is a full commit: 40 or 64 lower-case hex digits."""
    return _COMMIT.fullmatch(text) is not None


def _repository(owner: _Object, key: str) -> str | None:
    """The name of a repository that may be gone: GitHub has null in place of a fork that was deleted."""
    found = owner.optional_object(key)
    return None if found is None else found.repository("full_name")


def _base_of(pull: _Object) -> int:
    return pull.object("base").object("repo").number("id")


class _Object:
    """One object of the payload, and where it stands, so that what is wrong with a value can be told with its path."""

    def __init__(self, values: Mapping[str, object], path: str) -> None:
        self._values, self._path = values, path

    def object(self, key: str) -> _Object:
        return _Object(self._typed(key, dict, "an object"), self._at(key))

    def optional_object(self, key: str) -> _Object | None:
        """None for null; a key that is not there at all is a mistake."""
        return None if key in self._values and self._values[key] is None else self.object(key)

    def objects(self, key: str) -> tuple[_Object, ...]:
        items = self._typed(key, list, "a list")
        for number, item in enumerate(items):
            if not isinstance(item, dict):
                raise _wrong(f"{self._at(key)}[{number}]", "an object", item)
        return tuple(_Object(item, f"{self._at(key)}[{number}]") for number, item in enumerate(items))

    def text(self, key: str) -> str:
        return self._typed(key, str, "a text")

    def optional_text(self, key: str) -> str | None:
        """None for null and for a key that is not there."""
        return None if self._values.get(key) is None else self.text(key)

    def flag(self, key: str) -> bool:
        """False where the key is not there: events of reviews leave `draft` out."""
        return key in self._values and self._typed(key, bool, "true or false")

    def number(self, key: str) -> int:
        found = self._typed(key, int, "a number")
        if isinstance(found, bool) or not 0 < found < MAX_NUMBER:
            raise self.wrong(key, "a positive number")
        return found

    def commit(self, key: str) -> str:
        found = self.text(key)
        if not is_commit(found):
            raise self.wrong(key, "a commit of 40 hex digits")
        return found

    def repository(self, key: str) -> str:
        found = self.text(key)
        if not is_repository(found):
            raise self.wrong(key, "`owner/name`")
        return found

    def wrong(self, key: str, expected: str) -> UsageError:
        """The error for a value that is not as GitHub has it."""
        return _wrong(self._at(key), expected, self._values.get(key))

    def _typed(self, key: str, kind: type[_Found], expected: str) -> _Found:
        if key not in self._values:
            raise UsageError(f"the event has no `{self._at(key)}`", remedy=_TAMPERED, reason_id="action/event")
        found = self._values[key]
        if not isinstance(found, kind):
            raise self.wrong(key, expected)
        return found

    def _at(self, key: str) -> str:
        return f"{self._path}.{key}" if self._path else key


def _wrong(path: str, expected: str, found: object) -> UsageError:
    return UsageError(f"the event's `{path}`: expected {expected}, found {_kind(found)}", remedy=_TAMPERED, reason_id="action/event")


def _kind(found: object) -> str:
    """A short picture of a value that a stranger may have chosen."""
    if isinstance(found, dict | list):
        return f"{'an object' if isinstance(found, dict) else 'a list'} of {len(found)}"
    if isinstance(found, int) and not isinstance(found, bool) and abs(found) > MAX_NUMBER:
        return "a very large number"
    return for_terminal(json.dumps(found, ensure_ascii=False), 60)


def _bytes(path: Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NONBLOCK", 0))  # a named pipe must not hang the reader
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise _unusable(path, "not a regular file")
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise _unusable(path, f"larger than {MAX_BYTES // 1024 // 1024} MiB")
    return data


def _deeper_than(document: object, limit: int) -> bool:
    level = [document]
    for _ in range(limit):
        children = (item.values() if isinstance(item, dict) else item for item in level if isinstance(item, dict | list))
        level = [child for values in children for child in values]
        if not level:
            return False
    return any(isinstance(item, dict | list) for item in level)


def _unusable(path: Path, why: str) -> UsageError:
    return UsageError(
        f"the event's file {for_terminal(os.fspath(path), 200)} (GITHUB_EVENT_PATH): {why}", remedy=_TAMPERED, reason_id="action/event"
    )
