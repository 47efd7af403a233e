"""What the second half of the action tells: outputs, summary, annotations, comment and exit code,
for each way a gate can end."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from repro_gate.github import publish_phase
from repro_gate.github.client import Api
from repro_gate.github.comment import Posted
from repro_gate.github.marker import state_of
from repro_gate.github.publish_phase import location_of, outputs_of
from repro_gate.github.report_folder import Problem
from repro_gate.github.run_phase import _with_origin
from repro_gate.github.settings import Inputs, Secret
from tests.support import reports
from tests.support.github.conversation import no_sleep
from tests.support.github.server import Answer
from tests.support.github.stage import HEAD, ORIGIN, Stage, obeyed, pull_request, signed


def test_a_pass_is_green_and_commented(stage: Stage) -> None:
    code, log = stage.publish(signed(reports.PASS))
    (posted,) = stage.github.comments(7)
    assert code == 0
    assert "::error" not in log
    assert stage.outputs["verdict"] == "pass"
    assert stage.outputs["identical"] == "true"
    assert stage.outputs["comment_url"].endswith(str(posted["id"]))
    assert stage.outputs["exit_code"] == "0"
    assert "pass" in stage.summary and "pass" in posted["body"]
    assert HEAD[:7] in posted["body"]


def test_a_failure_is_red_and_says_where(stage: Stage) -> None:
    code, log = stage.publish(signed(reports.FAIL))
    assert code == 1
    assert json.loads(stage.outputs["first_divergence"]) == {
        "step": 3,
        "kind": "gradient",
        "name": "blocks.3.attn.weight",
    }
    assert stage.outputs["identical"] == "false"
    assert "::error " in log and "blocks.3.attn.weight" in log
    assert "blocks.3.attn.weight" in stage.github.comments(7)[0]["body"]
    low, high = json.loads(stage.outputs["determinism_cost_ci95"])
    assert low < float(stage.outputs["determinism_cost_pct"]) < high


@pytest.mark.parametrize(
    ("fail_on", "code"),
    [(frozenset({"fail"}), 1), (frozenset({"inconclusive"}), 0), (frozenset(), 0)],
)
def test_what_turns_the_step_red_is_the_users_choice(
    stage: Stage, fail_on: frozenset[str], code: int
) -> None:
    stage.inputs = replace(stage.inputs, fail_on=fail_on)
    assert stage.publish(signed(reports.FAIL))[0] == code
    assert stage.outputs["exit_code"] == "1"  # what the gate found stays what it is


def test_a_forks_read_only_token_turns_nothing_red(stage: Stage) -> None:
    stage.inputs = replace(stage.inputs, token=Secret(stage.github.token(write=False)))
    stage.job = replace(stage.job, event=pull_request(stage.github, fork=True), self_hosted=False)
    code, log = stage.publish(signed(reports.PASS))
    assert code == 0
    (said,) = [line for line in log.splitlines() if "no comment" in line]
    assert said.startswith("::notice ") and "::error" not in log
    assert "pass" in stage.summary and "The comment was not posted" in stage.summary
    assert stage.github.comments(7) == []


def test_a_read_only_token_of_the_repositorys_own_is_a_warning_with_the_line_to_add(
    stage: Stage,
) -> None:
    stage.inputs = replace(stage.inputs, token=Secret(stage.github.token(write=False)))
    code, log = stage.publish(signed(reports.PASS))
    assert code == 0
    assert "::warning" in log and "pull-requests: write" in log


def test_without_a_token_everything_but_the_comment_is_told(stage: Stage) -> None:
    stage.inputs = replace(stage.inputs, token=None)
    code, log = stage.publish(signed(reports.FAIL))
    assert code == 1
    assert "no token was given" in log
    assert stage.outputs["verdict"] == "fail"


def test_never_is_never(stage: Stage) -> None:
    stage.inputs = replace(stage.inputs, comment="never", summary=False, annotations=False)
    code, log = stage.publish(signed(reports.FAIL))
    assert (code, obeyed(log), stage.summary, stage.github.requests) == (1, [], "", [])
    assert "no comment was due" in log


def test_a_problem_is_told_on_its_line(stage: Stage) -> None:
    code, log = stage.publish(
        Problem("repro.yml:4:3: train.stpes: unknown key", "did you mean `steps`?", 2)
    )
    assert code == 2
    assert "::error " in log and "file=repro.yml" in log and "line=4" in log
    assert "unknown key" in stage.summary and "did you mean" in stage.summary
    assert stage.outputs == {"verdict": "", "exit_code": "2"}
    assert stage.github.comments(7) == []


@pytest.mark.parametrize(("fail_on", "code"), [({"fail", "inconclusive"}, 3), ({"fail"}, 0)])
def test_a_gate_that_could_not_answer_is_inconclusive(
    stage: Stage, fail_on: set[str], code: int
) -> None:
    stage.inputs = replace(stage.inputs, fail_on=frozenset(fail_on))
    assert stage.publish(Problem("no GPU", "start it with --gpus all", 3))[0] == code
    assert stage.outputs["verdict"] == "inconclusive"


def test_a_gate_that_left_nothing_is_said(stage: Stage) -> None:
    code, log = stage.publish(None)
    assert code == 3
    assert "there is no report" in log


def test_a_report_of_a_commit_that_is_not_the_head_is_not_posted(stage: Stage) -> None:
    report = signed(reports.PASS)
    other = replace(report, subject=replace(report.subject, commit="e" * 40))
    _, log = stage.publish(other)
    assert "which is not the pull request's head" in log
    assert stage.github.comments(7) == []


def test_the_merge_of_head_and_base_counts_as_the_head(stage: Stage) -> None:
    report = signed(reports.PASS)
    stage.publish(replace(report, subject=replace(report.subject, commit=stage.job.sha)))
    assert len(stage.github.comments(7)) == 1


def test_under_pull_request_target_the_base_does_not(stage: Stage) -> None:
    stage.job = replace(stage.job, event_name="pull_request_target")
    report = signed(reports.PASS)
    stage.publish(replace(report, subject=replace(report.subject, commit=stage.job.sha)))
    assert stage.github.comments(7) == []


def test_nothing_that_untrusted_code_names_becomes_a_command(stage: Stage) -> None:
    secret = "ghp_" + "a1B2" * 9
    hostile = signed(reports.hostile())
    hostile = replace(
        hostile, reasons=(*hostile.reasons, replace(hostile.reasons[0], message=f"token {secret}"))
    )
    _, log = stage.publish(hostile)
    lines = obeyed(log)
    assert lines and all(line.startswith(("::error ", "::warning ", "::notice ")) for line in lines)
    (posted,) = stage.github.comments(7)
    folder = stage.job.workspace / stage.inputs.report
    told = [posted["body"], stage.summary, log, *(path.read_text() for path in folder.iterdir())]
    assert len(told) == 8
    assert not any(secret in text for text in told)


def test_known_secrets_are_taken_out(stage: Stage) -> None:
    report = signed(reports.FAIL)
    shown = replace(
        report, reasons=(replace(report.reasons[0], message="password is correct-horse-battery"),)
    )
    _, log = stage.publish(shown, ["correct-horse-battery"])
    assert "correct-horse-battery" not in stage.github.comments(7)[0]["body"] + stage.summary + log


def test_known_secrets_are_taken_out_of_a_problem_too(stage: Stage) -> None:
    _, log = stage.publish(
        Problem(
            "repro.yml:4:3: correct-horse-battery: unknown key", "ask correct-horse-battery", 2
        ),
        ["correct-horse-battery"],
    )
    assert "correct-horse-battery" not in stage.summary + log and "unknown key" in stage.summary


def test_a_commit_finds_its_pull_request(stage: Stage) -> None:
    stage.job = replace(
        stage.job, event_name="push", sha=HEAD, ref="refs/heads/topic", event=b'{"deleted": false}'
    )
    stage.publish(signed(reports.PASS))
    assert len(stage.github.comments(7)) == 1


def test_a_push_that_may_not_ask_for_its_pull_request_gets_no_warning(stage: Stage) -> None:
    stage.github.before = lambda method, path: (
        Answer(403, {"message": "Resource not accessible by integration"})
        if "/pulls" in path
        else None
    )
    stage.job = replace(
        stage.job, event_name="push", sha=HEAD, ref="refs/heads/main", event=b'{"deleted": false}'
    )
    code, log = stage.publish(signed(reports.PASS))
    assert code == 0
    (said,) = [line for line in log.splitlines() if "no comment" in line]
    assert said.startswith("::notice ") and "pull-requests: read" in said


@pytest.mark.parametrize(
    ("event_name", "event"),
    [("issue_comment", {"issue": {"number": 7, "pull_request": {}}}), ("workflow_dispatch", {})],
)
def test_where_the_event_names_no_commit_the_checkouts_is_held_against_the_head(
    stage: Stage, event_name: str, event: dict[str, object]
) -> None:
    number = None if event else 7
    stage.inputs = replace(stage.inputs, pull_request=number, allow_forks=True)
    stage.job = replace(
        stage.job, event_name=event_name, event=json.dumps(event).encode(), ref="refs/heads/main"
    )
    assert (
        _with_origin(signed(reports.PASS), stage.inputs, stage.job, stage.decision).origin == ORIGIN
    )
    stage.publish(signed(reports.PASS))
    (posted,) = stage.github.comments(7)
    other = replace(signed(reports.FAIL), origin=replace(ORIGIN, head_sha="e" * 40))
    stage.publish(other)
    assert stage.github.comments(7) == [posted]


def test_a_server_that_fails_turns_nothing_red(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publish_phase, "Api", partial(Api, sleep=no_sleep))
    stage.job = replace(
        stage.job, api_url="http://127.0.0.1:9", graphql_url="http://127.0.0.1:9/graphql"
    )
    code, log = stage.publish(signed(reports.PASS))
    assert code == 0
    assert "::warning" in log


def test_what_was_not_measured_is_empty() -> None:
    told = outputs_of(signed(reports.NOTHING), Inputs(), Posted("skipped"))
    assert told["determinism_cost_pct"] == ""
    assert told["first_divergence"] == ""
    assert told["baseline"] == ""
    assert told["cause"] == ""


def test_every_output_of_the_action_is_told_and_no_other() -> None:
    import yaml

    action = yaml.safe_load((Path(__file__).parents[2] / "action.yml").read_text(encoding="utf-8"))
    assert (
        outputs_of(signed(reports.EXPLAINED), Inputs(), Posted("skipped"))["cause"]
        == "unseeded-rng"
    )
    told = outputs_of(signed(reports.PASS), Inputs(report="odd.json"), Posted("skipped"))
    assert set(told) == set(action["outputs"])
    assert told["report"] == "odd.json/report.json"  # whatever a folder is called


def test_the_state_changes_with_the_finding_and_not_with_the_clock() -> None:
    report = signed(reports.FAIL)
    assert state_of(report) == state_of(
        replace(report, started="2030-01-01T00:00:00Z", seconds=9.0, cost=None)
    )
    assert state_of(report) != state_of(signed(reports.PASS))
    explained = signed(reports.EXPLAINED)
    assert state_of(explained) == state_of(
        replace(explained, diagnosis=replace(reports.WHY, seconds=9.0, runs=4, evidence=()))
    )
    assert state_of(explained) != state_of(
        replace(explained, diagnosis=replace(reports.WHY, line=42))
    )


@pytest.mark.parametrize(
    ("message", "place"),
    [
        ("repro.yml:4:3: train: x", ("repro.yml", 4)),
        ("a/b.yml:12: y", ("a/b.yml", 12)),
        ("/etc/passwd:1: y", (None, None)),
        ("../x.yml:1: y", (None, None)),
        ("no place here", (None, None)),
        ("a\u202eb:3: y", (None, None)),
        ("a:99999999999: y", (None, None)),
    ],
)
def test_an_error_is_shown_on_the_line_that_it_names(
    message: str, place: tuple[str | None, int | None]
) -> None:
    assert location_of(message) == place
