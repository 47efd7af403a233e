"""What the checks may look at before any training has run, and `repro-gate check`, which looks at just that."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date

from repro_gate.checkout.contents import tracked_files
from repro_gate.checkout.inspection import Checkout, inspect_checkout
from repro_gate.checks import ALL, run_static
from repro_gate.checks.interface import RUNS, CheckResult, Evidence
from repro_gate.data.cache import DataCache, default_cache_path
from repro_gate.data.declarations import expand_items
from repro_gate.data.declared import DataFinding, verify_data
from repro_gate.data.formats import DataProblem
from repro_gate.machine import read_machine
from repro_gate.runs.progress import Watch
from repro_gate.spec.model import DataItem, Spec

IMAGE_VARIABLE = "REPRO_GATE_IMAGE"  # set by the container action: the image that the gate and its training run in, by digest

NEED_TRAINING = tuple(item.id for item in ALL if item.needs == RUNS)


@dataclass(frozen=True)
class Declared:
    """Declared data as it was found: the items, with those that `.dvc` files and Croissant metadata stand for; what is wrong with these
    files; one finding for each item; and why the cache was not used, where it was not."""

    items: tuple[DataItem, ...]
    problems: tuple[DataProblem, ...]
    findings: tuple[DataFinding, ...]
    notes: tuple[str, ...] = ()


def gather(spec: Spec, checkout: Checkout, watch: Watch, environment: Mapping[str, str], *, cached: bool = True) -> Evidence:
    """The evidence of the checkout: what git says, declared data hashed, this machine. Its `spec.data` is what the declarations name."""
    data = declared(spec, watch, environment, cached=cached)
    return Evidence(
        spec=replace(spec, data=data.items),
        commit=checkout.commit,
        uncommitted=checkout.uncommitted,
        files=0,
        data=data.findings,
        data_problems=data.problems,
        checkout=checkout,
        tracked=tracked_files(checkout.root) if checkout.is_git else None,
        machine=read_machine(),
        running_image=environment.get(IMAGE_VARIABLE) or None,
        notes=data.notes,
    )


def declared(spec: Spec, watch: Watch, environment: Mapping[str, str], *, cached: bool) -> Declared:
    """Expand what is declared, and hash it: only what has changed since it was last hashed, where the cache may be used."""
    folder = spec.path.parent
    items, problems = expand_items(spec.data, folder)
    path = default_cache_path(environment) if cached and items else None
    if path is None:
        return Declared(items, problems, verify_data(items, folder, progress=watch.verifying))
    with DataCache(path) as cache:
        findings = verify_data(items, folder, progress=watch.verifying, cache=cache)
    return Declared(items, problems, findings, tuple(cache.notes))


def check(spec: Spec, watch: Watch, *, cached: bool = True) -> tuple[CheckResult, ...]:
    """The results of the checks that need no training."""
    return run_static(gather(spec, inspect_checkout(spec.path.parent), watch, os.environ, cached=cached), date.today())
