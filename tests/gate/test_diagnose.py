"""Claims about the diagnosis of a gate run: a divergence is explained in the report, what may
differ is not, and a pass pays nothing."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from repro_gate.diagnosis.model import Diagnosis, ShownUse
from repro_gate.gate.diagnose import _excerpt, blamed_lines, plain_seconds
from repro_gate.trace.fields import Location
from tests.support.gates import LOOP, Gated, gate, training, with_line

_SPEC = (
    "version: 1\ntrain: {{run: python train.py, steps: 4, timeout: 2m}}\ncost: {{measure: "
    "false}}\n{more}\n"
)
# what is trained is the same
_LOSS = LOOP.replace(
    'record("loss", loss)', "record('loss', loss + __import__('os').getpid() * 1e-9)"
)
_FAULT = with_line("x += int.from_bytes(__import__('os').urandom(4), 'big') * 1e-12")


def _explained(
    folder: Path, source: str, more: str, *options: object
) -> tuple[Gated, tuple[object, ...]]:
    """What the gate says of this training, and what its diagnosis names."""
    code = training(folder / "code", source, _SPEC.format(more=more))
    done = gate(code, *options, out=folder)
    found = done.report["diagnosis"] or {}
    names = ("cause", "factor", "file", "line", "confirmed")
    return done, tuple(found.get(name) for name in names)


def test_a_divergence_is_explained_in_report_comment_and_terminal(tmp_path: Path) -> None:
    comment = tmp_path / "comment.md"
    done, named = _explained(tmp_path, _FAULT, "diagnosis: {runs: 8}", "--markdown", comment)
    found = done.report["diagnosis"]
    assert done.exit_code == 1 and "determinism/diverged" in done.reason_ids
    assert named == ("unseeded-rng", "entropy", "train.py", 8, True)
    assert [number for number, _ in found["excerpt"]] == [6, 7, 8, 9, 10]
    assert "urandom" in found["excerpt"][2][1]
    assert (found["uses"][0]["line"], found["uses"][0]["differs"]) == (8, True)
    assert 2 <= found["runs"] <= 8 and found["seconds"] > 0
    assert "(unseeded-rng)" in comment.read_text().splitlines()[0]
    assert "Confirmed: with that draw held fixed" in done.stdout
    names = [run["name"] for run in done.report["runs"]]
    assert not [name for name in names if name.startswith("diagnosis")]


def test_a_plain_run_took_so_long_up_to_a_step() -> None:
    def took(seconds: float, *threads: list[float]) -> Any:
        marks = [[SimpleNamespace(ms=ms, probe_ms=0.0) for ms in steps] for steps in threads]
        traces = [SimpleNamespace(steps=steps) for steps in marks]
        return SimpleNamespace(traces=traces, ended=SimpleNamespace(seconds=seconds))

    slowly, quickly = took(100.0, [1e3] * 90, [2e3] * 45), took(3.0, [10.0])
    assert plain_seconds([slowly, quickly]) == 100.0 and plain_seconds([]) == 0.0
    assert plain_seconds([slowly, quickly], 5) == 100.0 - 80.0  # of the slower thread
    assert plain_seconds([quickly], 5) == 3.0


def test_the_lines_that_draw_are_blamed_and_shown_from_a_cell_too(tmp_path: Path) -> None:
    for factor, confirmed, lines in (
        ("entropy", True, {Location("a.py", 3): "urandom()", Location("b.py", 5): "uuid4()"}),
        ("clock", True, {}),  # another cause is proven, so no draw is to blame
        ("clock", False, None),
    ):
        other = ShownUse(factor=factor, call="uuid4()", file="b.py", line=5)
        found = Diagnosis(
            cause="unseeded-rng", factor=factor, message="", call="urandom()", file="a.py", line=3,
            confirmed=confirmed, one_of=(other,),
        )  # fmt: skip
        assert blamed_lines(found) == lines
        assert blamed_lines(None) is None
    cells = [{"cell_type": "code", "source": source} for source in ("x = 1", ["y = 2\n", "draw()"])]
    (tmp_path / "a.ipynb").write_text(json.dumps({"cells": cells}))
    (tmp_path / "b.ipynb").write_text("y = 2")
    assert _excerpt(tmp_path, "a.ipynb#cell 2", 2) == ((1, "y = 2"), (2, "draw()"))
    assert _excerpt(tmp_path, "a.ipynb#cell 1", 2) == ()
    for place in ("a.ipynb#cell 3", "b.ipynb#cell 1", "c.ipynb#cell 1", "../a.ipynb#cell 1"):
        assert _excerpt(tmp_path, place, 1) == ()


@pytest.mark.parametrize(
    ("source", "more", "verdict"),
    [
        (_FAULT, "diagnosis: false", "fail"),
        (with_line("pass"), "diagnosis: {}", "pass"),
        (_LOSS, "diagnosis: {}\ndeterminism: {compare: {loss: 1.0, weights: 1.0}}", "pass"),
    ],
    ids=["switched off", "identical", "within the tolerance"],
)
def test_no_run_is_made_in_vain(source: str, more: str, verdict: str, tmp_path: Path) -> None:
    done, _ = _explained(tmp_path, source, more)
    assert (done.report["verdict"], done.report["diagnosis"]) == (verdict, None)
    assert "diagnosis:" not in done.stderr and "Confirmed" not in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reads", "tail", "cause"),
    [
        ("open(PLACE).read()) if os.path.exists(PLACE) else 0.0", "open(PLACE, 'w').write('1')", "leftover-state"),
        ("subprocess.check_output('cat /proc/uptime', shell=True).split()[0])", "", "external-input"),
        ("subprocess.check_output(['date', '+%N']))", "", "wall-clock"),
    ],
    ids=["leftover", "command", "date"],
)  # fmt: skip
def test_what_lies_outside_is_explained(reads: str, tail: str, cause: str, tmp_path: Path) -> None:
    place = tmp_path / "outside.txt"
    source = f"import os, subprocess\nPLACE = {str(place)!r}\ndrift = float({reads}\n"
    source += with_line(f"x += 1e-3 * drift; {tail}")
    done, named = _explained(tmp_path, source, "diagnosis: {runs: 8}")
    # not confirmed: no run can give back what came in
    assert (named[0], *named[2:]) == (cause, "train.py", 3, False), done.stdout
    assert done.report["diagnosis"]["observed"]
    assert not place.exists() or place.read_text() == "1"


@pytest.mark.slow
def test_an_address_is_explained_by_the_first_line_whose_values_differ(tmp_path: Path) -> None:
    """Neither `id()` nor `hash()` is called: C tells where the object lies, as the order of a set
    does."""
    source = with_line("place = object.__hash__(random); x += place % 1_000_003 * 1e-6")
    done, named = _explained(tmp_path, source, "diagnosis: {runs: 12}")
    assert named == ("process-identity", "addresses", "train.py", 8, True), done.stdout
    assert done.report["diagnosis"]["remedy"]


GYM = """
import os, random, time, uuid
SEED, NAME, BEGAN = int.from_bytes(os.urandom(4), "big"), uuid.uuid4().hex, time.time()  # while it is imported
def reset(seed=None):
    return random.Random(seed).random()
