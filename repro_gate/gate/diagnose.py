"""The diagnosis of a gate run: does the pairs of short runs that the search asks for, and reads
what they showed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from time import monotonic

import msgspec

from repro_gate.compare.nonfinite import nonfinite
from repro_gate.compare.tolerance import outside_tolerance
from repro_gate.diagnosis.diagnose import REPLAYS, Case, diagnose, diagnose_nan
from repro_gate.diagnosis.model import Diagnosis, Exhausted, Experiments, Pair, Setting, ShownUse
from repro_gate.diagnosis.operators import around
from repro_gate.diagnosis.suspects import shown
from repro_gate.escape import clip, for_terminal
from repro_gate.factors import BY_NAME, ENTROPY
from repro_gate.files import Unreadable, read_text
from repro_gate.report.findings import inside
from repro_gate.report.progress import sentence
from repro_gate.runs import arms
from repro_gate.runs.flags import FILL
from repro_gate.runs.gate_folder import GateFolder
from repro_gate.runs.launch import Plan, Run
from repro_gate.runs.progress import Watch
from repro_gate.runs.results import Results
from repro_gate.runs.series import run_series
from repro_gate.spec.model import Spec
from repro_gate.trace import notebook
from repro_gate.trace.fields import Location
from repro_gate.trace.model import OperatorLine, Trace, Undone, Used

LINES = ("line",)  # what the probe calls a line of the workspace among the uses of factors
_AROUND, _SOURCE = 2, 1 << 20  # lines before and behind that of a cause; bytes of its file
_NAN_STEPS = 3  # after which a NaN that comes from memory shows
# seconds: a run that takes no longer is not cut off when something is pinned, so that what diverges
# later is seen too
_SHORT = 30.0
# Seconds that a run may take, or times as long as the gate's own took: where it waits for a clock
# that is pinned, it never ends.
_LONGEST, _TIMES = 60.0, 10.0
# is told of each pair of runs: what it was for, how it was done, what it showed
Seen = Callable[[str, Setting, Pair], None]


def diagnosis_of(
    spec: Spec, folder: GateFolder, results: Results, watch: Watch, seen: Seen = lambda *_: None
) -> Diagnosis | None:
    """Why the deterministic runs of the first seed that diverged did so; None where none did, or
    only within the tolerance, and under `diagnosis: false`."""
    bounds, tolerance = spec.diagnosis, spec.determinism.tolerance
    seed, first = next(
        (
            (seed, item.first_divergence)
            for seed, item in results.comparisons.items()
            if item.first_divergence is not None
        ),
        (0, None),
    )
    if bounds is None or results.interrupted or (first is None and _finite(results.runs)):
        return None
    if (
        first is not None
        and tolerance is not None
        and not outside_tolerance(results.comparisons[seed], tolerance)
    ):
        return None
    began, done = monotonic(), 0
    # the pairs that show what the training asked for, and what torch did for it
    watched = dispatched = Pair()
    longest = max(_LONGEST, _TIMES * max(run.ended.seconds for run in results.runs))
    short = replace(
        spec, train=replace(spec.train, timeout=min(spec.train.timeout, bounds.timeout, longest))
    )

    def pair(setting: Setting) -> Pair:
        nonlocal done, watched, dispatched
        if monotonic() - began > bounds.timeout:
            raise Exhausted
        done += 1
        watch.said(f"diagnosis: {_told(setting)}")
        found = _pair(short, folder, seed, setting, done)
        if setting.operators and setting.replay is None:
            dispatched = found
        elif not (setting.pinned or setting.lines or found.failed or watched.uses[0]):
            watched = found
        watch.said(f"  {_showed(found)}")
        seen(_told(setting), setting, found)
        return found

    experiments = Experiments(pair, bounds.runs // 2)
    if first is None:
        found = (
            diagnose_nan(experiments, _NAN_STEPS)
            if spec.determinism.allow_nonfinite is False
            else None
        )
    else:
        seconds = next(
            (run.ended.seconds for run in results.runs if run.plan.arm.name == "deterministic"),
            _SHORT,
        )
        steps = (
            spec.train.steps
            if seconds < _SHORT or first.kind == "artifact"
            else max(first.step, 0) + 1
        )
        found = diagnose(Case(first=first, undone=_undone(results.runs), steps=steps), experiments)
    if found is None:
        return None
    uses, operators = shown(*watched.uses), around(*dispatched.operators)
    found = replace(
        found,
        uses=uses,
        operators=operators,
        excerpt=_excerpt(folder.snapshot.root, found.file, found.line),
    )
    return replace(found, runs=2 * done, seconds=round(monotonic() - began, 3))


def blamed(found: Diagnosis | None) -> dict[Location, str] | None:
    """Return the lines, each with its call, whose draws from the operating system a diagnosis
    names; None if it proves no other cause."""
    causes = () if found is None else (found, *found.also)
    named: list[Diagnosis | ShownUse] = [
        *causes,
        *(item for cause in causes for item in cause.one_of),
    ]
    lines = {
        Location(item.file, item.line): item.call
        for item in named
        if item.factor == ENTROPY.name and item.file
    }
    return lines if lines or (found is not None and found.confirmed) else None


def _excerpt(root: Path, file: str, line: int) -> tuple[tuple[int, str], ...]:
    """The line and those around it, as the commit has them; empty where the path names no text file
    of the checkout."""
    path, cell = notebook.split(file)
    name = inside(path)
    try:
        text = (
            read_text(root / name, root, notebook.MAX_BYTES if cell else _SOURCE)
            if name is not None and line > 0
            else ""
        )
    except Unreadable:
        return ()
    if cell:
        text = (notebook.code_cells(text.encode())[cell - 1 : cell] or [""])[0]
    lines = text.splitlines()
    first = max(line - _AROUND, 1)
    return (
        tuple(
            (number, clip(text, 300))
            for number, text in enumerate(lines[first - 1 : line + _AROUND], first)
        )
        if line <= len(lines)
        else ()
    )


def _told(setting: Setting) -> str:
    """What a pair of runs is for, in a few words."""
    if setting.replay is not None:
        return f"{setting.replay[0]} again, {REPLAYS} times on its own inputs"
    if setting.operators:
        return "two runs, every operator of the step recorded"
    if setting.lines:
        return "two runs, every line of the training's own code recorded"
    under = " under load, with threads that begin at odd times" * setting.stress
    if not setting.pinned:
        return f"two runs, every use of a factor watched{under}"
    names = sorted(
        f"{unit.factor} at {notebook.place(*unit.site)}" if unit.site else unit.factor
        for unit in setting.pinned
    )
    return f"two runs with {', '.join(names)} held fixed{under}"


def _showed(pair: Pair) -> str:
    if pair.failed:
        return f"they could not be compared: {for_terminal(pair.failed, 300)}"
    return f"they diverge {sentence(pair.first)}" if pair.first is not None else "they agree"


def _pair(spec: Spec, folder: GateFolder, seed: int, setting: Setting, number: int) -> Pair:
    # Names of one length: with addresses held fixed, what is allocated first decides where all else
    # lies.
    plan = _plan(spec, seed, setting, f"diagnosis-{number}a")
    second = replace(plan, name=f"diagnosis-{number}b", second_of=plan.name)
    results = run_series(spec, folder, Watch(), (plan, second), measure=False)
    comparison, runs = results.comparisons.get(seed), results.runs
    if len(runs) < 2 or comparison is None:
        return Pair(
            failed=next((run.problem for run in runs if run.problem), "")
            or "it could not be compared"
        )
    a, b = (labelled(run.traces) for run in runs)
    return Pair(
        first=comparison.first_divergence,
        steps=comparison.steps,
        finite=_finite(runs),
        uses=(tuple(uses_of(a, BY_NAME)), tuple(uses_of(b, BY_NAME))),
        lines=(tuple(uses_of(a, LINES)), tuple(uses_of(b, LINES))),
        operators=(tuple(_operators(a)), tuple(_operators(b))),
    )


def _plan(spec: Spec, seed: int, setting: Setting, name: str) -> Plan:
    """How the first run of a pair is started: a factor is pinned as a whole, or at the lines that
    the setting names."""
    pins: dict[str, list[list[object]] | None] = {
        unit.factor: None for unit in setting.pinned if unit.site is None
    }
    for unit in sorted(unit for unit in setting.pinned if unit.site is not None):
        sites = pins.setdefault(unit.factor, [])
        if sites is not None and unit.site is not None:
            sites.append(list(unit.site))
    watch = not setting.operators and not setting.lines
    probe: dict[str, object] = {"factors": {"watch": watch, "pin": pins}, "every": 1}
    if setting.operators:
        probe["operators"] = {
            "step": setting.step,
            "replay": None if setting.replay is None else [*setting.replay, REPLAYS],
        }
    if setting.lines:
        probe["lines"] = setting.step
    # else any line would look like the cause
    chosen = [BY_NAME[name] for name, sites in pins.items() if sites is None]
    return Plan(
        name=name,
        arm=arms.deterministic(seed, arms.allowed(spec), setting.steps),
        probe=probe,
        stress=setting.stress,
        environment={key: value for factor in chosen for key, value in factor.pinned.items()},
        fixed_addresses=any(factor.fixed_addresses for factor in chosen),
    )


def labelled(traces: Sequence[Trace]) -> list[tuple[str, Trace]]:
    """Each process with a name that its twin in the other run has too: its key, and which of that
    key and command line it is."""
    seen: Counter[tuple[object, ...]] = Counter()
    found = []
    for trace in traces:
        key = (trace.key, trace.argv[:3])
        seen[key] += 1
        number = sum(count for other, count in seen.items() if other[0] == trace.key)
        found.append((trace.key if number == 1 else f"{trace.key}#{number}", trace))
    return found


def uses_of(traces: Sequence[tuple[str, Trace]], factors: Collection[str]) -> Iterator[Used]:
    """The uses of these factors in a run; what else its traces name is no factor."""
    for process, trace in traces:
        for item in trace.uses:
            if item.factor in factors:
                yield msgspec.structs.replace(item, process=process)


def _operators(traces: Sequence[tuple[str, Trace]]) -> Iterator[OperatorLine]:
    for process, trace in traces:
        for item in trace.operators:
            yield msgspec.structs.replace(item, process=process)


def _finite(runs: Sequence[Run]) -> bool:
    """Whether the deterministic runs that came to their end have finite losses and parameters, as
    far as it matters to the verdict."""
    good = (run for run in runs if run.good and run.plan.arm.name == "deterministic")
    return not [
        sentence
        for run in good
        for sentence in nonfinite(run.traces, None, bool(run.plan.arm.flags.get(FILL)))
    ]


def _undone(runs: Sequence[Run]) -> list[Undone]:
    """Flags that the training switched off in a deterministic run, each line once."""
    found = {
        (item.flag, item.value, item.site): item
        for run in runs
        if run.plan.arm.name == "deterministic"
        for trace in run.traces
        for item in trace.undone
        if not item.late
    }
    return [*found.values()]
