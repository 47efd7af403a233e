"""What the training reads from the programs that it starts: the output of its children.

They are watched only. A child that is a Python has the probe, and a line of its own shows there. Of
the others the output alone is seen, through a pipe or in a file of the workspace that no Python has
written; the few whose business is known by their name (`date`, `shuf`) count as uses of the clock,
of entropy and so on.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import hashlib
import io
import os
import re
import stat
import sys
from types import FrameType
from typing import Any

from ...trace.format import ANY_ORDER
from .. import imports, session, source_line
from ..patch import wrap
from .use import call_in, is_marked, note, of_others

NAME = "commands"
WRITTEN = "written"  # a mark: files that processes with the probe have written
# Whose business it is to draw, to tell the time, to tell who one is, to list: those of POSIX, GNU
# and OpenSSL. The first that fits counts.
_FIRST = (  # where a command may stand
    r"(?:^|[\n;&|(`]|\s-c|\bdo|\bthen|\bexec|\bxargs(?:\s+-\S+(?:\s+\d+)?)*|\benv(?:\s+\S+=\S*)*)\s*(?:[\w./-]+/)?"
)
_RANDOM = r"shuf|uuidgen|mktemp|sort\s+(?:-\w*R\w*|--random-sort)|openssl\s+rand"
_KNOWN = {
    factor: re.compile(rf"{_FIRST}(?:{words})(?=$|[\s;&|)`]){anywhere}")
    for factor, words, anywhere in (
        ("entropy", _RANDOM, r"|/dev/u?random\b|\$\{?RANDOM\b"),
        ("clock", "date|uptime", ""),
        ("identity", "hostname|whoami|logname|id|tty", ""),
        ("listing", r"find|ls\s+-\w*[Uf]\w*", ""),
    )
}
_MOST_BYTES = 64 * 1024 * 1024
_MOST_LINES = 10_000  # of one child that are told one by one
_PIPES: dict[int, _Pipe] = {}  # by descriptor
_READ: set[object] = set()  # files that were read, by path, time and size


class _Child:
    """A program that was started: what it is called, and what notes its output, for the factor
    that it counts for. It keeps no frame, whose variables would live as long."""

    def __init__(self, text: str, frame: FrameType | None) -> None:
        self.text = text
        self.about = " ".join(text.split())[:120]
        known = (factor for factor, words in _KNOWN.items() if words.search(text))
        self.note = functools.partial(
            note,
            next(known, NAME),
            site=source_line.nearest(frame),
            call=call_in(frame),
            outside=True,
        )
        self.files: set[str] = set()  # that it was handed for its output


_CHILDREN: collections.deque[_Child] = collections.deque(maxlen=100)


def install() -> None:
    """Watch what starts a child, and what reads from it, from here on."""
    wrap(os, "read", _read_pipe)
    wrap(os, "system", _in_shell)
    imports.wrap_later("subprocess", "Popen.__init__", _popen)


def _started_by(command: Any) -> _Child | None:
    words = [command] if isinstance(command, (str, bytes, os.PathLike)) else command
    text = " ".join(map(os.fsdecode, words)).replace("\n", " ")
    frame = sys._getframe(1)
    if of_others(frame):
        return None
    _CHILDREN.append(_Child(text, source_line.nearest_frame(frame)))
    return _CHILDREN[-1]


def _in_shell(original: Any, command: Any) -> Any:
    """Note `os.system`."""
    with contextlib.suppress(Exception):
        _started_by(command)
    return original(command)


def _popen(original: Any, process: Any, *args: Any, **kwargs: Any) -> None:
    """Note `subprocess.Popen(…)`, and what is read from its pipes."""
    original(process, *args, **kwargs)
    with contextlib.suppress(Exception):  # the training gets its child all the same
        child = _started_by(process.args)
        if child is None:
            return
        for name, about in (("stdout", ""), ("stderr", " (its errors)")):
            target = getattr(kwargs.get(name), "name", None)
            if isinstance(target, str):
                child.files.add(os.path.realpath(target))
            file = getattr(process, name)
            if file is not None:
                lines = _Lines(child, child.about + about)
                setattr(process, name, _with_note(file, lines))


def file_read(path: str, frame: FrameType) -> None:
    """Note what is read from a file of the workspace, by its real path, that a child without
    the probe has written; each version of it once, at the child that it was handed to, else at
    the one whose command names it, else at the line that reads."""
    if not source_line.inside(path) or of_others(frame):
        return
    state = os.lstat(path)
    version = path, state.st_mtime_ns, state.st_size
    is_small = stat.S_ISREG(state.st_mode) and state.st_size <= _MOST_BYTES
    is_old = state.st_ctime < session.current().config["started"] or version in _READ
    receivers = [child for child in _CHILDREN if path in child.files]
    if not is_small or is_old or (not receivers and is_marked(WRITTEN, path)):
        return
    _READ.add(version)
    name = os.path.basename(path)
    namers = [child for child in _CHILDREN if name in child.text]
    other = _Child("another program writes " + name, frame)
    child = (receivers or namers or [other])[-1]
    lines = _Lines(child, child.about)
    with open(path, "rb") as file:
        lines.add(file.read(_MOST_BYTES))
    lines.add(b"")


class _Lines:
    """Notes what is read from a child, line by line; at its end, what it is in any order."""

    def __init__(self, child: _Child, about: str) -> None:
        self._note = child.note
        self._about = about
        self._rest = b""
        self._count = self._sum = 0
        self._over = False

    def add(self, data: bytes) -> None:
        """Add what was read; nothing at the end."""
        if self._over:
            return
        self._over = not data
        *lines, self._rest = (self._rest + data).split(b"\n")
        if self._over and self._rest:
            lines = [self._rest]
        for line in lines:
            self._count += 1
            digest = hashlib.blake2b(line, digest_size=8).digest()
            self._sum += int.from_bytes(digest, "big")
            if self._count <= _MOST_LINES:
                self._note(self._about, line)
        if self._over:
            self._note(self._about + ANY_ORDER, (self._count, self._sum))


class _Pipe(io.FileIO):
    """The end of a child's pipe that the training reads from, in the place of `subprocess`'s own
    file."""

    # which call `readinto`
    read = io.RawIOBase.read  # type: ignore[assignment]
    readall = io.RawIOBase.readall

    def __init__(self, file: Any, lines: _Lines) -> None:
        super().__init__(os.dup(file.fileno()))
        file.close()
        self.lines = lines
        _PIPES[self.fileno()] = self

    def readinto(self, buffer: Any) -> int | None:
        """Read as a file does it; None if nothing has come yet and the pipe does not wait."""
        count: int | None = super().readinto(buffer)
        if count is not None and len(buffer):
            self.lines.add(bytes(buffer[:count]))
        return count


def _with_note(file: Any, lines: _Lines) -> Any:
    """Return the same file as `subprocess` made it (raw, buffered or text), on top of a noted
    pipe."""
    if isinstance(file, io.TextIOWrapper):
        options = file.encoding, file.errors, None, file.line_buffering
        return io.TextIOWrapper(_with_note(file.detach(), lines), *options)
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
