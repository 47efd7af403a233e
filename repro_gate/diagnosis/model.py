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
    """How a pair of runs is done. `steps` is where both are cut off."""

    steps: int
    watch: bool = False
    pinned: frozenset[Unit] = frozenset()
    operators: bool = False
    replay: tuple[str, int] | None = None


@dataclass(frozen=True, kw_only=True)
class Pair:
    """What a pair of runs showed: where it diverged (None: it did not), and what was watched in each run. `failed` says why it could not be
    compared."""

    first: Divergence | None = None
    uses: tuple[tuple[Use, ...], tuple[Use, ...]] = ((), ())
    operators: tuple[tuple[OperatorCall, ...], tuple[OperatorCall, ...]] = ((), ())
    failed: str = ""


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
    runs: int = 0
    seconds: float = 0.0
