"""Events: what is used is decoded strictly, whatever else is in a payload is not looked at, and
mistakes name their JSON path."""

from __future__ import annotations

import copy
import json
import os
from pathlib import Path
from typing import Any

import pytest

from repro_gate.errors import UsageError
from repro_gate.github import event
from repro_gate.github.event import (
    Base,
    Head,
    PullRequest,
    PullRequestEvent,
    Repository,
    WorkflowRun,
    WorkflowRunEvent,
    payload_of,
    read_event,
)

SHA = "0123456789abcdef" * 2 + "01234567"
OTHER = "f" * 40

PULL: dict[str, Any] = {
    "action": "synchronize",
    "pull_request": {
        "number": 7,
        "state": "open",
        "draft": True,
        "title": "::error::x",
        "head": {"ref": "feature/$(id)", "sha": SHA, "repo": {"full_name": "stranger/train"}},
        "base": {"ref": "main", "sha": OTHER, "repo": {"full_name": "octo-org/train"}},
    },
}
RUN: dict[str, Any] = {
    "action": "completed",
    "workflow_run": {
        "id": 31,
        "run_attempt": 2,
        "name": "gate",
        "event": "pull_request",
        "status": "completed",
        "conclusion": "failure",
        "head_sha": SHA,
        "head_branch": "feature",
        "head_repository": {"full_name": "stranger/train"},
        "repository": {"id": 5, "full_name": "octo-org/train"},
        "pull_requests": [],
    },
}


def changed(payload: dict[str, Any], path: str, value: object) -> dict[str, Any]:
    """A copy of `payload` with another value at `path`."""
    found = copy.deepcopy(payload)
    *above, last = path.split(".")
    place = found
    for key in above:
        place = place[key]
    place[last] = value
    return found


def pull_of(payload: dict[str, Any]) -> PullRequest:
    return payload_of(json.dumps(payload).encode(), "pull_request", PullRequestEvent).pull_request


def run_of(payload: dict[str, Any]) -> WorkflowRun:
    return payload_of(json.dumps(payload).encode(), "workflow_run", WorkflowRunEvent).workflow_run


def test_a_pull_request_is_read_and_what_nobody_uses_may_be_anything() -> None:
    head = Head("feature/$(id)", SHA, Repository("stranger/train"))
    pull = PullRequest(7, "open", head, Base(Repository("octo-org/train")))
    assert pull_of(PULL) == pull_of({**PULL, "zen": [[[1e300]]], "number": "x"}) == pull
    gone = pull_of(changed(PULL, "pull_request.head.repo", None))
    assert gone.head_repository is None and gone.fork and pull.fork
    assert not pull_of(changed(PULL, "pull_request.head.repo.full_name", "Octo-Org/train")).fork


def test_a_mistake_in_a_payload_names_its_path() -> None:
    for path, values in (
        ("pull_request", ([],)),
        ("pull_request.number", ("7", True, 0, 2**53, 10**30)),
        ("pull_request.state", ("merged\u202e",)),
        ("pull_request.head.sha", ("main", SHA.upper(), SHA + "\n")),
        ("pull_request.head.ref", (None, "x" * 1025)),
        ("pull_request.head.repo.full_name", ("x\n::error::", "a/b/c", "a/..")),
        ("pull_request.base.repo", (None,)),
        ("workflow_run.id", (1.5,)),
        ("workflow_run.event", (None,)),
        ("workflow_run.head_repository.full_name", ("../..",)),
    ):
        read, payload = (pull_of, PULL) if path.startswith("pull") else (run_of, RUN)
        for value in values:
            with pytest.raises(UsageError) as caught:
                read(changed(payload, path, value))
            assert f"`$.{path}`" in caught.value.message and caught.value.message.isprintable()
            assert caught.value.remedy and caught.value.reason_id == "action/event"


def test_what_is_no_payload_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for data, why in (
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"{}", "missing required field `pull_request`"),
        (b'{"action": "\xff"}', "not JSON"),
        (b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
        (b'{"pull_request": {"number": ' + b"1" * 5000 + b"}}", r"pull_request\.number"),
    ):
        with pytest.raises(UsageError, match=why):
            payload_of(data, "pull_request", PullRequestEvent)
    path = tmp_path / "event.json"
    path.write_bytes(b"{}")
    monkeypatch.setattr(event, "MAX_BYTES", 2)
    assert read_event(path) == b"{}"
    monkeypatch.setattr(event, "MAX_BYTES", 1)
    os.mkfifo(tmp_path / "pipe")
    for place in (path, tmp_path, tmp_path / "pipe"):
        with pytest.raises(UsageError, match=r"larger than|cannot be read|not a regular file"):
            read_event(place)
