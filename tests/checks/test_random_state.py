"""Category `random-state`: were the flags effective, and does the seed steer everything?"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from repro_gate.analysis.compare import compare_runs
from repro_gate.checks.interface import CheckResult
from repro_gate.checks.random_state import flags_effective, generators_equal, reseeded_differs
from repro_gate.runs.conditions import WARN_ONLY
from repro_gate.trace.reader import StepMark, Trace, Undone
from tests.analysis.builders import block, changed, condition, evidence, flip, place_of, run, training

ON: dict[str, Any] = {**condition().flags, **condition().environment}
ALGORITHMS = "torch.use_deterministic_algorithms"


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({}, "pass"),
        ({"CUBLAS_WORKSPACE_CONFIG": ":16:8"}, "pass"),
        ({"OMP_NUM_THREADS": "1"}, "pass"),
        ({ALGORITHMS: False}, "fail"),
        ({WARN_ONLY: True}, "fail"),
        ({"CUBLAS_WORKSPACE_CONFIG": None}, "fail"),
        ({"torch.backends.cudnn.benchmark": True}, "fail"),
    ],
)
def test_flags_must_read_back_as_set(changes: dict[str, Any], status: str) -> None:
    trace = training(settings={**ON, **changes})
    assert flags_effective(evidence(runs=(run("deterministic-1", trace),))).status == status
    assert flags_effective(evidence(runs=(run("default-1", trace),))).status == "skip"


def test_a_flag_that_training_code_undid_is_named_with_its_line() -> None:
    trace = training(settings=ON)
    trace = replace(
        trace,
        settings=[ON, {**ON, ALGORITHMS: False}],
        steps=[*trace.steps[:2], StepMark(2, 1.0, 0.0, 0, 1)],
        undone=[Undone(ALGORITHMS, "False", "train.py", 7, 1)],
    )
    found = flags_effective(evidence(runs=(run("deterministic-1", training(settings=ON)), run("deterministic-2", trace))))
    assert (found.status, found.evidence) == ("fail", (f"{ALGORITHMS} is False from step 2 on, set at train.py:7",))


def test_generators_that_differ_first_fail_and_later_warn() -> None:
    a = training()
    rng = changed(a, place_of(a, 1, "rng"), flip(1))
    both = changed(rng, place_of(a, 0, "gradient"), flip(0))
    found: dict[str, CheckResult] = {}
    for b, status in ((a, "pass"), (rng, "fail"), (both, "warn")):
        found[status] = generators_equal(evidence(comparison=compare_runs([a], [b])))
        assert found[status].status == status
    assert "the torch generator's state differs from step 1 on" in found["fail"].message
    assert generators_equal(evidence()).status == "skip"


def reseeded(first: Trace, control: Trace) -> CheckResult:
    """The check's result for these two."""
    return reseeded_differs(
        evidence(
            pair=(run("deterministic-1", first),), control=run("reseeded", control), control_comparison=compare_runs([first], [control])
        )
    )


def test_another_seed_must_give_other_bits() -> None:
    assert reseeded(training(seed=1), training(2, seed=2)).status == "pass"
    assert reseeded(training(seed=1), training(2, seed=1)).status == "warn"
    assert reseeded_differs(evidence()).status == "skip"


def test_another_state_of_the_generators_alone_is_not_other_bits() -> None:
    a = training(2)
    assert reseeded(a, changed(a, place_of(a, 0, "rng"), flip(0))).status == "warn"


def test_digests_that_only_the_short_control_has_are_not_other_bits() -> None:
    """With `capture.every: 10` the long run has no digest at step 1, which is the control's last."""
    a = training(12)
    a = replace(a, blocks=[item for item in a.blocks if item.step in (-1, 0, 10)])
    control = replace(training(2), blocks=[item for item in a.blocks if item.step < 1] + [block(1, "parameter")])
    assert reseeded(a, control).status == "warn"
