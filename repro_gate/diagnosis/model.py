"""The types of a diagnosis: how a pair of runs is done, what it showed, what a search saw, and the
result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple, TypeAlias, TypeVar

from msgspec import Meta

from repro_gate.compare.model import Count, Divergence, described, reported
from repro_gate.factors import Cause, Site
from repro_gate.trace.model import OperatorLine, Used

Item = TypeVar("Item")
_Uses = tuple[Used, ...]  # of one run
_Sentences = Annotated[tuple[str, ...], Meta(max_length=100)]


@dataclass(frozen=True)
class Unit:
    """What is pinned as one: a factor at one line, or (`site` None) in the whole run."""

    factor: str
    site: Site | None = None


@dataclass(frozen=True, kw_only=True)
class Setting:
    """How a pair of runs is done. Both end after `steps` (None: as the spec says). Operators are
    recorded at `step`, lines of the workspace up to it. `stress`: under load, with threads, tasks
    and processes that start at random times."""

    steps: int | None
    pinned: frozenset[Unit] = frozenset()
    operators: bool = False
    lines: bool = False
    replay: tuple[str, int] | None = None
    step: int = 0
    stress: bool = False

    @property
    def only_watches(self) -> bool:
        """Return whether the runs differ from the gate's own only in being watched."""
        return not (self.pinned or self.operators or self.lines or self.stress)


@dataclass(frozen=True, kw_only=True)
class Pair:
    """The result of a pair of runs: where it diverged (None if it did not), and what was watched in
    each run. `steps` is how many they made, `finite` whether their numbers were finite, `failed`
    why they could not be compared, `slow` whether that is because watching takes too long. A line
    is a use whose `source` digests the order of the sets
    among its values."""

    first: Divergence | None = None
    steps: int = 0
    finite: bool = True
    uses: tuple[_Uses, _Uses] = ((), ())
    lines: tuple[_Uses, _Uses] = ((), ())
    operators: tuple[tuple[OperatorLine, ...], tuple[OperatorLine, ...]] = ((), ())
    failed: str = ""
    slow: bool = False


@dataclass(frozen=True)
@described
class Rate:
    """How often pairs of equal runs diverge, the gate's own pair among them.

    diverged: Pairs that diverged.
    pairs: Pairs of runs.
    """

    diverged: Count
    pairs: Count


@reported
class ShownUse:
    """What one line of the training asked one factor, over a whole run.

    factor: The factor: `entropy`, `clock`, …
    call: The call as it is written. Untrusted text.
    file: File, relative to the checkout; empty if no line of it asked.
    line: Its line, from 1; 0 where none is known.
    count: How often, in the first run.
    differs: Whether the two runs got other answers.
    """

    factor: str
    call: str
    file: str = ""
    line: Count = 0
    count: Count = 0
    differs: bool = False


_ShownUses = Annotated[tuple[ShownUse, ...], Meta(max_length=200)]


@reported
class ShownOperator:
    """One operator that torch dispatched near the one that gave other bits.

    name: Its name: `aten.index_put_.default`.
    phase: `forward`, `backward` or `optimizer`.
    file: File of the line that called it; empty if none is known.
    line: That line, from 1; 0 where none is known.
    same_inputs: Whether both runs gave it the same bits.
    same_outputs: Whether it gave the same bits in both runs.
    """

    name: str
    phase: str
    file: str = ""
    line: Count = 0
    same_inputs: bool = True
    same_outputs: bool = True


@reported
class Diagnosis:
    """The cause of a divergence. It stands in `report.json` as it is; `file`, `call` and all
    sentences may hold untrusted text.

    cause: The cause; each has a page in `docs/causes/`.
    factor: The factor that was held fixed: `entropy`, `clock`, …; null if it is none, or several.
    op: The operator that gave other bits: `aten.index_put_`; null if it is none.
    call: Source text of the call, or the flag; may be empty.
    file: File of the cause, relative to the checkout; `a.ipynb#cell 2` is a notebook's cell; empty
        if no line is known.
    line: Its line, in a notebook that of its cell, from 1; 0 where none is known.
    confirmed: Whether runs proved it: they agree with the factor held fixed, or the operator gave
        several outputs for one input.
    observed: Whether the line was seen to receive other bytes from outside, or from native code, in
        each of two runs before they diverged. Nothing was held fixed to prove that it decides.
    message: One sentence.
    evidence: What was seen, in order.
    remedy: What to do; may be empty.
    ruled_out: What was shown not to be the cause.
    also: Further causes: the runs agree only with these held fixed too. Of several factors that
        decide together, these are the parts, and `file` is the line where they meet.
    one_of: Where the search ended before it was known which of several decides: these and the cause
        itself, likeliest first.
    rate: How often equal runs diverge; null if every pair did.
    excerpt: The cause's line and those around it, of the commit: number and text. Untrusted text.
    uses: Uses of factors, those that differed first.
    operators: Operators around the one that gave other bits.
    runs: Runs that the diagnosis made.
    seconds: How long it took, in seconds.
    """

    cause: Cause
    factor: str | None = None
    op: str | None = None
    call: str = ""
    file: str = ""
    line: Count = 0
    confirmed: bool = False
    observed: bool = False
    message: str = ""
    evidence: _Sentences = ()
    remedy: str = ""
    ruled_out: _Sentences = ()
    also: Annotated[tuple[Diagnosis, ...], Meta(max_length=20)] = ()
    one_of: _ShownUses = ()
    rate: Rate | None = None
    excerpt: Annotated[tuple[tuple[int, str], ...], Meta(max_length=11)] = ()
    uses: _ShownUses = ()
    operators: Annotated[tuple[ShownOperator, ...], Meta(max_length=50)] = ()
    runs: Count = 0
    seconds: Annotated[float, Meta(ge=0)] = 0.0


EvidenceKind: TypeAlias = Literal[
    # what was seen
    "slow",
    "under-load",
    "rare",
    "moved",
    "not-reduced",
    "used-up",
    # what did not change the divergence, or did not differ
    "factors",
    "every-factor",
    "operators",
]


class Evidence(NamedTuple):
    """One thing that a search saw or ruled out. `report/` words it; `name` is untrusted text."""

    kind: EvidenceKind
    number: int = 0  # of pairs, units or operators
    step: int = 0
    name: str = ""


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """What a search found: the causes, the first one first, and what it saw and ruled out, in
    order. With all of `pinned` held fixed, two runs agree in their first `agreed_steps`; -1: not
    even before the first step."""

    causes: tuple[Diagnosis, ...]
    evidence: tuple[Evidence, ...]
    ruled_out: tuple[Evidence, ...]
    pinned: tuple[str, ...]  # factors, in alphabetical order
    agreed_steps: int
    rate: Rate


def use_of(cause: Diagnosis) -> ShownUse:
    """Return the line of a cause as an entry of `one_of`."""
    return ShownUse(
        factor=cause.factor or "", call=cause.call, file=cause.file, line=cause.line
    )


def numbered(
    items: Iterable[Item], key: Callable[[Item], tuple[object, ...]]
) -> dict[tuple[object, ...], Item]:
    """Return the items by key and occurrence: the n-th item with a key gets (*key, n). This pairs
    the items of two runs."""
    counts = Counter[tuple[object, ...]]()
    by_key = {}
    for item in items:
        name = key(item)
        counts[name] += 1
        place = (*name, counts[name])
        by_key[place] = item
    return by_key
