"""Checks of category `data`: did both runs see the same bytes, only declared ones, and can they be
fetched again?"""

from __future__ import annotations

import contextlib
import re

from repro_gate.checks.interface import (
    CHECKOUT,
    Evidence,
    EvidenceLine,
    Finding,
    check,
    diverged_before,
    failed,
    missing,
    passed,
    skipped,
)
from repro_gate.checks.opened import (
    folded,
    is_source,
    left_over,
    misplaced,
    opened,
    unlisted,
)
from repro_gate.data.declared import DataFinding
from repro_gate.files import Unreadable, read_text

_HUB_CACHE = re.compile(
    r"/(?:models|datasets|spaces)--(?P<name>[^/]+)/snapshots/(?P<commit>[0-9a-f]{40})/"
)
_MAX_FILES = 5_000  # that are searched for a commit
_MAX_FILE_BYTES = 1 << 20
_PIN = (
    'name the commit: `revision="<40 digits>"` (`git ls-remote '
    "https://huggingface.co/OWNER/NAME HEAD` prints it, for a dataset with datasets/OWNER/NAME)"
)


@check(
    "data/checksums",
    "Every declared file has the digests and the size that its declaration states, recomputed now.",
    CHECKOUT,
)
def checksums(evidence: Evidence) -> Finding:
    """sha256, and what a `.dvc` file declares besides; a declaration that
    cannot be read fails here too."""
    problems = evidence.data_problems
    if not evidence.spec.data and not problems:
        return skipped("no data is declared")
    wrong = [item for item in evidence.data if item.mismatches or item.actual is None]
    if wrong or problems:
        lines = [EvidenceLine(item.message, item.location) for item in problems]
        lines += [
            EvidenceLine(text, item.source)
            for item in wrong
            for text in item.mismatches or (f"{item.path}: found nothing",)
        ]
        counted = (
            [f"{len(wrong)} of {len(evidence.data)} declared items are not what is stated"]
            if wrong
            else []
        )
        counted += [f"{len(problems)} declarations cannot be used"] if problems else []
        remedy = (
            problems[0].remedy
            if problems
            else "restore the file, or put the new sha256 into the spec if the change is meant"
        )
        return failed(", and ".join(counted), lines, remedy)
    bare = [item for item in evidence.data if not item.declared]
    if bare:
        remedy = "add the sha256 shown to the spec"
        return missing(
            f"{len(bare)} declared items have no sha256",
            [f"{item.path}: sha256 {item.actual}" for item in bare],
            remedy,
        )
    return passed(
        f"{len(evidence.data)} declared items have their digests",
        [_verified(item) for item in evidence.data],
    )


def _verified(item: DataFinding) -> EvidenceLine:
    digest = f"sha256 {item.actual}" if item.expected is not None else f"md5 {item.md5_actual}"
    return EvidenceLine(f"{item.path}: {digest}", item.source)


@check("data/unchanged", "No run wrote to declared data.")
def unchanged(evidence: Evidence) -> Finding:
    """Size, time of change and inode of every declared file before the runs and after each."""
    if not evidence.spec.data or not evidence.runs:
        return skipped("no data is declared")
    if evidence.changed_data:
        return failed(
            "a run changed declared data, so the next one trained on other bytes",
            evidence.changed_data,
            "write to a path of the run's own",
        )
    return passed("declared data is as it was before the runs")


@check(
    "data/undeclared-reads",
    "Every data file outside the checkout that training read is declared under `data:`.",
    traced=True,
)
def no_undeclared_reads(evidence: Evidence) -> Finding:
    """Files there before the run and opened for reading (by Python's audit hook), outside the
    workspace, no source or settings."""
    outside = [item for _, item in sorted(opened(evidence).items()) if not item.inside]
    found = [item for item in outside if not is_source(item.path)]
    cut = unlisted(evidence)
    if found:
        return missing(
            f"training read {len(found)} files outside the checkout that nothing declares",
            (*folded([(item, misplaced(evidence, item)) for item in found]), *cut[:2]),
            "declare each file, or the folder that holds them, under `data:` with its sha256, so "
            "that a rerun can tell if it has the same",
        )
    if cut:
        return missing(
            "training opened more files than the probe lists, so not all were looked at",
            cut[:2],
            "declare the folders they lie in",
        )
    besides = " besides source and settings, which `code/opened-files` judges" if outside else ""
    return passed(f"training read no undeclared file outside the checkout{besides}")


