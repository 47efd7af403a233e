"""Checks of category `data`: did both runs see the same bytes, only declared ones, and can they be
fetched again?"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection

from repro_gate.checks.interface import (
    CHECKOUT,
    Evidence,
    Finding,
    check,
    diverged_before,
    failed,
    missing,
    passed,
    skipped,
)
from repro_gate.checks.opened import (
    declared_paths,
    folded,
    is_source,
    left_over,
    misplaced,
    opened,
    unlisted,
    with_line,
)
from repro_gate.checks.revisions import (
    LOOSE,
    MAX_FILE_BYTES,
    MAX_FILES,
    PINNED,
    UNRESOLVED,
    find_revisions,
)
from repro_gate.data.declared import DataFinding
from repro_gate.files import Unreadable, read_text

_HUB_CACHE = re.compile(r"/(?:models|datasets|spaces)--([^/]+)/snapshots/([0-9a-f]{40})/")
_PIN = (
    'name the commit: `revision="<40 digits>"` (`git ls-remote '
    "https://huggingface.co/OWNER/NAME HEAD` prints it, for a dataset with "
    'datasets/OWNER/NAME); for torch.hub `"owner/repo:<40 digits>"` with skip_validation=True; '
    'for timm `"hf_hub:owner/name@<40 digits>"`; '
    "fetch a file behind a URL once and declare it under `data:`"
)


@check(
    "data/checksums",
    "Every declared file has the digests and the size that its declaration states, recomputed now.",
    CHECKOUT,
)
def checksums(evidence: Evidence) -> Finding:
    """sha256, and what a `.dvc` file declares besides; a declaration that
    cannot be read fails here too."""
    problems = [item for item in evidence.data_problems if item.kind != "digest"]
    if not evidence.spec.data and not problems:
        return skipped(
            "no declared digest can be verified (see data/digest-length)"
            if evidence.data_problems
            else "no data is declared"
        )
    wrong = [item for item in evidence.data if item.mismatches or item.actual is None]
    if wrong or problems:
        lines = [f"{item.where}: {item.message}" for item in problems]
        lines += [line for item in wrong for line in _mismatches(item)]
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


def _mismatches(item: DataFinding) -> tuple[str, ...]:
    """What is wrong with one item, and which declaration says so."""
    lines = item.mismatches or (f"{item.path}: found nothing",)
    return tuple(f"{line} (declared at {item.source})" if item.source else line for line in lines)


def _verified(item: DataFinding) -> str:
    digest = f"sha256 {item.actual}" if item.expected is not None else f"md5 {item.md5_actual}"
    return f"{item.path}: {digest}" + (f" (declared at {item.source})" if item.source else "")


@check(
    "data/digest-length",
    "Every declared digest is as long as its algorithm makes it: 64 digits for sha256, 32 for md5.",
    CHECKOUT,
)
def digest_length(evidence: Evidence) -> Finding:
    """A digest that was cut off, or taken with another algorithm, can match nothing, so nothing was
    verified against it."""
    problems = [item for item in evidence.data_problems if item.kind == "digest"]
    if problems:
        lines = [f"{item.where}: {item.message}" for item in problems]
        return failed(
            f"{len(problems)} declared digests are none of their algorithm",
            lines,
            problems[0].remedy,
        )
    digests = sum((item.sha256 is not None) + (item.md5 is not None) for item in evidence.spec.data)
    return (
        passed(f"{digests} declared digests have the length of their algorithm")
        if digests
        else skipped("no digest is declared")
    )


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
            "declare each file, or the folder that holds them, under `data:` with its sha256, "
            "so that a rerun can tell if it has the same",
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
        lines = [f"{with_line(item)}: read by {', '.join(names)}" for item, names in found.items()]
        message = (
            f"runs read {count} files left over from an earlier run of this gate run, so equal "
            "results show nothing"
        )
        remedy = (
            "write below the working directory, HOME or TMPDIR (each run has its own), or "
            "declare the files under `data:`"
        )
        return failed(message, sorted(lines), remedy)
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
    "Every remote dataset and model that the code names is pinned to a commit.",
    CHECKOUT,
)
def revisions_pinned(evidence: Evidence) -> Finding:
    """The calls that fetch from a hub, in the tracked Python files that the runs opened, or in all
    where nothing has run. And what the runs read from Hugging Face's cache, whose paths carry the
    commit: a file that they opened, or the spec, has to name it."""
    if evidence.checkout is None or evidence.tracked is None:
        return skipped("git tracks no files here")
    ran = (
        frozenset(item.path for item in opened(evidence).values() if item.inside)
        if not unlisted(evidence)
        else frozenset()
    )
    code = {path for path in ran if path.endswith(".py")}
    calls, unread = find_revisions(
        evidence.checkout.root, evidence.tracked, tuple(declared_paths(evidence)), first=ran
    )
    judged = [call for call in calls if not code or call.path in code]
    loose, pinned, unresolved = (
        [call for call in judged if call.state == state] for state in (LOOSE, PINNED, UNRESOLVED)
    )
    read = {
        (name.replace("--", "/"), commit)
        for path in opened(evidence)
        for name, commit in _HUB_CACHE.findall(path)
    }
    named = {call.repository.lower() for call in (*loose, *pinned)}
    wrong, good = list[str](), [str(call) for call in pinned]
    for call in loose:
        commits = [commit for name, commit in read if name.lower() == call.repository.lower()]
        wrong.append(
            f"{call} (these runs read commit {commits[0]})" if len(commits) == 1 else str(call)
        )
    for name, commit in sorted(item for item in read if item[0].lower() not in named):
        is_named = _is_named(evidence, commit, ran)
        line = f"{name}: the runs read commit {commit}"
        (good if is_named else wrong).append(
            line if is_named else f"{line}, which no file that they opened names"
        )
    remarks = [f"not read: {line}" for line in unread[:3]]
    if unresolved:
        message = (
            f"{len(unresolved)} calls take the name or the revision from a variable, which is "
            f"not followed ({unresolved[0]})"
        )
        remarks.insert(0, message)
    if wrong:
        return missing(
            f"{len(wrong)} of {len(wrong) + len(good)} remote datasets and models can change "
            "under their names",
            (*wrong, *remarks),
            _PIN,
        )
    if good:
        return passed(
            f"{len(good)} remote datasets and models are pinned to a commit", (*good, *remarks)
        )
    where = "the Python files that the runs opened" if code else "the Python files"
    return skipped(f"no call in {where} names a remote dataset or model", remarks)


def _is_named(evidence: Evidence, commit: str, ran: Collection[str]) -> bool:
    """Whether the spec, or a tracked file that the runs opened (any, where that is not known),
    names the commit."""
    paths = [
        evidence.root / path
        for path in (ran or evidence.tracked or ())
        if path in (evidence.tracked or ())
    ][:MAX_FILES]
    for path in (evidence.spec.path, *paths):
        with contextlib.suppress(Unreadable):
            if commit in read_text(path, evidence.root, MAX_FILE_BYTES).lower():
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
