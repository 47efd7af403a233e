"""What is compared whole with a file. `REPRO_GATE_GOLDEN=write` writes the file anew: read the
difference then."""

from __future__ import annotations

import os
from pathlib import Path


def golden(path: Path, text: str) -> None:
    """Compare a text with what the file holds."""
    if os.environ.get("REPRO_GATE_GOLDEN") == "write":
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")
