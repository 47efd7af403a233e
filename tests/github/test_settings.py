"""Inputs and the job's variables: what is allowed comes through clean, and whatever else is refused
by name, value and remedy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from repro_gate.errors import UsageError
from repro_gate.github.settings import Inputs, Secret, Server, read_inputs, read_job, read_variables

SHA = "c0ffee" * 6 + "beef"


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


def test_each_input_reaches_its_field_or_has_its_default() -> None:
    for empty in ({}, dict.fromkeys(Inputs.__struct_encode_fields__, " \n")):
        assert read_inputs(empty) == Inputs()
    found = given(
        spec="specs/repro.yml", working_directory="train/", token=" ghs_x ", comment="on-change", fail_on="fail",
        report="out/report.json", policy="base", base="origin/main", against="HEAD~1", pull_request="7", allow_forks="true",
        annotations="False", summary="FALSE", cache="/var/cache/gate/", set="train.steps=20\n\n# why\n  capture.every = 2  ",
    )  # fmt: skip
    token = found.token
    assert token is not None and token.reveal() == "ghs_x"
    assert found == Inputs(
        spec="train/specs/repro.yml", working_directory="train", token=token, comment="on-change", fail_on=frozenset({"fail"}),
        report="out/report.json", policy="base", base="origin/main", against="HEAD~1", overrides=("train.steps=20", "capture.every = 2"),
        pull_request=7, allow_forks=True, annotations=False, summary=False, cache="/var/cache/gate",
    )  # fmt: skip
    for value in ("fail, inconclusive", "fail inconclusive"):
        assert given(fail_on=value).fail_on == {"fail", "inconclusive"}
    assert given(fail_on="never").fail_on == frozenset()
    assert given(working_directory="a/b", spec="../../repro.yml").spec == "repro.yml"
    assert given(working_directory="a").spec == "a/repro.yml"
    with pytest.raises(UsageError, match="inside the workspace"):
        given(working_directory="a/b", spec="../../../repro.yml")


def test_what_is_not_allowed_is_refused_by_name_with_a_remedy_and_a_token_never_shown() -> None:
    for name, values in (
        ("comment", ("Always",)),
        ("fail_on", ("fail, never", "pass", " , ,")),
        ("working_directory", ("/github/workspace", "../other", "a/../../b")),
        ("spec", ("/etc/passwd", "../repro.yml", "a\u202eb.yml", "a" * 1025)),
        ("report", ("/tmp/report", "..", ".", "out/..", "x/.GIT/hooks")),
        ("cache", ("../cache", ".", "x/.git", "/tmp/a\nb")),
        ("policy", ("Base",)),
        ("base", ("--upload-pack=touch",)),
        ("against", ("main; rm", "a\u202eb")),
        ("set", ("train.steps", "train.steps=20\n=3")),
        ("pull_request", ("0", "-7", "٧", "7.5", "9" * 16)),
        ("allow_forks", ("yes", "on")),
    ):
        for value in values:
            with pytest.raises(UsageError) as caught:
                given(**{name: value})
            assert caught.value.message.startswith(f"{name}: `") and caught.value.remedy
            assert caught.value.message.isprintable() and len(caught.value.message) < 300
    for value in ("ghs_a b", "ghs_a\nX-Header: 1", "ghs_ä"):
        with pytest.raises(UsageError, match=r"^token: ") as caught:
            given(token=value)
        assert "ghs" not in caught.value.diagnostics() and caught.value.remedy
    for value in ("", "\r\nX-Evil: 1", "ghs_x\n"):
        with pytest.raises(UsageError):
            Secret(value)
    assert "ghs_secret" not in repr(given(token="ghs_secret"))


def test_the_job_of_a_runner_is_read(tmp_path: Path) -> None:
    event = tmp_path / "event.json"
    event.write_text(json.dumps({"ref": "refs/heads/main"}))
    files = {"GITHUB_OUTPUT": "/o", "GITHUB_STEP_SUMMARY": "/s"}
    job = read_job(runner(tmp_path, GITHUB_EVENT_PATH=str(event), **files))
    assert (job.repository, job.event_name, job.sha) == ("octo-org/train", "push", SHA)
    assert (job.ref, job.run_id, job.run_attempt) == ("refs/heads/main", 9312345678, 2)
    assert (job.server_url, job.api_url) == ("https://github.com", "https://api.github.com")
    assert job.graphql_url == "https://api.github.com/graphql" and not job.self_hosted
    assert (job.workspace, job.output_file, job.summary_file) == (tmp_path, Path("/o"), Path("/s"))
    assert job.event == b'{"ref": "refs/heads/main"}'
    for kind in ("self-hosted", "", "GitHub-hosted"):
        assert read_job(runner(tmp_path, RUNNER_ENVIRONMENT=kind)).self_hosted
    # a token never goes to github.com from a server of one's own
    own = "https://git.example.com"
    job = read_job(runner(tmp_path, GITHUB_SERVER_URL=f"{own}/", GITHUB_API_URL=f"{own}/api/v3"))
    assert (job.server_url, job.api_url) == (own, f"{own}/api/v3")
    assert job.graphql_url == f"{own}/api/graphql"
    with pytest.raises(UsageError, match=r"^GITHUB_API_URL: "):
        read_job(runner(tmp_path, GITHUB_SERVER_URL=own))
    with pytest.raises(UsageError, match="meant to run in a GitHub workflow") as caught:
        read_job({"HOME": "/root"})
    assert "`repro-gate run`" in caught.value.remedy


UNENCRYPTED = ("http://github.example.com", "http://127.0.0.1.example.com", "http://127.0.0.1x/")
NO_ADDRESS = ("ftp://x", "https://", "https://u:p@h", "https://h?x", "https://h/)[x](https://y")


def test_a_variable_that_no_runner_sets_so_is_refused_by_name(tmp_path: Path) -> None:
    for name, values in (
        ("REPOSITORY", ("train", "o/../x", "o/..", "a/b/c", "o/r?x")),
        ("EVENT_NAME", ("Push\n::error::",)),
        ("SHA", ("main", "", "..", "ab" * 4, f"{'ab' * 20}/../..")),  # of an address of the API
        ("RUN_ID", ("0", "12x")),
        ("RUN_ATTEMPT", ("-1",)),
        ("WORKSPACE", ("relative", "/does/not/exist")),
        ("SERVER_URL", NO_ADDRESS),
        ("API_URL", (*UNENCRYPTED, *NO_ADDRESS)),
        ("GRAPHQL_URL", (*UNENCRYPTED, *NO_ADDRESS)),
    ):
        for value in values:
            with pytest.raises(UsageError) as caught:
                read_job(runner(tmp_path, **{f"GITHUB_{name}": value}))
            assert caught.value.message.startswith(f"GITHUB_{name}: `") and caught.value.remedy
            assert caught.value.message.isprintable()
        assert read_variables(Server, runner(tmp_path, GITHUB_API_URL="http://127.0.0.1:9/v3"))
