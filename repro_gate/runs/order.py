"""The order of the runs of one gate run, and what each is started as. Pure: `series.py` does them.

Deterministic, default, default, deterministic, and so on, so that a steady drift of the machine
falls on both arms alike; then the reseeded control, a deterministic pair for each further seed, and
the further deterministic runs of each seed that the spec asks for; at last further pairs of a
deterministic and a default run, one after the other, until the cost is known well enough
(`further_pair`). Where something else is still going on, the control is first: nobody looks at its
step times. The second deterministic run of each seed is varied; what it differs in from the first
must not matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from repro_gate.compare.cost import needs_more_runs
from repro_gate.compare.heat_map import COLUMNS, state_size
from repro_gate.compare.model import Comparison
from repro_gate.runs import arms
from repro_gate.runs.launch import RunRequest, RunResult
from repro_gate.spec.model import Spec
from repro_gate.trace.model import Trace

MEASURED_KINDS = ("batch", "buffer", "gradient", "parameter", "optimizer")
KEPT = 1 << 30  # bytes of tensors that the first run of a replay keeps on disk, about
MEASURED = 200_000  # distances that the second measures: a minute, about
LONG = 300.0  # seconds; a run that takes longer is not done twice more for the sake of a drawing


def gate_runs(
    spec: Spec, control_steps: int, *, control_first: bool = False
) -> tuple[RunRequest, ...]:
    """Every run of a gate run, as far as none ends badly."""
    steps, (seed, *others) = spec.train.steps, spec.random_state.seeds
    varied = frozenset(spec.robustness.vary)
    first, second = pair(spec, seed, varied=varied)
    plans = [first, second]
    if spec.cost.measure:
        before = RunRequest(name="default-1", arm=arms.default(seed, steps), keep_final=True)
        after = replace(before, name="default-2", second_of=before.name)
        plans = [first, before, after, second]
    last = min(control_steps, steps or control_steps) - 1
    # which operators it asks for: no other run's time or numbers are touched
    noted: dict[str, object] = {"dispatched": last} if last else {}
    control = RunRequest(
        name="reseeded", arm=arms.reseeded(seed, arms.allowed(spec), last + 1), probe=noted
    )
    plans.insert(0 if control_first else len(plans), control)
    for other in others:
        plans += pair(spec, other, f"seed{other}-", observe=False, varied=varied)
    firsts = [plan for plan in plans if plan.arm.name == "deterministic" and not plan.second_of]
    plans += [
        again(plan, number)
        for plan in firsts
        for number in range(3, spec.determinism.repeat + 1)
        if again(plan, number) not in plans
    ]
    return tuple(plans)


def further_pair(
    spec: Spec, runs: Sequence[RunResult], planned: int, before: float
) -> list[RunRequest]:
    """The next deterministic and default run for the sake of the cost; none if its interval is
    narrow enough, `cost.pairs` are done, a run ended badly, or the further runs, those behind the
    first `planned`, would take longer than `before`: the seconds of all until then."""
    on, off = timed_runs(spec, runs)
    number = len(off) + 1
    first = next((run.request for run in runs if run.request.name == "deterministic-1"), None)
    if (
        first is None
        or number > spec.cost.pairs
        or not all(run.good for run in runs)
        or not needs_more_runs(on, off, spec.train.warmup)
    ):
        return []
    longest = sum(
        max(run.ended.seconds for run in runs if run.request.arm.name == arm)
        for arm in ("deterministic", "default")
    )
    if sum(run.ended.seconds for run in runs[planned:]) + longest > before:
        return []
    plans = [
        again(first, number),
        RunRequest(name=f"default-{number}", arm=arms.default(first.arm.seed, spec.train.steps)),
    ]
    done = {
        run.request.name for run in runs
    }  # a plain repeat that was asked for, or was due, counts
    return [plan for plan in (plans if number % 2 else plans[::-1]) if plan.name not in done]


def timed_runs(
    spec: Spec, runs: Sequence[RunResult]
) -> tuple[list[Sequence[Trace]], list[Sequence[Trace]]]:
    """The traces of the deterministic runs of the first seed and of the default runs that came to
    their end, as many of each."""
    seed, good = spec.random_state.seeds[0], [run for run in runs if run.good]
    on: list[Sequence[Trace]] = [
        run.traces
        for run in good
        if (run.request.arm.name, run.request.arm.seed) == ("deterministic", seed)
    ]
    off: list[Sequence[Trace]] = [run.traces for run in good if run.request.arm.name == "default"]
    count = min(len(on), len(off), spec.cost.pairs)
    return on[:count], off[:count]


def pair(
    spec: Spec,
    seed: int,
    label: str = "",
    *,
    observe: bool = True,
    varied: frozenset[str] = frozenset(),
) -> tuple[RunRequest, RunRequest]:
    """The two deterministic runs of one seed; `observe` as in Plan, for the first of them, `varied`
    for the second."""
    arm = arms.deterministic(seed, arms.allowed(spec), spec.train.steps)
    first = RunRequest(name=f"{label}deterministic-1", arm=arm, keep_final=True, observe=observe)
    return first, replace(again(first, 2), varied=varied)


def of_other_ref(spec: Spec) -> tuple[RunRequest, ...]:
    """The runs of another ref's checkout: a plain deterministic pair, and a default pair in between
    where the cost is measured."""
    first, second = pair(spec, spec.random_state.seeds[0], "against-")
    if not spec.cost.measure:
        return first, second
    before = RunRequest(
        name="against-default-1",
        arm=arms.default(first.arm.seed, spec.train.steps),
        keep_final=True,
    )
    return first, before, replace(before, name="against-default-2", second_of=before.name), second


def again(first: RunRequest, number: int) -> RunRequest:
    """The plain repeat of a first deterministic run that is its seed's `number`-th."""
    return RunRequest(
        name=f"{first.name[:-1]}{number}", arm=first.arm, keep_final=True, second_of=first.name
    )


