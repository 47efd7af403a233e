"""One process of the worker, started in the training's interpreter as the training's user: its
answer as it comes, and how it ended. An operator that ends the process, hangs or takes the memory
is known by the row that it had begun.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated

import msgspec
import psutil
from msgspec import Meta

from repro_gate.errors import Inconclusive
from repro_gate.ops.catalog import Arm, Key, Name, Outcome, Row, Text
from repro_gate.runs import interpreter
from repro_gate.runs.interpreter import Interpreter, NoAnswer

WORKER = Path(__file__).resolve().parent / "worker"
# until the first row: importing torch from a cold network disk takes minutes
START_SECONDS = 300.0
ROW_SECONDS = 120.0  # of one row; torch.compile takes most of a minute
# of what is free; bytes, of all its processes
MEMORY_SHARE = 0.6
LEAST_MEMORY = 1 << 30


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One line of an answer: `worker/measure.py` says which there are."""

    about: Annotated[dict[Name, Name], Meta(max_length=50)] = {}
    listed: Key | None = None
    note: Text = ""
    began: Key | None = None
    row: Row | None = None
    done: bool = False


_LINE = msgspec.json.Decoder(Line)


def ask(
    worker: Interpreter, request: Mapping[str, object], take: Callable[[Line], None]
) -> None:
    """Answer one request, each line taken as it comes. If the worker ends in a row, that is a row
    as well.

    Raises Inconclusive if it ended without having begun a row, or wrote what is no answer.
    """
    answer = _Answer(take)
    try:
        ended = interpreter.ask(
            worker, [str(WORKER)], request, _LINE, answer.take, tick=answer.look
        )
        how = f"signal {ended.signal}" if ended.signal else f"status {ended.exit_code}"
        last = ended.last_line
        why = ended.stopped or (
            f"it ended the process with {how}{': ' * bool(last)}{last}"
        )
    except (NoAnswer, OSError) as error:
        why = getattr(error, "strerror", None) or str(error)
        answer.row = None
    if answer.done:
        return
    if answer.row is None:
        raise Inconclusive(
            f"the measuring process's answer cannot be used: {worker.python}: {why}",
            remedy="activate the environment that you train in, or name its `python`, which needs "
            "torch, with `--python`; leave out what writes into the worker's files",
            reason_id="ops/no-answer",
        )
    case, dtype, direction = answer.row
    arm = Arm(outcome=answer.outcome, message=why)
    take(Line(row=Row(case=case, dtype=dtype, direction=direction, off=arm, on=arm)))


class _Answer:
    """The answer so far."""

    def __init__(self, on_line: Callable[[Line], None]) -> None:
        self.on_line = on_line
        available = int(psutil.virtual_memory().available * MEMORY_SHARE)
        self.memory = max(available, LEAST_MEMORY)
        self.done = False
        self.row: Key | None = None  # begun, and not ended
        self.outcome: Outcome = "crash"  # of that row, if the process ends in it
        self.since = time.monotonic()

    def take(self, line: Line) -> None:
        """Take in a new line."""
        self.since = time.monotonic()
        self.done = self.done or line.done
        self.row = line.began or (None if line.row else self.row)
        self.on_line(line)

    def look(self, alive: list[psutil.Process]) -> str | None:
        """Return why the process is to be ended, if it is: it takes too long, or too much
        memory."""
        limit = START_SECONDS if self.row is None else ROW_SECONDS
        if time.monotonic() - self.since > limit:
            self.outcome = "timeout"
            return f"no answer in {limit:g} s"
        resident = 0
        for process in alive:
            with contextlib.suppress(psutil.Error):
                resident += process.memory_info().rss
        if resident <= self.memory:
            return None
        return f"it took more than {self.memory >> 20:,} MiB of memory"
