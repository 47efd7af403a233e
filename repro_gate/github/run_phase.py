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
from pathlib import Path

from repro_gate.errors import GateError, for_person, obeyed
from repro_gate.gate.options import Options
from repro_gate.gate.run import run_gate
from repro_gate.github.activity import Decision
from repro_gate.github.redact import redact
from repro_gate.github.report_folder import cache_folder, open_folder
from repro_gate.github.settings import Inputs, Job
from repro_gate.report.model import Origin, Report, View
from repro_gate.report.progress import Lines
from repro_gate.sandbox.selection import choose
from repro_gate.spec.loader import load_spec


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
    # relative to the workspace: how the report, the comment's marker and annotations name it
    name = inputs.spec
    if os.path.isdir(name):
        name = os.path.join(name, "repro.yml")
    spec = load_spec(Path(name), inputs.overrides)
    cache = None
    if inputs.cache is not None:
        cache = job.workspace / inputs.cache
        environment = {**environment, "XDG_CACHE_HOME": str(cache)}
    options = Options(
        spec_as_given=name,
        overrides=inputs.overrides,
        base=inputs.base,
        policy=inputs.policy,
        against=inputs.against,
        cache_root=cache,
        environment=environment,
        sandbox=choose(environment),
    )
    with (
        cache_folder(cache, job.workspace),
        obeyed(),
        closing(Lines(sys.stderr, github=True)) as watch,
    ):
        return run_gate(spec, options, watch)
