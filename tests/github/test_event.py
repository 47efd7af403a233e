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
    PullRequest,
    PullRequestEvent,
    WorkflowRun,
    WorkflowRunEvent,
    payload_of,
    read_event,
)
from tests.support.github.answers import a_pull

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
    """A copy of `payload` with another value at `path`; `...` takes the key out."""
    found = copy.deepcopy(payload)
    *above, last = path.split(".")
    place = found
    for key in above:
        place = place[key]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return found


def pull_of(payload: dict[str, Any]) -> PullRequest:
    return payload_of(json.dumps(payload).encode(), "pull_request", PullRequestEvent).pull_request


def run_of(payload: dict[str, Any]) -> WorkflowRun:
    return payload_of(json.dumps(payload).encode(), "workflow_run", WorkflowRunEvent).workflow_run


def written(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "event.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_a_pull_request_is_read() -> None:
    pull = pull_of(PULL)
    assert pull == a_pull(
        7, SHA, "stranger/train", "octo-org/train", ref="feature/$(id)", draft=True
    )
    assert pull.fork


def test_a_deleted_fork_is_a_fork_without_a_name() -> None:
    pull = pull_of(changed(PULL, "pull_request.head.repo", None))
    assert pull.head_repository is None and pull.fork


def test_a_branch_of_the_same_repository_is_no_fork_however_it_is_spelled() -> None:
    assert not pull_of(changed(PULL, "pull_request.head.repo.full_name", "Octo-Org/train")).fork


def test_a_review_leaves_draft_out() -> None:
    assert not pull_of(changed(PULL, "pull_request.draft", ...)).draft


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("pull_request", ..., "missing required field `pull_request`"),
        ("pull_request", [], "Expected `object`, got `array` - at `$.pull_request`"),
        ("pull_request.number", ..., "missing required field `number` - at `$.pull_request`"),
        ("pull_request.number", "7", "Expected `int`, got `str` - at `$.pull_request.number`"),
        ("pull_request.number", True, "Expected `int`, got `bool` - at `$.pull_request.number`"),
        ("pull_request.number", 0, "Expected `int` >= 1 - at `$.pull_request.number`"),
        ("pull_request.number", 2**53, "at `$.pull_request.number`"),
        ("pull_request.number", 10**30, "at `$.pull_request.number`"),
        (
            "pull_request.state",
            "merged\u202e",
            "Invalid enum value 'merged\\u202e' - at `$.pull_request.state`",
        ),
        ("pull_request.draft", "no", "Expected `bool`, got `str` - at `$.pull_request.draft`"),
        (
            "pull_request.head.sha",
            "main",
            "Expected a commit of 40 hex digits - at `$.pull_request.head.sha`",
        ),
        ("pull_request.head.sha", SHA.upper(), "Expected a commit"),
        ("pull_request.head.sha", SHA + "\n", "Expected a commit"),
        (
            "pull_request.head.ref",
            None,
            "Expected `str`, got `null` - at `$.pull_request.head.ref`",
        ),
        (
            "pull_request.head.ref",
            "x" * 1025,
            "Expected `str` of length <= 1024 - at `$.pull_request.head.ref`",
        ),
        ("pull_request.head.repo", ..., "missing required field `repo` - at `$.pull_request.head`"),
        (
            "pull_request.head.repo.full_name",
            "x\n::error::",
            "Expected `owner/name` - at `$.pull_request.head.repo.full_name`",
        ),
        ("pull_request.head.repo.full_name", "a/b/c", "Expected `owner/name`"),
        ("pull_request.head.repo.full_name", "a/..", "Expected `owner/name`"),
        (
            "pull_request.base.repo",
            None,
            "Expected `object`, got `null` - at `$.pull_request.base.repo`",
        ),
        ("pull_request.base.ref", ..., "missing required field `ref` - at `$.pull_request.base`"),
    ],
)
def test_a_mistake_in_a_pull_request_names_its_path(
    path: str, value: object, expected: str
) -> None:
    with pytest.raises(UsageError) as caught:
        pull_of(changed(PULL, path, value))
    assert (
        expected in caught.value.message
        and caught.value.message.isprintable()
        and caught.value.remedy
    )
    assert (
        "`pull_request` is not as GitHub sends it" in caught.value.message
        and caught.value.reason_id == "action/event"
    )


