"""Claims about `benchmarks/`: each measurement runs with tiny settings and gives figures of the
right form. Never a claim about a time."""

from __future__ import annotations

import json
import math
import runpy
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import (
    alternating,
    arms,
    cost_coverage,
    data_hashing,
    digest_speed,
    fleet,
    gate_overhead,
    growth,
    probe_memory,
    run,
    step_overhead,
)
from benchmarks.figure import Figure, show, to_json, write_results


@pytest.fixture(autouse=True)
def sleeping_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenMP threads that spin while they wait, on a machine that tests keep busy, take ten times
    as long."""
    monkeypatch.setitem(arms.OUTER, "OMP_WAIT_POLICY", "passive")


def well_formed(figures: list[Figure], rounds: int) -> None:
    assert figures
    assert len({figure.name for figure in figures}) == len(figures)
    for figure in figures:
        assert len(figure.values) == rounds
        assert all(math.isfinite(value) for value in figure.values)
        assert figure.unit in ("ratio", "MiB", "GB/s", "ms", "s")
        assert figure.unit == "MiB" or figure.median > 0
        json.dumps(to_json(figure), allow_nan=False)


@pytest.mark.slow
@pytest.mark.e2e
def test_the_gate_is_compared_with_its_bare_runs() -> None:
    figures = gate_overhead.measure(gate_overhead.QUICK)
    well_formed(figures[:1], gate_overhead.QUICK.rounds)
    well_formed(figures[1:], 2 * gate_overhead.QUICK.rounds)
    assert [figure.goal for figure in figures] == [gate_overhead.GOAL, 0.1, 0.6]


@pytest.mark.slow
@pytest.mark.e2e
def test_a_known_cost_is_measured_by_a_gate_run() -> None:
    [figure] = alternating.measure(alternating.QUICK)
    json.dumps(to_json(figure), allow_nan=False)
    assert figure.beside["why"] == [""] or figure.beside["others"] != [None]


@pytest.mark.slow
@pytest.mark.e2e
def test_step_times_and_memory_are_taken_with_and_without_the_probe() -> None:
    figures = step_overhead.measure(step_overhead.QUICK)
    well_formed(figures, step_overhead.QUICK.rounds)
    timed = ("whole step", "step and probe", "training time as reported")
    names = [f"{what}, transformer, 200 tensors" for what in timed]
    assert [figure.name for figure in figures] == names
    figures = probe_memory.measure(probe_memory.QUICK)
    well_formed(figures, probe_memory.QUICK.rounds)
    assert [figure.goal for figure in figures] == [18, 18, None, None]
    assert all(figure.median > 0 for figure in figures if figure.goal is None)


@pytest.mark.parametrize("name", ["", *step_overhead.PEERS])
def test_each_peer_records_a_step_and_changes_nothing(name: str) -> None:
    torch = pytest.importorskip("torch")
    workload = runpy.run_path(str(Path(run.__file__).parent / "workloads" / "train.py"))
    weights = []
    for recorded in (name, ""):
        torch.manual_seed(0)
        model, optimizer, loss_of = workload["many"]("cpu", 0, 3)
        around, after = workload["peer"](recorded, model, optimizer)
        for _ in range(2):
            with around():
                optimizer.zero_grad()
                loss_of().backward()
                optimizer.step()
            after()
        weights.append(torch.cat(list(model)))
    assert torch.equal(*weights)


def test_growth_is_fitted_for_the_probe_and_for_the_gate() -> None:
    figures, rounds = growth.measure(growth.QUICK), growth.QUICK.rounds
    assert [figure.unit for figure in figures] == ["exponent"] * 5
    assert all(len(item.values) == rounds and len(item.beside["ms"]) == 2 for item in figures)
    figures = cost_coverage.measure(cost_coverage.QUICK)
    assert len(figures) == len(cost_coverage.SCENARIOS)
    assert all(figure.median > 0.8 and figure.beside["median_width_pct"] > 0 for figure in figures)
    figures = digest_speed.measure(digest_speed.QUICK)
    well_formed(figures, digest_speed.QUICK.rounds)
    peers = [figure.name.partition(" over ")[2] for figure in figures]
    assert peers.count("clone") == peers.count("hashlib.sha256") == len(digest_speed.QUICK.sizes)


@pytest.mark.skipif(
    shutil.which("sha256sum") is None or sys.platform != "linux", reason="GNU tools and /proc"
)
def test_declared_data_is_hashed_beside_sha256sum_and_its_memory_taken() -> None:
    figures = data_hashing.measure(data_hashing.QUICK)
    well_formed([figure for figure in figures if figure.unit == "ratio"], data_hashing.QUICK.rounds)
    well_formed([figure for figure in figures if figure.unit == "MiB"], 1)
    assert [figure.goal for figure in figures if figure.goal is not None] == [1.25, 1.25, 64, 64]
    assert all(figure.median > 5 for figure in figures if figure.unit == "MiB")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_many_reports_are_compared_and_the_memory_taken() -> None:
    figures = fleet.measure(fleet.QUICK)
    well_formed(figures, fleet.QUICK.rounds)
    assert [figure.unit for figure in figures] == ["s", "MiB"]
    assert min(figures[0].beside["many_mib"]) > 5


def test_every_measurement_is_run_by_the_one_command_and_the_page_shows_the_results_file() -> None:
    others = {
        "__init__",
        "run",
        "figure",
        "arms",
        "gpu",
        "action",
        "mkl_race",
        "effect",
        "roundings",
        "soak",
    }
    assert set(run.CPU) == {path.stem for path in Path(run.__file__).parent.glob("*.py")} - others
    page, results = (path.read_text("utf-8") for path in (run.PAGE, run.RESULTS / "cpu.json"))
    assert run.with_results(page, json.loads(results)) == page


def test_a_figure_is_shown_and_written_with_its_spread_and_goal(tmp_path: Path) -> None:
    figure = Figure("step", "ratio", (1.0, 1.2, 1.1), 1.05, {"bare_ms": [9.87654321]})
    for text in ("1.100 ratio", "(1.000 … 1.200, n=3)", "goal ≤ 1.05: NOT met"):
        assert text in show(figure)
    assert "goal ≥ 1.05: met" in show(replace(figure, at_least=True))
    path = tmp_path / "results" / "cpu.json"
    write_results(path, True, {"cpu": "x"}, {"step_overhead": [figure]})
    written = json.loads(path.read_text(encoding="utf-8"))
    assert written["machine"] == {"cpu": "x"}
    [found] = written["figures"]["step_overhead"]
    assert found["beside"] == {"bare_ms": [9.87654]} and found["values"] == [1.0, 1.2, 1.1]
    assert (found["median"], found["min"], found["max"]) == (1.1, 1.0, 1.2)
    assert (found["goal"], found["at_least"], found["met"]) == (1.05, False, False)
