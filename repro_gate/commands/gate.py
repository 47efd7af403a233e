"""The commands that gate, check or show one training: `run`, `baseline`, `check` and `show`."""

from __future__ import annotations

import json
import os
import sys
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import Any

from repro_gate.baseline.file import dump_baseline, read_baseline
from repro_gate.baseline.model import FILE_NAME
from repro_gate.commands import output
from repro_gate.errors import UsageError
from repro_gate.escape import for_log
from repro_gate.files import replace_file
from repro_gate.gate.evidence import NEED_TRAINING, check
from repro_gate.gate.options import Options
from repro_gate.gate.run import gate, run_gate
from repro_gate.report.document import load
from repro_gate.report.model import EXIT_CODES
from repro_gate.report.terminal import checklist_json, render_checklist
from repro_gate.sandbox.selection import choose
from repro_gate.spec.loader import load_spec
from repro_gate.spec.model import CostBudget, Spec


def run_command(options: Namespace) -> int:
    """Gate the training of a spec, and print and write its report."""
    if options.record and (options.against or options.only or options.fail_fast):
        raise UsageError(
            "--record does one run and compares nothing",
            remedy="leave out --against, --only and --fail-fast",
        )
    files = output.files_of(options)
    output.remove(files)
    spec, gate_options = requested(
        options,
        base=options.base,
        policy=options.policy,
        against=options.against,
        fail_fast=options.fail_fast,
        only=options.only or "",
        record=options.record,
        keep_traces=options.keep_traces,
        cache=not options.no_cache,
    )
    if options.keep_traces:
        output.make_empty(options.keep_traces)
    with output.watch(options) as watch:
        report = run_gate(spec, gate_options, watch)
    output.show(report, files, verbose=options.verbose)
    return EXIT_CODES[report.verdict]


def requested(options: Namespace, **more: Any) -> tuple[Spec, Options]:
    """Return the spec of a command that trains, and what the command line says besides."""
    scratch = (
        options.scratch and f"scratch={json.dumps(os.path.abspath(options.scratch))}"
    )
    laid_over = {
        "overrides": (*options.overrides, *filter(None, [scratch])),
        "seed": options.seed,
        "steps": options.steps,
    }
    spec = load_spec(Path(options.spec), **laid_over)
    return spec, Options(
        spec_as_given=options.spec, **laid_over, sandbox=choose(os.environ), **more
    )


def baseline_command(options: Namespace) -> int:
    """Gate the training without measuring costs; if it passes, record its config hash and its
    results in `repro.baseline.yml` beside the other platforms'."""
    spec = load_spec(Path(options.spec))
    path = spec.path.parent / FILE_NAME
    before = read_baseline(path)
    gate_options = Options(
        spec_as_given=options.spec,
        record_baseline=True,
        cache=not options.no_cache,
        sandbox=choose(os.environ),
    )
    with output.watch(options) as watch:
        report, entry = gate(
            replace(spec, cost=CostBudget(measure=False)), gate_options, watch
        )
    verdict = report.verdict
    output.show(report, (), verbose=options.verbose)
    if verdict == "pass" and entry is not None:
        try:
            # other platforms' entries stay, also of an older recipe: the gate says so there
            text = dump_baseline({**before, entry.platform: entry})
            replace_file(path, text.encode(), 0o644)
        except OSError as error:
            raise output.unwritable(path, error) from None
        print(for_log(f"wrote {path}: review it and commit it"))
        return 0
    why = f"the verdict is {verdict}"
    if verdict == "pass":
        why = "two runs are within the tolerance but not bitwise identical"
    print(f"repro-gate: nothing was recorded: {why}", file=sys.stderr)
    return EXIT_CODES[verdict] or EXIT_CODES["inconclusive"]


def check_command(options: Namespace) -> int:
    """Make the checks that need no training."""
    output.writable(options.json)
    spec = load_spec(Path(options.spec))
    with output.watch(options) as watch:
        results = check(spec, watch.verifying, cached=not options.no_cache)
    if options.json is not None:
        output.write(options.json, checklist_json(results, options.spec, NEED_TRAINING))
    output.print_guarded(render_checklist(results, NEED_TRAINING, output.view()))
    return 1 if any(item.status == "fail" for item in results) else 0


def show_command(options: Namespace) -> int:
    """Print a report.json again, or write it in another format. What is read is untrusted."""
    path = output.report_at(options.report)
    files = output.files_of(options, [path])
    report = load(path)
    output.remove(files)
    return (
        0
        if output.show(report, files, verbose=options.verbose)
        else UsageError.exit_code
    )
