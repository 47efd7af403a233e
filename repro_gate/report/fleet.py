"""The answer of a fleet check: one sentence and one table, on a terminal, in Markdown, as a page,
and as JSON. The names and facts of nodes are untrusted."""

from __future__ import annotations

from repro_gate import __version__
from repro_gate.compare.fingerprint import ANY
from repro_gate.compare.fleet import (
    AGREES,
    DIFFERS,
    NOTHING,
    UNSTEADY,
    Fleet,
    Group,
)
from repro_gate.compare.model import Divergence
from repro_gate.escape import and_more, counted
from repro_gate.report import html, markdown, numbers
from repro_gate.report.document import render
from repro_gate.report.model import View
from repro_gate.report.sections import Table
from repro_gate.report.terminal import laid_out
from repro_gate.report.widgets import printed, text
from repro_gate.report.wording import (
    Phrase,
    joined,
    phrase,
    plain_text,
    quantity,
    say,
    where,
)

SCHEMA_ID = "repro-gate/fleet/v1"
_HEAD = ("Nodes", "Result", "First to differ", "Set apart by")
_ROWS = 50
_NODES = 4  # named in one cell
_APART = 8  # facts in one cell
_LENGTH = 1_000  # characters of a sentence in Markdown
# of one node, and of several
_WORDS = {
    AGREES: ("agrees", "agree"),
    DIFFERS: ("differs", "differ"),
    UNSTEADY: ("differs from itself", "differ from themselves"),
    NOTHING: ("has no result", "have no result"),
}


def sentence(fleet: Fleet) -> Phrase:
    """Return the answer in one sentence."""
    groups = {kind: [it for it in fleet.groups if it.kind == kind] for kind in _WORDS}
    rest = [DIFFERS, UNSTEADY, NOTHING]
    every = counted(fleet.nodes, "node")
    first = f"{numbers.of(fleet.agreeing, fleet.nodes)} nodes agree"
    if fleet.verdict == "pass":
        first = f"all {every} agree"
    elif groups[DIFFERS] and not groups[AGREES]:
        # nobody is to blame
        rest.remove(DIFFERS)
        first = f"no majority among {every}: {len(groups[DIFFERS]):,} groups differ"
    others = (_about(kind, groups[kind]) for kind in rest)
    parts = [say(first), *others]
    if fleet.shared_names:
        name, *more = fleet.shared_names
        words = "differs from itself, or a report of another node has its name"
        if more:
            also = counted(len(more), "other")
            words = f"and {also} differ from themselves, or reports of others have their names"
        parts.append(phrase(f"{{name}} {words}", name=name))
    return joined(parts, "; ")


def _about(kind: str, groups: list[Group]) -> Phrase:
    """Return what is to be said of the nodes of these groups; empty if there are none."""
    nodes = [node for group in groups for node in group.nodes]
    if not nodes:
        return say(groups[0].why if groups else "")
    others = len(nodes) - 1
    one, several = _WORDS[kind]
    words = one
    if others:
        words = f"and {counted(others, 'other')} {several}"
    line = phrase(f"{{name}} {words}", name=nodes[0])
    first = groups[0].first_divergence
    return line + _since(first) if first and len(groups) == 1 else line


def _since(first: Divergence) -> Phrase:
    moment = f" from step {first.step} on" if first.step >= 0 else " from the start"
    if first.name == ANY:
        return say(moment)
    what = quantity(first)
    the = "" if plain_text(what).startswith("the ") else "the "
    return phrase(f"{moment}, first in {the}{{}}", what)


def table(fleet: Fleet) -> Table:
    """Return a row for each group."""
    rows = [_row(group) for group in fleet.groups[:_ROWS]]
    if more := and_more(len(fleet.groups) - _ROWS, "group"):
        rows.append((say(f"{more}, all in the JSON"), (), (), ()))
    return Table(_HEAD, tuple(rows))


def _row(group: Group) -> tuple[Phrase, ...]:
    names = [say(node, "name") for node in group.nodes[:_NODES]]
    facts = [say(str(fact), "message") for fact in group.set_apart[:_APART]]
    first = group.first_divergence
    place = where(first) or say(group.why, "message")
    if first and first.name == ANY:
        place = say(f"step {first.step}; {first.detail}", "message")
    names.append(say(and_more(len(group.nodes) - _NODES)))
    facts.append(say(and_more(len(group.set_apart) - _APART)))
    is_one = len(group.nodes) == 1
    return (
        joined(names),
        say(_WORDS[group.kind][not is_one]),
        place,
        joined(facts, "; "),
    )


def on_terminal(fleet: Fleet, view: View) -> str:
    """Return the table and below it the sentence, unbroken."""
    line = text(sentence(fleet), "bold")
    line.no_wrap = True
    return printed(view, laid_out(table(fleet)), "", line)


def as_markdown(fleet: Fleet) -> str:
    """Return the sentence as a heading, and the table."""
    title = markdown.prose(sentence(fleet), _LENGTH)
    rows = markdown.as_markdown(table(fleet), _LENGTH)
    return f"## {markdown.MARKS[fleet.verdict]} Fleet: {title}\n\n{rows}\n"


def as_html(fleet: Fleet) -> str:
    """Return the sentence and the table as a page."""
    return html.table_page(fleet.verdict, sentence(fleet), table(fleet))


def as_json(fleet: Fleet) -> str:
    """Return the fields of Fleet, and the sentence as `answer`."""
    answer = plain_text(sentence(fleet))
    return render(
        fleet,
        schema=SCHEMA_ID,
        tool_version=__version__,
        answer=answer,
    )
