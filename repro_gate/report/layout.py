"""How text is laid out on a terminal: lines of phrases, labelled grids, titled sections, at any width, with colour or without, and on an
ASCII stream.
 `text` is the one place where text from outside becomes something that is printed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from repro_gate.checks.interface import CheckResult
from repro_gate.escape import for_encoding, for_terminal
from repro_gate.report import wording
from repro_gate.report.wording import Phrase

STATUS_STYLE = {"pass": "green", "warn": "yellow", "fail": "bold red", "skip": "dim", "waived": "cyan"}
_ROLE_STYLE = {"say": "", "figure": "bold", "name": "bold cyan", "message": ""}
WIDE = 2_000  # columns where there is no terminal: more than any text that a report shows
_RULE = 80  # columns of a rule at most
EVIDENCE = 5  # lines of a check's evidence that a person sees
_LIMITS = {"name": 160, "message": 600}  # characters


def out(console: Console, *parts: RenderableType) -> None:
    """Print each part as it is: no markup, no emoji codes."""
    for part in parts:
        width = min(console.width, _RULE) if isinstance(part, Rule) else None
        console.print(part, width=width, highlight=False, emoji=False, markup=False)


def unwrapped(console: Console, show: Callable[[], None]) -> None:
    """Print what `show` prints to a console that is no terminal without the spaces at the ends of lines, which tables fill up."""
    with console.capture() as kept:
        show()
    print("\n".join(line.rstrip(" ") for line in kept.get().split("\n")), end="", file=console.file, flush=True)


def text(phrase: Phrase, encoding: str, style: str = "") -> Text:
    """A phrase as one line that folds, its foreign parts clipped and made visible."""
    line = Text(style=style, overflow="fold")
    for role, words in phrase:
        safe = for_terminal(words, _LIMITS[role]) if role in _LIMITS else words
        line.append(for_encoding(safe, encoding), style=_ROLE_STYLE[role])
    return line


def say(words: str, encoding: str, style: str = "") -> Text:
    """Our own words."""
    return text((("say", words),), encoding, style)


def indented(line: Text) -> Padding:
    """Two columns further in."""
    return Padding(line, (0, 0, 0, 2))


def remedy(words: str, encoding: str) -> Text:
    """What to do."""
    return text((("say", "remedy: "), ("message", words)), encoding, "green")


def grid(*widths: int | None) -> Table:
    """Columns without lines: a fixed width each, None for the one that takes the rest."""
    table = Table.grid(padding=(0, 2, 0, 0), expand=False)
    for width in widths:
        table.add_column(width=width, no_wrap=False, overflow="fold")
    return table


def labelled(lines: Iterable[tuple[str, Text]]) -> Table | None:
    """Lines with a label each; None where there are none."""
    table = grid(11, None)
    for label, line in lines:
        table.add_row(Text(label, style="dim"), line)
    return table if table.row_count else None


def section(title: str, body: RenderableType | None, encoding: str) -> Iterator[RenderableType]:
    """A blank line, a titled rule where there is a title, the body where there is one."""
    if title or body is not None:
        yield Text("")
    if title:
        yield Rule(for_encoding(title, encoding), align="left", style="dim", characters="─" if _is_utf(encoding) else "-")
    if body is not None:
        yield Padding(body, (0, 0, 0, 2), expand=False)


def _is_utf(encoding: str) -> bool:
    return encoding.lower().startswith("utf")


def evidence(item: CheckResult, encoding: str) -> Iterator[Text]:
    """The first lines of what a check saw, and how many more there are."""
    lines, more = wording.few(item.evidence, EVIDENCE)
    for line in lines:
        yield text((("message", line),), encoding, "dim")
    if more:
        yield say(f"and {more:,} more", encoding, "dim")
