"""The second half of the action: publish the gate's report as outputs, job summary, annotations and
the pull request's comment. The action `comment` does no more than to log and post the report of
another job.

No untrusted code runs any more. The report is untrusted input: read under limits, by its schema,
and compared with the run that made it.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TextIO

from repro_gate.errors import GateError, Inconclusive
from repro_gate.escape import for_markdown, for_terminal, for_workflow_log
from repro_gate.github import workflow
from repro_gate.github.activity import Activity, Decision
from repro_gate.github.client import Api
from repro_gate.github.comment import Posted, post
from repro_gate.github.event import PullRequest
from repro_gate.github.marker import Marker, apart, is_news, key_for, state_of, tenths
from repro_gate.github.redact import redact
from repro_gate.github.report_folder import (
    HTML,
    MARKDOWN,
    PROBLEM,
    REPORT,
    SARIF,
    Problem,
    find_report,
    problem_of,
    read_problem,
)
from repro_gate.github.settings import Inputs, Job
from repro_gate.github.workflow_run import NothingToPost, check, find_pull, see_again
from repro_gate.report import markdown, terminal
from repro_gate.report.document import ReportError, load, plain
from repro_gate.report.exports import Annotation, command, workflow_commands
from repro_gate.report.model import EXIT_CODES, Report, View

_PLACE = re.compile(r"(?!/)([^:]+):([0-9]{1,7})(?::|\Z)")
StepResult = tuple[Mapping[str, str], int]  # the outputs of this step by name, and its exit code


def publish_phase(
    inputs: Inputs,
    job: Job,
    decision: Decision,
    known: Sequence[str],
    out: TextIO,
    made: Report | Problem | None = None,
) -> int:
    """Publish what this process made, else what the report folder holds, and return the step's exit
    code. A comment that cannot be posted is a warning, never an error.

    `known`: the secrets that nothing published may hold.
    """
    try:
        found = made or _read(inputs, job, decision, known)
    except GateError as error:
        found = Problem.of(error)
    if isinstance(found, Problem):
        outputs, code = _publish_problem(found, inputs, job, out)
    else:
        outputs, code = _publish_report(found, inputs, job, decision, out)
    workflow.write_outputs(job.output_file, outputs)
    return code


def _read(inputs: Inputs, job: Job, decision: Decision, known: Sequence[str]) -> Report | Problem:
    """Return the report that another process left in the folder. Raises ReportError for one that
    cannot be read, Inconclusive where there is none, and UsageError for one that is not of the run
    that it came with."""
    if decision.activity in (Activity.REFUSE, Activity.NOTHING):
        return problem_of(decision.activity.value, decision.reason, decision.remedy)
    own, run = decision.activity is Activity.GATE, decision.workflow_run  # own: made in this job
    path = find_report(job.workspace, inputs.report)
    problem = read_problem(path.parent) if own else None  # another job has told its own problem
    if problem is not None:
        if problem.exit_code == 0:
            raise ReportError(
                f"{PROBLEM}: says that nothing was to be done, and there was",
                reason_id="action/foreign-report",
            )
        return problem.without(known)
    if not os.path.exists(path):
        raise Inconclusive(
            f"{inputs.report}: there is no report: the gate ended before it could leave one",
            remedy="see the end of the gate's log; a machine that ran out of memory or disk is the "
            "usual cause",
            reason_id="action/no-report",
        )
    report = redact(load(path), known)
    origin = report.origin
    earliest = job.run_attempt if own else 1  # a job that only posts may be started again alone
    if run is not None:
        check(run, job.repository, origin)
    elif (
        origin is None
        or (origin.repository, origin.run_id) != (job.repository, job.run_id)
        or not earliest <= origin.run_attempt <= job.run_attempt
    ):
        raise Inconclusive(
            f"{inputs.report}: the report there is not of this run",
            remedy="take the folder out of the checkout, or name another with `with: {report: …}`",
            reason_id="action/foreign-report",
        )
    return replace(report, reproduce=see_again(report)) if decision.foreign else report


def _publish_report(
    report: Report, inputs: Inputs, job: Job, decision: Decision, out: TextIO
) -> StepResult:
    view = view_of(job, report, decision.foreign)
    posted = _comment(report, inputs, job, decision, view)
    _log(report, inputs, posted, out)
    expected = _say_no_comment(posted, decision, out)
    if decision.activity is not Activity.GATE:
        code = Inconclusive.exit_code if posted.outcome == "refused" and not expected else 0
        return {"verdict": report.verdict, "comment_url": posted.url}, code
    if inputs.summary:
        text = markdown.summary(report, view)
        if posted.reason:
            text += f"\n> The comment was not posted: {for_markdown(posted.reason)}\n"
        workflow.write_summary(job.summary_file, text)
    if inputs.annotations:
        out.write(workflow_commands(report, view))
    code = EXIT_CODES[report.verdict] if report.verdict in inputs.fail_on else 0
    return outputs_of(report, inputs, posted), code


def outputs_of(report: Report, inputs: Inputs, posted: Posted) -> dict[str, str]:
    """The action's outputs by name, as `docs/action.md` lists them. What was not measured is
    empty."""
    found, cost = report.determinism, report.cost
    first = None if found is None else found.first_divergence
    folder = Path(inputs.report)
    return {
        "verdict": report.verdict,
        "identical": _json(None if found is None else found.identical),
        "first_divergence": _json(
            None if first is None else {"step": first.step, "kind": first.kind, "name": first.name}
        ),
        "cause": "" if report.diagnosis is None else report.diagnosis.cause,
        "determinism_cost_pct": _json(None if cost is None else cost.determinism_cost_pct),
        "determinism_cost_ci95": _json(None if cost is None else cost.ci95),
        "config_hash": "" if report.config_hash is None else report.config_hash.config_hash,
        "baseline": "" if report.baseline is None else report.baseline.status,
        "report": str(folder / REPORT),
        "markdown": str(folder / MARKDOWN),
        "html": str(folder / HTML),
        "sarif": str(folder / SARIF),
        "comment_url": posted.url,
        "exit_code": str(EXIT_CODES[report.verdict]),
    }


def _json(value: object) -> str:
    """Empty for what was not measured; a figure that is no number by its name."""
    return "" if value is None else json.dumps(plain(value)).strip('"')


def _comment(report: Report, inputs: Inputs, job: Job, decision: Decision, view: View) -> Posted:
    """Post the comment, where one is wanted and possible. Errors of the API become what `Posted`
    says."""
    if inputs.comment == "never":
        return Posted("skipped")
    if inputs.token is None:
        return Posted(
            "refused",
            "no token was given, so nothing could be posted: `with: {token: ${{ github.token }}}`",
        )
    if untested := _untested(report, job, decision):
        return Posted("skipped", untested)
    api = Api(inputs.token, job.repository, api_url=job.api_url, graphql_url=job.graphql_url)
    try:
        pull = _pull(api, job, decision)
        key = _key(inputs, job, decision)
        if pull is None:
            return Posted("skipped")
        return post_report(api, pull.number, report, key, when=inputs.comment, view=view)
    except NothingToPost as error:
        return Posted("skipped", error.message)
    except GateError as error:
        return Posted("refused", "; ".join(filter(None, (error.message, error.remedy))))


def _untested(report: Report, job: Job, decision: Decision) -> str:
    """Why the report is of another commit than the one that the comment would name; empty where it
    is of that one.

    A `pull_request` job checks out the merge of head and base, GITHUB_SHA, where a workflow asks
    for nothing else; under `pull_request_target` that is the base itself. Another run's report is
    compared with its run instead.
    """
    tested, commit = decision.tested_sha, report.subject.commit
    if decision.workflow_run is not None or commit is None or not tested:
        return ""
    if commit == tested or (
        job.event_name.startswith("pull_request")
        and job.event_name != "pull_request_target"
        and commit == job.sha
    ):
        return ""
    return (
        f"the checkout is at {commit[:7]}, which is not the pull request's head {tested[:7]}: "
        "check out `${{ github.event.pull_request.head.sha }}`"
    )


def _key(inputs: Inputs, job: Job, decision: Decision) -> str:
    """Return the key of this gate's comment: its job, and what tells steps and matrix cells of that
    job apart. A foreign report has another key than a report of the repository's own code."""
    spec = posixpath.normpath(posixpath.join(inputs.working_directory, inputs.spec))
    return key_for(
        job.workflow, job.name, "foreign" if decision.foreign else "own", spec, inputs.report
    )


