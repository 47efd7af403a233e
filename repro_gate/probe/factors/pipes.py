"""The end of a child's pipe that the training reads from, with a tap on it. It stands where
`subprocess` put the file that it made."""

from __future__ import annotations

import _thread
import functools
import io
import os
from typing import Any, Callable, Dict, Optional

from .recording import Tap, readable

_PIPES: Dict[int, "_Pipe"] = {}  # by descriptor: `communicate` and asyncio read from that
_REAL_READ, _START = os.read, _thread.start_new_thread


class _Pipe(io.RawIOBase):
    """The end of a pipe that the training reads from."""

    def __init__(
        self, file: Any, tap: Optional[Tap], note: Optional[Callable[[bytes], None]]
    ) -> None:
        super().__init__()
        self._file, self._tap, self._note = file, tap, note
        self.mode = "rb"
        _PIPES[file.fileno()] = self

    @property
    def name(self) -> int:
        """The descriptor, as of any file that was opened by one."""
        return self.fileno()

    def readable(self) -> bool:
        """It is."""
        return True

    def fileno(self) -> int:
        """The pipe's descriptor."""
        return int(self._file.fileno())

    def readinto(self, buffer: Any) -> Optional[int]:
        """As a file does it; None where nothing has come yet and the pipe does not wait."""
        try:
            data = self.receive(functools.partial(_REAL_READ, self.fileno()), len(buffer))
        except BlockingIOError:
            return None
        buffer[: len(data)] = data
        return len(data)

    def receive(self, real: Callable[[int], bytes], most: int) -> bytes:
        """What the training gets of it next."""
        data = (
            real(most)
            if self._tap is None
            else self._tap.read(real, functools.partial(readable, self.fileno()), most)
        )
        if self._note is not None and most > 0:
            self._note(data)
        return data

    def close(self) -> None:
        """Close the pipe."""
        if not self.closed:
            _PIPES.pop(self._file.fileno(), None)
            self._file.close()
        super().close()


def wait(child: Any, original: Any, timeout: Optional[float] = None) -> Any:
    """`Popen.wait` in a replay: the training has read all that it wants, so what the child still
    prints is thrown away."""
    for file in (child.stdout, child.stderr):
        if file is not None and not file.closed:
            _START(_drain, (os.dup(file.fileno()),))
    return original(timeout)


def _drain(descriptor: int) -> None:
    try:
        while _REAL_READ(descriptor, 1 << 16):
            pass
    except OSError:
        pass
    finally:
        os.close(descriptor)


def read(original: Any, descriptor: Any, most: int) -> bytes:
    pipe = _PIPES.get(descriptor) if _PIPES and isinstance(descriptor, int) else None
    if pipe is None or pipe.closed:
        return bytes(original(descriptor, most))
    return pipe.receive(functools.partial(original, descriptor), most)


def tapped(file: Any, tap: Optional[Tap], note: Optional[Callable[[bytes], None]]) -> Any:
    """The same file as `subprocess` made it (raw, buffered or text), on top of a tap."""
    if isinstance(file, io.TextIOWrapper):
        encoding, errors, line_buffering = file.encoding, file.errors, file.line_buffering
        below = tapped(file.detach(), tap, note)
        return io.TextIOWrapper(
            below, encoding=encoding, errors=errors, line_buffering=line_buffering
        )
    if isinstance(file, io.BufferedReader):
        return io.BufferedReader(_Pipe(file.detach(), tap, note))
    return _Pipe(file, tap, note)
