"""`probe.distance`: a first run keeps its tensors, the second measures against them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch

from tests.support.tracing import Case, kept_tensors, names, trace_cases

SCRIPT = """
import multiprocessing, torch
from torch.utils.data import DataLoader
net = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2), torch.nn.Linear(2, 1, dtype=torch.float32))
opt = torch.optim.Adam(net.parameters(), lr=0.1)
for x in DataLoader(torch.randn(12, 3, generator=torch.Generator().manual_seed(0)), batch_size=4):
    opt.zero_grad()
    net(x).square().mean().backward()
    opt.step()
torch.save(net.state_dict(), multiprocessing.current_process().name + ".pt")
"""
FULL = """
import os
real = os.statvfs
class Little:
    f_bavail, f_frsize = 10, 4096
os.statvfs = lambda path: Little
"""
Cases = Mapping[str, Case]


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Cases:
    cases = {"same": SCRIPT, "other": SCRIPT, "full": FULL + SCRIPT}
    found = trace_cases(tmp_path_factory.mktemp("keep"), cases, keep_final=True, keep_steps=(1,))
    assert found["same"].run.outcome == "finished", found["same"].run.problem
    return found


@pytest.fixture(scope="module")
def second(first: Cases, tmp_path_factory: pytest.TempPathFactory) -> Cases:
    """Measured against the first: one with its seed and one with another."""
    cases = {"same": SCRIPT, "other": "import torch\ntorch.manual_seed(43)\n" + SCRIPT}
    reference, place = first["same"].run.traces, tmp_path_factory.mktemp("measure")
    return trace_cases(place, cases, keep_final=True, reference=reference)


def kept_files(case: Case) -> dict[str, dict[str, torch.Tensor]]:
    stem = case.trace.path.name.partition(".")[0]
    paths = case.trace.path.parent.glob(f"{stem}.*.kept")
    return {path.name.split(".", 1)[1]: kept_tensors(path) for path in paths}


def state(case: Case, name: str) -> dict[str, torch.Tensor]:
    assert case.run.folder is not None
    return dict(
        torch.load(case.run.folder.parent.parent / "workspace" / f"{name}.pt", weights_only=True)
    )


def test_the_first_run_keeps_its_end_and_one_step(first: Cases) -> None:
    kept, final = kept_files(first["same"]), state(first["same"], "same")
    parameters = kept["final.parameter.kept"]
    assert parameters.keys() == {
        f"{layer}.{name}" for layer in "012" for name in ("weight", "bias")
    }
    assert all(torch.equal(tensor, final[name]) for name, tensor in parameters.items())
    assert "0.weight.exp_avg_sq" in kept["final.optimizer.kept"]
    assert first["same"].trace.distances == []
    kinds = {name.split(".")[1] for name in kept if name.startswith("step1.")}
    assert kinds == {"batch", "gradient", "parameter", "optimizer", "buffer"}
    assert set(kept["step1.gradient.kept"]) == set(names(first["same"].trace, "gradient", 1))


@pytest.mark.slow
def test_a_second_run_is_as_far_away_as_its_weights_are_and_keeps_nothing(
    first: Cases, second: Cases
) -> None:
    same, other = second["same"].trace, second["other"].trace
    assert not list(same.path.parent.glob("*.kept"))
    assert {item.kind for item in same.distances} == {"parameter", "optimizer"}
    assert {(item.max_abs, item.l2, item.max_ulp) for item in same.distances} == {(0.0, 0.0, 0)}
    ours, theirs = state(second["other"], "other"), state(first["other"], "other")
    found = [item for item in other.distances if item.kind == "parameter"]
    assert len(found) == 6
    for item in found:
        there = theirs[item.name].double()
        gap = ours[item.name].double() - there
        assert item.max_abs == float(gap.abs().max()) > 0 and item.max_ulp
        assert (item.l2, item.reference_l2) == pytest.approx(
            (float(gap.norm()), float(there.norm()))
        )
        assert (item.step, item.shape) == (2, tuple(there.shape))


def test_too_little_room_is_a_note_and_no_failure(first: Cases) -> None:
    case = first["full"]
    assert case.exit_code == 0 and kept_files(case) == {}
    assert {identifier for identifier, _ in case.trace.notes} == {"state-not-kept"}
    assert "too little room" in case.trace.notes[0][1]
