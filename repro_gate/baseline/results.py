"""The bits that a deterministic run ended with, as one digest for each kind.

The digests do not depend on `capture.every`, which is not part of the config hash: losses are recorded at every step whatever it says, and
of weights and optimizer state only what was digested last of all counts, which the probe does at the end of every run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from repro_gate.baseline.model import Outcome
from repro_gate.compare.artifacts import Artifact
from repro_gate.compare.distances import losses_of
from repro_gate.compare.traces import processes
from repro_gate.trace.format import DIGEST_BYTES
from repro_gate.trace.model import Block, Trace

if TYPE_CHECKING:
    from repro_gate.runs.launch import Run

LOSSES, WEIGHTS, OPTIMIZER = ("loss",), ("parameter", "buffer"), ("optimizer",)
MAX_CURVE = 100  # steps of a loss curve

_Row = list[object]  # plain JSON
_STRIDES = (1, 2, 5)


def outcome_of(run: Run, artifacts: Mapping[str, Artifact]) -> Outcome:
    """What a run that came to its end left behind; `artifacts` by their names. One that was refused is left out: it was not read."""
    traces = processes(run.traces)
    first = next(iter(traces.values()), None)
    return Outcome(
        seed=run.plan.arm.seed,
        steps=run.steps,
        losses=_digest("losses", _final(traces, LOSSES)),
        weights=_digest("weights", _final(traces, WEIGHTS)),
        optimizer=_digest("optimizer", _final(traces, OPTIMIZER)),
        artifacts={name: _artifact(item) for name, item in sorted(artifacts.items()) if item.format != "refused"},
        loss_curve=() if first is None else _curve(losses_of(first)),
    )


def _final(traces: Mapping[str, Trace], kinds: tuple[str, ...]) -> Iterator[_Row]:
    for label, trace in traces.items():
        for kind in kinds:
            for name, rows in _last(trace, kind).items():
                yield from ([label, kind, name, place, *row] for place, row in enumerate(rows))


def _last(trace: Trace, kind: str) -> dict[str, list[_Row]]:
    """Name -> (dtype, shape, digest) of each row of that name in the last step that recorded it, in order.

    Where torch's hooks recorded, `capture.every` decides which steps did; what was digested at the very end is there whatever it says.
    """
    blocks: Iterable[Block] = (block for block in trace.blocks if block.kind == kind)
    if kind not in LOSSES and any(block.kind == "gradient" for block in trace.blocks):
        end = max((block.step for block in trace.blocks if block.kind == "parameter"), default=-1)
        blocks = (block for block in blocks if block.step == end)
    steps: dict[str, int] = {}
    found: dict[str, list[_Row]] = {}
    for block in blocks:
        for place, (name, dtype, shape) in enumerate(block.rows):
            if steps.get(name) != block.step:
                steps[name], found[name] = block.step, []
            found[name].append([dtype, list(shape), block.digests[place * DIGEST_BYTES : (place + 1) * DIGEST_BYTES].hex()])
    return found


def _artifact(artifact: Artifact) -> str:
    rows: list[_Row] = [
        [name, leaf.kind, leaf.dtype, None if leaf.shape is None else list(leaf.shape), leaf.digest]
        for name, leaf in artifact.leaves.items()
    ]
    digest = _digest("artifact", [*rows, ["", artifact.format, artifact.structure]])
    assert digest is not None  # there is at least the row of the format
    return digest


def _digest(what: str, rows: Iterable[_Row]) -> str | None:
    """`sha256:…` over the rows, whatever their order; the name of what is digested and its version go in first. None for no rows."""
    lines = sorted(json.dumps(row, separators=(",", ":")) for row in rows)
    if not lines:
        return None
    state = hashlib.sha256(f"repro-gate/outcome/{what}/v1\n".encode())
    for line in lines:
        state.update(line.encode() + b"\n")
    return f"sha256:{state.hexdigest()}"


def _curve(losses: Mapping[int, float]) -> tuple[tuple[int, str], ...]:
    """At most `MAX_CURVE` losses as hex floats: every n-th with n of 1, 2, 5, 10, …, so that runs of different length share steps."""
    steps = sorted(losses)
    strides = (digit * 10**power for power in range(20) for digit in _STRIDES)
    stride = next(stride for stride in strides if len(steps[::stride]) < MAX_CURVE or len(steps) <= MAX_CURVE)
    chosen = dict.fromkeys([*steps[::stride], *steps[-1:]])
    return tuple((step, losses[step].hex()) for step in chosen)
