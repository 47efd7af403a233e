"""Inputs and the job's variables: what is allowed comes through clean, and whatever else is refused
by name, value and remedy."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import pytest

from repro_gate.errors import UsageError
from repro_gate.github.settings import Inputs, read_inputs, read_job

SHA = "c0ffee" * 6 + "beef"
REFUSED = [
    ("comment", "Always"),
    ("fail_on", "fail, never"),
    ("fail_on", "pass"),
    ("working_directory", "/github/workspace"),
    ("working_directory", "../other"),
    ("working_directory", "a/../../b"),
    ("spec", "/etc/passwd"),
    ("spec", "../repro.yml"),
    ("spec", "a\u202eb.yml"),
    ("spec", "a" * 1025),
    ("report", "/tmp/report"),
    ("report", ".."),
    ("report", "."),
    ("report", "out/.."),
    ("report", "x/.GIT/hooks"),
    ("cache", "../cache"),
    ("cache", "."),
    ("cache", "x/.git"),
    ("cache", "/tmp/a\nb"),
    ("policy", "Base"),
    ("base", "--upload-pack=touch"),
    ("against", "main; rm"),
    ("set", "train.steps"),
    ("set", "train.steps=20\n=3"),
    ("pull_request", "0"),
    ("pull_request", "-7"),
    ("pull_request", "٧"),
    ("pull_request", "7.0"),
    ("allow_forks", "yes"),
    ("annotations", "1"),
    ("summary", "tRUE"),
]


def runner(tmp_path: Path, **changed: str) -> dict[str, str]:
    """The variables that a runner of GitHub's sets."""
    return {
        "GITHUB_REPOSITORY": "octo-org/train",
        "GITHUB_EVENT_NAME": "push",
        "GITHUB_SHA": SHA,
        "GITHUB_REF": "refs/heads/main",
        "GITHUB_RUN_ID": "9312345678",
        "GITHUB_RUN_ATTEMPT": "2",
        "GITHUB_WORKSPACE": str(tmp_path),
        "RUNNER_ENVIRONMENT": "github-hosted",
        **changed,
    }


def given(**inputs: str) -> Inputs:
    return read_inputs({f"INPUT_{name.upper()}": value for name, value in inputs.items()})


def test_without_inputs_everything_has_its_default() -> None:
    assert read_inputs({}) == Inputs()


def test_an_empty_input_is_one_that_was_not_given() -> None:
    names = {"set" if field.name == "overrides" else field.name for field in fields(Inputs)}
    assert read_inputs({f"INPUT_{name.upper()}": " \n" for name in names}) == Inputs()


def test_each_input_reaches_its_field() -> None:
    found = given(
        spec="specs/repro.yml", working_directory="train/", token=" ghs_x ", comment="on-change", fail_on="fail",
        report="out/report.json", policy="base", base="origin/main", against="HEAD~1", pull_request="7", allow_forks="true",
        annotations="False", summary="FALSE", cache="/var/cache/gate/", set="train.steps=20\n\n# why\n  capture.every = 2  ",
    )  # fmt: skip
    token = found.token
    assert token is not None and token.reveal() == "ghs_x"
    assert found == Inputs(
        spec="specs/repro.yml", working_directory="train", token=token, comment="on-change", fail_on=frozenset({"fail"}),
        report="out/report.json", policy="base", base="origin/main", against="HEAD~1", overrides=("train.steps=20", "capture.every = 2"),
        pull_request=7, allow_forks=True, annotations=False, summary=False, cache="/var/cache/gate",
    )  # fmt: skip


@pytest.mark.parametrize(("name", "value"), REFUSED)
def test_what_is_not_allowed_is_refused_by_name_with_a_remedy(name: str, value: str) -> None:
    with pytest.raises(UsageError) as caught:
        given(**{name: value})
    assert caught.value.message.startswith(f"{name}: `")
    assert caught.value.remedy.startswith(f"`with: {{{name}: ")
    assert caught.value.message.isprintable() and len(caught.value.message) < 300


@pytest.mark.parametrize(
    ("value", "verdicts"),
    [
        ("fail, inconclusive", {"fail", "inconclusive"}),
        ("fail inconclusive", {"fail", "inconclusive"}),
        ("inconclusive,", {"inconclusive"}),
    ],
)
def test_verdicts_stand_between_commas_or_blanks(value: str, verdicts: set[str]) -> None:
    assert given(fail_on=value).fail_on == verdicts


def test_never_turns_no_verdict_red() -> None:
    assert given(fail_on="never").fail_on == frozenset()


