"""The display of progress: plain lines, grouped on GitHub; on a terminal the last of them moves.

Everything that comes from the training (names, its output) is escaped for the place it is printed
in.
"""

from __future__ import annotations

import secrets
import time
from contextlib import suppress
from typing import TYPE_CHECKING, TextIO

from repro_gate.compare.model import Divergence
from repro_gate.escape import (
    clip,
    counted,
    for_encoding,
    for_terminal,
    for_workflow_log,
)
from repro_gate.report.numbers import duration
from repro_gate.report.wording import moment, place_of
from repro_gate.runs.progress import Watch

if TYPE_CHECKING:
    from repro_gate.runs.launch import RunResult


MIB = 1024 * 1024
_WIDTH = 79  # columns of the line that moves
# back to the beginning of a terminal's line, and what it held is gone
_CLEAR = "\r\x1b[K"


class Lines(Watch):
    """Lines: one when a run begins, one when it ends, one for a divergence; a line of progress
    every half minute, on a terminal one that moves.

    On GitHub a run is a group, and from its first line to its last the runner obeys no command but
    the one that ends this, a fresh random token for each group: nothing that a training prints or
    is called can be a workflow command.
    """

    def __init__(self, stream: TextIO, github: bool, moving: bool = False) -> None:
        self._stream = stream
        self._github = github
        self._moving = moving
        self._every = 0.2 if moving else 30.0  # seconds between two lines of progress
        self._said = self._began = time.monotonic()
        self._name = ""
        # ends the stop of workflow commands; empty where none is going
        self._token = ""
        self._numbered = (0, 0)  # which run of how many
        # how it compares with the first of its pair; empty where it is not compared
        self._state = ""
        self._steps: int | None = None  # of this run
        # of a run to its end, once one has shown how many they are
        self._known: int | None = None

    def verifying(self, done: int, total: int) -> None:
        """Print a line now and then: most data is read before the first of them."""
        if time.monotonic() - self._said > self._every:
            self._said = time.monotonic()
            self._progress(f"verifying data: {done // MIB:,} of {total // MIB:,} MiB")

    def said(self, text: str) -> None:
        """Print the line."""
        self._foreign(text)

    def run_started(
        self, name: str, number: int, total: int, steps: int | None
    ) -> None:
        """Open a group, and let no line in it be a command."""
        self._numbered = (number, total)
        self._state = ""
        self._steps = steps or self._known
        self._name = name
        self._said = self._began = time.monotonic()
        group = "::group::" if self._github else ""
        bound = f", {counted(steps, 'step')}" if steps else ""
        self._line(f"{group}run {number} of {total}: {name}{bound}")
        if self._github:
            self._token = secrets.token_hex(16)
            self._line(f"::stop-commands::{self._token}")

    def advanced(self, step: int, loss: float | None) -> None:
        """Print a line now and then: step, loss, time left, and how the run compares."""
        if self._name and time.monotonic() - self._said > self._every:
            self._said = time.monotonic()
            text = f"  {self._name}: step {step}"
            text += f" of {self._steps}" if self._steps else ""
            text += f", loss {loss:.6g}" if loss is not None else ""
            if self._steps and (left := self._steps - step - 1) > 0:
                each = (self._said - self._began) / (step + 1)
                text += f", about {duration(max(round(each * left), 1))} left"
            self._progress(text + (f", {self._state}" if self._state else ""))

    def compared(self, divergence: Divergence | None) -> None:
        """Keep how the run compares for the next line and the one at its end."""
        self._state = "identical so far"
        if divergence is not None:
            self._state = f"diverged {moment(divergence, divergence.step + 1)}"

    def diverged(self, divergence: Divergence) -> None:
        """Print it at once."""
        self._foreign(f"  diverged: {sentence(divergence)}")

    def run_ended(self, run: RunResult) -> None:
        """Close the group; the log's end where the run went wrong."""
        self._name = ""
        if run.outcome == "finished" and run.request.arm.steps is None:
            self._known = run.steps
        self._foreign(f"  {ended(run)}" + (f"; {self._state}" if self._state else ""))
        for line in run.ended.tail[-60:] if run.log_matters else ():
            self._foreign(f"  | {for_terminal(line, 2000)}")
        self.close()
        if rest := remaining(run, *self._numbered):
            self._line(rest)

    def close(self) -> None:
        """Close the group where one is open; the runner obeys commands again."""
        if self._moving:
            self._line("", end="")
        if self._token:
            self._line(f"::{self._token}::\n::endgroup::")
            self._token = ""

    def _foreign(self, text: str) -> None:
        """Return a line that holds words of the training's: the runner obeys the older
        `##[command]` anywhere in a line."""
        self._line(for_workflow_log(text) if self._github else text)

    def _line(self, text: str, end: str = "\n") -> None:
        # nobody reads any more: the gate run goes on, and its report is still written
        with suppress(OSError):
            encoding = self._stream.encoding or "utf-8"
            start = _CLEAR if self._moving else ""
            print(
                start + for_encoding(text, encoding),
                end=end,
                file=self._stream,
                flush=True,
            )

    def _progress(self, text: str) -> None:
        if self._moving:
            self._line(clip(text, _WIDTH), end="")
        else:
            self._line(text)


def sentence(divergence: Divergence) -> str:
    """Return where two runs diverge, in one line that is safe to print."""
    place = for_terminal(place_of(divergence, divergence.step + 1), 300)
    process = divergence.process
    return place if process == "main" else f"{place} of {for_terminal(process, 60)}"


def remaining(run: RunResult, number: int, total: int) -> str:
    """Return, after the first whole run, about how long the others will take; empty where that is
    not known."""
    is_first = number == 1 or run.request.name == "deterministic-1"
    others = total - number
    if not (is_first and others and run.good) or run.request.arm.name == "reseeded":
        return ""
    left = duration(max(round(run.ended.seconds * others), 1))
    return f"about {left} for the other {counted(others, 'run')}"


def ended(run: RunResult) -> str:
    """Return how a run ended, in one line that is safe to print."""
    text = f"{run.outcome} after {counted(run.steps, 'step')}, {duration(run.ended.seconds)}"
    is_bad = run.problem and not run.good
    return f"{text}: {for_terminal(run.problem, 1000)}" if is_bad else text
