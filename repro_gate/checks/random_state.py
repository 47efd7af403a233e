"""Checks of category `random-state`: were the flags effective, and does the seed, and nothing else,
steer every draw?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from repro_gate.checks.interface import (
    PAIR,
    Evidence,
    EvidenceLine,
    Finding,
    at,
    check,
    differ,
    differences,
    failed,
    missing,
    noticed,
    passed,
    skipped,
)
from repro_gate.checks.refused import lines_of
from repro_gate.compare.distances import Key, key_of
from repro_gate.compare.traces import processes
from repro_gate.runs.arms import expected_value, not_effective
from repro_gate.runs.ending import NO_DETERMINISTIC
from repro_gate.runs.flags import WARN_ONLY, moot
from repro_gate.runs.launch import RunResult
from repro_gate.runs.variation import left_alike
from repro_gate.trace.blocks import Block
from repro_gate.trace.format import BY_LIBRARY

ALGORITHMS = "torch.use_deterministic_algorithms"
_Shared = tuple[str, Block, Block]
_UNREAD = "that could not be read"
_NO_CONTROL = "the reseeded control did not run to its end"


@check(
    "random-state/flags",
    "Every flag, read back at every step of every deterministic run, had the value that the gate "
    "set.",
)
def flags_effective(evidence: Evidence) -> Finding:
    """Readings of all flags at the end of every step; a flag that was off for part of a step alone,
    or too late for its library, is worth a notice."""
    traces = [trace for _, trace in evidence.deterministic]
    count = sum(len(trace.steps) for trace in traces)
    if not count:
        return skipped("no step was taken under the flags")
    changed = _changed_flags(evidence)
    if changed["in force"]:
        return failed(
            "training code changed a determinism flag",
            [*changed["in force"]],
            "remove the line; if the flag must stay as it is there, name it under "
            "determinism.allow with a reason",
        )
    if not any(settings for trace in traces for settings in trace.settings):
        return skipped(
            "the training does not use torch, so no flag of torch was read back"
        )
    if changed["without effect"]:
        return noticed(
            "training code changed a determinism flag within a step, or after its library had read "
            "it",
            [*changed["without effect"]],
            "leave the flag alone, or name it under determinism.allow with a reason",
        )
    return passed(
        f"every flag that counts here read back as set, at each of {count} steps",
        [*changed["moot"]],
    )


def _changed_flags(evidence: Evidence) -> Mapping[str, dict[EvidenceLine, None]]:
    """Return a line for each flag that had another value, by what it matters: `in force` at the end
    of a step, `moot` (its library was not used) or `without effect` (set back within a step, or
    changed after its library had read it)."""
    changed = defaultdict[str, dict[EvidenceLine, None]](dict)
    for run, trace in evidence.deterministic:
        arm = run.request.arm
        for item in trace.undone:
            if (
                item.step >= 0
                and not item.late
                and not moot(item.flag, trace.facts, {})
            ):
                text = f"{item.flag} set to {item.value}, in step {item.step}"
                changed["without effect"][at(item, text)] = None
        first = {
            flag: (mark, value)
            for mark in reversed(trace.steps)
            for flag, value in not_effective(trace.settings[mark.flags], arm).items()
        }
        for flag, (mark, value) in first.items():
            why = moot(flag, trace.facts, trace.settings[mark.flags])
            text = (
                f"{flag} is {'not set' if value is None else value} from step {mark.step} "
                f"on, and the gate wants {expected_value(flag, arm)}{why and f'; {why}'}"
            )
            changes = [item for item in trace.undone if flag.startswith(item.flag)]
            located = [at(item, text) for item in changes if item.file]
            effect = "moot" if why else "in force"
            if not why and changes and all(item.late for item in changes):
                effect = "without effect"
            changed[effect][(*located, EvidenceLine(text))[0]] = None
    return changed


@check(
    "random-state/generators",
    "The states of all generators were equal in both runs, from the start to the end.",
)
def generators_equal(evidence: Evidence) -> Finding:
    """Digests of the states of Python's, NumPy's, torch's and every CUDA device's generator,
    compared at every step."""
    comparison = evidence.comparison
    tally = comparison and comparison.by_kind.get("rng")
    if comparison is None or tally is None:
        return skipped("no generator state was recorded")
    if not tally.differing:
        return passed(
            f"{tally.tensors} generators were in the same state in both runs, at every step"
        )
    remedy = "something draws a number of values, or seeds, that depends on more than the seed"
    states = reversed([*_generators(*evidence.pair[:2])])
    first = {name: step for name, step, is_same in states if not is_same}
    return differ(comparison, "rng", "generator states", remedy) or noticed(
        "generators were in different states in the two runs, and no recorded number depends on it",
        [
            f"{name}: differs from {'the start' if step < 0 else f'step {step} on'}"
            for name, step in first.items()
        ],
        "find what draws in the background (a thread, a signal handler), or give it a generator of "
        "its own",
    )


@check(
    "random-state/seed-reach",
    "Under another seed every generator started from another state.",
)
def seed_reaches_all(evidence: Evidence) -> Finding:
    """Compare the first recorded state of each generator in the first run and in the reseeded
    control; one that is equal was seeded by the code."""
    control = evidence.control
    if control is None or not evidence.pair:
        return skipped(_NO_CONTROL)
    first = evidence.pair[0]
    states = reversed([*_generators(first, control)])
    started = {name: is_same for name, _, is_same in states}
    if not started:
        return skipped("no generator state was recorded in both")
    fixed = [name for name in sorted(started) if started[name]]
    if fixed and reseeded_differs.look(evidence).kind == "missing":
        return skipped(
            "nothing differs under another seed: random-state/reseeded says so", fixed
        )
    if fixed:
        return missing(
            f"the seed does not reach {len(fixed)} of {len(started)} generators: they started from "
            f"the same state under the seeds {first.request.arm.seed} and "
            f"{control.request.arm.seed}",
            fixed,
            "the code seeds them with a number of its own: take the seed from the command line and "
            "write `{seed}` into train.run",
        )
    return passed(
        f"another seed gave each of {len(started)} generators another state",
        sorted(started),
    )


def _generators(run: RunResult, control: RunResult) -> Iterator[tuple[str, int, bool]]:
    """Yield (generator, step, whether it was in the same state) of each state that both runs
    recorded."""
    for label, ours, theirs in _shared(run, control):
        if ours.kind == "rng" and ours.rows == theirs.rows:
            for place, row in enumerate(ours.rows):
                is_same = ours.digest(place) == theirs.digest(place)
                yield _name(label, row[0]), ours.step, is_same


@check(
    "random-state/reseeded",
    "The control run with another seed gave other bits: the gate looks at something, and the seed "
    "reaches it.",
)
def reseeded_differs(evidence: Evidence) -> Finding:
    """Everything that both recorded but the generators' own states: for a training that ignores its
    seed, one seed alone is shown."""
    control = evidence.control
    if control is None or not control.good or not evidence.pair:
        return skipped(_NO_CONTROL)
    first = evidence.pair[0]
    seed = control.request.arm.seed
    compared = [item for item in _shared(first, control) if item[1].kind != "rng"]
    if not compared:
        return skipped(
            "the reseeded control recorded nothing that the first run recorded too"
        )
    differing = _differing(compared)
    noisy = _differing(_shared(*evidence.pair)) if len(evidence.pair) > 1 else set()
    counts = (
        f"{len(compared)} blocks of digests compared, {len(differing)} of which differ"
    )
    lines = [f"seeds {first.request.arm.seed} and {seed}: {counts}"]
    if not differing:
        return missing(
            f"a run with another seed ({seed}) gave the same bits: the seed does not reach the "
            "training",
            lines,
            "the script sets a seed of its own, or draws nothing at random: take the seed from the "
            "command line and write `{seed}` into train.run, so that reproducing under one seed "
            "says something about others",
        )
    if differing <= noisy:
        return skipped(
            "two runs with one seed differ in all that differs under another seed, so nothing "
            "shows that the seed reaches the training",
            lines,
        )
    return passed(f"another seed ({seed}) gave other bits, as it must", lines)


def _differing(shared: Iterable[_Shared]) -> set[tuple[str, Key]]:
    """Return (process, key) of the blocks that differ."""
    return {
        (label, key_of(ours))
        for label, ours, theirs in shared
        if (ours.digests, ours.rows) != (theirs.digests, theirs.rows)
    }


def _shared(run: RunResult, control: RunResult) -> Iterator[_Shared]:
    """Yield (process, block of the run, block of the control) of everything that both recorded in
    the steps that both took: behind its last step a run records the state in which it ended. What
    one lacks is no difference: the short control ends with digests that `capture.every` leaves out
    of the long run."""
    others = processes(control.traces)
    for label, trace in processes(run.traces).items():
        if label not in others:
            continue
        theirs = {key_of(block): block for block in others[label].blocks}
        steps = {len(trace.steps), len(others[label].steps)}
        for block in trace.blocks:
            if key_of(block) in theirs and (len(steps) == 1 or block.step < min(steps)):
                yield label, block, theirs[key_of(block)]


def _name(label: str, name: str) -> str:
    """Return a name in a process that is not the only one with the process in front."""
    return name if label == "main" else f"{label}: {name}"


@check(
    "random-state/workers",
    "The worker processes of every DataLoader were given the same base seed in both runs.",
    PAIR,
)
def workers_seeded(evidence: Evidence) -> Finding:
    """torch seeds worker N of a loader with base seed + N: Python's generator, NumPy's and
    torch's."""
    loaders = [(run.request.name, _loaders(run)) for run in evidence.pair[:2]]
    same = loaders[0][1]
    if not any(seeds for _, seeds in loaders):
        return skipped("no DataLoader drew in worker processes")
    lines = differences(loaders)
    if lines:
        return failed(
            "DataLoader workers were seeded differently in the two runs",
            lines,
            "pass `generator=torch.Generator().manual_seed(seed)` to the DataLoader, and the same "
            "num_workers in every run",
        )
    unread = [name for name, seed in same.items() if seed.endswith(_UNREAD)]
    if unread:
        return missing(
            f"the base seed of {len(unread)} DataLoaders with workers could not be read",
            unread,
            "use torch.utils.data.DataLoader itself, or name the check under checklist.waive with "
            "the reason why its workers draw nothing",
        )
    return passed(
        f"the workers of {len(same)} DataLoaders had the same base seed in both runs",
        [f"{name}: {seed}" for name, seed in same.items()],
    )


