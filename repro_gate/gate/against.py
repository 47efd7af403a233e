"""`--against REF`: another ref's checkout, gated in the same call, and this one compared with it.

It answers for one change what a baseline answers over time: inputs changed and results did not (a
harmless refactor), or both did, from which step and tensor on.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from repro_gate.baseline.config_hash import RECIPE, ChangedInput, ConfigHash, changed_inputs
from repro_gate.baseline.model import AgainstFinding
from repro_gate.checkout.git import GitFailed
from repro_gate.checkout.inspection import Checkout
from repro_gate.checkout.refs import commit_of, export
from repro_gate.checkout.snapshot import Snapshot
from repro_gate.checks.interface import Evidence
from repro_gate.checks.opened import imported_from_elsewhere, unsound
from repro_gate.compare.cost import speed_changes
from repro_gate.compare.model import Comparison
from repro_gate.compare.tolerance import beside_noise
from repro_gate.data.declared import DataFinding, verify_data
from repro_gate.data.formats import DataProblem
from repro_gate.errors import GateError, UsageError
from repro_gate.escape import listed
from repro_gate.gate.evidence import config_hash_of_runs
from repro_gate.gate.options import Options
from repro_gate.gate.resolve import CommitFiles
from repro_gate.install.install import installed
from repro_gate.report import numbers
from repro_gate.report.wording import place_of
from repro_gate.runs.order import of_other_ref
from repro_gate.runs.progress import Watch
from repro_gate.runs.results import Results
from repro_gate.runs.series import run_series
from repro_gate.spec.errors import escaped, shortened
from repro_gate.spec.model import Spec


@dataclass(frozen=True)
class Other:
    """The ref to be compared with: its commit, its own spec (this checkout's where it has none),
    what is wrong with its declarations."""

    ref: str
    commit: str
    spec: Spec
    problems: tuple[DataProblem, ...] = ()


def other_ref(spec: Spec, checkout: Checkout, options: Options) -> Other | None:
    """What `--against` names, read before anything long runs. Raises UsageError: no such commit, or
    a spec with mistakes.

    What is recorded, and how long a run may take, is this checkout's spec's, so that the runs can
    be compared with each other.
    """
    ref = options.against
    if ref is None:
        return None
    if not checkout.is_git:
        raise UsageError(
            f"--against {ref}: {checkout.root} is not a git checkout", remedy="leave --against out"
        )
    commit = commit_of(checkout.root, ref, "--against")
    name = os.path.relpath(os.path.realpath(spec.path), checkout.root)
    found = CommitFiles(checkout.root, commit, name, spec.path, options).spec(overridden=True)
    theirs, problems = (spec, ()) if found is None else (found.spec, found.problems)
    train = replace(theirs.train, timeout=spec.train.timeout, warmup=spec.train.warmup)
    return Other(
        ref, commit, replace(theirs, train=train, capture=spec.capture, cost=spec.cost), problems
    )


def compare_with_ref(
    other: Other,
    evidence: Evidence,
    here: Results,
    hashed: ConfigHash | None,
    options: Options,
    watch: Watch,
) -> AgainstFinding:
    """Run the ref's own training, and compare this gate run with it. Whatever goes wrong on the way
    is the finding."""
    try:
        return _compared(other, evidence, here, hashed, options, watch)
    except _Undecided as error:
        why = str(error)
    except (GateError, GitFailed, OSError, ValueError) as error:
        why = f"its training could not be run: {error}"
    return AgainstFinding(ref=other.ref, commit=other.commit, status="inconclusive", message=why)


class _Undecided(Exception):
    """Nothing can be said, and why."""


def _compared(
    other: Other,
    evidence: Evidence,
    here: Results,
    hashed: ConfigHash | None,
    options: Options,
    watch: Watch,
) -> AgainstFinding:
    if here.interrupted:
        raise _Undecided(here.interrupted)
    if here.comparison is None or not here.comparison.identical or hashed is None:
        raise _Undecided(
            "the runs of this checkout are not bitwise identical themselves, so they cannot be "
            "compared with another ref"
        )
    if why := unsound(evidence, here.runs):
        raise _Undecided(why)
    copy = export(evidence.root, other.commit, here.folder.path / "against")
    spec, data = _data_of(other, here.spec, copy)
    exported = replace(
        spec, path=copy.root / os.path.relpath(os.path.realpath(spec.path), copy.source)
    )
    with installed(
        exported,
        copy.root,
        options.environment,
        options.sandbox,
        cache_root=options.cache_root,
        tell=watch.said,
    ) as outer:
        folder = replace(here.folder, snapshot=copy, outer=outer)  # at the same paths as ours
        there = run_series(spec, folder, watch, of_other_ref(spec))
    _require_equal(there, other.ref)
    if why := unsound(evidence, there.runs):
        raise _Undecided(f"{other.ref}: {why}")
    before = config_hash_of_runs(replace(evidence, data=data), there)
    inputs = (
        ()
        if before is None
        else tuple(item for item in changed_inputs(before, hashed) if item.root == RECIPE)
    )
    finding = _finding(other, inputs, there.compare_with(here), here, there)
    shared = imported_from_elsewhere(evidence, there.runs).ignored
    if not shared:
        return finding
    named = shortened(escaped(shared[0].module))
    return replace(
        finding,
        message=f"{finding.message}; both ran the same {named} ({len(shared)} modules that git "
        "ignores)",
    )


def _data_of(other: Other, own: Spec, copy: Snapshot) -> tuple[Spec, tuple[DataFinding, ...]]:
    """The ref's spec with the data to be linked, and all of its data as found: what git holds of it
    is the ref's own, in its copy; the rest is what lies on this machine. Raises _Undecided where
    either is not what the ref declares."""
    if other.problems:
        raise _Undecided(str(other.problems[0]))
    folder = copy.root / os.path.relpath(os.path.realpath(own.path.parent), copy.source)
    items = other.spec.data
    folder.mkdir(parents=True, exist_ok=True)
    linked = tuple(
        item
        for item in items
        if os.path.isabs(item.path) or not os.path.lexists(folder / item.path)
    )
    found = {
        item.path: item
        for item in verify_data([item for item in items if item not in linked], folder)
    }
    found |= {item.path: item for item in verify_data(linked, own.path.parent)}
    unlike = next(
        (item for item in found.values() if item.actual is None or item.matches is False), None
    )
    if unlike is not None:
        raise _Undecided(f"the data is not what {other.ref} declares: {unlike.mismatches[0]}")
    return replace(other.spec, data=linked), tuple(found[item.path] for item in items)


def _require_equal(there: Results, ref: str) -> None:
    if there.interrupted:
        raise _Undecided(there.interrupted)
    bad = next((run for run in there.runs if not run.good), None)
    if bad is not None:
        raise _Undecided(f"{bad.plan.name}: {bad.problem}")
    if there.comparison is None or not there.comparison.identical:
        raise _Undecided(
            f"two runs of {ref} are not bitwise identical, so a difference from it says nothing"
        )


def _finding(
    other: Other, inputs: tuple[ChangedInput, ...], found: Comparison, here: Results, there: Results
) -> AgainstFinding:
    ref, commit = other.ref, other.commit
    relation, times = beside_noise(found, there.floor)
    gap = max((gap for _, gap in found.loss_gaps), default=None)
    names = listed([item.name for item in inputs], 5)
    first = None if found.identical else found.first_divergence
    if not found.identical:
        why = (
            f"inputs changed ({names})"
            if inputs
            else "no input (code, data, lockfile, seed, flags) changed"
        )
        at = "" if first is None else f" {place_of(first, found.steps)}"
        status = "changed"
        beside = _beside_noise(relation, times, ref)
        message = f"{why}, results diverge from those of {ref}{at}{beside}"
    elif inputs:
        status = "no-op"
        message = f"inputs changed ({names}), results are bitwise identical to those of {ref}"
    else:
        status = "unchanged"
        message = (
            f"same recipe (code, data, lockfile, seed, flags) as {ref}, bitwise identical results"
        )
    return AgainstFinding(
        ref=ref,
        commit=commit,
        status=status,
        message=message,
        changed_inputs=inputs,
        first_divergence=first,
        loss_gap=gap,
        relation=relation,
        times_noise=times,
        speed=speed_changes(here.step_times(), there.step_times()),
    )


def _beside_noise(relation: str, times: float | None, ref: str) -> str:
    """What the difference is beside the noise floor of the ref, to end a sentence."""
    if not relation:
        return ""
    if times is None:
        return f"; {ref} repeats its losses without the flags too, so this is no noise"
    return (
        f"; {'within' if relation == 'within-noise' else 'beyond'} the noise floor of {ref} "
        f"({numbers.small(times)} times its loss gap)"
    )
