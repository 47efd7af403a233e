"""Notes which line of the workspace draws from the operating system's entropy, where no seed
reaches.

Everything in Python and NumPy that does so goes through `os.urandom`, `os.getrandom` or
`random.Random.seed(None)`: these are wrapped, and no class is replaced, so that types, pickles and
numbers stay what they are. Which of their callers it was is read from the stack. A draw counts
where a line of the workspace called the generator itself, or an installed library on its behalf,
whose module is named then. What is drawn while a module is imported does not, nor what `tempfile`
and other parts of the standard library, torch and NumPy draw for their own ends, nor a library's
names (`uuid`, `secrets.token_hex`).
"""

from __future__ import annotations

import contextlib
import functools
import os
import random
import re
import sys
import weakref
from types import FrameType
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

from ..trace.format import BY_LIBRARY, MAX_DRAWN, MAX_NAME
from . import imports, patch, session, source_line

Draw = Tuple[str, str, int]  # source, file, line
_SOURCE = 200  # characters of a source
_OBJECTS = 10_000  # generators without a seed that may still get one
# NumPy's, in a line
_CALL = re.compile(
    r"\b(default_rng|SeedSequence|RandomState|MT19937|PCG64DXSM|PCG64|Philox|SFC64|seed)\s*\("
)
_NOTHING = re.compile(r"\s*(?:\w+\s*=\s*)?(?:None\s*)?\)")
# what takes entropy on its way to the state that it is given
_REMAKES = re.compile(r"\b(?:loads?|deepcopy|copy|jumped)\s*\(")
_OWN = (__file__, patch.__file__)
_STANDARD = os.path.dirname(os.__file__) + os.sep
# may lie below the standard library
_INSTALLED = os.sep + "site-packages" + os.sep, os.sep + "dist-packages" + os.sep
# packages that draw for copies, names and the like
_FOR_ITSELF = "numpy", "torch", __name__.split(".")[0]
_NAMES = ("uuid.", "secrets.token")  # what a library calls its folders and runs by


