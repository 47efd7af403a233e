"""Training over the nodes of a real Slurm: it passes, and a fault of one rank is named."""

from __future__ import annotations

import json

from repro_gate.spec.loader import load_spec
from tests.cluster.conftest import SLURM, Site
from tests.support.gates import ROOT, gate

EXAMPLE = ROOT / "examples/slurm"
# No name of a node leads anywhere on this host.
HEAD = "$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)"
# without torch, which takes four seconds to start: rank 1 draws from the clock
FROM_CLOCK = """
import os, time
from repro_gate import record, step
rank = int(os.environ["SLURM_PROCID"])
for number in range(4):
    noise = 1.0
    if rank == 1 and number == 2:
        noise = time.time()
    record("loss", noise * rank)
    step()
"""


def test_a_training_on_one_node_passes(site: Site) -> None:
    gated = site.gate("srun -N1 -w gpu1 python train.py {seed}")
    gated.must(0)
    assert gated.report["runs"][0]["steps"] == 4


def test_ranks_on_two_nodes_are_compared(site: Site) -> None:
    """The example, by torchrun."""
    run = load_spec(EXAMPLE).train.run or ""
    assert HEAD in run
    run = run.replace(HEAD, "localhost").replace("--nodes=2", "--nodes=2 -w gpu1,gpu2")
    keys = {
        "train.run": json.dumps(run),
        "train.steps": "4",
        "train.env.CLUSTER_TEST": str(site.place),
        "robustness.vary": "false",
    }
    settings = [part for item in keys.items() for part in ("--set", "=".join(item))]
    gated = gate(EXAMPLE, *settings, "--scratch", site.scratch, out=site.place, **SLURM)
    gated.must(0)
    assert {run["processes"] for run in gated.report["runs"]} == {2}
    assert gated.check("hardware/same")["status"] == "pass"


def test_a_fault_of_one_rank_names_line_and_rank(site: Site) -> None:
    gated = site.gate(
        "srun -N2 -w gpu1,gpu2 --ntasks-per-node=1 python train.py",
        FROM_CLOCK,
        diagnosis="{runs: 4}",
    )
    gated.must_diverge(2, "loss")
    assert gated.first["process"] == "rank1"
    assert gated.first["node"] == "gpu2"
    found = gated.report["diagnosis"]
    assert (found["cause"], found["line"]) == ("wall-clock", 8), gated.said
