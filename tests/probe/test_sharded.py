"""Each rank records its own shards of FSDP2's parameters, under the model's names."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from tests.support.tracing import blocks, kept_tensors, names, trace_script

FSDP2 = """
import torch, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
dist.init_process_group("gloo")
torch.manual_seed(1)
net = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Tanh(), torch.nn.Linear(6, 2))
mesh = init_device_mesh("cpu", (2,))
for layer in (net[0], net[2]):
    fully_shard(layer, mesh=mesh)
fully_shard(net, mesh=mesh)
opt = torch.optim.Adam(net.parameters())
for _ in range(2):
    opt.zero_grad()
    net(torch.randn(5, 4)).square().mean().backward()
    opt.step()
torch.save([item.to_local().detach() for item in net.parameters()], "rank%d.pt" % dist.get_rank())
dist.destroy_process_group()
"""
SHARDS = (
    ("0.weight", "float32", (3, 4)),
    ("0.bias", "float32", (3,)),
    ("2.weight", "float32", (1, 6)),
    ("2.bias", "float32", (1,)),
)


@pytest.mark.slow
def test_each_rank_records_its_shards_under_the_models_names(short_path: Path) -> None:
    command = f"{sys.executable} -m torch.distributed.run --standalone --nproc-per-node 2 train.py"
    run = trace_script(short_path, FSDP2, command=command, keep_final=True)
    assert run.outcome == "finished", (run.problem, run.ended.tail)
    ranks = sorted((trace for trace in run.traces if trace.trained), key=lambda trace: trace.key)
    told = [(trace.key, len(trace.steps), trace.notes) for trace in ranks]
    assert told == [("rank0", 2, []), ("rank1", 2, [])]
    for trace in ranks:
        for step in (-1, 1):
            assert blocks(trace, "parameter", step)[0].rows == SHARDS
        assert set(blocks(trace, "gradient", 0)[0].rows) == set(SHARDS)
        assert "2.weight.exp_avg_sq" in names(trace, "optimizer", 1)
        place, stem = short_path / "place" / "workspace", trace.path.name.partition(".")[0]
        saved = torch.load(place / f"{trace.key}.pt", weights_only=True)
        [kept] = map(kept_tensors, run.folder.glob(f"{stem}.final.parameter*.kept"))
        for (name, _, _), shard in zip(SHARDS, saved, strict=True):
            assert torch.equal(kept[name], shard)
    one, two = (blocks(trace, "parameter", 1)[0].digests for trace in ranks)
    assert one != two
