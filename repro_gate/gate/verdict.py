"""Decides the verdict: which reasons lead to `fail` or `inconclusive`, and which notes change
nothing. Pure.

Proof that training is not reproducible outranks a run that is missing: if a gate run has both, the
verdict is `fail` and both reasons are reported.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from repro_gate._version import DOCS_URL, ISSUES_URL
from repro_gate.baseline.model import AgainstFinding, BaselineFinding
from repro_gate.checks.ignored import MOST_COUNTED, Undeclared
from repro_gate.checks.interface import CATEGORIES, CheckResult
from repro_gate.compare.change import SIZES, Change
from repro_gate.compare.model import STEPS, Cost
from repro_gate.compare.nonfinite import nonfinite
from repro_gate.compare.tolerance import is_same, outside_tolerance
from repro_gate.diagnosis.model import Diagnosis
from repro_gate.escape import counted, listed
from repro_gate.gate import equivalence, resume
from repro_gate.gate.equivalence import Equivalences
from repro_gate.gate.resume import Resumed
from repro_gate.report.findings import remedy_of
from repro_gate.report.model import Reason
from repro_gate.report.wording import effect, place_of
from repro_gate.runs.crashes import crashed_by_itself
from repro_gate.runs.flags import FILL
from repro_gate.runs.launch import RunResult
from repro_gate.runs.reading import Uncompared
from repro_gate.runs.results import Results
from repro_gate.spec.document import written
from repro_gate.spec.model import EffectRule

Reasons = Iterator[Reason]
# The probe writes these notes for every run, so they do not name one.
_OF_ALL_RUNS = ("steps", "whole-run")
STEPS_OF_INIT = 50  # what `repro-gate init` writes, which nobody asked for
_NAMED = 5  # undeclared files or folders in a message; its remedy has all
_SHOWN = 3  # lines of a check's evidence in its reason
_CAUSES = f"({DOCS_URL}/causes/README.md)"
_NOT_COMPARED = Reason(
    "baseline/not-compared",
    "cannot compare this gate run with the baseline: its runs were not compared, are not bitwise "
    "identical, or did not train the checkout's code",
    "make the runs bitwise identical first, or leave `baseline.on-change` at `notice`",
)
_ONE_STEP = Reason(
    "run/one-step",
    "one step was compared: it shows neither that the training trains nor that later steps repeat",
    "raise train.steps",
)
_NONFINITE = (
    "initialize the named tensors (torch.empty only reserves memory), or allow it: `determinism: "
    "{allow-nonfinite: true}`"
)
_WORSE = (
    "mend what makes it worse, or say how much worse may pass (`effect.smallest`), or leave "
    "`effect.fail` at `never`"
)
# A training on another device proves nothing about the required one, so this is no `fail`.
REQUIRED_DEVICE = "hardware/device"


@dataclass(frozen=True, kw_only=True)
class Findings:
    """Everything that the verdict is decided from: the runs, the checks and the comparisons."""

    results: Results
    checklist: tuple[CheckResult, ...] = ()
    cost: Cost | None = None
    bare: RunResult | None = None  # the run without the gate, if the training crashed
    # git-ignored files that no data declares and that the runs lacked
    undeclared: tuple[Undeclared, ...] = ()
    diagnosis: Diagnosis | None = None  # of the first seed that diverged
    robust: bool | None = None  # as `Report.robust`
    # None also if the gate run records a new baseline
    baseline: BaselineFinding | None = None
    # there is a baseline, but this gate run cannot be compared with it
    not_compared: bool = False
    against: AgainstFinding | None = None
    against_change: Change | None = None  # how large it is, beside the other ref
    baseline_change: Change | None = None  # and beside the baseline
    resumed: Resumed | None = None  # None if the spec has no `resume`
    equivalences: Equivalences = field(default_factory=Equivalences)
    # what is missing in the workspaces, and what could not be read and why
    remarks: tuple[str, ...] = ()


def decide(findings: Findings) -> tuple[str, tuple[Reason, ...], tuple[Reason, ...]]:
    """Return the verdict, its reasons, and the notes."""
    results = findings.results
    checklist = findings.checklist
    failed = [_of_check(item) for item in checklist if item.status == "fail"]
    diverged = [*_diverged(findings)]
    failing = [
        *diverged,
        *(
            Reason("determinism/nonfinite", text, _NONFINITE)
            for text in never_finite(results)
        ),
        *(item for item in failed if item.id != REQUIRED_DEVICE),
        *_too_slow(findings),
        *_changed(findings),
        *resume.failures(findings.resumed),
        *equivalence.failures(findings.equivalences),
    ]
    unknown = [] if diverged else [*_unanswered(findings)]
    if results.interrupted:
        identifier, remedy = results.interrupted_by
        unknown.insert(0, Reason(identifier, results.interrupted, remedy))
    unknown += _not_run(findings, unknown)
    unknown += (item for item in failed if item.id == REQUIRED_DEVICE)
    good = "recorded" if results.is_recording else "pass"
    if good == "pass" and results.runs and not unknown and not results.stopped_early:
        failing += _uncovered(checklist)
    verdict = "fail" if failing else "inconclusive" if unknown else good
    return verdict, (*failing, *unknown), tuple(dict.fromkeys(_notes(findings)))


def _of_check(item: CheckResult) -> Reason:
    """Return the reason of a failed check, with the first lines of its evidence."""
    lines = item.evidence[:_SHOWN]
    message = ": ".join(filter(None, (item.message, "; ".join(map(str, lines)))))
    locations = tuple(line.location for line in lines if line.location)
    return Reason(item.id, message, item.remedy, locations)


def _diverged(findings: Findings) -> Reasons:
    """Yield a reason for each seed whose runs differ."""
    results = findings.results
    settings = results.spec.determinism
    allowed = ", ".join(item.flag for item in settings.allow)
    flags = f"all determinism flags on{' but ' * bool(allowed)}{allowed}"
    remedy = findings.diagnosis and remedy_of(findings.diagnosis)
    for seed, comparison in results.comparisons.items():
        first = comparison.first_divergence
        runs = f"two runs with seed {seed} and {flags}"
        if first is None:
            continue
        # The runs differ only in that one crashed, or that they crashed at different steps.
        crashes = map(crashed_by_itself, results.of_seed(seed))
        if (first.kind, first.name) == ("optimizer", STEPS) and any(crashes):
            yield Reason(
                "determinism/crashed",
                f"{runs} ended differently: {first.detail}",
                "see the exception: the runs are bitwise identical up to it, so look for what "
                f"raises it {_CAUSES}",
            )
        elif settings.tolerance is None:
            yield Reason(
                "determinism/diverged",
                f"{runs} diverge {place_of(first, comparison.steps)}",
                remedy
                or f"look for an unseeded random source or a nondeterministic op there {_CAUSES}",
            )
        else:
            for sentence in outside_tolerance(comparison, settings.tolerance):
                yield Reason(
                    "determinism/outside-tolerance",
                    f"seed {seed}: {sentence}",
                    remedy
                    or "lower the difference, or raise the tolerance with a reason",
                )


def never_finite(results: Results) -> tuple[str, ...]:
    """Return a sentence for each kind of number that was never finite in a deterministic run. NaN
    equals NaN whatever the training does, so such a run proves nothing. Empty if the spec allows
    it."""
    default = next(iter(results.default_traces), None)
    sentences = dict[str, None]()
    if not results.spec.determinism.allow_nonfinite:
        for run in results.deterministic:
            is_filled = bool(run.arm.flags.get(FILL))
            if run.good:
                sentences |= dict.fromkeys(nonfinite(run.traces, default, is_filled))
    return tuple(sentences)


def _too_slow(findings: Findings) -> Reasons:
    """Yield a reason for each limit of the spec that the cost, or its change, exceeds. It exceeds a
    limit if its whole interval lies above it."""
    limits = findings.results.spec.cost
    cost = findings.cost
    against = findings.against
    measured = []
    if cost is not None:
        remedy = (
            "leave the flag that costs most off, with a reason (`determinism.allow`), or raise "
            "cost.max-percent"
        )
        figure = cost.determinism_cost_pct
        what = "determinism costs " + ("more" if figure is None else f"{figure:+.1f} %")
        measured.append(
            ("cost/over-budget", what, cost.ci95, limits.max_percent, remedy)
        )
    for item in against.speed if against else ():
        if against and item.arm == "deterministic":
            what = f"with the flags a step is {item.slower_pct:.1f} % slower than at {against.ref}"
            remedy = "make the change cheaper, or raise cost.max-regression-percent"
            limit = limits.max_regression_percent
            measured.append(("cost/regression", what, item.ci95, limit, remedy))
    for identifier, what, (low, high), limit, remedy in measured:
        if limit is not None and low > limit:
            interval = f"(95 % interval {low:+.1f} … {high:+.1f} %)"
            message = f"{what} {interval}; the limit is {limit:g} %"
            yield Reason(identifier, message, remedy)


def _changed(findings: Findings) -> Reasons:
    """Yield a reason if the result differs from the baseline, or from the other ref's."""
    baseline = findings.baseline
    against = findings.against
    rule = findings.results.spec.baseline
    strict = rule.on_change == "fail"
    sizes = SIZES[: SIZES.index(rule.largest) + 1]
    fails = (findings.results.spec.effect or EffectRule()).fail
    known = findings.against_change or findings.baseline_change
    for item in known.effects if known and fails == "worse" else ():
        if item.result == "worse" and item.beyond:
            yield Reason("effect/worse", effect(item), _WORSE)
    if baseline is not None:
        differs = baseline.status == "changed" or baseline.unknown_recipe
        if not _is_within(findings.baseline_change, sizes) and (
            baseline.status == "drift" or (strict and differs)
        ):
            yield Reason(
                f"baseline/{baseline.status}", baseline.message, baseline.remedy
            )
    larger = strict and not _is_within(findings.against_change, sizes)
    if against is not None and against.status == "changed" and larger:
        yield Reason(
            "against/changed",
            against.message,
            "make the change a no-op, or leave `baseline.on-change` at `notice`",
        )


