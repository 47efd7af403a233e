"""Which run comes next. Pure: `series.py` does the runs.

`gate_runs` and `of_other_ref` are the runs of a series as far as none ends badly; `next_run` walks
through them by these rules:

- A crash ends the series, once the plain second run of that seed has shown whether it repeats.
- A varied run that is not the same as the first of its seed is followed by a plain repeat, which
  decides whether the training diverges.
- If every pair is the same, further pairs of a deterministic and a default run follow until the
  cost is known well enough.
- Two replays measure how far apart the runs of each pair are that diverged.
- With `--fail-fast`, a divergence ends the series; so does data that is not as declared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from repro_gate.compare.cost import needs_more_runs
from repro_gate.compare.heat_map import COLUMNS, state_size
from repro_gate.compare.model import Comparison
from repro_gate.runs import arms
from repro_gate.runs.crashes import crashed_by_itself
from repro_gate.runs.ending import NO_DETERMINISTIC
from repro_gate.runs.launch import RunRequest, RunResult
from repro_gate.runs.results import Results
from repro_gate.spec.model import Spec

CONTROL_STEPS = 2
MEASURED_KINDS = ("batch", "buffer", "gradient", "parameter", "optimizer")
KEPT = 1 << 30  # bytes of tensors that the first run of a replay keeps on disk, about
MEASURED = 200_000  # distances that the second measures: a minute, about
LONG = 300.0  # seconds; a run that takes longer is not done twice more for the sake of a drawing


def gate_runs(spec: Spec, *, control_first: bool = False) -> tuple[RunRequest, ...]:
    """Return the runs of a gate run: deterministic, default, default, deterministic, so that a
    steady drift of the machine falls on both arms alike; the reseeded control, whose step times
    nobody looks at; a deterministic pair for each further seed; and the further deterministic runs
    that the spec asks for."""
    seed, *others = spec.random_state.seeds
    first, second = pair(spec, seed)
    firsts = [first]
    requests = [first, *_default_pair(spec), _varied(spec, second)]
    requests.insert(0 if control_first else len(requests), _control(spec))
    for other in others:
        first, second = pair(spec, other, f"seed{other}-")
        # imported distributions are observed once, since that takes time
        first = replace(first, observe=False)
        firsts.append(first)
        requests += [first, _varied(spec, second)]
    for first in firsts:
        requests += [
            again(first, number) for number in range(3, spec.determinism.repeat + 1)
        ]
    return tuple(requests)


def of_other_ref(spec: Spec) -> tuple[RunRequest, ...]:
    """Return the runs of another ref's checkout: a plain deterministic pair, with a default pair in
    between."""
    first, second = pair(spec, spec.seed, "against-")
    return first, *_default_pair(spec, "against-"), second


def pair(spec: Spec, seed: int, label: str = "") -> tuple[RunRequest, RunRequest]:
    """Return the two deterministic runs of one seed."""
    first = RunRequest(
        name=f"{label}deterministic-1",
        arm=arms.deterministic(seed, arms.allowed(spec), spec.train.steps),
        collect=True,
        keep_final=True,
        observe=True,
    )
    return first, again(first, 2)


def again(first: RunRequest, number: int) -> RunRequest:
    """Return the plain repeat of a first deterministic run that is its seed's `number`-th."""
    name = f"{first.name[:-1]}{number}"
    return replace(first, name=name, second_of=first.name, observe=False)


def next_run(requests: Sequence[RunRequest], results: Results) -> RunRequest | None:
    """Return the run to do next; None if the runs have told all that they can."""
    if results.stopped_early or results.unsound:
        return None
    request = (
        _plain_repeat(results)
        or _planned(requests, results)
        or _for_the_cost(requests, results)
        or _measuring(results)
    )
    return None if request is None else _complete(request, results)


def _complete(request: RunRequest, results: Results) -> RunRequest:
    """Return the request with what it needs of the runs before. A training must not depend on the
    numbers (inodes) of files, so the second run of a pair gets files of its own until that pair has
    been found identical."""
    first = results.by_name.get(request.second_of)
    comparison = results.comparisons.get(request.arm.seed)
    is_default = first is None or request.arm.name == "default"
    return replace(
        request,
        reference=first.traces if first else (),
        own_files=not is_default and not (comparison and comparison.identical),
    )


def _plain_repeat(results: Results) -> RunRequest | None:
    """Return the plain repeat that a varied run asks for which is not the same as the first."""
    for item in results.varied.values():
        first = results.by_name[item.run.request.second_of].request
        if item.same or results.plain_repeats(first.arm.seed):
            continue
        third = again(first, 3)
        why = (
            f"{item.run.name}, which is varied, is not the same as {first.name}: "
            f"{third.name} repeats the first run as it was"
        )
        return replace(third, announcement=why)
    return None


