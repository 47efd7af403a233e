"""Checks of category `code`: is what ran known, and would it run from a clean checkout?"""

from __future__ import annotations

from repro_gate.checks.interface import Check, CheckResult, Evidence, missing, shortened


def commit_known(evidence: Evidence) -> CheckResult:
    """The checkout is at a commit."""
    if evidence.commit is None:
        return CheckResult(
            "code/commit",
            "code",
            missing(evidence),
            "the code is in no git commit, so nobody can check out what ran",
            remedy="run `git init && git add -A && git commit`",
        )
    return CheckResult("code/commit", "code", "pass", f"the code is commit {evidence.commit[:12]}", (evidence.commit,))


def tree_clean(evidence: Evidence) -> CheckResult:
    """Nothing that ran was uncommitted."""
    if evidence.commit is None:
        return CheckResult("code/clean", "code", "skip", "there is no commit to hold the tree against")
    if evidence.uncommitted:
        return CheckResult(
            "code/clean",
            "code",
            missing(evidence),
            f"{len(evidence.uncommitted)} uncommitted paths were part of the runs",
            shortened(evidence.uncommitted),
            "commit them, or add them to .gitignore if training does not need them",
        )
    return CheckResult("code/clean", "code", "pass", "nothing that ran was uncommitted")


def pristine_workspace(evidence: Evidence) -> CheckResult:
    """The command ran to its end from a fresh copy of the checkout, so nothing that git ignores was needed."""
    bad = [run for run in evidence.runs if not run.good]
    if not evidence.runs or bad:
        return CheckResult("code/pristine-workspace", "code", "skip", "no run came to its end", tuple(run.problem for run in bad[:3]))
    return CheckResult(
        "code/pristine-workspace", "code", "pass", f"each of {len(evidence.runs)} runs started in a fresh copy of {evidence.files} files"
    )


CHECKS: tuple[Check, ...] = (commit_known, tree_clean, pristine_workspace)
