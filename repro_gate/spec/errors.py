"""What is wrong with a spec, as data and as the lines that a person reads.

Raised by `spec.loader`, printed by `cli.main`. Imports nothing of the package but `errors`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from repro_gate.errors import UsageError
from repro_gate.escape import and_more, for_terminal, listed

# a file with more mistakes than this is not a repro.yml; the rest is counted
MAX_PRINTED = 50
MAX_SHOWN = 60  # characters of a value that stand in a message

KeyPath = tuple[str | int, ...]


@dataclass(frozen=True)
class Problem:
    """One mistake. `line` and `column` count from 1 and are None where there is no place (a missing
    file, an option).

    `key` is dotted (`data.0.path`, as `--set` takes it) and empty for the file as a whole; `origin`
    is the command-line option that brought the value, where it was not the file.
    """

    key: str
    message: str
    line: int | None = None
    column: int | None = None
    origin: str = ""

    def text(self, source: str) -> str:
        """Return the line to print: `repro.yml:LINE:COLUMN: key: what is wrong, what would be
        right`."""
        place = source if self.line is None else f"{source}:{self.line}:{self.column}"
        place = for_terminal(self.origin) or place
        # an option names its own key
        key = "" if self.origin.startswith(f"--set {self.key}=") else self.key
        return ": ".join(filter(None, (place, key, self.message)))


class SpecError(UsageError):
    """A spec that cannot be used: all its problems, in the order in which they stand in the
    file."""

    def __init__(
        self, source: str, problems: Sequence[Problem], *, remedy: str = ""
    ) -> None:
        source = for_terminal(source)
        lines = [problem.text(source) for problem in problems[:MAX_PRINTED]]
        if len(problems) > MAX_PRINTED:
            lines.append(f"{source}: … {and_more(len(problems) - MAX_PRINTED)}")
        super().__init__("\n".join(lines), remedy=remedy, reason_id="usage/spec")


class Refused(Exception):
    """Raised inside the spec room where reading cannot go on; `load_spec` turns it into a
    `SpecError`."""

    def __init__(self, problem: Problem, *, remedy: str = "") -> None:
        super().__init__(problem.message)
        self.problem = problem
        self.remedy = remedy


def dotted(path: KeyPath) -> str:
    """Return `("data", 0, "path")` as `data.0.path`, safe to print."""
    return ".".join(shortened(f"{part}") for part in path)


def shortened(text: str) -> str:
    """Return the text on one line, cut to what fits into a message. Every character that does not
    print (line breaks, escape codes, lone surrogates …) is written out."""
    return for_terminal(text, MAX_SHOWN)


def few(names: Sequence[str], most: int = 3) -> str:
    """Return the first few of the training's names, escaped, and how many more there are."""
    return listed([shortened(name) for name in names], most)
