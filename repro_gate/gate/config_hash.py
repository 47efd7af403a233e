"""The config hash of one gate run, from the snapshot it ran in and the facts its processes reported; and what a baseline records of it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from repro_gate import __version__
from repro_gate.baseline.config_hash import ConfigHash, hash_inputs
from repro_gate.baseline.drift import entry_of, judge
from repro_gate.baseline.inputs import config_hash_of
from repro_gate.baseline.model import Baseline, BaselineFinding, Entry, Outcome
from repro_gate.baseline.results import outcome_of
from repro_gate.baseline.unhashed import outside_facts
from repro_gate.checks.interface import Evidence
from repro_gate.compare.traces import processes
from repro_gate.runs.environment import thread_count
from repro_gate.runs.series import Series


def config_hash_of_series(evidence: Evidence, series: Series) -> ConfigHash | None:
    """The proved config hash of one series' runs; None where no deterministic run came to its end, so that the platform is not known.

    Of `evidence` are declared data as found, this machine and the image, which every series of a gate run shares.
    """
    facts = next((trace.facts for run in series.pair()[:1] for trace in processes(run.traces).values()), None)
    if facts is None:
        return None
    given = {**facts, "threads": thread_count(series.gate_folder.outer)}  # what the training's own code sets is part of its code
    return config_hash_of(series.spec, series.gate_folder.snapshot, evidence.data, given, evidence.machine, evidence.running_image)


def unproven(hashed: ConfigHash | None) -> str:
    """Why a config hash does not stand for its inputs; empty where it does, or where there is none."""
    if hashed is None or hashed.self_check is None or hashed.self_check.complete:
        return ""
    self_check = hashed.self_check
    again = "" if self_check.stable else ", and hashing twice gave two hashes"
    return f"internal error: {self_check.inputs - self_check.covered} of {self_check.inputs} inputs do not affect the config hash{again}"


def record_of(series: Series, hashed: ConfigHash, machine: Mapping[str, str], now: datetime) -> Entry | None:
    """What a baseline would record. None where any seed's two runs were not compared, or are not bitwise identical."""
    seeds = series.spec.random_state.seeds
    if not all(seed in series.comparisons and series.comparisons[seed].identical for seed in seeds):
        return None
    outcomes: list[Outcome] = []
    for seed in seeds:
        run = series.pair(seed)[0]
        files = series.artifacts.get(run.plan.name, {})
        outcomes.append(outcome_of(run, dict(zip(files, series.contents([*files.values()]), strict=True))))
    return entry_of(hashed, outcomes, outside_facts(series.pair()[0], machine), now.strftime("%Y-%m-%dT%H:%M:%SZ"), __version__)


def compare_entry(baseline: Baseline, entry: Entry) -> BaselineFinding:
    """This gate run compared with what is recorded."""
    return judge(baseline, hash_inputs(entry.recipe_inputs, entry.platform_inputs), entry.outcomes, entry.outside)