@check(
    "data/leftovers",
    "No run read a file that an earlier run of the same gate run had made or changed.",
    traced=True,
)
def no_leftovers(evidence: Evidence) -> Finding:
    """Files outside workspace, HOME and TMPDIR that were made or changed after the gate run began
    and before the run that read them."""
    found = left_over(evidence.runs)
    if found:
        count = len({item.path for item in found})
        lines = [
            EvidenceLine(f"{item.path}: read by {', '.join(names)}", item.by)
            for item, names in found.items()
        ]
        message = (
            f"runs read {count} files left over from an earlier run of this gate run, so equal "
            "results show nothing"
        )
        remedy = (
            "write below the working directory, HOME or TMPDIR (each run has its own), or declare "
            "the files under `data:`"
        )
        return failed(message, sorted(lines, key=str), remedy)
    return passed("no run read what an earlier one had left behind")


@check(
    "data/no-network",
    "No training process opened a connection to another machine (seen by Python's audit hook; "
    "loopback does not count).",
    traced=True,
)
def no_network(evidence: Evidence) -> Finding:
    """Connections of every traced process of every run; what native code opens by itself is not
    seen."""
    addresses = sorted(
        {address for run in evidence.runs for trace in run.traces for address in trace.network}
    )
    if addresses:
        remedy = "declare the data under `data:`, and turn telemetry off through train.env"
        return missing(
            "training connected to other machines, whose answers can change", addresses, remedy
        )
    return passed("no training process connected to another machine")


@check(
    "data/revisions",
    "Every dataset and model of a hub that training read is pinned to a commit.",
    traced=True,
)
def revisions_pinned(evidence: Evidence) -> Finding:
    """The hubs' caches carry the commit in their paths. A tracked file that the runs opened, or the
    spec, has to name it."""
    read = sorted(
        {
            (found["name"].replace("--", "/"), found["commit"])
            for path in opened(evidence)
            for found in _HUB_CACHE.finditer(path)
        }
    )
    if not read:
        return skipped("training read nothing from a hub's cache")
    loose = [item for item in read if not _is_named(evidence, item[1])]
    if loose:
        return missing(
            f"{len(loose)} of {len(read)} datasets and models of a hub can change under their "
            "names: no file that the runs opened names the commit",
            [f"{name}: the runs read {commit}" for name, commit in loose],
            _PIN,
        )
    return passed(
        f"{len(read)} datasets and models of a hub are pinned to a commit",
        [f"{name}: {commit}" for name, commit in read],
    )


def _is_named(evidence: Evidence, commit: str) -> bool:
    """Whether the spec, or a tracked file that the runs opened (any, where that is not known),
    names the commit."""
    tracked = evidence.tracked or frozenset()
    ran = {item.path for item in opened(evidence).values() if item.inside}
    paths = sorted(tracked if unlisted(evidence) else tracked & ran)
    files = [evidence.root / path for path in paths[:_MAX_FILES]]
    for path in (evidence.spec.path, *files):
        with contextlib.suppress(Unreadable):
            if commit in read_text(path, evidence.root, _MAX_FILE_BYTES).lower():
                return True
    return False


@check(
    "data/batches",
    "Every batch that a DataLoader handed out had the same bytes in both runs, in the same order.",
)
def batches_equal(evidence: Evidence) -> Finding:
    """Digests of all tensors of every batch, in order of execution."""
    tally = evidence.comparison.by_kind.get("batch") if evidence.comparison else None
    if tally is None or not tally.tensors:
        return skipped("no batch came through a torch DataLoader")
    count = sum(
        block.kind == "batch"
        for run in evidence.pair[:1]
        for trace in run.traces
        for block in trace.blocks
    )
    first = evidence.comparison.first_divergence if evidence.comparison else None
    if tally.differing and first is not None and (first.kind == "batch"):
        remedy = "seed the sampler and the augmentation from the run's seed"
        return failed(
            f"the runs were handed different batches from step {first.step} on",
            (first.name,),
            remedy,
        )
    if tally.differing:
        return diverged_before("batches differ", "tensors of batches", tally, first)
    return passed(f"{count} batches were equal, in content and order")
