"""The displays of progress: one line that moves on a terminal, plain lines everywhere else (grouped
on GitHub).

Everything that comes from the training (names, its output) is escaped for the place it is printed
in.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

from repro_gate.compare.model import Divergence
from repro_gate.escape import for_encoding, for_terminal, for_workflow_log
from repro_gate.report.numbers import duration
from repro_gate.report.wording import moment
from repro_gate.runs.progress import Watch

if TYPE_CHECKING:
    from repro_gate.runs.launch import Run


MIB = 1024 * 1024


class _Following(Watch):
    """What both displays know of the run in progress."""

    def __init__(self) -> None:
        self._numbered = (0, 0)  # which run of how many
        self._state = (
            ""  # how it compares with the first of its pair; empty where it is not compared
        )
        self._steps: int | None = None  # of this run
        self._known: int | None = None  # of a run to its end, once one has shown how many they are

    def _begin(self, number: int, total: int, steps: int | None) -> None:
        self._numbered, self._state, self._steps = (number, total), "", steps or self._known

    def compared(self, divergence: Divergence | None) -> None:
        """Shown with the next line, and with the one at the run's end."""
        self._state = (
            "identical so far" if divergence is None else f"diverged at step {divergence.step}"
        )
        if divergence is not None and divergence.step < 0:
            self._state = "diverged at the start"

    def _end(self, run: Run) -> str:
        """How the run ended, and how it compares."""
        if run.outcome == "finished" and run.plan.arm.steps is None:
            self._known = run.steps
        return ended(run) + (f"; {self._state}" if self._state else "")


class Lines(_Following):
    """Plain lines: one when a run begins, one when it ends, one for a divergence; a line of
    progress every half minute.

    On GitHub a run is a group, and from its first line to its last the runner obeys no command but
    the one that ends this, a fresh random token for each group: nothing that a training prints or
    is called can be a workflow command.
    """

    EVERY = 30.0  # seconds

    def __init__(self, stream: TextIO, github: bool) -> None:
        super().__init__()
        self._stream, self._github = stream, github
        self._said = self._began = time.monotonic()
        self._name = ""
        self._token = ""  # ends the stop of workflow commands; empty where none is going

    def verifying(self, done: int, total: int) -> None:
        """A line now and then: most data is read before the first of them."""
        if time.monotonic() - self._said > self.EVERY:
            self._said = time.monotonic()
            self._line(f"verifying data: {done // MIB:,} of {total // MIB:,} MiB")

    def said(self, text: str) -> None:
        """The line."""
        self._foreign(text)

    def run_started(self, name: str, number: int, total: int, steps: int | None) -> None:
        """Open a group, and let no line in it be a command."""
        self._begin(number, total, steps)
        self._name = name
        self._said = self._began = time.monotonic()
        self._line(
            f"{'::group::' if self._github else ''}run {number} of {total}: {name}"
            + (f", {steps} steps" if steps else "")
        )
        if self._github:
            self._token = secrets.token_hex(16)
            self._line(f"::stop-commands::{self._token}")

    def advanced(self, step: int, loss: float | None) -> None:
        """A line now and then: step, loss, time left, and how the run compares."""
        if self._name and time.monotonic() - self._said > self.EVERY:
            self._said = time.monotonic()
            parts = [f"step {step}" + (f" of {self._steps}" if self._steps else "")]
            parts += [f"loss {loss:.6g}"] if loss is not None else []
            if self._steps and (left := self._steps - step - 1) > 0:
                parts.append(
                    "about "
                    f"{duration(max(round((self._said - self._began) / (step + 1) * left), 1))} "
                    "left"
                )
            self._line(
                f"  {self._name}: {', '.join([*parts, *([self._state] if self._state else [])])}"
            )

    def diverged(self, divergence: Divergence) -> None:
        """At once."""
        self._foreign(f"  diverged: {sentence(divergence)}")

    def run_ended(self, run: Run) -> None:
        """Close the group; the log's end where the run went wrong."""
        self._name = ""
        self._foreign(f"  {self._end(run)}")
        if run.log_matters and run.ended.tail:
            for line in run.ended.tail[-60:]:
                self._foreign(f"  | {for_terminal(line, 2000)}")
        self.close()
        if remaining(run, *self._numbered):
            self._line(remaining(run, *self._numbered))

    def close(self) -> None:
        """Close the group where one is open; the runner obeys commands again."""
        if self._token:
            self._line(f"::{self._token}::\n::endgroup::")
            self._token = ""

    def _foreign(self, text: str) -> None:
        """A line that holds words of the training's: the runner obeys the older `##[command]`
        anywhere in a line."""
        self._line(for_workflow_log(text) if self._github else text)

    def _line(self, text: str) -> None:
        # nobody reads any more: the gate run goes on, and its report is still written
        with contextlib.suppress(OSError):
            print(
                for_encoding(text, getattr(self._stream, "encoding", None) or "utf-8"),
                file=self._stream,
                flush=True,
            )


