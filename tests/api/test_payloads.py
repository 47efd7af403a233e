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

from repro_gate.errors import UsageError
from repro_gate.github.activity import Activity, Decision, decide, decide_comment
from repro_gate.github.settings import Inputs, Job
from tests.github.test_activity import JOB, MERGE

HEAD = "ec26c3e57ca3a959ca5aad62de7213c562f8c821"

# action -> how many examples there are, and what is done with a pull request of the repository's
# own
PULL_REQUESTS = {
    "opened": (4, Activity.GATE),
    "assigned": (2, Activity.GATE),
    "closed": (2, Activity.NOTHING),
    "converted_to_draft": (3, Activity.GATE),
    "labeled": (2, Activity.GATE),
    "locked": (2, Activity.GATE),
    "ready_for_review": (3, Activity.GATE),
    "reopened": (2, Activity.GATE),
    "review_request_removed": (1, Activity.GATE),
    "review_requested": (1, Activity.GATE),
    "synchronize": (1, Activity.GATE),
    "unassigned": (2, Activity.GATE),
    "unlabeled": (2, Activity.GATE),
    "unlocked": (2, Activity.GATE),
}
# in the order of the package: action, run, status, and why there is nothing to post
WORKFLOW_RUNS = (
    ("completed", 1589141559, "queued", "run 1589141559 has not ended yet"),
    ("completed", 289782451, "completed", "run 289782451 was started by `repository_dispatch`"),
    # lists one of another repository
    (
        "completed",
        289782451,
        "completed",
        "run 289782451 was started by `repository_dispatch`",
    ),
    ("requested", 289782451, "queued", "run 289782451 has not ended yet"),
    ("requested", 289782451, "completed", "run 289782451 has not ended yet"),
)
# index -> example, so that each has a test of its own even where the package is not installed
PULL_REQUEST_EXAMPLES = range(sum(count for count, _ in PULL_REQUESTS.values()))
WORKFLOW_RUN_EXAMPLES = range(len(WORKFLOW_RUNS))

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
    return replace(
        JOB,
        repository=repository,
        event_name=event_name,
        event=json.dumps(payload).encode(),
        self_hosted=self_hosted,
    )


def test_there_are_34_of_them_and_the_table_knows_each(
    examples: dict[str, list[dict[str, Any]]],
) -> None:
    assert Counter(example["action"] for example in examples["pull_request"]) == {
        name: count for name, (count, _) in PULL_REQUESTS.items()
    }
    assert len(examples["pull_request"]) == len(PULL_REQUEST_EXAMPLES) == 29
    assert len(examples["workflow_run"]) == len(WORKFLOW_RUN_EXAMPLES) == 5


@pytest.mark.parametrize("self_hosted", [False, True], ids=["github-hosted", "self-hosted"])
@pytest.mark.parametrize("number", PULL_REQUEST_EXAMPLES)
def test_a_pull_request_is_understood(
    examples: dict[str, list[dict[str, Any]]], number: int, self_hosted: bool
) -> None:
    payload = examples["pull_request"][number]
    found = decided("pull_request", payload, self_hosted=self_hosted)
    gated = PULL_REQUESTS[payload["action"]][1] is Activity.GATE
    pull = found.pull
    assert pull is not None
    assert found == Decision(
        activity=Activity.GATE if gated else Activity.NOTHING,
        reason="" if gated else "pull request 2 is closed: there is nothing to gate",
        pull=pull,
        tested_sha=HEAD if gated else "",
    )
    assert (pull.number, pull.state, pull.head.sha, pull.head.ref, pull.base.ref) == (
        2,
        "open" if gated else "closed",
        HEAD,
        "changes",
        "master",
    )
    assert (pull.head_repository, pull.base.repo.full_name, pull.fork) == (
        "Codertocat/Hello-World",
        "Codertocat/Hello-World",
        False,
    )
    assert pull.draft is (payload["action"] == "converted_to_draft")


