"""Every example passes, and every broken twin fails where its README says it does. Real training, through the command line."""

from __future__ import annotations

import fnmatch
import math
from pathlib import Path

import pytest

from tests.support.gates import ROOT, gate

EXAMPLES = ROOT / "examples"
# example -> where its broken twin's runs first part: step, kind, pattern of the name, process
BROKEN = {
    "quickstart": (0, "loss", "loss", "main"),
    "plain": (0, "batch", "*", "main"),
    "lightning": (0, "loss", "loss", "main"),
    "transformers": (-1, "parameter", "transformer.*.weight", "main"),
    "torchrun": (3, "gradient", "*", "rank1"),
}


@pytest.mark.parametrize("name", sorted(BROKEN))
def test_an_example_passes(name: str, tmp_path: Path) -> None:
    pytest.importorskip({"lightning": "lightning", "transformers": "transformers"}.get(name, "torch"))
    gated = gate(EXAMPLES / name, out=tmp_path)
    assert gated.exit_code == 0, gated.stdout + gated.stderr
    found = gated.report["determinism"]
    assert found["identical"] and found["differing"] == 0 and found["tensors"] > 10
    assert found["determinism_settings"]["torch.use_deterministic_algorithms"] is True
    assert gated.report["cost"]["ci95"][0] <= gated.report["cost"]["determinism_cost_pct"] <= gated.report["cost"]["ci95"][1]
    assert [run["arm"] for run in gated.report["runs"]] == ["deterministic", "default", "deterministic", "default", "reseeded"]
    assert gated.check("random-state/reseeded")["status"] == "pass"


@pytest.mark.parametrize("name", sorted(BROKEN))
def test_a_broken_twin_fails_where_it_parts(name: str, tmp_path: Path) -> None:
    pytest.importorskip({"lightning": "lightning", "transformers": "transformers"}.get(name, "torch"))
    step, kind, pattern, process = BROKEN[name]
    gated = gate(EXAMPLES / name / "broken", "--set", "cost.measure=false", out=tmp_path)
    assert gated.exit_code == 1, gated.stdout + gated.stderr
    assert "determinism/diverged" in gated.reason_ids
    first = gated.first
    assert (first["step"], first["kind"], first["process"]) == (step, kind, process)
    assert fnmatch.fnmatch(first["name"], pattern)
    assert first["max_abs"] > 0 and first["max_ulp"] > 0
    assert "diverged:" in gated.stderr  # said while the second run was still going
    assert f"--seed 42 --steps {max(step, 0) + 1} --fail-fast" in gated.report["reproduce"]


def test_the_quickstart_drifts_without_the_flags(tmp_path: Path) -> None:
    gated = gate(EXAMPLES / "quickstart", out=tmp_path)
    floor = gated.report["noise_floor"]
    assert not floor["identical"] and floor["first_step"] is not None
    assert floor["loss_gap"] > 0 and floor["weight_l2"] > 0 and math.isfinite(floor["weight_l2"])
