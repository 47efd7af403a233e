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
    traces_of,
)
from repro_gate.checks.refused import lines_of
from repro_gate.compare.distances import Key, key_of
from repro_gate.compare.model import Divergence
from repro_gate.compare.traces import first_difference, processes
from repro_gate.runs.arms import not_effective, wanted
from repro_gate.runs.ending import NO_DETERMINISTIC
from repro_gate.runs.flags import WARN_ONLY, moot
from repro_gate.runs.launch import RunResult
from repro_gate.runs.variation import left_alike
from repro_gate.trace.blocks import Block
from repro_gate.trace.format import BY_LIBRARY
from repro_gate.trace.model import LoaderSeen

ALGORITHMS = "torch.use_deterministic_algorithms"
_Compared = tuple[str, Block, Divergence | None]
_NO_CONTROL = "the reseeded control did not run to its end"


@check(
    "random-state/flags",
    "Every flag, read back at every step of every deterministic run, had the value that the gate "
    "set.",
)
def flags_effective(evidence: Evidence) -> Finding:
    """Readings of all flags at the end of every step; a flag that was off for part of a step alone
    is worth a notice."""
    traces = traces_of(evidence.deterministic)
    count = sum(len(trace.steps) for trace in traces)
    if not count:
        return skipped("no step was taken under the flags")
    changed = _changed_flags(evidence.deterministic)
    if changed["in force"]:
        return failed(
            "training code changed a determinism flag",
            [*changed["in force"]],
            "remove the line; if the flag must stay as it is there, name it under "
            "determinism.allow with a reason",
        )
    if not any(settings for trace in traces for settings in trace.settings):
        return skipped("the training does not use torch, so no flag of torch was read back")
    if changed["late"]:
        return noticed(
            "training code changed a variable after its library had read it, which changes nothing "
            "but for processes that it starts",
            [*changed["late"]],
            "leave the variable alone",
        )
    within_a_step = {
        at(item, f"{item.flag} set to {item.value}, in step {item.step}")
        for trace in traces
        for item in trace.undone
        if item.step >= 0 and not item.late and not moot(item.flag, trace.facts, {})
    }
    if within_a_step:
        return noticed(
            "training code changed a determinism flag and set it back within a step",
            sorted(within_a_step, key=str),
            "leave the flag alone, or name it under determinism.allow with a reason",
        )
    return passed(
        f"every flag that counts here read back as set, at each of {count} steps",
        [*changed["moot"]],
    )


def _changed_flags(runs: Iterable[RunResult]) -> Mapping[str, dict[EvidenceLine, None]]:
    """Return a line for each flag that was read at another value, by what it matters: `in force`,
    `moot` (its library was not used) or `late` (its library had read it before)."""
    changed = defaultdict[str, dict[EvidenceLine, None]](dict)
    for run in runs:
        for trace in run.traces:
            known = set[str]()
            for mark in trace.steps:
                settings = trace.settings[mark.flags]
                for flag, value in not_effective(settings, run.request.arm).items():
                    if flag in known:
                        continue
                    known.add(flag)
                    why = moot(flag, trace.facts, settings)
                    text = (
                        f"{flag} is {'not set' if value is None else value} from step {mark.step} "
                        f"on, and the gate wants {wanted(flag, run.request.arm)}"
                    )
                    text = f"{text}; {why}" if why else text
                    changes = [item for item in trace.undone if flag.startswith(item.flag)]
                    is_late = bool(changes) and all(item.late for item in changes)
                    placed = [item for item in changes if item.file] or changes
                    line = at(placed[0], text) if placed else EvidenceLine(text)
                    changed["moot" if why else "late" if is_late else "in force"][line] = None
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
    finding = differ(
        comparison,
        "rng",
        "generator states",
        "something draws a number of values, or seeds, that depends on more than the seed",
    )
    if finding is not None:
        return finding
    first: dict[str, int] = {}
    for label, block, item in _compared(*evidence.pair[:2]):
        if item is not None and block.kind == "rng":
            first.setdefault(_name(label, item.name), item.step)
    return noticed(
        "generators were in different states in the two runs, and no recorded number depends on it",
        [
            f"{name}: differs from {'the start' if step < 0 else f'step {step} on'}"
            for name, step in first.items()
        ],
        "find what draws in the background (a thread, a signal handler), or give it a generator of "
        "its own",
    )


