"""`repro-gate comment REPORT`: post a report as the pull request's comment, from a workflow of its own or from another CI system.

In a `workflow_run` job the report is untrusted: it is read under limits, rendered here, and bound to the run that the event names. With
`--pull-request` a person has chosen.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from repro_gate.errors import Inconclusive, UsageError
from repro_gate.escape import for_log, for_terminal
from repro_gate.github.activity import Activity, decide
from repro_gate.github.client import Api
from repro_gate.github.comment import Posted
from repro_gate.github.publish_phase import post_report, view_of
from repro_gate.github.redact import known_secrets, redact
from repro_gate.github.settings import Secret, read_inputs, read_job, read_servers
from repro_gate.github.workflow import log_guard
from repro_gate.github.workflow_run import NothingToPost, find_pull
from repro_gate.report import markdown
from repro_gate.report.document import load
from repro_gate.report.model import PLAIN, Origin, Report

_TOKENS = ("INPUT_TOKEN", "GITHUB_TOKEN", "GH_TOKEN")


@dataclass(frozen=True)
class Wanted:
    """The command line of `repro-gate comment`."""

    report: Path
    when: str = "always"
    repository: str | None = None
    pull_request: int | None = None
    dry_run: bool = False


def comment_command(wanted: Wanted, environment: Mapping[str, str]) -> int:
    """Post, and print the outcome on one line. Exit code 3 where it could not be posted; raises GateError for what cannot be used."""
    path = wanted.report / "report.json" if wanted.report.is_dir() else wanted.report
    report = redact(load(path), known_secrets(environment))
    if wanted.dry_run:
        with log_guard(environment):
            print(markdown.comment(report), end="")
        return 0
    token = next((environment[name] for name in _TOKENS if environment.get(name)), None)
    if token is None:
        raise UsageError("there is no token to post with", remedy=f"set one of {', '.join(_TOKENS[1:])} in the environment")
    post = _for_event if wanted.pull_request is None else _for_person
    posted = post(wanted, report, Secret(token), environment)
    said = " ".join(part for part in (f"comment {posted.outcome}", posted.url, f"({posted.reason})" if posted.reason else "") if part)
    print(for_log(for_terminal(said), environment), file=sys.stderr if posted.outcome == "refused" else sys.stdout)
    return Inconclusive.exit_code if posted.outcome == "refused" else 0


def _for_event(wanted: Wanted, report: Report, token: Secret, environment: Mapping[str, str]) -> Posted:
    """In a workflow of its own: the event names the run, and the run leads to the pull request."""
    job = read_job(environment)
    decision = decide(replace(read_inputs(environment), command="comment"), job)
    if decision.activity is Activity.NOTHING:
        return Posted("skipped", decision.reason)
    if decision.workflow_run is None:
        raise UsageError(decision.reason, remedy=decision.remedy or "name it: --pull-request N --repository OWNER/NAME")
    api = Api(token, job.repository, api_url=job.api_url, graphql_url=job.graphql_url)
    try:
        pull = find_pull(api, decision.workflow_run, job.repository, report.origin)
    except NothingToPost as error:
        return Posted("skipped", error.message)
    return post_report(api, pull.number, report, when=wanted.when, view=view_of(job, report))


def _for_person(wanted: Wanted, report: Report, token: Secret, environment: Mapping[str, str]) -> Posted:
    """On the pull request that the command line names, for the commit that the report is of."""
    repository = wanted.repository or environment.get("GITHUB_REPOSITORY")
    if not repository:
        raise UsageError("--pull-request: of which repository?", remedy="name it: --repository OWNER/NAME")
    assert wanted.pull_request is not None  # the caller asked
    _, api_url, graphql_url = read_servers(environment)
    api = Api(token, repository, api_url=api_url, graphql_url=graphql_url)
    if report.origin is None:
        if report.subject.commit is None:
            raise UsageError(f"{wanted.report}: names no commit, so nothing shows that it is of this pull request's head")
        report = replace(report, origin=Origin(repository, report.subject.commit, 1, 1))
    return post_report(api, wanted.pull_request, report, when=wanted.when, view=PLAIN)
