"""What the training reads from the programs that it starts: the output of its children.

A child that is a Python has the probe, and a line of its own shows there. Of the others the output
alone is seen, through a pipe or in a file of the workspace that no Python has written; the few
whose business is known by their name (`date`, `shuf`) count as uses of the clock, of entropy and so
on. Pinned, the children run, and the training reads what the first run of the pair read.
"""

from __future__ import annotations

import collections
import functools
import hashlib
import os
import re
import stat
import sys
import threading
from types import FrameType
from typing import Any, Callable, Deque, Dict, List, Optional, Set

from ...trace.format import ANY_ORDER
from .. import imports, session, source_line
from ..patch import wrap
from . import pipes
from .recording import MAX_BYTES, Recording, Tap, recording_of
from .use import Site, Uses

NAME, PARALLEL = "commands", "parallel"
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
# that the output of a child may count for
_FACTORS = frozenset((NAME, PARALLEL, *(factor for factor, _ in _KNOWN)))
_SCRIPT_BYTES = 64 * 1024
_MOST_LINES = 10_000  # of one child that are told one by one
_LISTDIR = os.listdir
_SPAWNS: List["_Spawns"] = []  # of this process, where they are watched or pinned


def wanted(config: Dict[str, Any]) -> bool:
    """Whether the output of children is to be watched or pinned."""
    return bool(config.get("watch")) or not _FACTORS.isdisjoint(config.get("pin", ()))


def install(uses: Uses) -> None:
    """Wrap what starts a child and what reads from it."""
    spawns = _Spawns(uses, recording_of(uses.config))
    _SPAWNS[:] = [spawns]
    wrap(os, "read", pipes.read)
    wrap(os, "system", spawns.in_shell)
    imports.after_import(
        "subprocess", lambda module: wrap(module.Popen, "__init__", spawns.started)
    )


def written_by_child(path: str, of_python: Callable[[str], bool]) -> str:
    """The path to read in place of that of a file in the workspace: another where a child without
    the probe has written it and the factor is pinned at the line that started the child.
    `of_python` says whether a process with the probe has written a file."""
    return _SPAWNS[0].file(path, of_python) if _SPAWNS else path


class _Child:
    """A program that was started: where, what it is called, and which factor its output counts
    for."""

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
        self._versions: Dict[
            str, List[Any]
        ] = {}  # path -> what was read there, by its time and size
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
        """The child that has written a file, as far as commands and scripts tell: one that names
        it, else the last one."""
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
        versions, signature = (
            self._versions.setdefault(real, []),
            (state.st_mtime_ns, state.st_size),
        )
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
        copy = os.path.join(
            self._folder,
            "%d-%d-%s" % (os.getpid(), versions.index(signature), os.path.basename(real)),
        )
        with open(copy, "wb") as file:
            file.write(held)
        return copy

    def started(self, original: Any, child: Any, *args: Any, **kwargs: Any) -> None:
        """`subprocess.Popen(…)`: its pipes are read through a tap."""
        original(child, *args, **kwargs)
        try:
            self._tapped(child, kwargs, source_line.nearest_frame(sys._getframe(2)))
        except Exception:
            return  # the training gets its child all the same

    def _tapped(self, child: Any, kwargs: Dict[str, Any], frame: Optional[FrameType]) -> None:
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
                note = (
                    _Lines(self._uses, program.factor, source, program.site, frame).add
                    if self._uses.watch
                    else None
                )
                setattr(child, name, pipes.tapped(file, tap, note))
        if pinned and self._recording.replays:
            child.wait = functools.partial(pipes.wait, child, child.wait)


class _Lines:
    """Notes what is read from a child, line by line; at its end, what it is in any order."""

    def __init__(
        self, uses: Uses, factor: str, about: str, site: Site, frame: Optional[FrameType]
    ) -> None:
        self._note: Callable[[str, Any], None] = lambda source, answer: uses.note(
            factor, source, site, answer, frame, direct=True
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
            return file.read(MAX_BYTES)
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
