"""The search for a cause: it asks for pairs of runs and is told what they showed; it starts none
itself.

A set of units is *sufficient* where two runs no longer diverge, with all of it pinned, at the place
where they did. The search looks for a smallest sufficient set: what a library draws for its own
names is told apart because it is not in it. Bisection is Zeller's and Hildebrandt's ddmin
("Simplifying and Isolating Failure-Inducing Input", 2002), with sufficiency as the test.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from repro_gate.compare.model import KINDS, STEPS, Divergence
from repro_gate.diagnosis.model import Pair, Setting, Unit


class Exhausted(Exception):
    """The runs or the time that a diagnosis may take are used up."""


class Experiments:
    """Pairs of runs, done when asked for and remembered. `left` is how many more may be done; a
    pair is two runs."""

    def __init__(self, run: Callable[[Setting], Pair], pairs: int) -> None:
        self._run, self.left = run, pairs
        self._known: dict[Setting, Pair] = {}

    def pair(self, setting: Setting, again: bool = False) -> Pair:
        """The pair of runs with this setting. Raises Exhausted where no more may be done."""
        if again or setting not in self._known:
            if self.left < 1:
                raise Exhausted
            self.left -= 1
            self._known[setting] = self._run(setting)
        return self._known[setting]


def gone(pair: Pair, until: Divergence) -> bool:
    """Whether the divergence is not there any more in a pinned pair: it agrees as far as that step,
    or diverges only later. Where the runs took different numbers of steps, it agrees however many
    it took."""
    if pair.failed:
        return False
    if pair.first is None:
        return pair.steps > until.step or until.kind == "artifact" or until.name == STEPS
    return _place(pair.first) > _place(until)


def _place(item: Divergence) -> tuple[int, int]:
    return item.step, KINDS.index(item.kind)


def smallest(
    units: Sequence[Unit], sufficient: Callable[[frozenset[Unit]], bool], alone: int = 2
) -> tuple[tuple[Unit, ...], bool]:
    """A smallest set of `units` that is sufficient, given that all of them are: no unit of it can
    be left out. And whether that is known: False where the runs were used up before, and fewer
    units may do.

    The likeliest stand first in `units`; the first of them, as many as `alone` says, are tried one
    by one before halves are.
    """
    current, parts = list(units), 2
    try:
        for unit in units[:alone]:
            if len(units) > 1 and sufficient(frozenset({unit})):
                return (unit,), True
        while len(current) >= 2:
            size = -(-len(current) // parts)
            chunks = [current[at : at + size] for at in range(0, len(current), size)]
            for chunk in chunks:
                rest = [unit for unit in current if unit not in chunk]
                if len(chunks) > 1 and sufficient(frozenset(chunk)):
                    current, parts = chunk, 2
                    break
                if len(chunks) > 2 and sufficient(frozenset(rest)):
                    current, parts = rest, max(parts - 1, 2)
                    break
            else:
                if parts >= len(current):
                    break
                parts = min(parts * 2, len(current))
    except Exhausted:
        return tuple(current), len(current) == 1
    return tuple(current), True
