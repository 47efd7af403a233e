"""`repro-gate ops`: which runs it does, which files it compares with, and a real training of which
an operator races."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from repro_gate.commands import ops
from repro_gate.commands.ops import narrowed, ops_command
from repro_gate.compare.operators import OperatorArm, OperatorCall, Operators
from repro_gate.errors import Inconclusive, UsageError
from repro_gate.report.document import ReportError, render
from repro_gate.report.model import Reason
from repro_gate.spec.model import CostBudget, OperatorsBudget, RandomState, Resume, Spec

RACES = """
import torch
torch.manual_seed(0)
torch.set_num_threads(4)
table = torch.nn.Parameter(torch.randn(16))
rows = torch.nn.Parameter(torch.randn(200_000))
optimizer = torch.optim.SGD([table, rows], lr=1e-6)
index = torch.randint(0, 16, (200_000,))
for step in range(8):
    loss = table.index_put((index,), rows, accumulate=True).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
REPEATS = OperatorArm(outcome="repeats", runs=20)


def of(outcome: str) -> Operators:
    arm = OperatorArm(outcome=outcome, runs=20, differing=20)
    call = OperatorCall(operator="aten.put_.default", form="[]", off=arm, on=REPEATS)
    return Operators(calls=(call,))


def options(**more: Any) -> Namespace:
    default = {"spec": "repro.yml", "known": True, "op": [], "compare": None, "seconds": None}
    default |= {"python": None, "overrides": [], "scratch": None, "json": None}
    return Namespace(**{**default, "verbose": False, "quiet": True, **more})


def test_only_the_runs_that_shares_need_are_done() -> None:
    full = Spec(
        path=Path("/repro.yml"),
        random_state=RandomState((1, 2)),
        cost=CostBudget(measure=False),
        resume=Resume(2, "x.pt"),
        operators=OperatorsBudget(5.0),
    )
    spec = narrowed(full)
    assert spec.random_state.seeds == (1,) and spec.cost.measure
    assert not (spec.resume or spec.diagnosis or spec.robustness.vary)
    assert spec.operators == OperatorsBudget(5.0)
    assert narrowed(Spec(path=full.path)).operators == OperatorsBudget(60.0)


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ops, "without_training", lambda *_: of("differs"))


def test_what_was_measured_is_compared_with_an_older_file(
    known: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ops_command(options(json=Path("new.json"))) == 0
    assert "What changed" not in capsys.readouterr().out
    assert json.loads(Path("new.json").read_text())["schema"] == "repro-gate/ops/v2"
    assert ops_command(options(compare=Path("new.json"))) == 0
    assert "no call has another outcome" in capsys.readouterr().out
    # a report that has operators will do
    old = json.loads(render(of("repeats")))
    Path("report.json").write_text(json.dumps({"operators": old, "verdict": "pass"}))
    assert ops_command(options(compare=Path("report.json"))) == 0
    printed = capsys.readouterr().out
    assert "1 newly differs" in printed and "put_ []: differs in 20 of 20" in printed


@pytest.mark.parametrize("text", ["{}", "[]", '{"calls": 1}', '{"calls": [{"off": 1}]}', "x"])
def test_a_file_without_operators_is_refused(known: None, text: str) -> None:
    Path("old.json").write_text(text)
    with pytest.raises(ReportError, match=r"old\.json: "):
        ops_command(options(compare=Path("old.json")))


def test_a_file_of_another_version_is_named(known: None) -> None:
    old = json.loads(render(of("repeats"), schema="repro-gate/ops/v1"))
    Path("old.json").write_text(json.dumps(old))
    with pytest.raises(ReportError, match="its schema is repro-gate/ops/v1, not repro-gate/ops/v2"):
        ops_command(options(compare=Path("old.json")))


@pytest.mark.parametrize("seconds", [0, -1, 3_601])
def test_seconds_have_bounds(known: None, seconds: int) -> None:
    with pytest.raises(UsageError, match="is not from 1 to 3600"):
        ops_command(options(seconds=seconds))
    assert ops_command(options(seconds=3_600)) == 0


@pytest.mark.parametrize("notes", [(), (Reason("ops/none", "no call"),)])
def test_the_reason_is_that_of_the_operators_and_the_heads_spec_is_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, notes: Any
) -> None:
    (tmp_path / "repro.yml").write_text("version: 1\ntrain: {run: python train.py}\n")

    def gate(_: Spec, given: Any, __: Any) -> Any:
        assert given.policy == "head"
        reasons = (Reason("run/crashed", "it crashed"),) if notes else ()
        return SimpleNamespace(operators=None, notes=notes, reasons=reasons)

    monkeypatch.setattr(ops, "run_gate", gate)
    with pytest.raises(Inconclusive, match="no call" if notes else "gave no reason"):
        ops_command(options(spec=str(tmp_path), known=False))


@pytest.mark.slow
def test_an_operator_that_races_is_named_with_its_line(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(RACES)
    run = f"train: {{run: {sys.executable} train.py}}\n"
    (tmp_path / "repro.yml").write_text(f"version: 1\n{run}operators: {{seconds: 20}}\n")
    written = tmp_path / "ops.json"
    assert ops_command(options(spec=str(tmp_path), known=False, json=written)) == 0
    calls = json.loads(written.read_text())["calls"]
    (call,) = (it for it in calls if it["operator"] == "aten.index_put.default")
    assert call["off"]["outcome"] == "differs" and call["on"]["outcome"] == "repeats"
    line = 1 + RACES.splitlines().index(
        "    loss = table.index_put((index,), rows, accumulate=True).square().mean()"
    )
    assert call["lines"] == [{"file": "train.py", "line": line}] and call["calls"] == 1
    clean = [it for it in calls if it is not call and it["off"]["outcome"] == "differs"]
    assert not clean
