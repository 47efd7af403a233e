"""Checks of category `data`: did both runs see the same bytes, and only declared ones?"""

from __future__ import annotations

from repro_gate.checks.interface import Check, CheckResult, Evidence, missing, shortened


def checksums(evidence: Evidence) -> CheckResult:
    """Every declared file has the sha256 that the spec states, recomputed now."""
    name = "data/checksums"
    if not evidence.spec.data:
        return CheckResult(name, "data", "skip", "no data is declared")
    wrong = [item for item in evidence.data if item.actual is None or (item.expected is not None and item.actual != item.expected)]
    if wrong:
        lines = tuple(f"{item.path}: expected {item.expected}, found {item.actual or 'nothing'}" for item in wrong)
        return CheckResult(
            name,
            "data",
            "fail",
            f"{len(wrong)} of {len(evidence.data)} declared items are not what the spec states",
            shortened(lines),
            "restore the file, or put the new sha256 into the spec if the change is meant",
        )
    bare = [item for item in evidence.data if item.expected is None]
    if bare:
        return CheckResult(
            name,
            "data",
            missing(evidence),
            f"{len(bare)} declared items have no sha256",
            shortened([f"{item.path}: sha256 {item.actual}" for item in bare]),
            "add the sha256 shown to the spec",
        )
    return CheckResult(
        name,
        "data",
        "pass",
        f"{len(evidence.data)} declared items have their sha256",
        shortened([f"{item.path} {item.actual}" for item in evidence.data]),
    )


def unchanged(evidence: Evidence) -> CheckResult:
    """No run wrote to declared data."""
    name = "data/unchanged"
    if not evidence.spec.data or not evidence.runs:
        return CheckResult(name, "data", "skip", "no data is declared")
    if evidence.changed_data:
        return CheckResult(
            name,
            "data",
            "fail",
            "a run changed declared data, so the next one trained on other bytes",
            shortened(evidence.changed_data),
            "write to a path of the run's own",
        )
    return CheckResult(name, "data", "pass", "declared data is as it was before the runs")


def batches_equal(evidence: Evidence) -> CheckResult:
    """Every batch that a DataLoader handed out had the same bytes in both runs, in the same order."""
    name = "data/batches"
    tally = evidence.comparison.by_kind.get("batch") if evidence.comparison else None
    if tally is None or not tally.tensors:
        return CheckResult(name, "data", "skip", "no batch came through a torch DataLoader")
    count = sum(block.kind == "batch" for run in evidence.pair[:1] for trace in run.traces for block in trace.blocks)
    first = evidence.comparison.first_divergence if evidence.comparison else None
    if tally.differing and first is not None and first.kind == "batch":
        return CheckResult(
            name,
            "data",
            "fail",
            f"the runs were handed different batches from step {first.step} on",
            (first.name,),
            "seed the sampler and the augmentation from the run's seed",
        )
    if tally.differing:
        return CheckResult(name, "data", "warn", "batches differ, after the runs had parted for another reason")
    return CheckResult(name, "data", "pass", f"{count} batches were equal, in content and order")


def no_network(evidence: Evidence) -> CheckResult:
    """No training process opened a connection to another machine (seen by Python's audit hook; loopback does not count)."""
    name = "data/no-network"
    if not any(trace.trained for run in evidence.runs for trace in run.traces):
        return CheckResult(name, "data", "skip", "no run was traced")
    addresses = sorted({address for run in evidence.runs for trace in run.traces for address in trace.network})
    if addresses:
        return CheckResult(
            name,
            "data",
            missing(evidence),
            "training connected to other machines, whose answers can change",
            shortened(addresses),
            "declare the data under `data:`, and turn telemetry off through train.env",
        )
    return CheckResult(name, "data", "pass", "no training process connected to another machine")


CHECKS: tuple[Check, ...] = (checksums, unchanged, batches_equal, no_network)
