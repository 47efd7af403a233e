"""What needs no training and no report: `explain` prints the page of an id, `schema` a JSON
Schema."""

from __future__ import annotations

import difflib
from argparse import Namespace
from importlib.resources import files

from repro_gate._version import DOCS_URL
from repro_gate.checks import ALL
from repro_gate.checks.pages import cause_page, page, reasons
from repro_gate.errors import UsageError
from repro_gate.factors import CAUSES


def explain_command(options: Namespace) -> int:
    """Print what a check, a cause or a reason is about; without an id, the list of the checks."""
    if options.id is None:
        width = max(len(item.id) for item in ALL)
        for item in ALL:
            print(f"{item.id:<{width}}  {item.title}")
        return 0
    causes: dict[str, str] = {name: cause_page(name) for name in CAUSES}
    known = {**{item.id: item.title for item in ALL}, **reasons(), **causes}
    if options.id not in known:
        close = difflib.get_close_matches(options.id, known, 1)
        hint = f", did you mean `{close[0]}`?" if close else ""
        raise UsageError(
            f"explain {options.id}: there is no such id{hint}",
            remedy=f"`repro-gate explain` lists the checks, {DOCS_URL}/reasons.md the reasons",
        )
    text = causes.get(options.id) or page(options.id)
    print(text or f"# {options.id}\n\n{known[options.id]}\n", end="")
    return 0


def schema_command(options: Namespace) -> int:
    """Print the JSON Schema of the spec or of a report."""
    path = files("repro_gate") / options.format / "schema.json"
    print(path.read_text(encoding="utf-8"), end="")
    return 0
