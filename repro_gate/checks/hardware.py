"""Checks of category `hardware`: did the training run on what the spec requires, and every run on the same?"""

from __future__ import annotations

from repro_gate.checks.interface import Check, CheckResult, Evidence

SAME = ("device", "gpus", "threads", "processors")


def device(evidence: Evidence) -> CheckResult:
    """The device that training used is the one that the spec requires, in kind, number and model."""
    name, wanted = "hardware/device", evidence.spec.hardware
    used = sorted(
        {trace.facts.get("device", "") for run in evidence.runs for trace in run.traces if trace.trained and trace.facts.get("device")}
    )
    if not used:
        return CheckResult(name, "hardware", "skip", "no run was traced on a device")
    counts = {trace.facts.get("gpus", "0") for run in evidence.runs for trace in run.traces if trace.trained}
    wrong = []
    if wanted.device and any(not item.startswith(wanted.device) for item in used):
        wrong.append(f"device {wanted.device} is required, training used {', '.join(used)}")
    if wanted.gpu_model and any(wanted.gpu_model.lower() not in item.lower() for item in used):
        wrong.append(f"GPU model {wanted.gpu_model} is required, training used {', '.join(used)}")
    if wanted.gpus is not None and any(not count.isdecimal() or int(count) < wanted.gpus for count in counts):
        wrong.append(f"{wanted.gpus} GPUs are required, training saw {', '.join(sorted(counts))}")
    if wrong:
        return CheckResult(
            name, "hardware", "fail", wrong[0], tuple(wrong), "run on the hardware that the spec names, or correct `hardware:`"
        )
    return CheckResult(
        name, "hardware", "pass", f"training used {', '.join(used)}" + ("" if wanted.device else " (none is required)"), tuple(used)
    )


def same_for_all(evidence: Evidence) -> CheckResult:
    """Device, GPU count and thread count were the same in every process of every run."""
    name = "hardware/same"
    facts = [
        {key: trace.facts[key] for key in SAME if key in trace.facts} for run in evidence.runs for trace in run.traces if trace.trained
    ]
    if not facts or not any(facts):
        return CheckResult(name, "hardware", "skip", "no run was traced")
    if any(other != facts[0] for other in facts):
        return CheckResult(
            name,
            "hardware",
            "fail",
            "processes ran on different hardware",
            tuple(sorted({str(item) for item in facts}))[:4],
            "pin the device and the thread count",
        )
    return CheckResult(
        name,
        "hardware",
        "pass",
        "every process had the same device and threads",
        tuple(f"{key} {value}" for key, value in facts[0].items()),
    )


CHECKS: tuple[Check, ...] = (device, same_for_all)
