"""The second half of the action: publish the gate's report as outputs, job summary, annotations and
the pull request's comment. The action `comment` does no more than to log and post the report of
another job.

No untrusted code runs any more. The report is untrusted input: read under limits, by its schema,
and compared with the run that made it.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

from repro_gate.compare.model import Divergence
from repro_gate.errors import GateError, Inconclusive
from repro_gate.escape import (
    commands_disabled,
    for_markdown,
    for_workflow_log,
)
from repro_gate.github import workflow
from repro_gate.github.activity import Decision
from repro_gate.github.client import Api
from repro_gate.github.comment import Posted, post
from repro_gate.github.marker import Marker, costs_differ, is_news, key_for, marker_of
from repro_gate.github.redact import redact
from repro_gate.github.report_folder import (
    HTML,
    MARKDOWN,
    REPORT,
    SARIF,
    find_report,
    read_problem,
)
from repro_gate.github.settings import Inputs, Job
from repro_gate.github.workflow_run import check, find_pull, see_again
from repro_gate.report import markdown, terminal
from repro_gate.report.document import jsonable, load
from repro_gate.report.exports import command, workflow_commands
from repro_gate.report.model import EXIT_CODES, Report, View
from repro_gate.trace.fields import Location

_PLACE = re.compile(r"(?!/)([^:]+):([0-9]{1,7})(?::|\Z)")


def read_report(
    inputs: Inputs, job: Job, decision: Decision, secrets: Collection[str]
) -> Report | GateError:
    """Return the report that another process left in the report folder, or the error why there is
    none to publish: the recorded error, ReportError if it cannot be read, Inconclusive if there is
    none, UsageError if it belongs to another run. `secrets` must not be
    published."""
    try:
        path = find_report(job.workspace, inputs.report)
        # another job has shown its own problem
        problem = None if decision.only_posts else read_problem(path.parent)
        if problem is not None:
            return redact(problem, secrets)
        if not path.exists():
            raise Inconclusive(
                f"{inputs.report}: there is no report: the gate ended before it wrote one",
                remedy="see the end of the gate's log; a machine that ran out of memory or disk is "
                "the usual cause",
                reason_id="action/no-report",
            )
        report = load_gated(path, secrets)
        origin = report.origin
        # a job that only posts may be started again alone
        earliest = 1 if decision.only_posts else job.run_attempt
        if decision.workflow_run is not None:
            check(decision.workflow_run, job.repository, origin)
        elif (
            origin is None
            or (origin.repository, origin.run_id) != (job.repository, job.run_id)
            or not earliest <= origin.run_attempt <= job.run_attempt
        ):
            raise Inconclusive(
                f"{inputs.report}: the report in it belongs to another run",
                remedy="remove the folder from the checkout, or name another folder with "
                "`with: {report: …}`",
                reason_id="action/foreign-report",
            )
    except GateError as error:
        return redact(error, secrets)
    if decision.by_training:
        return replace(report, reproduce=see_again(report))
    return report


def load_gated(path: Path, secrets: Collection[str]) -> Report:
    """Return the report of a gate run, without these secrets. Raises GateError, also for a
    report that says itself that nothing was compared: that must never stand for a pass."""
    report = redact(load(path), secrets)
    if report.verdict == "recorded":
        raise Inconclusive(
            f"{path}: the report is of `repro-gate run --record`, which compares nothing",
            remedy="gate the training without `--record`",
            reason_id="action/not-gated",
        )
    return report


def publish_report(report: Report, inputs: Inputs, job: Job, decision: Decision) -> int:
    """Publish a report, log it on standard output, and return the step's exit code. A comment that
    cannot be posted is a warning, never an error."""
    view = view_of(job, report, decision.by_training)
    posted = _comment(report, inputs, job, decision, view)
    # for whoever opens the step's log
    with commands_disabled():
        print(terminal.render(report, View(encoding=sys.stdout.encoding)), end="")
    comment = f"comment {posted.outcome} {posted.url}".rstrip()
    line = f"repro-gate: {report.verdict}; {comment}; report: {inputs.report}"
    print(for_workflow_log(line))
    # A fork's token cannot write, and a push's token may not look up the pull request.
    expected = (
        posted.outcome == "skipped"
        or isinstance(decision.find_by, str)
        or (decision.pull is not None and decision.pull.fork)
    )
    if posted.reason:
        level = "notice" if expected else "warning"
        print(command(level, "Repro Gate: no comment", posted.reason))
    if decision.only_posts:
        outputs = {"verdict": report.verdict, "comment_url": posted.url}
        workflow.write_outputs(job.output_file, outputs)
        failed = posted.outcome == "refused" and not expected
        return Inconclusive.exit_code if failed else 0
    if inputs.summary:
        workflow.write_summary(job.summary_file, markdown.summary(report, view))
    if inputs.annotations:
        print(workflow_commands(report), end="")
    workflow.write_outputs(job.output_file, outputs_of(report, inputs, posted))
    return EXIT_CODES[report.verdict] if report.verdict in inputs.fail_on else 0


# outputs of the action that are fields of the report
_OF_THE_REPORT = {
    "verdict": "verdict",
    "identical": "determinism.identical",
    "first_divergence": "determinism.first_divergence",
    "cause": "diagnosis.cause",
    "determinism_cost_pct": "cost.determinism_cost_pct",
    "determinism_cost_ci95": "cost.ci95",
    "config_hash": "config_hash.config_hash",
    "baseline": "baseline.status",
    "change": "change.size",
    "resume": "resume.identical",
    "equivalent": "equivalent",
    "robust": "robust",
}


def outputs_of(report: Report, inputs: Inputs, posted: Posted) -> dict[str, str]:
    """Return the action's outputs by name, as `docs/action.md` lists them. A value that was not
    measured is empty."""
    outputs = {}
    for name, path in _OF_THE_REPORT.items():
        value: Any = report
        for part in path.split("."):
            value = getattr(value, part, None)
        if isinstance(value, Divergence):
            value = {"step": value.step, "kind": value.kind, "name": value.name}
        outputs[name] = "" if value is None else json.dumps(jsonable(value)).strip('"')
    files = {"report": REPORT, "markdown": MARKDOWN, "html": HTML, "sarif": SARIF}
    outputs |= {name: str(Path(inputs.report, file)) for name, file in files.items()}
    outputs["comment_url"] = posted.url
    outputs["exit_code"] = str(EXIT_CODES[report.verdict])
    return outputs


def _comment(
    report: Report, inputs: Inputs, job: Job, decision: Decision, view: View
) -> Posted:
    """Post the comment, if it is wanted and possible. Errors of the API become outcomes of
    `Posted`."""
    if inputs.comment == "never":
        return Posted("skipped")
    if inputs.token is None:
        return Posted(
            "refused",
            "no token was given, so nothing could be posted: `with: {token: ${{ github.token }}}`",
        )
    # A `pull_request` job checks out the merge of head and base, GITHUB_SHA, unless a workflow asks
    # for something else; under `pull_request_target` that is the base itself. Another run's report
    # has been compared with its run.
    run = decision.workflow_run
    tested = decision.tested_sha
    commit = report.subject.commit
    event = job.event_name
    merges = event.startswith("pull_request") and event != "pull_request_target"
    heads = (tested, job.sha) if merges else (tested,)
    if run is None and tested and commit and commit not in heads:
        return Posted(
            "skipped",
            f"the checkout is at {commit[:7]}, which is not the pull request's head {tested[:7]}: "
            "check out `${{ github.event.pull_request.head.sha }}`",
        )
    # the key of this gate: its job, and the inputs that distinguish steps and matrix cells of that
    # job
    whose = "foreign" if decision.foreign else "own"
    key = key_for(job.workflow, job.name, whose, inputs.spec, inputs.report)
    api = Api(inputs.token, job)
    pull = decision.pull
    find_by = decision.find_by
    try:
        if run is not None:
            pull = find_pull(api, run, job.repository)
        elif isinstance(find_by, int):
            pull = api.pull(find_by)
        elif find_by is not None:
            pulls = [
                pull
                for pull in api.pulls_at(find_by)
                if (pull.state, pull.head.sha) == ("open", find_by)
            ]
            pull = pulls[0] if len(pulls) == 1 else None
        if pull is None:
            return Posted("skipped")
        return post_report(
            api, pull.number, report, key, when=inputs.comment, view=view
        )
    except GateError as error:
        return Posted.refused(error)


def post_report(
    api: Api, number: int, report: Report, key: str, *, when: str, view: View
) -> Posted:
    """Post a report that names its run under the marker `key`; a pass takes one line if only
    changes are asked for."""
    marker = marker_of(report, key)

    def body(room: int, earlier: Marker | None) -> str:
        fitting = replace(view, limit=room)
        is_plain = report.verdict == "pass" and not report.is_conditional
        if when != "on-change" or not is_plain:
            return markdown.comment(report, fitting)
        if earlier is None:
            return markdown.line(report, fitting)
        cost = earlier.cost if costs_differ(marker, earlier) else None
        return markdown.line(report, fitting, before=earlier.verdict, cost_before=cost)

    return post(api, number, marker, body, when=when, news=is_news(report))


def view_of(job: Job, report: Report, by_training: bool) -> View:
    """Return a view with the page of the run that made the report, whose id was compared with the
    run's."""
    assert report.origin is not None  # the caller has checked
    run_url = f"{job.server_url}/{job.repository}/actions/runs/{report.origin.run_id}"
    # what a training wrote is not to be opened in a browser
    is_ours = job.page_url.startswith(f"{run_url}/artifacts/") and not by_training
    return View(
        server_url=job.server_url,
        run_url=run_url,
        page_url=job.page_url if is_ours else "",
        by_training=by_training,
    )


def publish_problem(problem: GateError, inputs: Inputs, job: Job) -> int:
    """Report why there is no report, in the log, in the summary, and on the spec's line if the
    message names one. Return the step's exit code."""
    location = None
    place = _PLACE.match(problem.message)
    # no file outside the checkout
    if place and ".." not in Path(place[1]).parts and place[1].isprintable():
        location = Location(place[1], int(place[2]))
    level = "error" if problem.exit_code else "notice"
    print(command(level, "Repro Gate", problem.diagnostics(), location))
    verdict = "inconclusive" if problem.exit_code == Inconclusive.exit_code else ""
    if inputs.summary:
        paragraphs = [f"## Repro Gate: {verdict or 'nothing was gated'}"]
        paragraphs += map(for_markdown, problem.message.split("\n"))
        if problem.remedy:
            paragraphs.append(f"**Remedy:** {for_markdown(problem.remedy)}")
        workflow.write_summary(job.summary_file, "\n\n".join(paragraphs) + "\n")
    outputs = {"verdict": verdict, "exit_code": str(problem.exit_code)}
    workflow.write_outputs(job.output_file, outputs)
    return 0 if verdict and verdict not in inputs.fail_on else problem.exit_code
