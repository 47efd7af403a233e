"""`python -m repro_gate.github action|plan|install|gate|publish|comment`: the steps of the actions.
Errors are printed here.

`action`, of `native`, gates and publishes in one process. In the containers, `plan` decides,
`install` has a network, `gate` runs untrusted code and has no token, and `publish` has the token
and runs no untrusted code. `comment` posts the report of another job.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Collection, Mapping, Sequence

from repro_gate.errors import GateError, UsageError, end_cleanly, for_person

TRAINING = ("action", "gate")  # the phases that run untrusted code
PREPARING = ("plan", "install")
PHASES = (*PREPARING, *TRAINING, "publish", "comment")


def main(arguments: Sequence[str]) -> int:
    """Run one phase and return the step's exit code."""
    from repro_gate.github.redact import known_secrets
    from repro_gate.sandbox.reexec import NEEDED, handed_over, secret_names, start_anew

    end_cleanly()
    os.umask(0o022)
    for stream in (sys.stdout, sys.stderr):
        # whatever the runner's locale: a name must not end the step
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        phase = " ".join(arguments) or "action"
        if phase not in PHASES:
            raise UsageError(
                f"{phase}: is no phase of the action",
                remedy=f"one of {', '.join(PHASES)}",
            )
        if phase in TRAINING or phase == "install":
            start_anew(os.environ, keep=secret_names(os.environ))
        # all of them are taken out of the report; the gate itself needs no more than the token
        secrets = handed_over()
        needed = {name: value for name, value in secrets.items() if name in NEEDED}
        return _run(
            phase, {**os.environ, **needed}, known_secrets({**os.environ, **secrets})
        )
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  no mistake of ours is a finding
        from repro_gate.report.exports import command

        problem = for_person(error)
        # an annotation without a file: the first thing that a person sees of a red step
        print(command("error", "Repro Gate", problem.diagnostics()), flush=True)
        return problem.exit_code


def _run(phase: str, environment: Mapping[str, str], secrets: Collection[str]) -> int:
    from repro_gate.github import preparation
    from repro_gate.github.activity import decide, decide_comment
    from repro_gate.github.publish_phase import (
        publish_problem,
        publish_report,
        read_report,
    )
    from repro_gate.github.redact import redact
    from repro_gate.github.report_folder import open_folder
    from repro_gate.github.settings import read_inputs, read_job

    inputs = read_inputs(environment)
    job = read_job(environment)
    try:
        decision = (decide_comment if phase == "comment" else decide)(inputs, job)
    except GateError as error:
        if phase in (*TRAINING, *PREPARING):
            # emptied of a report that the checkout may contain, which another job would post
            with open_folder(job.workspace, inputs.report) as folder:
                if error.exit_code:
                    folder.write_problem(error)
        # otherwise the next step decides the same, and says so
        is_last = phase not in (*PREPARING, "gate")
        return publish_problem(error, inputs, job) if is_last else 0
    if phase in PREPARING:
        os.chdir(job.workspace)
        with open_folder(job.workspace, inputs.report) as folder:
            try:
                prepare = preparation.plan if phase == "plan" else preparation.install
                prepare(inputs, job, environment)
            except (GateError, OSError, MemoryError) as error:
                folder.write_problem(redact(for_person(error), secrets))
        return 0
    if phase in TRAINING:
        from repro_gate.github.run_phase import gate_phase

        outcome = gate_phase(inputs, job, decision, environment, secrets)
    else:
        outcome = read_report(inputs, job, decision, secrets)
    # the outcome lies in the report folder, and the next step publishes it
    if phase == "gate":
        return 0
    if isinstance(outcome, GateError):
        return publish_problem(outcome, inputs, job)
    return publish_report(outcome, inputs, job, decision)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