def _planned(requests: Sequence[RunRequest], results: Results) -> RunRequest | None:
    """Return the next of the runs that were asked for. After a crash, only the one that completes
    its pair: plain, since what varies may be why it crashes."""
    waiting = [request for request in requests if request.name not in results.counted]
    broken = results.broken
    if broken is not None:
        seed = broken.request.arm.seed
        tells = crashed_by_itself(broken) and broken.reason_id != NO_DETERMINISTIC
        if not tells or results.plain_repeats(seed):
            return None
        seconds = (
            request
            for request in waiting
            if request.second_of
            and (request.arm.name, request.arm.seed) == ("deterministic", seed)
        )
        second = next(seconds, None)
        return second and replace(second, varied=frozenset())
    request = next(iter(waiting), None)
    if request is not None and request.name in results.by_name:
        # the control ended badly: its note is no reason to lose it
        return replace(request, probe={}, dispensable=False)
    return request


def _for_the_cost(
    requests: Sequence[RunRequest], results: Results
) -> RunRequest | None:
    """Return a run of the next pair for the sake of the cost: if every pair is the same so far, its
    interval is not narrow enough yet, and such runs are no more than those that were asked for."""
    spec = results.spec
    (on, off) = results.timed_runs()
    number = len(off) + 1
    if (
        number > spec.cost.pairs
        or "deterministic-1" not in results.counted
        or not needs_more_runs(on, off, spec.train.warmup)
        or not results.all_alike
        or any(run.arm.name == "default" for run in results.auxiliary)
        or not all(run.good for run in results.runs)
    ):
        return None
    first = results.by_name["deterministic-1"].request
    turns = [
        again(first, number),
        _default(spec, f"default-{number}", dispensable=True),
    ]
    if number % 2 == 0:
        turns.reverse()
    missing = [request for request in turns if request.name not in results.counted]
    if len(missing) < len(turns):  # a plain repeat that was due counts
        return missing[0]
    if len(results.runs) + len(turns) > 2 * len(requests):
        return None
    why = (
        "the cost of the flags is not known well enough yet: "
        "one more run with them and one without"
    )
    return replace(missing[0], announcement=why)


def _measuring(results: Results) -> RunRequest | None:
    """Return a replay of a pair that diverged: of the first such pair from there to the end, of
    others up to a tensor that nothing measured."""
    diverged = [item for item in results.comparisons.items() if not item[1].identical]
    for number, (seed, comparison) in enumerate(diverged):
        first = next(iter(results.pair(seed)), None)
        if first is None or not first.request.keep_final:
            continue
        steps = to_measure(results.spec, comparison, first, whole=number == 0)
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
    """Return two runs up to the last of some steps after the pair of `seed` diverged, the tensors
    of each kept by one, measured by the other."""
    first = RunRequest(
        name=f"replay-1-seed{seed}",
        arm=arms.deterministic(seed, arms.allowed(spec), max((*steps, 0)) + 1),
        keep_steps=steps,
        auxiliary=True,
    )
    return first, replace(first, name=f"replay-2-seed{seed}", second_of=first.name)


def to_measure(
    spec: Spec, comparison: Comparison, first: RunResult, *, whole: bool
) -> tuple[int, ...]:
    """Return the steps at which a replay measures how far two runs are apart. Of the `whole` rest
    of a training: the step of the divergence, and evenly apart after it as many of those recorded
    as a map has columns, within KEPT and MEASURED; that step alone if a run takes longer than LONG,
    or not `whole`. Empty if there is nothing to measure, or it is known."""
    found = comparison.first_divergence
    every = spec.capture.every
    if found is None or found.detail or found.step >= comparison.steps:
        return ()
    later = [
        step
        for step in range(found.step + 1, comparison.steps)
        if step % every == 0 or step == comparison.steps - 1
    ]
    tensors, size = state_size(first.traces, MEASURED_KINDS)
    room = min(KEPT // max(size, 1), MEASURED // max(tensors, 1))
    if not whole or first.ended.seconds >= LONG:
        room = 1
    count = min(len(later), COLUMNS, max(room - 1, 0))
    if not count:
        return (
            (found.step,) if not found.measured and found.kind in MEASURED_KINDS else ()
        )
    evenly = (later[(number + 1) * len(later) // count - 1] for number in range(count))
    return (found.step, *evenly)


def _varied(spec: Spec, second: RunRequest) -> RunRequest:
    return replace(second, varied=frozenset(spec.robustness.vary))


def _default_pair(spec: Spec, label: str = "") -> tuple[RunRequest, ...]:
    """Return the two runs without the flags; none if the spec does not measure the cost."""
    if not spec.cost.measure:
        return ()
    first = replace(_default(spec, f"{label}default-1"), keep_final=True)
    return first, replace(first, name=f"{label}default-2", second_of=first.name)


def _default(spec: Spec, name: str, *, dispensable: bool = False) -> RunRequest:
    arm = arms.default(spec.seed, spec.train.steps)
    return RunRequest(name=name, arm=arm, dispensable=dispensable)


def _control(spec: Spec) -> RunRequest:
    """Return the reseeded run, which notes which operators the training asks for: no other run's
    time or numbers are touched."""
    steps = min(CONTROL_STEPS, spec.train.steps or CONTROL_STEPS)
    arm = arms.reseeded(spec.seed, arms.allowed(spec), steps)
    last = steps - 1
    return RunRequest(
        name="reseeded",
        arm=arm,
        probe={"dispatched": last} if last else {},
        dispensable=bool(last),
    )