@check("random-state/seed-reach", "Under another seed every generator started from another state.")
def seed_reaches_all(evidence: Evidence) -> Finding:
    """Compare the first recorded state of each generator in the first run and in the reseeded
    control; one that is equal was seeded by the code."""
    control = evidence.control
    if control is None or not evidence.pair:
        return skipped(_NO_CONTROL)
    first = evidence.pair[0]
    ours, theirs = _first_states(first), _first_states(control)
    shared = [name for name in ours if name in theirs]
    if not shared:
        return skipped("no generator state was recorded in both")
    fixed = [name for name in shared if ours[name] == theirs[name]]
    if fixed and reseeded_differs.look(evidence).kind == "missing":
        return skipped("nothing differs under another seed: random-state/reseeded says so", fixed)
    if fixed:
        return missing(
            f"the seed does not reach {len(fixed)} of {len(shared)} generators: they started from "
            f"the same state under the seeds {first.request.arm.seed} and "
            f"{control.request.arm.seed}",
            fixed,
            "the code seeds them with a number of its own: take the seed from the command line and "
            "write `{seed}` into train.run",
        )
    return passed(f"another seed gave each of {len(shared)} generators another state", shared)


def _first_states(run: RunResult) -> dict[str, bytes]:
    """Return the digest of each generator's state when it was first recorded, by the generator's
    name."""
    states: dict[str, bytes] = {}
    for label, trace in processes(run.traces).items():
        for block in trace.blocks:
            for place, row in enumerate(block.rows if block.kind == "rng" else ()):
                states.setdefault(_name(label, row[0]), block.digest(place))
    return states


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
    first, seed = evidence.pair[0], control.request.arm.seed
    compared = [item for item in _compared(first, control) if item[1].kind != "rng"]
    if not compared:
        return skipped("the reseeded control recorded nothing that the first run recorded too")
    differing = _differing(compared)
    noisy = _differing(_compared(*evidence.pair)) if len(evidence.pair) > 1 else set()
    digests = sum(len(block.rows) for _, block, _ in compared)
    text = (
        f"{digests} digests compared, in {len(compared)} blocks, {len(differing)} of which differ"
    )
    lines = [f"seeds {first.request.arm.seed} and {seed}: {text}"]
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


def _differing(compared: Iterable[_Compared]) -> set[tuple[str, Key]]:
    """Return (process, key) of the blocks that differ."""
    return {(label, key_of(block)) for label, block, item in compared if item is not None}


def _compared(run: RunResult, control: RunResult) -> Iterator[_Compared]:
    """Yield (process, the control's block, how it differs) of everything that both recorded in the
    steps that both took: behind its last step a run records the state in which it ended. What one
    lacks is no difference: the short control ends with digests that `capture.every` leaves out of
    the long run."""
    theirs = processes(control.traces)
    for label, ours in processes(run.traces).items():
        if label not in theirs:
            continue
        blocks = {key_of(block): block for block in ours.blocks}
        steps = {len(ours.steps), len(theirs[label].steps)}
        for block in theirs[label].blocks:
            if key_of(block) in blocks and (len(steps) == 1 or block.step < min(steps)):
                yield label, block, first_difference(label, blocks, block)


def _name(label: str, name: str) -> str:
    """Return a name in a process that is not the only one with the process in front."""
    return name if label == "main" else f"{label}: {name}"


