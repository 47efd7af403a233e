"""The uses of factors in one process. A use is one call that got an answer from outside the
declared inputs.

`ask` decides about each: the real answer, one that is the same in every run (pinned), or one
that differs on purpose (varied); and notes the use with its line of the workspace.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import linecache
import os
import random
import re
import sys
import threading
from collections import Counter
from types import FrameType, SimpleNamespace
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
# random bytes that are the same in every run, by where the draw happens and how many happened there
Stream = random.Random
Pinned = Callable[[Stream, Any], Any]  # given the real answer
Varied = Callable[[Any], Any]  # likewise
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
CERTAIN = "="
_MOST = 1 << 20  # characters of an answer that are digested
_urandom = os.urandom
_open = os.open
_close = os.close


RUN = SimpleNamespace(
    watch=False,
    ordinal="",  # of this process, the same in every run; empty if no factor is asked for
    children=0,  # so far
)
# the run's own, by the name of what varies them, if its surroundings are watched
FOLDERS: dict[str, str] = {}
# factor -> the sites at which it is varied, at which it is pinned
VARIED: dict[str, frozenset[Site]] = {}
_PINNED: dict[str, frozenset[Site]] = {}
_COUNTS: Counter[object] = Counter()
# uses since the last step, one for each place, factor and call: it, how many, their digest
_OPEN: dict[tuple[object, ...], list[Any]] = {}


class _Everywhere(frozenset[Site]):
    def __contains__(self, site: object) -> bool:
        return True


_EVERYWHERE = _Everywhere()


class _Busy(threading.local):
    """A thread is in here while it decides about a use: what it calls meanwhile is none."""

    depth = 0

    def __enter__(self) -> None:
        self.depth += 1

    def __exit__(self, *_: object) -> None:
        self.depth -= 1


BUSY = _Busy()


def configure(config: dict[str, Any]) -> None:
    """Begin with the configuration of the run."""
    factors = config.get("factors", {})
    RUN.watch = factors.get("watch", False)
    for factor in factors.get("vary", ()):
        VARIED[factor] = _sites(factors.get("vary_at"))
    for factor, sites in factors.get("pin", {}).items():
        _PINNED[factor] = _sites(sites)
    if factors.get("surroundings"):
        for name, folder in {"path": config["workspace"], **config["folders"]}.items():
            FOLDERS[name] = os.path.realpath(folder)
    if RUN.watch or VARIED or _PINNED:
        RUN.ordinal = _ordinal()
        os.register_at_fork(before=next_child, after_in_child=_born)


def _sites(places: Any) -> frozenset[Site]:
    return frozenset(map(tuple, places)) if places else _EVERYWHERE


def only_varies(factor: str) -> bool:
    """Return whether this factor is only varied, neither watched nor pinned: what cannot be
    varied is then left as it is."""
    return factor in VARIED and factor not in _PINNED and not RUN.watch


def wants(factor: str) -> bool:
    """Return whether the calls of this factor have to be wrapped."""
    return RUN.watch or factor in _PINNED or factor in VARIED


def is_pinned(factor: str, site: Site = ("", 0)) -> bool:
    """Return whether a use of the factor at this site gets the same answer in every run;
    without a site, whether all uses do."""
    return site in _PINNED.get(factor, ())


def ask_about(
    factor: str, module: str, names: str, pinned: Pinned, **options: Any
) -> None:
    """Ask about every call of functions of a module from here on. `names` are separated by
    blanks, a method is `CLASS.METHOD`; `options` are those of `ask`."""

    def around(source: str, original: Any, *args: Any, **kwargs: Any) -> Any:
        real = functools.partial(original, *args, **kwargs)
        return ask(factor, source, real, pinned, **options)

    imports.wrap_named(module, names, around)


def ask(
    factor: str,
    source: str,
    real: Callable[[], Any],
    pinned: Pinned,
    varied: Varied | None = None,
    own: bool = False,
    content: Callable[[Any], object] = lambda answer: answer,
) -> Any:
    """Return the answer to one call: that of `real`, or what `pinned` or `varied` make of it
    where the configuration says so. What `real` raises passes; where the others fail, the real
    answer stands. `own`: only what the workspace's own code asks is a use. `content` is what
    counts of an answer."""
    frame = None if BUSY.depth else calling_frame()
    if own and frame is not None and not inside(frame):
        # a property, or a function of `os.path`, hands the question on
        frame = frame.f_back if frame.f_code.co_name in _HAND_ON else None
        frame = frame if inside(frame) else None
    if frame is None:
        return real()
    with BUSY:
        answer = real()
        if only_varies(factor) and VARIED[factor] is _EVERYWHERE:
            # no look at the stack: a gate run that passes pays nothing
            return varied(answer) if varied else answer
        with contextlib.suppress(Exception):
            if of_others(frame):
                return answer
            site = source_line.nearest(frame)
            if is_pinned(factor, site):
                key = (factor, source, site, RUN.ordinal)
                _COUNTS[key] += 1
                answer = pinned(stream(*key, _COUNTS[key]), answer)
            elif varied and site in VARIED.get(factor, ()):
                answer = varied(answer)
        if RUN.watch:
            with contextlib.suppress(Exception):
                note(factor, source, content(answer))
        return answer


def note(
    factor: str,
    source: str,
    answer: object,
    *,
    site: Site | None = None,
    call: str = "",
    direct: bool = False,
    outside: bool = False,
) -> None:
    """Remember a use and a digest of what came back, until the step in progress ends.
    `site` is the nearest line of the workspace, `call` what is written there: without a site,
    those of the caller. `direct`: no library asked, whatever the stack says. `outside`: it came
    from outside the process, and nothing can pin it. Raises nothing."""
    if not RUN.watch or len(_OPEN) >= MAX_USES:
        return
    with contextlib.suppress(Exception):
        frame = None if site else calling_frame()
        if of_others(frame):
            return
        file, line = site or source_line.nearest(frame)
        use = {
            "step": session.current().step,
            "factor": factor,
            "source": source[:200],
            "file": file[:MAX_NAME],
            "line": line,
            "direct": direct or outside or is_direct(frame, factor),
            "outside": outside,
        }
        key = tuple(use.values())
        answers = _OPEN.get(key)
        if answers is None:
            use["call"] = (call or call_in(frame))[:200]
            new = [use, 0, hashlib.blake2b(digest_size=8)]
            # of two threads that come first, one is taken
            answers = _OPEN.setdefault(key, new)
        answers[1] += 1
        if not isinstance(answer, bytes):
            answer = repr(answer)[:_MOST].encode("utf-8", "surrogatepass")
        answers[2].update(answer)


def flush(current: session.Session, last: bool) -> None:
    """Write the uses since the last time."""
    for key in list(_OPEN):
        use, count, digest = _OPEN.pop(key)
        current.event("uses", **use, count=count, digest=digest.hexdigest())


def next_child() -> str:
    """Return the ordinal of a child that is about to be forked or started."""
    RUN.children += 1
    return f"{RUN.ordinal}.{RUN.children}"


def _born() -> None:
    """Begin anew in a forked child: the uses so far are its parent's."""
    RUN.ordinal += f".{RUN.children}"
    RUN.children = 0
    _OPEN.clear()
    _COUNTS.clear()
    BUSY.depth = 0


