"""Notes which line of the workspace draws from the operating system's entropy, where no seed reaches.

Everything in Python and NumPy that does so goes through `os.urandom`, `os.getrandom` or `random.Random.seed(None)`: these are wrapped, and
no class is replaced, so that types, pickles and numbers stay what they are. Which of their callers it was is read from the stack. A draw
counts where a line of the workspace called the generator itself: what `tempfile`, `multiprocessing` or an installed library draw for their
own names does not.
"""

from __future__ import annotations

import functools
import itertools
import os
import random
import re
import sys
import weakref
from types import FrameType
from typing import Any, Callable, Dict, Iterable, List, Optional, Set, Tuple

from ..trace.format import MAX_DRAWN, MAX_NAME
from . import callers, imports, session

Place = Tuple[str, str, int]  # source, file, line
_OBJECTS = 10_000  # generators without a seed that may still get one
_ONLY_AST = 0x400  # ast.PyCF_ONLY_AST, without importing `ast`
_NOTHING = re.compile(r"\s*(?:\w+\s*=\s*)?(?:None\s*)?\)")
_OF_NUMPY = ("default_rng", "SeedSequence", "RandomState", "MT19937", "PCG64DXSM", "PCG64", "Philox", "SFC64", "seed")


class Draws:
    """The draws of one process, each line once for each source. What is called from the training raises nothing."""

    def __init__(self) -> None:
        self._open: Dict[Place, int] = {}  # not yet written -> how many draws, less those that a seed made up for
        self._written: Set[Place] = set()
        self._unseeded: Any = weakref.WeakKeyDictionary()  # random.Random -> its place
        self._forked = False
        self._libraries: Dict[str, str] = {}  # file of a generator's own code -> its module

    def install(self) -> None:
        """Wrap the ways to the entropy that are there, and the others once they are imported."""
        self._libraries[random.__file__] = "random"
        for name in ("urandom", "getrandom"):
            if hasattr(os, name):
                wrapper = self._watched(getattr(os, name), "os." + name)
                setattr(os, name, wrapper)
                setattr(sys.modules[os.name], name, wrapper)  # where pickle looks for it
        random._urandom = os.urandom  # type: ignore[attr-defined]
        self._watch_random()
        for name in ("secrets", "uuid"):
            imports.after_import(name, functools.partial(self._arrived, name))

    def numpy_arrived(self, numpy: Any) -> None:
        """NumPy asks `secrets` for entropy; from here on it is known that it was NumPy."""
        generator = sys.modules.get("numpy.random.bit_generator")
        if hasattr(generator, "randbits"):
            generator.randbits = _numpy_entropy(generator.randbits)  # type: ignore[union-attr]

    def torch_arrived(self, torch: Any) -> None:
        """`torch.seed()` takes a seed from the operating system; so do CUDA's."""
        for owner, name in ((torch.random, "seed"), (torch.cuda.random, "seed"), (torch.cuda.random, "seed_all")):
            label = "torch.seed()" if owner is torch.random else "torch.cuda.%s()" % name
            original = getattr(owner, name, None)
            if original is not None:
                wrapper = self._watched(original, label)
                wrapper._torchdynamo_disable = True  # type: ignore[attr-defined]
                for place in (owner, torch, torch.cuda):
                    if getattr(place, name, None) is original:
                        setattr(place, name, wrapper)

    def device(self, path: str) -> None:
        """A file of random bytes is opened."""
        self._draw("open(%r)" % path, sys._getframe(4))  # above this, the hook and its two handlers

    def finish(self) -> None:
        """The process is about to close its trace."""

    def forked(self) -> None:
        """This is a forked child: what its parent drew is its parent's to write."""
        self._open, self._forked = {}, True

    def flush(self, current: "session.Session") -> None:
        """Write what no seed made up for."""
        for place in [place for place, count in self._open.items() if count > 0]:
            self._write(place)
        self._open = {}

    def _write(self, place: Place) -> None:
        if len(self._written) < MAX_DRAWN:
            self._written.add(place)
            session.current().drawn(*place)

    def _arrived(self, name: str, module: Any) -> None:
        file = getattr(module, "__file__", None) or ""
        if os.path.dirname(file) != os.path.dirname(os.__file__):
            return  # the workspace's own module of that name
        self._libraries[file] = name
        if name == "uuid":
            module.uuid1 = self._watched(module.uuid1, "uuid.uuid1")  # host, clock and a number of the system's

    def _watch_random(self) -> None:
        kind: Any = random.Random
        seed, setstate = kind.seed, kind.setstate

        @functools.wraps(seed)
        def watched_seed(generator: Any, a: Any = None, *args: Any, **kwargs: Any) -> Any:
            if a is None:
                self._draw("random", sys._getframe(1), generator)
            else:
                self._seeded(generator)
            return seed(generator, a, *args, **kwargs)

        @functools.wraps(setstate)
        def watched_setstate(generator: Any, state: Any) -> Any:
            self._seeded(generator)
            return setstate(generator, state)

        kind.seed, kind.setstate = watched_seed, watched_setstate
        random.seed, random.setstate = _shared().seed, _shared().setstate

    def _watched(self, original: Callable[..., Any], source: str) -> Callable[..., Any]:
        @functools.wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            self._draw(source, sys._getframe(1))
            return original(*args, **kwargs)

        return wrapper

    def _seeded(self, generator: Any) -> None:
        """A generator that had drawn its seed got another one, before or after: what it gives is no longer the system's."""
        try:
            place = self._unseeded.pop(generator, None)
            if place in self._open:
                self._open[place] -= 1
        except Exception:
            pass

    def _draw(self, source: str, frame: Optional[FrameType], generator: Any = None) -> None:
        try:
            found = self._place(source, frame, generator)
            if found is None or found in self._written or (found not in self._open and len(self._open) >= MAX_DRAWN):
                return
            if self._forked and generator is None:
                self._write(found)  # at once: it may be killed at any time
                return
            self._open[found] = self._open.get(found, 0) + 1
            if generator is not None and len(self._unseeded) < _OBJECTS:
                self._unseeded[generator] = found
        except Exception:
            pass

    def _place(self, source: str, frame: Optional[FrameType], generator: Any) -> Optional[Place]:
        """The line of the workspace that called a generator, whose own frames lie between; None where something else called it."""
        inner: List[FrameType] = []
        numpy = False
        while frame is not None and not callers.inside(frame.f_code.co_filename):
            file = frame.f_code.co_filename
            if file == __file__ and frame.f_code.co_name == _NUMPY_FRAME:
                numpy = True
            elif file not in self._libraries and file != __file__:
                return None
            else:
                inner.append(frame)
            frame = frame.f_back
        if frame is None:
            return None
        file, line = callers.nearest(frame)
        name = _numpy_call(frame) if numpy else self._call(source, inner, generator)
        return (name, file[:MAX_NAME], line) if name else None

    def _call(self, source: str, inner: List[FrameType], generator: Any) -> str:
        """What the workspace called, by the outermost of the generator's own frames."""
        own = [frame for frame in inner if frame.f_code.co_filename in self._libraries]
        name = own[-1].f_code.co_name if own else ""
        module = self._libraries[own[-1].f_code.co_filename] if own else ""
        if generator is not None:
            return "random.Random()" if name == "__init__" else "random.seed()" if generator is _shared() else "random.Random.seed()"
        if module == "random":
            secrets = sys.modules.get("secrets")
            if secrets is not None and own[-1].f_locals.get("self") is getattr(secrets, "_sysrand", None):
                return "secrets.%s" % name.replace("getrandbits", "randbits").replace("_randbelow", "randbelow")
            return "random.SystemRandom"
        return "%s.%s" % (module, name) if own else source


