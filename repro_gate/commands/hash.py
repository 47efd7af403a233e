"""`repro-gate hash`: the config hash of a checkout, or the one that a report or a baseline
carries."""

from __future__ import annotations

import os
from argparse import Namespace
from pathlib import Path

import msgspec

from repro_gate.baseline.config_hash import (
    ChangedInput,
    ConfigHash,
    changed_inputs,
    made_again,
    tree_lines,
)
from repro_gate.baseline.file import read_baseline
from repro_gate.baseline.inputs import config_hash_of
from repro_gate.checkout.inspection import inspect_checkout
from repro_gate.checkout.snapshot import take_snapshot
from repro_gate.commands import output
from repro_gate.data.declared import resolve_data
from repro_gate.errors import Inconclusive, UsageError, obeyed
from repro_gate.escape import for_log, for_terminal
from repro_gate.files import scratch_folder
from repro_gate.gate.evidence import gather
from repro_gate.gate.resolve import resolve
from repro_gate.install.install import environments_root, installed
from repro_gate.report import comparisons
from repro_gate.report.document import read_json, to_text, validate
from repro_gate.report.model import Report
from repro_gate.report.wording import plain_text
from repro_gate.runs.environment import thread_count
from repro_gate.runs.interpreter import interpreter_facts
from repro_gate.runs.progress import Watch
from repro_gate.sandbox.confinement import confined
from repro_gate.sandbox.selection import choose
from repro_gate.spec.loader import load_spec


def hash_command(options: Namespace) -> int:
    """Print a config hash and its inputs, or with `--diff` the inputs in which two differ."""
    output.writable(options.json)
    names = options.diff or [options.target]
    with output.watch(options) as watch:
        hashes = [
            address_at(Path(name), watch, cached=not options.no_cache) for name in names
        ]
    moves: tuple[ChangedInput, ...] = ()
    document = msgspec.to_builtins(hashes[0])
    lines = tree_lines(hashes[0])
    if options.diff:
        moves = changed_inputs(*hashes)
        document = {"changed_inputs": msgspec.to_builtins(moves)}
        lines = [plain_text(comparisons.move(item)) for item in moves]
    if options.json is not None:
        output.write(options.json, to_text(document))
    for line in lines or ("same config hash: no input differs",):
        print(for_log(line))
    return 1 if moves else 0


def address_at(path: Path, watch: Watch, *, cached: bool) -> ConfigHash:
    """Return the config hash at `path`: a report.json, a repro.baseline.yml with one platform, else
    a spec or its folder, of which the training's interpreter is asked what it would train with.
    Raises GateError."""
    if path.suffix == ".json":
        return load_config_hash(path)
    if path.suffix in (".yml", ".yaml") and path.stem.endswith("baseline"):
        return _recorded(path)
    resolved = resolve(load_spec(path))
    for problem in resolved.problems:
        raise UsageError(str(problem), remedy=problem.remedy)
    spec = resolved.spec
    checkout = inspect_checkout(spec.path.parent)
    evidence = gather(resolved, checkout, watch.verifying, os.environ, cached=cached)
    for item in evidence.data:
        if item.actual is None:
            raise Inconclusive(
                f"data: {item.path}: {item.problem}",
                reason_id="data/missing",
                remedy="fetch the data first, or mend the path: what is not there has no digest",
            )
    sandbox = choose(os.environ)
    reach = [environments_root(os.environ, None, sandbox)] if spec.env.install else []
    declared = resolve_data(spec.data, spec.path.parent)
    with (
        confined(sandbox, os.environ, checkout.root, declared, reach),
        installed(spec, checkout.root, os.environ, sandbox, tell=watch.said) as outer,
        scratch_folder() as place,
        obeyed(),
    ):
        return config_hash_of(
            spec,
            take_snapshot(checkout, place / "snapshot", declared),
            evidence.data,
            {**interpreter_facts(spec, outer, sandbox), "threads": thread_count(outer)},
            evidence.machine,
            evidence.running_image,
        )


def load_config_hash(path: Path) -> ConfigHash:
    """Return the config hash in the report at `path`, or the one that `hash --json` wrote there.
    Raises GateError naming the file: unreadable, neither, no config hash in it, or a forged one."""
    name = for_terminal(str(path), 200)
    raw = read_json(path)
    if isinstance(raw, dict) and isinstance(raw.get("config_hash"), str):
        claimed: ConfigHash | None = validate(raw, ConfigHash, name)
    else:
        claimed = validate(raw, Report, name).config_hash
    if claimed is None:
        raise UsageError(
            f"{name}: this report carries no config hash: no run of it came to its end",
            reason_id="config-hash/none",
            remedy="name a report of a gate run whose deterministic runs ended well",
        )
    try:
        return made_again(claimed)
    except UsageError as error:
        message = f"{name}: {for_terminal(error.message, 600)}"
        raise UsageError(
            message, remedy=error.remedy, reason_id=error.reason_id
        ) from None


def _recorded(path: Path) -> ConfigHash:
    baseline = read_baseline(path)
    if not path.exists():
        raise UsageError(
            f"{path}: there is no such file",
            remedy="name a repro.baseline.yml, a report.json or a spec",
        )
    if len(baseline) != 1:
        raise UsageError(
            f"{path}: it records {len(baseline)} platforms, so it has no one config hash",
            remedy="name a report.json of the platform, or the spec for this machine",
        )
    return made_again(*baseline.values())
