"""GitHub's own published payloads: every `pull_request` and `workflow_run` is understood, or
refused with a reason.

They come with npm's `@octokit/webhooks-examples` (`conftest.py`). What is expected of each is a
table below, so an example that is new, gone or changed is noticed.
"""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

from repro_gate.errors import GateError
from repro_gate.github.activity import Decision, decide, decide_comment
from repro_gate.github.settings import Inputs, Job
from tests.github.test_activity import JOB, MERGE

NOTHING, REFUSE = "action/nothing", "action/refuse"
HEAD = "ec26c3e57ca3a959ca5aad62de7213c562f8c821"
# how many examples there are of each action; all but those that are closed are gated
ACTIONS = Counter(
    opened=4,
    assigned=2,
    closed=2,
    converted_to_draft=3,
    labeled=2,
    locked=2,
    ready_for_review=3,
    reopened=2,
    review_request_removed=1,
    review_requested=1,
    synchronize=1,
    unassigned=2,
    unlabeled=2,
    unlocked=2,
)
# in the order of the package: action and status; none of them is of a pull request
WORKFLOW_RUNS = (
    ("completed", "queued"),
    ("completed", "completed"),
    ("completed", "completed"),  # lists one of another repository
    ("requested", "queued"),
    ("requested", "completed"),
)

pytestmark = pytest.mark.api


@lru_cache(maxsize=8)
def _published(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """The examples of one GitHub by event. Whoever changes one makes a copy first."""
    groups = json.loads((folder / "index.json").read_text(encoding="utf-8"))
    return {group["name"]: group["examples"] for group in groups}


@pytest.fixture(name="package")
def _package(node_modules: Path) -> Path:
    return node_modules / "@octokit" / "webhooks-examples"


@pytest.fixture(name="examples")
def _examples(package: Path) -> dict[str, list[dict[str, Any]]]:
    return _published(package / "api.github.com")


def decided(
    event_name: str, payload: Mapping[str, Any], *, self_hosted: bool = True, **inputs: Any
) -> Decision | str:
    """What is decided, or the id of why nothing is done."""
    job = job_of(event_name, payload, self_hosted)
    try:
        return decide(Inputs(**inputs), job)
    except GateError as error:
        assert error.message.isprintable()
        return error.reason_id


def job_of(event_name: str, payload: Mapping[str, Any], self_hosted: bool = True) -> Job:
    repository = payload["repository"]["full_name"] if "repository" in payload else JOB.repository
    of = {"repository": repository, "event_name": event_name, "self_hosted": self_hosted}
    return msgspec.structs.replace(JOB, **of, event=json.dumps(payload).encode())


@pytest.mark.parametrize("self_hosted", [False, True], ids=["github-hosted", "self-hosted"])
def test_a_pull_request_is_understood(
    examples: dict[str, list[dict[str, Any]]], self_hosted: bool
) -> None:
    payloads = examples["pull_request"]
    assert Counter(example["action"] for example in payloads) == ACTIONS
    for payload in payloads:
        found = decided("pull_request", payload, self_hosted=self_hosted)
        if payload["action"] == "closed":
            assert found == NOTHING
            continue
        assert isinstance(found, Decision) and found.pull is not None
        pull, ours = found.pull, "Codertocat/Hello-World"
        assert found == Decision(pull=pull, tested_sha=HEAD)
        assert (pull.number, pull.state, pull.fork) == (2, "open", False)
        assert (pull.head.sha, pull.head.ref) == (HEAD, "changes")
        assert (pull.head_repository, pull.base.repo.full_name) == (ours, ours)


@pytest.mark.parametrize("repository", [None, {"full_name": "stranger/Hello-World"}])
def test_the_same_from_a_fork_is_refused_on_a_self_hosted_runner(
    examples: dict[str, list[dict[str, Any]]], repository: dict[str, str] | None
) -> None:
    for payload in copy.deepcopy(examples["pull_request"]):
        payload["pull_request"]["head"]["repo"] = repository
        refusal = NOTHING if payload["action"] == "closed" else REFUSE
        assert decided("pull_request", payload) == refusal
        assert decided("pull_request_target", payload, self_hosted=False) == refusal
        if refusal == REFUSE:
            assert isinstance(decided("pull_request", payload, self_hosted=False), Decision)
            assert isinstance(decided("pull_request", payload, allow_forks=True), Decision)


def test_a_run_is_posted_and_never_gated(examples: dict[str, list[dict[str, Any]]]) -> None:
    payloads = copy.deepcopy(examples["workflow_run"])
    for payload, of in zip(payloads, WORKFLOW_RUNS, strict=True):
        assert (payload["action"], payload["workflow_run"]["status"]) == of
        assert decided("workflow_run", payload) == REFUSE
        with pytest.raises(GateError) as caught:
            decide_comment(Inputs(), job_of("workflow_run", payload))
        assert caught.value.reason_id == NOTHING
        ended = {"event": "pull_request", "status": "completed", "conclusion": "failure"}
        payload["workflow_run"].update(ended)
        payload["action"] = "completed"
        found = decide_comment(Inputs(), job_of("workflow_run", payload))
        assert found.tested_sha == payload["workflow_run"]["head_sha"] and found.only_posts


def test_every_other_payload_is_gated_or_refused(examples: dict[str, list[dict[str, Any]]]) -> None:
    refusals = set()
    for event_name, payloads in examples.items():
        for payload in payloads:
            found = decided(event_name, payload)
            if isinstance(found, str):
                refusals.add(found)
            else:
                assert found.tested_sha in ("", MERGE, HEAD) or found.pull is not None, event_name
    assert refusals == {NOTHING, REFUSE}


@pytest.mark.parametrize("host", ["ghes-31", "ghes-35"])
def test_payloads_of_githubs_server_are_understood_too(package: Path, host: str) -> None:
    payloads = _published(package / host).get("pull_request", [])
    assert payloads
    for payload in payloads:
        found = decided("pull_request", payload)
        assert (found == NOTHING) == (payload["action"] == "closed") and found != REFUSE