def replay(spec: Spec, seed: int, steps: tuple[int, ...]) -> tuple[RunRequest, RunRequest]:
    """Two runs up to the last of some steps after the pair of `seed` diverged, the tensors of each
    kept by one, measured by the other."""
    arm = arms.deterministic(seed, arms.allowed(spec), max(*steps, 0) + 1)
    first = RunRequest(name=f"replay-1-seed{seed}", arm=arm, keep_steps=steps)
    return first, RunRequest(
        name=f"replay-2-seed{seed}", arm=arm, keep_steps=steps, second_of=first.name
    )


def to_measure(
    spec: Spec, comparison: Comparison, first: RunResult, *, whole: bool
) -> tuple[int, ...]:
    """The steps at which a replay measures how far two runs are apart. Of the `whole` rest of a
    training: the step of the divergence, and evenly apart after it as many of those recorded as a
    map has columns, within KEPT and MEASURED; that step alone where a run takes longer than LONG,
    or not `whole`. None where there is nothing to measure, or it is known."""
    found, every = comparison.first_divergence, spec.capture.every
    if found is None or found.detail or found.step >= comparison.steps:
        return ()
    later = [
        step
        for step in range(found.step + 1, comparison.steps)
        if step % every == 0 or step == comparison.steps - 1
    ]
    tensors, size = state_size(first.traces, MEASURED_KINDS)
    room = min(KEPT // max(size, 1), MEASURED // max(tensors, 1))
    wanted = (
        min(len(later), COLUMNS, max(room - 1, 0)) if whole and first.ended.seconds < LONG else 0
    )
    if not wanted:
        return (found.step,) if not found.measured and found.kind in MEASURED_KINDS else ()
    return (
        found.step,
        *(later[(number + 1) * len(later) // wanted - 1] for number in range(wanted)),
    )


def may_take_over(plan: RunRequest, comparison: Comparison | None) -> bool:
    """Whether a run may be given files that the run before it left alone. The second of a pair gets
    files of its own until that pair has been found identical: a training must not depend on the
    numbers (inodes) of files either."""
    return (
        not plan.second_of
        or plan.arm.name == "default"
        or (comparison is not None and comparison.identical)
    )


def completes_pair(plan: RunRequest, crashed: RunRequest) -> bool:
    """Whether a plan is the second deterministic run of the seed whose run crashed."""
    return (
        plan.arm.name == "deterministic"
        and bool(plan.second_of)
        and plan.arm.seed == crashed.arm.seed
    )