def _loaders(run: RunResult) -> dict[str, str]:
    """Return how many workers each DataLoader of a run has, and from which seed, by its name:
    `loader 0`, `rank1: loader 0`. One without workers is left out."""
    return {
        _name(label, f"loader {number}"): f"{item.workers} workers from base seed "
        f"{_UNREAD if item.base_seed is None else item.base_seed}"
        for label, trace in processes(run.traces).items()
        for number, item in enumerate(trace.loaders)
        if item.workers
    }


@check(
    "random-state/os-entropy",
    "No line of the training drew from the operating system's entropy, which no seed steers.",
)
def no_os_entropy(evidence: Evidence) -> Finding:
    """Draws by lines of the workspace in the deterministic runs: a suspect where the runs diverged,
    a notice where they did not. What a library drew on a line's behalf is a suspect only. Where the
    diagnosis knows which draws decide, it has the word."""
    ran = evidence.deterministic
    if not any(trace.trained for _, trace in ran):
        return skipped("no run was traced")
    draws = {at(item, item.source) for _, trace in ran for item in trace.drawn}
    lines = suspects = sorted(draws, key=str)
    if evidence.blamed is not None:
        suspects = [
            EvidenceLine(call, place) for place, call in evidence.blamed.items()
        ]
    remedy = (
        "seed it from the run's seed (`default_rng(seed)`, `random.Random(seed)`); waive the check "
        "if it only names a file"
    )
    comparison = evidence.comparison
    if suspects and comparison is not None and not comparison.identical:
        return failed(
            "the runs diverged, and training code drew from the operating system's entropy",
            suspects,
            remedy,
        )
    own = [line for line in lines if BY_LIBRARY not in line.text]
    if own:
        return noticed(
            "training code drew from the operating system's entropy, and nothing shows that a "
            "recorded number depends on it",
            own,
            remedy,
        )
    return passed(
        "no line of the training was seen to draw from the operating system's entropy by itself",
        lines,
    )


