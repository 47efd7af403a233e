"""Every example passes, and every broken twin fails where its README says it does. Real training,
through the command line."""

from __future__ import annotations

import fnmatch
import math
from pathlib import Path

import pytest

from repro_gate.trace.notebook import place
from tests.corpus.__main__ import cases
from tests.corpus.ways import projects
from tests.support.gates import ROOT, gate, tiered
from tests.support.mutations import mutations
from tests.test_readme import demo, labels

EXAMPLES = ROOT / "examples"
# example -> where its broken twin's runs first diverge: step, kind, pattern of the name, process
BROKEN = {
    "quickstart": (0, "loss", "loss", "main"),
    "plain": (0, "batch", "*", "main"),
    "lightning": (0, "loss", "loss", "main"),
    "notebook": (0, "loss", "loss", "main"),
    "transformers": (-1, "parameter", "transformer.*.weight", "main"),
    "torchrun": (3, "gradient", "*", "rank1"),
}
# example -> why its broken twin's runs diverge: cause, file and line; of the others `make corpus`
# asks it
CAUSES = {"quickstart": ("unseeded-rng", "train.py", 81)}
NEEDS = {
    "lightning": ("lightning",),
    "transformers": ("transformers",),
    "notebook": ("ipykernel", "nbclient"),
}


def test_the_corpus_fits_its_folders() -> None:
    assert len(cases()) > 100 and len(list(projects())) > 20


def test_every_mutation_fits_the_code() -> None:
    assert len(mutations(ROOT)) == 60


@pytest.mark.parametrize("name", tiered(sorted(BROKEN), ("torchrun",)))
def test_an_example_passes(name: str, tmp_path: Path) -> None:
    """Only the quickstart takes the time of its default runs, without which it drifts, and of those
    in which the flags alternate; `make demo` takes all of its steps, so that `make test` leaves it
    out."""
    for module in NEEDS.get(name, ("torch",)):
        pytest.importorskip(module)
    few = ["cost.measure=false"]
    if name == "quickstart":
        few = ["train.steps=20", "baseline.on-change=fail"]
    gated = gate(EXAMPLES / name, *(part for item in few for part in ("--set", item)), out=tmp_path)
    gated.must(0)
    found = gated.report["determinism"]
    assert found["identical"] and found["differing"] == 0 and found["tensors"] > 10
    assert found["determinism_settings"]["torch.use_deterministic_algorithms"] is True
    # the last two: of both ranks of torchrun
    for check in ("random-state/reseeded", "hardware/same", "env/versions"):
        assert gated.check(check)["status"] == "pass"
    if name == "quickstart":
        cost, floor = gated.report["cost"], gated.report["noise_floor"]
        low, high = cost["ci95"]
        figure = cost["determinism_cost_pct"]  # none on a machine whose runs scatter
        assert high - low > 30 if figure is None else low <= figure <= high
        arms = ["deterministic", "default", "default", "deterministic", "reseeded"]
        made = [run["arm"] for run in gated.report["runs"]]
        # where whole runs exclude the figure, some without digests may follow
        assert made[:5] == arms and made[5] == "alternating"
        assert not floor["identical"] and floor["first_step"] is not None
        assert labels(demo()) == labels(gated.stdout), "the README's demo shows what a run prints"
        assert floor["loss_gap"] > 0 and 0 < floor["weight_l2"] < math.inf


@pytest.mark.parametrize("name", tiered(sorted(BROKEN), ("quickstart",)))
def test_a_broken_twin_fails_and_the_cause_is_proven(name: str, tmp_path: Path) -> None:
    for module in NEEDS.get(name, ("torch",)):
        pytest.importorskip(module)
    step, kind, pattern, process = BROKEN[name]
    few = ["cost.measure=false", "train.steps=10"]
    few += ["diagnosis=false"] * (name not in CAUSES)
    few += ["robustness.vary=false"] * (name != "quickstart")  # the others need no third run
    settings = [part for item in few for part in ("--set", item)]
    gated = gate(EXAMPLES / name / "broken", *settings, out=tmp_path)
    gated.must_diverge(step, kind)
    assert "determinism/diverged" in gated.reason_ids
    first = gated.first
    assert first["process"] == process and fnmatch.fnmatch(first["name"], pattern)
    assert first["max_abs"] > 0 and first["max_ulp"] > 0
    assert "diverged:" in gated.stderr  # said while the second run was still going
    assert f"--seed 42 --steps {max(step, 0) + 1} --fail-fast" in gated.report["reproduce"]
    if name in CAUSES:
        (cause, file, line), found = CAUSES[name], gated.report["diagnosis"]
        file = f"examples/{name}/broken/{file}"
        assert (found["cause"], found["file"], found["line"]) == (cause, file, line)
        assert found["confirmed"] and place(file, line) in gated.stdout
