"""A leg of a training that is stopped at a checkpoint and resumed: how it begins and is ended, and
what is seen of its checkpoints meanwhile. No other run has any of this."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from repro_gate.files import closing, is_below
from repro_gate.machine import descendants
from repro_gate.runs.ending import PREEMPTED, SEE_LOG, Ending, last_exception
from repro_gate.runs.process import Ended
from repro_gate.runs.watching import Tick
from repro_gate.runs.workspaces import GateFolder, Workspace
from repro_gate.sandbox.identity import Sandbox, as_training_user, open_written
from repro_gate.trace.model import Trace
from repro_gate.trace.newest import newest

_SLOW = 1.0  # seconds for which a checkpoint is gone while another is written over it
_OPEN = 10_000  # descriptors that are looked at


@dataclass(frozen=True, kw_only=True)
class LegStart:
    """How a leg begins, and how it is ended."""

    pattern: str  # of the checkpoints that it saves
    checkpoint: str = ""  # from which it resumes, relative to its folder; empty: none
    # seconds that it has after SIGTERM, when `tick` ends it; 0: it is killed
    grace: float = 0.0


@dataclass(frozen=True, kw_only=True)
class LegEnd:
    """What was seen of the checkpoints of a leg."""

    resumed_from: str = ""
    checkpoint: str = ""  # that it saved last, relative to its folder
    half_written: bool = False  # it was open for writing when the gate ended the leg
    # the one that it resumed from was written over, not replaced
    in_place: bool = False
    cut_off: bool = False  # that took a while in which it was shorter than before
    # files that it read of the leg before, but for the checkpoint
    read_beside: tuple[str, ...] = ()


@dataclass
class LegWatch:
    """Follows a leg. `handle` holds the checkpoint open from which it resumes, so that no other
    file gets its inode; it is None if that is no file."""

    start: LegStart
    workspace: Workspace
    folder: GateFolder
    tick: Tick
    handle: int | None

    def __post_init__(self) -> None:
        self.began = time.time()
        self.path = os.path.realpath(self.workspace.cwd / self.start.checkpoint)
        self.before = self._state()
        self.short_since = time.monotonic()  # or the last look, if it was not short
        # whether it was open for writing and shorter than it was for _SLOW: what it held was gone
        self.cut_off = False
        self.asked_at: float | None = None  # when SIGTERM was sent
        # files that were open for writing when the leg was ended
        self.writing: tuple[str, ...] = ()

    def _state(self) -> tuple[int, int]:
        state = None if self.handle is None else os.fstat(self.handle)
        return (state.st_size, state.st_mtime_ns) if state else (0, 0)

    def look(self, traces: Sequence[Trace]) -> str | None:
        """See whether the checkpoint is being written over, and return the reason to end the leg.
        Called a few times a second."""
        sandbox = self.folder.sandbox
        now = time.monotonic()
        is_short = self._state()[0] < self.before[0]
        if not is_short or self.path not in open_for_writing(sandbox):
            self.short_since = now
        self.cut_off = self.cut_off or now - self.short_since > _SLOW
        reason = self.tick(traces)
        if reason and self.start.grace:
            self._ask(traces)
            if self.asked_at is None or now - self.asked_at <= self.start.grace:
                return None
        if reason:
            self.writing = self.writing or open_for_writing(sandbox)
        return reason

    def _ask(self, traces: Sequence[Trace]) -> None:
        """Send SIGTERM to the processes of the leg that train, once. A trace may name any process:
        only one below the gate, and of the training's user if it has one of its own, gets the
        signal."""
        trained = {trace.pid for trace in traces if trace.trained}
        user = self.folder.sandbox.uid or os.getuid()
        for process in descendants(os.getpid()) if self.asked_at is None else ():
            with contextlib.suppress(psutil.Error):
                if process.pid in trained and process.uids().real == user:
                    process.send_signal(signal.SIGTERM)
                    self.asked_at = time.monotonic()

    def ending(self, ended: Ended) -> Ending | None:
        """Return how a leg ended by itself after SIGTERM; None for any other end."""
        if self.asked_at is None or ended.stopped or ended.timed_out:
            return None
        raised = last_exception(ended.tail) if ended.exit_code else None
        if raised is None or raised.location is None:
            return Ending(PREEMPTED)
        problem = f"asked to end by SIGTERM, it crashed with status {ended.exit_code}"
        return Ending("crashed", "run/crashed", problem, SEE_LOG)

    def end(self, traces: Sequence[Trace]) -> LegEnd:
        """Return what was seen, once the leg has ended: the checkpoint that it saved, and the files
        outside the checkout that it read besides the one from which it resumed."""
        cwd = self.workspace.cwd
        with as_training_user(self.folder.sandbox):
            _, name = newest(str(cwd), self.start.pattern, (self.began, ""))
        path = os.path.realpath(cwd / name)
        loaded = os.path.relpath(cwd / self.start.checkpoint, self.workspace.root)
        read = {
            item.path
            for trace in traces
            for item in trace.opened
            if item.inside and not item.sought
        }
        beside = [
            item
            for item in sorted(read)
            # the trace has another name for one that is not UTF-8
            if "\\udc" not in item
            and not is_below(item, [loaded])
            and not os.path.lexists(self.folder.snapshot.root / item)
        ]
        return LegEnd(
            resumed_from=self.start.checkpoint,
            checkpoint=name,
            half_written=bool(name)
            and any(is_below(item, [path]) for item in self.writing),
            in_place=self._state() != self.before,
            cut_off=self.cut_off,
            read_beside=tuple(beside),
        )


@contextlib.contextmanager
def following(
    start: LegStart, workspace: Workspace, folder: GateFolder, tick: Tick
) -> Iterator[LegWatch]:
    """Follow a leg whose run calls `look`. `tick` returns a reason to end it."""
    path = workspace.cwd / start.checkpoint
    with contextlib.ExitStack() as stack:
        handle = None
        with contextlib.suppress(OSError):
            handle = stack.enter_context(closing(open_written(path, folder.sandbox)))
        yield LegWatch(start, workspace, folder, tick, handle)


def open_for_writing(sandbox: Sandbox) -> tuple[str, ...]:
    """Return the paths of files that processes below the gate have open for writing (Linux), but
    not for appending, as logs are."""
    found = []
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