def log():
    return uuid.uuid4().hex, time.time()
"""


def _with_gym(folder: Path, line: str, runs: int = 12) -> tuple[Gated, tuple[object, ...]]:
    """Nine lines that begin with imports of a library whose import draws, and one of which asks
    that library."""
    library = folder / "lib" / "site-packages"
    (library / "gym").mkdir(parents=True)
    for name in ("__init__", "a", "b", "c"):
        (library / "gym" / f"{name}.py").write_text(GYM)
    source = f"import sys; sys.path.append({str(library)!r})\nimport gym\nimport gym.a, gym.b\n"
    source += "from gym import (\n    c,\n)\n" + with_line(line)
    pages = ("--markdown", folder / "comment.md", "--html", folder / "page.html")
    return _explained(folder, source, f"diagnosis: {{runs: {runs}}}", *pages)


@pytest.mark.slow
def test_a_call_is_told_and_not_the_import_before_it(tmp_path: Path) -> None:
    done, named = _with_gym(tmp_path, "x += gym.reset()")
    found, check = done.report["diagnosis"], done.check("random-state/os-entropy")
    assert named == ("unseeded-rng", "entropy", "train.py", 14, True), done.stdout
    assert found["also"] == [] and found["runs"] <= 8
    assert (check["status"], check["evidence"]) == ("fail", ["train.py:14: gym.reset()"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("x += gym.reset(7); gym.log()", None),
        ("x += c.reset(number)", None),
        ("gym.reset(); x += __import__('time').time() % 1", "wall-clock"),
    ],
)
def test_draws_that_reach_no_number_are_fine(line: str, cause: str | None, tmp_path: Path) -> None:
    done, named = _with_gym(tmp_path, line)
    assert (done.exit_code, named[0]) == (int(cause is not None), cause), done.stdout + done.stderr
    assert done.check("random-state/os-entropy")["status"] == "pass"


def test_if_the_runs_end_too_soon_all_lines_are_named(tmp_path: Path) -> None:
    calls = "\n    ".join(["gym.reset()"] * 6) + "\n    x += c.reset()"
    done, named = _with_gym(tmp_path, calls, runs=8)
    assert (named[0], *named[3:]) == ("unseeded-rng", 14, False), done.stdout + done.stderr
    lines = done.report["diagnosis"]["one_of"]
    assert len(lines) == 7 and (lines[6]["line"], lines[6]["call"]) == (20, "c.reset()")
    pages = [(tmp_path / name).read_text() for name in ("comment.md", "page.html")]
    for text in (done.stdout, *pages):
        assert f"One of these {len(lines)} lines" in " ".join(text.split())
        assert "Confirmed" not in text
