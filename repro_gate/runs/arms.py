"""The arms: the flags, environment and seed of a run. Also finds flags that were not effective when
read back. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from repro_gate.runs.flags import (
    ALSO_EFFECTIVE,
    HASH_SEED,
    IN_ENVIRONMENT,
    IN_PROCESS,
    ONLY_READ,
    WARN_ONLY,
    FlagValue,
)
from repro_gate.spec.model import Spec


@dataclass(frozen=True)
class Arm:
    """The settings of a run. `flags` are set inside the process, `environment` before it starts.
    `steps`, if set, overrides the spec's."""

    name: str  # `deterministic`, `default`, `reseeded`
    seed: int
    flags: Mapping[str, FlagValue] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    steps: int | None = None


def deterministic(
    seed: int,
    allow: frozenset[str],
    steps: int | None,
) -> Arm:
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


def reseeded(
    seed: int,
    allow: frozenset[str],
    steps: int,
) -> Arm:
    """Return the arm with the flags on and another seed, for a few steps: the control that must
    differ."""
    # The other seed must fit the same types as the first (a C `int`, for example).
    other = seed + 1 if seed < 2**31 - 1 else seed - 1
    return replace(deterministic(other, allow, steps), name="reseeded")


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
    if "torch.use_deterministic_algorithms" in arm.flags:
        expected[WARN_ONLY] = False
    if "TORCHINDUCTOR_DETERMINISTIC" in arm.environment:
        expected[ONLY_READ] = True
    wrong = {}
    for name, value in expected.items():
        read = settings.get(name, value)
        if name != HASH_SEED and read not in (value, *ALSO_EFFECTIVE.get(name, ())):
            wrong[name] = read, value
    return wrong


def _seeded(seed: int) -> dict[str, str]:
    return {"PL_GLOBAL_SEED": str(seed), "PL_SEED_WORKERS": "1"}
