"""What a diagnosis asks of a pair of runs, what it gets, and what it finds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from repro_gate.compare.model import Divergence
from repro_gate.factors import Site


@dataclass(frozen=True, order=True)
class Unit:
    """What is pinned or not as a whole: one factor at one line, or (`site` None) in the whole run."""

    factor: str
    site: Site | None = None


@dataclass(frozen=True, kw_only=True)
class Use:
    """What one line got from one factor during one step: how often, and a digest of the answers.
    `direct`: no library asked on its behalf."""

    process: str
    step: int
    factor: str
    source: str
    site: Site
    call: str
    count: int
    digest: str
    direct: bool = True


@dataclass(frozen=True)
class Line:
    """One execution of a line of the workspace: a digest of the values that it touched, and what is written there."""

    process: str
    step: int
    site: Site
    digest: str
    text: str


@dataclass(frozen=True, kw_only=True)
class OperatorCall:
    """One operator that torch dispatched: digests of its tensors, in order. `count`: which time in the step, from 1.

    `simple`: a view or an element-wise operator, which cannot give two outputs for one input.
    """

    process: str
    name: str
    count: int
    phase: str
    node: str
    site: Site
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    simple: bool = False
    distinct: Mapping[str, int] | None = None


@dataclass(frozen=True, kw_only=True)
class Setting:
    """How a pair of runs is done. `steps` is where both are cut off (None: where the spec says), `step` the one whose operators, or up to
    which lines of the workspace, are recorded."""

    steps: int | None
    pinned: frozenset[Unit] = frozenset()
    operators: bool = False
    lines: bool = False
    replay: tuple[str, int] | None = None
    step: int = 0


@dataclass(frozen=True, kw_only=True)
class Pair:
    """What a pair of runs showed: where it diverged (None: it did not), and what was watched in each run. `steps` is how many they made,
    `failed` says why it could not be compared."""

    first: Divergence | None = None
    steps: int = 0
    uses: tuple[tuple[Use, ...], tuple[Use, ...]] = ((), ())
    lines: tuple[tuple[Line, ...], tuple[Line, ...]] = ((), ())
    operators: tuple[tuple[OperatorCall, ...], tuple[OperatorCall, ...]] = ((), ())
    failed: str = ""


@dataclass(frozen=True)
class Rate:
    """How many pairs of runs with nothing pinned diverged, the gate's own included."""

    diverged: int
    pairs: int


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """The cause of a divergence. `confirmed`: runs agreed with it pinned, or one operator on its own inputs gave several outputs."""

    cause: str
    factor: str | None = None
    op: str | None = None
    call: str = ""
    file: str = ""
    line: int = 0
    confirmed: bool = False
    message: str = ""
    evidence: tuple[str, ...] = ()
    remedy: str = ""
    ruled_out: tuple[str, ...] = ()
    also: tuple[Diagnosis, ...] = field(default=())
    rate: Rate | None = None
    runs: int = 0
    seconds: float = 0.0
