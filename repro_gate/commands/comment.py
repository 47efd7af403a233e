"""`repro-gate comment REPORT …`: post a report as the pull request's comment, from a workflow of
its own or from another CI system; several reports of one commit, of a matrix of GPUs, as one table
in one comment.

In a `workflow_run` job the report is untrusted: it is read under limits, rendered here, and bound
to the run that the event names. With `--pull-request` a person has chosen. Workflow, job and the
table's name or the report's path, as given, say which comment it is.
"""

from __future__ import annotations

import hashlib
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from repro_gate.errors import Inconclusive, UsageError
from repro_gate.escape import for_log, for_terminal
from repro_gate.github.activity import Activity, decide_comment
from repro_gate.github.client import Api
from repro_gate.github.comment import Posted, post
from repro_gate.github.marker import Marker, is_news, key_for, state_of
from repro_gate.github.publish_phase import post_report, view_of
from repro_gate.github.redact import known_secrets, redact
from repro_gate.github.settings import Secret, read_inputs, read_job, read_servers
from repro_gate.github.workflow import log_guard
from repro_gate.github.workflow_run import NothingToPost, check, find_pull, see_again
from repro_gate.report import markdown, matrix
from repro_gate.report.document import load
from repro_gate.report.model import PLAIN, Origin, Report, View

_TOKENS = ("INPUT_TOKEN", "GITHUB_TOKEN", "GH_TOKEN")


def comment_command(wanted: Namespace, environment: Mapping[str, str]) -> int:
    """Post what the command line asks for, and print the outcome on one line. Exit code 3 where it
    could not be posted; raises GateError for what cannot be used."""
    paths = (path / "report.json" if path.is_dir() else path for path in wanted.report)
    reports = [redact(load(path), known_secrets(environment)) for path in paths]
    if wanted.dry_run:
        _require_one_run(reports)
        alone = _alone(wanted, reports)
        with log_guard(environment):
            print(markdown.comment(reports[0]) if alone else matrix.render(reports), end="")
        return 0
    token = next((environment[name] for name in _TOKENS if environment.get(name)), None)
    if token is None:
        raise UsageError(
            "there is no token to post with",
            remedy=f"set one of {', '.join(_TOKENS[1:])} in the environment",
        )
    way = _for_event if wanted.pull_request is None else _for_person
    posted = way(wanted, reports, Secret(token), environment)
    why = f"({posted.reason})" if posted.reason else ""
    said = " ".join(filter(None, (f"comment {posted.outcome}", posted.url, why)))
    refused = posted.outcome == "refused"
    print(for_log(for_terminal(said), environment), file=sys.stderr if refused else sys.stdout)
    return Inconclusive.exit_code if refused else 0


def _for_event(
    wanted: Namespace, reports: Sequence[Report], token: Secret, environment: Mapping[str, str]
) -> Posted:
    """In a workflow of its own: the event names the run, and the run leads to the pull request."""
    job = read_job(environment)
    if job.event_name != "workflow_run":
        remedy = (
            "name it: --pull-request N --repository OWNER/NAME; or post from a workflow with `on: "
            "workflow_run`"
        )
        raise UsageError("which pull request the report is for is not known", remedy=remedy)
    decision = decide_comment(read_inputs(environment), job)
    if decision.workflow_run is None or decision.activity is Activity.NOTHING:
        return Posted("skipped", decision.reason)
    api = Api(token, job.repository, api_url=job.api_url, graphql_url=job.graphql_url)
    try:
        for report in reports:  # each has to be of the run that the event names
            check(decision.workflow_run, job.repository, report.origin)
        pull = find_pull(api, decision.workflow_run, job.repository)
    except NothingToPost as error:
        return Posted("skipped", error.message)
    reports = [replace(report, reproduce=see_again(report)) for report in reports]
    return _post(
        api, pull.number, reports, wanted, view_of(job, reports[0], foreign=True), environment
    )


def _for_person(
    wanted: Namespace, reports: Sequence[Report], token: Secret, environment: Mapping[str, str]
) -> Posted:
    """On the pull request that the command line names, for the commit that the reports are of."""
    repository = wanted.repository or environment.get("GITHUB_REPOSITORY")
    if not repository:
        raise UsageError(
            "--pull-request: of which repository?", remedy="name it: --repository OWNER/NAME"
        )
    _, api_url, graphql_url = read_servers(environment)
    api = Api(token, repository, api_url=api_url, graphql_url=graphql_url)
    named = zip(wanted.report, reports, strict=True)
    found = [_placed(report, path, repository) for path, report in named]
    return _post(api, wanted.pull_request, found, wanted, PLAIN, environment)


def _placed(report: Report, path: Path, repository: str) -> Report:
    """With an origin, also where it was made outside a workflow. Raises UsageError, naming its
    `path`, where it is of no commit."""
    if report.origin is not None:
        return report
    if report.subject.commit is None:
        raise UsageError(
            f"{path}: names no commit, so nothing shows that it is of this pull request's head"
        )
    return replace(report, origin=Origin(repository, report.subject.commit, 1, 1))


def _alone(wanted: Namespace, reports: Sequence[Report]) -> bool:
    return len(reports) == 1 and wanted.matrix is None


def _require_one_run(reports: Sequence[Report]) -> None:
    """Raise UsageError for reports of several commits or runs: one table names one."""
    of = set()
    for report in reports:
        if (origin := report.origin) is None:
            of.add(f"commit {report.subject.commit or 'unknown'}")
        else:
            of.add(f"{origin.repository} run {origin.run_id} at {origin.head_sha}")
    if len(of) > 1:
        raise UsageError(
            f"the reports are of several runs: {'; '.join(sorted(of))}",
            remedy="name the reports of one workflow run",
            reason_id="usage/reports",
        )


def _post(
    api: Api,
    number: int,
    reports: Sequence[Report],
    wanted: Namespace,
    view: View,
    environment: Mapping[str, str],
) -> Posted:
    """One report as itself; those of a matrix as one table under a marker that its name makes, so
    that a run that left fewer reports writes into the same comment. Raises UsageError for reports
    of several commits or runs."""
    alone = _alone(wanted, reports)
    key = key_for(
        environment.get("GITHUB_WORKFLOW", ""),
        environment.get("GITHUB_JOB", ""),
        "foreign" if view.foreign else "chosen",
        str(wanted.report[0]) if alone else f"matrix {wanted.matrix or ''}",
    )
    if alone:
        return post_report(api, number, reports[0], key, when=wanted.when, view=view)
    # all have one: the callers asked
    origins = [report.origin for report in reports if report.origin is not None]
    # a job that was started again has a later attempt than its siblings
    newest = max(origins, key=lambda origin: origin.run_attempt)
    _require_one_run(reports)
    states = "".join(sorted(map(state_of, reports)))
    state = hashlib.sha256(states.encode()).hexdigest()[:16]
    marker = Marker(key, newest.head_sha, newest.run_id, newest.run_attempt, state)
    return post(
        api,
        number,
        marker,
        lambda room, _: matrix.render(reports, replace(view, limit=room)),
        when=wanted.when,
        verdict=matrix.verdict(reports),
        news=any(map(is_news, reports)),
    )
