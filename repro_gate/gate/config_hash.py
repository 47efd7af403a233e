"""The content address of one gating, from the snapshot it ran in and the facts its processes reported; and what a lock records of it.

Called by `gate` and `reporting`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from repro_gate import __version__
from repro_gate.baseline.build import address_of
from repro_gate.baseline.config_hash import ContentAddress
from repro_gate.baseline.drift import entry_of, judge
from repro_gate.baseline.model import Entry, LockFile, LockFinding, Outcome
from repro_gate.baseline.results import outcome_of
from repro_gate.baseline.tree import address as address_from
from repro_gate.baseline.unhashed import outside_facts
from repro_gate.checks.interface import Evidence
from repro_gate.compare.traces import processes
from repro_gate.runs.environment import thread_count
from repro_gate.runs.series import Series


def address_of_series(evidence: Evidence, series: Series) -> ContentAddress | None:
    """The proved address of one series' runs; None where no deterministic run came to its end, so that the platform is not known.

    Of `evidence` are declared data as found, this machine and the image, which every series of a gating shares.
    """
    facts = next((trace.facts for run in series.pair()[:1] for trace in processes(run.traces).values()), None)
    if facts is None:
        return None
    given = {**facts, "threads": thread_count(series.ground.outer)}  # what the training's own code sets is part of its code
    return address_of(series.spec, series.ground.snapshot, evidence.data, given, evidence.machine, evidence.running_image)


def unproven(address: ContentAddress | None) -> str:
    """Why an address does not stand for its leaves; empty where it does, or where there is none."""
    if address is None or address.proof is None or address.proof.holds:
        return ""
    proof = address.proof
    again = "" if proof.stable else " and gives another hash the second time"
    return f"the content address does not see all of its leaves: {proof.moved} of {proof.leaves} moved it{again}"


def record_of(series: Series, address: ContentAddress, machine: Mapping[str, str], now: datetime) -> Entry | None:
    """What a lock would record. None where any seed's two runs were not compared, or are not the same bits."""
    seeds = series.spec.random_state.seeds
    if not all(seed in series.comparisons and series.comparisons[seed].identical for seed in seeds):
        return None
    outcomes: list[Outcome] = []
    for seed in seeds:
        run = series.pair(seed)[0]
        files = series.artifacts.get(run.plan.name, {})
        outcomes.append(outcome_of(run, dict(zip(files, series.contents([*files.values()]), strict=True))))
    return entry_of(address, outcomes, outside_facts(series.pair()[0], machine), now.strftime("%Y-%m-%dT%H:%M:%SZ"), __version__)


def judge_entry(lock: LockFile, entry: Entry) -> LockFinding:
    """This gating held against what is recorded."""
    return judge(lock, address_from(entry.recipe_leaves, entry.platform_leaves), entry.outcomes, entry.outside)
