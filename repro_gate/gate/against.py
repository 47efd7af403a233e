"""`--against REF`: runs the training of another ref in the same gate run and compares this checkout
with it.

A baseline shows changes over time; this shows one change: whether only inputs changed (a harmless
refactor), or results too, and by how much.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from repro_gate.baseline.config_hash import RECIPE, ConfigHash, changed_inputs
from repro_gate.baseline.model import AgainstFinding
from repro_gate.checkout.refs import export
from repro_gate.checkout.snapshot import Snapshot
from repro_gate.checks.interface import Evidence
from repro_gate.checks.opened import (
    IGNORED,
    imported_from_elsewhere,
    why_runs_are_unusable,
)
from repro_gate.compare.change import SIZE_WORDS, Change
from repro_gate.compare.cost import speed_changes
from repro_gate.data.declared import DataFinding, verify_data
from repro_gate.errors import GateError
from repro_gate.escape import counted, listed
from repro_gate.gate.change import between_environments, measured_change
from repro_gate.gate.effect import Side, with_effects
from repro_gate.gate.evidence import config_hash_of_runs, first_unsound
from repro_gate.gate.measuring import keeping
from repro_gate.gate.prepare import Job
from repro_gate.gate.resolve import OtherRef
from repro_gate.install.install import installed
from repro_gate.runs.order import of_other_ref
from repro_gate.runs.results import Results, compare_pair
from repro_gate.runs.series import do_runs
from repro_gate.spec.errors import shortened
from repro_gate.spec.model import Spec

Variables = Mapping[str, str]
_INPUTS = 5  # changed inputs that the message names


class _Undecided(Exception):
    """The two refs cannot be compared; the message says why."""


def compare_with_ref(
    job: Job, evidence: Evidence, here: Results, hashed: ConfigHash | None, now: Side
) -> tuple[AgainstFinding | None, Change | None]:
    """Run the training of the ref that `--against` names, if any, and compare this gate run with
    it. Return also how large the change is. If that fails, the finding says why. `now` is this
    checkout's side of the change."""
    other = job.other
    if other is None:
        return None, None
    try:
        _require_identical(here, evidence)
        if hashed is None:
            raise _Undecided(
                "this checkout has no config hash, so its inputs cannot be compared"
            )
        return _compared(job, other, evidence, here, hashed, now)
    except _Undecided as error:
        message = str(error)
    except KeyboardInterrupt as error:
        here.interrupt(error)
        message = "it was interrupted"
    except (GateError, OSError, ValueError) as error:
        message = f"its training could not be run: {error}"
    return AgainstFinding(
        ref=other.ref, commit=other.commit, status="inconclusive", message=message
    ), None


def _require_identical(results: Results, evidence: Evidence, ref: str = "") -> None:
    """Raise _Undecided unless the runs are bitwise identical and trained their own code. `ref` is
    the other ref, empty for this checkout; every run of the other ref must end well."""
    comparison = results.comparison
    whose = f"two runs of {ref}" if ref else "the runs of this checkout"
    problems = [results.interrupted]
    if ref:
        problems += [
            f"{run.name}: {run.problem}" for run in results.runs if not run.good
        ]
    if comparison is None or not comparison.identical:
        problems.append(
            f"{whose} are not bitwise identical, so a difference proves nothing"
        )
    foreign = why_runs_are_unusable(evidence, results.runs)
    problems.append(foreign and f"{whose}: {foreign}")
    for why in filter(None, problems):
        raise _Undecided(why)


