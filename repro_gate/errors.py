"""How the gate ends early: the errors that people see, and signals.

An error says what is wrong, where, and what to do next; it is raised where the cause is known and
printed in one place (`cli.main`).

A signal ends the gate as KeyboardInterrupt, so that what is running is stopped and what was made is
removed. Signals are held from before something is made that has to be cleaned up until that is
done, and obeyed after it, the second Ctrl-C too: `with held()` around the whole, `with obeyed()`
around the long work inside. A `finally` alone is not enough: a signal may come in it, or on the way
into it. `cli` and `github.__main__` take the signals first of all; without that, holding does
nothing.
"""

from __future__ import annotations

import signal
import sys
import threading
import traceback


class GateError(Exception):
    """An error meant for a person. `exit_code` follows the table in the README (2 usage, 3
    inconclusive).

    `reason_id` is the stable name of the error in `report.json` (`reasons[].id`), `remedy` one
    sentence that says what to do.
    """

    exit_code = 2
    reason_id = "usage"

    def __init__(self, message: str, *, remedy: str = "", reason_id: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        self.reason_id = reason_id or self.reason_id

    def diagnostics(self) -> str:
        """Return the lines to print: the message, then the remedy where there is one."""
        return self.message + (f"\n  remedy: {self.remedy}" if self.remedy else "")


class UsageError(GateError):
    """Bad arguments or a bad spec: exit code 2."""


class Inconclusive(GateError):
    """The question could not be answered (crash, timeout, no trace, missing device): exit code
    3."""

    exit_code = 3
    reason_id = "inconclusive"


def for_person(error: BaseException) -> GateError:
    """Return the error to print for one that ends the gate: of the machine (a full disk, no
    memory), an interruption, or a mistake of ours, which must not look like a finding."""
    if isinstance(error, GateError):
        return error
    if isinstance(error, KeyboardInterrupt):
        return Inconclusive(
            "interrupted", remedy="run it again", reason_id="action/interrupted"
        )
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return Inconclusive(
            f"{where}{error.strerror or error}",
            remedy="free space, or let the gate read and write there (or set TMPDIR to where it "
            "may); nothing was found out about the training",
            reason_id="action/system",
        )
    if isinstance(error, MemoryError):
        return Inconclusive(
            "the gate ran out of memory",
            remedy="use a machine with more memory; nothing was found out about the training",
            reason_id="action/system",
        )
    # a module of ours that is missing is a mistake of ours
    if isinstance(error, ModuleNotFoundError) and not (
        error.name or "repro_gate"
    ).startswith("repro_gate"):
        return UsageError(
            f"{sys.executable} has no module {error.name}, which the gate needs",
            remedy=f"install the gate and not its files alone: {sys.executable} -m pip install "
            "repro-gate",
        )
    lines = "".join(traceback.format_exception(error)).rstrip()
    why = "an error inside the gate, which says nothing about the training; please report it"
    return Inconclusive(f"{why}:\n{lines}")


ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _State:
    """Of the main thread, the only one that Python runs signal handlers in."""

    open = True  # a signal is obeyed at once
    waiting = False  # one came while they were held


def end_cleanly() -> None:
    """Take SIGINT, SIGTERM and SIGHUP."""
    _State.open = True
    _State.waiting = False
    for number in ENDING:
        signal.signal(number, _came)


def is_waiting() -> bool:
    """Return whether a signal came that is held: what waits out of mere politeness need not wait
    any longer."""
    return _State.waiting


def held() -> _Span:
    """Let signals wait inside; the first that came is obeyed at the end, as KeyboardInterrupt."""
    return _Span(opens=False)


def obeyed() -> _Span:
    """Obey signals at once again, inside `held`. Nothing is to be made inside that an outer
    `finally` does not clean up."""
    return _Span(opens=True)


def _came(*_: object) -> None:
    _State.waiting = True
    if _State.open:
        _obey()


def _obey() -> None:
    """Raise for what came. Whatever comes while that is on its way waits for the next `obeyed`, or
    for the end of the outermost `held`."""
    _State.open = _State.waiting = False
    raise KeyboardInterrupt


class _Span:
    """A stretch of the main thread in which signals wait, or do not; in other threads it does
    nothing."""

    def __init__(self, *, opens: bool) -> None:
        self._opens = opens
        self._before = True
        self._counts = threading.current_thread() is threading.main_thread()

    def __enter__(self) -> None:
        if self._counts:
            self._before = _State.open
            self._set(self._opens)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Return to what held before. After a KeyboardInterrupt signals go on waiting, so that it
        reaches whoever ends the gate."""
        if self._counts:
            is_ending = kind is not None and issubclass(kind, KeyboardInterrupt)
            self._set(self._before and not is_ending)

    def _set(self, is_open: bool) -> None:
        _State.open = is_open
        if is_open and _State.waiting:
            _obey()