def _is_within(change: Change | None, sizes: Sequence[str]) -> bool:
    return change is not None and change.size in sizes


def _unanswered(findings: Findings) -> Reasons:
    """Yield a reason for each question that could not be answered, though no runs diverged."""
    if findings.resumed and (wanted := findings.results.spec.resume):
        yield from resume.unanswered(findings.resumed, wanted.checkpoint)
    yield from findings.equivalences.unanswered
    against = findings.against
    if findings.not_compared and findings.results.spec.baseline.on_change == "fail":
        yield _NOT_COMPARED
    if against is not None and against.status == "inconclusive":
        yield Reason(
            "against/inconclusive",
            f"--against {against.ref}: {against.message}",
            "make the runs of that ref reproducible first, or drop --against",
        )


def _not_run(findings: Findings, before: Sequence[Reason]) -> Reasons:
    """Yield a reason for each thing that could not be measured or compared. `before` are
    the reasons found until then."""
    results = findings.results
    empty = _recorded_nothing(results)
    badly = _ended_badly(findings)
    yield from badly
    is_explained = before or badly
    failed = (item for item in findings.checklist if item.status == "fail")
    is_answered = results.comparisons or results.is_recording or any(failed)
    if empty or not (is_explained or is_answered):
        yield Reason(
            "run/nothing-compared",
            "the runs recorded nothing that can be compared, except generator states",
            "record the values that must be equal: repro_gate.record(name, value)",
        )
    elif results.runs and results.spec.cost.max_percent is not None:
        yield from _cost_not_measured(findings)
    for note in results.artifact_notes:
        yield Reason(
            "artifact/missing",
            note,
            "correct capture.artifacts, or leave train.steps out if the training writes the file "
            "at its end",
        )
    yield from (
        _uncompared(item) for item in results.uncompared if empty or not item.no_file
    )


