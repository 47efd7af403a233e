"""Checks of category `random-state`: were the flags effective, and does the seed alone decide every
random draw?"""

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
from repro_gate.escape import counted
from repro_gate.runs.arms import not_effective
from repro_gate.runs.ending import NO_DETERMINISTIC
from repro_gate.runs.flags import ALGORITHMS, WARN_ONLY, moot
from repro_gate.runs.launch import RunResult
from repro_gate.runs.variation import left_alike
from repro_gate.trace.blocks import Block
from repro_gate.trace.format import BY_LIBRARY

_Shared = tuple[str, Block, Block]
_UNREAD = "that could not be read"
_NO_CONTROL = "no reseeded control run ended well"


@check(
    "random-state/flags",
    "Every flag, read back at every step of every deterministic run, had the value that the gate "
    "set.",
)
def flags_effective(evidence: Evidence) -> Finding:
    """Check the readings of all flags at the end of every step. A flag that was off only within a
    step, or after its library had read it, is a notice."""
    traces = [trace for _, trace in evidence.deterministic]
    count = sum(len(trace.steps) for trace in traces)
    if not count:
        return skipped("no step was taken under the flags")
    changed = _changed_flags(evidence)
    if changed["in force"]:
        return failed(
            "training code changed a determinism flag",
            [*changed["in force"]],
            "remove the line; if the training needs it, name the flag under determinism.allow with "
            "a reason",
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
        f"every flag that matters here had the gate's value at each of {counted(count, 'step')}",
        [*changed["moot"]],
    )


def _changed_flags(evidence: Evidence) -> Mapping[str, dict[EvidenceLine, None]]:
    """Return a line for each flag that had a different value, by the consequence: `in force` at the
    end of a step, `moot` (its library was not used) or `without effect` (restored within a step, or
    changed after its library had read it)."""
    changed = defaultdict[str, dict[EvidenceLine, None]](dict)
    for run, trace in evidence.deterministic:
        arm = run.arm
        for item in trace.undone:
            if (
                item.step >= 0
                and not item.late
                and not moot(item.flag, trace.facts, {})
            ):
                text = f"{item.flag} set to {item.value}, in step {item.step}"
                changed["without effect"][at(item, text)] = None
        first = {
            flag: (mark, *values)
            for mark in reversed(trace.steps)
            for flag, values in not_effective(trace.settings[mark.flags], arm).items()
        }
        for flag, (mark, value, wanted) in first.items():
            why = moot(flag, trace.facts, trace.settings[mark.flags])
            text = (
                f"{flag} is {'not set' if value is None else value} from step {mark.step} "
                f"on, but the gate set {wanted}{why and f'; {why}'}"
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
    """Compare the digests of the states of Python's, NumPy's, torch's and every CUDA device's
    generator at every step."""
    comparison = evidence.comparison
    tally = comparison and comparison.by_kind.get("rng")
    if comparison is None or tally is None:
        return skipped("no generator state was recorded")
    if not tally.differing:
        return passed(
            f"{counted(tally.tensors, 'generator', 'were')} in the same state in both runs, at "
            "every step"
        )
    remedy = "find what seeds, or draws a number of values, that depends on more than the seed"
    states = reversed([*_generators(*evidence.pair)])
    first = {name: step for name, step, is_same in states if not is_same}
    return differ(comparison, "rng", "generator states", remedy) or noticed(
        "generators were in different states in the two runs, but no recorded number depends on it",
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
    control. If it is equal, the code seeded that generator with a constant."""
    control = evidence.control
    if control is None or not evidence.pair:
        return skipped(_NO_CONTROL)
    first = evidence.pair[0]
    states = reversed([*_generators(first, control)])
    started = {name: is_same for name, _, is_same in states}
    if not started:
        return skipped("no generator state was recorded in both runs")
    fixed = [name for name in sorted(started) if started[name]]
    if fixed and reseeded_differs.look(evidence).kind == "missing":
        return skipped(
            "nothing differs under another seed: random-state/reseeded says so", fixed
        )
    if fixed:
        return missing(
            f"the seed does not reach {len(fixed)} of {counted(len(started), 'generator')}: they "
            f"started from the same state under the seeds {first.arm.seed} and "
            f"{control.arm.seed}",
            fixed,
            "the code seeds them with a constant: take the seed from the command line, and write "
            "`{seed}` into train.run",
        )
    return passed(
        f"another seed gave each of {counted(len(started), 'generator')} a different state",
        sorted(started),
    )


def _generators(run: RunResult, control: RunResult) -> Iterator[tuple[str, int, bool]]:
    """Yield (generator, step, whether the states are equal) for each state that both runs
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
    """Compare everything that both runs recorded except generator states. If nothing differs, the
    training ignores the seed, and the gate has tested only one."""
    control = evidence.control
    if control is None or not control.good or not evidence.pair:
        return skipped(_NO_CONTROL)
    first = evidence.pair[0]
    seed = control.arm.seed
    compared = [item for item in _shared(first, control) if item[1].kind != "rng"]
    if not compared:
        return skipped(
            "the reseeded control run and the first run recorded nothing in common"
        )
    differing = _differing(compared)
    noisy = _differing(_shared(*evidence.pair)) if len(evidence.pair) > 1 else set()
    blocks = counted(len(compared), "block")
    counts = f"{blocks} of digests compared, {len(differing)} of which differ"
    lines = [f"seeds {first.arm.seed} and {seed}: {counts}"]
    if not differing:
        return missing(
            f"a run with another seed ({seed}) gave the same bits: the seed does not reach the "
            "training",
            lines,
            "the script sets its own seed, or draws nothing at random: take the seed from the "
            "command line, and write `{seed}` into train.run, so that the result holds for other "
            "seeds too",
        )
    if differing <= noisy:
        return skipped(
            "two runs with the same seed differ as much as two with different seeds, so nothing "
            "shows that the seed reaches the training",
            lines,
        )
    return passed(f"another seed ({seed}) gave different bits, as it must", lines)


def _differing(shared: Iterable[_Shared]) -> set[tuple[str, Key]]:
    """Return (process, key) of the blocks that differ."""
    return {
        (label, key_of(ours))
        for label, ours, theirs in shared
        if (ours.digests, ours.rows) != (theirs.digests, theirs.rows)
    }


def _shared(run: RunResult, control: RunResult) -> Iterator[_Shared]:
    """Yield (process, block of the run, block of the control) for everything that both recorded in
    their common steps. After its last step a run records its final state, so that step is left out
    if the numbers of steps differ. A block that only one run has is no difference: the short
    control ends with digests that `capture.every` leaves out of the long run."""
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
    """Return the name, with the process in front unless it is the main one."""
    return name if label == "main" else f"{label}: {name}"


@check(
    "random-state/workers",
    "The worker processes of every DataLoader were given the same base seed in both runs.",
    PAIR,
)
def workers_seeded(evidence: Evidence) -> Finding:
    """Compare the base seeds: torch seeds the generators of worker N (Python's, NumPy's and
    torch's) with base seed + N."""
    loaders = [(run.name, _loaders(run)) for run in evidence.pair]
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
            "the reason that its workers draw no random numbers",
        )
    return passed(
        f"the workers of {counted(len(same), 'DataLoader')} had the same base seed in both runs",
        [f"{name}: {seed}" for name, seed in same.items()],
    )


def _loaders(run: RunResult) -> dict[str, str]:
    """Return number of workers and base seed of each DataLoader of a run, by its name: `loader 0`,
    `rank1: loader 0`. A loader without workers is left out."""
    return {
        _name(
            label, f"loader {number}"
        ): f"{counted(item.workers, 'worker')} from base "
        f"seed {_UNREAD if item.base_seed is None else item.base_seed}"
        for label, trace in processes(run.traces).items()
        for number, item in enumerate(trace.loaders)
        if item.workers
    }


@check(
    "random-state/os-entropy",
    "No line of the training drew from the operating system's entropy, which no seed steers.",
)
def no_os_entropy(evidence: Evidence) -> Finding:
    """Check the draws by lines of the workspace in the deterministic runs. They are suspects if the
    runs diverged, else a notice. A library's draws on behalf of a line count only as suspects. If
    the diagnosis knows which draws decide, only these count."""
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
            "training code drew from the operating system's entropy, but nothing shows that a "
            "recorded number depends on it",
            own,
            remedy,
        )
    return passed(
        "no line of the training itself was seen to draw from the operating system's entropy",
        lines,
    )


