"""What the training reads from the programs that it starts: the output of its children.

A child that is a Python has the probe, and a line of its own shows there. Of the others the output alone is seen, through a pipe or in a
file of the workspace that no Python has written; the few whose business is known by their name (`date`, `shuf`) count as uses of the clock,
of entropy and so on. Pinned, the children run, and the training reads what the first run of the pair read.
"""

from __future__ import annotations

import _thread
import collections
import functools
import hashlib
import io
import os
import re
import stat
import sys
import threading
from types import FrameType
from typing import Any, Callable, Deque, Dict, List, Optional, Set

from ...trace.format import ANY_ORDER
from .. import imports, session, source_line
from .patching import replace
from .recording import MAX_BYTES, Recording, Tap, readable, recording_of
from .use import Site, Uses

NAME, PARALLEL = "commands", "parallel"
# Whose business it is to draw, to tell the time, to tell who one is, to list: those of POSIX, GNU and OpenSSL. The first that fits counts.
_FIRST = (  # where a command may stand
    r"(?:^|[\n;&|(`]|\s-c|\bdo|\bthen|\bexec|\bxargs(?:\s+-\S+(?:\s+\d+)?)*|\benv(?:\s+\S+=\S*)*)\s*(?:[\w./-]+/)?"
)
_KNOWN = tuple(
    (factor, re.compile(r"%s(?:%s)(?=$|[\s;&|)`])%s" % (_FIRST, words, anywhere)))
    for factor, words, anywhere in (
        ("entropy", r"shuf|uuidgen|mktemp|sort\s+(?:-\w*R\w*|--random-sort)|openssl\s+rand", r"|/dev/u?random\b|\$\{?RANDOM\b"),
        ("clock", r"date|uptime", ""),
        ("identity", r"hostname|whoami|logname|id|tty", ""),
        ("listing", r"find|ls\s+-\w*[Uf]\w*", ""),
    )
)
FACTORS = (NAME, PARALLEL, *(factor for factor, _ in _KNOWN))  # that the output of a child may count for
_SCRIPT_BYTES = 64 * 1024
_MOST_LINES = 10_000  # of one child that are told one by one
_SPAWNS: List["_Spawns"] = []  # of this process, where they are watched or pinned
_PIPES: Dict[int, "_Pipe"] = {}  # by descriptor: `communicate` and asyncio read from that


def install(uses: Uses) -> None:
    """Wrap what starts a child and what reads from it."""
    spawns = _Spawns(uses, recording_of(uses.config))
    _SPAWNS[:] = [spawns]
    replace(os, "read", _read)
    replace(os, "system", spawns.in_shell)
    imports.after_import("subprocess", lambda module: replace(module.Popen, "__init__", spawns.started))


def written_by_child(path: str, of_python: Callable[[str], bool]) -> str:
    """The path to read in place of that of a file in the workspace: another where a child without the probe has written it and the factor
    is pinned at the line that started the child. `of_python` says whether a process with the probe has written a file."""
    return _SPAWNS[0].file(path, of_python) if _SPAWNS else path


class _Child:
    """A program that was started: where, what it is called, and which factor its output counts for."""

    def __init__(self, command: Any, site: Site) -> None:
        self.site, self.text = site, _text(command)
        self.factor = next((factor for factor, words in _KNOWN if words.search(self.text)), NAME)
        self.about = " ".join(self.text.split("\n", 1)[0].split())[:120]


class _Spawns:
    """The children of this process whose output it reads."""

    def __init__(self, uses: Uses, recording: Recording) -> None:
        self._uses, self._recording = uses, recording
        self._counts: Dict[Any, int] = {}
        self._children: Deque[_Child] = collections.deque(maxlen=100)
        self._scripts: Dict[str, Optional[_Child]] = {}
        self._outputs: Set[str] = set()  # files that were handed to children as their output
        self._versions: Dict[str, List[Any]] = {}  # path -> what was read there, by its time and size
        self._started = float(session.current().config.get("started", 0.0))
        self._folder = os.path.join(session.current().config["traces"], "outside")

    def in_shell(self, original: Any, command: Any) -> Any:
        """`os.system`."""
        self._children.append(_Child(command, source_line.nearest(sys._getframe(2))))
        return original(command)

    def pinned(self, child: _Child) -> bool:
        """Whether the training gets the same output of it in both runs of a pair."""
        return any(self._uses.pinned(name, child.site) for name in (NAME, PARALLEL, child.factor))

    def _writer(self, name: str) -> Optional[_Child]:
        """The child that has written a file, as far as commands and scripts tell: one that names it, else the last one."""
        for child in reversed(self._children):
            if name in child.text:
                return child
        if name not in self._scripts:
            self._scripts[name] = _from_script(name)
        return self._scripts[name] or (self._children[-1] if self._children else None)

    def file(self, path: str, of_python: Callable[[str], bool]) -> str:
        """Note what a child has written, and replay it; see `written_by_child`."""
        real = os.path.realpath(path)
        try:
            state = os.lstat(real)
        except OSError:
            return path
        mine = state.st_ctime < self._started or (real not in self._outputs and of_python(real))
        if mine or not stat.S_ISREG(state.st_mode) or state.st_size > MAX_BYTES:
            return path
        child = self._writer(os.path.basename(real))
        if child is None:
            return path
        versions, signature = self._versions.setdefault(real, []), (state.st_mtime_ns, state.st_size)
        new = signature not in versions
        if new:
            versions.append(signature)
        key = ("written", source_line.inside(real), versions.index(signature))
        held = self._recording.given(key) if self.pinned(child) else None
        content = _content(real) if held is None else held
        if new and self._uses.watch:
            lines = _Lines(self._uses, child.factor, child.about, child.site, None)
            lines.add(content)
            lines.add(b"")
        if held is None:
            if new and self.pinned(child) and not self._recording.replays:
                self._recording.keep(key, content, path, whole=True)
            return path
        os.makedirs(self._folder, exist_ok=True)
        copy = os.path.join(self._folder, "%d-%d-%s" % (os.getpid(), versions.index(signature), os.path.basename(real)))
        with open(copy, "wb") as file:
            file.write(held)
        return copy

    def started(self, original: Any, child: Any, *args: Any, **kwargs: Any) -> None:
        """`subprocess.Popen(…)`: its pipes are read through a tap."""
        original(child, *args, **kwargs)
        frame = source_line.nearest_frame(sys._getframe(2))
        program = _Child(child.args, source_line.nearest(frame))
        self._children.append(program)
        for output in (kwargs.get("stdout"), kwargs.get("stderr")):
            if isinstance(getattr(output, "name", None), str):
                self._outputs.add(os.path.realpath(output.name))  # type: ignore[union-attr]
        pinned = self.pinned(program)
        if (child.stdout is None and child.stderr is None) or not (pinned or self._uses.watch):
            return
        alone = threading.current_thread() is threading.main_thread()
        key = ("command", program.site, self._uses.ordinal, "" if alone else program.text)
        count = self._counts[key] = self._counts.get(key, 0) + 1
        for name in ("stdout", "stderr"):
            file = getattr(child, name)
            if file is not None:
                tap = Tap(self._recording, (*key, count, name), program.about) if pinned else None
                source = program.about if name == "stdout" else program.about + " (its errors)"
                note = _Lines(self._uses, program.factor, source, program.site, frame) if self._uses.watch else None
                setattr(child, name, _tapped(file, tap, note))
        if pinned and self._recording.replays:
            child.wait = functools.partial(_wait, child, child.wait)


