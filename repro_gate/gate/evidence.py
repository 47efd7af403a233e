"""The evidence of a gate run: the checkout, declared data as found and this machine before any
training (all that `repro-gate check` looks at); after it the runs, their config hash, and what a
baseline records of them."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from datetime import date, datetime

from repro_gate import __version__
from repro_gate.baseline.config_hash import ConfigHash
from repro_gate.baseline.inputs import config_hash_of
from repro_gate.baseline.model import Entry
from repro_gate.baseline.record import entry_of, outside_facts, result_of
from repro_gate.checkout.contents import tracked_files
from repro_gate.checkout.inspection import Checkout, inspect_checkout
from repro_gate.checks import ALL, run_static
from repro_gate.checks.interface import RUNS, CheckResult, Evidence
from repro_gate.compare.traces import processes
from repro_gate.data.cache import DataCache, default_cache_path
from repro_gate.data.declared import DataFinding, verify_data
from repro_gate.data.formats import DataProblem
from repro_gate.gate.resolve import resolve
from repro_gate.machine import read_machine
from repro_gate.runs.environment import thread_count
from repro_gate.runs.progress import Watch
from repro_gate.runs.results import Results
from repro_gate.spec.model import Spec

# set by the container action: the image that the gate and its training run in, by digest
IMAGE_VARIABLE = "REPRO_GATE_IMAGE"

NEED_TRAINING = tuple(item.id for item in ALL if item.needs == RUNS)


def gather(
    spec: Spec,
    problems: tuple[DataProblem, ...],
    checkout: Checkout,
    watch: Watch,
    environment: Mapping[str, str],
    *,
    cached: bool = True,
) -> Evidence:
    """What is known before any training, of a spec whose data is expanded; `problems` are those of
    the files that declare it."""
    data, notes = verified(spec, watch, environment, cached=cached)
    return Evidence(
        spec=spec,
        commit=checkout.commit,
        uncommitted=checkout.uncommitted,
        files=0,
        data=data,
        data_problems=problems,
        checkout=checkout,
        tracked=tracked_files(checkout.root) if checkout.is_git else None,
        machine=read_machine(),
        running_image=environment.get(IMAGE_VARIABLE) or None,
        notes=notes,
    )


@contextlib.contextmanager
def gathering(gathered: Callable[[Watch], Evidence], watch: Watch) -> Iterator[Future[Evidence]]:
    """What `gathered` gives, in a thread of its own, with progress told to `watch`. Where nobody
    waits for it any more, it ends soon."""
    ended = threading.Event()

    class Told(Watch):
        def verifying(self, done: int, total: int) -> None:
            if ended.is_set():
                raise InterruptedError
            watch.verifying(done, total)

    with ThreadPoolExecutor(1, "repro-gate-data") as pool:
        try:
            yield pool.submit(gathered, Told())
        finally:
            ended.set()


def data_is_sound(evidence: Evidence) -> bool:
    """Whether all declared data is there, and none is other than declared."""
    return all(item.actual is not None and item.matches is not False for item in evidence.data)


def verified(
    spec: Spec, watch: Watch, environment: Mapping[str, str], *, cached: bool
) -> tuple[tuple[DataFinding, ...], tuple[str, ...]]:
    """Declared data as found, hashed only where it has changed since, if the cache may be used; and
    why that was not used."""
    path = default_cache_path(environment) if cached and spec.data else None
    cache = None if path is None else DataCache(path)
    found = verify_data(spec.data, spec.path.parent, progress=watch.verifying, cache=cache)
    if cache is not None:
        cache.write()
    return found, (cache.note,) if cache is not None and cache.note else ()


def check(spec: Spec, watch: Watch, *, cached: bool = True) -> tuple[CheckResult, ...]:
    """The results of the checks that need no training."""
    found = resolve(spec)
    return run_static(
        gather(
            found.spec,
            found.problems,
            inspect_checkout(spec.path.parent),
            watch,
            os.environ,
            cached=cached,
        ),
        date.today(),
    )


def with_runs(evidence: Evidence, results: Results) -> Evidence:
    """Return the evidence with what the runs came to. A varied run that plain ones do not
    contradict is `not_robust`; any other that is not the same is chance."""
    fragile = results.not_robust
    varied = {
        seed: item if item.same or item in fragile else replace(item, by_chance=True)
        for seed, item in results.varied.items()
    }
    return replace(
        evidence,
        files=results.folder.snapshot.files,
        runs=results.runs,
        pair=results.pair(),
        control=results.control,
        comparison=results.comparison,
        varied=varied,
        changed_data=results.changed_data,
        gpu_processes=results.gpu_processes,
    )


def config_hash_of_runs(evidence: Evidence, results: Results) -> ConfigHash | None:
    """The config hash of one series' runs; None where no deterministic run
    came to its end: the platform is not known.

    Of `evidence` are declared data as found, this machine and the image, which every series of a
    gate run shares.
    """
    facts = next(
        (trace.facts for run in results.pair()[:1] for trace in processes(run.traces).values()),
        None,
    )
    if facts is None:
        return None
    # what the training's own code sets is part of its code
    given = {
        **facts,
        "threads": thread_count(results.folder.outer),
    }
    return config_hash_of(
        results.spec,
        results.folder.snapshot,
        evidence.data,
        given,
        evidence.machine,
        evidence.running_image,
    )


def entry_of_runs(
    results: Results, hashed: ConfigHash, machine: Mapping[str, str], now: datetime
) -> Entry | None:
    """What a baseline would record. None where any seed's two runs were not compared, or are not
    bitwise identical."""
    seeds = results.spec.random_state.seeds
    if not all(
        seed in results.comparisons and results.comparisons[seed].identical for seed in seeds
    ):
        return None
    recorded = []
    for run in (results.pair(seed)[0] for seed in seeds):
        files = {
            name: item
            for name, item in results.artifacts.get(run.plan.name, {}).items()
            if item.readable
        }
        recorded.append(
            result_of(
                run, dict(zip(files, results.reader.contents([*files.values()]), strict=True))
            )
        )
    outside = outside_facts(results.pair()[0], machine)
    return entry_of(
        hashed,
        recorded,
        outside,
        now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        __version__,
        results.step_times(),
    )