class Display(_Following):
    """One line on a terminal that shows run, step, time left, and the loss, or from the second run
    of a pair on whether it is identical so far; what is worth keeping scrolls above it. It fits 80
    columns."""

    def __init__(self, console: Any) -> None:
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        super().__init__()
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=10),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(compact=True),
            console=console,
            transient=True,
        )
        self._task: Any = None
        self._hashing: Any = None

    def verifying(self, done: int, total: int) -> None:
        """A bar of its own, in MiB, as long as it takes."""
        if self._hashing is None and done < total:
            self._hashing = self.bar.add_task("verifying data, MiB", total=total // MIB, note="")
        if self._hashing is not None:
            self.bar.update(self._hashing, completed=done // MIB)
            if done >= total:
                self.bar.remove_task(self._hashing)
                self._hashing = None

    def said(self, text: str) -> None:
        """Above the bar."""
        self._print(text, "dim")

    def run_started(self, name: str, number: int, total: int, steps: int | None) -> None:
        """Begin anew for this run."""
        self._begin(number, total, steps)
        self._task = self.bar.add_task(f"{number}/{total} {name}", total=self._steps, note="")

    def advanced(self, step: int, loss: float | None) -> None:
        """Move the bar. A run that is compared shows that and not its loss, which says less."""
        if self._task is None:  # a run that is not told of, such as a replay
            return
        self.bar.update(
            self._task,
            completed=step + 1,
            note=self._state or ("" if loss is None else f"loss {loss:.5g}"),
        )

    def diverged(self, divergence: Divergence) -> None:
        """At once, above the bar."""
        self._print(f"diverged: {sentence(divergence)}", "bold red")

    def run_ended(self, run: Run) -> None:
        """Keep a line of what came of it."""
        said = self._end(run)
        self.bar.remove_task(self._task)
        self._task = None
        self._print(
            f"{'ok ' if run.good else 'bad'} {run.plan.name}: {said}", "dim" if run.good else "red"
        )
        if remaining(run, *self._numbered):
            self.said(remaining(run, *self._numbered))

    def _print(self, text: str, style: str) -> None:
        from rich.text import Text

        self.bar.console.print(Text(text, style=style))


def sentence(divergence: Divergence) -> str:
    """Where two runs diverge, in one line that is safe to print."""
    place = moment(divergence, divergence.step + 1)
    process = "" if divergence.process == "main" else f" of {for_terminal(divergence.process, 60)}"
    name = "" if divergence.name == divergence.kind else f" {for_terminal(divergence.name, 200)}"
    return f"{place}, {divergence.kind}{name}{process}"


def remaining(run: Run, number: int, total: int) -> str:
    """After the first whole run, about how long the others will take; empty where that is not
    known."""
    first, others = number == 1 or run.plan.name == "deterministic-1", total - number
    if not first or not others or not run.good or run.plan.arm.name == "reseeded":
        return ""
    return (
        f"about {duration(max(round(run.ended.seconds * others), 1))} for the other {others} runs"
    )


def ended(run: Run) -> str:
    """How a run ended, in one line that is safe to print."""
    text = f"{run.outcome} after {run.steps} steps, {duration(run.ended.seconds)}"
    return text if run.good or not run.problem else f"{text}: {for_terminal(run.problem, 1000)}"


@contextmanager
def watching(stream: TextIO, *, terminal: bool, github: bool, quiet: bool) -> Iterator[Watch]:
    """The watch that suits `stream`."""
    if quiet:
        yield Watch()
    elif not terminal:
        lines = Lines(stream, github)
        try:
            yield lines
        finally:
            lines.close()
    else:
        from rich.console import Console

        display = Display(Console(file=stream, highlight=False, markup=False))
        with display.bar:
            yield display