def _shared() -> Any:
    return vars(random)["_inst"]


def _numpy_entropy(original: Callable[..., Any]) -> Callable[..., Any]:
    def entropy_for_numpy(bits: int) -> Any:
        return original(bits)

    return entropy_for_numpy


_NUMPY_FRAME = "entropy_for_numpy"


def _numpy_call(frame: FrameType) -> str:
    """Which of NumPy's generators a line makes without a seed; empty for what takes entropy on its way to a seed or a state that it has.

    `RandomState(seed)` makes a generator without one first, and so do `jumped()` and unpickling.
    """
    name, empty = _call_in_progress(frame, _OF_NUMPY)
    return "numpy.random.%s()" % name if name and (empty or name != "RandomState") else ""


def _call_in_progress(frame: FrameType, wanted: Iterable[str]) -> Tuple[str, bool]:
    """(name, empty): which of the `wanted` functions the frame is calling, and whether it gives it nothing, or None; ("", False) for
    another function. Exact from Python 3.11 on, which knows the columns of each instruction; before that, the line's text decides."""
    try:
        exact = getattr(frame.f_code, "co_positions", None)
        name, empty = _exact(frame, exact()) if exact is not None else _by_line(frame, wanted)
    except (SyntaxError, ValueError, AttributeError, IndexError):
        return "", False
    return (name, empty) if name in wanted else ("", False)


def _exact(frame: FrameType, positions: Iterable[Any]) -> Tuple[str, bool]:
    import linecache  # takes milliseconds, which most processes need not spend

    first, last, start, end = next(itertools.islice(positions, frame.f_lasti // 2, None))
    lines = [linecache.getline(frame.f_code.co_filename, number).encode() for number in range(first, last + 1)]
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][start:]
    call: Any = compile("(" + b"".join(lines).decode() + ")", "<call>", "eval", _ONLY_AST)
    given = [*call.body.args, *(keyword.value for keyword in call.body.keywords)]
    name = str(getattr(call.body.func, "attr", None) or getattr(call.body.func, "id", ""))
    return name, all(getattr(item, "value", item) is None for item in given)


def _by_line(frame: FrameType, wanted: Iterable[str]) -> Tuple[str, bool]:
    import linecache

    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
    calls = [found for found in re.finditer(r"(\w+)\s*\(", line) if found.group(1) in wanted]
    if len(calls) != 1:
        return "", False
    return calls[0].group(1), _NOTHING.match(line, calls[0].end()) is not None
