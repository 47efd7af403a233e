"""Gathers the evidence of a gate run. Before training: the checkout, the verified data and this
machine, which is all that `repro-gate check` looks at. After it: the runs, their config hash and
their baseline entry."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from datetime import date

from repro_gate import __version__
from repro_gate.baseline.config_hash import ConfigHash
from repro_gate.baseline.inputs import config_hash_of
from repro_gate.baseline.model import Entry
from repro_gate.baseline.record import entry_of, outside_facts, result_of
from repro_gate.checkout.inspection import Checkout, inspect_checkout, tracked_files
from repro_gate.checks import ALL, STATIC, run_checks
from repro_gate.checks.interface import CheckResult, Evidence
from repro_gate.checks.opened import why_runs_are_unusable
from repro_gate.compare.traces import processes
from repro_gate.data.cache import DataCache
from repro_gate.data.declared import DataFinding, verify_data
from repro_gate.files import cache_folder
from repro_gate.gate.prepare import Job
from repro_gate.gate.resolve import Resolved, resolve
from repro_gate.machine import read_machine
from repro_gate.runs.environment import thread_count
from repro_gate.runs.reading import pairs
from repro_gate.runs.results import Results
from repro_gate.spec.model import Spec

# set by `entrypoint`: the image that runs, and what its container was given of the host's GPUs
IMAGE_VARIABLE = "REPRO_GATE_IMAGE"
GPUS_VARIABLE = "REPRO_GATE_GPUS"

A_MOMENT = 0.25  # seconds for which the first run waits for the declared data
NEED_TRAINING = tuple(item.id for item in ALL if item not in STATIC)

Progress = Callable[[int, int], None]  # bytes hashed so far, and in all


@dataclass(frozen=True)
class Ahead:
    """Evidence that a thread gathers while the first run may already train."""

    gathered: Future[Evidence]

    def is_ready(self) -> bool:
        """Return whether all evidence is gathered. Waits for A_MOMENT at most."""
        return bool(wait([self.gathered], A_MOMENT).done)

    def is_sound(self, *, waits: bool) -> bool:
        """Return whether data has its declared digests. While it is still being hashed, return
        True, or with `waits` wait for the result."""
        is_known = waits or self.is_ready()
        return not is_known or first_unsound(self.evidence().data) is None

    def evidence(self) -> Evidence:
        """Return the evidence once it is gathered."""
        return self.gathered.result()


@contextlib.contextmanager
def gather_ahead(job: Job) -> Iterator[Ahead]:
    """Gather evidence ahead. If the caller leaves the block early, stop reading at the next
    file."""
    ended = threading.Event()

    def until_ended(done: int, total: int) -> None:
        if ended.is_set():
            raise InterruptedError
        job.watch.verifying(done, total)

    options = job.options
    with ThreadPoolExecutor(1, "repro-gate-data") as pool:
        try:
            yield Ahead(
                pool.submit(
                    gather,
                    job.policy,
                    job.checkout,
                    until_ended,
                    options.environment,
                    cached=options.cache,
                )
            )
        finally:
            ended.set()


def gather(
    resolved: Resolved,
    checkout: Checkout,
    progress: Progress,
    environment: Mapping[str, str],
    *,
    cached: bool,
) -> Evidence:
    """Return the evidence that needs no training."""
    data, notes = verified(resolved.spec, progress, environment, cached=cached)
    return Evidence(
        spec=resolved.spec,
        data=data,
        data_problems=resolved.problems,
        checkout=checkout,
        tracked=tracked_files(checkout.root) if checkout.is_git else None,
        machine=read_machine(),
        running_image=environment.get(IMAGE_VARIABLE) or None,
        given_gpus=environment.get(GPUS_VARIABLE, ""),
        notes=notes,
    )


def first_unsound(data: Sequence[DataFinding]) -> DataFinding | None:
    """Return the first item that is absent or differs from its declaration."""
    return next((item for item in data if item.mismatches), None)


def verified(
    spec: Spec, progress: Progress, environment: Mapping[str, str], *, cached: bool
) -> tuple[tuple[DataFinding, ...], tuple[str, ...]]:
    """Return the verified data, and a note if the cache could not be used. With the cache only
    changed files are hashed."""
    path = cache_folder(environment, "data.json") if cached and spec.data else None
    cache = None if path is None else DataCache(path)
    data = verify_data(spec.data, spec.path.parent, progress=progress, cache=cache)
    if cache is None:
        return data, ()
    cache.write()
    return data, (cache.note,) if cache.note else ()


def check(
    spec: Spec, progress: Progress, *, cached: bool = True
) -> tuple[CheckResult, ...]:
    """Return the results of the checks that need no training."""
    checkout = inspect_checkout(spec.path.parent)
    evidence = gather(resolve(spec), checkout, progress, os.environ, cached=cached)
    return run_checks(evidence, date.today(), STATIC)


def with_runs(evidence: Evidence, results: Results) -> Evidence:
    """Return the evidence with the results of the runs."""
    return replace(
        evidence,
        runs=results.runs,
        pair=results.pair(),
        control=results.control,
        comparison=results.comparison,
        varied=results.varied,
        fragile=results.not_robust,
        changed_data=results.changed_data,
        gpu_processes=results.gpu_processes,
    )


def config_hash_of_runs(evidence: Evidence, results: Results) -> ConfigHash | None:
    """Return the config hash of one series of runs. None if no deterministic run ended well, since
        then the platform is unknown.

    The data, the machine and the image come from `evidence`: all series of a gate run share them.
    """
    for trace in processes(results.pair()[0].traces).values() if results.pair() else ():
        return config_hash_of(
            results.spec,
            results.folder.snapshot,
            evidence.data,
            # what the training's own code sets is part of its code
            {**trace.facts, "threads": thread_count(results.folder.outer)},
            evidence.machine,
            evidence.running_image,
        )
    return None


def entry_of_runs(
    job: Job, evidence: Evidence, results: Results, hashed: ConfigHash | None
) -> Entry | None:
    """Return the baseline entry. None if a seed's two runs were not compared, are not bitwise
    identical, or did not train the checkout's code. None also if no entry is needed, since it would
    require reading all artifacts."""
    seeds = results.spec.random_state.seeds
    compared = results.comparisons
    identical = all(seed in compared and compared[seed].identical for seed in seeds)
    is_asked_for = job.options.record_baseline or job.policy.baseline
    if hashed is None or not (is_asked_for and identical):
        return None
    if why_runs_are_unusable(evidence, results.runs):
        return None
    recorded = []
    for seed in seeds:
        run, other = results.pair(seed)
        shared = pairs(run.artifacts, other.artifacts)
        names = {pair.first: pair.name for pair in shared}
        files = [item for item in run.artifacts.values() if item.readable]
        by_name = {
            names[item.name]: content
            for item, content in zip(files, results.reader.contents(files), strict=True)
        }
        recorded.append(result_of(run, by_name))
    return entry_of(
        hashed,
        recorded,
        outside_facts(results.pair()[0], evidence.machine),
        job.started.strftime("%Y-%m-%dT%H:%M:%SZ"),
        __version__,
        results.step_times(),
    )
