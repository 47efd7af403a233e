"""The config hash of one checkout, proved: from what a gate run has at hand, or (`repro-gate hash`) from nothing but the spec.
Both ways end in `config_hash_of`, so that they give one config hash for one checkout on one machine.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from repro_gate.baseline.code import code_digest, code_files, file_digest
from repro_gate.baseline.config_hash import ConfigHash
from repro_gate.baseline.inputs import platform_inputs, recipe_inputs
from repro_gate.baseline.model import FILE_NAME
from repro_gate.baseline.self_check import prove
from repro_gate.baseline.tree import hash_inputs
from repro_gate.checkout.inspection import inspect_checkout
from repro_gate.checkout.snapshot import Snapshot, take_snapshot
from repro_gate.data.declarations import expand_items
from repro_gate.data.declared import DataFinding, data_path, verify_data
from repro_gate.errors import Inconclusive, obeyed
from repro_gate.files import scratch_folder
from repro_gate.machine import read_machine
from repro_gate.runs.environment import thread_count
from repro_gate.runs.interpreter import interpreter_facts
from repro_gate.sandbox.identity import Isolation
from repro_gate.spec.model import Spec

_SAME_USER = Isolation()


def config_hash_of(
    spec: Spec,
    snapshot: Snapshot,
    data: Sequence[DataFinding],
    facts: Mapping[str, str],
    machine: Mapping[str, str],
    image: str | None,
) -> ConfigHash:
    """The proved config hash of a snapshot. `data` are the declared items as found, `facts` those of the first process that trained.

    Raises Inconclusive where the snapshot cannot be read.
    """
    folder = os.path.relpath(os.path.realpath(spec.path.parent), snapshot.source)
    code = code_digest(snapshot.root, code_files(snapshot.root), set(_no_code(spec, snapshot, data, folder)))
    recipe = recipe_inputs(spec, code, data, _lockfile(spec, snapshot, folder), folder)
    return prove(hash_inputs(recipe, platform_inputs(facts, machine, image)))


def config_hash_of_spec(
    spec: Spec,
    environment: Mapping[str, str],
    image: str | None = None,
    data: Sequence[DataFinding] | None = None,
    isolation: Isolation = _SAME_USER,
) -> ConfigHash:
    """The config hash of the checkout that holds the spec, without a run: the training's interpreter is asked what it would train with.

    `environment` is the one the gate was started in; `data` spares reading the declared data again. Raises GateError: no config hash
    without the data, without an interpreter that has torch, or of a checkout that cannot be read.
    """
    checkout = inspect_checkout(spec.path.parent)
    if data is None:
        spec = replace(spec, data=expand_items(spec.data, spec.path.parent)[0])
    found = verify_data(spec.data, spec.path.parent) if data is None else data
    for item in found:
        if item.actual is None:
            raise Inconclusive(
                f"data: {item.path}: {item.problem}",
                reason_id="data/missing",
                remedy="fetch the data first, or mend the path: what is not there has no digest",
            )
    facts = {**interpreter_facts(spec, environment, isolation), "threads": thread_count(environment)}
    with scratch_folder() as place, obeyed():
        snapshot = take_snapshot(checkout, place / "snapshot", [data_path(item, spec.path.parent) for item in spec.data])
        return config_hash_of(spec, snapshot, found, facts, read_machine(), image)


def _no_code(spec: Spec, snapshot: Snapshot, data: Sequence[DataFinding], folder: str) -> Iterator[str]:
    """Paths in the snapshot that have inputs of their own, or must not count: the spec, the baseline, the lockfile, declared data."""
    yield os.path.normpath(os.path.join(folder, spec.path.name))
    yield os.path.normpath(os.path.join(folder, FILE_NAME))
    if spec.env.lockfile is not None:
        yield os.path.normpath(os.path.join(folder, spec.env.lockfile))
    for item in data:
        if not os.path.isabs(item.path):
            yield os.path.normpath(os.path.join(folder, item.path))
            continue
        above, name = os.path.split(os.path.normpath(item.path))
        yield os.path.relpath(os.path.join(os.path.realpath(above), name), snapshot.source)


def _lockfile(spec: Spec, snapshot: Snapshot, folder: str) -> str | None:
    """The lockfile's digest: of the snapshot's copy, else (git ignores it) of the file itself; None where there is none."""
    if spec.env.lockfile is None:
        return None
    for path in (snapshot.root / folder / spec.env.lockfile, spec.path.parent / spec.env.lockfile):
        try:
            return f"sha256:{file_digest(path)}"
        except (OSError, ValueError):  # ValueError: a NUL in the path
            continue
    return None
