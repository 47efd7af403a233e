"""The docs behind an id: the page of a check (what it looks at, why, how to mend it), or the line on a reason. For `repro-gate explain`.

The wheel carries them beside this file (pyproject.toml puts them there); in a checkout they are read from `docs`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from repro_gate._version import DOCS_URL

_HERE, _DOCS = Path(__file__).resolve().parent / "pages", Path(__file__).resolve().parents[2] / "docs"
_FOLDERS = (_HERE, _DOCS / "checks")
_REASONS = (_HERE / "reasons.md", _DOCS / "reasons.md")
_IDENTIFIER = re.compile(r"[a-z]+(?:-[a-z]+)*/[a-z]+(?:-[a-z]+)*")
_LINE = re.compile(rf"^- `({_IDENTIFIER.pattern})`: (.+)$", re.MULTILINE)


def page(identifier: str) -> str | None:
    """The Markdown of the page of `category/name`; None where there is no such page."""
    if not _IDENTIFIER.fullmatch(identifier):
        return None
    for folder in _FOLDERS:
        path = folder / f"{identifier}.md"
        if path.is_file():
            return path.read_text(encoding="utf-8")
    return None


def url(identifier: str) -> str | None:
    """Where a person reads about an id on the web; None for an id that is none of ours."""
    if page(identifier) is not None:
        return f"{DOCS_URL}/checks/{identifier}.md"
    return f"{DOCS_URL}/reasons.md" if identifier in reasons() else None


@cache
def reasons() -> Mapping[str, str]:
    """What every other id that a report can name stands for, in the order of `docs/reasons.md`."""
    path = next((path for path in _REASONS if path.is_file()), None)
    return {} if path is None else dict(_LINE.findall(path.read_text(encoding="utf-8")))