def _uncompared(item: Uncompared) -> Reason:
    """Return the reason of an artifact that was not compared."""
    return Reason(
        "artifact/not-compared",
        f"capture.artifacts {item.glob!r} matches {item.name}, which was not compared: {item.why}",
        "name files that can be read"
        if item.no_file
        else "see why it could not be copied, and run the gate again",
    )


def _ended_badly(findings: Findings) -> list[Reason]:
    """Return a reason for each way in which runs ended badly, except the runs that
    `random-state/robust` reports; before them one for git-ignored data that explains a crash."""
    names = defaultdict[tuple[str, str, str], list[str]](list)
    runs = findings.results.runs
    what = "the training needs files that git ignores"
    needed = [] if any(run.good for run in runs) else _needed(findings, what)
    for run in runs:
        if run.log_matters and run.name not in findings.results.fragile:
            # the run without the gate lacks these files too
            clause, remedy = ("", "") if needed else _without_gate(run, findings.bare)
            text = run.problem + clause
            if run.outcome == "crashed" and (said := run.last_words):
                text += f": {said}"
            names[run.reason_id, text, remedy or run.remedy].append(run.name)
    crashes = [
        Reason(
            identifier,
            f"run{'s' * (len(runs) > 1)} {' and '.join(runs)}: {text}",
            remedy,
        )
        for (identifier, text, remedy), runs in names.items()
    ]
    return [*needed, *crashes]


