"""Events: what is used is read strictly, whatever else is in a payload is not looked at, and mistakes name their JSON path."""

from __future__ import annotations

import copy
import json
import os
from pathlib import Path
from typing import Any

import pytest

from repro_gate.errors import UsageError
from repro_gate.github import event
from repro_gate.github.event import read_event, read_pull_request, read_workflow_run
from repro_gate.github.model import PullRequest, WorkflowRun

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


def written(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "event.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_a_pull_request_is_read() -> None:
    pull = read_pull_request(PULL)
    assert pull == PullRequest(7, "open", SHA, "feature/$(id)", "stranger/train", "octo-org/train", "main", draft=True)
    assert pull.fork


def test_a_deleted_fork_is_a_fork_without_a_name() -> None:
    pull = read_pull_request(changed(PULL, "pull_request.head.repo", None))
    assert pull.head_repository is None and pull.fork


def test_a_branch_of_the_same_repository_is_no_fork_however_it_is_spelled() -> None:
    assert not read_pull_request(changed(PULL, "pull_request.head.repo.full_name", "Octo-Org/train")).fork


def test_a_review_leaves_draft_out() -> None:
    assert not read_pull_request(changed(PULL, "pull_request.draft", ...)).draft


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("pull_request", ..., "has no `pull_request`"),
        ("pull_request", [], "`pull_request`: expected an object, found a list of 0"),
        ("pull_request.number", ..., "has no `pull_request.number`"),
        ("pull_request.number", "7", '`pull_request.number`: expected a number, found "7"'),
        ("pull_request.number", True, "`pull_request.number`: expected a positive number, found true"),
        ("pull_request.number", 0, "expected a positive number, found 0"),
        ("pull_request.number", 10**30, "found a very large number"),
        ("pull_request.state", "merged", '`pull_request.state`: expected `open` or `closed`, found "merged"'),
        ("pull_request.draft", "no", "`pull_request.draft`: expected true or false"),
        ("pull_request.head.sha", "main", "`pull_request.head.sha`: expected a commit"),
        ("pull_request.head.sha", SHA.upper(), "`pull_request.head.sha`: expected a commit"),
        ("pull_request.head.ref", None, "`pull_request.head.ref`: expected a text, found null"),
        ("pull_request.head.repo", ..., "has no `pull_request.head.repo`"),
        ("pull_request.head.repo.full_name", "x\n::error::", "`pull_request.head.repo.full_name`: expected `owner/name`"),
        ("pull_request.head.repo.full_name", "a/b/c", "expected `owner/name`"),
        ("pull_request.base.repo", None, "`pull_request.base.repo`: expected an object, found null"),
        ("pull_request.base.ref", ..., "has no `pull_request.base.ref`"),
    ],
)
def test_a_mistake_in_a_pull_request_names_its_path(path: str, value: object, expected: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_pull_request(changed(PULL, path, value))
    assert expected in caught.value.message and caught.value.message.isprintable() and caught.value.remedy


def test_a_run_is_read() -> None:
    assert read_workflow_run(RUN) == WorkflowRun(
        31, 2, "gate", "pull_request", "completed", "failure", SHA, "feature", "stranger/train", "octo-org/train"
    )


def test_only_pull_requests_of_the_runs_own_repository_are_taken() -> None:
    listed = [{"number": 7, "base": {"repo": {"id": 5}}}, {"number": 8, "base": {"repo": {"id": 6}}}]
    assert read_workflow_run(changed(RUN, "workflow_run.pull_requests", listed)).pull_requests == (7,)


@pytest.mark.parametrize("key", ["name", "conclusion", "head_branch", "head_repository"])
def test_a_run_that_is_queued_or_whose_fork_is_gone_has_nulls(key: str) -> None:
    run = read_workflow_run(changed(RUN, f"workflow_run.{key}", None))
    assert getattr(run, key) == ("" if key == "name" else None)


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("workflow_run", ..., "has no `workflow_run`"),
        ("workflow_run.id", 1.5, "`workflow_run.id`: expected a number, found 1.5"),
        ("workflow_run.run_attempt", ..., "has no `workflow_run.run_attempt`"),
        ("workflow_run.head_sha", "", "`workflow_run.head_sha`: expected a commit"),
        ("workflow_run.event", None, "`workflow_run.event`: expected a text"),
        ("workflow_run.repository.full_name", "../..", "`workflow_run.repository.full_name`: expected `owner/name`"),
        ("workflow_run.pull_requests", {}, "`workflow_run.pull_requests`: expected a list"),
        ("workflow_run.pull_requests", [7], "`workflow_run.pull_requests[0]`: expected an object, found 7"),
        ("workflow_run.pull_requests", [{"number": 7}], "has no `workflow_run.pull_requests[0].base`"),
    ],
)
def test_a_mistake_in_a_run_names_its_path(path: str, value: object, expected: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_workflow_run(changed(RUN, path, value))
    assert expected in caught.value.message


def test_the_payload_is_read(tmp_path: Path) -> None:
    assert read_event(written(tmp_path, json.dumps(PULL))) == PULL


def test_no_file_is_no_event(tmp_path: Path) -> None:
    assert read_event(None) is None
    assert read_event(tmp_path / "event.json") is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[1]", "expected a JSON object, found a list of 1"),
        (b'{"a": "\xff"}', "not UTF-8 at byte 7"),
        ('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}", "nested deeper than 64 levels"),
        ('{"a": ' + "[" * 64 + "]" * 64 + "}", "nested deeper than 64 levels"),
        ('{"a": ' + "1" * 5000 + "}", "not JSON"),
    ],
)
def test_a_payload_that_is_none_is_refused(tmp_path: Path, text: str | bytes, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        read_event(written(tmp_path, text))


def test_a_payload_just_within_the_depth_is_read(tmp_path: Path) -> None:
    assert read_event(written(tmp_path, '{"a": ' + "[" * 63 + "]" * 63 + "}"))


def test_a_payload_over_githubs_cap_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, json.dumps(PULL))
    monkeypatch.setattr(event, "MAX_BYTES", path.stat().st_size)
    assert read_event(path) == PULL
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