@check(
    "random-state/operators",
    "Every operator of the training has a deterministic form: at every step torch would have "
    "refused any other.",
)
def operators_deterministic(evidence: Evidence) -> Finding:
    """Check that `torch.use_deterministic_algorithms` was on at every step, not only to warn: then
    torch raises at an operator without a deterministic form."""
    ended = [run for run in evidence.runs if run.reason_id == NO_DETERMINISTIC]
    if ended:
        lines = lines_of(evidence.refused, ended)
        return failed(
            f"torch refuses {len(lines)} operators without a deterministic form on this device"
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
            f"torch refused no operator at {len(off)} of {counted(len(readings), 'step')}, so "
            "none was checked",
            (f"{ALGORITHMS} was off",),
            "leave the flag on, and replace the operators that torch refuses",
        )
    return passed(f"torch ran {counted(len(readings), 'step')} and refused no operator")


@check(
    "random-state/robust",
    "The second deterministic run differed in everything that must not matter, and gave the same "
    "bits.",
)
def robust(evidence: Evidence) -> Finding:
    """Compare the varied run. `robustness.vary` lists what differed in it; the evidence names what
    could not be varied."""
    names = evidence.spec.robustness.vary
    if not names:
        return skipped("the spec varies nothing (`robustness: {vary: false}`)")
    if evidence.comparison is None or not evidence.varied:
        return skipped("no varied run could be compared")
    unvaried = [f"not varied: {text}" for text in left_alike(names)]
    if all(item.same for item in evidence.varied.values()):
        return passed(
            f"the second run was the same although these differed: {', '.join(names)}",
            unvaried,
        )
    if not evidence.fragile:
        return skipped(
            "two runs differ, or one of them fails, even if nothing is varied: see the reasons"
        )
    return evidence.not_robust or missing(
        "repeatable, but not robust: a varied run differs",
        [item.run.name for item in evidence.fragile],
        "let results depend only on the checkout and the spec; or take what may matter out of "
        "`robustness.vary`",
    )