def _pull(api: Api, job: Job, decision: Decision) -> PullRequest | None:
    """The pull request to comment on; None where there is none. Raises GateError where the run that
    the event names has none."""
    if decision.workflow_run is not None:
        return find_pull(api, decision.workflow_run, job.repository)
    if decision.pull is not None:
        return decision.pull
    kind, _, value = decision.find_by.partition(":")
    if kind == "number":
        return api.pull(int(value))
    if kind == "commit":
        found = [
            pull for pull in api.pulls_at(value) if pull.state == "open" and pull.head.sha == value
        ]
        return found[0] if len(found) == 1 else None
    return None


def post_report(
    api: Api, number: int, report: Report, key: str, *, when: str, view: View
) -> Posted:
    """Post a report that names its run under the marker `key`; a pass takes one line where only
    changes are asked for."""
    assert report.origin is not None  # the caller has checked
    origin, cost = report.origin, tenths(report)
    marker = Marker(
        key,
        origin.head_sha,
        origin.run_id,
        origin.run_attempt,
        state_of(report),
        report.verdict,
        cost,
    )

    def body(room: int, earlier: Marker | None) -> str:
        fitting = replace(view, limit=room)
        if when != "on-change" or report.verdict != "pass":
            return markdown.comment(report, fitting)
        interval = None
        if earlier and earlier.cost and apart(marker, earlier):
            interval = earlier.cost[0] / 10, earlier.cost[1] / 10
        before = earlier.verdict if earlier else ""
        return markdown.line(report, fitting, before=before, cost_before=interval)

    return post(api, number, marker, body, when=when, verdict=report.verdict, news=is_news(report))


