"""`repro-gate comment REPORT …`: post a report as the pull request's comment, from a workflow of
its own or from another CI system; several reports of one commit, of a matrix of GPUs, as one table
in one comment.

In a `workflow_run` job the report is untrusted: it is read under limits, rendered here, and bound
to the run that the event names. With `--pull-request` a person has chosen. Workflow, job and the
table's name or the report's path, as given, say which comment it is.
"""

from __future__ import annotations

import hashlib
import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace

from msgspec import structs

from repro_gate.commands import output
from repro_gate.errors import Inconclusive, UsageError
from repro_gate.escape import for_log
from repro_gate.github.activity import NothingToDo, decide_comment
from repro_gate.github.client import Api
from repro_gate.github.comment import Posted, post
from repro_gate.github.marker import is_news, key_for, marker_of
from repro_gate.github.publish_phase import load_gated, post_report, view_of
from repro_gate.github.redact import known_secrets
from repro_gate.github.settings import (
    Secret,
    Server,
    read_inputs,
    read_job,
    read_variables,
)
from repro_gate.github.workflow_run import check, find_pull, see_again
from repro_gate.report import markdown, matrix
from repro_gate.report.model import Origin, Report, View

_VIEW = View(by_training=True)  # of reports that a person names
_TOKENS = ("INPUT_TOKEN", "GITHUB_TOKEN", "GH_TOKEN")


def comment_command(options: Namespace) -> int:
    """Post what the command line asks for, and print the outcome on one line. Exit code 3 if it
    could not be posted; raises GateError for what cannot be used."""
    secrets = known_secrets(os.environ)
    loaded = [load_gated(output.report_at(path), secrets) for path in options.report]
    # The training may have written each of them.
    reports = [replace(report, reproduce=see_again(report)) for report in loaded]
    if options.dry_run:
        _require_one_run(reports)
        text = matrix.render(reports, _VIEW)
        if len(reports) == 1 and options.matrix is None:
            text = markdown.comment(reports[0], _VIEW)
        output.print_guarded(text)
        return 0
    token = next((os.environ[name] for name in _TOKENS if os.environ.get(name)), None)
    if token is None:
        raise UsageError(
            "there is no token to post with",
            remedy=f"set one of {', '.join(_TOKENS[1:])} in the environment",
        )
    way = _for_event if options.pull_request is None else _for_person
    posted = way(options, reports, Secret(token))
    reason = f"({posted.reason})" if posted.reason else ""
    line = " ".join(filter(None, (f"comment {posted.outcome}", posted.url, reason)))
    refused = posted.outcome == "refused"
    print(for_log(line), file=sys.stderr if refused else sys.stdout)
    return Inconclusive.exit_code if refused else 0


def _for_event(options: Namespace, reports: Sequence[Report], token: Secret) -> Posted:
    """Post in a workflow of its own: the event names the run, and the run leads to the pull
    request."""
    job = read_job(os.environ)
    if job.event_name != "workflow_run":
        raise UsageError(
            "which pull request the report is for is not known",
            remedy="name it: --pull-request N --repository OWNER/NAME; or post from a workflow "
            "with `on: workflow_run`",
        )
    api = Api(token, job)
    try:
        run = decide_comment(read_inputs(os.environ), job).workflow_run
        assert run is not None  # the event names it
        for report in reports:  # each has to be of the run that the event names
            check(run, job.repository, report.origin)
        pull = find_pull(api, run, job.repository)
    except NothingToDo as error:
        return Posted("skipped", error.message)
    view = view_of(job, reports[0], by_training=True)
    return _post(api, pull.number, reports, options, view)


def _for_person(options: Namespace, reports: Sequence[Report], token: Secret) -> Posted:
    """Post on the pull request that the command line names, for the commit that the reports are
    of."""
    repository = options.repository or os.environ.get("GITHUB_REPOSITORY")
    if not repository:
        raise UsageError(
            "--pull-request: of which repository?",
            remedy="name it: --repository OWNER/NAME",
        )
    variables = {**os.environ, "GITHUB_REPOSITORY": repository}
    placed = []
    for path, report in zip(options.report, reports, strict=True):
        commit = report.subject.commit
        if report.origin is not None:
            placed.append(report)
        elif commit is not None:  # it was made outside a workflow
            placed.append(replace(report, origin=Origin(repository, commit, 1, 1)))
        else:
            raise UsageError(
                f"{path}: names no commit, so nothing shows that it is of this pull request's head"
            )
    api = Api(token, read_variables(Server, variables))
    return _post(api, options.pull_request, placed, options, _VIEW)


def _require_one_run(reports: Sequence[Report]) -> None:
    """Raise UsageError for reports of several commits or runs: one table names one."""
    runs = {
        f"{origin.repository} run {origin.run_id} at {origin.head_sha}"
        if (origin := report.origin)
        else f"commit {report.subject.commit or 'unknown'}"
        for report in reports
    }
    if len(runs) > 1:
        raise UsageError(
            f"the reports are of several runs: {'; '.join(sorted(runs))}",
            remedy="name the reports of one workflow run",
            reason_id="usage/reports",
        )


def _post(
    api: Api, number: int, reports: Sequence[Report], options: Namespace, view: View
) -> Posted:
    """Post one report as itself; those of a matrix as one table under a marker that its name makes,
    so that a run that left fewer reports writes into the same comment. Raises UsageError for
    reports of several commits or runs."""
    alone = len(reports) == 1 and options.matrix is None
    key = key_for(
        os.environ.get("GITHUB_WORKFLOW", ""),
        os.environ.get("GITHUB_JOB", ""),
        "chosen" if view is _VIEW else "foreign",
        str(options.report[0]) if alone else f"matrix {options.matrix or ''}",
    )
    if alone:
        return post_report(api, number, reports[0], key, when=options.when, view=view)
    _require_one_run(reports)
    markers = [marker_of(report, key) for report in reports]
    states = "".join(sorted(marker.state for marker in markers))
    marker = structs.replace(
        # a job that was started again has a later attempt
        max(markers, key=lambda marker: marker.run_attempt),
        state=hashlib.sha256(states.encode()).hexdigest()[:16],
        verdict=matrix.worst_of(reports).verdict,
        cost=None,
    )
    return post(
        api,
        number,
        marker,
        lambda room, _: matrix.render(reports, replace(view, limit=room)),
        when=options.when,
        news=any(map(is_news, reports)),
    )
