"""What each event asks of the action: what is gated, what is posted, what is left alone, and what
is refused and why."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from repro_gate.errors import UsageError
from repro_gate.github.activity import Activity, Decision, decide, decide_comment
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
REVIEWS = ("pull_request", "pull_request_review", "pull_request_review_comment")


def of(
    event_name: str,
    payload: dict[str, Any] | None = None,
    *,
    self_hosted: bool = False,
    ref: str = JOB.ref,
    posting: bool = False,
    **inputs: Any,
) -> Decision:
    job = replace(
        JOB,
        event_name=event_name,
        event=json.dumps(payload or {}).encode(),
        self_hosted=self_hosted,
        ref=ref,
    )
    return (decide_comment if posting else decide)(Inputs(**inputs), job)


GONE = changed(PULL, "pull_request.head.repo", None)
CLOSED = changed(PULL, "action", "closed")
GATE, REFUSE, NOTHING = Activity.GATE, Activity.REFUSE, Activity.NOTHING


@pytest.mark.parametrize("event_name", [*REVIEWS, "pull_request_target"])
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
    payload: dict[str, Any],
    self_hosted: bool,
    allow_forks: bool,
    of_reviews: Activity,
    of_target: Activity,
) -> None:
    found = of(event_name, payload, self_hosted=self_hosted, allow_forks=allow_forks)
    assert found.activity is (of_reviews if event_name in REVIEWS else of_target)
    assert found.tested_sha == (SHA if found.activity is GATE else "")
    assert found.pull is not None and found.pull.number == 7
    assert found.pull.fork == (payload is not OWN)
    if found.activity is REFUSE:
        assert 'allow_forks: "true"' in found.remedy and found.reason.isprintable()


@pytest.mark.parametrize("event_name", [*REVIEWS, "pull_request_target"])
def test_the_input_must_not_name_another_pull_request_than_the_event(event_name: str) -> None:
    assert of(event_name, OWN, pull_request=7).activity is Activity.GATE
    found = of(event_name, OWN, pull_request=8)
    assert found.activity is Activity.REFUSE and "pull_request: 8" in found.reason and found.remedy


@pytest.mark.parametrize("event_name", [*REVIEWS, "pull_request_target", "issue_comment"])
def test_an_event_without_its_payload_is_an_error_that_says_how_to_mend_it(event_name: str) -> None:
    with pytest.raises(UsageError, match="GITHUB_EVENT_PATH") as caught:
        decide(Inputs(), replace(JOB, event_name=event_name, event=None))
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("ref", "find_by"),
    [
        ("refs/heads/pull-request/12", 12),
        ("refs/heads/main", MERGE),
        ("refs/heads/pull-request/12x", MERGE),
        ("refs/heads/pull-request/0", MERGE),
        ("refs/heads/x/pull-request/12", MERGE),
        ("refs/heads/pull-request/١٢", MERGE),
        ("refs/tags/pull-request/12", None),
    ],
)
def test_a_pushed_branch_finds_its_pull_request(ref: str, find_by: int | str | None) -> None:
    assert of("push", {"deleted": False}, ref=ref, self_hosted=True) == Decision(
        activity=Activity.GATE, find_by=find_by, tested_sha=MERGE
    )


@pytest.mark.parametrize(
    "event_name",
    ["merge_group", "schedule", "workflow_dispatch", "push", "release", "repository_dispatch"],
)
def test_without_a_pull_request_the_gate_runs_and_tells_the_one_that_the_input_names(
    event_name: str,
) -> None:
    # only a push says which commit it is
    sha, by = (MERGE, MERGE) if event_name == "push" else ("", None)
    assert of(event_name) == Decision(activity=GATE, find_by=by, tested_sha=sha)
    assert of(event_name, pull_request=33) == Decision(activity=GATE, find_by=33, tested_sha=sha)


def test_a_comment_on_a_pull_request_starts_nothing_unless_it_is_allowed() -> None:
    payload = {"issue": {"number": 7, "pull_request": {"url": "x"}}}
    found = of("issue_comment", payload)
    assert found.activity is Activity.REFUSE
    assert "pull request 7" in found.reason
    assert 'allow_forks: "true"' in found.remedy
    assert of("issue_comment", payload, allow_forks=True) == Decision(
        activity=Activity.GATE, find_by=7
    )


def test_code_is_never_gated_in_workflow_run() -> None:
    for allow_forks in (False, True):
        found = of("workflow_run", RUN, allow_forks=allow_forks)
        assert found.activity is REFUSE
        assert "`uses: repro-gate/repro-gate/comment`" in found.remedy


@pytest.mark.parametrize("conclusion", ["success", "failure", "neutral", "timed_out"])
def test_the_report_of_a_forks_run_that_may_have_left_one_is_posted(conclusion: str) -> None:
    payload = changed(RUN, "workflow_run.conclusion", conclusion)
    found = of("workflow_run", payload, posting=True, self_hosted=True)
    assert (found.activity, found.tested_sha) == (Activity.COMMENT, SHA)
    assert found.workflow_run is not None and found.workflow_run.id == 31
    # whose report it is, nobody may choose
    found = of("workflow_run", payload, posting=True, pull_request=7)
    assert found.activity is REFUSE and "pull_request: 7" in found.reason and found.remedy


@pytest.mark.parametrize(
    ("path", "value", "why"),
    [
        ("action", "requested", "not ended"),
        ("action", "in_progress", "not ended"),
        ("workflow_run.status", "queued", "not ended"),
        *(
            ("workflow_run.conclusion", value, f"`{value or 'unknown'}`")
            for value in ("skipped", "cancelled", "action_required", None)
        ),
        *(("workflow_run.event", value, f"`{value}`") for value in ("push", "pull_request_target")),
    ],
)
def test_a_run_without_a_report_for_a_pull_request_is_left_alone(
    path: str, value: object, why: str
) -> None:
    found = of("workflow_run", changed(RUN, path, value), posting=True)
    assert found.activity is Activity.NOTHING and why in found.reason


@pytest.mark.parametrize("payload", [PULL, OWN], ids=["fork", "own"])
@pytest.mark.parametrize("event_name", [*REVIEWS, "pull_request_target"])
def test_a_job_that_only_posts_goes_by_its_own_event_and_runs_nothing_that_could_be_refused(
    event_name: str, payload: dict[str, Any]
) -> None:
    found = of(event_name, payload, posting=True, self_hosted=True)
    gated = of(event_name, payload, self_hosted=True, allow_forks=True)
    assert found == replace(gated, activity=Activity.COMMENT) and found.foreign is (payload is PULL)
    assert (
        of(event_name, changed(payload, "action", "closed"), posting=True).activity
        is Activity.NOTHING
    )
    assert of(event_name, payload, posting=True, pull_request=8).activity is Activity.REFUSE


def test_a_job_that_only_posts_finds_the_pull_request_of_a_push_and_the_one_that_is_named() -> None:
    pushed = of("push", {"deleted": False}, ref="refs/heads/pull-request/12", posting=True)
    assert (pushed.activity, pushed.find_by) == (Activity.COMMENT, 12)
    assert not pushed.foreign
    assert of("workflow_dispatch", posting=True, pull_request=33).find_by == 33
