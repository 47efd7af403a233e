"""The state of the probe in one process: the trace being written, the step count, and two clocks.

`torch_hooks` and `sdk` report what happens. The session decides what is written, ends the training
after `train.steps` and keeps the probe's own time apart from the training's.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import signal
import sys
import traceback
from typing import Any, Dict, Iterator, List, Optional, Sequence, Set, Tuple, Union

from ..trace.format import LOOP, MAX_NAME, WHOLE_RUN
from ..trace.kept import kept
from ..trace.writer import Later, Row, TraceFailed, TraceWriter
from . import facts, rng
from .patch import wrap
from .process import arguments, prepares_data, process_key, started_by_multiprocessing
from .source_line import largest_loop
from .step_time import Mark, StepTimes, mark

_NOTES = _HELD = 1_000  # `_HELD`: blocks before the first gradient or step
EX_IOERR = 74  # the exit status of a process whose trace could not be written (sysexits.h)
OBSERVERS: List[
    Any
    # what collects through the life of a process: files, draws, imports; `flush(session, last)`
    # writes it
] = []
_CURRENT: List["Session"] = []
_LATE: List[
    Tuple[Any, int, int]
] = []  # handlers of signals that came while the probe was at work, their signals, and the thread
_OS, _LEAVE = kept(os), os._exit
# seconds that a thread waits for another one's hook; one that waits for it in turn would wait for
# ever
_PATIENCE = 60.0


class StopTraining(SystemExit):
    """Raised in the training after its last wanted step. It is a SystemExit, so `except Exception`
    and interpreters let it through."""


class Session:
    """What the probe knows in this process."""

    def __init__(self, config: Dict[str, Any], hooks: Any = None, thread: str = "") -> None:
        self.config = config
        # the name of the one whose training this is; empty: the main thread, and the process as
        # such
        self.thread = thread
        # `torch_hooks.Hooks`, where torch is imported
        self.hooks, self.torch = (
            hooks,
            getattr(hooks, "torch", None),
        )
        self.stem = (
            "none"  # the trace file's name without its suffix; files that belong to it start so
        )
        self.step = -1  # the step in progress; -1 until training starts
        self.stopped = False
        self.explicit = False  # the script says itself what a step is
        self.failed = False  # an exception that nothing caught ended the script
        self.introduced = False  # the process trains: what it is has been written
        self.broken = self._closed = self._finished = self._forked = False
        self.kept: Dict[str, int] = {}  # label of kept tensors -> how often
        self._writer: Optional[TraceWriter] = None
        self._facts: Dict[str, str] = {}  # those that are written
        self._held: Optional[List[Any]] = []  # arguments of `TraceWriter.block`; None: written
        self._steps = self._stops = self._peak = self.depth = (
            0  # `_peak`: bytes, since the last step; `depth`: of `own_time`
        )
        # when the step in progress began; when `own_time` was entered
        self._mark = self._entered = mark(self.torch)
        self._own: List[Tuple[Mark, Mark]] = []  # since then, what the probe took
        self._lock, self._holder = _thread.RLock(), 0  # several threads may train at once
        self._failure = ""  # why the recording ended, where the trace does not say so yet
        self._recorded = False  # something is recorded that no step has closed yet
        self._noted: Set[Tuple[str, str]] = set()

    def start(self, forked: bool = False) -> None:
        self._forked = forked
        argv = [item[:MAX_NAME] for item in arguments()][:1000]
        hello = {"nonce": self.config["nonce"], "pid": _OS.getpid(), "key": "main", "argv": argv}
        with self._guard():
            self._writer = TraceWriter(self.config["traces"], {**hello, "forked": forked})
            self.stem = self._writer.stem

    def key(self) -> str:
        """What is recorded here is compared with what has the same key in the other run: the
        process, and the thread in it."""
        return "%s/%s" % (process_key(), self.thread) if self.thread else process_key()

    def wants(self) -> bool:
        """Whether the tensors of the step in progress are to be digested: every n-th, and the last
        wanted one."""
        return (
            self.step < 0
            or self.step % self.config["every"] == 0
            or self.step + 1 == self.config["steps"]
        )

    @property
    def live(self) -> bool:
        if self.stopped or self.broken or self._closed or self._writer is None:
            return False
        return (self.introduced or not prepares_data()) and not facts.capturing(self.torch)

    @contextlib.contextmanager
    def own_time(self) -> Iterator[None]:
        """The gate through which every hook goes. Time spent in here is the probe's, not the
        training's; what goes wrong in here is the probe's fault, and said; a signal's handler runs
        when it is left; only one thread is in here."""
        if not self._alone():
            with self._guard():
                yield
            return
        self.depth += 1
        try:
            if self.depth > 1:
                yield
                return
            self._holder = _thread.get_ident()
            with self._guard():
                self._entered = mark(self.torch)  # behind the work that the training has queued
                self._peak = max(self._peak, facts.peak_bytes(self.torch))
            try:
                with self._guard():
                    yield
            finally:
                with self._guard():
                    facts.reset_peak(self.torch)  # what the digests held is not the training's
                    self._own.append((self._entered, mark(self.torch)))
        finally:
            self.depth -= 1
            self._lock.release()
            self._deliver()

    def _deliver(self) -> None:
        """Run the handlers of the signals that came meanwhile, each whatever the one before
        raises."""
        if _LATE and not self.at_work() and _LATE[0][2] == _thread.get_ident():
            handler, number, _ = _LATE.pop(0)
            try:
                handler(number, sys._getframe(2))
            finally:
                self._deliver()

    def _alone(self) -> bool:
        """Wait until no other thread is in a hook; False where that lasts too long, and the
        recording has ended."""
        alone = self._lock.acquire(timeout=0 if self.broken else _PATIENCE)
        if not alone:
            self._ended("another thread kept the probe for %d seconds" % _PATIENCE)
        return alone

    def at_work(self) -> bool:
        """Whether the calling thread is in a hook of the probe's."""
        return self.depth > 0 and self._holder == _thread.get_ident()

    def block(
        self,
        kind: str,
        rows: Sequence[Row],
        digests: Union[bytes, Later],
        values: Optional[List[str]] = None,
    ) -> None:
        """Write the digests of one kind at this moment, or hold them until the process is known to
        train. Called inside `own_time`."""
        if not rows or self._writer is None:
            return
        if self._held is None:
            self._writer.block(self.step, kind, rows, digests, values)
        else:
            # the newest batches matter: the first step takes one of them
            if len(self._held) >= _HELD:
                kinds = [item[1] for item in self._held]
                del self._held[kinds.index("batch") if "batch" in kinds else -1]
            self._held.append((self.step, kind, rows, digests, values))

    def rng(self) -> None:
        self.block("rng", *rng.states())

    def trains(self) -> None:
        """A gradient, a step, something recorded: this process trains, and what was held is
        written. A forward pass alone is none of these: workers of every kind (a `Pool`'s, say) call
        modules too."""
        with self.own_time():
            held, self._held = self._held, None
            if held is not None and self._writer is not None:
                self._introduce()
                for block in held:
                    self._writer.block(*block)

    def recorded(self) -> None:
        """Something is recorded beside an optimizer: a step that closes it is owed."""
        self.trains()
        self._recorded = True

    def training_begins(self) -> None:
        """The initial state is recorded: step 0 starts now."""
        if self.step < 0:
            self.step = 0
            self._begin_step()

    def end_step(self, last: bool = True) -> None:
        """Close the step in progress; raises StopTraining after the last wanted one, if it may be
        the `last`."""
        if not self.live:
            self.insist()
            return
        self.training_begins()
        self.trains()
        self._write_step()
        wanted = self.config["steps"]
        if last and wanted is not None and self._steps >= wanted:
            self._finish()
            self.event("stopped", steps=self._steps)
            self.stopped = True
            self.insist()

    def insist(self) -> None:
        """End a training that was stopped: by StopTraining, and where a framework catches that
        twice, by leaving."""
        if self.stopped:
            self._stops += 1
            if self._stops > 2:
                self.close("steps")
                with contextlib.suppress(Exception):
                    sys.stdout.flush()
                    sys.stderr.flush()
                _LEAVE(0)
            raise StopTraining(0)

    def note(self, identifier: str, message: str) -> None:
        """Something the probe could not do, in words."""
        if (identifier, message) not in self._noted and len(self._noted) < _NOTES:
            self._noted.add((identifier, message))
            self.event("note", id=identifier, message=message[:MAX_NAME])

    def event(self, name: str, **fields: Any) -> bool:
        """Write an event; whether it was written."""
        if self._writer is None or self._closed or not self._alone():
            return False
        try:
            with self._guard():
                self._writer.event(name, **fields)
            return True
        finally:
            self._lock.release()

    def close(self, reason: str) -> None:
        """Write what is kept to the end and the last line. Later calls do nothing."""
        if self._closed or self._writer is None:
            return
        if self.stopped:
            reason = "steps"
        elif reason == "exit" and not self.introduced and not self.thread and not self.others():
            self._close_whole_run()
        elif self._recorded and reason != "exception":
            self._write_step()  # the last step of a script that only ever records
        self._finish()
        if self.introduced and self.hooks is not None:
            with self.own_time():
                self.hooks.at_close(reason)
        with self._guard():
            self._writer.write(wait=True)
        self._tell_failure()
        if not self._failure:
            self.event("end", reason=reason, steps=self._steps)
        self._closed = True

    def others(self) -> List["Session"]:
        """The sessions of this process's other threads that train."""
        if self.hooks is None or self.thread:
            return []
        return [hooks.session for hooks in self.hooks.others]

    def reopen(self) -> None:
        """Go on after `close`: the program that was to take this one's place could not be
        started."""
        if self._closed and self._writer is not None and not self.broken:
            self._closed = False
            self.event("resumed", steps=self._steps)

    def flush(self, last: bool = False) -> None:
        """Write what the observers have collected of the process; `last`: the trace is about to be
        closed."""
        if self._writer is not None and not self._closed and not self.thread:
            with self._guard():
                for observer in OBSERVERS:
                    observer.flush(self, last)

    def fork(self) -> None:
        for parent in (self, *self.others()):
            if parent._writer is not None:
                parent._writer.abandon()
        if self.broken:
            self._writer = None
            return
        child = open_session(self.config, self.hooks)
        for observer in OBSERVERS:
            observer.forked()
        child.start(forked=True)
        if self.hooks is not None:
            self.hooks.serve(child)

    def _finish(self) -> None:
        """Write what is told once, when the last step is over."""
        if not self._finished:
            if self.introduced and self.hooks is not None:
                with self.own_time():
                    self.hooks.at_stop()
            self.flush(last=True)
            self._finished = True

    def _close_whole_run(self) -> None:
        """A process that recorded nothing says in which loop it could have. It counts as one step
        where the spec names artifacts: they are what is compared."""
        if self._forked or started_by_multiprocessing():
            return
        with self._guard():
            self.note(LOOP, largest_loop())
        if self.config.get("artifacts") and self.torch is not None:
            self.step = 0
            self.trains()
            with self.own_time():
                self.rng()
                self.note(
                    WHOLE_RUN,
                    "no step was recorded: the runs are compared by their artifacts alone",
                )
            self._write_step()

    def _write_step(self) -> None:
        with self.own_time():
            now = mark(self.torch)
            times = StepTimes(self._mark, now, [*self._own, (self._entered, now)])
            self._introduce()
            if self._writer is not None:
                if self._steps == 0:
                    self._write_facts()  # the device may have been started since
                found = self.hooks.read_flags() if self.hooks is not None else {}
                fields = {"peak_bytes": self._peak, "flags": self._writer.flags(found)}
                self._writer.event("step", times, step=self._steps, **fields)
                self._steps += 1
                self._peak, self._recorded = 0, False
        if self.config.get("factors", {}).get("watch") or "lines" in self.config:
            self.flush()
        self.step += 1
        self._begin_step()

    def _begin_step(self) -> None:
        with self._guard():
            self._mark, self._own = mark(self.torch), []
            self._entered = self._mark  # the rest of the hook in progress is part of the next step

    def _introduce(self) -> None:
        if not self.introduced and self._writer is not None:
            self.introduced = True
            self._write_facts()
            self._writer.event("variables", values=facts.library_variables())
            util: Any = sys.modules.get("multiprocessing.util")
            # forked workers skip `atexit` and run these finalizers instead
            if util is not None and started_by_multiprocessing():
                util.Finalize(None, close_session, exitpriority=-1000)

    def _write_facts(self) -> None:
        """Write the facts, where they are no longer as they were written."""
        found = facts.facts(self.torch) if self.torch is not None else {}
        now = facts.read({**facts.BASIC, "process": self.key, **found})
        now = {name: value[:MAX_NAME] for name, value in now.items()}
        if now != self._facts:
            self._facts = now
            self.event("facts", facts=now)

    @contextlib.contextmanager
    def _guard(self) -> Iterator[None]:
        """A trace that cannot be written ends the process; a mistake of the probe's is noted and
        ends the recording, not the training."""
        try:
            yield
        except TraceFailed:
            _LEAVE(EX_IOERR)
        except Exception as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            self._ended(
                "%s:%s: %s: %s"
                % (frame.filename.rpartition(os.sep)[2], frame.lineno, type(error).__name__, error)
            )

    def _ended(self, what: str) -> None:
        """The recording cannot go on; the training does."""
        if not self.broken:
            self.broken = True
            with contextlib.suppress(Exception):
                sys.stderr.write("repro-gate: the probe failed at %s\n" % what)
            self._failure = what
            self._tell_failure()

    def _tell_failure(self) -> None:
        """Note why the recording ended; at the end at the latest, where another thread keeps the
        trace until then."""
        if self._failure and self.event("note", id="probe-error", message=self._failure[:MAX_NAME]):
            self._failure = ""


