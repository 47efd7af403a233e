"""Finds the line that reads unwritten memory if two equal runs end in NaN."""

from __future__ import annotations

from repro_gate.diagnosis.experiments import Exhausted, Experiments, smallest
from repro_gate.diagnosis.model import Diagnosis, Pair, Setting, Unit
from repro_gate.diagnosis.suspects import located
from repro_gate.factors import MEMORY
from repro_gate.trace.model import Used


def diagnose_nan(
    experiments: Experiments[Setting, Pair], steps: int
) -> Diagnosis | None:
    """Return the line that reads unwritten memory if two equal runs have no finite numbers. Torch
    fills such memory with NaN; if that is the cause, the numbers are finite with another fill. None
    if they are not."""

    def is_finite(pinned: frozenset[Unit]) -> bool:
        pair = experiments.result(Setting(steps=steps, pinned=pinned))
        return pair.finite and not pair.failed

    try:
        uses = experiments.result(Setting(steps=steps)).uses[0]
        lines = dict[Unit, Used]()
        for use in sorted(uses, key=lambda use: not use.direct):
            if use.factor == MEMORY.name and use.site[0]:
                lines.setdefault(Unit(MEMORY.name, use.site), use)
        chosen, known = smallest([*lines], is_finite)
    except Exhausted:
        return None
    if not known or not chosen:
        return None
    use = lines[chosen[0]]
    return located(
        MEMORY,
        use.site,
        use.call or use.source,
        MEMORY.did,
        "the flag fill_uninitialized_memory fills it with NaN",
        f"confirmed: {MEMORY.proof}, the numbers are finite",
    )
