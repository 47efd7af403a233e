"""Which faults are small enough to be called rounding, and from how many steps on they are not.
`python benchmarks/roundings.py` prints the tables.

Two small trainings of 64 steps are changed: that of `tests/e2e/test_equivalent.py` by its faults,
and one with LayerNorm, dropout and weight decay by changes that are near rounding. Each has Adam
(the second: AdamW) or SGD with momentum, and tanh or ReLU. A change runs once with every step
measured; a training of N steps is its first N steps, at those steps that the gate keeps of N. The
sketches are of 64 steps: of the first gradient and the last value of each parameter.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

# so that the file itself can be started
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from repro_gate.compare import sketch
from repro_gate.compare.change import KINDS, Change, change_of, steps_to_keep
from repro_gate.compare.model import Apart
from repro_gate.compare.traces import processes
from repro_gate.trace.fields import Measured
from repro_gate.trace.format import SUFFIX
from repro_gate.trace.model import Trace
from tests.e2e import test_equivalent as equivalent
from tests.support.tracing import trace_cases, trace_script

STEPS = 64
_KEEP = {"final": True, "steps": tuple(range(STEPS)), "kinds": KINDS, "sketch": True}
VARIANTS = tuple(product(("Adam", "SGD"), ("tanh", "ReLU")))
Source = str
Traces = Sequence[Trace]

# as many rows as 64 steps need, the last step of 8
_LONGER = (
    ("torch.randn(72,", f"torch.randn({16 * STEPS - 8},"),
    ("(72, 1)", f"({16 * STEPS - 8}, 1)"),
    ("optimizer, 2, 0.5", "optimizer, 16, 0.5"),
)
NEAR = f"""
import torch
from torch import nn

