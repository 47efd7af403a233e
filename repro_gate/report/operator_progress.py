"""How far `repro-gate ops` is: a bar on a terminal, a plain line every half minute elsewhere, or
nothing."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, TextIO

from repro_gate.escape import for_encoding, for_log, for_terminal
from repro_gate.report.numbers import duration

if TYPE_CHECKING:
    from rich.progress import Progress

EVERY = 30.0  # seconds between two lines


class Quiet:
    """Tells nobody."""

    def said(self, text: str) -> None:
        """A line worth keeping; `text` is safe to print."""

    def advanced(self, done: int, total: int, now: str) -> None:
        """So many rows of all; `now` is executed next (untrusted)."""


class Lines(Quiet):
    """Plain lines."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._said, self._began, self._from = (
            stream,
            time.monotonic(),
            time.monotonic(),
            -1,
        )

    def said(self, text: str) -> None:
        """At once."""
        line = for_encoding(
            for_log(text, os.environ), getattr(self._stream, "encoding", None) or "utf-8"
        )
        with contextlib.suppress(OSError):  # nobody reads any more
            print(line, file=self._stream, flush=True)

    def advanced(self, done: int, total: int, now: str) -> None:
        """Now and then: how many, how long still, and what comes next."""
        if self._from < 0:  # what an interrupted start left says nothing about time
            self._from, self._began = done, time.monotonic()
        if time.monotonic() - self._said > EVERY:
            self._said = time.monotonic()
            new = done - self._from
            left = (time.monotonic() - self._began) / new * (total - done) if new else 0.0
            about = f", about {duration(left)} left" if left else ""
            self.said(f"{done:,} of {total:,} measurements{about}: {for_terminal(now, 120)}")


class Bar(Quiet):
    """One line that moves."""

    def __init__(self, bar: Progress) -> None:
        self._bar, self._task = bar, bar.add_task("starting", total=None)

    def said(self, text: str) -> None:
        """Above the bar."""
        from rich.text import Text

        self._bar.console.print(Text(text, style="dim"))

    def advanced(self, done: int, total: int, now: str) -> None:
        """Move it."""
        self._bar.update(
            self._task, completed=done, total=total, description=for_terminal(now, 44).ljust(44)
        )


@contextlib.contextmanager
def watching(stream: TextIO, *, terminal: bool, quiet: bool) -> Iterator[Quiet]:
    """What suits `stream`."""
    if quiet:
        yield Quiet()
    elif not terminal:
        yield Lines(stream)
    else:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        with Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=10),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(compact=True),
            console=Console(file=stream, highlight=False, markup=False),
            transient=True,
        ) as bar:
            yield Bar(bar)
