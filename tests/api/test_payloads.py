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
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from repro_gate.github.activity import Activity, Decision, decide, decide_comment
from repro_gate.github.settings import Inputs, Job
from tests.github.test_activity import JOB, MERGE

GATE, NOTHING, REFUSE = Activity.GATE, Activity.NOTHING, Activity.REFUSE
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
# in the order of the package: action, run, status, and why there is nothing to post
BY_ANOTHER = "run 289782451 was started by `repository_dispatch`"
WORKFLOW_RUNS = (
    ("completed", 1589141559, "queued", "run 1589141559 has not ended yet"),
    ("completed", 289782451, "completed", BY_ANOTHER),
    ("completed", 289782451, "completed", BY_ANOTHER),  # lists one of another repository
    ("requested", 289782451, "queued", "run 289782451 has not ended yet"),
    ("requested", 289782451, "completed", "run 289782451 has not ended yet"),
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
    event_name: str, payload: Mapping[str, Any], *, self_hosted: bool, allow_forks: bool = False
) -> Decision:
    return decide(Inputs(allow_forks=allow_forks), job_of(event_name, payload, self_hosted))


def job_of(event_name: str, payload: Mapping[str, Any], self_hosted: bool) -> Job:
    repository = payload["repository"]["full_name"] if "repository" in payload else JOB.repository
    event = json.dumps(payload).encode()
    of = {"repository": repository, "event_name": event_name, "event": event}
    return replace(JOB, **of, self_hosted=self_hosted)


@pytest.mark.parametrize("self_hosted", [False, True], ids=["github-hosted", "self-hosted"])
@pytest.mark.parametrize("action", ACTIONS)
def test_a_pull_request_is_understood(
    examples: dict[str, list[dict[str, Any]]], action: str, self_hosted: bool
) -> None:
    assert Counter(example["action"] for example in examples["pull_request"]) == ACTIONS
    gated, ours = action != "closed", "Codertocat/Hello-World"
    for payload in examples["pull_request"]:
        if payload["action"] != action:
            continue
        found = decided("pull_request", payload, self_hosted=self_hosted)
        pull = found.pull
        assert pull is not None
        assert found == Decision(
            activity=GATE if gated else NOTHING,
            reason="" if gated else "pull request 2 is closed: there is nothing to gate",
            pull=pull,
            tested_sha=HEAD if gated else "",
        )
        assert (pull.number, pull.state) == (2, "open" if gated else "closed")
        assert (pull.head.sha, pull.head.ref, pull.base.ref) == (HEAD, "changes", "master")
        assert (pull.head_repository, pull.base.repo.full_name, pull.fork) == (ours, ours, False)


@pytest.mark.parametrize("repository", [None, {"full_name": "stranger/Hello-World"}])
def test_the_same_from_a_fork_is_refused_on_a_self_hosted_runner(
    examples: dict[str, list[dict[str, Any]]], repository: dict[str, str] | None
) -> None:
    for payload in copy.deepcopy(examples["pull_request"]):
        payload["pull_request"]["head"]["repo"] = repository
        gated = payload["action"] != "closed"
        refused = decided("pull_request", payload, self_hosted=True)
        assert refused.activity is (REFUSE if gated else NOTHING) and refused.reason
        assert "allow_forks" in refused.remedy or not gated
        target = decided("pull_request_target", payload, self_hosted=False)
        assert target.activity is refused.activity
        for self_hosted in (True, False):
            found = decided(
                "pull_request", payload, self_hosted=self_hosted, allow_forks=self_hosted
            )
            assert found.activity is (GATE if gated else NOTHING)


@pytest.mark.parametrize("self_hosted", [False, True], ids=["github-hosted", "self-hosted"])
def test_a_run_is_understood_never_gated_and_posted_where_it_is_a_pull_requests_that_has_ended(
    examples: dict[str, list[dict[str, Any]]], self_hosted: bool
) -> None:
    payloads = copy.deepcopy(examples["workflow_run"])
    for payload, (action, run_id, status, why) in zip(payloads, WORKFLOW_RUNS, strict=True):
        found = decide_comment(Inputs(), job_of("workflow_run", payload, self_hosted))
        run = found.workflow_run
        assert found.activity is NOTHING and found.reason.startswith(why) and run is not None
        assert (payload["action"], run.id, run.attempt, run.status) == (action, run_id, 1, status)
        assert run.repo.full_name == "octo-org/octo-repo"
        refused = decided("workflow_run", payload, self_hosted=self_hosted)
        assert refused.activity is REFUSE and "repro-gate/repro-gate/comment" in refused.remedy
        ended = {"event": "pull_request", "status": "completed", "conclusion": "failure"}
        payload["workflow_run"].update(ended)
        found = decide_comment(Inputs(), job_of("workflow_run", payload, self_hosted))
        sha = payload["workflow_run"]["head_sha"]
        assert (found.activity, found.tested_sha) == (
            (Activity.COMMENT, sha) if action == "completed" else (NOTHING, "")
        )


def test_every_other_payload_is_gated_or_refused_with_a_reason(
    examples: dict[str, list[dict[str, Any]]],
) -> None:
    seen = set()
    for event_name, payloads in examples.items():
        for payload in payloads:
            found = decided(event_name, payload, self_hosted=True)
            assert found.activity is GATE or found.reason, event_name
            assert found.tested_sha in ("", MERGE, HEAD) or found.pull is not None, event_name
            seen.add(found.activity)
    assert seen == {GATE, NOTHING, REFUSE}


@pytest.mark.parametrize("host", ["ghes-31", "ghes-32", "ghes-33", "ghes-34", "ghes-35"])
def test_payloads_of_githubs_server_are_understood_too(package: Path, host: str) -> None:
    payloads = _published(package / host).get("pull_request", [])
    assert payloads
    for payload in payloads:
        found = decided("pull_request", payload, self_hosted=True)
        assert found.activity is (NOTHING if payload["action"] == "closed" else GATE)
