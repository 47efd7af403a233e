"""Watches one run from outside: reads its traces as they grow, and finds processes that have loaded
torch but write no trace.

The files belong to the training and may change meanwhile, so they are opened with the rights of the
training's user.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import psutil

from repro_gate.sandbox.identity import Sandbox, as_training_user, open_written
from repro_gate.trace import format as fmt
from repro_gate.trace.model import Budget, Trace, TraceError
from repro_gate.trace.reader import TraceCutOff, TraceFollower, read_folder, trace_files

MAPS_BYTES = 4 << 20  # of /proc/PID/maps; a process with torch has some 200 KiB
STOP_GRACE = 30.0  # seconds in which a training must end after its last step

Tick = Callable[[Sequence[Trace]], str | None]


@dataclass(frozen=True)
class Untraced:
    """A process that has loaded torch but writes no trace; `pids` are its own and its ancestors'
    ids, nearest first."""

    command: str
    pids: tuple[int, ...]


@dataclass(kw_only=True)
class Watcher:
    """Watches one run: reads its traces as they grow, and finds processes that have loaded torch
    but write none."""

    folder: Path
    nonce: str
    tick: Tick
    sandbox: Sandbox
    timeout: float
    followers: dict[str, TraceFollower] = field(default_factory=dict)
    suspects: Counter[psutil.Process] = field(default_factory=Counter)
    untraced: Untraced | None = None  # the first that was found
    trace_problem: str = ""
    ended_at: float | None = None

    def __post_init__(self) -> None:
        self.opener = partial(open_written, sandbox=self.sandbox)
        seconds = min(self.timeout, fmt.MAX_OF_RUN[fmt.SECONDS])
        self.budget = Budget({**fmt.MAX_OF_RUN, fmt.SECONDS: seconds})

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
        if {trace.stopped for trace in traces if trace.trained} == {True}:
            now = time.monotonic()
            self.ended_at = self.ended_at or now
            if now - self.ended_at > STOP_GRACE:
                return "steps"
        return self.tick(traces)

    def read_to_end(self) -> tuple[list[Trace], str]:
        """Return the traces of a run that has ended, and their problem, if any."""
        self.look([])  # what came after the last tick
        problem = failure_in(self.folder, self.sandbox) or self.trace_problem
        traces = []
        try:
            traces = read_folder(self.folder, self.nonce, self.followers, self.opener)
            removed = self.followers.keys() - {trace.path.name for trace in traces}
            if removed:
                problem = problem or f"{min(removed)}: was removed during the run"
        except TraceError as error:
            problem = problem or str(error)
            if isinstance(error, TraceCutOff):
                traces = [follower.trace for follower in self.followers.values()]
        return traces, problem

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


def failure_in(folder: Path, sandbox: Sandbox) -> str:
    """Return the problem that a probe reported because it could not write its trace; empty if there
    is none."""
    with contextlib.suppress(OSError, ValueError, AttributeError, RecursionError):
        with os.fdopen(open_written(folder / fmt.FAILURE_FILE, sandbox), "rb") as file:
            text = file.read(fmt.FAILURE_BYTES).strip()
        if text:
            error = json.loads(text).get("error", "")
            return f"cannot be written: {error}"[:1000]
    return ""