def view_of(job: Job, report: Report, foreign: bool) -> View:
    """With the page of the run that made the report, whose id was compared with the run's."""
    assert report.origin is not None  # likewise
    return View(
        server_url=job.server_url,
        run_url=replace(job, run_id=report.origin.run_id).run_url,
        foreign=foreign,
    )


def _log(report: Report, inputs: Inputs, posted: Posted, out: TextIO) -> None:
    """The report as a terminal shows it, for whoever opens the step's log, and where else it is to
    be found."""
    with workflow.commands_disabled(out):
        out.write(terminal.render(report, View(encoding=getattr(out, "encoding", None) or "utf-8")))
    where = f"comment {posted.outcome}{posted.url and f': {posted.url}'}"
    if (posted.outcome, posted.reason) == ("skipped", ""):
        where = "no comment was due"
    line = f"repro-gate: {report.verdict}; {where}; report: {inputs.report}"
    print(for_workflow_log(line), file=out)


def _say_no_comment(posted: Posted, decision: Decision, out: TextIO) -> bool:
    """An annotation that says why. That a fork's token cannot write, or a push's cannot ask, is no
    warning: the answer is then True."""
    # whether there is a pull request at all is not known
    push = decision.find_by.startswith("commit:")
    expected = (
        posted.outcome == "skipped" or push or (decision.pull is not None and decision.pull.fork)
    )
    if posted.reason:
        level = "notice" if expected else "warning"
        said = Annotation(level=level, title="Repro Gate: no comment", message=posted.reason)
        print(command(said), file=out)
    return expected


def _publish_problem(problem: Problem, inputs: Inputs, job: Job, out: TextIO) -> StepResult:
    """Say why there is no report: in the log, in the summary, and on the line of the spec where the
    message names one."""
    level = "error" if problem.exit_code else "notice"
    file, line = location_of(problem.message)
    remedy = f"\nremedy: {problem.remedy}" if problem.remedy else ""
    said = Annotation(
        level=level, title="Repro Gate", message=f"{problem.message}{remedy}", file=file, line=line
    )
    print(command(said), file=out)
    inconclusive = problem.exit_code == Inconclusive.exit_code
    if inputs.summary:
        text = [f"## Repro Gate: {'inconclusive' if inconclusive else 'nothing was gated'}"]
        text += [for_markdown(part) for part in problem.message.split("\n")]
        text += [f"**Remedy:** {for_markdown(problem.remedy)}"] if problem.remedy else []
        workflow.write_summary(job.summary_file, "\n\n".join(text) + "\n")
    outputs = {
        "verdict": "inconclusive" if inconclusive else "",
        "exit_code": str(problem.exit_code),
    }
    green = inconclusive and "inconclusive" not in inputs.fail_on
    return outputs, 0 if green else problem.exit_code


def location_of(message: str) -> tuple[str | None, int | None]:
    """Return the file and line that an error begins with, `repro.yml:4:3: …`; (None, None) where it
    names none inside the checkout."""
    found = _PLACE.match(message)
    if found is None or ".." in Path(found[1]).parts or for_terminal(found[1]) != found[1]:
        return None, None
    return found[1], int(found[2])
