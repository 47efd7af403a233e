"""What the training reads from the programs that it starts: the output of its children.

They are watched only. A child that is a Python has the probe, and a line of its own shows there. Of
the others the output alone is seen, through a pipe or in a file of the workspace that no Python has
written; the few whose business is known by their name (`date`, `shuf`) count as uses of the clock,
of entropy and so on.
"""

from __future__ import annotations

import collections
import contextlib
import hashlib
import io
import os
import re
import stat
import sys
from types import FrameType
from typing import Any, Callable

from ...trace.format import ANY_ORDER
from .. import imports, session, source_line
from ..patch import wrap
from .use import USES, call_in, of_others

NAME = "commands"
# Whose business it is to draw, to tell the time, to tell who one is, to list: those of POSIX, GNU
# and OpenSSL. The first that fits counts.
_FIRST = (  # where a command may stand
    r"(?:^|[\n;&|(`]|\s-c|\bdo|\bthen|\bexec|\bxargs(?:\s+-\S+(?:\s+\d+)?)*|\benv(?:\s+\S+=\S*)*)\s*(?:[\w./-]+/)?"
)
_KNOWN = tuple(
    (factor, re.compile(rf"{_FIRST}(?:{words})(?=$|[\s;&|)`]){anywhere}"))
    for factor, words, anywhere in (
        (
            "entropy",
            r"shuf|uuidgen|mktemp|sort\s+(?:-\w*R\w*|--random-sort)|openssl\s+rand",
            r"|/dev/u?random\b|\$\{?RANDOM\b",
        ),
        ("clock", r"date|uptime", ""),
        ("identity", r"hostname|whoami|logname|id|tty", ""),
        ("listing", r"find|ls\s+-\w*[Uf]\w*", ""),
    )
)
_MOST_BYTES = 64 * 1024 * 1024
_MOST_LINES = 10_000  # of one child that are told one by one
_PIPES: dict[int, _Pipe] = {}  # by descriptor


class _Child:
    """A program that was started: where, what it is called, and which factor its output counts
    for. It keeps no frame, whose variables would live as long."""

    def __init__(self, text: str, frame: FrameType | None) -> None:
        self.site, self.text, self.of_others = (
            source_line.nearest(frame),
            text,
            of_others(frame),
        )
        self.call = call_in(frame) if self.site[0] else ""
        self.factor = next(
            (factor for factor, words in _KNOWN if words.search(text)), NAME
        )
        self.about = " ".join(text.split())[:120]
        self.files: set[str] = set()  # that it was handed for its output

    def note(self, source: str, answer: object) -> None:
        """Note what it gave."""
        if not self.of_others:
            USES.note(
                self.factor,
                source,
                answer,
                None,
                self.site,
                outside=True,
                call=self.call,
            )


