"""The uses of factors in one process. A use is one call that got an answer from outside the
declared inputs.

`Uses.ask` decides about each: the real answer, one that is the same in every run (pinned), or one
that differs on purpose (varied); and notes the use with its line of the workspace.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import linecache
import os
import re
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any, Callable

from ...trace.format import MAX_NAME, MAX_USES
from .. import imports, session, source_line
from ..process import arguments
from ..source_line import module_of

_OWN = __name__.split(".")[0] + "."  # the probe's own modules
# between a call and its factor
_BETWEEN = tuple(
    _OWN + "probe." + name for name in ("factors", "patch", "entropy", "children")
)
_OF_PATHS = ("genericpath", "posixpath")  # by which the probe asks as well
# Functions of the standard library that ask for whoever called them: `current_process().pid`.
_HAND_ON = ("ident", "getfqdn", "stat", "getmtime", "getctime", "getatime")
# file of the workspace and line; ("", 0): no line of the workspace is on the stack
Site = tuple[str, int]
_Sites = dict[str, "frozenset[Site] | None"]
Pinned = Callable[["Stream", Any], Any]  # given the real answer
Varied = Callable[[Any], Any]  # likewise
_Answers = tuple[dict[str, Any], list[int], Any]  # the use, how many, their digest
# The modules in which the workspace's own call of a factor may pass on its way: what they are there
# for is to hand the factor out.
_WAYS = {
    "entropy": r"pathlib|random|secrets|uuid|numpy\.random|torch\.(random|cuda\.random|mps)",
    "clock": "datetime|_pydatetime|genericpath|os|pathlib|timeit",
    "listing": "glob|os|pathlib",
    "identity": r"multiprocessing\.process|pathlib|posixpath|socket|tempfile",
    "addresses": "",
    "memory": "",
    "hashing": "multiprocessing|os|subprocess",
    "threads": r"asyncio|concurrent\.futures|multiprocessing|threading",
}
# The same for what a run finds around it.
_AROUND = r"collections\.abc|datetime|genericpath|locale|os|pathlib|posixpath|tempfile"
# environment variable: the ordinal that a process gives to a child
PROCESS_VARIABLE = "REPRO_GATE_PROCESS"
# at its end: the parent started this very process, no shell stands between
_CERTAIN = "="
NOWHERE: Site = ("", 0)
_urandom = os.urandom
_open = os.open
_close = os.close
# `on` while this thread decides about a use: what it calls meanwhile is none
_BUSY = threading.local()


class Stream:
    """Bytes that are the same in every run: SHAKE-128 over where the draw happens and how many
    happened there before."""

    def __init__(self, *key: object) -> None:
        self._key = repr(key).encode("utf-8", "surrogatepass")

    def bytes(self, count: int) -> bytes:
        """Return the first `count` bytes."""
        return hashlib.shake_128(self._key).digest(count)

    def integer(self, bits: int) -> int:
        """Return an integer of `bits` random bits, 0 <= n < 2**bits."""
        return int.from_bytes(self.bytes((bits + 7) // 8), "big") >> (-bits % 8)


class Uses:
    """The uses of all factors in one process. What is called from the training raises nothing of
    its own.

    `config` and `folders` are those of `factors.start`.
    """

    def start(self, config: dict[str, Any], folders: dict[str, str]) -> None:
        self.watch = bool(config.get("watch"))
        self.folders = folders
        self.surroundings = bool(config.get("surroundings"))
        # factor -> the sites at which it is varied, at which it is pinned; None: all
        self.vary: _Sites = dict.fromkeys(
            config.get("vary", ()),
            frozenset(map(tuple, config.get("vary_at", ()))) or None,
        )
        self._pins: _Sites = {
            factor: sites and frozenset(map(tuple, sites))
            for factor, sites in config.get("pin", {}).items()
        }
        self.ordinal = _ordinal()
        self._children = 0
        self._counts: dict[tuple[str, str, Site], int] = {}
        # uses since the last step: one for each place, factor and call
        self._open: dict[tuple[object, ...], _Answers] = {}
        self._written = 0

    def only_varies(self, factor: str) -> bool:
        """Return whether this factor is only varied, neither watched nor pinned: what cannot be
        varied is then left as it is."""
        return factor in self.vary and factor not in self._pins and not self.watch

    def wants(self, factor: str) -> bool:
        """Return whether the calls of this factor have to be wrapped."""
        return self.watch or factor in self._pins or factor in self.vary

    def pinned(self, factor: str, site: Site = NOWHERE) -> bool:
        """Return whether a use of the factor at this site gets the same answer in every run;
        without a site, whether all uses do."""
        return _holds(self._pins, factor, site)

    def wrap(
        self, factor: str, module: str, names: str, pinned: Pinned, **options: Any
    ) -> None:
        """Ask about every call of functions of a module from here on. `names` are separated by
        blanks, a method is `CLASS.METHOD`; `options` are those of `ask`."""

        def around(source: str, original: Any, *args: Any, **kwargs: Any) -> Any:
            real = functools.partial(original, *args, **kwargs)
            return self.ask(factor, source, real, pinned, **options)

        for name in names.split():
            source = f"{module}.{name}"
            imports.wrap_later(module, name, functools.partial(around, source))

    def ask(
        self,
        factor: str,
        source: str,
        real: Callable[[], Any],
        pinned: Pinned | None,
        varied: Varied | None = None,
        own: bool = False,
        content: Callable[[Any], object] = lambda answer: answer,
    ) -> Any:
        """Return the answer to one call: that of `real`, or what `pinned` or `varied` make of it
        where the configuration says so. What `real` raises passes; where the others fail, the real
        answer stands. `own`: only what the workspace's own code asks is a use. `content` is what
        counts of an answer."""
        if busy():
            return real()
        frame = asker(sys._getframe(1))
        if own and frame is not None and not inside(frame):
            # a property, or a function of `os.path`, hands the question on
            frame = frame.f_back if frame.f_code.co_name in _HAND_ON else None
        if frame is None or (own and not inside(frame)):
            return real()
        with deciding():
            answer = real()
            everywhere = self.only_varies(factor) and self.vary[factor] is None
            if varied is not None and everywhere:
                # no look at the stack: a gate run that passes pays nothing
                return varied(answer)
            with contextlib.suppress(Exception):
                site = source_line.nearest(frame)
                if of_others(frame):
                    return answer
                if pinned is not None and self.pinned(factor, site):
                    key = (factor, source, site)
                    count = self._counts[key] = self._counts.get(key, 0) + 1
                    answer = pinned(Stream(*key, self.ordinal, count), answer)
                elif varied is not None and _holds(self.vary, factor, site):
                    answer = varied(answer)
            if self.watch:
                with contextlib.suppress(Exception):
                    self.note(factor, source, content(answer))
            return answer

    def note(
        self,
        factor: str,
        source: str,
        answer: object,
        *,
        site: Site | None = None,
        direct: bool | None = None,
        outside: bool = False,
        call: str | None = None,
    ) -> None:
        """Remember a use and a digest of what came back, until the step in progress ends.
        `site` is the nearest line of the workspace, `call` what is written there: without a site,
        those of the caller. `outside`: it came from outside the process, and nothing can pin it.
        Raises nothing."""
        if not self.watch or len(self._open) >= MAX_USES:
            return
        with contextlib.suppress(Exception):
            frame = None if site else asker(sys._getframe(1))
            if of_others(frame):
                return
            file, line = site or source_line.nearest(frame)
            if direct is None:
                direct = outside or is_direct(frame, factor)
            use = {
                "step": session.current().step,
                "factor": factor,
                "source": source[:200],
                "file": file[:MAX_NAME],
                "line": line,
                "direct": direct,
                "outside": outside,
            }
            key = tuple(use.values())
            answers = self._open.get(key)
            if answers is None:
                use["call"] = (call_in(frame) if call is None else call)[:200]
                fresh: _Answers = use, [0], hashlib.blake2b(digest_size=8)
                # of two threads that come first, one is taken
                answers = self._open.setdefault(key, fresh)
            _, count, digest = answers
            count[0] += 1
            digest.update(_encoded(answer))

    def flush(self, current: session.Session, last: bool) -> None:
        """Write the uses since the last time."""
        uses = self._open
        self._open = {}
        left = max(MAX_USES - self._written, 0)
        for use, [count], digest in list(uses.values())[:left]:
            self._written += 1
            current.event("uses", **use, count=count, digest=digest.hexdigest())

    def forking(self) -> None:
        """Count a child that is about to be forked."""
        self._children += 1

    def child_variable(self, python: bool) -> dict[str, str]:
        """Return what the environment of the next child gets that is started, not forked.
        `python`: it is an interpreter, no shell."""
        self._children += 1
        ordinal = f"{self.ordinal}.{self._children}"
        return {PROCESS_VARIABLE: ordinal + _CERTAIN if python else ordinal}

    def born(self) -> None:
        """Begin anew in a forked child: the uses so far are its parent's."""
        self.ordinal = f"{self.ordinal}.{self._children}"
        self._children = 0
        self._open = {}
        self._counts = {}
        self._written = 0
        _BUSY.on = False

    def forked(self) -> None:
        """Go on: the child has a trace of its own from here on, what it used before stays."""


