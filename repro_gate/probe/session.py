"""The state of the probe in one process: the trace being written, the step count, and two clocks.

`torch_hooks` and `sdk` report what happens. The session decides what is written, ends the training after `train.steps` and keeps the
probe's own time apart from the training's.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from typing import Any, Dict, Iterator, List, Optional, Sequence, Set, Tuple, Union

from ..trace.format import LOOP, MAX_NAME, WHOLE_RUN
from ..trace.writer import Later, Row, TraceFailed, TraceWriter
from . import facts, rng
from .loop import largest_loop
from .process import arguments, prepares_data, process_key, started_by_multiprocessing
from .step_time import Mark, StepTimes, mark

_NOTES = _HELD = 1_000  # `_HELD`: blocks before the first gradient or step
EX_IOERR = 74  # the exit status of a process whose trace could not be written (sysexits.h)
OBSERVERS: List[Any] = []  # what collects through the life of a process: files, draws, imports; `flush(session, last)` writes it
_CURRENT: List["Session"] = []
_LEAVE = os._exit
_Block = Tuple[int, str, Sequence[Row], Union[bytes, Later], Optional[List[str]]]  # the arguments of `TraceWriter.block`


class StopTraining(SystemExit):
    """Raised in the training after its last wanted step. It is a SystemExit, so `except Exception` and interpreters let it through."""


class Session:
    """What the probe knows in this process."""

    def __init__(self, config: Dict[str, Any], hooks: Any = None) -> None:
        self.config = config
        self.hooks, self.torch = hooks, getattr(hooks, "torch", None)  # `torch_hooks.Hooks`, where torch is imported
        self.stem = "none"  # the trace file's name without its suffix; files that belong to it start so
        self.step = -1  # the step in progress; -1 until training starts
        self.stopped = False
        self.explicit = False  # the script says itself what a step is
        self.failed = False  # an exception that nothing caught ended the script
        self.introduced = False  # the process trains: what it is has been written
        self.broken = self._closed = self._finished = self._forked = False
        self.kept: Dict[str, int] = {}  # label of kept tensors -> how often
        self._writer: Optional[TraceWriter] = None
        self._facts: Dict[str, str] = {}  # those that are written
        self._held: Optional[List[_Block]] = []  # None once they are written
        self._steps = self._stops = self._peak = self.depth = 0  # `_peak`: bytes, since the last step; `depth`: above 0 in `own_time`
        self._mark = mark(self.torch)  # when the step in progress began
        self._own: List[Tuple[Mark, Mark]] = []  # since then, what the probe took
        self._recorded = False  # something is recorded that no step has closed yet
        self._noted: Set[Tuple[str, str]] = set()

    def start(self, forked: bool = False) -> None:
        self._forked = forked
        hello = {"nonce": self.config["nonce"], "pid": os.getpid(), "key": "main", "forked": forked}
        with self._guard():
            self._writer = TraceWriter(self.config["traces"], {**hello, "argv": [item[:MAX_NAME] for item in arguments()][:1000]})
            self.stem = self._writer.stem

    def wants(self) -> bool:
        """Whether the tensors of the step in progress are to be digested: every n-th, and the last wanted one."""
        return self.step < 0 or self.step % self.config["every"] == 0 or self.step + 1 == self.config["steps"]

    @property
    def live(self) -> bool:
        if self.stopped or self.broken or self._closed or self._writer is None:
            return False
        return (self.introduced or not prepares_data()) and not facts.capturing(self.torch)

    @contextlib.contextmanager
    def own_time(self) -> Iterator[None]:
        """Time spent in here is the probe's, not the training's; what goes wrong in here is the probe's fault, and said."""
        if self.depth:
            yield
            return
        began = self._mark
        with self._guard():
            began = mark(self.torch)  # behind the work that the training has queued
            self._peak = max(self._peak, facts.peak_bytes(self.torch))
        self.depth += 1
        try:
            with self._guard():
                yield
        finally:
            with self._guard():
                facts.reset_peak(self.torch)  # what the digests held is not the training's
                self._own.append((began, mark(self.torch)))
            self.depth -= 1

    def block(self, kind: str, rows: Sequence[Row], digests: Union[bytes, Later], values: Optional[List[str]] = None) -> None:
        """Write the digests of one kind at this moment, or hold them until the process is known to train. Called inside `own_time`."""
        if not rows or self._writer is None:
            return
        if self._held is None:
            self._writer.block(self.step, kind, rows, digests, values)
        else:
            if len(self._held) >= _HELD:  # the newest batches matter: the first step takes one of them
                del self._held[next((index for index, item in enumerate(self._held) if item[1] == "batch"), -1)]
            self._held.append((self.step, kind, rows, digests, values))

    def rng(self) -> None:
        self.block("rng", *rng.states())

    def trains(self) -> None:
        """A gradient, a step, something recorded: this process trains, and what was held is written. A forward pass alone is none of these:
        workers of every kind (a `Pool`'s, say) call modules too."""
        if self._held is not None and self._writer is not None:
            with self.own_time():
                self._introduce()
                held, self._held = self._held, None
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
        """Close the step in progress; raises StopTraining after the last wanted one, if it may be the `last`. Called outside `own_time`."""
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

    def note(self, identifier: str, message: str) -> None:
        """Something the probe could not do, in words."""
        if (identifier, message) not in self._noted and len(self._noted) < _NOTES:
            self._noted.add((identifier, message))
            self.event("note", id=identifier, message=message[:MAX_NAME])

    def event(self, name: str, **fields: Any) -> None:
        if self._writer is not None and not self._closed:
            with self._guard():
                self._writer.event(name, **fields)

    def close(self, reason: str) -> None:
        """Write what is kept to the end and the last line. Later calls do nothing."""
        if self._closed or self._writer is None:
            return
        if self.stopped:
            reason = "steps"
        elif reason == "exit" and not self.introduced:
            self._close_whole_run()
        elif self._recorded and reason != "exception":
            self._write_step()  # the last step of a script that only ever records
        self._finish()
        if self.introduced and self.hooks is not None:
            with self.own_time():
                self.hooks.at_close(reason)
        with self._guard():
            self._writer.write(wait=True)
        self.event("end", reason=reason, steps=self._steps)
        self._closed = True

    def reopen(self) -> None:
        """Go on after `close`: the program that was to take this one's place could not be started."""
        if self._closed and self._writer is not None and not self.broken:
            self._closed = False
            self.event("resumed", steps=self._steps)

    def flush(self, last: bool = False) -> None:
        """Write what the observers have collected; `last`: the trace is about to be closed."""
        if self._writer is not None and not self._closed:
            with self._guard():
                for observer in OBSERVERS:
                    observer.flush(self, last)

    def fork(self) -> None:
        if self.broken:
            return
        if self._writer is not None:
            self._writer.abandon()
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
        """A process that recorded nothing says in which loop it could have. It counts as one step where the spec names artifacts: they are
        what is compared."""
        if self._forked or started_by_multiprocessing():
            return
        with self._guard():
            self.note(LOOP, largest_loop())
        if self.config.get("artifacts") and self.torch is not None:
            self.step = 0
            self.trains()
            with self.own_time():
                self.rng()
                self.note(WHOLE_RUN, "no step was recorded: the runs are compared by their artifacts alone")
            self._write_step()

    def _write_step(self) -> None:
        with self.own_time():
            times = StepTimes(self._mark, mark(self.torch), self._own)
            self._introduce()
            if self._writer is not None:
                if self._steps == 0:
                    self._write_facts()  # the device may have been started since
                reading = self._writer.flags(self.hooks.read_flags() if self.hooks is not None else {})
                self._writer.event("step", times, step=self._steps, peak_bytes=self._peak, flags=reading)
                self._steps += 1
                self._peak, self._recorded = 0, False
        if self.config.get("factors", {}).get("watch") or "lines" in self.config:
            self.flush()
        self.step += 1
        self._begin_step()

    def _begin_step(self) -> None:
        with self._guard():
            self._mark, self._own = mark(self.torch), []

    def _introduce(self) -> None:
        if not self.introduced and self._writer is not None:
            self.introduced = True
            self._write_facts()
            self._writer.event("variables", values=facts.library_variables())
            util: Any = sys.modules.get("multiprocessing.util")
            if util is not None and started_by_multiprocessing():  # forked workers skip `atexit` and run these finalizers instead
                util.Finalize(None, close_session, exitpriority=-1000)

    def _write_facts(self) -> None:
        """Write the facts that are new, or no longer as they were written."""
        now = facts.read({**facts.BASIC, "process": process_key, **(facts.facts(self.torch) if self.torch is not None else {})})
        changed = {name: value[:MAX_NAME] for name, value in now.items() if self._facts.get(name) != value[:MAX_NAME]}
        if changed:
            self._facts.update(changed)
            self.event("facts", facts=changed)

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
            self.broken, frame = True, traceback.extract_tb(error.__traceback__)[-1]
            what = "%s:%s: %s: %s" % (os.path.basename(frame.filename), frame.lineno, type(error).__name__, error)
            sys.stderr.write("repro-gate: the probe failed at %s\n" % what)
            self.note("probe-error", what)


def open_session(config: Dict[str, Any], hooks: Any = None) -> Session:
    _CURRENT[:] = [Session(config, hooks)]
    return _CURRENT[0]


def current() -> Session:
    return _CURRENT[0]


def close_session() -> None:
    """At the interpreter's exit: say how it ended and close the trace."""
    if _CURRENT:
        current().close("exception" if current().failed else "exit")
