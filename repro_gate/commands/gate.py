"""The commands that gate one training or show what a gate run found: `run`, `baseline` and
`show`."""

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
from repro_gate.commands.arguments import FORMATS
from repro_gate.commands.diagnosis import diagnose
from repro_gate.compare.change import SIZES, UNMEASURED
from repro_gate.errors import UsageError, for_person
from repro_gate.gate.options import Options
from repro_gate.gate.run import gate, run_gate
from repro_gate.report.document import load
from repro_gate.report.model import EXIT_CODES, Report
from repro_gate.sandbox.selection import choose
from repro_gate.spec.loader import load_spec
from repro_gate.spec.model import CostBudget, Spec

SKIP = 125  # `git bisect run`: this commit cannot be judged
# what it takes to tell whether results are those of another ref, and no more
_BISECTING = ("cost.measure=false", "robustness.vary=false", "diagnosis=false")
# options that a diagnosis alone would have to ignore
_OF_A_REPORT = (
    *FORMATS,
    "against",
    "against_env",
    "seeds",
    "base",
    "policy",
    "fail_fast",
    "quick",
    "operators",
    "keep_traces",
    "verbose",
)


def run_command(options: Namespace) -> int:
    """Gate the training of a spec, and print and write its report; or only diagnose it."""
    _require_compatible(options)
    try:
        return _run(options)
    except Exception as error:
        if not options.bisect:
            raise
        # such as a commit whose spec has a mistake
        known = for_person(error)
        known.exit_code = SKIP
        raise known from error


def _run(options: Namespace) -> int:
    if options.only == "diagnosis":
        return diagnose(*requested(options, policy="head"), options)
    files = output.files_of(options)
    output.remove(files)
    spec, gate_options = requested(
        options,
        *(_BISECTING if options.bisect else ()),
        base=options.base,
        policy=options.policy,
        against=options.against,
        against_env=options.against_env,
        fail_fast=options.fail_fast,
        only=options.only or "",
        quick=options.quick,
        record=options.record,
        operators=options.operators,
        keep_traces=options.keep_traces,
    )
    if options.bisect and options.size != "within-seed-noise":
        spec = replace(spec, effect=None)  # no metric is asked for
    if options.keep_traces:
        output.make_empty(options.keep_traces)
    with output.watch(options) as watch:
        report = run_gate(spec, gate_options, watch)
    output.show(report, files, verbose=options.verbose)
    if options.bisect:
        return _exit_of_bisect(report, options.size or SIZES[0])
    return EXIT_CODES[report.verdict]


def _exit_of_bisect(report: Report, size: str) -> int:
    """Return what `git bisect run` reads: 0 where a change is of this size at most, 1 where it is
    larger, SKIP where that is not known."""
    change = report.change
    against = report.against
    if change is None or against is None or against.status == "inconclusive":
        return SKIP
    is_vague = size == "within-seed-noise" or change.detail.startswith(UNMEASURED)
    if change.size == "different" and size != SIZES[0] and is_vague:
        return SKIP
    return int(SIZES.index(change.size) > SIZES.index(size))


def _require_compatible(options: Namespace) -> None:
    """Raise UsageError for options of which one would have to be ignored."""
    alone = options.only == "diagnosis"
    compared = ("against", "against_env", "only", "fail_fast", "quick")
    for applies, what, excluded in (
        (options.record, "--record does one run and compares nothing", compared),
        (alone, "--only diagnosis makes no report", _OF_A_REPORT),
        (
            options.quick,
            "--quick does the fewest runs",
            ("against", "against_env", "only", "operators"),
        ),
        (
            not (options.against or options.against_env),
            "it needs --against REF, with which the results are compared",
            ("bisect",),
        ),
        (not options.bisect, "--size needs --bisect", ("size",)),
        (
            options.against,
            "--against and --against-env name two things to compare with",
            ("against_env",),
        ),
        (not alone, "--json-lines needs --only diagnosis", ("json_lines",)),
    ):
        named = [name for name in excluded if getattr(options, name)]
        if applies and named:
            names = ", ".join(f"--{name.replace('_', '-')}" for name in named)
            raise UsageError(what, remedy=f"leave out {names}")


def requested(options: Namespace, *overrides: str, **more: Any) -> tuple[Spec, Options]:
    """Return the spec of a command that trains, with `overrides` after those of the command line,
    and what the command line says besides."""
    given = vars(options)
    if scratch := given.get("scratch"):
        overrides += (f"scratch={json.dumps(os.path.abspath(scratch))}",)
    if given.get("seeds") is not None:
        overrides += (f"effect.seeds={given['seeds']}",)
    laid_over: dict[str, Any] = {
        "overrides": (*given.get("overrides", ()), *overrides),
        "seed": given.get("seed"),
        "steps": given.get("steps"),
    }
    return load_spec(Path(options.spec), **laid_over), Options(
        spec_as_given=options.spec,
        cache=not given.get("no_cache"),
        sandbox=choose(os.environ),
        **laid_over,
        **more,
    )


def baseline_command(options: Namespace) -> int:
    """Gate the training without measuring costs; if it passes, record its config hash and its
    results in `repro.baseline.yml` beside the other platforms'."""
    spec, gate_options = requested(options, record_baseline=True)
    path = spec.path.parent / FILE_NAME
    before = read_baseline(path)
    narrowed = replace(spec, cost=CostBudget(measure=False), operators=None)
    with output.watch(options) as watch:
        report, entry = gate(narrowed, gate_options, watch)
    verdict = report.verdict
    output.show(report, (), verbose=options.verbose)
    if verdict == "pass" and entry is not None:
        # other platforms' entries stay, also of an older recipe: the gate says so there
        output.replace(path, dump_baseline({**before, entry.platform: entry}))
        output.say(f"wrote {path}: review it and commit it")
        return 0
    why = f"the verdict is {verdict}"
    if verdict == "pass":
        why = "two runs are within the tolerance but not bitwise identical"
    print(f"repro-gate: nothing was recorded: {why}", file=sys.stderr)
    return EXIT_CODES[verdict] or EXIT_CODES["inconclusive"]


def show_command(options: Namespace) -> int:
    """Print a report.json again, or write it in another format. What is read is untrusted."""
    path = output.report_at(options.report)
    files = output.files_of(options, [path])
    report = load(path)
    output.remove(files)
    is_written = output.show(report, files, verbose=options.verbose)
    return 0 if is_written else UsageError.exit_code
