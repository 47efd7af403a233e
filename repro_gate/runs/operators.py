"""One process of the worker in `repro_gate/ops`, started in the training's interpreter as the
training's user: its answer as it comes, and how it ended. An operator that ends the process, hangs
or takes the memory is known by the row that it had begun.

What the process writes is untrusted: it is read line by line within limits, by one type.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import msgspec
import psutil
from msgspec import Meta

from repro_gate.errors import Inconclusive
from repro_gate.ops.catalog import Arm, Direction, Documented, Name, Outcome, Text
from repro_gate.runs.process import Ended, supervise
from repro_gate.sandbox.as_user import open_written
from repro_gate.sandbox.identity import Sandbox
from repro_gate.sandbox.ownership import chown_to_training

WORKER = Path(__file__).resolve().parent.parent / "ops"
MAX_LINE, MAX_ANSWER = 1 << 20, 256 << 20  # bytes
START_SECONDS = 300.0  # until the first row: importing torch from a cold network disk takes minutes
_REMEDY = (
    "activate the environment that you train in, so that its `python` is first on PATH and has "
    "torch, or name it with `--python`"
)

Key = tuple[str, str, Direction]  # case, dtype, direction
_Times = Annotated[tuple[float, ...], Meta(max_length=1_000)]
_Digest = Annotated[str, Meta(max_length=100)]


class Measured(Arm, frozen=True, kw_only=True):
    """An arm as the worker writes it: the catalog's, the digest of each size's first result, and
    those of the last size's results."""

    digests: Annotated[tuple[_Digest, ...], Meta(max_length=20)] = ()
    results: Annotated[tuple[_Digest, ...], Meta(max_length=100)] = ()


class Began(msgspec.Struct, frozen=True):
    """The row that is executed next."""

    case: Name
    dtype: Name
    direction: Direction


class Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of an answer: what torch it is, the beginning of a row, a case (`rows`), a row
    (`off` and `on`), or the end."""

    about: dict[Name, Any] | None = None
    began: Began | None = None
    done: bool = False
    case: Name = ""
    operator: Text = ""
    source: Name = ""
    documented: Documented = ""
    documented_on: dict[Name, dict[Name, Documented]] = {}
    rows: Annotated[tuple[tuple[Name, Direction], ...], Meta(max_length=200)] | None = None
    random: bool = False
    dtype: Name = ""
    direction: Direction = "forward"
    kernel: Name = ""
    form: Name = ""
    dispatched: Annotated[tuple[Name, ...], Meta(max_length=200)] = ()
    size: Name = ""
    inputs: Name = ""
    off: Measured | None = None
    on: Measured | None = None
    times_off_ms: _Times = ()
    times_on_ms: _Times = ()

    @property
    def key(self) -> Key:
        """Which row it is."""
        return self.case, self.dtype, self.direction


LINE: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)


@dataclass(frozen=True, kw_only=True)
class Worker:
    """How the worker is started. `environment` and `folder` as `interpreter.unprobed` makes them;
    `memory` in bytes of resident memory of all its processes, `row_seconds` of one row."""

    python: str
    environment: Mapping[str, str]
    folder: Path
    sandbox: Sandbox
    memory: int
    row_seconds: float


@dataclass(frozen=True)
class Death:
    """How a process ended before it was done, and the row that it had begun."""

    row: Key
    outcome: Outcome
    message: str


def ask(
    worker: Worker, request: Mapping[str, object], take: Callable[[Line], None]
) -> Death | None:
    """One request answered, each line told as it comes; None where the worker came to its end, else
    how a row ended it.

    Raises Inconclusive where it ended without having begun a row, or wrote what is no answer.
    """
    # anew each time: the last one is the training's user's
    asked = Path(tempfile.mkdtemp(prefix="asked-", dir=worker.folder))
    answer, question = asked / "answer.jsonl", asked / "request.json"
    answer.touch()
    question.write_text(json.dumps({**request, "out": str(answer)}), encoding="utf-8")
    chown_to_training(worker.sandbox, asked)
    following = _Following(worker=worker, path=answer, take=take)
    try:
        ended = supervise(
            [worker.python, str(WORKER), str(question)],
            cwd=worker.folder / "empty",
            env=worker.environment,
            timeout=float("inf"),
            tick=following.look,
            sandbox=worker.sandbox,
        )
        following.read()
    except OSError as error:
        raise Inconclusive(
            f"the operators cannot be measured: {error.strerror or error}", remedy=_REMEDY
        ) from None
    finally:
        answer.unlink(missing_ok=True)
    if following.done:
        return None
    if following.row is None:
        raise _not_started(worker.python, ended)
    return Death(following.row, *_death(worker, ended))


def _death(worker: Worker, ended: Ended) -> tuple[Outcome, str]:
    said = next((f": {line.strip()[:200]}" for line in reversed(ended.tail) if line.strip()), "")
    if ended.stopped == "timeout":
        return "timeout", f"it was still running after {worker.row_seconds:g} s"
    if ended.stopped == "memory":
        return "crash", f"it took more than {worker.memory >> 20:,} MiB of memory"
    how = f"signal {ended.signal}" if ended.signal else f"status {ended.exit_code}"
    return "crash", f"it ended the process with {how}{said}"


def _not_started(python: str, ended: Ended) -> Inconclusive:
    lines = [line.strip()[:300] for line in ended.tail if line.strip()]
    if any("No module named 'torch'" in line for line in lines):
        return Inconclusive(f"{python} has no torch", remedy=_REMEDY, reason_id="ops/no-torch")
    said = lines[-1] if lines else f"it ended with status {ended.exit_code}"
    said = f"no answer in {START_SECONDS:g} s" if ended.stopped == "timeout" else said
    return Inconclusive(
        f"{python} cannot measure operators: {said}", remedy=_REMEDY, reason_id="ops/no-answer"
    )


@dataclass(kw_only=True)
class _Following:
    """The answer so far."""

    worker: Worker
    path: Path
    take: Callable[[Line], None]
    done: bool = False
    row: Key | None = None  # begun, and not ended
    offset: int = 0
    rest: bytes = b""
    since: float = field(default_factory=time.monotonic)

    def look(self, alive: list[psutil.Process]) -> str | None:
        """Take in what is new. A text ends the process."""
        if self.read():
            self.since = time.monotonic()
        if time.monotonic() - self.since > (
            START_SECONDS if self.row is None else self.worker.row_seconds
        ):
            return "timeout"
        return "memory" if sum(map(_resident, alive)) > self.worker.memory else None

    def read(self) -> bool:
        """Whether there was anything new. Raises Inconclusive for what is no answer."""
        handle = open_written(self.path, self.worker.sandbox)
        with os.fdopen(handle, "rb") as file:
            file.seek(self.offset)
            new = file.read(MAX_ANSWER)
        self.offset += len(new)
        *lines, self.rest = (self.rest + new).split(b"\n")
        if self.offset >= MAX_ANSWER or max(map(len, (*lines, self.rest))) > MAX_LINE:
            raise _no_answer("it is too long")
        for text in lines:
            try:
                line = LINE.decode(text)
            except (ValueError, RecursionError, msgspec.MsgspecError) as error:
                raise _no_answer(str(error)[:200]) from None
            self.done = self.done or line.done
            self.row = (
                (line.began.case, line.began.dtype, line.began.direction)
                if line.began
                else None
                if line.off
                else self.row
            )
            self.take(line)
        return bool(new)


def _resident(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0


def _no_answer(why: str) -> Inconclusive:
    remedy = (
        "leave out what writes into the worker's files (a function of `--op`?), and measure again"
    )
    return Inconclusive(
        f"what the measuring process wrote cannot be used: {why}",
        remedy=remedy,
        reason_id="ops/no-answer",
    )