def test_a_run_is_read() -> None:
    run = run_of(RUN)
    assert (run.id, run.attempt, run.event, run.status, run.conclusion) == (
        31,
        2,
        "pull_request",
        "completed",
        "failure",
    )
    assert (run.head_sha, run.head_branch, run.head_repository) == (
        SHA,
        "feature",
        "stranger/train",
    )
    assert (run.repo.full_name, run.pull_requests) == ("octo-org/train", ())


def test_only_pull_requests_of_the_runs_own_repository_are_taken() -> None:
    listed = [
        {"number": 7, "base": {"repo": {"id": 5}}},
        {"number": 8, "base": {"repo": {"id": 6}}},
    ]
    assert run_of(changed(RUN, "workflow_run.pull_requests", listed)).pull_requests == (7,)


@pytest.mark.parametrize("key", ["conclusion", "head_branch", "head_repository"])
def test_a_run_that_is_queued_or_whose_fork_is_gone_has_nulls(key: str) -> None:
    assert getattr(run_of(changed(RUN, f"workflow_run.{key}", None)), key) is None


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("workflow_run", ..., "missing required field `workflow_run`"),
        ("workflow_run.id", 1.5, "Expected `int`, got `float` - at `$.workflow_run.id`"),
        (
            "workflow_run.run_attempt",
            ...,
            "missing required field `run_attempt` - at `$.workflow_run`",
        ),
        (
            "workflow_run.head_sha",
            "",
            "Expected a commit of 40 hex digits - at `$.workflow_run.head_sha`",
        ),
        ("workflow_run.event", None, "Expected `str`, got `null` - at `$.workflow_run.event`"),
        (
            "workflow_run.repository.full_name",
            "../..",
            "Expected `owner/name` - at `$.workflow_run.repository.full_name`",
        ),
        (
            "workflow_run.pull_requests",
            {},
            "Expected `array`, got `object` - at `$.workflow_run.pull_requests`",
        ),
        (
            "workflow_run.pull_requests",
            [7],
            "Expected `object`, got `int` - at `$.workflow_run.pull_requests[0]`",
        ),
        (
            "workflow_run.pull_requests",
            [{"number": 7}],
            "missing required field `base` - at `$.workflow_run.pull_requests[0]`",
        ),
    ],
)
def test_a_mistake_in_a_run_names_its_path(path: str, value: object, expected: str) -> None:
    with pytest.raises(UsageError) as caught:
        run_of(changed(RUN, path, value))
    assert expected in caught.value.message


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"[1]", "Expected `object`, got `array`"),
        (b'{"action": "\xff"}', "not JSON"),
        (b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
        (b'{"pull_request": {"number": ' + b"1" * 5000 + b"}}", r"pull_request\.number"),
    ],
)
def test_a_payload_that_is_none_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        payload_of(data, "pull_request", PullRequestEvent)


def test_fields_that_nobody_uses_may_be_anything() -> None:
    assert pull_of({**PULL, "zen": [[[1e300]]], "number": "x"}) == pull_of(PULL)


def test_the_payload_is_read(tmp_path: Path) -> None:
    assert read_event(written(tmp_path, json.dumps(PULL))) == json.dumps(PULL).encode()


def test_no_file_is_no_event(tmp_path: Path) -> None:
    assert read_event(None) is None
    assert read_event(tmp_path / "event.json") is None


def test_a_payload_over_githubs_cap_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, json.dumps(PULL))
    monkeypatch.setattr(event, "MAX_BYTES", path.stat().st_size)
    assert read_event(path) is not None
    monkeypatch.setattr(event, "MAX_BYTES", path.stat().st_size - 1)
    with pytest.raises(UsageError, match="larger than"):
        read_event(path)


def test_a_pipe_in_the_events_place_does_not_hang_the_gate(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "event.json")
    with pytest.raises(UsageError, match="not a regular file"):
        read_event(tmp_path / "event.json")


def test_a_folder_in_the_events_place_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot be read|not a regular file"):
        read_event(tmp_path)