class Draws:
    """The draws of one process, each line once for each source. What is called from the training
    raises nothing."""

    def __init__(self) -> None:
        # not yet written -> how many draws, less those that a seed made up for
        self._open: Dict[Draw, int] = {}
        self._written: Set[Draw] = set()
        self._unseeded: Any = weakref.WeakKeyDictionary()  # random.Random -> its draw
        self._forked = False
        # file of a generator's own code -> its module
        self._libraries: Dict[str, str] = {random.__file__: "random"}

    def install(self) -> None:
        """Wrap the ways to the entropy that are there, and the others once they are imported."""
        native = (sys.modules[os.name],)  # where pickle looks for it
        for name in ("urandom", "getrandom"):
            self._watch(os, name, "os." + name, native)
        random._urandom = os.urandom  # type: ignore[attr-defined]
        patch.wrap(random.Random, "seed", self._seed)
        patch.wrap(random.Random, "setstate", self._setstate)
        shared: Any = vars(random)["_inst"]  # which the functions of `random` draw from
        random.seed, random.setstate = shared.seed, shared.setstate
        for name in ("secrets", "uuid"):
            imports.after_import(name, functools.partial(self._arrived, name))

    def numpy_arrived(self) -> None:
        """NumPy asks `secrets` for entropy; from here on it is known that it was NumPy."""
        generator: Any = sys.modules.get("numpy.random.bit_generator")
        if hasattr(generator, "randbits"):
            original = generator.randbits

            def entropy_for_numpy(bits: int) -> Any:
                return original(bits)

            generator.randbits = entropy_for_numpy

    def torch_arrived(self, torch: Any) -> None:
        """`torch.seed()` takes a seed from the operating system; so do CUDA's."""
        for owner, name in (
            (torch.random, "seed"),
            (torch.cuda.random, "seed"),
            (torch.cuda.random, "seed_all"),
        ):
            label = owner.__name__.replace(".random", "")
            self._watch(owner, name, "%s.%s()" % (label, name), (torch, torch.cuda))

    def device(self, path: str) -> None:
        self._draw("open(%r)" % path, sys._getframe(4))  # above this, the hook and its two handlers

    def forked(self) -> None:
        self._open, self._forked = {}, True

    def flush(self, current: "session.Session", last: bool) -> None:
        for draw in [draw for draw, count in self._open.items() if count > 0]:
            self._write(draw)
        self._open = {}

    def _write(self, draw: Draw) -> None:
        if len(self._written) < MAX_DRAWN:
            self._written.add(draw)
            source, file, line = draw
            session.current().event("drawn", source=source, file=file, line=line)

    def _arrived(self, name: str, module: Any) -> None:
        file = getattr(module, "__file__", None) or ""
        if os.path.dirname(file) + os.sep == _STANDARD:  # else the workspace's own of that name
            self._libraries[file] = name
            if name == "uuid":
                self._watch(module, "uuid1", "uuid.uuid1")  # host, clock, a number of the system's

    def _watch(self, owner: Any, name: str, source: str, also: Tuple[Any, ...] = ()) -> None:
        def around(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            self._draw(source, sys._getframe(1))
            return original(*args, **kwargs)

        patch.wrap(owner, name, around, also)

    def _seed(
        self, original: Callable[..., Any], generator: Any, a: Any = None, *args: Any, **kwargs: Any
    ) -> Any:
        if a is None:
            self._draw("random", sys._getframe(1), generator)
        else:
            self._seeded(generator)
        return original(generator, a, *args, **kwargs)

    def _setstate(self, original: Callable[..., Any], generator: Any, state: Any) -> Any:
        self._seeded(generator)
        return original(generator, state)

    def _seeded(self, generator: Any) -> None:
        """A generator that had drawn its seed got another one, before or after: what it gives is no
        longer the system's."""
        with contextlib.suppress(Exception):
            draw = self._unseeded.pop(generator, None)
            if draw in self._open:
                self._open[draw] -= 1

    def _draw(self, source: str, frame: Optional[FrameType], generator: Any = None) -> None:
        with contextlib.suppress(Exception):
            found = self._find(source, frame, generator)
            if found is None or found in self._written:
                return
            if found not in self._open and len(self._open) >= MAX_DRAWN:
                return
            if self._forked and generator is None:
                self._write(found)  # at once: it may be killed at any time
                return
            self._open[found] = self._open.get(found, 0) + 1
            if generator is not None and len(self._unseeded) < _OBJECTS:
                self._unseeded[generator] = found

    def _find(self, source: str, frame: Optional[FrameType], generator: Any) -> Optional[Draw]:
        """The line of the workspace that called a generator, whose own frames lie between, or a
        library that did; None where something else called it."""
        own: List[FrameType] = []
        numpy, library = False, None
        while frame is not None and not source_line.inside(frame.f_code.co_filename):
            if library is not None:
                if frame.f_globals.get("__name__") == "importlib._bootstrap":
                    return None
            elif frame.f_code.co_filename in self._libraries:
                own.append(frame)
            elif frame.f_code.co_filename in _OWN:
                numpy = numpy or frame.f_code.co_name == "entropy_for_numpy"
            elif _draws_for_others(frame):
                library = frame
            else:
                return None
            frame = frame.f_back
        if frame is None:
            return None
        file, line = source_line.nearest(frame)
        name = _numpy_call(library or frame) if numpy else self._call(source, own, generator)
        if library is not None and name.startswith(_NAMES):
            return None
        if library is not None and name:
            name = (name + BY_LIBRARY + str(library.f_globals.get("__name__")))[:_SOURCE]
        return (name, file[:MAX_NAME], line) if name else None

    def _call(self, source: str, own: List[FrameType], generator: Any) -> str:
        """What the workspace called, by the outermost of the generator's own frames."""
        if generator is not None:
            if own and own[-1].f_code.co_name == "__init__":
                return "random.Random()"
            return "random.seed()"
        if not own:
            return source
        name, module = own[-1].f_code.co_name, self._libraries[own[-1].f_code.co_filename]
        if module == "random":
            of_secrets = getattr(sys.modules.get("secrets"), "_sysrand", self)
            if own[-1].f_locals.get("self") is not of_secrets:
                return "random.SystemRandom"
            module, name = "secrets", name.replace("getrandbits", "randbits")
        return module + "." + name


def _draws_for_others(frame: FrameType) -> bool:
    """Whether the frame is that of a library which may hand on what it draws: an installed one."""
    file, module = frame.f_code.co_filename, str(frame.f_globals.get("__name__"))
    if file.startswith("<") or module.partition(".")[0] in _FOR_ITSELF:
        return False
    return not file.startswith(_STANDARD) or any(part in file for part in _INSTALLED)


def _numpy_call(frame: FrameType) -> str:
    """Which of NumPy's generators a line makes without a seed; empty for what takes entropy on its
    way to a seed or a state that it has: `RandomState(seed)`, copies, unpickling. A call that goes
    over several lines is read with them."""
    import linecache  # takes milliseconds, which most processes need not spend

    text = ""
    for number in range(frame.f_lineno, frame.f_lineno + 10):
        text += linecache.getline(frame.f_code.co_filename, number)
        if text.count("(") <= text.count(")"):
            break
    calls = list(_CALL.finditer(text))
    unseeded = [call for call in calls if _NOTHING.match(text, call.end())]
    if not unseeded and not _REMAKES.search(text) and "RandomState" not in text:
        unseeded = calls  # what is given may be None
    return "numpy.random.%s()" % unseeded[0].group(1) if unseeded else ""
