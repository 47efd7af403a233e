"""The self-test on a real training: every fault that applies is caught where it was put in, and a
broken comparison is caught by it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from repro_gate.cli import main
from repro_gate.compare import traces
from tests.support.gates import LOOP, ROOT, call, environment, training

pytest.importorskip("torch")
Done = subprocess.CompletedProcess[str]


def selftest(example: str, folder: Path, *arguments: str) -> tuple[Any, Done]:
    """What the self-test of an example writes and says; every fault must have been caught."""
    out = folder / "selftest.json"
    done = call("selftest", ROOT / "examples" / example, "--json", out, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(out.read_text(encoding="ascii")), done


@pytest.mark.slow
def test_every_fault_is_caught_in_the_quickstart_where_it_was_put_in(tmp_path: Path) -> None:
    document, done = selftest("quickstart", tmp_path)
    faults = {item["fault"]: item for item in document["faults"]}
    caught = ("weight", "optimizer", "buffer", "generator", "race", "flag", "checkpoint")
    assert {name: item["outcome"] for name, item in faults.items()} == {
        **dict.fromkeys(caught, "caught"),
        "batch": "not applicable",  # it has no DataLoader
    }
    told = (document["schema"], document["outcome"], document["seed"])
    assert told == ("repro-gate/selftest/v1", "caught", 42)
    for name in ("weight", "optimizer", "buffer", "race"):
        put, found = faults[name]["put"], faults[name]["found"]
        assert put == {key: found[key] for key in put} and put["step"] == 3
        assert faults[name]["reasons"] == ["determinism/diverged"]
    assert faults["flag"]["reasons"] == ["random-state/flags"]
    assert "train.py:" in faults["flag"]["why"]
    assert faults["checkpoint"]["found"]["name"].startswith("out/losses.csv: ")
    assert f"parameter {faults['weight']['put']['name']}" in done.stdout
    assert "run 1 of 2: clean-1, 6 steps" in done.stderr.splitlines()[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("example", "fault", "process"), [("plain", "batch", "main"), ("torchrun", "weight", "rank0")]
)
def test_what_the_quickstart_lacks_is_caught_in_others(
    example: str, fault: str, process: str, tmp_path: Path
) -> None:
    """A DataLoader, several processes; a checkpoint that only a whole run writes: tests/gate."""
    document, _ = selftest(example, tmp_path, "--quiet", "--only", fault)
    (row,) = document["faults"]
    assert (row["outcome"], row["found"]["process"]) == ("caught", process)


def test_a_blind_comparison_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", environment()["PATH"])
    monkeypatch.setattr(traces, "_divergences", lambda *_: [])
    out, without_torch = tmp_path / "f.json", str(training(tmp_path / "code", LOOP))
    arguments = ["--quiet", "--only", "generator", "--json", str(out)]
    assert main(["selftest", without_torch, *arguments]) == 1
    assert json.loads(out.read_text())["outcome"] == "not caught"