def _holds(factors: _Sites, factor: str, site: Site) -> bool:
    sites = factors.get(factor, frozenset())
    return sites is None or site in sites


USES = Uses()  # of this process


class Marks:
    """Names that the processes of one run tell each other: a file for each, below its traces."""

    def __init__(self, kind: str) -> None:
        self._folder = os.path.join(session.current().config["traces"], kind)
        self._own: set[str] = set()

    def _file(self, name: str) -> str:
        digest = hashlib.blake2b(os.fsencode(name), digest_size=16)
        return os.path.join(self._folder, digest.hexdigest())

    def add(self, name: str) -> None:
        if name not in self._own:
            self._own.add(name)
            os.makedirs(self._folder, exist_ok=True)
            _close(_open(self._file(name), os.O_WRONLY | os.O_CREAT, 0o600))

    def has(self, name: str) -> bool:
        return name in self._own or os.path.lexists(self._file(name))


def busy() -> bool:
    """Return whether this thread decides about a use just now: what it calls meanwhile is none."""
    return bool(getattr(_BUSY, "on", False))


@contextlib.contextmanager
def deciding() -> Iterator[None]:
    """Take what this thread calls meanwhile for nobody's use."""
    before = busy()
    _BUSY.on = True
    try:
        yield
    finally:
        _BUSY.on = before


