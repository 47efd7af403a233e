"""What the training reads from the programs that it starts: the output of its children.

They are watched only. A child that is a Python has the probe, and a line of its own shows there. Of
the others the output alone is seen, through a pipe or in a file of the workspace that no Python has
written; the few whose business is known by their name (`date`, `shuf`) count as uses of the clock,
of entropy and so on.
"""

from __future__ import annotations

import collections
import hashlib
import io
import os
import re
import stat
import sys
from types import FrameType
from typing import Any, Callable, Deque, Dict, List, Optional, Set

from ...trace.format import ANY_ORDER
from .. import imports, session, source_line
from ..patch import wrap
from .use import Site, Uses

NAME = "commands"
# Whose business it is to draw, to tell the time, to tell who one is, to list: those of POSIX, GNU
# and OpenSSL. The first that fits counts.
_FIRST = (  # where a command may stand
    r"(?:^|[\n;&|(`]|\s-c|\bdo|\bthen|\bexec|\bxargs(?:\s+-\S+(?:\s+\d+)?)*|\benv(?:\s+\S+=\S*)*)\s*(?:[\w./-]+/)?"
)
_KNOWN = tuple(
    (factor, re.compile(r"%s(?:%s)(?=$|[\s;&|)`])%s" % (_FIRST, words, anywhere)))
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
_SCRIPT_BYTES, _MOST_BYTES = 64 * 1024, 64 * 1024 * 1024
_MOST_LINES = 10_000  # of one child that are told one by one
_LISTDIR = os.listdir
_CHILDREN: List["_Children"] = []  # of this process
_PIPES: Dict[int, "_Pipe"] = {}  # by descriptor


def install(uses: Uses) -> None:
    """Watch what starts a child, and what reads from it, from here on."""
    children = _Children(uses)
    _CHILDREN[:] = [children]
    wrap(os, "read", _read_pipe)
    wrap(os, "system", children.in_shell)
    imports.wrap_after("subprocess", "Popen.__init__", children.started)


def file_read(path: str, of_python: Callable[[str], bool]) -> None:
    """Note what is read from a file of the workspace, by its real path, that a child without the
    probe has written. `of_python` says whether a process with the probe has written a file."""
    if _CHILDREN and source_line.inside(path):
        _CHILDREN[0].file_read(path, of_python)


class _Child:
    """A program that was started: where, what it is called, and which factor its output counts
    for."""

    def __init__(self, command: Any, site: Site) -> None:
        self.site, self.text = site, _text(command)
        self.factor = next((factor for factor, words in _KNOWN if words.search(self.text)), NAME)
        self.about = " ".join(self.text.split("\n", 1)[0].split())[:120]


class _Children:
    """The children of this process whose output it reads."""

    def __init__(self, uses: Uses) -> None:
        self._uses = uses
        self._children: Deque[_Child] = collections.deque(maxlen=100)
        self._scripts: Dict[str, Optional[_Child]] = {}
        self._outputs: Set[str] = set()  # files that were handed to children as their output
        self._read: Set[object] = set()  # files that were read, by path, time and size
        self._started = float(session.current().config.get("started", 0.0))

    def in_shell(self, original: Any, command: Any) -> Any:
        """`os.system`."""
        self._children.append(_Child(command, source_line.nearest(sys._getframe(2))))
        return original(command)

    def started(self, original: Any, child: Any, *args: Any, **kwargs: Any) -> None:
        """`subprocess.Popen(…)`: what is read from its pipes is noted."""
        original(child, *args, **kwargs)
        try:
            frame = source_line.nearest_frame(sys._getframe(2))
            program = _Child(child.args, source_line.nearest(frame))
            self._children.append(program)
            for output in (kwargs.get("stdout"), kwargs.get("stderr")):
                if isinstance(getattr(output, "name", None), str):
                    self._outputs.add(os.path.realpath(output.name))  # type: ignore[union-attr]
            for name, about in (("stdout", ""), ("stderr", " (its errors)")):
                file = getattr(child, name)
                if file is not None:
                    lines = _Lines(self._uses, program, program.about + about, frame)
                    setattr(child, name, _with_note(file, lines.add))
        except Exception:
            return  # the training gets its child all the same

    def _writer(self, name: str) -> Optional[_Child]:
        """The child that has written a file, as far as commands and scripts tell: one that names
        it, else the last one."""
        for child in reversed(self._children):
            if name in child.text:
                return child
        if name not in self._scripts:
            self._scripts[name] = _from_script(name)
        return self._scripts[name] or (self._children[-1] if self._children else None)

    def file_read(self, path: str, of_python: Callable[[str], bool]) -> None:
        """See `file_read` above; each version of a file counts once."""
        state = os.lstat(path)
        if (
            not stat.S_ISREG(state.st_mode)
            or state.st_size > _MOST_BYTES
            or state.st_ctime < self._started
            or (path not in self._outputs and of_python(path))
        ):
            return
        version, child = (path, state.st_mtime_ns, state.st_size), None
        if version not in self._read:
            self._read.add(version)
            child = self._writer(os.path.basename(path))
        if child is not None:
            lines = _Lines(self._uses, child, child.about, None)
            lines.add(_content(path))
            lines.add(b"")


class _Pipe(io.RawIOBase):
    """The end of a child's pipe that the training reads from, where `subprocess` put its file."""

    def __init__(self, file: Any, note: Callable[[bytes], None]) -> None:
        super().__init__()
        self._file, self.on_data = file, note
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
        count = self._file.readinto(buffer)
        if count is not None and len(buffer):
            self.on_data(bytes(buffer[:count]))
        return int(count) if count is not None else None

    def close(self) -> None:
        """Close the pipe."""
        if not self.closed:
            _PIPES.pop(self._file.fileno(), None)
            self._file.close()
        super().close()


def _with_note(file: Any, note: Callable[[bytes], None]) -> Any:
    """The same file as `subprocess` made it (raw, buffered or text), on top of a noted pipe."""
    if isinstance(file, io.TextIOWrapper):
        encoding, errors, line_buffering = file.encoding, file.errors, file.line_buffering
        below = _with_note(file.detach(), note)
        return io.TextIOWrapper(
            below, encoding=encoding, errors=errors, line_buffering=line_buffering
        )
    if isinstance(file, io.BufferedReader):
        return io.BufferedReader(_Pipe(file.detach(), note))
    return _Pipe(file, note)


def _read_pipe(original: Any, descriptor: Any, most: int) -> bytes:
    """`os.read`, by which `communicate` and asyncio read a pipe."""
    data = bytes(original(descriptor, most))
    pipe = _PIPES.get(descriptor) if _PIPES and isinstance(descriptor, int) else None
    if pipe is not None and not pipe.closed and most > 0:
        pipe.on_data(data)
    return data


class _Lines:
    """Notes what is read from a child, line by line; at its end, what it is in any order."""

    def __init__(self, uses: Uses, child: _Child, about: str, frame: Optional[FrameType]) -> None:
        factor = child.factor
        self._note: Callable[[str, Any], None] = lambda source, answer: uses.note(
            factor, source, child.site, answer, frame, direct=True, outside=True
        )
        self._about = about
        self._rest = b""
        self._count = self._sum = 0

    def add(self, data: bytes) -> None:
        """What was read; nothing at the end."""
        if self._count < 0:
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        if not data and self._rest:
            lines, self._rest = [self._rest], b""
        for line in lines:
            self._count += 1
            self._sum += int.from_bytes(hashlib.blake2b(line, digest_size=8).digest(), "big")
            if self._count <= _MOST_LINES:
                self._note(self._about, line)
        if not data:
            self._note(self._about + ANY_ORDER, "%d lines %x" % (self._count, self._sum))
            self._count = -1


def _from_script(name: str) -> Optional[_Child]:
    """The line of a shell script beside the training that names a file: what ran before this
    process has written it."""
    for script in sorted(
        item for item in _LISTDIR(".") if item.endswith(".sh") or item == "Makefile"
    )[:20]:
        if source_line.inside(os.path.abspath(script)):
            for number, line in enumerate(
                _content(script)[:_SCRIPT_BYTES].decode("utf-8", "replace").splitlines(), 1
            ):
                if name in line and ">" in line and not line.lstrip().startswith("#"):
                    return _Child(line, (source_line.inside(os.path.abspath(script)), number))
    return None


def _content(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(_MOST_BYTES)
    except OSError:
        return b""


def _text(command: Any) -> str:
    """A command on one line, and below it the shell scripts of the workspace that it names: what
    they do is what it does."""
    words = [command] if isinstance(command, (str, bytes, os.PathLike)) else list(command)
    text = " ".join(
        os.fsdecode(word) for word in words if isinstance(word, (str, bytes, os.PathLike))
    )
    scripts = [
        word
        for word in text.split()[:20]
        if word.endswith(".sh") and source_line.inside(os.path.abspath(word))
    ]
    return "\n".join(
        [
            text.replace("\n", " "),
            *(_content(script)[:_SCRIPT_BYTES].decode("utf-8", "replace") for script in scripts),
        ]
    )