@check(
    "random-state/workers",
    "The worker processes of every DataLoader were given the same base seed in both runs.",
    requirement=PAIR,
)
def workers_seeded(evidence: Evidence) -> Finding:
    """torch seeds worker N of a loader with base seed + N: Python's generator, NumPy's and
    torch's."""
    loaders = {run.request.name: _loaders(run) for run in evidence.pair[:2]}
    every = [item for side in loaders.values() for item in side.items()]
    if not every:
        return skipped("no DataLoader drew in worker processes")
    unread = sorted({name for name, item in every if item.base_seed is None})
    seeds = {
        place: {
            name: f"{item.workers} workers"
            + ("" if name in unread else f" from base seed {item.base_seed}")
            for name, item in side.items()
        }
        for place, side in loaders.items()
    }
    apart = differences([*seeds.items()])
    if apart:
        return failed(
            "DataLoader workers were seeded differently in the two runs",
            apart,
            "pass `generator=torch.Generator().manual_seed(seed)` to the DataLoader, and the same "
            "num_workers in every run",
        )
    if unread:
        return missing(
            f"the base seed of {len(unread)} DataLoaders with workers could not be read",
            unread,
            "use torch.utils.data.DataLoader itself, or name the check under checklist.waive with "
            "the reason why its workers draw nothing",
        )
    same = seeds[evidence.pair[0].request.name]
    return passed(
        f"the workers of {len(same)} DataLoaders had the same base seed in both runs",
        [f"{name}: {seed}" for name, seed in same.items()],
    )


def _loaders(run: RunResult) -> dict[str, LoaderSeen]:
    """Return the DataLoaders of a run that have workers, by name: `loader 0`, `rank1: loader 0`."""
    return {
        _name(label, f"loader {item.number}"): item
        for label, trace in processes(run.traces).items()
        for item in trace.loaders
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
    traces = traces_of(evidence.deterministic)
    if not any(trace.trained for trace in traces):
        return skipped("no run was traced")
    draws = {
        (item.file, item.line, item.source): at(item, item.source)
        for trace in traces
        for item in trace.drawn
    }
    lines = suspects = [draws[place] for place in sorted(draws)]
    if evidence.blamed is not None:
        sources = {line.location: line.text for line in lines}
        suspects = [
            EvidenceLine(sources.get(place, call), place) for place, call in evidence.blamed.items()
        ]
    remedy = (
        "seed it from the run's seed (`default_rng(seed)`, `random.Random(seed)`); waive the check "
        "if it only names a file"
    )
    effect = "no recorded number depended on it"
    if evidence.comparison is None:
        effect = "no two runs could be compared"
    elif not evidence.comparison.identical:
        effect = "the runs diverged for another reason"
        if suspects:
            return failed(
                "the runs diverged, and training code drew from the operating system's entropy",
                suspects,
                remedy,
            )
    own = [line for line in lines if BY_LIBRARY not in line.text]
    if own:
        return noticed(
            f"training code drew from the operating system's entropy; {effect}", own, remedy
        )
    behalf = f"; libraries did on behalf of {len(lines)} lines: {effect}" if lines else ""
    return passed(
        f"no line of the training was seen to draw from the operating system's entropy{behalf}",
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
    traces = traces_of(evidence.deterministic)
    readings = [trace.settings[mark.flags] for trace in traces for mark in trace.steps]
    if not readings:
        return skipped("no step was taken under the flags")
    if not any(ALGORITHMS in reading for reading in readings):
        return skipped("the training does not use torch")
    off = [item for item in readings if item.get(ALGORITHMS) is not True or item.get(WARN_ONLY)]
    if off:
        return missing(
            f"torch refused no operator at {len(off)} of {len(readings)} steps, so none was "
            "checked",
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
        return passed(f"the second run was the same with another {', '.join(names)}", unvaried)
    broken = next((item for item in other if not item.by_chance), None)
    if broken is None:
        return skipped(
            "two runs differ, or one of them fails, whether or not anything is varied: see the "
            "reasons"
        )
    if evidence.not_robust is not None:
        return evidence.not_robust
    first = broken.comparison and broken.comparison.first_divergence
    return missing(
        f"repeatable, but not robust: the varied run diverges at step {first.step} ({first.kind} "
        f"{first.name})"
        if first
        else f"{broken.run.request.name}, which is varied, could not be compared: "
        f"{broken.run.problem}",
        unvaried,
        "make numbers of what the checkout and the spec declare; or leave what has to matter out "
        "of `robustness.vary`",
    )