def _needed(findings: Findings, what: str) -> list[Reason]:
    """Return a reason for the git-ignored files that the runs lacked, if there are any. A training
    that comes through in such a workspace without the gate does not need them."""
    undeclared = findings.undeclared
    bare = findings.bare
    if not undeclared or (bare and not _crashes(bare)):
        return []
    names = [_with_count(item) for item in undeclared]
    block = ", ".join(
        f"{{path: {written(item.path.rstrip('/'))}}}" for item in undeclared
    )
    has_data = bool(findings.results.spec.data)
    where = f"add to `data:` in `repro.yml`: `{block}`"
    where = where if has_data else f"paste into `repro.yml`: `data: [{block}]`"
    places = dict.fromkeys(item.place for item in undeclared if item.place)
    remedy = f"{where}; leave out what the training only writes"
    message = f"{what}: {listed(names, _NAMED)}"
    return [Reason("data/undeclared", message, remedy, tuple(places))]


def _with_count(item: Undeclared) -> str:
    """Return a path with the number of its files if it is a folder's."""
    if not item.path.endswith("/"):
        return f"`{item.path}`"
    most = f"more than {MOST_COUNTED:,} files"
    files = counted(item.files, "file") if item.files <= MOST_COUNTED else most
    return f"`{item.path}` ({files})"


def _without_gate(run: RunResult, bare: RunResult | None) -> tuple[str, str]:
    """Return a clause that says whether the training crashes without the gate too, and the remedy;
    both empty if that is not known."""
    # The run without the gate has the seed of the deterministic runs, not of the reseeded one.
    is_like_it = run.arm.name == "deterministic"
    if bare is None or not is_like_it or run.outcome not in ("crashed", "killed"):
        return "", ""
    if _crashes(bare):
        ours = run.raised
        theirs = bare.raised
        other = f", but with {theirs}" if theirs and ours != theirs else ""
        remedy = f"it crashes without the gate too{other}; {run.remedy}"
        return ", without the gate too", remedy
    end = "it ran to its end"
    if bare.ended.timed_out:
        end = f"it was still running after {bare.ended.seconds:.0f} s"
    remedy = (
        f"without the gate {end}: switch off one flag after another (`determinism.allow`); if it "
        "crashes with all flags off, the probe is to blame: please report the end of the log at "
        f"{ISSUES_URL}"
    )
    return ", only with the gate", remedy


def _crashes(bare: RunResult) -> bool:
    """Return whether the training crashed without the gate."""
    return not bare.ended.timed_out and bool(bare.ended.exit_code)


