"""`repro-gate ops`: measures the operators of a training with its own shapes, or those of a known
list or a user's own, prints them as a table, and compares two measurements.

Exit code 0 if they were measured, 2 for bad arguments or files, 3 if they could not be measured.
"""

from __future__ import annotations

import os
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

from repro_gate.commands import output
from repro_gate.commands.gate import requested
from repro_gate.compare.operators import Operators, changes
from repro_gate.errors import Inconclusive, UsageError, obeyed
from repro_gate.escape import for_terminal
from repro_gate.gate import prepare
from repro_gate.gate.run import run_gate
from repro_gate.ops.measure import without_training
from repro_gate.report.document import ReportError, read_json, render, validate
from repro_gate.report.model import Reason
from repro_gate.report.terminal import render_operators
from repro_gate.runs.progress import Watch
from repro_gate.sandbox.confinement import confined
from repro_gate.sandbox.selection import choose
from repro_gate.spec.model import CostBudget, OperatorsBudget, Spec

SCHEMA_ID = "repro-gate/ops/v2"
_SECONDS = OperatorsBudget().seconds
_MOST_SECONDS = 3_600
_UNKNOWN = Reason(
    "ops/none", "the gate gave no reason", "run `repro-gate run` and see its report"
)


def ops_command(options: Namespace) -> int:
    """Measure, print and write. Raises GateError."""
    seconds = options.seconds
    if seconds is not None and not 1 <= seconds <= _MOST_SECONDS:
        raise UsageError(f"--seconds {seconds:g}: is not from 1 to {_MOST_SECONDS}")
    output.writable(options.json)
    before = options.compare and _read(options.compare)
    with output.watch(options) as watch:
        found = _measured(options, watch)
    is_written = output.write(options.json, render(found, schema=SCHEMA_ID))
    changed = changes(before, found) if before else None
    output.print_guarded(render_operators(found, changed, output.view(options.verbose)))
    return 0 if is_written else UsageError.exit_code


def _measured(options: Namespace, watch: Watch) -> Operators:
    seconds = options.seconds
    if options.known or options.op:
        sandbox = choose(os.environ)
        with confined(sandbox, os.environ, Path.cwd()), obeyed():
            return without_training(
                options.op, options.python, os.environ, sandbox, seconds or _SECONDS
            )
    overrides = [f"operators.seconds={seconds}"] if seconds else []
    # policy: a base's spec would not be narrowed
    spec, gate_options = requested(options, *overrides, policy="head")
    report = run_gate(narrowed(spec), gate_options, watch)
    if report.operators is None:
        why = [item for item in report.notes if item.id.startswith("ops/")]
        reason = next(iter((*why, *report.reasons)), _UNKNOWN)
        raise Inconclusive(
            f"the operators were not measured: {for_terminal(reason.message, 600)}",
            remedy=for_terminal(reason.remedy, 600),
            reason_id=reason.id,
        )
    return report.operators


def narrowed(spec: Spec) -> Spec:
    """Return the spec reduced to what the operators and their shares need: two runs with the flags,
    two without, and the control that records."""
    return replace(
        prepare.narrowed(spec, ""),
        determinism=replace(spec.determinism, repeat=2),
        cost=CostBudget(),
        diagnosis=None,
        operators=spec.operators or OperatorsBudget(),
    )


def _read(path: Path) -> Operators:
    """Return the operators of an untrusted file of `--json`, or of a report. Raises ReportError."""
    document = read_json(path)
    name = for_terminal(os.fspath(path), 200)
    if isinstance(document, dict) and isinstance(document.get("operators"), dict):
        document = document["operators"]
    elif isinstance(document, dict) and document.get("schema") != SCHEMA_ID:
        was = for_terminal(str(document.get("schema")), 100)
        raise ReportError(
            f"{name}: its schema is {was}, not {SCHEMA_ID}",
            remedy="write it anew with `repro-gate ops --json`",
        )
    return validate(document, Operators, name)
