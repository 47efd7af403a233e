"""The arms: the flags, environment and seed of a run. Also finds flags that were not effective when
read back. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from repro_gate.compare.cost import (
    SETS_FLAGS,
    TOO_SHORT,
    TURNS,
    cycle_of,
    untimed_blocks,
)
from repro_gate.runs.flags import (
    ALGORITHMS,
    ALSO_EFFECTIVE,
    FILL,
    HASH_SEED,
    IN_ENVIRONMENT,
    IN_PROCESS,
    MKLDNN,
    ONLY_READ,
    SWITCHED,
    WARN_ONLY,
    FlagValue,
    in_network,
    moot,
)
from repro_gate.spec.model import Spec
from repro_gate.trace.model import Trace

ALTERNATING_RUNS = 3  # at most
_BLOCKS = 100  # of one alternating run, at most
_HALF = ("float16", "bfloat16")


@dataclass(frozen=True)
class Arm:
    """The settings of a run. `flags` are set inside the process, `environment` before it starts.
    `steps`, if set, overrides the spec's."""

    name: str  # `deterministic`, `default`, `reseeded`
    seed: int
    flags: Mapping[str, FlagValue] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    steps: int | None = None


def deterministic(seed: int, allow: frozenset[str], steps: int | None) -> Arm:
    """Return the arm with all flags on, except those that the spec leaves off."""
    if ONLY_READ in allow:
        allow |= {"TORCHINDUCTOR_DETERMINISTIC"}
    flags = {name: value for name, value in IN_PROCESS.items() if name not in allow}
    environment = _seeded(seed)
    wanted = {**IN_ENVIRONMENT, HASH_SEED: str(seed % 2**32)}
    for name, value in wanted.items():
        if name not in allow:
            environment[name] = value
    return Arm("deterministic", seed, flags, environment, steps)


def default(seed: int, steps: int | None) -> Arm:
    """Return the arm with the flags off and the same seed: what the training does in a user's
    shell, where nothing fixes `PYTHONHASHSEED`."""
    return Arm("default", seed, {}, _seeded(seed), steps)


def reseeded(seed: int, allow: frozenset[str], steps: int) -> Arm:
    """Return the arm with the flags on and another seed, for a few steps: the control that must
    differ."""
    # The other seed must fit the same types as the first (a C `int`, for example).
    other = seed + 1 if seed < 2**31 - 1 else seed - 1
    return replace(deterministic(other, allow, steps), name="reseeded")


@dataclass(frozen=True)
class Alternation:
    """How the flags alternate within one run. `arms` holds, for each arm, the values of the flags
    that are switched: none on, all on, and all but each one of `flags`, if the steps are enough
    for these. A turn takes `cycle` steps, a run `steps`."""

    arms: tuple[Mapping[str, bool], ...]
    flags: tuple[str, ...]
    cycle: int
    steps: int


def alternation(
    spec: Spec,
    on: Sequence[Trace],
    off: Sequence[Trace],
    control: Sequence[Trace],
) -> Alternation | str:
    """Return how the flags of a training can alternate, or why they cannot, from the traces of a
    deterministic run, a default run and the reseeded control."""
    first, default = (
        next((trace for trace in traces if trace.steps), None) for traces in (on, off)
    )
    if first is None or default is None:
        return TOO_SHORT
    read, read_off = (
        trace.settings[trace.steps[-1].flags] for trace in (first, default)
    )
    names = [name for name in SWITCHED if name in read and name not in allowed(spec)]
    if ALGORITHMS not in names:
        names = [name for name in names if name != FILL]  # it does nothing alone
    is_own = any(item.flag in SWITCHED for trace in on for item in trace.undone)
    # torch itself has FILL on, which does nothing alone
    if is_own or any(read_off.get(name) for name in names if name != FILL):
        return SETS_FLAGS
    flags = [
        name
        for name in names
        if name != ALGORITHMS
        and not moot(name, first.facts, read)
        and (name != MKLDNN or _may_call_mkldnn(control))
    ]
    if not flags and ALGORITHMS not in names:
        return "no flag that could be switched is on"
    # a process that ends early ends what can be compared
    steps = min(len(trace.steps) for trace in on if trace.steps)
    cycle = cycle_of(on)
    if not cycle:
        return "its optimizers take turns in no fixed order"
    # in few steps only the figure of all flags together can be had
    for alone in dict.fromkeys((tuple(flags), ())):
        every = dict.fromkeys(names, True)
        arms = [dict.fromkeys(names, False), every]
        arms += [{**every, name: False} for name in alone]
        size = cycle * len(arms)
        untimed = untimed_blocks(size, spec.train.warmup)
        blocks = min(steps // size, _BLOCKS + untimed)
        if (blocks - untimed) * ALTERNATING_RUNS >= TURNS:
            return Alternation(tuple(arms), alone, cycle, blocks * size)
    return TOO_SHORT


def _may_call_mkldnn(control: Sequence[Trace]) -> bool:
    """Return whether a training may call oneDNN, which computes convolutions, and products of
    half precision; True if its operators are unknown."""
    calls = [call for trace in control for call in trace.calls]
    return not calls or any(
        "conv" in call.op or "mkldnn" in call.op or call.dtype in _HALF
        for call in calls
    )


def allowed(spec: Spec) -> frozenset[str]:
    """Return the flags that the spec leaves off."""
    return frozenset(item.flag for item in spec.determinism.allow)


def not_effective(
    settings: Mapping[str, object],
    arm: Arm,
) -> dict[str, tuple[object, FlagValue]]:
    """Return the arm's flags that had a different value when they were read back: {flag: (value as
    read, value as set)}. A flag that is absent from the reading (`settings`) does not exist in this
    torch. `warn_only` permits nondeterministic kernels, so it counts as off.
    """
    expected = {**arm.flags, **arm.environment}
    if ALGORITHMS in arm.flags:
        expected[WARN_ONLY] = False
    if "TORCHINDUCTOR_DETERMINISTIC" in arm.environment:
        expected[ONLY_READ] = True
    wrong: dict[str, tuple[object, FlagValue]] = {}
    for name, value in expected.items():
        read = settings.get(name, value)
        if name == "NCCL_ALGO" and isinstance(read, str):
            if why := in_network(read, settings):
                wrong[name] = f"{read} ({why})", value
        elif name != HASH_SEED and read not in (value, *ALSO_EFFECTIVE.get(name, ())):
            wrong[name] = read, value
    return wrong


def _seeded(seed: int) -> dict[str, str]:
    return {"PL_GLOBAL_SEED": str(seed), "PL_SEED_WORKERS": "1"}
