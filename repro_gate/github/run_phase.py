"""The first half of the action: gate the checkout and leave a report, or the reason why there is
none, in the report folder.

It runs untrusted code, so it is given no token and writes none of the runner's files; the
publishing half does, in a later step or, in the container, in this process once nothing of the
training is alive.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from repro_gate.errors import GateError, for_person, obeyed
from repro_gate.gate.options import Options
from repro_gate.github.activity import Activity, Decision
from repro_gate.github.redact import redact
from repro_gate.github.report_folder import (
    HTML,
    MARKDOWN,
    REPORT,
    SARIF,
    Folder,
    Problem,
    cache_folder,
    open_folder,
)
from repro_gate.github.settings import Inputs, Job
from repro_gate.report.model import PLAIN, Origin, Report, View
from repro_gate.report.progress import watching
from repro_gate.sandbox.selection import choose


def gate_phase(
    inputs: Inputs,
    job: Job,
    decision: Decision,
    environment: Mapping[str, str],
    known: Sequence[str] = (),
) -> Report | Problem:
    """Do what the decision says, leave the outcome in the report folder, and return it. Raises
    UsageError if that folder cannot be used.

    `known`: the secrets to take out of what is left there; `environment` need not hold them.
    """
    os.chdir(job.workspace)
    with open_folder(job.workspace, inputs.report) as folder:
        if decision.activity is not Activity.GATE:
            problem = Problem.of_decision(decision)
            folder.write_problem(problem)
            return problem
        try:
            report = _gated(inputs, job, environment)
            # if the event names no commit: the one that is checked out
            head = decision.tested_sha or report.subject.commit or job.sha
            name = os.path.basename(inputs.report)
            origin = Origin(job.repository, head, job.run_id, job.run_attempt, name)
            report = redact(replace(report, origin=origin), known)
            folder.clear()  # of what the training put there, if it runs as the gate's own user
            write_report(folder, report, View(server_url=job.server_url))
            return report
        except (GateError, OSError, MemoryError, KeyboardInterrupt) as error:
            problem = redact(Problem.of(for_person(error)), known)
            folder.write_problem(problem)
            if isinstance(error, KeyboardInterrupt):
                raise
            return problem


def spec_path(inputs: Inputs) -> str:
    """Return the spec's path relative to the workspace: how the report, the comment's marker and
    annotations name it."""
    path = os.path.normpath(os.path.join(inputs.working_directory, inputs.spec))
    return os.path.join(path, "repro.yml") if os.path.isdir(path) else path


def _gated(inputs: Inputs, job: Job, environment: Mapping[str, str]) -> Report:
    from repro_gate.gate.run import run_gate
    from repro_gate.spec.loader import load_spec

    name = spec_path(inputs)
    spec = load_spec(Path(name), inputs.overrides)
    cache = None if inputs.cache is None else job.workspace / inputs.cache
    environment = environment if cache is None else {**environment, "XDG_CACHE_HOME": str(cache)}
    options = Options(
        spec_as_given=name,
        overrides=inputs.overrides,
        base=inputs.base,
        policy=inputs.policy,
        against=inputs.against,
        cache_root=cache,
        environment=dict(environment),
        sandbox=choose(environment),
    )
    with (
        cache_folder(cache, job.workspace),
        obeyed(),
        watching(sys.stderr, terminal=False, github=True, quiet=False) as watch,
    ):
        return run_gate(spec, options, watch)


def write_report(folder: Folder, report: Report, view: View = PLAIN) -> None:
    """Write report.json, report.md, report.html and report.sarif."""
    from repro_gate.report import document, exports, html, markdown

    for name, render in (
        (REPORT, document.render),
        (MARKDOWN, markdown.summary),
        (HTML, html.render),
        (SARIF, exports.sarif),
    ):
        folder.write(name, render(report, view))
