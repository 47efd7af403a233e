"""Checks of category `data`: did both runs see the same bytes, only declared ones, and can they be
fetched again?"""

from __future__ import annotations

import contextlib
import re

from repro_gate.checks.interface import (
    CHECKOUT,
    TRACED,
    Evidence,
    EvidenceLine,
    Finding,
    check,
    differ,
    failed,
    missing,
    passed,
    skipped,
)
from repro_gate.checks.opened import (
    is_source,
    left_over,
    misplaced,
    missing_files,
    opened,
    unlisted,
)
from repro_gate.escape import counted
from repro_gate.files import Unreadable, read_text

_HUB_CACHE = re.compile(
    r"/(?:models|datasets|spaces)--([^/]+)/snapshots/([0-9a-f]{40})/"
)
_MAX_FILES = 5_000  # that are searched for a commit
_MAX_FILE_BYTES = 1 << 20
_PIN = (
    'name the commit: `revision="<40 digits>"` (`git ls-remote '
    "https://huggingface.co/OWNER/NAME HEAD` prints it, for a dataset with datasets/OWNER/NAME)"
)


@check(
    "data/checksums",
    "Every declared file has the digest that its declaration states, recomputed now.",
    CHECKOUT,
)
def checksums(evidence: Evidence) -> Finding:
    """Check sha256, or the md5 of a `.dvc` file. A declaration that cannot be read fails here
    too."""
    problems = evidence.data_problems
    if not evidence.spec.data and not problems:
        return skipped("no data is declared")
    wrong = [item for item in evidence.data if item.mismatches or item.actual is None]
    if problems or wrong:
        faults = [EvidenceLine(item.message, item.location) for item in problems]
        faults += [
            EvidenceLine(text, item.source)
            for item in wrong
            for text in item.mismatches or (f"{item.path}: found nothing",)
        ]
        count = len(problems) + len(wrong)
        return failed(
            f"{counted(count, 'declared item', 'differ')} from the declaration, or cannot be "
            "verified",
            faults,
            problems[0].remedy
            if problems
            else "restore the file, or put the new sha256 into the spec if the change is intended",
        )
    lines = {
        EvidenceLine(f"{item.path}: sha256 {item.actual}", item.source): item.declared
        for item in evidence.data
    }
    bare = [line for line, is_declared in lines.items() if not is_declared]
    if bare:
        return missing(
            f"{counted(len(bare), 'declared item', 'have')} no sha256",
            bare,
            "add the sha256 shown to the spec",
        )
    return passed(
        f"{counted(len(evidence.data), 'declared item', 'have')} the declared digest",
        [*lines],
    )


@check("data/unchanged", "No run wrote to declared data.")
def unchanged(evidence: Evidence) -> Finding:
    """Compare size, time of change and inode of every declared file before the runs and after
    each."""
    if not evidence.spec.data or not evidence.runs:
        return skipped("no data is declared")
    if evidence.changed_data:
        return failed(
            "a run changed declared data, so the next one trained on different data",
            evidence.changed_data,
            "write to a path inside the working directory, HOME or TMPDIR",
        )
    return passed("no run changed declared data")


@check(
    "data/undeclared-reads",
    "Every data file outside the checkout that training read is declared under `data:`.",
    TRACED,
)
def no_undeclared_reads(evidence: Evidence) -> Finding:
    """Check the files that Python's audit hook saw opened for reading, that existed before the run,
    are outside the workspace, and are neither source nor settings."""
    files = [
        (item, misplaced(evidence, item.path))
        for item in opened(evidence).values()
        if not item.inside and not is_source(item.path)
    ]
    return missing_files(
        evidence,
        files,
        f"training read {counted(len(files), 'undeclared file')} outside the checkout",
        "declare each file, or their folder, under `data:` with its sha256, so that a rerun can "
        "verify that it has the same data",
    ) or passed(
        "training read no undeclared file outside the checkout (`code/opened-files` checks source "
        "and settings)"
    )


@check(
    "data/leftovers",
    "No run read a file that an earlier run of the same gate run had made or changed.",
    TRACED,
)
def no_leftovers(evidence: Evidence) -> Finding:
    """Check for files outside workspace, HOME and TMPDIR that were changed after the gate run began
    and before the run that read them."""
    files = left_over(evidence.runs)
    if files:
        lines = [
            EvidenceLine(f"{item.path}: read by {', '.join(names)}", item.by)
            for item, names in files.items()
        ]
        return failed(
            f"runs read {len({item.path for item in files})} files left over from an earlier run "
            "of this gate run, so equal results prove nothing",
            sorted(lines, key=str),
            "write below the working directory, HOME or TMPDIR (each run has its own), or declare "
            "the files under `data:`",
        )
    return passed("no run read a file that an earlier run left behind")


@check(
    "data/no-network",
    "No training process opened a connection to another machine (seen by Python's audit hook; "
    "loopback does not count).",
    TRACED,
)
def no_network(evidence: Evidence) -> Finding:
    """Check the connections of every traced process of every run. Connections that native code
    opens by itself are not seen."""
    addresses = {address for trace in evidence.traces for address in trace.network}
    if addresses:
        return missing(
            "training connected to other machines, whose answers can change",
            sorted(addresses),
            "declare the data under `data:`, and turn telemetry off through train.env",
        )
    return passed("no training process connected to another machine")


@check(
    "data/revisions",
    "Every dataset and model of a hub that training read is pinned to a commit.",
    TRACED,
)
def revisions_pinned(evidence: Evidence) -> Finding:
    """Check that the spec, or a tracked file that the runs opened, names each commit that was read.
    The commits are in the paths of the hubs' caches."""
    matches = filter(None, map(_HUB_CACHE.search, opened(evidence)))
    read = sorted({(match[1].replace("--", "/"), match[2]) for match in matches})
    if not read:
        return skipped("training read no dataset or model from a hub's cache")
    tracked = evidence.tracked or frozenset()
    paths = sorted(tracked if unlisted(evidence) else tracked & opened(evidence).keys())
    loose = read
    for path in (
        evidence.spec.path,
        *(evidence.root / name for name in paths[:_MAX_FILES]),
    ):
        with contextlib.suppress(Unreadable):
            text = read_text(path, evidence.root, _MAX_FILE_BYTES).lower()
            loose = [item for item in loose if item[1] not in text]
    if loose:
        return missing(
            f"{len(loose)} of {counted(len(read), 'repository')} of a hub can change under "
            "the same name: no file that the runs opened names the commit",
            [f"{name}: the runs read {commit}" for name, commit in loose],
            _PIN,
        )
    return passed(
        f"{counted(len(read), 'repository')} of a hub: each is pinned to a commit",
        [f"{name}: {commit}" for name, commit in read],
    )


@check(
    "data/batches",
    "Every batch that a DataLoader handed out had the same bytes in both runs, in the same order.",
)
def batches_equal(evidence: Evidence) -> Finding:
    """Compare the digests of all tensors of every batch in order of execution."""
    comparison = evidence.comparison
    if comparison is None or "batch" not in comparison.by_kind:
        return skipped("no batch came through a torch DataLoader")
    remedy = "seed the sampler and the augmentation from the run's seed"
    kinds = [block.kind for trace in evidence.pair[0].traces for block in trace.blocks]
    return differ(comparison, "batch", "batches", remedy) or passed(
        f"{kinds.count('batch')} batches were equal in content and order"
    )
