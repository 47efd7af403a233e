"""The state of the probe in one process: the trace being written, the step count, and two clocks.

One session lives in each traced process. `torch_hooks` and `sdk` report to it what happens; it decides what is written, ends the training
after `train.steps` and keeps the probe's own time apart from the training's. Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
import traceback
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Set, Tuple

from ..trace.format import MAX_NAME, WHOLE_RUN
from ..trace.writer import Row, TraceFailed, TraceWriter
from . import facts
from .process import arguments, prepares_data, process_key, resident_peak, started_by_multiprocessing

_NOTES = 1_000
_HELD = 1_000  # blocks before the first gradient or step
EX_IOERR = 74  # the exit status of a process whose trace could not be written (sysexits.h)
OBSERVERS: List[Any] = []  # what collects through the life of a process: `opened.Opened`, `entropy.Draws`; its `flush(session)` writes
_CURRENT: List["Session"] = []
_LEAVE = os._exit


class StopTraining(SystemExit):
    """Raised in the training after its last wanted step. It is a SystemExit, so `except Exception` and interpreters let it through."""


class Session:
    """What the probe knows in this process. All times are seconds of `time.perf_counter`."""

    def __init__(self, config: Dict[str, Any]) -> None:
        self.config = config
        self.step = -1  # the step in progress; -1 until training starts
        self.stopped = False
        self.broken = False
        self.explicit = False  # the script says itself what a step is
        self.failed = False  # an exception that nothing caught ended the script
        self.at_stop: List[Callable[[], None]] = []  # run once, when nothing more is to be recorded of the steps
        self.at_close: List[Callable[[str], None]] = []  # run before `end` is written: digests and keeps the final state
        self.whole_run: Callable[[], None] = lambda: None  # records what a process that took no step ends with
        self.synchronize: Callable[[], None] = lambda: None  # waits for the device, set where there is one
        self.read_flags: Callable[[], Dict[str, Any]] = dict
        self.peak_bytes: Callable[[], int] = resident_peak
        self.reset_peak: Callable[[], None] = lambda: None
        self.facts: facts.Facts = {**facts.BASIC, "process": process_key}
        self._writer: Optional[TraceWriter] = None
        self._said: Dict[str, str] = {}  # the facts that are written
        self._introduced = False
        self._held: Optional[List[Tuple[int, str, Sequence[Row], bytes, Optional[List[str]]]]] = []  # blocks; None once they are written
        self._closed = self._finished = self._forked = False
        self._steps = 0
        self._stops = 0
        self._mark = time.perf_counter()  # when the step in progress began
        self._own = 0.0  # of that, what the probe took
        self._peak = 0  # bytes, since the last step
        self._recorded = False  # something is recorded through the SDK that no step has closed yet
        self._depth = 0
        self._connections: Dict[str, None] = {}
        self.kept: Dict[str, int] = {}  # what `keep` keeps -> how often
        self._noted: Set[Tuple[str, str]] = set()

    def start(self, forked: bool = False) -> None:
        """Open the trace of this process."""
        self._forked = forked
        hello = {
            "nonce": self.config["nonce"],
            "pid": os.getpid(),
            "key": "main",
            "argv": [item[:MAX_NAME] for item in arguments()][:1000],
            "forked": forked,
        }
        with self._guard():
            self._writer = TraceWriter(self.config["traces"], hello)

    def wants(self, step: Optional[int] = None) -> bool:
        """Whether the tensors of `step` (the one in progress) are to be digested: every n-th, and the last wanted one."""
        step = self.step if step is None else step
        return step < 0 or step % self.config["every"] == 0 or step + 1 == self.config["steps"]

    @property
    def live(self) -> bool:
        """Whether there is still something to record."""
        if self.stopped or self.broken or self._closed or self._writer is None:
            return False
        return self._introduced or not prepares_data()

    @contextlib.contextmanager
    def own_time(self) -> Iterator[None]:
        """Time spent in here is the probe's, not the training's; what goes wrong in here is the probe's fault, and said."""
        if self._depth:
            yield
            return
        with self._guard():
            self.synchronize()  # work that the training had queued counts as the training's
            self._peak = max(self._peak, self.peak_bytes())
        began = time.perf_counter()
        self._depth += 1
        try:
            with self._guard():
                yield
        finally:
            with self._guard():
                self.reset_peak()  # what the digests held is not the training's
            self._depth -= 1
            self._own += time.perf_counter() - began

    def block(self, kind: str, rows: Sequence[Row], digests: bytes, values: Optional[List[str]] = None) -> None:
        """Write the digests of one kind at this moment, or hold them until the process is known to train. Called inside `own_time`."""
        if not rows or self._writer is None:
            return
        if self._held is None:
            self._writer.block(self.step, kind, rows, digests, values)
        else:
            if len(self._held) >= _HELD:  # the newest batches matter: the first step takes one of them
                del self._held[next((index for index, item in enumerate(self._held) if item[1] == "batch"), -1)]
            self._held.append((self.step, kind, rows, digests, values))

    def trains(self) -> None:
        """A gradient, a step, something recorded: this process trains, and what was held is written. A forward pass alone is none of these:
        workers of every kind (a `Pool`'s, say) call modules too."""
        if self._held is not None and self._writer is not None:
            with self.own_time():
                self._introduce()
                held, self._held = self._held, None
                for block in held:
                    self._writer.block(*block)

    def training_begins(self) -> None:
        """The initial state is recorded: step 0 starts now."""
        if self.step < 0:
            self.step = 0
            self._mark, self._own = time.perf_counter(), 0.0

    def end_step(self, last: bool = True) -> None:
        """Close the step in progress; raises StopTraining after the last wanted one, if it may be the `last`. Called outside `own_time`."""
        if not self.live:
            self.insist()
            return
        self.training_begins()
        self.trains()
        with self.own_time():
            elapsed = time.perf_counter() - self._mark
            self._write_step(elapsed)
        self.step += 1
        self._mark, self._own = time.perf_counter(), 0.0
        wanted = self.config["steps"]
        if last and wanted is not None and self._steps >= wanted:
            self._finish()
            self._event("stopped", steps=self._steps)
            self.stopped = True
            self.insist()

    def insist(self) -> None:
        """End a training that was stopped: by StopTraining, and where a framework catches that twice, by leaving."""
        if self.stopped:
            self._stops += 1
            if self._stops > 2:
                self.close("steps")
                with contextlib.suppress(Exception):
                    sys.stdout.flush()
                    sys.stderr.flush()
                _LEAVE(0)
            raise StopTraining(0)

    def undone(self, flag: str, value: Any, file: str, line: int) -> None:
        """Training code set a determinism flag to another value than the arm's."""
        self._event("undone", flag=flag, value=str(value)[:200], file=file[:MAX_NAME], line=line, step=self.step)

    def connected(self, address: str) -> None:
        """A connection left this machine. Each address is written once."""
        if address not in self._connections and len(self._connections) < 100:
            self._connections[address] = None
            self._event("network", address=address[:300])

    def drawn(self, source: str, file: str, line: int) -> None:
        """A line of the workspace drew from the operating system's entropy."""
        self._event("drawn", source=source, file=file, line=line)

    def note(self, identifier: str, message: str) -> None:
        """Something the probe could not do, in words."""
        if (identifier, message) not in self._noted and len(self._noted) < _NOTES:
            self._noted.add((identifier, message))
            self._event("note", id=identifier, message=message[:MAX_NAME])

    def event(self, name: str, **fields: Any) -> None:
        """Write an event of the format's. Called inside `own_time`."""
        if self._writer is not None:
            self._writer.event(name, **fields)

    def recorded(self) -> None:
        """Something is recorded through the SDK: a step that closes it is owed."""
        self.trains()
        self._recorded = True

    @property
    def stem(self) -> str:
        """The trace file's name without its suffix; files that belong to it start so."""
        return self._writer.stem if self._writer is not None else "none"

    @property
    def key(self) -> str:
        """Which of the run's processes this is: `main`, `rank1`, `SpawnProcess-2`."""
        return process_key()

    def close(self, reason: str) -> None:
        """Write what is kept to the end and the last line. Later calls do nothing."""
        if self._closed or self._writer is None:
            return
        if self.stopped:
            reason = "steps"
        elif reason == "exit" and not self._introduced:
            self._close_whole_run()
        elif self._recorded and reason != "exception":
            with self.own_time():
                self._write_step(time.perf_counter() - self._mark)  # the last step of a script that only ever records
            self.step += 1
        self._finish()
        if self._steps or self._introduced:
            with self.own_time():
                for action in self.at_close:
                    action(reason)
        self._closed = True
        with self._guard():
            self._writer.event("end", reason=reason, steps=self._steps)

    def reopen(self) -> None:
        """Go on after `close`: the program that was to take this one's place could not be started."""
        if self._closed and self._writer is not None and not self.broken:
            self._closed = False
            self._event("resumed", steps=self._steps)

    def _finish(self) -> None:
        """Write what is told once, when the last step is over."""
        if self._finished:
            return
        if self._steps or self._introduced:
            with self.own_time():
                for action in self.at_stop:
                    action()
                if self.config.get("observe"):
                    from . import distributions

                    original = next((item for item in OBSERVERS if hasattr(item, "has_copy")), None)
                    versions, copies = distributions.imported(original)
                    self.event("distributions", versions=versions)
                    if copies:
                        self.event("imports", modules=copies)
        self.flush(last=True)
        self._finished = True

    def _close_whole_run(self) -> None:
        """A process that took no step counts as one where the spec names artifacts: they are what is compared."""
        if self.config.get("artifacts") and "torch" in sys.modules and not (self._forked or started_by_multiprocessing()):
            self.step = 0
            self.trains()
            with self.own_time():
                self.whole_run()
                self.note(WHOLE_RUN, "no step was recorded: the runs are compared by their artifacts alone")
                self._write_step(time.perf_counter() - self._mark)
            self.step = 1

    def flush(self, last: bool = False) -> None:
        """Write what the observers have collected; `last`: the trace is about to be closed."""
        if self._writer is not None and not self._closed:
            with self._guard():
                for observer in OBSERVERS:
                    if last:
                        observer.finish()
                    observer.flush(self)

    def forget(self) -> None:
        """Let go of the trace: this is a forked child, the file is its parent's."""
        if self._writer is not None:
            self._writer.abandon()

    def _write_step(self, elapsed: float) -> None:
        if self._writer is None:
            return
        self._introduce()
        if self._steps == 0:
            self._say_facts()  # the device may have been started since
        flags = self._writer.flags(self.read_flags())
        own = min(self._own, elapsed)
        self._writer.event(
            "step", step=self._steps, ms=round((elapsed - own) * 1e3, 6), probe_ms=round(own * 1e3, 6), peak_bytes=self._peak, flags=flags
        )
        self._steps += 1
        self._peak, self._recorded = 0, False

    def _introduce(self) -> None:
        """Before the first thing to compare: say what this process is."""
        if not self._introduced and self._writer is not None:
            self._introduced = True
            self._say_facts()
            self._writer.event("variables", values=facts.library_variables())
            _close_in_forked_workers()

    def _say_facts(self) -> None:
        """Write the facts that are new, or no longer as they were written."""
        now = facts.read(self.facts)
        changed = {name: value[:MAX_NAME] for name, value in now.items() if self._said.get(name) != value[:MAX_NAME]}
        if changed and self._writer is not None:
            self._said.update(changed)
            self._writer.event("facts", facts=changed)

    def _event(self, name: str, **fields: Any) -> None:
        if self._writer is not None and not self._closed:
            with self._guard():
                self._writer.event(name, **fields)

    @contextlib.contextmanager
    def _guard(self) -> Iterator[None]:
        """A trace that cannot be written ends the process; a mistake of the probe's is noted and ends the recording, not the training."""
        try:
            yield
        except TraceFailed:
            _LEAVE(EX_IOERR)
        except Exception as error:
            if self.broken:
                return
            self.broken = True
            frame = traceback.extract_tb(error.__traceback__)[-1]
            where = "%s:%s" % (os.path.basename(frame.filename), frame.lineno)
            sys.stderr.write("repro-gate: the probe failed at %s: %s: %s\n" % (where, type(error).__name__, error))
            self.note("probe-error", "%s: %s: %s" % (where, type(error).__name__, error))


