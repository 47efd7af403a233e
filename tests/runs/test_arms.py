"""Claims about `runs.arms`: what each arm sets, and which readings count as effective."""

from __future__ import annotations

import pytest

from repro_gate.runs import arms, flags

ON = arms.deterministic(42, frozenset(), None)
EFFECTIVE = {**ON.flags, **ON.environment, flags.WARN_ONLY: False, flags.ONLY_READ: True}
SET = [*flags.IN_PROCESS, *flags.IN_ENVIRONMENT]


def test_a_flag_is_effective_as_set_or_by_what_does_the_same() -> None:
    assert arms.not_effective(EFFECTIVE, ON) == {}
    others = [*((name, None) for name in flags.IN_ENVIRONMENT), (flags.WARN_ONLY, True)]
    for name in (*SET, flags.ONLY_READ):
        was = EFFECTIVE[name]
        others.append((name, not was if isinstance(was, bool) else "something else"))
    for name, other in others:
        wrong = arms.not_effective({**EFFECTIVE, name: other}, ON)
        assert wrong == {name: (other, EFFECTIVE[name])}
    for name, values in flags.ALSO_EFFECTIVE.items():
        assert arms.not_effective({**EFFECTIVE, name: values[0]}, ON) == {}
    for name in flags.FLAGS:  # which this torch does not have
        read = {key: value for key, value in EFFECTIVE.items() if key != name}
        assert arms.not_effective(read, ON) == {}
    for name in SET:
        arm = arms.deterministic(42, frozenset({name}), None)
        assert name not in {**arm.flags, **arm.environment}
        assert name not in arms.not_effective({**EFFECTIVE, name: "off"}, arm)


def test_the_default_condition_sets_the_seed_and_no_flag() -> None:
    arm = arms.default(7, None)
    variables = {"PL_GLOBAL_SEED": "7", "PL_SEED_WORKERS": "1"}
    assert (arm.flags, arm.environment, arm.seed) == ({}, variables, 7)
    assert arms.not_effective(dict.fromkeys(flags.FLAGS, "whatever"), arm) == {}


@pytest.mark.parametrize("seed", [0, 42, 2**31 - 2, 2**31 - 1, 2**32 - 1])
def test_the_reseeded_arm_has_another_seed_that_fits_every_generator(seed: int) -> None:
    arm = arms.reseeded(seed, frozenset({"NCCL_ALGO"}), 2)
    like = arms.deterministic(seed, frozenset({"NCCL_ALGO"}), None)
    assert arm.flags == like.flags and arm.steps == 2
    assert arm.seed != seed and 0 <= arm.seed < (2**31 if seed < 2**31 else 2**32)
    assert dict(arm.environment.items() - like.environment.items()).keys() == {
        "PYTHONHASHSEED",
        "PL_GLOBAL_SEED",
    }
