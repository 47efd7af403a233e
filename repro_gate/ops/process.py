"""One process of the worker, started in the training's interpreter as the training's user: its
answer as it comes, and how it ended. An operator that ends the process, hangs or takes the memory
is known by the row that it had begun.

What the process writes is untrusted: it is read line by line within limits, by one type.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, BinaryIO

import msgspec
import psutil
from msgspec import Meta

from repro_gate.errors import Inconclusive
from repro_gate.ops.catalog import Arm, Key, Name, Outcome, Row, Text
from repro_gate.runs.process import Ended, supervise
from repro_gate.sandbox.identity import Sandbox, chown_to_training

WORKER = Path(__file__).resolve().parent / "worker"
MAX_LINE, MAX_ANSWER = 1 << 20, 256 << 20  # bytes
START_SECONDS = (
    300.0  # until the first row: importing torch from a cold network disk takes minutes
)
ROW_SECONDS = 120.0  # of one row; torch.compile takes most of a minute
MEMORY_SHARE, LEAST_MEMORY = (
    0.6,
    1 << 30,
)  # of what is free; bytes, of all its processes


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One line of an answer: `worker/measure.py` says which there are."""

    about: Annotated[dict[Name, Name], Meta(max_length=50)] = {}
    listed: Key | None = None
    note: Text = ""
    began: Key | None = None
    row: Row | None = None
    done: bool = False


_LINE = msgspec.json.Decoder(Line)


@dataclass(frozen=True)
class Worker:
    """How the worker is started; `environment` and `folder` as `interpreter.unprobed` makes
    them."""

    python: str
    environment: Mapping[str, str]
    folder: Path
    sandbox: Sandbox


def ask(
    worker: Worker, request: Mapping[str, object], take: Callable[[Line], None]
) -> None:
    """Answer one request, each line taken as it comes. If the worker ends in a row, that is a row
    as well.

    Raises Inconclusive if it ended without having begun a row, or wrote what is no answer.
    """
    # anew each time: the last one is the training's user's
    folder = Path(tempfile.mkdtemp(prefix="asked-", dir=worker.folder))
    path, question = folder / "answer.jsonl", folder / "request.json"
    question.write_text(json.dumps({**request, "out": str(path)}), encoding="utf-8")
    with path.open(
        "x+b"
    ) as file:  # the one that is read, whatever its new owner does to its name
        chown_to_training(worker.sandbox, folder)
        answer = _Answer(file, take)
        try:
            ended = supervise(
                [worker.python, str(WORKER), str(question)],
                cwd=worker.folder / "empty",
                env=worker.environment,
                timeout=float("inf"),
                tick=answer.look,
                sandbox=worker.sandbox,
            )
        except OSError as error:
            raise _no_answer(f"{worker.python}: {error.strerror or error}") from None
        answer.read()
    if answer.done:
        return
    if answer.row is None:
        raise _no_answer(f"{worker.python}: {_how(ended)}")
    case, dtype, direction = answer.row
    arm = Arm(outcome=answer.outcome, message=_how(ended))
    take(Line(row=Row(case=case, dtype=dtype, direction=direction, off=arm, on=arm)))


def _how(ended: Ended) -> str:
    """Return how a process ended before it was done."""
    if ended.stopped:
        return ended.stopped
    how = f"signal {ended.signal}" if ended.signal else f"status {ended.exit_code}"
    last = next(
        (f": {line.strip()[:300]}" for line in reversed(ended.tail) if line.strip()), ""
    )
    return f"it ended the process with {how}{last}"


def _no_answer(why: str) -> Inconclusive:
    return Inconclusive(
        f"the measuring process's answer cannot be used: {why}",
        remedy="activate the environment that you train in, or name its `python`, which needs "
        "torch, with `--python`; leave out what writes into the worker's files",
        reason_id="ops/no-answer",
    )


class _Answer:
    """The answer so far."""

    def __init__(self, file: BinaryIO, take: Callable[[Line], None]) -> None:
        self.file, self.take = file, take
        self.memory = max(
            int(psutil.virtual_memory().available * MEMORY_SHARE), LEAST_MEMORY
        )
        self.done = False
        self.row: Key | None = None  # begun, and not ended
        self.outcome: Outcome = "crash"  # of that row, if the process ends in it
        self.since = time.monotonic()

    def look(self, alive: list[psutil.Process]) -> str | None:
        """Take in what is new. A text ends the process."""
        self.read()
        limit = START_SECONDS if self.row is None else ROW_SECONDS
        if time.monotonic() - self.since > limit:
            self.outcome = "timeout"
            return f"no answer in {limit:g} s"
        resident = 0
        for process in alive:
            with contextlib.suppress(psutil.Error):
                resident += process.memory_info().rss
        more = resident > self.memory
        return (
            f"it took more than {self.memory >> 20:,} MiB of memory" if more else None
        )

    def read(self) -> None:
        """Take in each new line. Raises Inconclusive for what is no answer."""
        while text := self.file.readline(MAX_LINE):
            if len(text) == MAX_LINE or self.file.tell() > MAX_ANSWER:
                raise _no_answer("it is too long")
            if not text.endswith(b"\n"):
                self.file.seek(
                    -len(text), os.SEEK_CUR
                )  # the rest of this line is still to come
                return
            try:
                line = _LINE.decode(text)
            except (ValueError, RecursionError, msgspec.MsgspecError) as error:
                raise _no_answer(str(error)[:200]) from None
            self.since = time.monotonic()
            self.done = self.done or line.done
            self.row = line.began or (None if line.row else self.row)
            self.take(line)
