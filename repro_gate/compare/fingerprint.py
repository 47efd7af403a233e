"""The fingerprint of a run: one short digest for each step and each kind, so that two reports can
be compared. Pure."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import rfc8785

from repro_gate.compare.model import Fingerprint
from repro_gate.compare.traces import named_digest, processes
from repro_gate.trace.format import DIGEST_BYTES
from repro_gate.trace.model import Trace


def fingerprint(
    traces: Sequence[Trace],
    seed: int,
    leave_out: str = "",
) -> Fingerprint:
    """Return digests over everything that all processes of a run recorded, in this order, without
    the kind `leave_out`."""
    by_step: defaultdict[int, Any] = defaultdict(hashlib.sha256)
    by_kind: defaultdict[str, Any] = defaultdict(hashlib.sha256)
    tables: dict[int, bytes] = {}  # digests of rows, which blocks of one table share
    trained = processes(traces)
    for label, trace in trained.items():
        for block in trace.blocks:
            if block.kind == leave_out:
                continue
            table = id(block.rows)
            if table not in tables:
                rows: Any = [(*row[:2], list(row[2])) for row in block.rows]
                tables[table] = hashlib.sha256(rfc8785.dumps(rows)).digest()
            place = rfc8785.dumps(
                [
                    label,
                    block.step,
                    block.kind,
                    block.at,
                ]
            )
            content = place + tables[table] + block.digests
            by_step[block.step].update(content)
            by_kind[block.kind].update(content)
    return Fingerprint(
        seed,
        tuple((step, _short(state)) for step, state in sorted(by_step.items())),
        {kind: _short(state) for kind, state in sorted(by_kind.items())},
        named_digest(trained.values()),
    )


def _short(state: Any) -> str:
    return str(state.hexdigest()[: 2 * DIGEST_BYTES])
