"""Checks of category `data`: did both runs see the same bytes, only declared ones, and can they be fetched again?"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from repro_gate.checks.interface import (
    CHECKOUT,
    Check,
    Evidence,
    Outcome,
    check,
    failed,
    missing,
    parted_before,
    passed,
    shortened,
    skipped,
)
from repro_gate.checks.opened import declared_paths, folded, is_source, left_over, misplaced, opened, unlisted, with_line
from repro_gate.checks.revisions import Found, find_revisions
from repro_gate.checks.splits import splits_disjoint
from repro_gate.data.declared import DataFinding
from repro_gate.data.formats import LEGACY, quoted, wrong_digest
from repro_gate.spec.model import DataItem

_HUB_CACHE = re.compile(r"/(?:models|datasets|spaces)--([^/]+)/snapshots/([0-9a-f]{40})/")
_TAKE_AGAIN = "take the digest again: `sha256sum FILE`"
_PIN = (
    'name the commit: `revision="<40 digits>"` (`git ls-remote https://huggingface.co/OWNER/NAME HEAD` prints it, for a dataset with '
    'datasets/OWNER/NAME); for torch.hub `"owner/repo:<40 digits>"` with skip_validation=True; for timm `"hf_hub:owner/name@<40 digits>"`; '
    "fetch a file behind a URL once and declare it under `data:`"
)


@check("data/checksums", "Every declared file has the digests and the size that its declaration states, recomputed now.", CHECKOUT)
def checksums(evidence: Evidence) -> Outcome:
    """sha256, and what a `.dvc` file or Croissant metadata declares besides; a declaration that cannot be read fails here too."""
    problems = [item for item in evidence.data_problems if item.kind != "digest"]
    if not evidence.spec.data and not problems:
        return skipped("no declared digest can be verified (see data/digest-length)" if evidence.data_problems else "no data is declared")
    wrong = [item for item in evidence.data if item.mismatches or item.actual is None]
    if wrong or problems:
        lines = [f"{item.where}: {item.message}" for item in problems]
        lines += [line for item in wrong for line in _mismatches(item)]
        counted = [f"{len(wrong)} of {len(evidence.data)} declared items are not what is stated"] if wrong else []
        counted += [f"{len(problems)} declarations cannot be used"] if problems else []
        remedy = problems[0].remedy if problems else "restore the file, or put the new sha256 into the spec if the change is meant"
        return failed(", and ".join(counted), shortened(lines), remedy)
    bare = [item for item in evidence.data if not item.declared]
    if bare:
        return missing(
            f"{len(bare)} declared items have no sha256",
            shortened([f"{item.path}: sha256 {item.actual}" for item in bare]),
            "add the sha256 shown to the spec",
        )
    return passed(f"{len(evidence.data)} declared items have their digests", shortened([_verified(item) for item in evidence.data]))


def _mismatches(item: DataFinding) -> tuple[str, ...]:
    """What is wrong with one item, and which declaration says so."""
    lines = item.mismatches or (f"{item.path}: found nothing",)
    return tuple(f"{line} (declared at {item.source})" if item.source else line for line in lines)


def _verified(item: DataFinding) -> str:
    digest = f"sha256 {item.actual}" if item.expected is not None else f"md5 {item.md5_actual}"
    return f"{item.path}: {digest}" + (f" (declared at {item.source})" if item.source else "")


@check("data/digest-length", "Every declared digest is as long as its algorithm makes it: 64 digits for sha256, 32 for md5.", CHECKOUT)
def digest_length(evidence: Evidence) -> Outcome:
    """A digest that was cut off, or taken with another algorithm, can match nothing, so nothing was verified against it."""
    problems = [item for item in evidence.data_problems if item.kind == "digest"]
    digests = [(item, *digest) for item in evidence.spec.data for digest in _digests(item)]
    told = [(f"{item.where}: {item.message}", item.remedy) for item in problems]
    found = [
        (f"{quoted(item.source or item.path)}: {wrong_digest(*digest)}", _TAKE_AGAIN) for item, *digest in digests if wrong_digest(*digest)
    ]
    wrong = dict([*found, *told])
    if wrong:
        return failed(f"{len(wrong)} declared digests are none of their algorithm", shortened(list(wrong)), next(iter(wrong.values())))
    if not digests:
        return skipped("no digest is declared")
    return passed(f"{len(digests)} declared digests have the length of their algorithm")


def _digests(item: DataItem) -> Iterator[tuple[str, str]]:
    """Algorithm and hexadecimal digits of what is declared; DVC's marks of a folder's listing and of its old text digests are cut off."""
    if item.sha256 is not None:
        yield "sha256", item.sha256
    if item.md5 is not None:
        yield "md5", item.md5.removeprefix(LEGACY).removesuffix(".dir")


@check("data/unchanged", "No run wrote to declared data.")
def unchanged(evidence: Evidence) -> Outcome:
    """Size, time of change and inode of every declared file before the runs and after each."""
    if not evidence.spec.data or not evidence.runs:
        return skipped("no data is declared")
    if evidence.changed_data:
        return failed(
            "a run changed declared data, so the next one trained on other bytes",
            shortened(evidence.changed_data),
            "write to a path of the run's own",
        )
    return passed("declared data is as it was before the runs")


@check("data/undeclared-reads", "Every data file outside the checkout that training read is declared under `data:`.")
def no_undeclared_reads(evidence: Evidence) -> Outcome:
    """Files there before the run and opened for reading (by Python's audit hook), outside the workspace, no source or settings."""
    if not any(trace.trained for run in evidence.runs for trace in run.traces):
        return skipped("no run was traced")
    outside = [item for _, item in sorted(opened(evidence).items()) if not item.inside]
    found = [item for item in outside if not is_source(item.path)]
    cut = unlisted(evidence)
    if found:
        return missing(
            f"training read {len(found)} files outside the checkout that nothing declares",
            (*shortened(folded([(item, misplaced(evidence, item)) for item in found])), *shortened(cut, 2)),
            "declare each file, or the folder that holds them, under `data:` with its sha256, so that a rerun can tell if it has the same",
        )
    if cut:
        return missing(
            "training opened more files than the probe lists, so not all were looked at", cut[:2], "declare the folders they lie in"
        )
    besides = " besides source and settings, which `code/opened-files` judges" if outside else ""
    return passed(f"training read no undeclared file outside the checkout{besides}")


@check("data/leftovers", "No run read a file that an earlier run of the same gate run had made or changed.")
def no_leftovers(evidence: Evidence) -> Outcome:
    """Files outside workspace, HOME and TMPDIR that were made or changed after the gate run began and before the run that read them."""
    if not any(trace.trained for run in evidence.runs for trace in run.traces):
        return skipped("no run was traced")
    found = left_over(evidence.runs)
    if found:
        count = len({item.path for item in found})
        lines = [f"{with_line(item)}: read by {', '.join(names)}" for item, names in found.items()]
        return failed(
            f"runs read {count} files left over from an earlier run of this gate run, so equal results show nothing",
            shortened(sorted(lines)),
            "write below the working directory, HOME or TMPDIR (each run has its own), or declare the files under `data:`",
        )
    return passed("no run read what an earlier one had left behind")


@check(
    "data/no-network", "No training process opened a connection to another machine (seen by Python's audit hook; loopback does not count)."
)
def no_network(evidence: Evidence) -> Outcome:
    """Connections of every traced process of every run; what native code opens by itself is not seen."""
    if not any(trace.trained for run in evidence.runs for trace in run.traces):
        return skipped("no run was traced")
    addresses = sorted({address for run in evidence.runs for trace in run.traces for address in trace.network})
    if addresses:
        return missing(
            "training connected to other machines, whose answers can change",
            shortened(addresses),
            "declare the data under `data:`, and turn telemetry off through train.env",
        )
    return passed("no training process connected to another machine")


@check("data/revisions", "Every remote dataset and model that the code names is pinned to a commit.", CHECKOUT)
def revisions_pinned(evidence: Evidence) -> Outcome:
    """The calls that fetch from a hub in tracked Python files: in those that the runs opened, or in all where nothing has run.

    Where the runs had a snapshot of the hub's cache open, the evidence names its commit.
    """
    if evidence.checkout is None or evidence.tracked is None:
        return skipped("git tracks no files here")
    root = evidence.checkout.root
    ran = _opened_code(evidence)
    found = find_revisions(root, evidence.tracked, declared_paths(evidence), first=ran)
    loose, pinned, unresolved = (
        [item for item in group if not ran or item.path in ran] for group in (found.loose, found.pinned, found.unresolved)
    )
    remarks = _remarks(unresolved, [item for item in found.loose if item not in loose], found.unread)
    if loose:
        used = _snapshots(evidence)
        return missing(
            f"{len(loose)} of {len(loose) + len(pinned)} calls fetch a remote dataset or model that can change under its name",
            (*shortened([_with_commit(item, used) for item in loose]), *remarks),
            _PIN,
        )
    if pinned:
        lines = (*shortened([str(item) for item in pinned]), *remarks)
        return passed(f"{len(pinned)} remote datasets and models are pinned to a commit", lines)
    where = f"{len(ran)} Python files that the runs opened" if ran else f"{found.files} Python files"
    return skipped(f"no call in {where} names a remote dataset or model", remarks)


def _remarks(unresolved: Sequence[Found], elsewhere: Sequence[Found], unread: Sequence[str]) -> tuple[str, ...]:
    """What the check did not judge, and why."""
    groups = (
        (unresolved, "calls take the name or the revision from a variable, which is not followed"),
        (elsewhere, "calls that are not pinned stand in files that these runs did not open"),
    )
    lines = [f"{len(group)} {text} ({group[0].path}:{group[0].call.line}: {group[0].call.text})" for group, text in groups if group]
    return (*lines, *shortened([f"not read: {line}" for line in unread], 3))


def _opened_code(evidence: Evidence) -> frozenset[str]:
    """The workspace's Python files that the runs opened; empty where none ran, or where they opened more than is listed."""
    if unlisted(evidence):
        return frozenset()
    return frozenset(item.path for item in opened(evidence).values() if item.inside and item.path.endswith(".py"))


def _snapshots(evidence: Evidence) -> dict[str, set[str]]:
    """Repository -> commits, of the files in Hugging Face's cache that the runs had open."""
    used: dict[str, set[str]] = {}
    for path in opened(evidence):
        for name, commit in _HUB_CACHE.findall(path):
            used.setdefault(name.replace("--", "/").lower(), set()).add(commit)
    return used


def _with_commit(item: Found, used: dict[str, set[str]]) -> str:
    commits = used.get(item.call.repository.lower(), set())
    return f"{item} (these runs read commit {min(commits)})" if len(commits) == 1 else str(item)


@check("data/batches", "Every batch that a DataLoader handed out had the same bytes in both runs, in the same order.")
def batches_equal(evidence: Evidence) -> Outcome:
    """Digests of all tensors of every batch, in order of execution."""
    tally = evidence.comparison.by_kind.get("batch") if evidence.comparison else None
    if tally is None or not tally.tensors:
        return skipped("no batch came through a torch DataLoader")
    count = sum(block.kind == "batch" for run in evidence.pair[:1] for trace in run.traces for block in trace.blocks)
    first = evidence.comparison.first_divergence if evidence.comparison else None
    if tally.differing and first is not None and (first.kind == "batch"):
        return failed(
            f"the runs were handed different batches from step {first.step} on",
            (first.name,),
            "seed the sampler and the augmentation from the run's seed",
        )
    if tally.differing:
        return parted_before("batches differ", "tensors of batches", tally, first)
    return passed(f"{count} batches were equal, in content and order")


CHECKS: tuple[Check, ...] = (
    checksums,
    digest_length,
    unchanged,
    no_undeclared_reads,
    no_leftovers,
    no_network,
    revisions_pinned,
    batches_equal,
    splits_disjoint,
)