def open_session(config: Dict[str, Any], hooks: Any = None) -> Session:
    _CURRENT[:] = [Session(config, hooks)]
    return _CURRENT[0]


def current() -> Session:
    return _CURRENT[0]


def close_session() -> None:
    """At the interpreter's exit: say how it ended and close the trace."""
    for session in (current(), *current().others()) if _CURRENT else ():
        session.close("exception" if current().failed else "exit")


def put_off_signals() -> None:
    """Put off the training's handlers of signals while the probe is at work: what they raise is the
    training's to catch, and goes to it."""
    handlers: Dict[int, Any] = {}  # by signal, as the training gave it

    def set_handler(original: Any, signalnum: Any, handler: Any) -> Any:
        def put_off(signum: int, frame: Any) -> Any:
            if current().at_work():  # Python runs handlers in the main thread alone
                return _LATE.append((handler, signum, _thread.get_ident()))
            return handler(signum, frame)

        before = get_handler(signal.getsignal, signalnum)
        original(
            signalnum,
            put_off if callable(handler) and handler is not signal.default_int_handler else handler,
        )
        handlers[int(signalnum)] = handler
        return before

    def get_handler(original: Any, signalnum: Any) -> Any:
        found = original(signalnum)
        return (
            handlers.get(int(signalnum), found)
            if getattr(found, "__name__", "") == "put_off"
            else found
        )

    wrap(signal, "signal", set_handler)
    wrap(signal, "getsignal", get_handler)
