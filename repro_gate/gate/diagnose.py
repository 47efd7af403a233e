"""The diagnosis of a gate run: does the pairs of short runs that the search asks for, and reads
their results."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from msgspec import structs

from repro_gate.compare.traces import by_label
from repro_gate.diagnosis.diagnose import explain
from repro_gate.diagnosis.experiments import Experiments
from repro_gate.diagnosis.model import Diagnosis, Pair, Setting, use_of
from repro_gate.diagnosis.nan import diagnose_nan
from repro_gate.diagnosis.operators import REPLAYS, around
from repro_gate.diagnosis.suspects import line_uses
from repro_gate.escape import clip, for_terminal
from repro_gate.factors import BY_NAME, ENTROPY, Site
from repro_gate.files import Unreadable, read_text
from repro_gate.gate.verdict import never_finite
from repro_gate.report.findings import as_diagnosis, inside
from repro_gate.report.progress import sentence
from repro_gate.runs import arms
from repro_gate.runs.launch import RunRequest, RunResult
from repro_gate.runs.progress import Watch
from repro_gate.runs.results import Results
from repro_gate.runs.series import do_runs
from repro_gate.trace import notebook
from repro_gate.trace.fields import Location
from repro_gate.trace.model import OperatorLine, Trace, Used

# The factor under which the probe records a line of the workspace.
LINES = ("line",)
# Lines shown before and after a cause's line, and the most bytes of its file.
_AROUND = 2
_SOURCE = 1 << 20
_NAN_STEPS = 3  # A NaN that comes from unwritten memory appears within these steps.
# Seconds. A shorter run is not cut off when something is pinned, so that later divergences are seen
# too.
_SHORT = 30.0
# A run may take this many seconds, or this many times the longest run of the gate. A training that
# waits for a pinned clock never ends by itself.
_LONGEST = 60.0
_TIMES = 10.0
# Seconds that a run which only watches may take, if these are more than _TIMES as many as its steps
# took unwatched.
_LEAST = 20.0
# Called after each pair of runs with its purpose, its setting and its result.
OnPair = Callable[[str, Setting, Pair], None]


def diagnosis_of(
    results: Results, watch: Watch, on_pair: OnPair = lambda *_: None
) -> Diagnosis | None:
    """Return why the deterministic runs of the first diverged seed diverge. None if no seed
    diverged, or only within the tolerance, or under `diagnosis: false`."""
    spec = results.spec
    bounds = spec.diagnosis
    diverged = (
        (seed, item.first_divergence)
        for seed, item in results.comparisons.items()
        if item.first_divergence is not None and not results.same(item)
    )
    seed, first = next(diverged, (spec.seed, None))
    unexplained = first is not None or never_finite(results)
    if bounds is None or results.interrupted or not unexplained:
        return None
    longest = max(_LONGEST, _TIMES * plain_seconds(results.runs))
    timeout = min(spec.train.timeout, bounds.timeout, longest)
    pairs = _Pairs(
        results=results, seed=seed, timeout=timeout, watch=watch, on_pair=on_pair
    )
    experiments = Experiments(pairs.run, bounds.runs // 2, seconds=bounds.timeout)
    if first is None:
        diagnosis = diagnose_nan(experiments, _NAN_STEPS)
    else:
        short = results.deterministic[0].ended.seconds < _SHORT
        whole = short or first.kind == "artifact"
        steps = spec.train.steps if whole else max(first.step, 0) + 1
        undone = [
            item
            for run in results.deterministic
            for trace in run.traces
            for item in trace.undone
            if not item.late
        ]
        found = explain(first, experiments, undone=undone, steps=steps)
        diagnosis = as_diagnosis(found)
    return diagnosis and replace(
        diagnosis,
        uses=line_uses(*pairs.watched.uses),
        operators=around(*pairs.dispatched.operators),
        excerpt=_excerpt(results.folder.snapshot.root, diagnosis.file, diagnosis.line),
        runs=2 * experiments.done,
        seconds=round(experiments.elapsed, 3),
    )


def blamed_lines(cause: Diagnosis | None) -> dict[Location, str] | None:
    """Return the lines that a diagnosis blames for drawing from the operating system, each with its
    call. None if it blames none and proves no other cause."""
    if cause is None:
        return None
    lines = {
        Location(line.file, line.line): line.call
        for item in (cause, *cause.also)
        for line in (use_of(item), *item.one_of)
        if line.factor == ENTROPY.name and line.file
    }
    return lines if lines or cause.confirmed else None


@dataclass(kw_only=True)
class _Pairs:
    """Does pairs of runs of one seed, each run within `timeout` seconds."""

    results: Results
    seed: int
    timeout: float
    watch: Watch
    on_pair: OnPair
    done: int = 0
    # the pair with the uses of factors, and the pair with the operators
    watched: Pair = field(default_factory=Pair)
    dispatched: Pair = field(default_factory=Pair)

    def run(self, setting: Setting) -> Pair:
        """Do one pair."""
        self.done += 1
        purpose = _purpose(setting)
        self.watch.said(f"diagnosis: {purpose}")
        pair = self._pair(setting)
        if setting.operators and setting.replay is None:
            self.dispatched = pair
        elif pair.uses[0] and not setting.pinned:
            self.watched = pair
        outcome = "they agree"
        if pair.failed:
            outcome = f"they could not be compared: {for_terminal(pair.failed, 300)}"
        elif pair.first is not None:
            outcome = f"they diverge {sentence(pair.first)}"
        self.watch.said(f"  {outcome}")
        self.on_pair(purpose, setting, pair)
        return pair

    def _pair(self, setting: Setting) -> Pair:
        # Both names have one length: with fixed addresses, the first allocation decides the
        # addresses of all later ones.
        results = self.results
        spec = results.spec
        arm = arms.deterministic(self.seed, arms.allowed(spec), setting.steps)
        first = _request(arm, setting, f"diagnosis-{self.done}a")
        second = replace(first, name=f"diagnosis-{self.done}b", second_of=first.name)
        timeout = self.timeout
        if setting.only_watches:
            took = plain_seconds(results.deterministic, setting.steps)
            timeout = min(timeout, max(_LEAST, _TIMES * took))
        limited = replace(spec, train=replace(spec.train, timeout=timeout))
        series = do_runs(limited, results.folder, Watch(), (first, second))
        comparison = series.comparisons.get(self.seed)
        if comparison is None:
            problems = (run.problem for run in series.runs if run.problem)
            timed_out = any(run.ended.timed_out for run in series.runs)
            return Pair(
                failed=next(problems, "it could not be compared"),
                slow=setting.only_watches and timed_out,
            )
        a, b = series.runs
        return Pair(
            first=comparison.first_divergence,
            steps=comparison.steps,
            finite=not never_finite(series),
            uses=(uses_of(a, BY_NAME), uses_of(b, BY_NAME)),
            lines=(uses_of(a, LINES), uses_of(b, LINES)),
            operators=(operators_of(a), operators_of(b)),
        )


def plain_seconds(runs: Sequence[RunResult], steps: int | None = None) -> float:
    """Return how long the longest of some runs took, up to so many steps: what came before its
    first step, and the slowest thread's or process's steps."""
    took = [0.0]
    for run in runs:
        left_out = [trace.steps[steps:] for trace in run.traces if steps is not None]
        rests = [sum(it.ms + it.probe_ms for it in marks) / 1000 for marks in left_out]
        took.append(run.ended.seconds - min(rests, default=0.0))
    return max(took)


def _purpose(setting: Setting) -> str:
    """Return the purpose of a pair of runs, in a few words."""
    if setting.replay is not None:
        return f"{setting.replay[0]} again, {REPLAYS} times on its own inputs"
    if setting.operators:
        return "two runs that record every operator of the step"
    if setting.lines:
        return "two runs that record every line of the training's own code"
    load = " under load, with threads that begin at odd times" * setting.stress
    if not setting.pinned:
        return f"two runs that watch every use of a factor{load}"
    names = sorted(
        f"{unit.factor} at {notebook.place(*unit.site)}" if unit.site else unit.factor
        for unit in setting.pinned
    )
    return f"two runs with {', '.join(names)} held fixed{load}"


def _request(arm: arms.Arm, setting: Setting, name: str) -> RunRequest:
    """Return the request for the first run of a pair. A factor is pinned as a whole, or at the
    lines that the setting names."""
    whole = {unit.factor for unit in setting.pinned if unit.site is None}
    lines = defaultdict(list)
    for site, factor in sorted(
        (unit.site, unit.factor) for unit in setting.pinned if unit.site
    ):
        lines[factor].append(site)
    pins: dict[str, list[Site] | None] = {**lines, **dict.fromkeys(whole)}
    watch = not setting.operators and not setting.lines
    probe: dict[str, object] = {"factors": {"watch": watch, "pin": pins}, "every": 1}
    if setting.operators:
        replay = setting.replay and [*setting.replay, REPLAYS]
        probe["operators"] = {"step": setting.step, "replay": replay}
    if setting.lines:
        probe["lines"] = setting.step
    # Change the environment only for factors that are pinned as a whole. Otherwise pinning any one
    # line would remove the divergence.
    factors = [BY_NAME[name] for name in whole]
    return RunRequest(
        name=name,
        arm=arm,
        collect=True,
        probe=probe,
        stress=setting.stress,
        environment={
            variable: factor.pinned[variable]
            for factor in factors
            for variable in factor.pinned
        },
        fixed_addresses=any(factor.fixed_addresses for factor in factors),
    )


def uses_of(run: RunResult, factors: Collection[str]) -> tuple[Used, ...]:
    """Return the uses of these factors in a run. Traces are untrusted, so other names are
    dropped."""
    return tuple(
        structs.replace(item, process=label)
        for label, trace in _twins(run).items()
        for item in trace.uses
        if item.factor in factors
    )


def operators_of(run: RunResult) -> tuple[OperatorLine, ...]:
    """Return the operators that a run recorded."""
    return tuple(
        structs.replace(item, process=label)
        for label, trace in _twins(run).items()
        for item in trace.operators
    )


def _twins(run: RunResult) -> dict[str, Trace]:
    """Return the processes of a run, by labels that are the same in each run: the first one, then
    the others by the beginnings of their command lines, since two that are started at once may
    begin in any order; what stands behind may be a random name."""
    others = sorted(run.traces[1:], key=lambda it: it.argv[:2])
    return by_label([*run.traces[:1], *others])


def _excerpt(root: Path, file: str, line: int) -> tuple[tuple[int, str], ...]:
    """Return the line and its neighbours as the commit has them; empty if the path is no text file
    of the checkout."""
    path, cell = notebook.split(file)
    name = inside(path)
    if name is None or line < 1:
        return ()
    try:
        text = read_text(root / name, root, notebook.MAX_BYTES if cell else _SOURCE)
    except Unreadable:
        return ()
    if cell:
        text = "".join(notebook.code_cells(text.encode())[cell - 1 : cell])
    lines = [*enumerate(text.splitlines(), 1)]
    near = lines[max(line - _AROUND, 1) - 1 : line + _AROUND]
    shown = tuple((number, clip(text, 300)) for number, text in near)
    return shown if line <= len(lines) else ()
