"""What each event asks of the action: what is gated, what is posted, what is left alone, and what
is refused and why."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from repro_gate.errors import GateError
from repro_gate.github.activity import Decision, NothingToDo, decide, decide_comment
from repro_gate.github.settings import Inputs, Job
from tests.github.test_event import PULL, RUN, SHA, changed

MERGE = "a" * 40  # GITHUB_SHA of a pull request's job: the merge commit, never the head
JOB = Job(
    repository="octo-org/train",
    event_name="push",
    sha=MERGE,
    ref="refs/heads/main",
    run_id=9,
    run_attempt=1,
    server_url="https://github.com",
    api_url="https://api.github.com",
    graphql_url="https://api.github.com/graphql",
    workspace=Path("/"),
    self_hosted=False,
    event=b"{}",
)
OWN = changed(PULL, "pull_request.head.repo.full_name", "octo-org/train")
GONE = changed(PULL, "pull_request.head.repo", None)
CLOSED = changed(PULL, "action", "closed")
REVIEWS = ("pull_request", "pull_request_review", "pull_request_review_comment")
OF_PULLS = (*REVIEWS, "pull_request_target")
GATE, REFUSE, NOTHING = "gate", "action/refuse", "action/nothing"


def of(
    event_name: str,
    payload: dict[str, Any] | None = None,
    *,
    self_hosted: bool = False,
    ref: str = JOB.ref,
    posting: bool = False,
    **inputs: Any,
) -> Decision:
    changes = {"event_name": event_name, "event": json.dumps(payload or {}).encode()}
    job = msgspec.structs.replace(JOB, **changes, self_hosted=self_hosted, ref=ref)
    return (decide_comment if posting else decide)(Inputs(**inputs), job)


def refusal(*arguments: Any, **more: Any) -> GateError:
    """Why nothing is done."""
    with pytest.raises(GateError) as caught:
        of(*arguments, **more)
    assert isinstance(caught.value, NothingToDo) == (caught.value.exit_code == 0)
    assert caught.value.message.isprintable()
    return caught.value


@pytest.mark.parametrize("event_name", OF_PULLS)
@pytest.mark.parametrize(
    ("payload", "self_hosted", "allow_forks", "of_reviews", "of_target"),
    [
        (OWN, False, False, GATE, GATE),
        (OWN, True, False, GATE, GATE),
        (PULL, False, False, GATE, REFUSE),
        (PULL, True, False, REFUSE, REFUSE),
        (GONE, True, False, REFUSE, REFUSE),
        (PULL, True, True, GATE, GATE),
        (CLOSED, True, False, NOTHING, NOTHING),
        (changed(PULL, "pull_request.state", "closed"), True, False, NOTHING, NOTHING),
    ],
)
def test_a_forks_code_never_meets_a_machine_or_rights_that_it_was_not_given(
    event_name: str,
    payload: Any,
    self_hosted: bool,
    allow_forks: bool,
    of_reviews: str,
    of_target: str,
) -> None:
    case: dict[str, Any] = {"self_hosted": self_hosted, "allow_forks": allow_forks}
    expected = of_reviews if event_name in REVIEWS else of_target
    if expected is not GATE:
        error = refusal(event_name, payload, **case)
        assert error.reason_id == expected
        assert ('allow_forks: "true"' in error.remedy) == (expected is REFUSE)
        return
    decision = of(event_name, payload, **case)
    assert decision.tested_sha == SHA and not decision.only_posts
    assert decision.pull is not None and decision.pull.number == 7
    assert decision.pull.fork == decision.foreign == (payload is not OWN)


@pytest.mark.parametrize("posting", [False, True])
def test_a_pushed_branch_finds_its_pull_request(posting: bool) -> None:
    found: dict[str, int | str | None] = {
        "refs/heads/pull-request/12": 12,
        "refs/heads/main": MERGE,
        "refs/heads/pull-request/12x": MERGE,
        "refs/heads/pull-request/0": MERGE,
        "refs/heads/x/pull-request/12": MERGE,
        "refs/heads/pull-request/١٢": MERGE,
        "refs/tags/pull-request/12": None,
    }
    for ref, find_by in found.items():
        decision = of("push", ref=ref, self_hosted=True, posting=posting)
        assert decision == Decision(find_by=find_by, tested_sha=MERGE, only_posts=posting), ref


def test_without_a_pull_request_the_gate_runs_for_the_one_that_the_input_names() -> None:
    for name in ("merge_group", "schedule", "workflow_dispatch", "push", "release"):
        # only a push says which commit it is
        sha, by = (MERGE, MERGE) if name == "push" else ("", None)
        assert of(name) == Decision(find_by=by, tested_sha=sha)
        assert of(name, pull_request=33) == Decision(find_by=33, tested_sha=sha)


def test_a_comment_starts_nothing_unless_it_is_allowed_and_a_workflow_run_never() -> None:
    payload = {"issue": {"number": 7, "pull_request": {"url": "x"}}}
    with pytest.raises(GateError, match="GITHUB_EVENT_PATH"):
        decide(Inputs(), msgspec.structs.replace(JOB, event_name="issue_comment", event=b""))
    error = refusal("issue_comment", payload)
    assert error.reason_id == REFUSE and 'allow_forks: "true"' in error.remedy
    assert of("issue_comment", payload, allow_forks=True) == Decision(find_by=7)
    assert of("issue_comment", {"issue": {"number": 7}}) == Decision()
    for allow_forks in (False, True):
        assert refusal("workflow_run", RUN, allow_forks=allow_forks).reason_id == REFUSE


def test_only_a_forks_run_that_may_have_left_a_report_is_posted() -> None:
    for conclusion in ("success", "failure", "neutral", "timed_out"):
        payload = changed(RUN, "workflow_run.conclusion", conclusion)
        decision = of("workflow_run", payload, posting=True, self_hosted=True)
        assert decision.only_posts and decision.foreign and decision.tested_sha == SHA
        assert decision.workflow_run is not None and decision.workflow_run.id == 31
    # whose report it is, nobody may choose
    assert refusal("workflow_run", RUN, posting=True, pull_request=7).reason_id == REFUSE
    for path, value in (
        ("action", "requested"),
        *(("workflow_run.conclusion", item) for item in ("skipped", "action_required", None)),
        *(("workflow_run.event", item) for item in ("push", "pull_request_target")),
    ):
        error = refusal("workflow_run", changed(RUN, path, value), posting=True)
        assert error.reason_id == NOTHING, (path, value)


@pytest.mark.parametrize("event_name", OF_PULLS)
def test_a_job_that_only_posts_goes_by_its_own_event_and_runs_nothing(event_name: str) -> None:
    for payload in (PULL, OWN):
        decision = of(event_name, payload, posting=True, self_hosted=True)
        gated = of(event_name, payload, self_hosted=True, allow_forks=True)
        assert decision == replace(gated, only_posts=True)
        closed = changed(payload, "action", "closed")
        assert refusal(event_name, closed, posting=True).reason_id == NOTHING
    for posting in (False, True):  # nor does the input name another pull request than the event
        assert of(event_name, OWN, posting=posting, pull_request=7).pull is not None
        error = refusal(event_name, OWN, posting=posting, pull_request=8)
        assert error.reason_id == REFUSE and "8" in error.message and error.remedy
    with pytest.raises(GateError, match="GITHUB_EVENT_PATH") as caught:
        decide(Inputs(), msgspec.structs.replace(JOB, event_name=event_name, event=b""))
    assert caught.value.remedy
