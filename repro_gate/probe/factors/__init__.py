"""The factors in the training's process: each can be watched, pinned or varied, as the run's configuration says.

A use of a factor is one call that got an answer from outside the declared inputs. `Uses.ask` decides about each: the real answer, one
that is the same in every run (pinned), or one that differs on purpose (varied); and notes the use with its line of the workspace.
"""

from __future__ import annotations

import hashlib
import itertools
import linecache
import os
import sys
import threading
from types import FrameType
from typing import Any, Callable, Dict, FrozenSet, List, Optional, Tuple

from ...trace.format import MAX_NAME, MAX_USES
from .. import session, source_line

Site = Tuple[str, int]  # file of the workspace and line; ("", 0): no line of the workspace is on the stack
_BUSY = threading.local()  # `on` while this thread decides about a use: what it calls meanwhile is none


class Stream:
    """Bytes that are the same in every run: SHAKE-128 over where the draw happens and how many happened there before."""

    def __init__(self, *key: object) -> None:
        self._key = repr(key).encode("utf-8", "surrogatepass")

    def bytes(self, count: int) -> bytes:
        """The first `count` bytes."""
        return hashlib.shake_128(self._key).digest(count)

    def integer(self, bits: int) -> int:
        """An integer of `bits` random bits, 0 <= n < 2**bits."""
        return int.from_bytes(self.bytes((bits + 7) // 8), "big") >> (-bits % 8)


class Uses:
    """The uses of all factors in one process. What is called from the training raises nothing of its own.

    `config` is the run's: `watch` (bool), `pin` (factor -> None for every use, or the sites [file, line]), `vary` (factors).
    """

    def __init__(self, config: Dict[str, Any]) -> None:
        self.config = config
        self.watch = bool(config.get("watch"))
        self.vary = frozenset(config.get("vary", ()))
        self._pins: Dict[str, Optional[FrozenSet[Site]]] = {
            factor: None if sites is None else frozenset((str(file), int(line)) for file, line in sites)
            for factor, sites in config.get("pin", {}).items()
        }
        self.ordinal = "0"  # which process this is, by the order in which each parent started its children
        self._children = 0
        self._counts: Dict[Tuple[str, str, Site], int] = {}
        self._open: Dict[Tuple[int, str, str, Site], List[Any]] = {}  # uses since the last step: how many, digest of the answers, call
        self._said = 0

    @property
    def active(self) -> bool:
        """Whether anything is watched, pinned or varied here."""
        return self.watch or bool(self._pins) or bool(self.vary)

    def wants(self, factor: str) -> bool:
        """Whether the calls of this factor have to be wrapped."""
        return self.watch or factor in self._pins or factor in self.vary

    def pinned(self, factor: str, site: Site) -> bool:
        """Whether a use of the factor at this site gets the same answer in every run."""
        sites = self._pins.get(factor, frozenset())
        return sites is None or site in sites

    def stream(self, factor: str, source: str, site: Site) -> Stream:
        """The pinned bytes of the next draw of this process at a site."""
        key = (factor, source, site)
        count = self._counts[key] = self._counts.get(key, 0) + 1
        return Stream(factor, source, site, self.ordinal, count)

    def ask(
        self,
        factor: str,
        source: str,
        real: Callable[[], Any],
        pinned: Optional[Callable[[Stream], Any]] = None,
        varied: Optional[Callable[[], Any]] = None,
        frame: Optional[FrameType] = None,
    ) -> Any:
        """The answer to one call: `pinned` or `varied` where the configuration says so, else `real`. What `real` raises passes."""
        if getattr(_BUSY, "on", False):
            return real()
        _BUSY.on = True
        try:
            frame = frame if frame is not None else sys._getframe(2)
            site = source_line.nearest(frame)
            if pinned is not None and self.pinned(factor, site):
                answer = pinned(self.stream(factor, source, site))
            elif varied is not None and factor in self.vary:
                answer = varied()
            else:
                answer = real()
            if self.watch:
                self.note(factor, source, site, answer, frame)
        finally:
            _BUSY.on = False
        return answer

    def note(self, factor: str, source: str, site: Site, answer: object, frame: Optional[FrameType]) -> None:
        """Remember a use and a digest of what came back, until the step in progress ends."""
        key = (session.current().step, factor, source, site)
        found = self._open.get(key)
        if found is None and len(self._open) < MAX_USES:
            found = self._open[key] = [0, hashlib.blake2b(digest_size=8), _call(frame) if site[0] else ""]
        if found is not None:
            found[0] += 1
            found[1].update(_encoded(answer))

    def flush(self, current: "session.Session", last: bool) -> None:
        """Write the uses since the last time."""
        uses, self._open = self._open, {}
        for (step, factor, source, (file, line)), (count, digest, call) in uses.items():
            if self._said < MAX_USES:
                self._said += 1
                about = {"factor": factor, "source": source[:200], "file": file[:MAX_NAME], "line": line, "call": call[:200]}
                current.event("used", step=step, count=count, digest=digest.hexdigest(), **about)

    def forking(self) -> None:
        """A child is about to be forked."""
        self._children += 1

    def child_ordinal(self) -> str:
        """The ordinal of the next child that is started with an environment of its own."""
        self._children += 1
        return "%s.%d" % (self.ordinal, self._children)

    def forked(self) -> None:
        """This is a forked child: the uses so far are its parent's."""
        self.ordinal = "%s.%d" % (self.ordinal, self._children)
        self._children, self._open, self._counts, self._said = 0, {}, {}, 0


def busy() -> bool:
    """Whether this thread decides about a use just now: what it calls meanwhile is none."""
    return bool(getattr(_BUSY, "on", False))


def outside(frame: Optional[FrameType]) -> bool:
    """Whether the frame's code lies outside the workspace. What is asked to find that out is nobody's use."""
    if frame is None or getattr(_BUSY, "on", False):
        return True
    _BUSY.on = True
    try:
        return not source_line.inside(frame.f_code.co_filename)
    finally:
        _BUSY.on = False


def _call(frame: Optional[FrameType]) -> str:
    """The call of the workspace that is in progress, as it is written, on one line. Exact from Python 3.11 on; empty before."""
    while frame is not None and not source_line.inside(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None or not hasattr(frame.f_code, "co_positions"):
        return ""
    first, last, start, end = next(itertools.islice(frame.f_code.co_positions(), frame.f_lasti // 2, None))
    if first is None or first != last:
        return ""
    return linecache.getline(frame.f_code.co_filename, first).encode()[start:end].decode("utf-8", "replace").strip()


def _encoded(answer: object) -> bytes:
    if isinstance(answer, (bytes, bytearray, memoryview)):
        return bytes(answer)
    if isinstance(answer, (list, tuple)):
        return b"\0".join(_encoded(item) for item in list(answer)[:10_000])
    return repr(answer)[:10_000].encode("utf-8", "surrogatepass")


_USES: List[Uses] = []


def uses() -> Optional[Uses]:
    """The uses of this process; None before `start`."""
    return _USES[0] if _USES else None


def start(config: Dict[str, Any]) -> Uses:
    """Watch, pin or vary what `config` names, in this process from here on."""
    from . import clock, commands, entropy, files, identity, listing, network, threads

    found = Uses(config)
    _USES[:] = [found]
    for module in (commands, files, network):  # before all others: they wrap the same calls, and hand on to these
        if module.wanted(config):
            module.install(found)
    for module in (entropy, clock, listing, threads):
        if found.wants(module.NAME):
            module.install(found)
    if found.wants(identity.NAME) or found.wants("addresses"):
        identity.install(found)
    if found.active:
        os.register_at_fork(before=found.forking, after_in_child=found.forked)
    return found


def torch_arrived(torch: Any) -> None:
    """What of torch itself is a factor's."""
    from . import entropy

    if _USES and _USES[0].wants(entropy.NAME):
        entropy.torch_arrived(torch, _USES[0])