def test_a_spec_may_lie_above_the_working_directory_and_not_above_the_workspace() -> None:
    assert given(working_directory="a/b", spec="../../repro.yml").spec == "../../repro.yml"
    with pytest.raises(UsageError, match="inside the workspace"):
        given(working_directory="a/b", spec="../../../repro.yml")


@pytest.mark.parametrize("value", ["ghs_a b", "ghs_a\nX-Header: 1", "ghs_ä"])
def test_a_token_that_no_header_can_carry_is_refused_and_not_repeated(value: str) -> None:
    with pytest.raises(UsageError) as caught:
        given(token=value)
    assert "ghs" not in caught.value.diagnostics() and caught.value.remedy


def test_the_token_is_not_seen_where_the_inputs_are_shown() -> None:
    with pytest.raises(UsageError) as caught:
        given(token="ghs_secret", comment="sometimes")
    assert "ghs_secret" not in caught.value.diagnostics()
    assert "ghs_secret" not in repr(given(token="ghs_secret"))


def test_the_job_of_a_runner_is_read(tmp_path: Path) -> None:
    event = tmp_path / "event.json"
    event.write_text(json.dumps({"ref": "refs/heads/main"}))
    job = read_job(
        runner(tmp_path, GITHUB_EVENT_PATH=str(event), GITHUB_OUTPUT="/o", GITHUB_STEP_SUMMARY="/s")
    )
    assert (job.repository, job.event_name, job.sha, job.ref) == (
        "octo-org/train",
        "push",
        SHA,
        "refs/heads/main",
    )
    assert (job.run_id, job.run_attempt, job.workspace, job.self_hosted) == (
        9312345678,
        2,
        tmp_path,
        False,
    )
    assert (job.output_file, job.summary_file) == (Path("/o"), Path("/s"))
    assert job.event == b'{"ref": "refs/heads/main"}'
    assert (job.server_url, job.api_url, job.graphql_url) == (
        "https://github.com",
        "https://api.github.com",
        "https://api.github.com/graphql",
    )
    assert job.run_url == "https://github.com/octo-org/train/actions/runs/9312345678"


def test_a_server_of_ones_own_has_its_own_addresses(tmp_path: Path) -> None:
    job = read_job(
        runner(
            tmp_path,
            GITHUB_SERVER_URL="https://git.example.com/",
            GITHUB_API_URL="https://git.example.com/api/v3",
        )
    )
    assert (job.server_url, job.api_url) == (
        "https://git.example.com",
        "https://git.example.com/api/v3",
    )
    assert job.graphql_url == "https://git.example.com/api/graphql"


def test_a_token_of_ones_own_server_never_goes_to_github_com_by_default(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"GITHUB_API_URL: expected an address like .*, found nothing"
    ):
        read_job(runner(tmp_path, GITHUB_SERVER_URL="https://git.example.com"))


@pytest.mark.parametrize("kind", ["self-hosted", "", "GitHub-hosted"])
def test_a_runner_that_is_not_known_to_be_githubs_is_self_hosted(tmp_path: Path, kind: str) -> None:
    assert read_job(runner(tmp_path, RUNNER_ENVIRONMENT=kind)).self_hosted


def test_outside_a_workflow_the_laptops_command_is_named() -> None:
    with pytest.raises(UsageError, match="meant to run in a GitHub workflow") as caught:
        read_job({"HOME": "/root"})
    assert "`repro-gate run`" in caught.value.remedy


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("GITHUB_REPOSITORY", "train"),
        ("GITHUB_REPOSITORY", "o/../x"),
        ("GITHUB_EVENT_NAME", "Push\n::error::"),
        ("GITHUB_SHA", "main"),
        ("GITHUB_SHA", ""),
        ("GITHUB_RUN_ID", "0"),
        ("GITHUB_RUN_ID", "12x"),
        ("GITHUB_RUN_ATTEMPT", "-1"),
        ("GITHUB_WORKSPACE", "relative"),
        ("GITHUB_WORKSPACE", "/does/not/exist"),
        ("GITHUB_SERVER_URL", "https://github.com@evil.example"),
        ("GITHUB_SERVER_URL", "https://a.example/)[x](https://b.example"),
        ("GITHUB_API_URL", "https://api.github.com?x=1"),
        ("GITHUB_API_URL", "file:///etc"),
        ("GITHUB_GRAPHQL_URL", "https://user:pass@host/graphql"),
    ],
)
def test_a_variable_that_no_runner_sets_so_is_refused_by_name(
    tmp_path: Path, name: str, value: str
) -> None:
    with pytest.raises(UsageError) as caught:
        read_job(runner(tmp_path, **{name: value}))
    assert caught.value.message.startswith(f"{name}: expected ")
    assert caught.value.message.isprintable()
    assert caught.value.remedy
