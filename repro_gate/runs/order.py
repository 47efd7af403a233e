"""Decides which run comes next. Pure: `series.py` does the runs.

`gate_runs` and `of_other_ref` return the planned runs of a series. `next_run` goes through them by
these rules:

- A crash ends the series, after a plain second run of that seed has shown whether it repeats.
- If a varied run differs from the first run of its seed, a plain repeat follows and decides
  whether the training diverges.
- If all pairs agree, a run follows in which the flags alternate, and up to two more while the cost
  is not known well enough. If whole runs decide what it is, and the probe takes much of their
  steps, two pairs without digests follow.
- For each diverged pair, two replays measure how far apart its runs are.
- With `--fail-fast` a divergence ends the series. Data that differs from its declaration always
  does.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from repro_gate.compare.cost import DIGESTING, TURNS, needs_another_run
from repro_gate.compare.heat_map import COLUMNS, state_size
from repro_gate.compare.model import Comparison
from repro_gate.escape import counted
from repro_gate.runs import arms
from repro_gate.runs.crashes import crashed_by_itself
from repro_gate.runs.ending import NO_DETERMINISTIC
from repro_gate.runs.launch import Recording, RunRequest, RunResult
from repro_gate.runs.results import UNDIGESTED, Results
from repro_gate.spec.model import Spec

CONTROL_STEPS = 2
MEASURED_KINDS = ("batch", "buffer", "gradient", "parameter", "optimizer")
# of tensors that the first run of a replay saves on disk, about
KEPT_BYTES = 1 << 30
MEASURED_DISTANCES = 200_000  # distances that the second run measures: about a minute
_FINAL = Recording(final=True)
_TIMED_STEPS = 100  # after the warm-up, of a run that only the cost needs
LONG = 300.0  # seconds; a longer run is not repeated twice only to draw a heat map


def gate_runs(spec: Spec, *, control_first: bool = False) -> tuple[RunRequest, ...]:
    """Return the planned runs of a gate run: deterministic, default, default, deterministic, in
    this order so that a steady drift of the machine affects both arms equally; the reseeded
    control, which is not timed; a deterministic pair for each further seed; and the repeats that
    the spec asks for. One deterministic run alone if nothing is to be compared."""
    if spec.determinism.repeat == 1:
        return pair(spec, spec.seed)[:1]
    requests = list[RunRequest]()
    repeats = []
    for seed in spec.random_state.seeds:
        first, second = pair(spec, seed, f"seed{seed}-" if requests else "")
        second = replace(second, varied=frozenset(spec.robustness.vary))
        if requests:
            # Imported distributions are observed once, since that takes time.
            requests += [replace(first, recording=_FINAL), second]
        else:
            requests = [first, *_default_pair(spec), second]
            requests.insert(0 if control_first else len(requests), _control(spec))
        numbers = range(3, spec.determinism.repeat + 1)
        repeats += [again(first, number) for number in numbers]
    return (*requests, *repeats)


def coming(requests: Sequence[RunRequest]) -> str:
    """Return how many runs are planned, about how many trainings' time they take, and how many may
    follow to measure the cost."""
    whole = [request for request in requests if request.arm.name != "reseeded"]
    steps = whole[0].arm.steps
    each = f" of {counted(steps, 'step')}" if steps else ""
    runs = counted(len(requests), "run", "are")
    time = counted(len(whole), "training")
    is_timed = any(request.name == "default-1" for request in requests)
    most = arms.ALTERNATING_RUNS + 4  # with `_undigested`
    more = f"; up to {most} more for the cost" if is_timed else ""
    return f"{runs} coming, together about as long as {time}{each}{more}"


def of_other_ref(spec: Spec, label: str = "against-") -> tuple[RunRequest, ...]:
    """Return the runs of another ref's checkout: a default pair between two plain deterministic
    runs."""
    first, second = pair(spec, spec.seed, label)
    return first, *_default_pair(spec, label), second


def pair(spec: Spec, seed: int, label: str = "") -> tuple[RunRequest, RunRequest]:
    """Return the two deterministic runs of one seed."""
    first = RunRequest(
        name=f"{label}deterministic-1",
        arm=arms.deterministic(seed, arms.allowed(spec), spec.train.steps),
        collect=True,
        recording=replace(_FINAL, distributions=True),
    )
    return first, again(first, 2)


def again(first: RunRequest, number: int) -> RunRequest:
    """Return the `number`-th run of a seed in an arm: a plain repeat of its first run."""
    name = f"{first.name[:-1]}{number}"
    return replace(first, name=name, second_of=first.name, recording=_FINAL)


def next_run(requests: Sequence[RunRequest], results: Results) -> RunRequest | None:
    """Return the run to do next; None if no further run can add anything."""
    if results.stopped_early or results.unsound:
        return None
    request = (
        _plain_repeat(results)
        or _planned(requests, results)
        or _timing(results)
        or _measuring(results)
    )
    first = results.by_name.get(request.second_of) if request else None
    if request is None or first is None:
        return request
    return replace(request, reference=first.traces)


def _plain_repeat(results: Results) -> RunRequest | None:
    """Return a plain repeat for a seed whose varied run differs from its first run; None if no seed
    needs one."""
    for seed, item in results.varied.items():
        if item.same or results.is_repeated(seed):
            continue
        first = results.by_name[item.run.request.second_of].request
        third = again(first, 3)
        why = (
            f"the varied run {item.run.name} differs from {first.name}: {third.name} repeats "
            "the first run unchanged"
        )
        return replace(third, announcement=why)
    return None


def _planned(requests: Sequence[RunRequest], results: Results) -> RunRequest | None:
    """Return the next planned run. After a crash, only the run that completes its pair, unvaried,
    since the variation may have caused the crash."""
    waiting = (request for request in requests if request.name not in results.counted)
    broken = results.broken
    if broken is None:
        request = next(waiting, None)
        if request is not None and request.name in results.by_name:
            # The control ended badly. Do it again without recording operators, which may be the
            # cause.
            return replace(request, probe={}, counts="always")
        return request
    seed = broken.arm.seed
    is_own = crashed_by_itself(broken) and broken.reason_id != NO_DETERMINISTIC
    if is_own and not results.is_repeated(seed):
        for request in waiting:
            arm = request.arm.name, request.arm.seed
            if request.second_of and arm == ("deterministic", seed):
                return replace(request, varied=frozenset())
    return None


def _timing(results: Results) -> RunRequest | None:
    """Return the next run that only the cost needs; None unless all pairs agree."""
    first = results.by_name.get("deterministic-1")
    is_good = results.all_alike and all(run.good for run in results.runs)
    if first is None or not is_good:
        return None
    return _alternating(results, first) or _undigested(results, first)


def _undigested(results: Results, first: RunResult) -> RunRequest | None:
    """Return a run whose timed steps are not digested, one of two pairs; None unless whole runs
    decide, have steps enough, and the probe takes much of a step."""
    cost = results.cost()
    if cost is None or not (
        cost.why and cost.probe_pct > DIGESTING and cost.timed_steps >= 2 * TURNS
    ):
        return None
    spec = results.spec
    steps = min(first.steps, spec.train.warmup + _TIMED_STEPS)
    spec = replace(spec, train=replace(spec.train, steps=steps))
    for request in of_other_ref(spec, UNDIGESTED):
        run = results.by_name.get(request.name)
        if run is None:
            return replace(
                request,
                recording=Recording(),
                collect=False,
                second_of="",
                probe={"every": steps},
                counts="never",
                announcement=f"{request.name}: for the cost, without digests in timed steps",
            )
        if not run.good:
            break
    return None


def _alternating(results: Results, first: RunResult) -> RunRequest | None:
    """Return a run in which the flags alternate; None unless they can, and the cost is not known
    yet."""
    spec = results.spec
    number = len(results.alternating) + 1
    if number > arms.ALTERNATING_RUNS:
        return None
    plan = results.alternation
    blocks = results.blocks
    if (
        isinstance(plan, str)
        or isinstance(blocks, str)
        or not needs_another_run(blocks)
    ):
        return None
    switched = plan.arms[0]
    flags = {it: on for it, on in first.arm.flags.items() if it not in switched}
    return RunRequest(
        name=f"alternating-{number}",
        arm=replace(first.arm, name="alternating", flags=flags, steps=plan.steps),
        probe={
            "alternating": {
                "arms": plan.arms,
                "cycle": plan.cycle,
                "seed": f"{spec.seed} {number}",
            },
            "every": plan.steps + 1,  # Nothing is digested in a timed step.
        },
        counts="never",
        announcement="a run in which the flags alternate from step to step: what they cost",
    )


def _measuring(results: Results) -> RunRequest | None:
    """Return the next replay that a diverged pair needs. The first diverged pair is measured from
    its divergence to the end; later pairs only at their divergence, if its distance is unknown."""
    whole = True
    for seed, comparison in results.comparisons.items():
        first = next(iter(results.pair(seed)), None)
        steps: tuple[int, ...] = ()
        if first is not None and first.request.recording.final:
            steps = to_measure(results.spec, comparison, first, whole=whole)
        whole = whole and comparison.identical
        one, two = replay(results.spec, seed, steps)
        kept = results.by_name.get(one.name)
        if steps and kept is None:
            return one
        if kept is not None and kept.good and two.name not in results.by_name:
            return two
    return None


def replay(
    spec: Spec, seed: int, steps: tuple[int, ...]
) -> tuple[RunRequest, RunRequest]:
    """Return two runs that replay the pair of `seed` up to the last of `steps`: the first saves its
    tensors at these steps, the second measures its distance to them."""
    first = RunRequest(
        name=f"replay-1-seed{seed}",
        arm=arms.deterministic(seed, arms.allowed(spec), max((0, *steps)) + 1),
        recording=Recording(steps=steps),
        counts="never",
    )
    return first, replace(first, name=f"replay-2-seed{seed}", second_of=first.name)


def to_measure(
    spec: Spec, comparison: Comparison, first: RunResult, *, whole: bool
) -> tuple[int, ...]:
    """Return the steps at which a replay measures how far two runs are apart. With `whole`: the
    step of the divergence and evenly spaced recorded steps after it, as many as a heat map has
    columns and as KEPT_BYTES and MEASURED_DISTANCES allow. Without `whole`, or if a run takes
    longer than LONG, only the step of the divergence. Empty if there is nothing to measure, or the
    distance is known."""
    found = comparison.first_divergence
    if found is None or found.detail or found.step >= comparison.steps:
        return ()
    last = comparison.steps - 1
    later = range(found.step + 1, comparison.steps)
    every = spec.capture.every
    recorded = [step for step in later if step % every == 0 or step == last]
    room = most_steps(first, MEASURED_KINDS) - 1
    if not whole or first.ended.seconds >= LONG:
        room = 0
    count = max(min(len(recorded), COLUMNS, room), 0)
    if not count and (found.measured or found.kind not in MEASURED_KINDS):
        return ()
    evenly = ((number + 1) * len(recorded) // count - 1 for number in range(count))
    return (found.step, *(recorded[at] for at in evenly))


def most_steps(run: RunResult, kinds: Collection[str]) -> int:
    """Return at how many steps the tensors of these kinds can be saved, and measured against those
    of another run: as KEPT_BYTES and MEASURED_DISTANCES allow."""
    tensors, size = state_size(run.traces, kinds)
    return min(KEPT_BYTES // max(size, 1), MEASURED_DISTANCES // max(tensors, 1))


def _default_pair(spec: Spec, label: str = "") -> tuple[RunRequest, ...]:
    """Return the two runs without the flags; none if the spec does not measure the cost."""
    if not spec.cost.measure:
        return ()
    first = RunRequest(
        name=f"{label}default-1",
        arm=arms.default(spec.seed, spec.train.steps),
        recording=_FINAL,
    )
    return first, again(first, 2)


def _control(spec: Spec) -> RunRequest:
    """Return the reseeded run. It also records which operators the training calls, so that this
    disturbs no timed or compared run."""
    steps = min(CONTROL_STEPS, spec.train.steps or CONTROL_STEPS)
    last = steps - 1
    return RunRequest(
        name="reseeded",
        arm=arms.reseeded(spec.seed, arms.allowed(spec), steps),
        probe={"calls": last} if last else {},
        counts="if good" if last else "always",
    )
