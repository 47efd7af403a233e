"""Checks of category `env`: can the software be set up again?"""

from __future__ import annotations

from repro_gate.checks.interface import Check, CheckResult, Evidence, missing

SAME = ("python", "torch", "cuda", "cudnn", "interpreter")


def lockfile(evidence: Evidence) -> CheckResult:
    """The declared lockfile is in the checkout and not empty."""
    name, declared = "env/lockfile", evidence.spec.env.lockfile
    if declared is None:
        return CheckResult(
            name,
            "env",
            missing(evidence),
            "no lockfile is declared, so a rerun may install other versions",
            remedy="name it in the spec: `env: {lockfile: requirements.lock}`",
        )
    path = evidence.spec.path.parent / declared
    if not path.is_file() or not path.stat().st_size:
        return CheckResult(
            name,
            "env",
            "fail",
            f"the declared lockfile {declared} is not there, or is empty",
            (declared,),
            "commit it, or correct env.lockfile",
        )
    return CheckResult(name, "env", "pass", f"{declared} is there, {path.stat().st_size} bytes", (declared,))


def versions_equal(evidence: Evidence) -> CheckResult:
    """Every process of every run trained with the same Python, torch, CUDA and cuDNN."""
    name = "env/versions"
    facts = [
        {key: trace.facts[key] for key in SAME if key in trace.facts} for run in evidence.runs for trace in run.traces if trace.trained
    ]
    if not facts:
        return CheckResult(name, "env", "skip", "no run was traced")
    first = facts[0]
    shown = tuple(f"{key} {value}" for key, value in first.items())
    if any(other != first for other in facts):
        return CheckResult(
            name,
            "env",
            "fail",
            "processes trained with different versions",
            tuple(sorted({str(item) for item in facts}))[:4],
            "start every process with the same interpreter",
        )
    return CheckResult(name, "env", "pass", f"all {len(facts)} training processes had the same versions", shown)


CHECKS: tuple[Check, ...] = (lockfile, versions_equal)
