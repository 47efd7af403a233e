"""The fleet check: runs of one recipe on many nodes, in groups of equal bits. Says which nodes
compute other bits than most, and which differ from themselves. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from os.path import commonprefix
from typing import Annotated

from repro_gate.compare.model import (
    Count,
    Divergence,
    about,
    described,
    one_of,
    reported,
)
from repro_gate.escape import counted

AGREES = "agrees"
DIFFERS = "differs"
UNSTEADY = "differs-from-itself"
NOTHING = "no-result"
# parts of the names of facts: the first are the likeliest to explain other bits
_LIKELY = ("ecc-", "driver", "clock", "kernel", "cuda", "cudnn", "torch", "gpu")


@dataclass(frozen=True, kw_only=True)
class Record:
    """What is kept of one report, so that a thousand take little memory. `bits` stand for all that
    its run recorded; they are empty if there is no result, and `why` says why. `own` is where two
    runs on the node diverged, if they did. All texts are untrusted."""

    path: str
    node: str
    bits: str = ""
    why: str = ""
    own: Divergence | None = None
    facts: Mapping[str, str] = field(default_factory=dict)


Locate = Callable[[Sequence[Record], Sequence[Record]], Divergence | None]


@dataclass(frozen=True)
@described
class Apart:
    """A fact whose value no node of the largest group has. Its texts are untrusted.

    name: The fact: `gpu.0.uuid`, `driver`, …
    value: Its value here.
    others: Its value in the largest group; null if there is none, or several.
    """

    name: str
    value: str
    others: str | None

    def __str__(self) -> str:
        """Return it as people read it."""
        other = "" if self.others is None else f" instead of {self.others}"
        return f"{self.name} {self.value}{other}"


@reported
class Group:
    """Nodes of which the same is to be said. Their names are untrusted.

    nodes: Their names, with the report's file where one name is in several groups.
    reports: The paths of their reports.
    first_divergence: Where they first differ from the largest group, or from themselves; null where
        that is not known.
    set_apart: The likeliest to matter first.
    why: Why there is no result; else empty.
    """

    kind: Annotated[
        str,
        about("What is to be said.", **one_of((AGREES, DIFFERS, UNSTEADY, NOTHING))),
    ]
    nodes: tuple[str, ...]
    reports: tuple[str, ...]
    first_divergence: Divergence | None = None
    set_apart: tuple[Apart, ...] = ()
    why: str = ""


@reported
class Fleet:
    """The answer about all nodes.

    nodes: How many there are, those without a report included.
    agreeing: How many are in the largest group; 0 if no group is larger than each other: then none
        is to blame.
    groups: The largest first, then nodes that differ from themselves, then those without a result.
    shared_names: Names of nodes whose reports hold different bits: such a node differs from itself,
        or a report of another node has its name.
    """

    nodes: Count
    agreeing: Count
    groups: tuple[Group, ...]
    shared_names: tuple[str, ...]

    @property
    def verdict(self) -> str:
        """Return `fail` if any node differs from another or from itself, `inconclusive` if of any
        nothing is known, else `pass`."""
        kinds = {group.kind for group in self.groups}
        if kinds & {DIFFERS, UNSTEADY}:
            return "fail"
        return "inconclusive" if NOTHING in kinds else "pass"


def fleet(records: Sequence[Record], locate: Locate, expected: int = 0) -> Fleet:
    """Return the answer. `locate` says where two lists of records first differ; `expected` is how
    many nodes there should be, if that is known."""
    divided = defaultdict(list)
    for item in records:
        key = DIFFERS, item.bits
        if not item.bits:
            key = NOTHING, item.why
        elif item.own:
            key = UNSTEADY, item.node
        divided[key].append(item)
    # A report may claim any name, so one name in two rows is told apart by file.
    rows = Counter(name for part in divided.values() for name in _nodes(part))
    folder = commonprefix([item.path for item in records])  # noqa: RUF071  cut at a slash
    folder = folder.rpartition("/")[0]

    def label(item: Record) -> str:
        file = item.path.removeprefix(folder).lstrip("/")
        return item.node if rows[item.node] == 1 else f"{item.node} ({file})"

    # in the order of the kinds' names
    ordered = sorted(
        divided.items(), key=lambda part: (part[0][0], -len(_nodes(part[1])))
    )
    sizes = [len(_nodes(part)) for (kind, _), part in ordered if kind == DIFFERS]
    is_largest = bool(sizes) and sizes[0] not in sizes[1:]
    most = ordered[0][1] if sizes else []
    groups = []
    for (kind, _), part in ordered:
        others = most if kind == DIFFERS else part
        unlike = [item for item in others if item.bits != part[0].bits]
        found = next((item.own for item in part if item.own), None)
        if unlike and found is None:
            found = locate(unlike, part)
        groups.append(
            Group(
                kind=AGREES if part is most and is_largest else kind,
                nodes=tuple(dict.fromkeys(map(label, part))),
                reports=tuple(item.path for item in part),
                first_divergence=found,
                set_apart=_facts_apart(part, most) if most else (),
                why=part[0].why,
            )
        )
    names = _nodes(records)
    if expected > len(names):
        lost = f"{expected - len(names)} of {counted(expected, 'node')} left no report"
        groups.append(Group(kind=NOTHING, nodes=(), reports=(), why=lost))
    shared = defaultdict(set)
    for item in records:
        if item.bits:
            shared[item.node].add(item.bits)
    steady = [name for name in _nodes(most) if rows[name] == 1]
    return Fleet(
        nodes=max(len(names), expected),
        agreeing=len(steady) if is_largest else 0,
        groups=tuple(groups),
        shared_names=tuple(name for name in shared if len(shared[name]) > 1),
    )


def _nodes(records: Iterable[Record]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(item.node for item in records))


def _facts_apart(
    records: Sequence[Record], most: Sequence[Record]
) -> tuple[Apart, ...]:
    """Return the facts of records that none of most shares."""
    usual = defaultdict(set)
    for item in most:
        for name, value in item.facts.items():
            usual[name].add(value)
    facts = dict.fromkeys(fact for item in records for fact in item.facts.items())
    return tuple(
        Apart(name, value, min(usual[name]) if len(usual[name]) == 1 else None)
        for name, value in sorted(
            facts, key=lambda fact: [part not in fact[0] for part in _LIKELY]
        )
        if value not in usual[name]
    )
