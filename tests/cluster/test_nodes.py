"""Training over the nodes of a real Slurm: it passes, and a fault of one rank is named."""

from __future__ import annotations

import textwrap

from tests.cluster.conftest import Site

TORCHRUN = (
    "srun -N2 -w gpu1,gpu2 --ntasks-per-node=1 torchrun --nnodes 2 --nproc-per-node 1 "
    "--rdzv-backend c10d --rdzv-endpoint localhost:29517 train.py"
)
OVER_TORCH = textwrap.dedent("""
    import time
    import torch
    import torch.distributed as dist
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        loss = model(torch.randn(4, 8)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()
""")
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
    gated = site.gate(TORCHRUN, OVER_TORCH)
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
