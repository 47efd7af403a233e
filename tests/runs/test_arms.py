"""Claims about `runs.arms`: what each arm sets, and which readings count as effective."""

from __future__ import annotations

import pytest

from repro_gate.runs import arms, flags

ON = arms.deterministic(42, frozenset(), None)
EFFECTIVE = {**ON.flags, **ON.environment, flags.WARN_ONLY: False, flags.ONLY_READ: True}


def test_a_reading_of_what_was_set_is_effective() -> None:
    assert arms.not_effective(EFFECTIVE, ON) == {}


@pytest.mark.parametrize("name", [*flags.IN_PROCESS, *flags.IN_ENVIRONMENT, flags.ONLY_READ])
def test_each_flag_that_reads_otherwise_is_named_with_what_was_read(name: str) -> None:
    other = not EFFECTIVE[name] if isinstance(EFFECTIVE[name], bool) else "something else"
    assert arms.not_effective({**EFFECTIVE, name: other}, ON) == {name: other}


@pytest.mark.parametrize("name", flags.IN_ENVIRONMENT)
def test_a_variable_that_training_removed_is_not_effective(name: str) -> None:
    assert arms.not_effective({**EFFECTIVE, name: None}, ON) == {name: None}


def test_warn_only_counts_as_off() -> None:
    assert arms.not_effective({**EFFECTIVE, flags.WARN_ONLY: True}, ON) == {flags.WARN_ONLY: True}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CUBLAS_WORKSPACE_CONFIG", ":16:8"),
        ("NCCL_ALGO", "Tree"),
        ("NCCL_PROTO", "LL128"),
        ("MKL_CBWR", "COMPATIBLE"),
    ],
)
def test_other_values_that_do_the_same_are_effective(name: str, value: str) -> None:
    assert arms.not_effective({**EFFECTIVE, name: value}, ON) == {}


@pytest.mark.parametrize("name", flags.FLAGS)
def test_a_flag_that_this_torch_does_not_have_is_no_fault(name: str) -> None:
    assert (
        arms.not_effective({key: value for key, value in EFFECTIVE.items() if key != name}, ON)
        == {}
    )


@pytest.mark.parametrize("name", [*flags.IN_PROCESS, *flags.IN_ENVIRONMENT])
def test_an_allowed_flag_is_neither_set_nor_missed(name: str) -> None:
    arm = arms.deterministic(42, frozenset({name}), None)
    assert name not in {**arm.flags, **arm.environment}
    assert name not in arms.not_effective({**EFFECTIVE, name: "off", flags.WARN_ONLY: False}, arm)


def test_the_default_condition_sets_the_seed_and_no_flag() -> None:
    arm = arms.default(7, None)
    assert (arm.flags, arm.environment, arm.seed) == (
        {},
        {"PL_GLOBAL_SEED": "7", "PL_SEED_WORKERS": "1"},
        7,
    )
    pinned = arms.pinned(7, 1)
    assert (pinned.flags, pinned.environment, pinned.steps) == (
        {},
        {**arm.environment, "PYTHONHASHSEED": "7"},
        1,
    )
    assert arms.not_effective(dict.fromkeys(flags.FLAGS, "whatever"), arm) == {}


@pytest.mark.parametrize("seed", [0, 42, 2**31 - 2, 2**31 - 1, 2**32 - 1])
def test_the_reseeded_condition_has_the_same_flags_and_another_seed_that_fits_every_generator(
    seed: int,
) -> None:
    arm = arms.reseeded(seed, frozenset({"NCCL_ALGO"}), 2)
    like = arms.deterministic(seed, frozenset({"NCCL_ALGO"}), None)
    assert arm.flags == like.flags and arm.steps == 2
    assert arm.seed != seed and 0 <= arm.seed < (2**31 if seed < 2**31 else 2**32)
    differing = {
        name for name in arm.environment if arm.environment[name] != like.environment[name]
    }
    assert differing == {"PYTHONHASHSEED", "PL_GLOBAL_SEED"}