def random_marker() -> bytes:
    """Return 8 random bytes that stand for an answer which nobody can read: a hash seed, the order
    of threads."""
    return _urandom(8)


def inside(frame: FrameType | None) -> bool:
    """Return whether the frame's code lies in the workspace; it does not where that fails."""
    with contextlib.suppress(Exception), deciding():
        return bool(frame and source_line.inside(frame.f_code.co_filename))
    return False


def asker(frame: FrameType | None) -> FrameType | None:
    """Return the frame that asked for a factor, outwards from what hands it on."""
    while frame is not None and module_of(frame).startswith(_BETWEEN):
        frame = frame.f_back
    return frame


def of_the_probe(frame: FrameType) -> bool:
    """Return whether the frame is the probe's, at work for ends of its own."""
    module = module_of(frame)
    return module.startswith(_OWN) and not module.startswith(_BETWEEN)


def of_others(frame: FrameType | None) -> bool:
    """Return whether it is not the training that asks, but the probe, the search for a module, or
    what runs a notebook."""
    caller = asker(frame)
    while caller is not None and module_of(caller) in _OF_PATHS:
        caller = asker(caller.f_back)
    if caller is not None and (of_the_probe(caller) or finds_modules(caller)):
        return True
    return source_line.of_jupyter(frame)


def finds_modules(frame: FrameType) -> bool:
    """Return whether the frame is the import system's."""
    return frame.f_code.co_filename.startswith("<frozen importlib")


def is_direct(frame: FrameType | None, factor: str) -> bool:
    """Return whether nothing but what hands this factor out lies between the frame and the
    workspace: no import, no library."""
    ways = re.compile(rf"({_WAYS.get(factor, _AROUND)})(\.|$)")
    while frame is not None and not inside(frame):
        module = module_of(frame)
        if not module.startswith(_OWN) and not ways.match(module):
            return False
        frame = frame.f_back
    return frame is not None


def call_in(frame: FrameType | None) -> str:
    """Return the call of the workspace that is in progress, as it is written, on one line. Exact
    from Python 3.11 on; empty before, and where it goes over several lines, but for an import
    statement: of that, its first line."""
    imports = False
    while frame is not None and not source_line.inside(frame.f_code.co_filename):
        imports = module_of(frame) == "importlib._bootstrap"
        frame = frame.f_back
    if frame is None:
        return ""
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
    if hasattr(frame.f_code, "co_positions"):
        first, last, start, end = next(
            itertools.islice(frame.f_code.co_positions(), frame.f_lasti // 2, None)
        )
        if first is not None and first == last:
            return line.encode()[start:end].decode("utf-8", "replace").strip()
    return line.partition("#")[0].strip() if imports else ""


def _encoded(answer: object) -> bytes:
    if isinstance(answer, (bytes, bytearray, memoryview)):
        return bytes(answer)
    if isinstance(answer, (list, tuple)):
        return b"\0".join(_encoded(item) for item in list(answer)[:10_000])
    return repr(answer)[:10_000].encode("utf-8", "surrogatepass")


def _ordinal() -> str:
    """Return the ordinal of this process, the same in every run: what its Python parent gave it. A
    shell hands its own on to all its children: which of those this is, its command line says."""
    inherited = os.environ.get(PROCESS_VARIABLE, "0")[:200]
    ordinal = inherited.rstrip(_CERTAIN)
    if ordinal == inherited:
        ordinal += "." + Stream(inherited, arguments()).bytes(8).hex()
    os.environ[PROCESS_VARIABLE] = ordinal
    return ordinal
