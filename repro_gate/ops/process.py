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
from typing import Annotated

import msgspec
import psutil
from msgspec import Meta

from repro_gate.errors import Inconclusive
from repro_gate.ops.catalog import Arm, Key, Name, Outcome, Row, Text
from repro_gate.runs.process import Ended, supervise
from repro_gate.sandbox.identity import Sandbox, chown_to_training, open_written

WORKER = Path(__file__).resolve().parent / "worker"
MAX_LINE, MAX_ANSWER = 1 << 20, 256 << 20  # bytes
START_SECONDS = 300.0  # until the first row: importing torch from a cold network disk takes minutes
ROW_SECONDS = 120.0  # of one row; torch.compile takes most of a minute
MEMORY_SHARE, LEAST_MEMORY = 0.6, 1 << 30  # of what is free; bytes, of all its processes


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One line of an answer: `worker/main.py` says which there are."""

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


def ask(worker: Worker, request: Mapping[str, object], take: Callable[[Line], None]) -> Row | None:
    """Answer one request, each line taken as it comes. Return None if the worker came to its end,
    else the row in which it ended.

    Raises Inconclusive if it ended without having begun a row, or wrote what is no answer.
    """
    # anew each time: the last one is the training's user's
    asked = Path(tempfile.mkdtemp(prefix="asked-", dir=worker.folder))
    path, question = asked / "answer.jsonl", asked / "request.json"
    path.touch()
    question.write_text(json.dumps({**request, "out": str(path)}), encoding="utf-8")
    chown_to_training(worker.sandbox, asked)
    answer = _Answer(worker, path, take)
    try:
        ended = supervise(
            [worker.python, str(WORKER), str(question)],
            cwd=worker.folder / "empty",
            env=worker.environment,
            timeout=float("inf"),
            tick=answer.look,
            sandbox=worker.sandbox,
        )
        answer.read()
    except OSError as error:
        raise _no_answer(f"{worker.python}: {error.strerror or error}") from None
    finally:
        path.unlink(missing_ok=True)
    if answer.done:
        return None
    if answer.row is None:
        raise _no_answer(f"{worker.python}: {_how(ended, START_SECONDS)}")
    case, dtype, direction = answer.row
    outcome: Outcome = "timeout" if ended.stopped == "timeout" else "crash"
    arm = Arm(outcome=outcome, message=_how(ended, ROW_SECONDS))
    return Row(case=case, dtype=dtype, direction=direction, off=arm, on=arm)


def _how(ended: Ended, seconds: float) -> str:
    """Return how a process ended before it was done."""
    if ended.stopped == "timeout":
        return f"no answer in {seconds:g} s"
    if ended.stopped:
        return ended.stopped
    how = f"signal {ended.signal}" if ended.signal else f"status {ended.exit_code}"
    last = next((f": {line.strip()[:300]}" for line in reversed(ended.tail) if line.strip()), "")
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

    def __init__(self, worker: Worker, path: Path, take: Callable[[Line], None]) -> None:
        self.worker, self.path, self.take = worker, path, take
        self.memory = max(int(psutil.virtual_memory().available * MEMORY_SHARE), LEAST_MEMORY)
        self.done = False
        self.row: Key | None = None  # begun, and not ended
        self.offset, self.rest = 0, b""
        self.since = time.monotonic()

    def look(self, alive: list[psutil.Process]) -> str | None:
        """Take in what is new. A text ends the process."""
        if self.read():
            self.since = time.monotonic()
        limit = START_SECONDS if self.row is None else ROW_SECONDS
        if time.monotonic() - self.since > limit:
            return "timeout"
        resident = 0
        for process in alive:
            with contextlib.suppress(psutil.Error):
                resident += process.memory_info().rss
        more = resident > self.memory
        return f"it took more than {self.memory >> 20:,} MiB of memory" if more else None

    def read(self) -> bool:
        """Return whether there was anything new. Raises Inconclusive for what is no answer."""
        with os.fdopen(open_written(self.path, self.worker.sandbox), "rb") as file:
            file.seek(self.offset)
            new = file.read(MAX_ANSWER)
        self.offset += len(new)
        *lines, self.rest = (self.rest + new).split(b"\n")
        if self.offset >= MAX_ANSWER or max(map(len, (*lines, self.rest))) > MAX_LINE:
            raise _no_answer("it is too long")
        for text in lines:
            try:
                line = _LINE.decode(text)
            except (ValueError, RecursionError, msgspec.MsgspecError) as error:
                raise _no_answer(str(error)[:200]) from None
            self.done = self.done or line.done
            self.row = line.began or (None if line.row else self.row)
            self.take(line)
        return bool(new)