class Children:
    """The children of this process whose output it reads."""

    def __init__(self) -> None:
        self._children: collections.deque[_Child] = collections.deque(maxlen=100)
        self._read: set[object] = set()  # files that were read, by path, time and size
        self._started = session.current().config["started"]

    def install(self) -> None:
        """Watch what starts a child, and what reads from it, from here on."""
        wrap(os, "read", _read_pipe)
        wrap(os, "system", self._in_shell)
        imports.wrap_later("subprocess", "Popen.__init__", self._popen)

    def _started_by(self, frame: FrameType, command: Any) -> _Child:
        words = [command] if isinstance(command, (str, bytes, os.PathLike)) else command
        text = " ".join(map(os.fsdecode, words)).replace("\n", " ")
        child = _Child(text, source_line.nearest_frame(frame))
        self._children.append(child)
        return child

    def _in_shell(self, original: Any, command: Any) -> Any:
        """Note `os.system`."""
        with contextlib.suppress(Exception):
            self._started_by(sys._getframe(2), command)
        return original(command)

    def _popen(self, original: Any, process: Any, *args: Any, **kwargs: Any) -> None:
        """Note `subprocess.Popen(…)`, and what is read from its pipes."""
        original(process, *args, **kwargs)
        with contextlib.suppress(Exception):  # the training gets its child all the same
            child = self._started_by(sys._getframe(2), process.args)
            for name, about in (("stdout", ""), ("stderr", " (its errors)")):
                target = getattr(kwargs.get(name), "name", None)
                if isinstance(target, str):
                    child.files.add(os.path.realpath(target))
                file = getattr(process, name)
                if file is not None:
                    setattr(
                        process,
                        name,
                        _with_note(file, _Lines(child, child.about + about)),
                    )

    def file_read(
        self, path: str, of_python: Callable[[str], bool], frame: FrameType | None
    ) -> None:
        """Note what is read from a file of the workspace, by its real path, that a child without
        the probe has written; each version of it once, at the child that it was handed to, else at
        the one whose command names it, else at the line that reads.
        `of_python` says whether a process with the probe has written a file."""
        if not source_line.inside(path):
            return
        state = os.lstat(path)
        version, name = (path, state.st_mtime_ns, state.st_size), os.path.basename(path)
        receivers = [child for child in self._children if path in child.files]
        if (
            version in self._read
            or not stat.S_ISREG(state.st_mode)
            or state.st_size > _MOST_BYTES
            or state.st_ctime < self._started
            or (not receivers and of_python(path))
        ):
            return
        self._read.add(version)
        children = receivers or [
            child for child in self._children if name in child.text
        ]
        child = (
            children[-1]
            if children
            else _Child("another program writes " + name, frame)
        )
        lines = _Lines(child, child.about)
        with open(path, "rb") as file:
            lines.add(file.read(_MOST_BYTES))
        lines.add(b"")


class _Lines:
    """Notes what is read from a child, line by line; at its end, what it is in any order."""

    def __init__(self, child: _Child, about: str) -> None:
        self._child, self._about = child, about
        self._rest = b""
        self._count = self._sum = 0
        self._over = False

    def add(self, data: bytes) -> None:
        """Add what was read; nothing at the end."""
        if self._over:
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        if not data and self._rest:
            lines = [self._rest]
        for line in lines:
            self._count += 1
            self._sum += int.from_bytes(
                hashlib.blake2b(line, digest_size=8).digest(), "big"
            )
            if self._count <= _MOST_LINES:
                self._child.note(self._about, line)
        if not data:
            self._over = True
            self._child.note(
                self._about + ANY_ORDER, f"{self._count} lines {self._sum:x}"
            )


class _Pipe(io.RawIOBase):
    """The end of a child's pipe that the training reads from, where `subprocess` put its file."""

    def __init__(self, file: Any, lines: _Lines) -> None:
        super().__init__()
        self._file, self.lines = file, lines
        _PIPES[file.fileno()] = self

    def readable(self) -> bool:
        """Return that it is."""
        return True

    def fileno(self) -> int:
        """Return the pipe's descriptor."""
        return int(self._file.fileno())

    def readinto(self, buffer: Any) -> int | None:
        """Read as a file does it; None where nothing has come yet and the pipe does not wait."""
        count: int | None = self._file.readinto(buffer)
        if count is not None and len(buffer):
            self.lines.add(bytes(buffer[:count]))
        return count

    def close(self) -> None:
        """Close the pipe."""
        if not self.closed:
            _PIPES.pop(self._file.fileno(), None)
            self._file.close()
        super().close()


def _with_note(file: Any, lines: _Lines) -> Any:
    """Return the same file as `subprocess` made it (raw, buffered or text), on top of a noted
    pipe."""
    if isinstance(file, io.TextIOWrapper):
        encoding, errors, buffering = file.encoding, file.errors, file.line_buffering
        below = _with_note(file.detach(), lines)
        return io.TextIOWrapper(below, encoding, errors, line_buffering=buffering)
    if isinstance(file, io.BufferedReader):
        return io.BufferedReader(_Pipe(file.detach(), lines))
    return _Pipe(file, lines)


def _read_pipe(original: Any, descriptor: Any, most: int) -> bytes:
    """Note `os.read`, by which `communicate` reads."""
    data = bytes(original(descriptor, most))
    pipe = _PIPES.get(descriptor) if isinstance(descriptor, int) else None
    if pipe is not None and not pipe.closed and most > 0:
        pipe.lines.add(data)
    return data
