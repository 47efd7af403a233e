"""What the second half of the action tells: outputs, summary, annotations, comment and exit code,
for each way a gate can end; by default each failure whole, and a pass in one line where it is
news."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from repro_gate.baseline.model import BaselineFinding
from repro_gate.compare.model import SpeedChange
from repro_gate.errors import GateError, Inconclusive, UsageError
from repro_gate.github.comment import Posted
from repro_gate.github.marker import is_news, state_of
from repro_gate.github.publish_phase import location_of, outputs_of
from repro_gate.github.settings import Inputs
from repro_gate.report.model import Report
from tests.support import reports
from tests.support.github.server import Answer
from tests.support.github.stage import HEAD, RUN, Stage, obeyed, pull_request, signed

PASS, FAIL = signed(reports.PASS), signed(reports.FAIL)


def test_a_pass_is_green_and_commented(stage: Stage) -> None:
    code, log = stage.publish(PASS)
    (posted,) = stage.github.comments(7)
    assert code == 0 and "::error" not in log
    outputs = {"verdict": "pass", "identical": "true", "exit_code": "0"}
    assert outputs.items() <= stage.outputs.items()
    assert stage.outputs["comment_url"].endswith(str(posted["id"]))
    assert "pass" in stage.summary and "pass" in posted["body"] and HEAD[:7] in posted["body"]


def test_a_failure_is_red_and_says_where(stage: Stage) -> None:
    code, log = stage.publish(FAIL)
    assert code == 1 and stage.outputs["identical"] == "false"
    first = {"step": 3, "kind": "gradient", "name": "blocks.3.attn.weight"}
    assert json.loads(stage.outputs["first_divergence"]) == first
    assert "::error " in log and "blocks.3.attn.weight" in log
    assert "blocks.3.attn.weight" in stage.posted[0]
    low, high = json.loads(stage.outputs["determinism_cost_ci95"])
    assert low < float(stage.outputs["determinism_cost_pct"]) < high


@pytest.mark.parametrize(
    ("fail_on", "failed", "unanswered"),
    [({"fail"}, 1, 0), ({"inconclusive"}, 0, 3), (set(), 0, 0), ({"fail", "inconclusive"}, 1, 3)],
)
def test_what_turns_the_step_red_is_the_users_choice(
    stage: Stage, fail_on: set[str], failed: int, unanswered: int
) -> None:
    stage.change(fail_on=frozenset(fail_on))
    assert stage.publish(FAIL)[0] == failed
    assert stage.outputs["exit_code"] == "1"  # what the gate found stays what it is
    assert stage.publish(Inconclusive("no GPU", remedy="start it"))[0] == unanswered
    assert stage.outputs["verdict"] == "inconclusive"


@pytest.mark.parametrize("fork", [True, False])
def test_a_read_only_token_turns_nothing_red_and_is_a_warning_where_it_could_be_more(
    stage: Stage, fork: bool
) -> None:
    stage.may_not_write()
    stage.change(event=pull_request(stage.github.repository, fork=fork), self_hosted=False)
    code, log = stage.publish(PASS)
    assert code == 0 and "::error" not in log and stage.posted == []
    (said,) = [line for line in log.splitlines() if "no comment" in line]
    assert said.startswith("::notice " if fork else "::warning ")
    assert fork or "pull-requests: write" in log
    assert "pass" in stage.summary and "The comment was not posted" in stage.summary


def test_without_a_token_everything_but_the_comment_is_told_and_never_is_never(
    stage: Stage,
) -> None:
    stage.change(token=None)
    code, log = stage.publish(FAIL)
    assert code == 1 and "no token was given" in log and stage.outputs["verdict"] == "fail"
    summary = stage.summary
    stage.change(comment="never", summary=False, annotations=False)
    code, log = stage.publish(FAIL)
    assert (code, obeyed(log), stage.summary, stage.github.requests) == (1, [], summary, [])
    assert "no comment was due" in log


def test_a_problem_is_shown_on_its_line_and_its_words_stay_words(stage: Stage) -> None:
    hostile = "@octocat <img src=x>\n::error::forged"
    code, log = stage.publish(UsageError(f"repro.yml:4:3: {hostile}", remedy=f"ask {hostile}"))
    assert code == 2 and stage.outputs == {"verdict": "", "exit_code": "2"}
    (line,) = obeyed(log)
    assert line.startswith("::error ") and "file=repro.yml" in line and "line=4" in line
    shown = "`@octocat <img src=x>"
    assert stage.summary.count(shown) == 2 == stage.summary.count("@octocat")


@pytest.mark.parametrize(
    ("event_name", "commit", "posted"),
    [
        ("pull_request", "e" * 40, 0),
        ("pull_request", "f" * 40, 1),  # the merge of head and base counts as the head
        ("pull_request_target", "f" * 40, 0),  # where it is the base
    ],
)
def test_a_report_of_a_commit_that_is_not_the_head_is_not_posted(
    stage: Stage, event_name: str, commit: str, posted: int
) -> None:
    stage.change(event_name=event_name)
    _, log = stage.publish(signed(reports.PASS, commit))
    assert len(stage.posted) == posted
    assert ("which is not the pull request's head" in log) is not bool(posted)


def test_nothing_that_untrusted_code_names_becomes_a_command(stage: Stage) -> None:
    secret = "ghp_" + "a1B2" * 9
    hostile = signed(reports.hostile())
    said = replace(hostile.reasons[0], message=f"token {secret}")
    _, log = stage.publish(replace(hostile, reasons=(*hostile.reasons, said)))
    lines = obeyed(log)
    assert lines and all(line.startswith(("::error ", "::warning ", "::notice ")) for line in lines)
    folder = stage.job.workspace / stage.inputs.report
    told = [*stage.posted, stage.summary, log, *(path.read_text() for path in folder.iterdir())]
    assert len(told) == 8 and not any(secret in text for text in told)


KNOWN = "correct-horse-battery"
SHOWN = replace(FAIL, reasons=(replace(FAIL.reasons[0], message=f"password is {KNOWN}"),))


@pytest.mark.parametrize(
    ("left", "said"),
    [
        (SHOWN, "password is"),
        (UsageError(f"repro.yml:4:3: {KNOWN}: unknown key", remedy=f"ask {KNOWN}"), "unknown key"),
    ],
)
def test_known_secrets_are_taken_out(stage: Stage, left: Report | GateError, said: str) -> None:
    _, log = stage.publish(left, [KNOWN])
    assert said in stage.summary and KNOWN not in "".join(stage.posted) + stage.summary + log


@pytest.mark.parametrize("allowed", [True, False])
def test_a_commit_finds_its_pull_request_or_it_is_a_notice_that_it_may_not_ask(
    stage: Stage, allowed: bool
) -> None:
    refused = Answer(403, {"message": "Resource not accessible by integration"})
    stage.github.before = lambda method, path: refused if "/pulls" in path and not allowed else None
    stage.change(event_name="push", sha=HEAD, ref="refs/heads/main", event=b'{"deleted": false}')
    code, log = stage.publish(PASS)
    notices = [line for line in log.splitlines() if line.startswith("::notice ")]
    assert code == 0 and len(stage.posted) == allowed != len(notices)


@pytest.mark.parametrize(
    ("event_name", "event"),
    [("issue_comment", {"issue": {"number": 7, "pull_request": {}}}), ("workflow_dispatch", {})],
)
def test_if_the_event_names_no_commit_the_checkouts_is_compared_with_the_head(
    stage: Stage, event_name: str, event: dict[str, object]
) -> None:
    stage.change(pull_request=None if event else 7, allow_forks=True, ref="refs/heads/main")
    stage.change(event_name=event_name, event=json.dumps(event).encode())
    stage.publish(PASS)
    posted = stage.posted
    stage.publish(signed(reports.FAIL, head_sha="e" * 40))
    assert len(posted) == 1 and stage.posted == posted


def test_a_server_that_fails_turns_nothing_red(stage: Stage) -> None:
    stage.change(api_url="http://127.0.0.1:9", graphql_url="http://127.0.0.1:9/graphql")
    code, log = stage.publish(PASS)
    assert code == 0 and "::warning" in log


def test_every_output_of_the_action_is_told_and_no_other_and_what_was_not_measured_is_empty() -> (
    None
):
    def told(report: Report, folder: str = "odd.json") -> dict[str, str]:
        return outputs_of(signed(report), Inputs(report=folder), Posted("skipped"))

    action = yaml.safe_load((Path(__file__).parents[2] / "action.yml").read_text(encoding="utf-8"))
    assert set(told(reports.PASS)) == set(action["outputs"])
    assert told(reports.PASS)["report"] == "odd.json/report.json"  # whatever a folder is called
    assert told(reports.EXPLAINED)["cause"] == "unseeded-rng"
    empty = told(reports.NOTHING)
    names = ("determinism_cost_pct", "first_divergence", "baseline", "cause")
    assert [empty[name] for name in names] == [""] * 4


def test_the_state_changes_with_the_finding_and_not_with_the_clock() -> None:
    explained, why = signed(reports.EXPLAINED), reports.WHY
    later = replace(FAIL, started="2030-01-01T00:00:00Z", seconds=9.0, cost=None)
    assert state_of(FAIL) == state_of(later) != state_of(PASS)
    same, other = replace(why, seconds=9.0, runs=4, evidence=()), replace(why, line=42)
    assert state_of(explained) == state_of(replace(explained, diagnosis=same))
    assert state_of(explained) != state_of(replace(explained, diagnosis=other))


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


# What is posted by default.

_GREEN = replace(reports.LOCKED, notes=())  # a pass with an unchanged baseline


def _next(stage: Stage, report: Report, run: int) -> list[str]:
    """The bodies of the comments once one more run has published, without their markers."""
    stage.change(comment=Inputs().comment, run_id=RUN + run)
    stage.publish(signed(report, str(report.subject.commit), run_id=RUN + run))
    return [body.partition("\n")[2] for body in stage.posted]


def test_by_default_a_pass_is_silent_a_failure_is_not_and_a_mended_one_is_green_again(
    stage: Stage,
) -> None:
    assert Inputs().comment == "on-change"
    assert _next(stage, _GREEN, 1) == [] and "pass, bitwise identical" in stage.summary
    (red,) = _next(stage, reports.EXPLAINED, 2)
    assert red.startswith("## ❌ ")
    (green,) = _next(stage, _GREEN, 3)
    assert green.startswith("✅ ") and "the run before: fail" in green.splitlines()[0]
    assert _next(stage, replace(_GREEN, seconds=9.0), 4) == [green]


def test_by_default_another_cost_is_told_with_the_one_before(stage: Stage) -> None:
    def costing(percent: float, low: float, high: float) -> Report:
        cost = replace(reports.COST, determinism_cost_pct=percent, ci95=(low, high))
        return replace(reports.WEAKENED, cost=cost)

    _next(stage, reports.WEAKENED, 1)
    (body,) = _next(stage, costing(30.0, 28.0, 32.5), 2)
    assert "+28.0% to +32.5%, before +10.1% to +14.6%" in body
    assert _next(stage, costing(31.0, 30.0, 33.0), 3) == [body]


def test_what_is_news_of_a_pass() -> None:
    against = reports.CHANGED.against
    assert against is not None and not is_news(_GREEN) and not is_news(reports.PASS)
    same = SpeedChange(arm="default", slower_pct=1.0, ci95=(-1.0, 3.0), runs=4)
    calm = replace(against, status="unchanged", speed=(same,))
    slower = replace(calm, speed=(replace(same, ci95=(0.5, 3.0)),))
    assert not is_news(replace(_GREEN, against=calm))
    assert is_news(replace(_GREEN, against=slower))
    assert is_news(replace(_GREEN, against=against)) and is_news(reports.WEAKENED)
    news = {"unchanged": 0, "no-op": 1, "changed": 1, "drift": 1, "new-platform": 0}
    for status, expected in news.items():
        baseline = BaselineFinding(status=status, message="as it is")
        assert is_news(replace(_GREEN, baseline=baseline)) == expected
