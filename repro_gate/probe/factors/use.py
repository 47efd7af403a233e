"""The uses of factors in one process. A use is one call that got an answer from outside the
declared inputs.

`Uses.ask` decides about each: the real answer, one that is the same in every run (pinned), or one
that differs on purpose (varied); and notes the use with its line of the workspace.
"""

from __future__ import annotations

import hashlib
import itertools
import linecache
import os
import re
import sys
import threading
from types import FrameType
from typing import Any, Callable, Dict, FrozenSet, List, Optional, Tuple

from ...trace.format import MAX_NAME, MAX_USES
from .. import session, source_line
from ..process import arguments

_OWN = __name__.split(".")[0] + "."  # the probe's own modules
# between a call and its factor
_BETWEEN = tuple(_OWN + "probe." + name for name in ("factors", "patch", "entropy", "children"))
# file of the workspace and line; ("", 0): no line of the workspace is on the stack
Site = Tuple[str, int]
_Answers = Tuple[List[int], Any, str]  # how many, their digest, the call
# The modules in which the workspace's own call of a factor may pass on its way: what they are there
# for is to hand the factor out.
_WAYS = {
    "entropy": r"pathlib|random|secrets|uuid|numpy\.random|torch\.(random|cuda\.random|mps)",
    "clock": "datetime|_pydatetime|genericpath|os|pathlib|timeit",
    "listing": "glob|os|pathlib",
    "identity": "pathlib|posixpath|tempfile",
    "addresses": "",
    "memory": "",
    "hashing": "multiprocessing|os|subprocess",
    "threads": r"asyncio|concurrent\.futures|multiprocessing|threading",
}
# The same for what a run finds around it.
_AROUND = r"collections\.abc|datetime|genericpath|locale|os|pathlib|posixpath|tempfile"
# environment variable: the ordinal that a process gives to a child
PROCESS_VARIABLE = "REPRO_GATE_PROCESS"
_CERTAIN = "="  # at its end: the parent started this very process, no shell stands between
_NOWHERE: Site = ("", 0)
_NONE = object()
_urandom = os.urandom
# `on` while this thread decides about a use: what it calls meanwhile is none
_BUSY = threading.local()


