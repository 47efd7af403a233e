"""`repro-gate check`: the checks that need no training, or with `--inputs` the config hash of the
checkout."""

from __future__ import annotations

import os
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

from repro_gate.baseline.config_hash import ConfigHash, tree_lines
from repro_gate.baseline.inputs import config_hash_of
from repro_gate.checkout.inspection import inspect_checkout
from repro_gate.commands import output
from repro_gate.errors import Inconclusive, UsageError, obeyed
from repro_gate.gate.evidence import NEED_TRAINING, check, gather
from repro_gate.gate.resolve import resolve
from repro_gate.install.install import environments_root, installed
from repro_gate.report.document import render
from repro_gate.report.terminal import checklist_json, render_checklist
from repro_gate.runs.environment import thread_count
from repro_gate.runs.gate_folder import open_gate_folder
from repro_gate.runs.interpreter import interpreter_facts
from repro_gate.runs.progress import Watch
from repro_gate.sandbox.selection import choose
from repro_gate.spec.loader import load_spec
from repro_gate.spec.model import Spec


def check_command(options: Namespace) -> int:
    """Make the checks that need no training, or print the config hash and its inputs."""
    output.writable(options.json)
    spec = load_spec(Path(options.spec))
    cached = not options.no_cache
    with output.watch(options) as watch:
        if options.inputs:
            hashed = config_hash_of_checkout(spec, watch, cached=cached)
            output.write(options.json, render(hashed))
            for line in tree_lines(hashed):
                output.say(line)
            return 0
        results = check(spec, watch.verifying, cached=cached)
    output.write(options.json, checklist_json(results, options.spec, NEED_TRAINING))
    output.print_guarded(render_checklist(results, NEED_TRAINING, output.view()))
    return 1 if any(item.status == "fail" for item in results) else 0


def config_hash_of_checkout(spec: Spec, watch: Watch, *, cached: bool) -> ConfigHash:
    """Return the config hash that a gate run of this checkout would have. The training's
    interpreter is asked what it would train with. Raises GateError."""
    resolved = resolve(spec)
    for problem in resolved.problems:
        raise UsageError(str(problem), remedy=problem.remedy)
    # no run is made, so none needs a folder that several machines see
    spec = replace(resolved.spec, scratch=None)
    checkout = inspect_checkout(spec.path.parent)
    environment = os.environ
    evidence = gather(resolved, checkout, watch.verifying, environment, cached=cached)
    for item in evidence.data:
        if item.actual is None:
            raise Inconclusive(
                f"data: {item.path}: {item.problem}",
                reason_id="data/missing",
                remedy="fetch the data first, or mend the path: what is not there has no digest",
            )
    sandbox = choose(environment)
    reach = [environments_root(environment, None, sandbox)] if spec.env.install else []
    tell = watch.said
    with (
        open_gate_folder(spec, checkout, environment, sandbox, reach, tell) as folder,
        installed(spec, checkout.root, environment, sandbox, tell=tell) as outer,
        obeyed(),
    ):
        return config_hash_of(
            spec,
            folder.snapshot,
            evidence.data,
            {**interpreter_facts(spec, outer, sandbox), "threads": thread_count(outer)},
            evidence.machine,
            evidence.running_image,
        )
