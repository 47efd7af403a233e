"""`--against REF`: another ref's checkout, gated in the same call, and this one held against it. Called by `gate`.

It answers for one change what a lock answers over time: the recipe moved and the bits did not (a refactor proven harmless), or they did,
from which step and tensor on.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from pathlib import Path

from repro_gate.address.diff import moved
from repro_gate.address.model import RECIPE, ContentAddress, LeafMove
from repro_gate.addressing import address_of_series
from repro_gate.analysis.compare import compare_runs
from repro_gate.analysis.model import Comparison
from repro_gate.checkout import Checkout
from repro_gate.checks.interface import Evidence
from repro_gate.data.declarations import DataProblem, expand_items
from repro_gate.data.declared import data_path, verify_data
from repro_gate.errors import UsageError
from repro_gate.files import remove_tree
from repro_gate.lock.model import AgainstFinding
from repro_gate.options import Options
from repro_gate.refs import commit_of, export, file_at
from repro_gate.report.sentences import moment
from repro_gate.series import Ground, Series
from repro_gate.spec.loader import MAX_BYTES, load_spec_bytes
from repro_gate.spec.model import CostBudget, Spec


def check_ref(ref: str, checkout: Checkout) -> str:
    """The commit of `--against REF`, asked before anything long runs. Raises UsageError."""
    if not checkout.is_git:
        raise UsageError(f"--against {ref}: {checkout.root} is no git checkout", remedy="leave --against out")
    return commit_of(checkout.root, ref, "--against")


def hold_against(
    commit: str, checkout: Checkout, options: Options, evidence: Evidence, here: Series, address: ContentAddress | None
) -> AgainstFinding:
    """Run the ref's own training twice, as its own spec says (this one's where it has none), and hold this gating against it."""
    ref, spec = options.against or commit, here.spec

    def undecided(why: str) -> AgainstFinding:
        return AgainstFinding(ref, commit, "inconclusive", why)

    seed = spec.random_state.seeds[0]
    own = here.comparisons.get(seed)
    if own is None or not own.identical or address is None:
        return undecided("the runs of this checkout are not the same bits themselves, so there is nothing to hold against another ref")
    there_spec, problems = _spec_of(spec, checkout, commit, options)
    if problems:
        return undecided(f"{problems[0].where}: {problems[0].message}")
    theirs = evidence.data if there_spec.data == spec.data else verify_data(there_spec.data, spec.path.parent)
    unlike = next((item for item in theirs if item.actual is None or item.matches is False), None)
    if unlike is not None:
        return undecided(f"the data here is not what {ref} declares: {unlike.mismatches[0]}")
    place = Path(tempfile.mkdtemp(prefix="repro-gate-")).resolve()
    try:
        leave_out = [data_path(item, spec.path.parent) for item in there_spec.data]
        ground = Ground(place, export(checkout.root, commit, place / "snapshot", leave_out), here.ground.outer)
        there = Series(there_spec, ground, here.watch, fail_fast=False)
        there.run_pair("against-")
        if there.interrupted:
            return undecided(there.interrupted)
        bad = next((run for run in there.runs if not run.good), None)
        if bad is not None:
            return undecided(f"{bad.plan.name}: {bad.problem}")
        pair = there.comparisons.get(there_spec.random_state.seeds[0])
        if pair is None or not pair.identical:
            return undecided(f"two runs of {ref} are not the same bits, so a difference to it says nothing")
        before = address_of_series(replace(evidence, data=theirs), there)
        leaves = () if before is None else tuple(item for item in moved(before, address) if item.root == RECIPE)
        differences, count = there.compare_artifacts_with(here)
        found = compare_runs(there.pair()[0].traces, here.pair()[0].traces, differences, count)
        return _finding(ref, commit, leaves, found)
    finally:
        remove_tree(place)


def _spec_of(spec: Spec, checkout: Checkout, commit: str, options: Options) -> tuple[Spec, tuple[DataProblem, ...]]:
    """The ref's own spec, and what is wrong with the files that declare its data, which are this checkout's.

    What is recorded, and how long a run may take, is this spec's, so that the runs can be held against each other.
    """
    name = os.path.relpath(os.path.realpath(spec.path), checkout.root)
    raw = file_at(checkout.root, commit, name, MAX_BYTES)
    theirs = spec
    if raw is not None:
        theirs = load_spec_bytes(raw, f"{commit[:12]}:{name}", spec.path, options.overrides, seed=options.seed, steps=options.steps)
    items, problems = expand_items(theirs.data, spec.path.parent)
    train = replace(theirs.train, timeout=spec.train.timeout, warmup=spec.train.warmup)
    return replace(theirs, data=items, train=train, capture=spec.capture, cost=CostBudget(measure=False)), problems


def _finding(ref: str, commit: str, leaves: tuple[LeafMove, ...], found: Comparison) -> AgainstFinding:
    gap = max((gap for _, gap in found.loss_gaps), default=None)
    names = ", ".join(item.name for item in leaves[:5]) + (f" and {len(leaves) - 5} more" if len(leaves) > 5 else "")
    if found.identical and not leaves:
        return AgainstFinding(ref, commit, "unchanged", f"the recipe and the bits are those of {ref}", loss_gap=gap)
    if found.identical:
        return AgainstFinding(ref, commit, "no-op", f"the recipe moved ({names}), the bits are those of {ref}", leaves, None, gap)
    first = found.first_divergence
    at = "" if first is None else f" {'in artifacts' if first.kind == 'artifact' else moment(first, found.steps)}"
    why = f"the recipe moved ({names})" if leaves else "no leaf of the recipe moved"
    return AgainstFinding(ref, commit, "changed", f"{why}, and the bits part from those of {ref}{at}", leaves, first, gap)
