"""Other ways to the same training: sound ones pass, faulty ones are found with the reason where it can
be seen; the example and its twin through the gate."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from repro_gate.compare.change import KINDS, Change, change_of, steps_to_keep
from repro_gate.compare.traces import processes
from repro_gate.trace.format import SUFFIX
from repro_gate.trace.model import Trace
from tests.support.gates import ROOT, gate
from tests.support.tracing import Case, trace_cases, trace_script

pytestmark = pytest.mark.slow
EXAMPLE = ROOT / "examples" / "equivalent"
FEW = ("--only", "equivalent")

# rows of several lengths: 5 steps, the last of 8 rows
WHOLE = """
import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
rows = torch.randn(72, 6, 8)
lengths = torch.randint(2, 7, (72, 1))
mask = (torch.arange(6) < lengths).float()
data = TensorDataset(rows, rows.sum(-1), mask)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
for x, y, m in DataLoader(data, 16):
    optimizer.zero_grad()
    loss = ((model(x)[..., 0] - y).square() * m).sum() / m.sum()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 100.0)
    optimizer.step()
    schedule.step()
"""
LOOP = """
micro = list(DataLoader(data, 4))
for start in range(0, len(micro), 4):
    window = micro[start : start + 4]
    total = sum(m.sum() for _, _, m in window)
    optimizer.zero_grad()
    for x, y, m in window:
        loss = ((model(x)[..., 0] - y).square() * m).sum() / total
        loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 100.0)
    optimizer.step()
    schedule.step()
