"""Claims about the diagnosis of a gate run: a divergence is explained in the report, what may
differ is not, and a pass pays nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from repro_gate.gate.diagnose import _excerpt
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


def _training(folder: Path, source: str, more: str) -> Path:
    return training(folder, source, _SPEC.format(more=more))


def test_a_divergence_is_explained_in_report_comment_and_terminal(tmp_path: Path) -> None:
    comment = tmp_path / "comment.md"
    done = gate(
        _training(tmp_path / "code", _FAULT, "diagnosis: {runs: 8}"),
        "--markdown",
        comment,
        out=tmp_path,
    )
    found = done.report["diagnosis"]
    assert done.exit_code == 1 and "determinism/diverged" in done.reason_ids
    assert (found["cause"], found["factor"], found["file"], found["line"]) == (
        "unseeded-rng",
        "entropy",
        "train.py",
        8,
    )
    assert [number for number, _ in found["excerpt"]] == [6, 7, 8, 9, 10] and "urandom" in found[
        "excerpt"
    ][2][1]
    assert (found["uses"][0]["line"], found["uses"][0]["differs"]) == (8, True)
    assert found["confirmed"] and 2 <= found["runs"] <= 8 and found["seconds"] > 0
    assert (
        "(unseeded-rng)" in comment.read_text().splitlines()[0]
        and "Confirmed: with that draw held fixed" in done.stdout
    )
    assert all(
        run["arm"] != "pinned" and not run["name"].startswith("diagnosis")
        for run in done.report["runs"]
    )


def test_the_excerpt_of_a_notebooks_line_is_the_text_of_its_cell(tmp_path: Path) -> None:
    cells = [{"cell_type": "code", "source": source} for source in ("x = 1", ["y = 2\n", "draw()"])]
    (tmp_path / "a.ipynb").write_text(json.dumps({"cells": cells}))
    (tmp_path / "b.ipynb").write_text("y = 2")
    assert _excerpt(tmp_path, "a.ipynb#cell 2", 2) == ((1, "y = 2"), (2, "draw()"))
    odd = [
        ("a.ipynb#cell 3", 1),
        ("a.ipynb#cell 1", 2),
        ("b.ipynb#cell 1", 1),
        ("c.ipynb#cell 1", 1),
        ("../a.ipynb#cell 1", 1),
    ]
    assert [_excerpt(tmp_path, file, line) for file, line in odd] == [()] * len(odd)


@pytest.mark.parametrize(
    ("source", "more", "verdict"),
    [
        (_FAULT, "diagnosis: false", "fail"),
        (with_line("pass"), "diagnosis: {}", "pass"),
        (_LOSS, "diagnosis: {}\ndeterminism: {compare: {loss: 1.0, weights: 1.0}}", "pass"),
    ],
    ids=["switched off", "identical", "within the tolerance"],
)
def test_where_there_is_nothing_to_explain_no_run_is_made_for_it(
    source: str, more: str, verdict: str, tmp_path: Path
) -> None:
    done = gate(_training(tmp_path / "code", source, more), out=tmp_path)
    assert (done.report["verdict"], done.report["diagnosis"]) == (verdict, None)
    assert "diagnosis:" not in done.stderr and "Confirmed" not in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "tail", "cause"),
    [
        (
            "drift = float(open(PLACE).read()) if os.path.exists(PLACE) else 0.0",
            "open(PLACE, 'w').write('1')",
            "leftover-state",
        ),
        (
            "drift = float(subprocess.check_output('cat /proc/uptime', shell=True).split()[0])",
            "",
            "external-input",
        ),
        ("drift = float(subprocess.check_output(['date', '+%N']))", "", "wall-clock"),
    ],
    ids=["leftover", "command", "date"],
)
def test_what_lies_outside_is_explained_with_its_line(
    line: str, tail: str, cause: str, tmp_path: Path
) -> None:
    place = tmp_path / "outside.txt"
    source = f"import os, subprocess\nPLACE = {str(place)!r}\n{line}\n" + with_line(
        f"x += 1e-3 * drift; {tail}"
    )
    done = gate(_training(tmp_path / "code", source, "diagnosis: {runs: 8}"), out=tmp_path)
    found = done.report["diagnosis"]
    place_named = (found["cause"], found["file"], found["line"])
    assert place_named == (cause, "train.py", 3), found
    assert found["observed"] and not found["confirmed"], "no run can give back what came in"
    assert not place.exists() or place.read_text() == "1"


@pytest.mark.slow
def test_an_address_that_no_use_of_a_factor_names_is_explained_by_the_first_line_whose_values_differ(
    tmp_path: Path,
) -> None:
    """Neither `id()` nor `hash()` is called: C tells where the object lies, as the order of a set
    does."""
    source = with_line("place = object.__hash__(random); x += place % 1_000_003 * 1e-6")
    done = gate(_training(tmp_path / "code", source, "diagnosis: {runs: 12}"), out=tmp_path)
    found = done.report["diagnosis"]
    assert (found["cause"], found["factor"], found["file"], found["line"]) == (
        "process-identity",
        "addresses",
        "train.py",
        8,
    ), found
    assert (
        found["confirmed"]
        and found["remedy"]
        and "with the address layout held fixed" in " ".join(done.stdout.split())
    )


GYM = """
import os, random, time, uuid
SEED, NAME, BEGAN = int.from_bytes(os.urandom(4), "big"), uuid.uuid4().hex, time.time()  # while it is imported
def reset(seed=None):
    return random.Random(seed).random()