@pytest.mark.parametrize("gone", [False, True], ids=["fork", "deleted-fork"])
@pytest.mark.parametrize("number", PULL_REQUEST_EXAMPLES)
def test_the_same_from_a_fork_is_refused_on_a_self_hosted_runner(
    examples: dict[str, list[dict[str, Any]]], number: int, gone: bool
) -> None:
    payload = copy.deepcopy(examples["pull_request"][number])
    payload["pull_request"]["head"]["repo"] = (
        None if gone else {"full_name": "stranger/Hello-World"}
    )
    gated = PULL_REQUESTS[payload["action"]][1] is Activity.GATE
    refused = decided("pull_request", payload, self_hosted=True)
    assert refused.activity is (Activity.REFUSE if gated else Activity.NOTHING) and refused.reason
    assert "allow_forks" in refused.remedy or not gated
    assert (
        decided("pull_request", payload, self_hosted=True, allow_forks=True).activity
        is PULL_REQUESTS[payload["action"]][1]
    )
    assert (
        decided("pull_request", payload, self_hosted=False).activity
        is PULL_REQUESTS[payload["action"]][1]
    )
    assert decided("pull_request_target", payload, self_hosted=False).activity is refused.activity


@pytest.mark.parametrize("self_hosted", [False, True], ids=["github-hosted", "self-hosted"])
@pytest.mark.parametrize("number", WORKFLOW_RUN_EXAMPLES)
def test_a_run_is_understood_and_never_gated(
    examples: dict[str, list[dict[str, Any]]], number: int, self_hosted: bool
) -> None:
    payload = examples["workflow_run"][number]
    action, run_id, status, why = WORKFLOW_RUNS[number]
    found = decide_comment(Inputs(), job_of("workflow_run", payload, self_hosted))
    run = found.workflow_run
    assert found.activity is Activity.NOTHING and found.reason.startswith(why) and run is not None
    assert (payload["action"], run.id, run.attempt, run.status, run.repo.full_name) == (
        action,
        run_id,
        1,
        status,
        "octo-org/octo-repo",
    )
    refused = decided("workflow_run", payload, self_hosted=self_hosted)
    assert refused.activity is Activity.REFUSE and "repro-gate/repro-gate/comment" in refused.remedy


@pytest.mark.parametrize("number", WORKFLOW_RUN_EXAMPLES)
def test_the_same_run_of_a_pull_request_is_posted_once_it_has_ended(
    examples: dict[str, list[dict[str, Any]]], number: int
) -> None:
    payload = copy.deepcopy(examples["workflow_run"][number])
    payload["workflow_run"].update(event="pull_request", status="completed", conclusion="failure")
    found = decide_comment(Inputs(), job_of("workflow_run", payload, self_hosted=False))
    ended = payload["action"] == "completed"
    assert found.activity is (Activity.COMMENT if ended else Activity.NOTHING)
    assert found.tested_sha == (payload["workflow_run"]["head_sha"] if ended else "")


def test_every_other_payload_is_gated_or_refused_with_a_reason(
    examples: dict[str, list[dict[str, Any]]],
) -> None:
    seen = Counter[Activity]()
    for event_name, payloads in examples.items():
        for payload in payloads:
            found = decided(event_name, payload, self_hosted=True)
            assert found.activity is Activity.GATE or found.reason, event_name
            assert found.tested_sha in ("", MERGE, HEAD) or found.pull is not None, event_name
            seen[found.activity] += 1
    assert (
        all(seen[activity] for activity in (Activity.GATE, Activity.NOTHING, Activity.REFUSE))
        and not seen[Activity.COMMENT]
    )


@pytest.mark.parametrize("host", ["ghes-31", "ghes-32", "ghes-33", "ghes-34", "ghes-35"])
def test_payloads_of_githubs_server_are_understood_too(package: Path, host: str) -> None:
    payloads = _published(package / host).get("pull_request", [])
    assert payloads
    for payload in payloads:
        assert (
            decided("pull_request", payload, self_hosted=True).activity
            is PULL_REQUESTS[payload["action"]][1]
        )


@pytest.mark.parametrize(
    "path", ["number", "state", "head.sha", "head.repo", "base.ref", "base.repo.full_name"]
)
def test_a_payload_that_lacks_what_is_used_is_an_error(
    examples: dict[str, list[dict[str, Any]]], path: str
) -> None:
    payload = copy.deepcopy(examples["pull_request"][0])
    *above, last = path.split(".")
    place = payload["pull_request"]
    for key in above:
        place = place[key]
    del place[last]
    with pytest.raises(
        UsageError,
        match=f"missing required field `{last}` - at `\\$.{'.'.join(['pull_request', *above])}`",
    ):
        decided("pull_request", payload, self_hosted=False)
