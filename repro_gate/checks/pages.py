"""The docs behind an id, for `repro-gate explain`: the page of a check or of a cause, or the line
on a reason. And the table of all checks: as a program this file writes it into the README and the
docs. The wheel carries the docs beside this file; in a checkout they are read from `docs`."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from repro_gate._version import DOCS_URL
from repro_gate.checks import ALL
from repro_gate.factors import Cause

START, END = "<!-- checks -->", "<!-- /checks -->"
_HERE, _DOCS = Path(__file__).parent / "pages", Path(__file__).resolve().parents[2] / "docs"
_CHECKS, _OTHERS = (_HERE, _HERE) if _HERE.is_dir() else (_DOCS / "checks", _DOCS)
_IDENTIFIER = re.compile(r"[a-z]+(?:-[a-z]+)*/[a-z]+(?:-[a-z]+)*")
_LINE = re.compile(rf"^- `({_IDENTIFIER.pattern})`: (.+)$", re.MULTILINE)


def page(identifier: str) -> str | None:
    """Return the Markdown of the page of `category/name`; None if there is no such page."""
    if not _IDENTIFIER.fullmatch(identifier):
        return None
    path = _CHECKS / f"{identifier}.md"
    return path.read_text(encoding="utf-8") if path.is_file() else None


def cause_page(cause: Cause) -> str:
    """Return the Markdown of the page of a cause."""
    return (_OTHERS / "causes" / f"{cause}.md").read_text(encoding="utf-8")


def url(identifier: str) -> str | None:
    """Return the address of an id's page on the web; None for an id that is none of ours."""
    if page(identifier) is not None:
        return f"{DOCS_URL}/checks/{identifier}.md"
    return f"{DOCS_URL}/reasons.md" if identifier in reasons() else None


@cache
def reasons() -> Mapping[str, str]:
    """Return what every other id of a report stands for, in the order of `docs/reasons.md`."""
    return dict(_LINE.findall((_OTHERS / "reasons.md").read_text(encoding="utf-8")))


def table() -> str:
    """Return a row for each check: its id, linked to its page, the sentence that is true where it
    passes, and what it needs."""
    rows = [
        f"| [`{check.id}`]({check.id}.md) | {check.title.replace('|', chr(92) + '|')} | "
        f"{check.needs} |"
        for check in ALL
    ]
    return "\n".join(["| check | passes where | looks at |", "| --- | --- | --- |", *rows])


def placed(text: str) -> str:
    """Return the text with the table between its markers. Raises ValueError if it has none."""
    before, start, rest = text.partition(START)
    _, end, after = rest.partition(END)
    if not start or not end:
        raise ValueError(f"there is no {START} … {END}")
    return f"{before}{START}\n{table()}\n{END}{after}"


def main(root: Path) -> None:
    """Write the table into the index of the checks' pages."""
    path = root / "docs" / "checks" / "README.md"
    path.write_text(placed(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