"""
PARTS = WHOLE[: WHOLE.index("for x, y, m in")] + LOOP
SOUND = {
    "in microbatches": PARTS,
    "gradients divided, not losses": PARTS.replace("/ total", "* 8 / total").replace(
        "    torch.nn.utils", "    for it in model.parameters(): it.grad /= 8\n    torch.nn.utils"
    ),
    "rows in another order": WHOLE.replace("    optimizer.zero", "    x, y, m = x.flip(0), y.flip(0), m.flip(0)\n    optimizer.zero"),
    "one parameter after another": WHOLE.replace("lr=1e-2", "lr=1e-2, foreach=False"),
    "wrapped": WHOLE.replace(
        "optimizer = torch.optim", "model = torch.nn.DataParallel(model, device_ids=[])\noptimizer = torch.optim"
    ),
    "compiled": WHOLE.replace(
        "optimizer = torch.optim", "model = torch.compile(model, backend='eager')\noptimizer = torch.optim"
    ),
}  # fmt: skip


class Fault(NamedTuple):
    """What is written otherwise, where it first shows, and words of the likely reason."""

    was: str
    instead: str
    first: tuple[int, str] | None  # None: in the number of steps
    likely: str = ""
    source: str = PARTS


FAULTS = {
    "a mean of means": Fault("/ total", "/ m.sum() / len(window)", (0, "gradient")),
    "summed over microbatches": Fault("/ total", "* 4 / total", (0, "gradient"), "4 times the"),
    "divided twice": Fault("/ total", "/ total / 4", (0, "gradient"), "4 microbatches twice"),
    "the last window dropped": Fault("len(micro), 4", "len(micro) - 3, 4", None, "dropped"),
    "only the last microbatch counts": Fault(
        "        loss =", "        optimizer.zero_grad()\n        loss =", (0, "gradient")
    ),
    "gradients clipped too early": Fault(
        "        loss.backward()\n",
        "        loss.backward()\n        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)\n",
        (0, "gradient"),
    ),
    "the schedule counts microbatches": Fault(
        "        loss.backward()\n", "        loss.backward()\n        schedule.step()\n", (0, "parameter")
    ),
    "gradients never cleared": Fault("    optimizer.zero_grad()\n", "", (1, "parameter")),
    "the rate divided as well": Fault("lr=1e-2", "lr=1e-2 / 4", (0, "parameter")),
    "a draw before the model is built": Fault(
        "model = torch", "torch.rand(1)\nmodel = torch", (-1, "parameter"), "other numbers"
    ),
    "other rows": Fault("DataLoader(data, 16)", "DataLoader(data, 16, shuffle=True)", (0, "gradient"), "draw", WHOLE),
    "in bfloat16": Fault(
        "    loss =", "    with torch.autocast('cpu', torch.bfloat16): y = y * 0 + y; z = model(x)[..., 0]\n    loss =",
        (0, "gradient"), "", WHOLE.replace("model(x)[..., 0] - y", "z.float() - y"),
    ),
    "dropout in microbatches": Fault(
        "torch.nn.Tanh()", "torch.nn.Sequential(torch.nn.Tanh(), torch.nn.Dropout(0.1))", (0, "gradient"), "draw"
    ),
}  # fmt: skip


class Reference(NamedTuple):
    """The reference with its tensors kept, and the run that shows what rounding does."""

    traces: tuple[Trace, ...]
    perturbed: tuple[Trace, ...]
    keep: dict[str, object]


def reference_of(folder: Path, source: str) -> Reference:
    steps = steps_to_keep(5, 1, 100)
    keep = {"final": False, "steps": steps, "kinds": KINDS}
    first = trace_script(folder, source, name="first", probe={"keep": keep})
    (trace,) = processes(first.traces).values()
    stems = {"": str(trace.path).removesuffix(SUFFIX)}
    keep = {**keep, "reference": stems}
    second = trace_script(folder, source, name="second", probe={"keep": keep, "perturb": 0})
    assert first.good and second.good, (first.ended.tail, second.ended.tail)
    return Reference(first.traces, second.traces, keep)


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    return reference_of(tmp_path_factory.mktemp("equivalent"), WHOLE)


@pytest.fixture(scope="module")
def ways(reference: Reference, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Case]:
    """Every other way, in a fork each of one process."""
    sources = dict(SOUND)
    for name, fault in FAULTS.items():
        assert fault.was in fault.source, name
        sources[name] = fault.source.replace(fault.was, fault.instead)
    folder = tmp_path_factory.mktemp("ways")
    return trace_cases(folder, sources, probe={"keep": reference.keep})


def compared(reference: Reference, case: Case, *, bitwise: bool = False) -> Change:
    assert case.exit_code == 0, case.printed
    perturbed = None if bitwise else reference.perturbed
    return change_of(reference.traces, (case.trace,), perturbed)


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_way_is_the_same_training(
    name: str, reference: Reference, ways: dict[str, Case]
) -> None:
    found = compared(reference, ways[name])
    assert found.size != "different" and found.worst is not None, found
    assert found.worst.roundings is not None and found.worst.roundings < 10, found


@pytest.mark.parametrize("name", FAULTS)
def test_a_faulty_way_is_found(name: str, reference: Reference, ways: dict[str, Case]) -> None:
    found = compared(reference, ways[name])
    fault = FAULTS[name]
    first = None if found.first is None else (found.first.step, found.first.kind)
    assert found.size == "different"
    assert first == fault.first and fault.likely in found.likely, found
    assert bool(found.detail) == (fault.first is None)


def test_bit_for_bit_rounding_is_a_difference(reference: Reference, ways: dict[str, Case]) -> None:
    assert compared(reference, ways["in microbatches"], bitwise=True).size == "different"
    assert compared(reference, ways["compiled"], bitwise=True).size != "different"
    assert compared(reference, ways["wrapped"], bitwise=True).size != "different"


def test_the_example_passes_and_its_twin_fails(tmp_path: Path) -> None:
    for name in ("sound", "broken"):
        (tmp_path / name).mkdir()
    gated = gate(EXAMPLE, *FEW, out=tmp_path / "sound")
    gated.must(0)
    found = {item["name"]: item for item in gated.report["equivalences"]}
    assert set(found) == {"workers", "accumulation", "two-ranks", "compiled"}
    assert all(item["equivalent"] for item in found.values())
    assert "accumulation: the same training, at most " in gated.stdout
    twin = gate(EXAMPLE / "broken", *FEW, out=tmp_path / "broken")
    twin.must(1, "equivalent/differs")
    other = {item["name"] for item in twin.report["equivalences"] if not item["equivalent"]}
    assert twin.report["determinism"]["identical"] and other == {"accumulation"}
    assert "summed over the 4 microbatches" in twin.stdout
