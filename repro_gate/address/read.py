"""The address that a report.json carries. Called by `repro-gate hash --diff A B`. A report is untrusted: see `document`."""

from __future__ import annotations

from pathlib import Path

from repro_gate.address.document import from_json
from repro_gate.address.model import ContentAddress
from repro_gate.errors import UsageError
from repro_gate.report.escape import for_terminal
from repro_gate.report.json_face import load


def load_address(path: Path) -> ContentAddress:
    """The address in the report at `path`. Raises GateError naming the file: unreadable, no report, no address in it, or a forged one."""
    document = load(path).get("content_address")
    name = for_terminal(str(path), 200)
    if document is None:
        raise UsageError(
            f"{name}: this report carries no content address: no run of it came to its end",
            reason_id="address/none",
            remedy="name a report of a gating whose deterministic runs ended well",
        )
    try:
        return from_json(document)
    except UsageError as error:
        raise UsageError(f"{name}: {for_terminal(error.message, 600)}", remedy=error.remedy, reason_id=error.reason_id) from None