def log():
    return uuid.uuid4().hex, time.time()
"""


def _with_gym(folder: Path, line: str, runs: int = 12) -> Gated:
    """Nine lines that begin with imports of a library whose import draws, and one of which asks
    that library."""
    library = folder / "lib" / "site-packages"
    (library / "gym").mkdir(parents=True)
    for name in ("__init__", "a", "b", "c"):
        (library / "gym" / f"{name}.py").write_text(GYM)
    source = (
        f"import sys; sys.path.append({str(library)!r})\nimport gym\nimport gym.a, gym.b\nfrom gym "
        "import (\n    c,\n)\n"
    )
    code = training(
        folder / "code", source + with_line(line), _SPEC.format(more=f"diagnosis: {{runs: {runs}}}")
    )
    return gate(
        code, "--markdown", folder / "comment.md", "--html", folder / "page.html", out=folder
    )


@pytest.mark.slow
def test_a_call_is_told_and_not_the_import_before_it_and_the_check_names_the_same_line(
    tmp_path: Path,
) -> None:
    done = _with_gym(tmp_path, "x += gym.reset()")
    found, check = done.report["diagnosis"], done.check("random-state/os-entropy")
    assert (found["cause"], found["file"], found["line"], found["confirmed"]) == (
        "unseeded-rng",
        "train.py",
        14,
        True,
    ), found
    assert (
        found["also"] == []
        and found["runs"] <= 8
        and "because of train.py:14 (unseeded-rng)" in done.stdout
    )
    assert (check["status"], check["evidence"]) == ("fail", ["train.py:14: random.Random() by gym"])


@pytest.mark.slow
@pytest.mark.parametrize("line", ["x += gym.reset(7); gym.log()", "x += c.reset(number)"])
def test_a_library_whose_draws_reach_no_number_raises_no_alarm(line: str, tmp_path: Path) -> None:
    done = _with_gym(tmp_path, line)
    assert done.exit_code == 0 and done.check("random-state/os-entropy")["status"] == "pass", (
        done.stdout + done.stderr
    )


@pytest.mark.slow
def test_a_draw_of_a_library_that_is_not_the_cause_is_not_told_by_the_check(tmp_path: Path) -> None:
    done = _with_gym(tmp_path, "gym.reset(); x += __import__('time').time() % 1")
    assert (
        done.report["diagnosis"]["cause"] == "wall-clock"
        and done.check("random-state/os-entropy")["status"] == "pass"
    ), done.stdout


def test_where_the_runs_end_before_it_is_known_all_lines_are_named_in_report_comment_and_terminal(
    tmp_path: Path,
) -> None:
    done = _with_gym(tmp_path, "\n    ".join(["gym.reset()"] * 6) + "\n    x += c.reset()", runs=8)
    found = done.report["diagnosis"]
    assert (found["cause"], found["confirmed"], found["line"]) == ("unseeded-rng", False, 14), (
        done.stdout + done.stderr
    )
    assert (found["one_of"][6]["line"], found["one_of"][6]["call"]) == (20, "c.reset()")
    assert all(item["call"].startswith(("import ", "from ")) for item in found["one_of"][7:])
    for text in (
        done.stdout,
        (tmp_path / "comment.md").read_text(),
        (tmp_path / "page.html").read_text(),
    ):
        assert (
            f"One of these {len(found['one_of'])} lines" in " ".join(text.split())
            and "Confirmed" not in text
        )