def forked() -> None:
    """Go on: the child has a trace of its own from here on, what it used before stays."""


def _mark(kind: str, name: str) -> str:
    digest = hashlib.blake2b(os.fsencode(name), digest_size=16).hexdigest()
    return os.path.join(session.current().config["traces"], kind, digest)


def mark(kind: str, name: str) -> None:
    """Tell all processes of the run a name, by a file for each below its traces."""
    file = _mark(kind, name)
    os.makedirs(os.path.dirname(file), exist_ok=True)
    _close(_open(file, os.O_WRONLY | os.O_CREAT, 0o600))


def is_marked(kind: str, name: str) -> bool:
    """Return whether a process of this run has told this name."""
    return os.path.lexists(_mark(kind, name))


def stream(*key: object) -> Stream:
    return Stream(repr(key))


def random_marker() -> bytes:
    """Return 8 random bytes that stand for an answer which nobody can read: a hash seed, the order
    of threads."""
    return _urandom(8)


def inside(frame: FrameType | None) -> bool:
    """Return whether the frame's code lies in the workspace; it does not where that fails."""
    with contextlib.suppress(Exception), BUSY:
        return bool(frame and source_line.inside(frame.f_code.co_filename))
    return False


def asker(frame: FrameType | None) -> FrameType | None:
    """Return the frame that asked for a factor, outwards from what hands it on."""
    while frame is not None and module_of(frame).startswith(_BETWEEN):
        frame = frame.f_back
    return frame


def calling_frame() -> FrameType | None:
    """Return the frame that asked for a factor, from the calling one outwards."""
    return asker(sys._getframe(1))


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
    """Return the source text of the call in progress at the innermost frame inside the workspace.
    Of a call over several lines it is the first one; before Python 3.11 the text is empty, unless
    it is an import statement."""
    imports = False
    while frame is not None and not source_line.inside(frame.f_code.co_filename):
        imports = module_of(frame) == "importlib._bootstrap"
        frame = frame.f_back
    if frame is None:
        return ""
    code = frame.f_code
    line = linecache.getline(code.co_filename, frame.f_lineno)
    if sys.version_info >= (3, 11):
        positions = itertools.islice(code.co_positions(), frame.f_lasti // 2, None)
        first, last, start, end = next(positions)
        if first and not imports:
            if first != last:
                line = linecache.getline(code.co_filename, first)
            part = line.encode()[start : end if first == last else None]
            return source_line.code_of(part.decode("utf-8", "replace"), first != last)
    return source_line.code_of(line) if imports else ""


def _ordinal() -> str:
    """Return the ordinal of this process, the same in every run: what its Python parent gave it. A
    shell hands its own on to all its children: which of those this is, its command line says."""
    inherited = os.environ.get(PROCESS_VARIABLE, "0")[:200]
    ordinal = inherited.rstrip(CERTAIN)
    if ordinal == inherited:
        ordinal += f".{stream(inherited, arguments()).getrandbits(64):x}"
    os.environ[PROCESS_VARIABLE] = ordinal
    return ordinal
