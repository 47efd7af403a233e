"""Finds the docs for an id, for `repro-gate explain`: the page of a check or of a cause, or the
line on a reason. The wheel has the docs next to this file; in a checkout they are in `docs`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from repro_gate._version import DOCS_URL
from repro_gate.factors import Cause

_HERE = Path(__file__).parent / "pages"
_DOCS = Path(__file__).resolve().parents[2] / "docs"
_OTHERS = _HERE if _HERE.is_dir() else _DOCS
_CHECKS = _HERE if _HERE.is_dir() else _DOCS / "checks"
_IDENTIFIER = re.compile(r"[a-z]+(?:-[a-z]+)*/[a-z]+(?:-[a-z]+)*")
_LINE = re.compile(rf"^- `({_IDENTIFIER.pattern})`: (.+)$", re.MULTILINE)


def page(identifier: str) -> str | None:
    """Return the Markdown of the page of `category/name`; None if there is no such page."""
    path = _CHECKS / f"{identifier}.md"
    if _IDENTIFIER.fullmatch(identifier) and path.is_file():
        return path.read_text(encoding="utf-8")
    return None


def cause_page(cause: Cause) -> str:
    """Return the Markdown of the page of a cause."""
    return (_OTHERS / "causes" / f"{cause}.md").read_text(encoding="utf-8")


def url(identifier: str) -> str | None:
    """Return the address of an id's page on the web; None if the id is unknown."""
    if page(identifier) is not None:
        return f"{DOCS_URL}/checks/{identifier}.md"
    return f"{DOCS_URL}/reasons.md" if identifier in reasons() else None


@cache
def reasons() -> Mapping[str, str]:
    """Return the explanation of every other id of a report, in the order of `docs/reasons.md`."""
    return dict(_LINE.findall((_OTHERS / "reasons.md").read_text(encoding="utf-8")))