torch.manual_seed(0)
rows = torch.randn({16 * STEPS}, 12)
labels = (rows @ torch.randn(12, 5) + torch.randn(len(rows), 5)).argmax(1)
norm = nn.LayerNorm(32)
model = nn.Sequential(nn.Linear(12, 32), norm, nn.Tanh(), nn.Dropout(0.1), nn.Linear(32, 5))
groups = [
    {{"params": [it for it in model.parameters() if it.ndim > 1], "weight_decay": 0.01}},
    {{"params": [it for it in model.parameters() if it.ndim == 1], "weight_decay": 0.0}},
]
optimizer = torch.optim.Adam(groups, lr=1e-2)
torch.manual_seed(1)
for step in range({STEPS}):
    x = rows[16 * step : 16 * step + 16]
    y = labels[16 * step : 16 * step + 16]
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
"""
_SGD = "SGD(momentum=0.9, params="


@dataclass(frozen=True)
class Fault:
    """What is written otherwise; `only`: the optimizer that has it."""

    was: str
    instead: str
    only: str = ""


OWN = {
    "learning rate 1 per 1,000 higher": Fault("lr=1e-2", "lr=1.001e-2"),
    "learning rate 1 per 10,000 higher": Fault("lr=1e-2", "lr=1.0001e-2"),
    "learning rate 1 per million higher": Fault("lr=1e-2", "lr=1.000001e-2"),
    "inputs 1 per 100,000 larger": Fault("y = labels", "x = x * 1.00001; y = labels"),
    "inputs 1 per million larger": Fault("y = labels", "x = x * 1.000001; y = labels"),
    "label smoothing of 1e-4": Fault("model(x), y", "model(x), y, label_smoothing=1e-4"),
    "label smoothing of 1e-6": Fault("model(x), y", "model(x), y, label_smoothing=1e-6"),
    "one sample of step 20 dropped": Fault(
        "    optimizer.zero", "    if step == 20: x, y = x[1:], y[1:]\n    optimizer.zero"
    ),
    "one sample of the last step dropped": Fault(
        "    optimizer.zero", f"    if step == {STEPS - 1}: x, y = x[1:], y[1:]\n    optimizer.zero"
    ),
    "one wrong label in step 40": Fault(
        "    optimizer.zero",
        "    if step == 40: y = y.clone(); y[0] = (y[0] + 1) % 5\n    optimizer.zero",
    ),
    "gradient clipped once, in step 20, by 1 %": Fault(
        "    optimizer.step",
        "    if step == 20:\n        for it in model.parameters(): it.grad *= 0.99\n"
        "    optimizer.step",
    ),
    "gradient clipped once, in step 40, by 1 %": Fault(
        "    optimizer.step",
        "    if step == 40:\n        for it in model.parameters(): it.grad *= 0.99\n"
        "    optimizer.step",
    ),
    "another seed of dropout": Fault("torch.manual_seed(1)", "torch.manual_seed(2)"),
    "weight decay of biases too": Fault('"weight_decay": 0.0', '"weight_decay": 0.01'),
    "eps of LayerNorm 1e-6, not 1e-5": Fault("LayerNorm(32)", "LayerNorm(32, eps=1e-6)"),
    "eps of LayerNorm outside the root": Fault(
        "model = nn",
        "norm.forward = lambda h: norm.weight * (h - h.mean(-1, True))"
        " / (h.std(-1, correction=0, keepdim=True) + 1e-5) + norm.bias\nmodel = nn",
    ),
    "the last layer in bfloat16": Fault(
        "model(x), y",
        "nn.functional.linear(model[:4](x).bfloat16(), model[4].weight.bfloat16(),"
        " model[4].bias.bfloat16()).float(), y",
    ),
    "momentum 0.9001, not 0.9": Fault("momentum=0.9,", "momentum=0.9001,", "SGD"),
    "dampening of 1e-4": Fault("momentum=0.9,", "momentum=0.9, dampening=1e-4,", "SGD"),
    "second beta 0.9991, not 0.999": Fault("lr=1e-2", "lr=1e-2, betas=(0.9, 0.9991)", "Adam"),
    "eps of Adam 1e-7, not 1e-8": Fault("lr=1e-2", "lr=1e-2, eps=1e-7", "Adam"),
    "eps of Adam before the bias correction": Fault(
        "    optimizer.step",
        "    for group in optimizer.param_groups:\n"
        "        group['eps'] = 1e-8 / (1 - 0.999 ** (step + 1)) ** 0.5\n    optimizer.step",
        "Adam",
    ),
    "AMSGrad": Fault("lr=1e-2", "lr=1e-2, amsgrad=True", "Adam"),
}  # fmt: skip
SOUND = {
    "sound: one parameter after another": Fault("lr=1e-2", "lr=1e-2, foreach=False"),
    "sound: the loss in float64": Fault("model(x), y", "model(x).double(), y"),
    "sound: LayerNorm written out": Fault(
        "model = nn",
        "norm.forward = lambda h: norm.weight * (h - h.mean(-1, True))"
        " / (h.var(-1, correction=0, keepdim=True) + 1e-5).sqrt() + norm.bias\nmodel = nn",
    ),
}


@dataclass(frozen=True)
class Answer:
    """What is said of one change after each number of steps, and by the sketches."""

    lengths: Mapping[int, Change]
    sketched: Change

    def text(self) -> str:
        """Return from how many steps on it is no rounding, and by how much; the most roundings
        where it always is."""
        beyond = [
            steps
            for steps, change in self.lengths.items()
            if change.size == "different"
        ]
        if not beyond:
            whole = self.lengths[STEPS]
            cut = f", {whole.steps} steps compared" if whole.steps < STEPS else ""
            return f"rounding: {_roundings(whole.worst)}{cut}"
        first = self.lengths[beyond[0]]
        by = _roundings(first.first) if first.first else first.detail
        until = (
            "" if beyond[-1] == STEPS else f", but rounding of more than {beyond[-1]}"
        )
        return f"{beyond[0]} ({by}{until})"

    def sketch(self) -> str:
        """Return what the sketches say of it."""
        if self.sketched.size == "rounding":
            return f"rounding: {_roundings(self.sketched.worst)}"
        return _roundings(self.sketched.worst)


def _roundings(item: Apart | None) -> str:
    if item is None:
        return "nothing"
    if item.roundings is None:
        return "other bits"
    return f"{item.roundings:,.1f}" if item.roundings < 10 else f"{item.roundings:,.3g}"


def trainings() -> Iterator[tuple[str, Source, dict[str, Source]]]:
    """Yield each training: its optimizer and activation, its source, and the changed sources."""
    for optimizer, activation in VARIANTS:
        for sources in (_of_the_corpus(), _near(optimizer)):
            varied = {}
            for name, source in sources.items():
                other = source.replace("Adam(", _SGD) if optimizer == "SGD" else source
                varied[name] = (
                    other if activation == "tanh" else other.replace("Tanh()", "ReLU()")
                )
            yield f"{optimizer}, {activation}", varied.pop(""), varied


def _of_the_corpus() -> dict[str, Source]:
    """Return the sources of the first training, by name; "" is what they are compared with."""
    sources = {"": equivalent.WHOLE}
    for name, fault in equivalent.FAULTS.items():
        sources[name] = fault.source.replace(fault.was, fault.instead)
    for name in ("in microbatches", "rows in another order"):
        sources[f"sound: {name}"] = equivalent.SOUND[name]
    for was, instead in _LONGER:
        sources = {
            name: source.replace(was, instead) for name, source in sources.items()
        }
    return sources


def _near(optimizer: str) -> dict[str, Source]:
    """Return the sources of the second training."""
    sources = {"": NEAR}
    for name, fault in {**OWN, **SOUND}.items():
        # what only SGD has is in the source once it is of SGD
        source = NEAR.replace("Adam(", _SGD) if fault.only == "SGD" else NEAR
        assert fault.was in source, name
        if fault.only in ("", optimizer):
            sources[name] = source.replace(fault.was, fault.instead, 1)
    return sources


def answers(
    folder: Path, whole: Source, changed: Mapping[str, Source]
) -> dict[str, Answer]:
    """Return what is said of each change of a training."""
    first = trace_script(folder, whole, name="first", probe={"keep": _KEEP})
    (trace,) = processes(first.traces).values()
    measured = {**_KEEP, "reference": {"": str(trace.path).removesuffix(SUFFIX)}}
    keep = {**measured, "final": False, "sketch": False}
    second = trace_script(
        folder, whole, name="second", probe={"keep": keep, "perturb": 0}
    )
    assert first.good and second.good, (first.ended.tail, second.ended.tail)
    recorded = sketch.recorded(first.traces, second.traces, STEPS)
    found = {}
    for name, case in trace_cases(folder, changed, probe={"keep": measured}).items():
        assert case.exit_code == 0, (name, case.printed)
        sides = first.traces, (case.trace,), second.traces
        lengths = {
            steps: change_of(*(_first_steps(side, steps) for side in sides))
            for steps in range(1, STEPS + 1)
        }
        now = sketch.sketched((case.trace,))
        found[name] = Answer(lengths, sketch.change_since(recorded, now, STEPS))
    return found


def _first_steps(traces: Traces, steps: int) -> list[Trace]:
    """Return what traces of a shorter training hold."""
    kept = steps_to_keep(steps, 1, STEPS)
    shorter = []
    for trace in traces:
        distances: dict[tuple[int, str, str], Measured] = {}
        for item in trace.distances:
            if item.step in kept:
                # the first: at the end all parameters are measured once more
                distances.setdefault((item.step, item.kind, item.name), item)
        blocks = [block for block in trace.blocks if block.step < steps]
        shorter.append(
            replace(
                trace,
                steps=trace.steps[:steps],
                blocks=blocks,
                distances=list(distances.values()),
            )
        )
    return shorter


def main() -> None:
    """Print the tables as Markdown."""
    table: dict[str, dict[str, Answer]] = {}
    for variant, whole, changed in trainings():
        with tempfile.TemporaryDirectory(prefix="roundings-") as folder:
            for name, answer in answers(Path(folder), whole, changed).items():
                table.setdefault(name, {})[variant] = answer
    names = dict.fromkeys([*equivalent.FAULTS, *OWN, *table])
    variants = [f"{optimizer}, {activation}" for optimizer, activation in VARIANTS]
    titles = {
        "No rounding from so many steps on (roundings by which it is first apart)": Answer.text,
        f"By sketches, after {STEPS} steps: roundings": Answer.sketch,
    }
    for title, show in titles.items():
        print(f"\n{title}\n")
        heads = ["change", *variants]
        rows = [
            [
                name,
                *(
                    show(table[name][it]) if it in table[name] else ""
                    for it in variants
                ),
            ]
            for name in names
        ]
        for row in (heads, ["---"] * len(heads), *rows):
            print("|", " | ".join(row), "|")


if __name__ == "__main__":
    main()
