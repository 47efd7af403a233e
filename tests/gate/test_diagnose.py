"""Claims about the diagnosis of a gate run: a divergence is explained in the report, what may differ is not, and a pass pays nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.gates import LOOP, gate, training, with_line

_SPEC = "version: 1\ntrain: {{run: python train.py, steps: 4, timeout: 2m}}\ncost: {{measure: false}}\n{more}\n"
_LOSS = LOOP.replace('record("loss", loss)', "record('loss', loss + __import__('os').getpid() * 1e-9)")  # what is trained is the same
_FAULT = with_line("x += int.from_bytes(__import__('os').urandom(4), 'big') * 1e-12")


def _training(folder: Path, source: str, more: str) -> Path:
    return training(folder, source, _SPEC.format(more=more))


def test_a_divergence_is_explained_in_report_comment_and_terminal(tmp_path: Path) -> None:
    comment = tmp_path / "comment.md"
    done = gate(_training(tmp_path / "code", _FAULT, "diagnosis: {runs: 8}"), "--markdown", comment, out=tmp_path)
    found = done.report["diagnosis"]
    assert done.exit_code == 1 and "determinism/diverged" in done.reason_ids
    assert (found["cause"], found["factor"], found["file"], found["line"]) == ("unseeded-rng", "entropy", "train.py", 8)
    assert [number for number, _ in found["excerpt"]] == [6, 7, 8, 9, 10] and "urandom" in found["excerpt"][2][1]
    assert (found["uses"][0]["line"], found["uses"][0]["differs"]) == (8, True)
    assert found["confirmed"] and 2 <= found["runs"] <= 8 and found["seconds"] > 0
    assert "(unseeded-rng)" in comment.read_text().splitlines()[0] and "Confirmed: with that draw held fixed" in done.stdout
    assert all(run["arm"] != "pinned" and not run["name"].startswith("diagnosis") for run in done.report["runs"])


@pytest.mark.parametrize(
    ("source", "more", "verdict"),
    [
        (_FAULT, "diagnosis: false", "fail"),
        (with_line("pass"), "diagnosis: {}", "pass"),
        (_LOSS, "diagnosis: {}\ndeterminism: {compare: {loss: 1.0, weights: 1.0}}", "pass"),
    ],
    ids=["switched off", "identical", "within the tolerance"],
)
def test_where_there_is_nothing_to_explain_no_run_is_made_for_it(source: str, more: str, verdict: str, tmp_path: Path) -> None:
    done = gate(_training(tmp_path / "code", source, more), out=tmp_path)
    assert (done.report["verdict"], done.report["diagnosis"]) == (verdict, None)
    assert "diagnosis:" not in done.stderr and "Confirmed" not in done.stdout


@pytest.mark.parametrize(
    ("line", "tail", "cause"),
    [
        ("drift = float(open(PLACE).read()) if os.path.exists(PLACE) else 0.0", "open(PLACE, 'w').write('1')", "leftover-state"),
        ("drift = float(subprocess.check_output('cat /proc/uptime', shell=True).split()[0])", "", "external-input"),
        ("drift = float(subprocess.check_output(['date', '+%N']))", "", "wall-clock"),
    ],
    ids=["leftover", "command", "date"],
)
def test_what_lies_outside_is_explained_with_its_line(line: str, tail: str, cause: str, tmp_path: Path) -> None:
    place = tmp_path / "outside.txt"
    source = f"import os, subprocess\nPLACE = {str(place)!r}\n{line}\n" + with_line(f"x += 1e-3 * drift; {tail}")
    done = gate(_training(tmp_path / "code", source, "diagnosis: {runs: 8}"), out=tmp_path)
    found = done.report["diagnosis"]
    assert (found["cause"], found["file"], found["line"], found["confirmed"]) == (cause, "train.py", 3, True), found
    assert not place.exists() or place.read_text() == "1"


def test_an_address_that_no_use_of_a_factor_names_is_explained_by_the_first_line_whose_values_differ(tmp_path: Path) -> None:
    """Neither `id()` nor `hash()` is called: C tells where the object lies, as the order of a set does."""
    source = with_line("place = object.__hash__(random); x += place % 1_000_003 * 1e-6")
    done = gate(_training(tmp_path / "code", source, "diagnosis: {runs: 12}"), out=tmp_path)
    found = done.report["diagnosis"]
    assert (found["cause"], found["factor"], found["file"], found["line"]) == ("process-identity", "addresses", "train.py", 8), found
    assert found["confirmed"] and found["remedy"] and "with the address layout held fixed" in " ".join(done.stdout.split())
