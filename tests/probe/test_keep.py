"""Claims about `probe.keep`: the first run keeps its tensors once, the second measures how far its own are from them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from repro_gate.runs.launch import Run
from tests.support.tracing import names, trace_script, trained

SCRIPT = """
import torch
from torch.utils.data import DataLoader
net = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2), torch.nn.Linear(2, 1, dtype=torch.float32))
opt = torch.optim.Adam(net.parameters(), lr=0.1)
for x in DataLoader(torch.randn(12, 3, generator=torch.Generator().manual_seed(0)), batch_size=4):
    opt.zero_grad()
    net(x).square().mean().backward()
    opt.step()
torch.save(net.state_dict(), "final.pt")
"""


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = trace_script(tmp_path_factory.mktemp("keep"), SCRIPT, keep_final=True, keep_step=1)
    assert run.outcome == "finished", (run.problem, run.ended.tail)
    return run


def kept_files(run: Run) -> list[str]:
    return sorted(path.name for path in run.folder.glob("*.safetensors"))


def state(run: Run) -> dict[str, torch.Tensor]:
    return dict(torch.load(run.folder.parent.parent / "workspace" / "final.pt", weights_only=True))


def test_the_first_run_keeps_final_parameters_and_optimizer_state_as_safetensors(first: Run) -> None:
    trace = trained(first)
    kept = {name.split(".", 1)[1]: load_file(first.folder / name) for name in kept_files(first)}
    final = state(first)
    assert set(kept["final.parameter.safetensors"]) == {"0.weight", "0.bias", "1.weight", "1.bias", "2.weight", "2.bias"}
    assert all(torch.equal(tensor, final[name]) for name, tensor in kept["final.parameter.safetensors"].items())
    assert "0.weight.exp_avg_sq" in kept["final.optimizer.safetensors"]
    assert trace.distances == []


def test_a_witness_run_keeps_every_kind_of_one_step(first: Run) -> None:
    kept = {name.split(".", 1)[1]: load_file(first.folder / name) for name in kept_files(first) if ".step1." in name}
    assert set(kept) == {f"step1.{kind}.safetensors" for kind in ("batch", "gradient", "parameter", "optimizer", "buffer")}
    assert set(kept["step1.gradient.safetensors"]) == set(names(trained(first), "gradient", 1))


def test_a_second_run_with_the_same_seed_is_at_distance_zero_and_keeps_nothing(first: Run, tmp_path: Path) -> None:
    trace = trained(trace_script(tmp_path, SCRIPT, keep_final=True, reference=first.traces))
    assert not list(trace.path.parent.glob("*.safetensors"))
    assert {item.kind for item in trace.distances} == {"parameter", "optimizer"}
    assert {(item.max_abs, item.l2) for item in trace.distances} == {(0.0, 0.0)}
    assert {item.max_ulp for item in trace.distances} == {0}


def test_a_run_with_another_seed_is_as_far_away_as_its_weights_are(first: Run, tmp_path: Path) -> None:
    run = trace_script(tmp_path, SCRIPT, keep_final=True, reference=first.traces, seed=43)
    ours, theirs = state(run), state(first)
    measured = {item.name: item for item in trained(run).distances if item.kind == "parameter"}
    assert len(measured) == 6
    for name, item in measured.items():
        gap = ours[name].double() - theirs[name].double()
        assert item.max_abs == float(gap.abs().max()) > 0
        assert item.l2 == pytest.approx(float(gap.norm())) and item.reference_l2 == pytest.approx(float(theirs[name].double().norm()))
        assert item.max_ulp and item.max_ulp > 0 and item.step == 2 and item.shape == tuple(ours[name].shape)


FULL = """
import os
real = os.statvfs
class Little:
    f_bavail, f_frsize = 10, 4096
os.statvfs = lambda path: Little
"""


def test_too_little_room_is_a_note_and_no_failure(tmp_path: Path) -> None:
    run = trace_script(tmp_path, FULL + SCRIPT, keep_final=True)
    trace = trained(run)
    assert run.outcome == "finished"
    assert {identifier for identifier, _ in trace.notes} == {"state-not-kept"}
    assert "too little room" in trace.notes[0][1]
    assert not list(run.folder.glob("*.safetensors"))
