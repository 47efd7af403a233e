"""The table of all checks in docs/checks/README.md, as Markdown. `python -m repro_gate.checks.table` writes it between its markers."""

from __future__ import annotations

import sys
from pathlib import Path

from repro_gate.checks import ALL

START, END = "<!-- checks -->", "<!-- /checks -->"


def table() -> str:
    """One row for each check: its id, linked to its page, the sentence that is true where it passes, and what it needs."""
    rows = [f"| [`{check.id}`]({check.id}.md) | {check.title.replace('|', chr(92) + '|')} | {check.needs} |" for check in ALL]
    return "\n".join(["| check | passes where | looks at |", "| --- | --- | --- |", *rows])


def placed(text: str) -> str:
    """The text with the table between its markers. Raises ValueError where it has no markers."""
    before, start, rest = text.partition(START)
    _, end, after = rest.partition(END)
    if not start or not end:
        raise ValueError(f"there is no {START} … {END}")
    return f"{before}{START}\n{table()}\n{END}{after}"


def main(root: Path) -> None:
    """Write the table into the page."""
    path = root / "docs" / "checks" / "README.md"
    path.write_text(placed(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
