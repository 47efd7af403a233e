"""Measures how far a run is from one that is gone, by the sketches of its tensors that the baseline
keeps (`probe/distance.py` makes them). Pure.

A recorded sketch is one text: the size of one rounding of the tensor, and its signed sums in
eighths of it, as 32-bit or 64-bit whole numbers in base64.
"""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Mapping, Sequence

from repro_gate.compare.change import ROUNDINGS, Change, Place, rounding_of
from repro_gate.compare.distances import Traces
from repro_gate.compare.model import Apart
from repro_gate.trace.fields import Sketched
from repro_gate.trace.format import unwrapped

_PARTS = 8.0  # of a rounding
_FIRST = "only the first gradients could be compared, since rounding grows too far in this training"
Sketches = Mapping[str, str]  # what is sketched -> its recorded sketch


def sketched(traces: Traces) -> dict[str, Sketched]:
    """Return the sketches of a run by what they are of, those of the first process that has any."""
    rows = next((trace.sketches for trace in traces if trace.sketches), [])
    return {_what(row): row for row in rows}


def _what(row: Sketched) -> str:
    shape = ",".join(map(str, row.shape))
    return f"{row.kind} {unwrapped(row.name)} {row.dtype}[{shape}]"


def recorded(traces: Traces, perturbed: Traces, steps: int) -> dict[str, str]:
    """Return the sketches of a run as the baseline keeps them. The `perturbed` run shows the size
    of a rounding; a last value that rounding alone has moved too far is left out."""
    rounding = rounding_of(perturbed)
    found = {}
    for what, row in sketched(traces).items():
        step = 0 if row.kind == "gradient" else steps - 1
        unit = rounding.distances.get(Place(step, row.kind, row.name), 0.0)
        is_steady = row.kind == "gradient" or step < rounding.until
        if row.sums is None or not is_steady or not 0 < unit < math.inf:
            continue
        parts = [_PARTS * number / unit for number in row.sums]
        largest = max(map(abs, parts))
        if largest < 2**63:
            form = "i" if largest < 2**31 - 1 else "q"
            packed = struct.pack(f"<{len(parts)}{form}", *map(round, parts))
            found[what] = f"{unit:.17g} {base64.b64encode(packed).decode()}"
    return found


def change_since(old: Sketches, now: Mapping[str, Sketched], steps: int) -> Change:
    """Return how large the change is since a run was recorded. `old` is untrusted."""
    apart = []
    for what in sorted(old.keys() & now.keys()):
        row = now[what]
        step = 0 if row.kind == "gradient" else steps - 1
        far = _roundings(old[what], row.sums)
        apart.append(Apart(step=step, kind=row.kind, name=row.name, roundings=far))
    far_off = [item for item in apart if (item.roundings or 0.0) > ROUNDINGS]
    # a last value may have been left out
    added = [
        what
        for what in now.keys() - old.keys()
        if what.replace("parameter", "gradient", 1) not in old
    ]
    lacking = [*(old.keys() - now.keys()), *added]
    whole = any(item.kind == "parameter" for item in apart)
    return Change(
        size="rounding" if whole and not far_off else "different",
        steps=steps if whole else 1,
        worst=max(apart, key=lambda item: item.roundings or 0.0, default=None),
        first=far_off[0] if far_off else None,
        unmatched=tuple(sorted(lacking)),
        detail="" if whole else _FIRST if apart else "no tensor is in both",
    )


def _roundings(text: str, sums: Sequence[float] | None) -> float:
    """Return the distance from a recorded sketch in roundings, within a quarter in 19 of 20 cases;
    infinite where either side is no number."""
    try:
        size, _, packed = text.partition(" ")
        unit = float(size)
        content = base64.b64decode(packed, validate=True)
        count = len(sums or ())
        form = "i" if len(content) == 4 * count else "q"
        old = struct.unpack(f"<{count}{form}", content)
        # rounded as the recorded one is, so that of the same bits it is zero
        now = [round(_PARTS * number / unit) for number in sums or ()]
        return distance(now, old) / _PARTS if math.isfinite(unit) else math.inf
    except (ArithmeticError, ValueError, struct.error):
        return math.inf


def distance(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the L2 distance of two tensors from their sums, infinite beyond any float. Raise
    ValueError for sketches of unlike length."""
    return math.dist(one, other) / math.sqrt(len(one))
