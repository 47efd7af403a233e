"""The docs page of a check: what it looks at, why, how to mend it, before and after. Called by `repro-gate explain`.

The wheel carries the pages beside this file (pyproject.toml puts them there); in a checkout they are read from `docs/checks`.
"""

from __future__ import annotations

import re
from pathlib import Path

_FOLDERS = (Path(__file__).resolve().parent / "pages", Path(__file__).resolve().parents[2] / "docs" / "checks")
_IDENTIFIER = re.compile(r"[a-z]+(?:-[a-z]+)*/[a-z]+(?:-[a-z]+)*")


def page(identifier: str) -> str | None:
    """The Markdown of the page of `category/name`; None where there is no such page."""
    if not _IDENTIFIER.fullmatch(identifier):
        return None
    for folder in _FOLDERS:
        path = folder / f"{identifier}.md"
        if path.is_file():
            return path.read_text(encoding="utf-8")
    return None
