"""The arms: under which flags, environment and seed a run is started, and which flags were not
effective when read back. Pure."""

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
    """What a run is started under. `flags` are set in the process, `environment` before it; `steps`
    overrides the spec's where set."""

    name: str  # `deterministic`, `default`, `reseeded`
    seed: int
    flags: Mapping[str, FlagValue] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    steps: int | None = None


def deterministic(seed: int, allow: frozenset[str], steps: int | None) -> Arm:
    """Return the arm with every flag on, but those that the spec leaves off."""
    allow |= {"TORCHINDUCTOR_DETERMINISTIC"} if ONLY_READ in allow else set()
    return Arm(
        "deterministic",
        seed,
        {name: value for name, value in IN_PROCESS.items() if name not in allow},
        _seeded(seed)
        | {
            name: value
            for name, value in {**IN_ENVIRONMENT, **_hash_seed(seed)}.items()
            if name not in allow
        },
        steps,
    )


def default(seed: int, steps: int | None) -> Arm:
    """Return the arm with the flags off and the same seed: what the training does in a user's
    shell, where nothing fixes `PYTHONHASHSEED`."""
    return Arm("default", seed, {}, _seeded(seed), steps)


def reseeded(seed: int, allow: frozenset[str], steps: int) -> Arm:
    """Return the arm with the flags on and another seed, for a few steps: the control that must
    differ."""
    # one that fits wherever the first did (a C `int`, say)
    other = seed + 1 if seed < 2**31 - 1 else seed - 1
    return replace(deterministic(other, allow, steps), name="reseeded")


def allowed(spec: Spec) -> frozenset[str]:
    """Return the flags that the spec leaves off."""
    return frozenset(item.flag for item in spec.determinism.allow)


def not_effective(settings: Mapping[str, object], arm: Arm) -> dict[str, object]:
    """Return the flags of the arm that a reading (`settings`) shows at another value: {flag: value
    as read}.

    A flag that the reading lacks is one that this torch does not have. `warn_only` keeps
    nondeterministic kernels, so it counts as off.
    """
    wrong: dict[str, object] = {}
    for name, wanted in {**arm.flags, **arm.environment}.items():
        if name == HASH_SEED or name not in settings:
            continue
        value = settings[name]
        if value != wanted and str(value) not in ALSO_EFFECTIVE.get(name, ()):
            wrong[name] = value
    if "torch.use_deterministic_algorithms" in arm.flags and settings.get(WARN_ONLY):
        wrong[WARN_ONLY] = True
    if (
        "TORCHINDUCTOR_DETERMINISTIC" in arm.environment
        and settings.get(ONLY_READ, True) is not True
    ):
        wrong[ONLY_READ] = settings[ONLY_READ]
    return wrong


def expected_value(name: str, arm: Arm) -> FlagValue | None:
    """Return the value that the arm has for a flag, or for what is read back in its place."""
    derived = {WARN_ONLY: False, ONLY_READ: True}
    return derived.get(name, arm.flags.get(name, arm.environment.get(name)))


def _seeded(seed: int) -> dict[str, str]:
    return {"PL_GLOBAL_SEED": str(seed), "PL_SEED_WORKERS": "1"}


def _hash_seed(seed: int) -> dict[str, str]:
    return {HASH_SEED: str(seed % 2**32)}