class Stream:
    """Bytes that are the same in every run: SHAKE-128 over where the draw happens and how many
    happened there before."""

    def __init__(self, *key: object) -> None:
        self._key = repr(key).encode("utf-8", "surrogatepass")

    def bytes(self, count: int) -> bytes:
        """The first `count` bytes."""
        return hashlib.shake_128(self._key).digest(count)

    def integer(self, bits: int) -> int:
        """An integer of `bits` random bits, 0 <= n < 2**bits."""
        return int.from_bytes(self.bytes((bits + 7) // 8), "big") >> (-bits % 8)


class Uses:
    """The uses of all factors in one process. What is called from the training raises nothing of
    its own.

    `config` is that of `factors.start`.
    """

    def start(self, config: Dict[str, Any]) -> None:
        self.watch = bool(config.get("watch"))
        self.vary = frozenset(config.get("vary", ()))
        # empty: wherever it is asked for
        self._vary_at = frozenset(map(tuple, config.get("vary_at", ())))
        self._pins: Dict[str, Optional[FrozenSet[Site]]] = {
            factor: None if sites is None else frozenset((file, line) for file, line in sites)
            for factor, sites in config.get("pin", {}).items()
        }
        self.ordinal = _ordinal()
        self._children = 0
        self._counts: Dict[Tuple[str, str, Site], int] = {}
        # uses since the last step that are told as one
        self._open: Dict[Any, _Answers] = {}
        self._said = 0

    def only_varies(self, factor: str) -> bool:
        """Whether nothing but varied answers of this factor is asked for: what cannot be varied is
        then left as it is."""
        return factor in self.vary and factor not in self._pins and not self.watch

    def wants(self, factor: str) -> bool:
        """Whether the calls of this factor have to be wrapped."""
        return self.watch or factor in self._pins or factor in self.vary

    def pinned(self, factor: str, site: Site) -> bool:
        """Whether a use of the factor at this site gets the same answer in every run."""
        sites = self._pins.get(factor, frozenset())
        return sites is None or site in sites

    def names_sites(self, factor: str) -> bool:
        """Whether the factor is pinned at single lines only."""
        return bool(self._pins.get(factor))

    def ask(
        self,
        factor: str,
        source: str,
        real: Callable[[], Any],
        pinned: Optional[Callable[[Stream], Any]] = None,
        varied: Optional[Callable[[], Any]] = None,
        frame: Optional[FrameType] = None,
        own: bool = False,
    ) -> Any:
        """The answer to one call: `pinned` or `varied` where the configuration says so, else
        `real`. What `real` raises passes; where `pinned` or `varied` raise, the real answer is
        given. `frame` is the caller's. `own`: only what the workspace's own code asks is a
        use."""
        if busy() or (own and outside(frame)):
            return real()
        if varied is not None and self.only_varies(factor):
            return varied()  # no look at the stack: a gate run that passes pays nothing
        frame = frame if frame is not None else sys._getframe(3)  # above the factor, and `wrap`
        _BUSY.on = True
        try:
            site, answer = _NOWHERE, _NONE
            try:
                if not of_others(frame):
                    site = source_line.nearest(frame)
                    if pinned is not None and self.pinned(factor, site):
                        key = (factor, source, site)
                        count = self._counts[key] = self._counts.get(key, 0) + 1
                        answer = pinned(Stream(*key, self.ordinal, count))
                    elif varied is not None and factor in self.vary:
                        answer = varied() if not self._vary_at or site in self._vary_at else _NONE
            except Exception:
                answer = _NONE
            if answer is _NONE:
                answer = real()
            self.note(factor, source, answer, frame, site)
        finally:
            _BUSY.on = False
        return answer

    def note(
        self,
        factor: str,
        source: str,
        answer: object,
        frame: Optional[FrameType],
        site: Optional[Site] = None,
        direct: Optional[bool] = None,
        outside: bool = False,
        call: Optional[str] = None,
    ) -> None:
        """Remember a use and a digest of what came back, until the step in progress ends.
        `site` is the nearest line of the workspace, `call` what is written there; `outside`: it
        came from outside the process, and nothing can pin it. Raises nothing."""
        if not self.watch or len(self._open) >= MAX_USES:
            return
        try:
            if of_others(frame):
                return
            site = source_line.nearest(frame) if site is None else site
            direct = is_direct(frame, factor) if direct is None else direct
            key = (session.current().step, factor, source, site, direct, outside)
            found = self._open.get(key)
            if found is None:
                if call is None:
                    call = call_in(frame) if site[0] else ""
                fresh: _Answers = [0], hashlib.blake2b(digest_size=8), call
                found = self._open.setdefault(key, fresh)
            count, digest, _ = found
            count[0] += 1
            digest.update(_encoded(answer))
        except Exception:
            return

    def flush(self, current: "session.Session", last: bool) -> None:
        """Write the uses since the last time."""
        uses, self._open = self._open, {}
        left = max(MAX_USES - self._said, 0)
        for key, ([count], digest, call) in list(uses.items())[:left]:
            step, factor, source, (file, line), direct, outside = key
            self._said += 1
            current.event(
                "uses",
                step=step,
                factor=factor,
                source=source[:200],
                file=file[:MAX_NAME],
                line=line,
                call=call[:200],
                direct=direct,
                outside=outside,
                count=count,
                digest=digest.hexdigest(),
            )

    def forking(self) -> None:
        """A child is about to be forked."""
        self._children += 1

    def child_variable(self, python: bool) -> Dict[str, str]:
        """What the environment of the next child gets that is started, not forked. `python`: it is
        an interpreter, no shell."""
        self._children += 1
        return {
            PROCESS_VARIABLE: "%s.%d%s" % (self.ordinal, self._children, _CERTAIN if python else "")
        }

    def born(self) -> None:
        """This is a forked child: the uses so far are its parent's."""
        self.ordinal = "%s.%d" % (self.ordinal, self._children)
        self._children, self._open, self._counts, self._said = 0, {}, {}, 0
        _BUSY.on = False

    def forked(self) -> None:
        """The child has a trace of its own from here on; what it used before stays."""


USES = Uses()  # of this process


def busy() -> bool:
    """Whether this thread decides about a use just now: what it calls meanwhile is none."""
    return bool(getattr(_BUSY, "on", False))


def site_of(frame: Optional[FrameType]) -> Site:
    """The nearest line of the workspace from the frame outwards. Raises nothing."""
    try:
        return source_line.nearest(frame)
    except Exception:
        return _NOWHERE


def unknowable() -> bytes:
    """What stands for an answer that is another one in each run, and that nobody can read: a hash
    seed, the order of threads."""
    return _urandom(8)


def outside(frame: Optional[FrameType]) -> bool:
    """Return whether the frame's code lies outside the workspace."""
    return frame is None or _decided(lambda: not source_line.inside(frame.f_code.co_filename))


def indirect(frame: Optional[FrameType], factor: str) -> bool:
    """Return whether a library asks, for ends of its own: names of sockets, locks and files that
    would break were they pinned."""
    return _decided(lambda: not is_direct(frame, factor))


def _decided(decide: Callable[[], bool]) -> bool:
    """Return what `decide` finds, True if it fails. What it asks meanwhile is nobody's use."""
    if busy():
        return True
    _BUSY.on = True
    try:
        return decide()
    except Exception:
        return True
    finally:
        _BUSY.on = False


def of_others(frame: Optional[FrameType]) -> bool:
    """Return whether it is not the training that asks, but the probe, or what runs a notebook."""
    module, caller = _OWN, frame
    while caller is not None and module.startswith(_OWN):
        module = str(caller.f_globals.get("__name__", ""))
        if module.startswith(_OWN) and not module.startswith(_BETWEEN):
            return True
        caller = caller.f_back
    return source_line.of_jupyter(frame)


def is_direct(frame: Optional[FrameType], factor: str) -> bool:
    """Whether nothing but what hands this factor out lies between the frame and the workspace: no
    import, no library."""
    ways = re.compile(r"(%s)(\.|$)" % _WAYS.get(factor, _AROUND))
    while frame is not None and not source_line.inside(frame.f_code.co_filename):
        module = str(frame.f_globals.get("__name__", ""))
        if not module.startswith(_OWN) and not ways.match(module):
            return False
        frame = frame.f_back
    return frame is not None


def call_in(frame: Optional[FrameType]) -> str:
    """The call of the workspace that is in progress, as it is written, on one line. Exact from
    Python 3.11 on; empty before, and where it goes over several lines, but for an import statement:
    of that, its first line."""
    imports = False
    while frame is not None and not source_line.inside(frame.f_code.co_filename):
        imports = frame.f_globals.get("__name__") == "importlib._bootstrap"
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
    given = os.environ.get(PROCESS_VARIABLE, "0")[:200]
    ordinal = given.rstrip(_CERTAIN)
    if ordinal == given:
        ordinal += "." + Stream(given, arguments()).bytes(8).hex()
    os.environ[PROCESS_VARIABLE] = ordinal
    return ordinal
