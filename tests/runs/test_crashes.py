"""A crash in one of two runs tells on the training where the training made it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from repro_gate.compare.model import Divergence
from repro_gate.runs.crashes import compare_crashed, crashed_by_itself
from repro_gate.runs.launch import RunResult
from repro_gate.trace.model import Trace
from tests.support.built_traces import apart, changed, flip, place_of, run, training

LOG = (
    'Traceback (most recent call last):\n  File "/tmp/run/workspace/train.py", line 3, in '
    "<module>\n"
)


def crash(
    *traces: Trace, name: str = "deterministic-2", error: str = "IndexError: out of range"
) -> RunResult:
    how = {"outcome": "crashed", "problem": "it exited", "reason_id": "run/crashed"}
    return run(name, *traces, **how, tail=(LOG + error).splitlines())


def cut(trace: Trace, steps: int, end: str | None = "exception") -> Trace:
    """The trace of a process that ended in this step, after its loss."""
    kept = [
        block
        for block in trace.blocks
        if block.step < steps or (block.step == steps and block.kind in ("batch", "rng", "loss"))
    ]
    return replace(trace, steps=trace.steps[:steps], blocks=kept, end=end)


A = training(4)
GOOD = run("deterministic-1", A)


def divergence(first: RunResult, second: RunResult) -> Divergence | None:
    found = compare_crashed(first, second)
    assert found is None or not found.identical
    return found.first_divergence if found else None


def test_equal_runs_of_which_one_crashes_differ_in_how_they_ended() -> None:
    for steps in (0, 2, 4):
        found = divergence(GOOD, crash(cut(A, steps)))
        assert found is not None and (found.step, found.name) == (steps, "steps")
        assert f"after 4 steps, deterministic-2 crashed after {steps} steps" in found.detail
    found = divergence(GOOD, crash())  # it had recorded nothing yet
    assert found is not None and "deterministic-2 crashed after 0 steps" in found.detail


def test_weights_are_not_measured_against_those_of_another_step() -> None:
    found = compare_crashed(
        run("deterministic-1", training(5)), crash(apart(cut(training(5), 3), 2.0, 0.27))
    )
    assert found is not None and (found.weights, found.differing) == ((), 0)
    same = compare_crashed(
        crash(cut(A, 2), name="deterministic-1"),
        crash(apart(cut(training(4, seed=1), 2), 2.0, 0.27)),
    )
    assert same is not None and [item.max_abs for item in same.weights] == [0.27]


@pytest.mark.parametrize(("step", "kind"), [(-1, "parameter"), (1, "gradient"), (2, "batch")])
def test_what_diverged_before_the_crash_or_in_its_step_comes_first(step: int, kind: str) -> None:
    other = cut(changed(A, place_of(A, step, kind), flip(0)), 2)
    for first, second in (
        (GOOD, crash(other)),
        (crash(other, name="deterministic-1"), run("deterministic-2", A)),
        (crash(cut(A, 2), name="deterministic-1"), crash(other)),
    ):
        found = divergence(first, second)
        assert found is not None and (found.step, found.kind) == (step, kind)


def test_two_runs_that_crash_at_one_step_say_nothing_and_at_two_steps_they_do() -> None:
    first, same = crash(cut(A, 2), name="deterministic-1"), cut(A, 2)
    assert divergence(first, crash(same)) is None
    wrote_less = replace(same, blocks=same.blocks[:-1])  # of the last step
    assert divergence(first, crash(wrote_less)) is None
    found = divergence(first, crash(cut(A, 3)))
    assert found is not None and "after 2 steps, deterministic-2 crashed after 3" in found.detail


def test_where_a_launcher_ended_the_other_ranks_does_not_count() -> None:
    other = training(4, key="rank1")
    first = crash(cut(A, 2), cut(other, 3, None), name="deterministic-1")
    assert divergence(first, crash(cut(A, 2), cut(other, 1, None))) is None
    assert divergence(first, crash(cut(A, 2))) is None
    found = divergence(first, crash(cut(A, 1), cut(other, 3, None)))
    assert found is not None and found.step == 1


MACHINE = [
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    "MemoryError",
    "OSError: [Errno 28] No space left on device",
    "torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered",
    "RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable",
    "RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed.",
    "urllib.error.URLError: <urlopen error [Errno -3] Temporary failure in name resolution>",
    "torch.distributed.DistStoreError: Timed out after 31 seconds waiting for clients",
]
OWN = ["RuntimeError: nan in the loss", "AssertionError", "KeyError: 'timeline'"]


@pytest.mark.parametrize("error", [*OWN, *MACHINE])
def test_an_error_of_the_training_is_its_own_and_what_the_machine_lacks_is_not(error: str) -> None:
    second = crash(cut(A, 2), error=error)
    assert crashed_by_itself(second) is (error in OWN)
    assert (divergence(GOOD, second) is not None) is (error in OWN)
    other = cut(changed(A, place_of(A, 1, "loss"), flip(0)), 2)
    proven = divergence(GOOD, crash(other, error=error))
    assert proven is not None and proven.kind == "loss", "what had diverged before"


@pytest.mark.parametrize(
    ("number", "reason", "own"),
    [
        (11, "run/killed", True),
        (6, "run/killed", True),
        (9, "run/killed", False),
        (15, "run/killed", False),
        (11, "run/timeout", False),
        (11, "run/out-of-memory", False),
        (11, "trace/unreadable", False),
    ],
)
def test_an_ending_without_an_error_is_the_trainings_own_where_the_processor_or_abort_raised_it(
    number: int, reason: str, own: bool
) -> None:
    how = {"outcome": "killed", "problem": "it was ended", "reason_id": reason}
    killed = run("deterministic-2", cut(A, 2, None), **how)
    killed = replace(killed, ended=replace(killed.ended, exit_code=128 + number))
    assert crashed_by_itself(killed) is own and (divergence(GOOD, killed) is not None) is own


def test_a_run_that_was_ended_within_the_step_that_diverges_still_diverges_there() -> None:
    """As with --fail-fast, when `train.steps` had stopped the first run."""
    first = run("deterministic-1", replace(A, stopped=True))
    ended = cut(A, 1, None)
    other = changed(ended, place_of(ended, 1, "batch"), flip(0))
    how = {"outcome": "interrupted", "reason_id": "run/ended-early"}
    found = compare_crashed(first, run("deterministic-2", other, **how))
    assert found is not None and found.first_divergence is not None
    assert (found.first_divergence.step, found.first_divergence.kind) == (1, "batch")
