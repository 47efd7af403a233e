"""The first half of the action: gate the checkout and leave a report, or the reason why there is
none, in the report folder.

It runs untrusted code, so it is given no token and writes none of the runner's files; the
publishing half does, in a later step or, in the container, in this process once nothing of the
training is alive.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Mapping
from contextlib import closing
from dataclasses import replace

from repro_gate.errors import GateError, for_person, obeyed
from repro_gate.gate.run import run_gate
from repro_gate.github.activity import Decision
from repro_gate.github.preparation import PYTHON, begun, with_python
from repro_gate.github.redact import redact
from repro_gate.github.report_folder import cache_folder, open_folder
from repro_gate.github.settings import Inputs, Job
from repro_gate.report.model import Origin, Report, View
from repro_gate.report.progress import Lines


def gate_phase(
    inputs: Inputs,
    job: Job,
    decision: Decision,
    environment: Mapping[str, str],
    secrets: Collection[str],
) -> Report | GateError:
    """Gate the checkout, leave the report, or the error that ended the gate, in the report folder,
    and return it. Raises UsageError if that folder cannot be used.

    `secrets` are taken out of what is left there; `environment` need not hold them.
    """
    os.chdir(job.workspace)
    with open_folder(job.workspace, inputs.report) as folder:
        try:
            report = _gated(inputs, job, environment)
            # if the event names no commit: the one that is checked out
            head = decision.tested_sha or report.subject.commit or job.sha
            name = os.path.basename(inputs.report)
            origin = Origin(job.repository, head, job.run_id, job.run_attempt, name)
            report = redact(replace(report, origin=origin), secrets)
            folder.write_report(report, View(server_url=job.server_url))
            return report
        except (GateError, OSError, MemoryError, KeyboardInterrupt) as error:
            problem = redact(for_person(error), secrets)
            folder.write_problem(problem)
            if isinstance(error, KeyboardInterrupt):
                raise
            return problem


def _gated(inputs: Inputs, job: Job, environment: Mapping[str, str]) -> Report:
    spec, options = begun(inputs, job, environment)
    if PYTHON in environment:
        options = with_python(options)
    with (
        cache_folder(options.cache_root, job.workspace),
        obeyed(),
        closing(Lines(sys.stderr, github=True)) as watch,
    ):
        return run_gate(spec, options, watch)
