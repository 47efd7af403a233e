"""Checks of category `random-state`: were the flags effective, and does the seed, and nothing else,
steer every draw?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from repro_gate.checks.interface import (
    Evidence,
    EvidenceLine,
    Finding,
    check,
    diverged_before,
    failed,
    missing,
    noticed,
    passed,
    skipped,
)
from repro_gate.checks.refused import lines_of
from repro_gate.compare.distances import Key, key_of
from repro_gate.compare.model import Divergence
from repro_gate.compare.traces import first_difference, processes
from repro_gate.runs.arms import not_effective, wanted
from repro_gate.runs.ending import NO_DETERMINISTIC
from repro_gate.runs.flags import WARN_ONLY, moot
from repro_gate.runs.launch import Run
from repro_gate.runs.variation import left_alike
from repro_gate.trace.blocks import Block
from repro_gate.trace.fields import Location
from repro_gate.trace.format import BY_LIBRARY
from repro_gate.trace.model import LoaderSeen, Trace

ALGORITHMS = "torch.use_deterministic_algorithms"


@check(
    "random-state/flags",
    "Every flag, read back at every step of every deterministic run, had the value that the gate "
    "set.",
)
def flags_effective(evidence: Evidence) -> Finding:
    """Readings of all flags at the end of every step; a flag that was off for part of a step alone
    is worth a notice."""
    runs = _deterministic(evidence)
    readings = sum(len(trace.steps) for run in runs for trace in run.traces)
    if not readings:
        return skipped("no step was taken under the flags")
    lines, moot_lines, late_lines = undone_lines(runs)
    if lines:
        remedy = (
            "remove the line; if the flag must stay as it is there, name it under "
            "determinism.allow with a reason"
        )
        return failed("training code changed a determinism flag", lines, remedy)
    if not any(settings for run in runs for trace in run.traces for settings in trace.settings):
        return skipped("the training does not use torch, so no flag of torch was read back")
    if late_lines:
        message = (
            "training code changed a variable after its library had read it, which changes nothing "
            "but for processes that it starts"
        )
        return noticed(message, late_lines, "leave the variable alone")
    undone = [
        (item, trace)
        for run in runs
        for trace in run.traces
        if trace.trained
        for item in trace.undone
        if item.step >= 0
    ]
    counting = [
        item for item, trace in undone if not item.late and not moot(item.flag, trace.facts, {})
    ]
    for_a_while = sorted(
        {
            EvidenceLine(
                f"{item.flag} set to {item.value}, in step {item.step}",
                Location(item.file, item.line),
            )
            for item in counting
        },
        key=str,
    )
    if for_a_while:
        message = "training code changed a determinism flag and set it back within a step"
        return noticed(
            message,
            for_a_while,
            "leave the flag alone, or name it under determinism.allow with a reason",
        )
    return passed(
        f"every flag that counts here read back as set, at each of {readings} steps", moot_lines
    )


def undone_lines(
    runs: Sequence[Run],
) -> tuple[tuple[EvidenceLine, ...], tuple[EvidenceLine, ...], tuple[EvidenceLine, ...]]:
    """A line for each flag that was read at another value: those that count, of libraries not used,
    changed after its library read it."""
    lines, moot_lines, late_lines = (
        dict[EvidenceLine, None](),
        dict[EvidenceLine, None](),
        dict[EvidenceLine, None](),
    )
    for run in runs:
        for trace in run.traces:
            first: dict[str, tuple[int, object, str]] = {}
            for mark in trace.steps:
                settings = trace.settings[mark.flags]
                for flag, value in not_effective(settings, run.plan.arm).items():
                    first.setdefault(flag, (mark.step, value, moot(flag, trace.facts, settings)))
            for flag, (step, value, why) in first.items():
                by = [item for item in trace.undone if flag.startswith(item.flag)]
                at = next((Location(item.file, item.line) for item in by if item.file), None)
                text = (
                    f"{flag} is {'not set' if value is None else value} from step {step} on, and "
                    f"the gate wants {wanted(flag, run.plan.arm)}"
                )
                late = bool(by) and all(item.late for item in by)
                seen = EvidenceLine(f"{text}; {why}" if why else text, at)
                (moot_lines if why else late_lines if late else lines)[seen] = None
    return tuple(lines), tuple(moot_lines), tuple(late_lines)


@check(
    "random-state/generators",
    "The states of all generators were equal in both runs, from the start to the end.",
)
def generators_equal(evidence: Evidence) -> Finding:
    """Digests of the states of Python's, NumPy's, torch's and every CUDA device's generator,
    compared at every step."""
    tally = evidence.comparison.by_kind.get("rng") if evidence.comparison else None
    if tally is None or evidence.comparison is None:
        return skipped("no generator state was recorded")
    first = evidence.comparison.first_divergence
    if not tally.differing:
        return passed(
            f"{tally.tensors} generators were in the same state in both runs, at every step"
        )
    if first is not None and first.kind == "rng":
        remedy = "something draws a number of values, or seeds, that depends on more than the seed"
        return failed(
            f"the {first.name} generator's state differs from step {first.step} on",
            (f"step {first.step}",),
            remedy,
        )
    if first is not None:
        return diverged_before("generator states differ", "generators", tally, first)
    message = (
        "generators were in different states in the two runs, and no recorded number depends on it"
    )
    remedy = (
        "find what draws in the background (a thread, a signal handler), or give it a generator of "
        "its own"
    )
    return noticed(message, _generators_apart(evidence.pair), remedy)


def _generators_apart(pair: Sequence[Run]) -> list[str]:
    """Each generator whose state differs between two runs, with the first step in which it does."""
    first: dict[str, int] = {}
    for label, block, item in _compared(pair[0], pair[1]):
        if item is not None and block.kind == "rng":
            first.setdefault(item.name if label == "main" else f"{label}: {item.name}", item.step)
    return [
        f"{name}: differs from step {step} on" if step >= 0 else f"{name}: differs from the start"
        for name, step in first.items()
    ]


@check("random-state/seed-reach", "Under another seed every generator started from another state.")
def seed_reaches_all(evidence: Evidence) -> Finding:
    """The first recorded state of each generator in the first run and in the reseeded control; one
    that is equal was seeded by the code."""
    if evidence.control is None or not evidence.pair:
        return skipped("the reseeded control did not run to its end")
    shared = _reached(evidence.pair[0], evidence.control)
    if not shared:
        return skipped("no generator state was recorded in both")
    fixed = [name for name, reached in shared.items() if not reached]
    if fixed and reseeded_differs.look(evidence).kind == "missing":
        return skipped("nothing differs under another seed: random-state/reseeded says so", fixed)
    if fixed:
        seeds = f"{evidence.pair[0].plan.arm.seed} and {evidence.control.plan.arm.seed}"
        return missing(
            f"the seed does not reach {len(fixed)} of {len(shared)} generators: they started from "
            f"the same state under the seeds {seeds}",
            fixed,
            "the code seeds them with a number of its own: take the seed from the command line and "
            "write `{seed}` into train.run",
        )
    names = list(dict.fromkeys(name.rpartition(": ")[2] for name in shared))
    return passed(f"another seed gave every generator another state: {', '.join(names)}", names)


def _reached(run: Run, control: Run) -> dict[str, bool]:
    """The generators that both recorded, with their process where there are several, and whether
    they started from other states."""
    ours, theirs = processes(run.traces), processes(control.traces)
    states = {
        label: (first_states(ours[label]), first_states(theirs[label]))
        for label in ours
        if label in theirs
    }
    return {
        name if len(states) == 1 else f"{label}: {name}": one[name] != other[name]
        for label, (one, other) in states.items()
        for name in one
        if name in other
    }


def first_states(trace: Trace) -> dict[str, bytes]:
    """The digest of each generator's state where it was first recorded, by the generator's name."""
    states: dict[str, bytes] = {}
    for block in trace.blocks:
        if block.kind == "rng":
            for place, row in enumerate(block.rows):
                states.setdefault(row[0], block.digest(place))
    return states


@check(
    "random-state/reseeded",
    "The control run with another seed gave other bits: the gate looks at something, and the seed "
    "reaches it.",
)
def reseeded_differs(evidence: Evidence) -> Finding:
    """Everything that both recorded but the generators' own states: for a training that ignores its
    seed, one seed alone is shown."""
    if evidence.control is None or evidence.control_comparison is None or not evidence.pair:
        return skipped("the reseeded control did not run to its end")
    first, seed = evidence.pair[0], evidence.control.plan.arm.seed
    blocks = [found for found in _compared(first, evidence.control) if found[1].kind != "rng"]
    if not blocks:
        return skipped("the reseeded control recorded nothing that the first run recorded too")
    differing, noisy = (
        _differing(blocks),
        _differing(_compared(*evidence.pair[:2]) if len(evidence.pair) > 1 else ()),
    )
    digests = sum(len(block.rows) for _, block, _ in blocks)
    seeds = f"seeds {first.plan.arm.seed} and {seed}"
    compared = (
        f"{seeds}: {digests} digests compared, in {len(blocks)} blocks, {len(differing)} of which "
        "differ"
    )
    if not differing:
        return missing(
            f"a run with another seed ({seed}) gave the same bits: the seed does not reach the "
            "training",
            (compared,),
            "the script sets a seed of its own, or draws nothing at random: take the seed from the "
            "command line and write `{seed}` into train.run, so that reproducing under one seed "
            "says something about others",
        )
    if differing <= noisy:
        message = (
            "two runs with one seed differ in all that differs under another seed, so nothing "
            "shows that the seed reaches the training"
        )
        return skipped(message, (compared,))
    return passed(f"another seed ({seed}) gave other bits, as it must", (compared,))


def _differing(compared: Iterable[tuple[str, Block, Divergence | None]]) -> set[tuple[str, Key]]:
    """(process, key) of the blocks that differ."""
    return {(label, key_of(block)) for label, block, item in compared if item is not None}


def _compared(run: Run, control: Run) -> Iterator[tuple[str, Block, Divergence | None]]:
    """(process, the control's block, how it differs) of everything that both recorded in the steps
    that both took: behind its last step a run records the state in which it ended. What one lacks
    is no difference: the short control ends with digests that `capture.every` leaves out of the
    long run."""
    first = processes(run.traces)
    for label, trace in processes(control.traces).items():
        blocks = {key_of(block): block for block in first[label].blocks} if label in first else {}
        steps = len(trace.steps), len(first[label].steps) if label in first else 0
        for block in trace.blocks:
            key = key_of(block)
            if key in blocks and (steps[0] == steps[1] or block.step < min(steps)):
                yield label, block, first_difference(label, {key: blocks[key]}, block)


@check(
    "random-state/workers",
    "The worker processes of every DataLoader were given the same base seed in both runs.",
)
def workers_seeded(evidence: Evidence) -> Finding:
    """torch seeds worker N of a loader with base seed + N: Python's generator, NumPy's and
    torch's."""
    if len(evidence.pair) < 2:
        return skipped("no two runs could be compared")
    first, second = map(_loaders, evidence.pair[:2])
    names = [
        name
        for name in dict.fromkeys([*first, *second])
        if any(name in side and side[name].workers for side in (first, second))
    ]
    if not names:
        return skipped("no DataLoader drew in worker processes")
    apart = [
        f"{name}: {_seed_of(one)}, then {_seed_of(two)}"
        for name in names
        if _differs(one := first.get(name), two := second.get(name))
    ]
    if apart:
        remedy = (
            "pass `generator=torch.Generator().manual_seed(seed)` to the DataLoader, and the same "
            "num_workers in every run"
        )
        return failed("DataLoader workers were seeded differently in the two runs", apart, remedy)
    unread = [
        name for name in names if first[name].base_seed is None or second[name].base_seed is None
    ]
    if unread:
        return missing(
            f"the base seed of {len(unread)} of {len(names)} DataLoaders with workers could not be "
            "read",
            unread,
            "use torch.utils.data.DataLoader itself, or name the check under checklist.waive with "
            "the reason why its workers draw nothing",
        )
    message = f"the workers of {len(names)} DataLoaders had the same base seed in both runs"
    return passed(message, [f"{name}: {_seed_of(first[name])}" for name in names])


def _loaders(run: Run) -> dict[str, LoaderSeen]:
    """The DataLoaders of a run, by name: `loader 0`, or `rank1: loader 0` of several processes."""
    traced = processes(run.traces)
    return {
        f"{label}: loader {item.number}" if len(traced) > 1 else f"loader {item.number}": item
        for label, trace in traced.items()
        for item in trace.loaders
    }


def _differs(one: LoaderSeen | None, two: LoaderSeen | None) -> bool:
    """Whether two runs' views of one loader differ; a base seed that one could not read is no
    difference."""
    if one is None or two is None:
        return True
    return one.workers != two.workers or (
        one.base_seed != two.base_seed and None not in (one.base_seed, two.base_seed)
    )


def _seed_of(loader: LoaderSeen | None) -> str:
    if loader is None:
        return "not there"
    return (
        f"{loader.workers} workers from base seed "
        f"{'unknown' if loader.base_seed is None else loader.base_seed}"
    )


@check(
    "random-state/os-entropy",
    "No line of the training drew from the operating system's entropy, which no seed steers.",
)
def no_os_entropy(evidence: Evidence) -> Finding:
    """Draws by lines of the workspace in the deterministic runs: a suspect where the runs diverged,
    a notice where they did not. What a library drew on a line's behalf is a suspect only. Where the
    diagnosis knows which draws decide, it has the word."""
    runs = [run for run in _deterministic(evidence) if any(trace.trained for trace in run.traces)]
    if not runs:
        return skipped("no run was traced")
    drawn = sorted(
        {
            (Location(item.file, item.line), item.source)
            for run in runs
            for trace in run.traces
            for item in trace.drawn
        }
    )
    diverged = evidence.comparison is not None and not evidence.comparison.identical
    sources = {**(evidence.blamed or {}), **dict(drawn)}
    suspects = (
        drawn if evidence.blamed is None else [(where, sources[where]) for where in evidence.blamed]
    )
    remedy = (
        "seed it from the run's seed (`default_rng(seed)`, `random.Random(seed)`); waive the check "
        "if it only names a file"
    )
    if diverged and suspects:
        message = "the runs diverged, and training code drew from the operating system's entropy"
        return failed(message, [EvidenceLine(source, where) for where, source in suspects], remedy)
    lines = [EvidenceLine(source, where) for where, source in drawn if BY_LIBRARY not in source]
    libraries = [EvidenceLine(source, where) for where, source in drawn if BY_LIBRARY in source]
    other = (
        "the runs diverged for another reason" if diverged else "no recorded number depended on it"
    )
    known = "no two runs could be compared" if evidence.comparison is None else other
    if lines:
        return noticed(
            f"training code drew from the operating system's entropy; {known}", lines, remedy
        )
    behalf = f"; libraries did on behalf of {len(libraries)} lines: {known}" if libraries else ""
    return passed(
        f"no line of the training was seen to draw from the operating system's entropy{behalf}",
        libraries,
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
        remedy = (
            "replace the operator, or name torch.use_deterministic_algorithms under "
            "determinism.allow with a reason"
        )
        lines = lines_of(evidence.refused, ended)
        message = (
            f"torch refuses {len(lines)} operators: no deterministic form on this device"
            if len(lines) > 1
            else ended[0].problem
        )
        return failed(message, lines, remedy)
    runs = _deterministic(evidence)
    readings = [
        trace.settings[mark.flags] for run in runs for trace in run.traces for mark in trace.steps
    ]
    if not readings:
        return skipped("no step was taken under the flags")
    if not any(ALGORITHMS in reading for reading in readings):
        return skipped("the training does not use torch")
    off = sum(
        reading.get(ALGORITHMS) is not True or bool(reading.get(WARN_ONLY)) for reading in readings
    )
    if off:
        message = (
            f"torch refused no operator at {off} of {len(readings)} steps, so none was checked"
        )
        return missing(
            message,
            (f"{ALGORITHMS} was off",),
            "leave the flag on, and give what it refuses a deterministic form",
        )
    return passed(f"torch ran {len(readings)} steps and refused no operator", evidence.operators)


@check(
    "random-state/robust",
    "The second deterministic run differed in everything that must not matter, and gave the same "
    "bits.",
)
def robust(evidence: Evidence) -> Finding:
    """What differed in it stands in `robustness.vary`; the evidence says what could not be
    varied."""
    names = evidence.spec.robustness.vary
    if not names:
        return skipped("the spec varies nothing (`robustness: {vary: false}`)")
    if evidence.comparison is None or not evidence.varied:
        return skipped("no varied run could be compared")
    broken = next(
        (item for item in evidence.varied.values() if not item.same and not item.by_chance), None
    )
    if broken is None and any(item.by_chance for item in evidence.varied.values()):
        return skipped(
            "two runs differ, or one of them fails, whether or not anything is varied: see the "
            "reasons"
        )
    unvaried = tuple(f"not varied: {text}" for text in left_alike(names))
    if broken is None:
        return passed(f"the second run was the same with another {', '.join(names)}", unvaried)
    remedy = (
        "make numbers of what the checkout and the spec declare; or leave what has to matter out "
        "of `robustness.vary`"
    )
    if (found := evidence.not_robust) is not None:
        return missing(found.message, found.lines, found.remedy or remedy)
    if broken.comparison is None or (first := broken.comparison.first_divergence) is None:
        return missing(
            f"{broken.run.plan.name}, which is varied, could not be compared: {broken.run.problem}",
            unvaried,
            remedy,
        )
    return missing(
        f"repeatable, but not robust: the varied run diverges at step {first.step} ({first.kind} "
        f"{first.name})",
        unvaried,
        remedy,
    )


def _deterministic(evidence: Evidence) -> tuple[Run, ...]:
    return tuple(run for run in evidence.runs if run.plan.arm.name == "deterministic")