@check(
    "random-state/operators",
    "Every operator of the training has a deterministic form: at every step torch would have "
    "refused any other.",
)
def operators_deterministic(evidence: Evidence) -> Finding:
    """With `torch.use_deterministic_algorithms` on, and not to warn alone, torch raises at such an
    operator; readings say if it was."""
    ended = [run for run in evidence.runs if run.reason_id == NO_DETERMINISTIC]
    if ended:
        lines = lines_of(evidence.refused, ended)
        return failed(
            f"torch refuses {len(lines)} operators: no deterministic form on this device"
            if len(lines) > 1
            else ended[0].problem,
            lines,
            "replace the operator, or name torch.use_deterministic_algorithms under "
            "determinism.allow with a reason",
        )
    readings = [
        trace.settings[mark.flags]
        for _, trace in evidence.deterministic
        for mark in trace.steps
    ]
    if not any(ALGORITHMS in reading for reading in readings):
        return skipped("no step was taken under the flags, or none with torch")
    off = [
        item
        for item in readings
        if item.get(ALGORITHMS) is not True or item.get(WARN_ONLY)
    ]
    if off:
        return missing(
            f"torch refused no operator at {len(off)} of {len(readings)} steps, so none was "
            "checked",
            (f"{ALGORITHMS} was off",),
            "leave the flag on, and give what it refuses a deterministic form",
        )
    return passed(
        f"torch ran {len(readings)} steps and refused no operator", evidence.operators
    )


@check(
    "random-state/robust",
    "The second deterministic run differed in everything that must not matter, and gave the same "
    "bits.",
)
def robust(evidence: Evidence) -> Finding:
    """Compare the varied run: what differed in it stands in `robustness.vary`; the evidence says
    what could not be varied."""
    names = evidence.spec.robustness.vary
    if not names:
        return skipped("the spec varies nothing (`robustness: {vary: false}`)")
    if evidence.comparison is None or not evidence.varied:
        return skipped("no varied run could be compared")
    unvaried = [f"not varied: {text}" for text in left_alike(names)]
    other = [item for item in evidence.varied.values() if not item.same]
    if not other:
        return passed(
            f"the second run was the same with another {', '.join(names)}", unvaried
        )
    if all(item.by_chance for item in other):
        return skipped(
            "two runs differ, or one of them fails, whether or not anything is varied: see the "
            "reasons"
        )
    return evidence.not_robust or missing(
        "repeatable, but not robust: a varied run is not the same",
        [item.run.request.name for item in other],
        "make numbers of what the checkout and the spec declare; or leave what has to matter out "
        "of `robustness.vary`",
    )
