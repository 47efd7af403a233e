"""Records the training of one process: its trace, the step count and two clocks. Hooks call a
session at each event. It decides what is written, ends the training after `train.steps`, and
measures the probe's own time separately. Each further thread that trains has its own session; a
lock admits one thread of the process at a time.
"""

from __future__ import annotations

import _thread
import contextlib
import ctypes
import os
import sys
import time
import traceback
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ..trace.format import LIMITS, MAX_NAME, WHOLE_RUN
from ..trace.newest import Written, newest
from ..trace.writer import Later, Row, TraceFailed, TraceWriter
from . import facts, rng
from .process import arguments, prepares_data, process_key, started_by_multiprocessing
from .shared import PROCESS, unseen
from .source_line import largest_loop
from .step_time import Clock

_NOTICES = 10_000  # all kinds of digested quantities
_HELD = 1_000  # blocks before the first gradient or step
# the exit status of a process whose trace could not be written (sysexits.h)
EX_IOERR = 74
# seconds that a thread waits for another thread's hook; longer may be a deadlock
_PATIENCE = 60


class StopTraining(SystemExit):
    """Raised in the training after its last step. It is a SystemExit, so `except Exception` and
    interpreters let it pass."""


class Session:
    """Records one process, or one more thread of it that trains."""

    def __init__(self, config: dict[str, Any], thread: str = "") -> None:
        self.config = config
        # the name of the one whose training this is; empty: the main thread
        self.thread = thread
        self.hooks: Any = None  # `torch_hooks.Hooks`, once torch is imported
        # the trace file's name without its suffix; its other files start so
        self.stem = "none"
        self.step = -1  # the step in progress; -1 until training starts
        self.stopped = False
        self.explicit = False  # the script itself marks its steps
        # if its flags alternate: whether a loader may set the pace of the step in progress
        self.behind = False
        self.failed = False  # an exception that nothing caught ended the script
        self.introduced = False  # the process trains: what it is has been written
        self.broken = self._closed = self._finished = self._forked = False
        self.kept_files: dict[str, int] = {}  # label of kept tensors -> how often
        self._writer: TraceWriter | None = None
        self._facts: dict[str, str] = {}  # those that are written
        # arguments of `TraceWriter.block` until the process is known to train
        self._held: list[tuple[int, str, Any, Any, Any]] = []
        self._steps = self._stops = 0
        self._found: Written | None = None  # the newest checkpoint after the first step
        self._inside = False  # a thread is in `in_hook`
        self.renew()
        self._clock = Clock()
        self._failure = ""  # why the recording ended, if the trace does not say so yet
        self._recorded = False  # something was recorded after the last finished step
        self._noticed: set[tuple[Any, ...]] = set()
        self._counts: dict[str, int] = {}  # of what `LIMITS` limits

    def renew(self) -> None:
        """Make a new lock, since a forked child lacks the thread that held the old one. Each
        session has its own lock: in a hook one thread may wait for the training of another."""
        self._lock: Any = _thread.RLock()

    def start(self, forked: bool = False) -> None:
        """Open the trace."""
        self._forked = forked
        argv = [item[:MAX_NAME] for item in arguments()][:1000]
        hello = {"nonce": self.config["nonce"], "pid": os.getpid(), "forked": forked}
        with self._guard():
            hello["argv"] = argv
            self._writer = TraceWriter(self.config["traces"], hello, facts.capturing)
            self.stem = self._writer.stem

    def key(self) -> str:
        """Return the name of this process and thread, by which two runs are paired."""
        return f"{process_key()}/{self.thread}" if self.thread else process_key()

    def wants(self) -> bool:
        """Return whether the tensors of the current step must be digested: every n-th step, and the
        last one."""
        return (
            self.step < 0
            or self.step % self.config["every"] == 0
            or (self.step + 1 == self.config["steps"] and not self.alternates)
        )

    @property
    def alternates(self) -> bool:
        """Return whether the flags of the process change at each step of its main thread."""
        return "alternating" in self.config and not self.thread

    @property
    def live(self) -> bool:
        if self.stopped or self._open is None:
            return False
        return (self.introduced or not prepares_data()) and not facts.capturing()

    @property
    def _open(self) -> TraceWriter | None:
        return None if self.broken or self._closed else self._writer

    @contextlib.contextmanager
    def in_hook(self) -> Iterator[None]:
        """Admit one thread into a hook. Time in the block counts as the probe's; an exception in it
        is noted and ends the recording; signal handlers run after it."""
        if self.at_work():
            yield
            return
        began = self._clock.step
        with self._guard():
            began = self._clock.mark()  # after the work that the training has queued
        if not self._acquire():
            with self._guard():
                yield
            return
        self._inside = True
        try:
            self._clock.entered = began
            with self._guard(), unseen():
                yield
                PROCESS.launch()
        finally:
            with self._guard():
                self._clock.leave()
            self._inside = False
            self._lock.release()
            PROCESS.deliver()

    def _acquire(self) -> bool:
        """Wait until no other thread is in a hook; if that lasts too long, end the recording."""
        if self._lock.acquire(timeout=0 if self.broken else _PATIENCE):
            return True
        self._ended(f"another thread kept the probe for {_PATIENCE} seconds")
        return False

    def at_work(self) -> bool:
        """Return whether the calling thread is in a hook of the probe's."""
        return bool(self._inside and self._lock._is_owned())

    def block(
        self,
        kind: str,
        rows: Sequence[Row],
        digests: bytes | Later,
        values: list[str] | None = None,
    ) -> None:
        """Write the digests of one kind now. They are buffered until the process is known to train;
        a batch before training belongs to the first step. Called inside `in_hook`."""
        writer = self._open
        if not rows or writer is None:
            return
        step = max(self.step, 0) if kind == "batch" else self.step
        if self.introduced:
            writer.block(step, kind, rows, digests, values)
            return
        # the newest batches matter: the first step takes one of them
        if len(self._held) >= _HELD:
            batches = [item for item in self._held if item[1] == "batch"]
            self._held.remove((batches[:1] or self._held[-1:])[0])
        self._held.append((step, kind, rows, digests, values))

    def rng(self) -> None:
        """Record the states of the random number generators."""
        self.block("rng", *rng.states())

    def trains(self) -> None:
        """Write what was buffered, since a gradient, a step or a recorded value shows that this
        process trains. A forward pass alone does not show it: workers (of a `Pool`, for example)
        call modules too."""
        writer = self._open
        if self.introduced or writer is None:
            return
        with self.in_hook():
            self.introduced = True
            self._write_facts()
            writer.event("variables", values=facts.library_variables())
            util: Any = sys.modules.get("multiprocessing.util")
            # forked workers skip `atexit` and run these finalizers instead
            if util is not None and started_by_multiprocessing():
                util.Finalize(None, close_session, exitpriority=-1000)
            for block in sorted(self._held, key=lambda item: item[0]):
                writer.block(*block)
            self._held = []

    def recorded(self) -> None:
        """Note that the script recorded a value, so that a step must still close it."""
        self.trains()
        self._recorded = True

    def runs_on(self, items: Iterable[tuple[str, Any]]) -> None:
        """Note the GPUs of these parameters, by whose clocks steps are timed from here on; and read
        the peak of memory, before digests add to it."""
        found = {item.device.index for _, item in items if item.is_cuda}
        if facts.started():
            self._clock.devices = sorted({*self._clock.devices, *found})
        self._clock.read_peak()

    def training_begins(self) -> None:
        """Start step 0: the initial state is recorded."""
        if self.step < 0:
            self.step = 0
            self._begin_step()

    def end_step(self, last: bool = True) -> None:
        """Close the current step. Raises StopTraining after the last step of `train.steps`, if this
        call may be the step's `last`."""
        if not self.live:
            self.insist()
            return
        with self.in_hook():
            self.training_begins()
            self.trains()
            self._write_step()
            limit = self.config["steps"]
            if last and limit is not None and self._steps >= limit:
                self._finish()
                self.event("stopped", steps=self._steps)
                self.stopped = True
            else:
                self._preempted()
        if self.stopped:
            self.insist()

    def insist(self) -> None:
        """End a training that was stopped: raise StopTraining, and if a framework has caught that
        twice, exit."""
        if self.stopped:
            self._stops += 1
            if self._stops > 2:
                self.close("steps")
                with contextlib.suppress(Exception):
                    sys.stdout.flush()
                    sys.stderr.flush()
                os._exit(0)
            raise StopTraining(0)

    def _preempted(self) -> None:
        """Write which checkpoint was made or changed since the first step of a leg that must be
        stopped, once it has done its steps; then wait to be killed. An earlier checkpoint, of a
        training that saves at its start, would lead back to the beginning of the leg. A leg that
        gets SIGTERM needs no checkpoint yet, and continues."""
        leg = self.config.get("preempt")
        if not leg or 1 < self._steps < leg["after"]:
            return
        if leg["stop"] == "term":
            if self._steps == leg["after"]:
                self.event("preempted", steps=self._steps, checkpoint=leg["checkpoint"])
            return
        since = self._found or (self.config["started"], "")
        found = newest(self.config["cwd"], leg["checkpoint"], since)
        if self._found is None:
            self._found = found
        elif found != since:
            self.flush()
            self.event("preempted", steps=self._steps, checkpoint=found[1][:MAX_NAME])
            self._writer.write(wait=True)  # type: ignore[union-attr]
            while True:
                time.sleep(1.0)

    def note(self, identifier: str, message: str) -> None:
        """Write what the probe could not do; ignore an empty message. Leave room for two more
        notes: what did not arrive from a device, and why the recording ended."""
        if message and self._counts.get("notes", 0) < LIMITS["notes"] - 2:
            self.notice("notes", rows=((identifier, message[:MAX_NAME]),))

    def notice(self, name: str, **fields: Any) -> None:
        """Write an event about something other than a tensor, unless the same was noticed
        before."""
        key = (name, *fields.values())
        if key not in self._noticed and len(self._noticed) < _NOTICES:
            self._noticed.add(key)
            self.event(name, **fields)

    def event(self, name: str, **fields: Any) -> bool:
        """Write an event, unless LIMITS for its kind is reached. Return whether the trace could be
        written."""
        if self._writer is None or self._closed or not self._acquire():
            return False
        try:
            with self._guard(), unseen():
                count = self._counts.get(name, 0) + len(fields.get("rows", (name,)))
                if count <= LIMITS.get(name, count):
                    self._counts[name] = count
                    self._writer.event(name, **fields)
        finally:
            self._lock.release()
        return True

    def close(self, reason: str) -> None:
        """Write the final state and the last line. Later calls do nothing."""
        if self._closed or self._writer is None:
            return
        if self.stopped:
            reason = "steps"
        elif reason == "exit" and not self.introduced and PROCESS.sessions == [self]:
            self._close_whole_run()
        elif self._recorded and reason != "exception":
            self._write_step()  # the last step of a script that only ever records
        self._finish()
        with (
            self.in_hook()
        ):  # Another thread must not write a step after the last line.
            with self._guard():
                if self._has_state():
                    self.hooks.at_close(reason)
            with self._guard():
                self._writer.write(wait=True)
            self._note_failure()
            if not self._failure:
                self.event("end", reason=reason, steps=self._steps)
            self._closed = True

    def reopen(self) -> None:
        """Continue after `close`, since the `exec` of another program failed."""
        if self._closed and self._writer is not None and not self.broken:
            self._closed = False
            self.event("resumed", steps=self._steps)

    def flush(self, last: bool = False) -> None:
        """Write what the observers have collected; `last`: the trace is about to be closed."""
        if self._writer is not None and not self._closed and not self.thread:
            with self._guard():
                for observer in PROCESS.observers:
                    observer.flush(self, last)

    def fork(self) -> None:
        """Drop the parent's traces in a forked child, and open its own trace. What the parent had
        on a device is never freed here: CUDA, which no forked child can use, would abort it."""
        held = [*PROCESS.sessions, self.hooks and dict(vars(self.hooks))]
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(held))
        for parent in PROCESS.sessions:
            parent.renew()
            if parent._writer is not None:
                parent._writer.abandon()
        if self.broken:
            self._writer = None
            return
        child = open_session(self.config)
        for observer in PROCESS.observers:
            observer.forked()
        child.start(forked=True)
        if self.hooks is not None:
            self.hooks.serve(child)

    def _finish(self) -> None:
        """Write the records that are written once, after the last step."""
        if not self._finished:
            if self._has_state():
                with self.in_hook():
                    self.hooks.at_stop()
            self.flush(last=True)
            self._finished = True

    def _has_state(self) -> bool:
        """Return whether there is a final state that can be read."""
        return self.introduced and self.hooks is not None and not facts.capturing()

    def _close_whole_run(self) -> None:
        """Note the loop in which a process without records could have recorded. The whole run
        counts as one step if the spec names artifacts, since these are compared."""
        if self._forked or started_by_multiprocessing():
            return
        with self._guard():
            self.event("loop", place=largest_loop()[:MAX_NAME])
        if self.config.get("artifacts") and PROCESS.torch is not None:
            self.step = 0
            self.trains()
            with self.in_hook():
                self.rng()
                message = "no step was recorded: the runs are compared by their artifacts alone"
                self.note(WHOLE_RUN, message)
            self._write_step()

    def _write_step(self) -> None:
        with self.in_hook():
            times, peak = self._clock.end_step()
            writer = self._open
            if writer is not None:
                if self._steps == 0:
                    self._write_facts()  # the device may have been started since
                settings = {} if self.hooks is None else self.hooks.read_flags()
                more = {"peak_bytes": peak, "flags": writer.flags(settings)}
                if self.behind:
                    more["behind"] = True
                    self.behind = False
                writer.event("step", times, step=self._steps, **more)
                self._steps += 1
                self._recorded = False
        if self.config.get("factors", {}).get("watch") or "lines" in self.config:
            self.flush()
        self.step += 1
        if self.alternates and self.hooks is not None:
            self.hooks.switch_flags(self.step)
        self._begin_step()

    def _begin_step(self) -> None:
        with self._guard():
            self._clock.begin_step()

    def _write_facts(self) -> None:
        """Write the facts, if they have changed since they were written."""
        self._clock.devices = self._clock.devices or [*facts.in_use()]
        now = facts.read({**facts.facts(self._clock.devices), "process": self.key})
        if now != self._facts:
            self._facts = now
            self.event("facts", facts=now)

    @contextlib.contextmanager
    def _guard(self) -> Iterator[None]:
        """End the process if its trace cannot be written. Note a mistake of the probe's; it ends
        the recording, not the training."""
        try:
            yield
        except TraceFailed:
            os._exit(EX_IOERR)
        except Exception as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{frame.filename.rpartition(os.sep)[2]}:{frame.lineno}"
            self._ended(f"{place}: {type(error).__name__}: {error}")

    def _ended(self, what: str) -> None:
        """End the recording; the training goes on."""
        if not self.broken:
            self.broken = True
            with contextlib.suppress(Exception):
                sys.stderr.write(f"repro-gate: the probe failed at {what}\n")
            self._failure = what
            self._note_failure()

    def _note_failure(self) -> None:
        """Note why the recording ended, as soon as no other thread keeps the trace."""
        rows = [("probe-error", self._failure[:MAX_NAME])]
        if self._failure and self.event("notes", rows=rows):
            self._failure = ""


def open_session(config: dict[str, Any]) -> Session:
    """Make the session of this process; those of a forked child's parent are gone."""
    PROCESS.sessions[:] = [Session(config)]
    return current()


def current() -> Session:
    """Return the session of this process."""
    session: Session = PROCESS.sessions[0]
    return session


def close_session() -> None:
    """At the interpreter's exit: write how it ended and close the traces."""
    for session in list(PROCESS.sessions):
        session.close("exception" if current().failed else "exit")