def _recorded_nothing(results: Results) -> bool:
    """Return whether the runs of a seed recorded only generator states, and these are equal."""
    if results.is_recording:
        blocks = (
            block for run in results.pair() for it in run.traces for block in it.blocks
        )
        return bool(results.pair()) and all(block.kind == "rng" for block in blocks)
    empty = [
        item
        for item in results.comparisons.values()
        if not any(
            tally.tensors for kind, tally in item.by_kind.items() if kind != "rng"
        )
    ]
    return bool(empty) and all(item.identical for item in empty)


def _cost_not_measured(findings: Findings) -> Reasons:
    """Yield a reason if the spec asks for the cost and it could not be measured, though no run
    ended badly."""
    results = findings.results
    is_whole = not (results.stopped_early or results.interrupted)
    is_lacking = findings.cost is None and results.spec.cost.measure
    if is_lacking and is_whole and all(run.good for run in results.runs):
        yield Reason(
            "cost/not-measured",
            "the cost was not measured: each run needs 3 steps after its "
            f"{results.spec.train.warmup} warm-up steps",
            "raise train.steps or lower train.warmup",
        )


def _uncovered(checklist: Sequence[CheckResult]) -> Reasons:
    """Yield a reason for each category in which no check passed or failed: a waived check proves
    nothing, and a failed check has its own reason."""
    covered = {item.category for item in checklist if item.status in ("pass", "fail")}
    for category in CATEGORIES:
        if category not in covered:
            yield Reason(
                "checklist/uncovered",
                f"no check of category {category} passed; each category needs at least one",
                "the checklist says what each of its checks needs",
            )


def _notes(findings: Findings) -> Reasons:
    """Yield what is worth knowing and changes no verdict."""
    results = findings.results
    spec = results.spec
    yield from (Reason("gate/remark", note) for note in findings.remarks)
    if not _recorded_nothing(results):
        yield from (_uncompared(item) for item in results.uncompared if item.no_file)
    if findings.not_compared and spec.baseline.on_change != "fail":
        yield _NOT_COMPARED
    for name, texts in results.unrecorded.items():
        yield Reason(name, *texts)
    if any(run.good for run in results.runs):
        what = "git ignores files where the training looked, so no run had them"
        yield from _needed(findings, what)
    for run in results.runs:
        if count := run.ended.left_running:
            left = counted(count, "process")
            message = f"run {run.name} left {left} running, which the gate ended"
            yield Reason("run/left-running", message)
        for trace in run.traces:
            for identifier, message in trace.notes:
                about = "" if identifier in _OF_ALL_RUNS else f"run {run.name}: "
                yield Reason(f"probe/{identifier}", about + message)
    wanted = 0 if spec.train.steps == STEPS_OF_INIT else spec.train.steps or 0
    for run in results.deterministic[:1]:
        if run.outcome == "finished" and 0 < run.steps < wanted:
            steps = counted(wanted, "step")
            message = f"the training ended after {run.steps} of {steps} (train.steps)"
            yield Reason("run/fewer-steps", message)
    noted = {name for run in results.runs for it in run.traces for name, _ in it.notes}
    if "whole-run" not in noted and any(
        it.steps == 1 for it in results.comparisons.values()
    ):
        yield _ONE_STEP
    tolerance = spec.determinism.tolerance
    for seed, comparison in results.comparisons.items():
        if tolerance and not comparison.identical and is_same(comparison, tolerance):
            yield Reason(
                "determinism/within-tolerance",
                f"seed {seed}: the runs are not bitwise identical, but within the tolerance (loss "
                f"{tolerance.loss:g}, weights {tolerance.weights:g})",
            )
    if results.stopped_early:
        unmeasured = ", so the cost was not measured" if findings.cost is None else ""
        message = f"no run was done after the divergence{unmeasured}"
        yield Reason("run/fail-fast", message)
    if spec.cost.max_percent is None:
        yield from _cost_not_measured(findings)
    for flag in spec.determinism.allow:
        yield Reason(
            "determinism/flag-allowed", f"{flag.flag} is left off: {flag.reason}"
        )