def _compared(
    job: Job,
    other: OtherRef,
    evidence: Evidence,
    here: Results,
    hashed: ConfigHash,
    now: Side,
) -> tuple[AgainstFinding, Change]:
    """Run the ref's training, measure how far this checkout's is from it, and return both."""
    options = job.options
    tell = job.watch.said
    copy = here.folder.snapshot
    if not other.here:
        copy = export(evidence.root, other.commit, here.folder.path / "against")
    spec, data = _data_of(other, here.spec, copy)
    path = copy.root / os.path.relpath(os.path.realpath(spec.path), copy.source)
    with installed(
        replace(spec, path=path),
        copy.root,
        options.environment,
        options.sandbox,
        cache_root=options.cache_root,
        tell=tell,
    ) as outer:
        # The runs have the same paths as ours, so paths cannot make them differ.
        folder = replace(here.folder, snapshot=copy, outer=_with(other.python, outer))
        first, *others = of_other_ref(spec)
        first = replace(first, probe=keeping(here.spec, here.pair()[0]))
        there = do_runs(spec, folder, job.watch, (first, *others))
        _require_identical(there, evidence, other.ref)
        before = config_hash_of_runs(replace(evidence, data=data), there)
        change = measured_change(there, here, job.watch)
        change = between_environments(change, there, here, job.watch)
        entry = job.policy.baseline.get(before.platform) if before else None
        known = {}
        if entry and before and entry.recipe == before.recipe:
            known = {item.seed: item for item in entry.seeds}
        change = with_effects(change, Side(other.ref, there, known), now, job.watch)
    change = replace(change, beside=other.ref)
    return _finding(other, evidence, here, there, before, hashed, change), change


def _with(python: Path | None, outer: Variables) -> Variables:
    """Return the environment with this interpreter first on PATH."""
    if python is None:
        return outer
    search = os.pathsep.join([str(python.parent), outer.get("PATH", os.defpath)])
    return {**outer, "PATH": search, "VIRTUAL_ENV": str(python.parent.parent)}


def _data_of(
    other: OtherRef, spec: Spec, copy: Snapshot
) -> tuple[Spec, tuple[DataFinding, ...]]:
    """Return the ref's spec with the data to link, and all of its data, verified. Data that git
    tracks is read from the ref's copy, other data from this machine. Raises _Undecided if data
    differs from what the ref declares."""
    if other.problems:
        raise _Undecided(str(other.problems[0]))
    here = spec.path.parent
    items = other.spec.data
    folder = copy.root / os.path.relpath(os.path.realpath(here), copy.source)
    folder.mkdir(parents=True, exist_ok=True)
    own = [
        item
        for item in items
        if not os.path.isabs(item.path) and os.path.lexists(folder / item.path)
    ]
    linked = tuple(item for item in items if item not in own)
    data = (*verify_data(own, folder), *verify_data(linked, here))
    if unsound := first_unsound(data):
        raise _Undecided(
            f"the data differs from what {other.ref} declares: {unsound.mismatches[0]}"
        )
    return replace(other.spec, data=linked), data


def _finding(
    other: OtherRef,
    evidence: Evidence,
    here: Results,
    there: Results,
    before: ConfigHash | None,
    hashed: ConfigHash,
    change: Change,
) -> AgainstFinding:
    """Return how this gate run compares with that of the ref."""
    comparison, _ = compare_pair(there.pair()[0], here.pair()[0], here.reader)
    changed = changed_inputs(before, hashed) if before else ()
    inputs = tuple(item for item in changed if item.root == RECIPE)
    message = f"inputs changed ({listed([item.name for item in inputs], _INPUTS)})"
    if not inputs:
        message = "same recipe (code, data, lockfile, seed, flags)"
    status = "no-op" if inputs else "unchanged"
    if not comparison.identical:
        status = "changed"
    message += f", {SIZE_WORDS[change.size]}"
    shared = imported_from_elsewhere(evidence, there.runs).get(IGNORED, ())
    if shared:
        module = shortened(shared[0].module)
        ignored = counted(len(shared), "module")
        message += f"; both ran the same {module} ({ignored} that git ignores)"
    return AgainstFinding(
        ref=other.ref,
        commit=other.commit,
        status=status,
        message=message,
        changed_inputs=inputs,
        first_divergence=comparison.first_divergence,
        loss_gap=max((gap for _, gap in comparison.loss_gaps), default=None),
        speed=speed_changes(here.step_times(), there.step_times()),
    )
