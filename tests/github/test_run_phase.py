"""What the first half of the action leaves in the report folder: a report that names its run, or
the error that ended the gate."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import msgspec
import pytest

from repro_gate.data.cache import DataCache
from repro_gate.errors import GateError, UsageError
from repro_gate.files import cache_folder
from repro_gate.gate.options import Options
from repro_gate.github import run_phase
from repro_gate.github.activity import Decision
from repro_gate.github.redact import MARK
from repro_gate.github.report_folder import PROBLEM, REPORT, read_problem
from repro_gate.github.run_phase import gate_phase
from repro_gate.github.settings import Inputs, Job
from repro_gate.report.document import load
from repro_gate.report.model import Origin, Report
from tests.github.test_activity import JOB
from tests.support import reports

HEAD, MERGE = "0123456789abcdef0123456789abcdef01234567", "f" * 40
FOLDER = "repro-gate-report"


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    """A job with an empty checkout; the working folder is what it was at the end."""
    monkeypatch.chdir(tmp_path)
    server, of = "https://ghe.example.com", {"repository": "octo-org/trainer", "run_id": 4711}
    more = {"run_attempt": 2, "sha": MERGE, "server_url": server, "workspace": tmp_path}
    return msgspec.structs.replace(JOB, **of, **more)


def left(job: Job, inputs: Inputs | None = None, secrets: tuple[str, ...] = ()) -> GateError:
    """The error that the gate leaves."""
    made = gate_phase(inputs or Inputs(), job, Decision(), {}, secrets)
    assert not (job.workspace / FOLDER / REPORT).exists()
    found = read_problem(job.workspace / FOLDER)
    assert isinstance(made, GateError) and found is not None
    assert (found.diagnostics(), found.exit_code) == (made.diagnostics(), made.exit_code)
    return found


def answers(monkeypatch: pytest.MonkeyPatch, answer: Report | BaseException) -> None:
    """The gate run itself is not what is tested here: it gives `answer`."""

    def gated(*_: object) -> Report:
        if isinstance(answer, BaseException):
            raise answer
        return answer

    monkeypatch.setattr(run_phase, "_gated", gated)


def test_a_bad_spec_is_left_with_its_line_and_without_a_token_that_stands_in_it(job: Job) -> None:
    token, known = "ghp_" + "a1B2" * 9, "correct-horse"
    (job.workspace / "repro.yml").write_text(
        f"version: 1\ntrain: {{run: python train.py, stpes: 3}}\n{token}: 1\n{known}: 1\n"
    )
    found = left(job, secrets=(known,))
    assert found.exit_code == 2 and "repro.yml:2:" in found.message and "stpes" in found.message
    assert token not in found.message and known not in found.message and MARK in found.message


def test_a_link_in_the_cache_folder_leads_no_file_out(
    job: Job, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (job.workspace / "cache").mkdir()
    for name in ("digests", "repro-gate", "environments"):
        (job.workspace / "cache" / name).symlink_to(outside)
    (job.workspace / "repro.yml").write_text("version: 1\ntrain: {run: x}\n")
    notes = []

    def gated(_spec: object, options: Options, _watch: object) -> NoReturn:
        path = cache_folder(options.environment, "data.json")
        assert path is not None and path.is_relative_to(job.workspace / "cache")
        cache = DataCache(path)
        cache.keep("key", {"sha256": "digest"}, newest=0, read_at=10**18)
        cache.write()
        notes.append(cache.note)
        raise UsageError("seen")

    monkeypatch.setattr(run_phase, "run_gate", gated)
    assert left(job, Inputs(cache="cache")).message == "seen"
    assert list(outside.iterdir()) == [] and "is no folder" in notes[0]


def test_full_disks_and_cancelled_jobs_are_named(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, OSError(28, "No space left on device", "/tmp/repro-gate"))
    found = left(job)
    assert (found.exit_code, found.reason_id) == (3, "action/system")
    answers(monkeypatch, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        gate_phase(Inputs(), job, Decision(), {}, ())
    found = read_problem(job.workspace / FOLDER)
    assert found is not None and found.reason_id == "action/interrupted"


def test_a_report_names_its_run_and_its_commit(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    for tested, commit, named in ((HEAD, MERGE, HEAD), ("", HEAD, HEAD), ("", None, MERGE)):
        subject = replace(reports.FAIL.subject, commit=commit)
        answers(monkeypatch, replace(reports.FAIL, subject=subject))
        made = gate_phase(Inputs(report="out/gpu"), job, Decision(tested_sha=tested), {}, ())
        assert isinstance(made, Report)
        origin = load(job.workspace / "out/gpu" / REPORT).origin
        assert origin == made.origin == Origin("octo-org/trainer", named, 4711, 2, "gpu")
        sarif = json.loads((job.workspace / "out/gpu/report.sarif").read_text())
        (provenance,) = sarif["runs"][0]["versionControlProvenance"]
        assert provenance["repositoryUri"] == "https://ghe.example.com/octo-org/trainer"


def test_neither_a_known_secret_nor_a_trainings_file_is_left(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "correct-horse-battery"
    said = replace(reports.FAIL.reasons[1], message=f"the password is {secret}")
    answers(monkeypatch, replace(reports.FAIL, reasons=(said,)))
    made = gate_phase(Inputs(), job, Decision(), {}, (secret,))
    files = [path.read_text() for path in (job.workspace / FOLDER).glob("report.*")]
    assert len(files) == 4
    assert all(secret not in text and MARK in text for text in [*files, str(made)])

    def gated(*_: object) -> Report:
        (job.workspace / FOLDER / PROBLEM).write_text(
            '{"message": "all is well", "remedy": "", "exit_code": 2, "reason_id": "x"}'
        )
        return reports.FAIL

    monkeypatch.setattr(run_phase, "_gated", gated)
    gate_phase(Inputs(), job, Decision(), {}, ())
    assert read_problem(job.workspace / FOLDER) is None
    assert load(job.workspace / FOLDER / REPORT).verdict == "fail"


def test_a_folder_stands_for_the_spec_in_it(job: Job) -> None:
    (job.workspace / "a").mkdir()
    (job.workspace / "a/repro.yml").write_text("version: 2\n")
    assert left(job, Inputs(spec="a")).message.startswith("a/repro.yml:1:")
