"""Watches one run from outside: reads its traces as they grow, and finds processes that have loaded
torch but write no trace.

The files belong to the training and may change meanwhile, so they are opened with the rights of the
training's user.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil

from repro_gate.machine import descendants
from repro_gate.sandbox.identity import Sandbox, as_training_user, open_written
from repro_gate.trace import format as fmt
from repro_gate.trace.model import Budget, Trace, TraceError
from repro_gate.trace.reader import TraceFollower, trace_files

MAPS_BYTES = 4 << 20  # of /proc/PID/maps; a process with torch has some 200 KiB
_OPEN = 10_000  # descriptors that are looked at
STOP_GRACE = 30.0  # seconds in which a training must end after its last step

Tick = Callable[[Sequence[Trace]], str | None]


@dataclass(frozen=True)
class Untraced:
    """A process that has loaded torch but writes no trace; `pids` are its own and its ancestors'
    ids, nearest first."""

    command: str
    pids: tuple[int, ...]


class Watcher:
    """Watches one run: reads its traces as they grow, and finds processes that have loaded torch
    but write none."""

    def __init__(
        self,
        folder: Path,
        nonce: str,
        tick: Tick,
        sandbox: Sandbox,
        timeout: float,
        grace: float = 0.0,
    ) -> None:
        self.folder = folder
        self.nonce = nonce
        self.tick = tick
        self.sandbox = sandbox
        self.opener = partial(open_written, sandbox=sandbox)
        self.followers: dict[str, TraceFollower] = {}
        seconds = min(timeout, fmt.MAX_OF_RUN[fmt.SECONDS])
        self.budget = Budget({**fmt.MAX_OF_RUN, fmt.SECONDS: seconds})
        self.suspects: Counter[psutil.Process] = Counter()
        self.untraced: Untraced | None = None  # the first that was found
        self.trace_problem: str | None = None
        self.ended_at: float | None = None
        # seconds between SIGTERM, where `tick` ends the run, and SIGKILL
        self.grace = grace
        self.asked = ""  # why SIGTERM was sent; empty: it was not
        # files open for writing when `tick` ended it
        self.writing: tuple[str, ...] = ()

    def look(self, alive: list[psutil.Process]) -> str | None:
        """Read what is new. Return a reason to end the run if its trace is broken, or if it does
        not end after its last step."""
        try:
            for path in trace_files(self.folder):
                follower = self.followers.get(path.name) or TraceFollower(
                    path, self.nonce, self.opener, self.budget
                )
                self.followers[path.name] = follower
                if follower.trace.end is None:  # A complete trace is not opened again.
                    follower.poll()
        except TraceError as error:
            # later ones follow from the first
            self.trace_problem = self.trace_problem or str(error)
            return "trace"
        if failure_in(self.folder, self.sandbox):
            return "trace"
        traces = [follower.trace for follower in self.followers.values()]
        traced = {trace.pid for trace in traces}
        for process in () if self.untraced else alive:
            if process.pid in traced:
                continue
            # root without CAP_SYS_PTRACE sees less than the training's own user
            with (
                contextlib.suppress(psutil.Error, OSError),
                as_training_user(self.sandbox),
            ):
                if _has_torch(process.pid):
                    self._suspect(process)
        stopped = {trace.stopped for trace in traces if trace.trained}
        if stopped == {True}:
            now = time.monotonic()
            self.ended_at = self.ended_at or now
            if now - self.ended_at > STOP_GRACE:
                return "steps"
        reason = self.tick(traces)
        if reason and self.grace:
            reason = self._ask(reason, traces)
        if reason:
            self.writing = self.writing or _open_for_writing(self.sandbox)
        return reason

    def _ask(self, reason: str, traces: Sequence[Trace]) -> str | None:
        """Send SIGTERM to the processes of the run that train, once. Return the reason when they
        have had their time. A trace may name any process: only one below the gate, and of the
        training's user where it has one of its own, gets the signal."""
        trained = {trace.pid for trace in traces if trace.trained}
        for process in () if self.asked else descendants(os.getpid()):
            with contextlib.suppress(psutil.Error):
                is_theirs = process.uids().real == (self.sandbox.uid or os.getuid())
                if process.pid in trained and is_theirs:
                    process.send_signal(signal.SIGTERM)
                    self.asked = reason
                    self.ended_at = time.monotonic()
        late = self.ended_at and time.monotonic() - self.ended_at > self.grace
        return reason if self.asked and late else None

    def _suspect(self, process: psutil.Process) -> None:
        self.suspects[process] += 1
        # Between fork and exec a child briefly has its parent's libraries.
        if self.suspects[process] > 3:
            command = " ".join(process.cmdline())
            pids = process.pid, *(above.pid for above in process.parents())
            self.untraced = self.untraced or Untraced(command[:500], pids)


def _has_torch(pid: int) -> bool:
    """Return whether a process has mapped a library of torch. It may have millions of mappings, so
    only MAPS_BYTES are read."""
    with open(f"/proc/{pid}/maps", "rb") as file:
        return b"libtorch" in file.read(MAPS_BYTES)


def _open_for_writing(sandbox: Sandbox) -> tuple[str, ...]:
    """Return the paths of files that processes below the gate have open for writing (Linux), but
    not for appending, as logs are."""
    found: list[str] = []
    left = _OPEN
    for process in descendants(os.getpid()):
        place = f"/proc/{process.pid}"
        with contextlib.suppress(OSError), as_training_user(sandbox):
            for number in os.listdir(f"{place}/fd")[:left]:
                left -= 1
                with contextlib.suppress(OSError, ValueError):
                    facts = Path(place, "fdinfo", number).read_text()
                    flags = int(facts.partition("flags:")[2].split()[0], 8)
                    if flags & os.O_ACCMODE and not flags & os.O_APPEND:
                        found.append(os.readlink(f"{place}/fd/{number}"))
    return tuple(found)


def failure_in(folder: Path, sandbox: Sandbox) -> str | None:
    """Return the problem that a probe reported because it could not write its trace."""
    with contextlib.suppress(OSError, ValueError, AttributeError, RecursionError):
        with os.fdopen(open_written(folder / fmt.FAILURE_FILE, sandbox), "rb") as file:
            text = file.read(fmt.FAILURE_BYTES).strip()
        if text:
            error = json.loads(text).get("error", "")
            return f"cannot be written: {error}"[:1000]
    return None