def open_session(config: Dict[str, Any]) -> Session:
    """Make the session of this process."""
    _CURRENT[:] = [Session(config)]
    return _CURRENT[0]


def current() -> Session:
    """The session of this process."""
    return _CURRENT[0]


def close_session() -> None:
    """At the interpreter's exit: say how it ended and close the trace."""
    if _CURRENT:
        _CURRENT[0].close("exception" if _CURRENT[0].failed else "exit")


def script_failed() -> None:
    """The interpreter shows an exception that nothing caught. (`sys.last_value` can be set by anybody.)"""
    if _CURRENT:
        _CURRENT[0].failed = True


def reopen_after_fork() -> None:
    """In a forked child: let go of the parent's trace and open one of its own."""
    if _CURRENT and not _CURRENT[0].broken:
        parent = _CURRENT[0]
        parent.forget()
        child = open_session(parent.config)
        child.synchronize, child.read_flags, child.facts = parent.synchronize, parent.read_flags, parent.facts
        child.peak_bytes, child.reset_peak = parent.peak_bytes, parent.reset_peak
        for observer in OBSERVERS:
            observer.forked()
        child.start(forked=True)
        torch_hooks = sys.modules.get(__package__ + ".torch_hooks")
        if torch_hooks is not None:
            torch_hooks.rearm(child)


def _close_in_forked_workers() -> None:
    """multiprocessing's forked workers skip `atexit` and run these finalizers instead."""
    util = sys.modules.get("multiprocessing.util")
    if util is not None and getattr(sys.modules.get("multiprocessing.process"), "parent_process", lambda: None)() is not None:
        util.Finalize(None, close_session, exitpriority=-1000)
