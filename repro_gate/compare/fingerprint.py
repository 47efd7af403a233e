"""The fingerprint of a run: one short digest for each step and each kind, so that two reports can
be compared. Pure."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import rfc8785

from repro_gate.compare.model import KINDS, Comparison, Divergence, Fingerprint, Tally
from repro_gate.compare.traces import (
    named_digest,
    other_digest,
    processes,
    unequal_length,
)
from repro_gate.trace.format import DIGEST_BYTES
from repro_gate.trace.model import Trace

ANY = "(any)"  # the name of a divergence of which the step and the kind alone are known


def fingerprint(traces: Sequence[Trace], seed: int, leave_out: str = "") -> Fingerprint:
    """Return digests over everything that all processes of a run recorded, in this order, without
    the kind `leave_out`."""
    by_step = defaultdict[int, Any](hashlib.sha256)
    by_kind = defaultdict[str, Any](hashlib.sha256)
    tables = {}  # digests of rows, which blocks of one table share
    trained = processes(traces)
    for label, trace in trained.items():
        for block in trace.blocks:
            if block.kind == leave_out:
                continue
            table = id(block.rows)
            if table not in tables:
                rows: Any = [(*row[:2], list(row[2])) for row in block.rows]
                tables[table] = hashlib.sha256(rfc8785.dumps(rows)).digest()
            place = rfc8785.dumps([label, block.step, block.kind, block.at])
            content = place + tables[table] + block.digests
            by_step[block.step].update(content)
            by_kind[block.kind].update(content)
    return Fingerprint(
        seed,
        tuple((step, _short(state)) for step, state in sorted(by_step.items())),
        {kind: _short(state) for kind, state in sorted(by_kind.items())},
        named_digest(trained.values()),
    )


def compare_fingerprints(first: Fingerprint, second: Fingerprint) -> Comparison:
    """Compare two runs by their fingerprints: which step, and which kinds, but not which tensor.
    Raises Inconclusive if they digested tensors in two ways.

    Steps that one report lacks are no differences. Kinds are digested over all steps, so they say
    nothing where the steps are not the same.
    """
    if first.digest != second.digest:
        raise other_digest("the reports' fingerprints", first.digest, second.digest)
    left = dict(first.by_step)
    right = dict(second.by_step)
    shared = sorted(left.keys() & right.keys())
    differing = [step for step in shared if left[step] != right[step]]
    equal_length = left.keys() == right.keys()
    recorded = first.by_kind.keys() | second.by_kind.keys() if equal_length else ()
    by_kind = {
        kind: Tally(1, int(first.by_kind.get(kind) != second.by_kind.get(kind)))
        for kind in KINDS
        if kind in recorded
    }
    kinds = [kind for kind, tally in by_kind.items() if tally.differing]
    first_divergence = None
    if differing:
        detail = f"kinds that differ in any step: {', '.join(kinds)}" if kinds else ""
        first_divergence = Divergence(
            step=differing[0],
            kind=kinds[0] if kinds else "parameter",
            name=ANY,
            detail=detail,
        )
    elif not equal_length:
        first_divergence = unequal_length(
            sum(step >= 0 for step in left), sum(step >= 0 for step in right)
        )
    return Comparison(
        identical=first_divergence is None,
        steps=sum(step >= 0 for step in shared),
        tensors=len(by_kind),
        differing=len(kinds),
        first_divergence=first_divergence,
        by_kind=by_kind,
        by_step=tuple((step, 1) for step in differing),
    )


def _short(state: Any) -> str:
    return str(state.hexdigest()[: 2 * DIGEST_BYTES])