class _Lines:
    """Notes what is read from a child, line by line; at its end, what it is in any order."""

    def __init__(self, uses: Uses, factor: str, about: str, site: Site, frame: Optional[FrameType]) -> None:
        self._note: Callable[[str, Any], None] = lambda source, answer: uses.note(factor, source, site, answer, frame)
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


class _Pipe(io.RawIOBase):
    """The end of a pipe that the training reads from."""

    def __init__(self, file: Any, tap: Optional[Tap], note: Optional[_Lines]) -> None:
        super().__init__()
        self._file, self._tap, self._lines = file, tap, note
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
        data = real(most) if self._tap is None else self._tap.read(real, functools.partial(readable, self.fileno()), most)
        if self._lines is not None and most > 0:
            self._lines.add(data)
        return data

    def close(self) -> None:
        """Close the pipe."""
        if not self.closed:
            _PIPES.pop(self._file.fileno(), None)
            self._file.close()
        super().close()


_REAL_READ, _LISTDIR, _START = os.read, os.listdir, _thread.start_new_thread


def _wait(child: Any, original: Any, timeout: Optional[float] = None) -> Any:
    """`Popen.wait` in a replay: the training has read all that it wants, so what the child still prints is thrown away."""
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


def _read(original: Any, descriptor: Any, most: int) -> bytes:
    pipe = _PIPES.get(descriptor) if _PIPES and isinstance(descriptor, int) else None
    if pipe is None or pipe.closed:
        return bytes(original(descriptor, most))
    return pipe.receive(functools.partial(original, descriptor), most)


def _tapped(file: Any, tap: Optional[Tap], note: Optional[_Lines]) -> Any:
    """The same file as `subprocess` made it (raw, buffered or text), on top of a tap."""
    if isinstance(file, io.TextIOWrapper):
        encoding, errors, line_buffering = file.encoding, file.errors, file.line_buffering
        below = _tapped(file.detach(), tap, note)
        return io.TextIOWrapper(below, encoding=encoding, errors=errors, line_buffering=line_buffering)
    if isinstance(file, io.BufferedReader):
        return io.BufferedReader(_Pipe(file.detach(), tap, note))
    return _Pipe(file, tap, note)


def _from_script(name: str) -> Optional[_Child]:
    """The line of a shell script beside the training that names a file: what ran before this process has written it."""
    for script in sorted(item for item in _LISTDIR(".") if item.endswith(".sh") or item == "Makefile")[:20]:
        if source_line.inside(os.path.abspath(script)):
            for number, line in enumerate(_content(script)[:_SCRIPT_BYTES].decode("utf-8", "replace").splitlines(), 1):
                if name in line and ">" in line and not line.lstrip().startswith("#"):
                    return _Child(line, (source_line.inside(os.path.abspath(script)), number))
    return None


def _content(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(MAX_BYTES)
    except OSError:
        return b""


def _text(command: Any) -> str:
    """A command on one line, and below it the shell scripts of the workspace that it names: what they do is what it does."""
    words = [command] if isinstance(command, (str, bytes, os.PathLike)) else list(command)
    text = " ".join(os.fsdecode(word) for word in words if isinstance(word, (str, bytes, os.PathLike)))
    scripts = [word for word in text.split()[:20] if word.endswith(".sh") and source_line.inside(os.path.abspath(word))]
    return "\n".join([text.replace("\n", " "), *(_content(script)[:_SCRIPT_BYTES].decode("utf-8", "replace") for script in scripts)])
