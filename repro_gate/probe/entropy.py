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
from typing import Any, Callable

from ..trace.format import BY_LIBRARY
from . import imports, patch, session, source_line
from .opened import installed

Draw = tuple[str, str, int]  # source, file, line
_SOURCE = 200  # characters of a source
# NumPy's, in a line
_CALL = re.compile(
    r"\b(default_rng|SeedSequence|RandomState|MT19937|PCG64DXSM|PCG64|Philox|SFC64|seed)\s*\("
)
_NOTHING = re.compile(r"\s*(?:\w+\s*=\s*)?(?:None\s*)?\)")
# what takes entropy on its way to the state that it is given
_REMAKES = re.compile(r"\b(?:loads?|deepcopy|copy|jumped)\s*\(")
_OWN = (__name__, patch.__name__)
_GENERATORS = ("random", "secrets", "uuid")
_STANDARD = os.path.dirname(os.__file__) + os.sep
# packages that draw for copies, names and the like
_FOR_ITSELF = "numpy", "torch", __name__.split(".")[0]
_NAMES = ("uuid.", "secrets.token")  # what a library calls its folders and runs by


class Draws:
    """The draws of one process, each line once for each source. What is called from the training
    raises nothing."""

    def __init__(self) -> None:
        # not yet written -> how many draws, less those that a seed made up for
        self._open: dict[Draw, int] = {}
        self._unseeded: Any = weakref.WeakKeyDictionary()  # random.Random -> its draw
        self._forked = False

    def install(self) -> None:
        """Wrap the ways to the entropy that are there, and the others once they are imported."""
        imports.wrap_named("os", "urandom getrandom", self._around)
        wrapped: Any = sys.modules["os"]  # ours holds the original
        random._urandom = wrapped.urandom  # type: ignore[attr-defined]
        patch.wrap(random.Random, "seed", self._seed)
        patch.wrap(random.Random, "setstate", self._setstate)
        # which the functions of `random` draw from
        shared = patch.held("random")._inst
        random.seed = shared.seed
        random.setstate = shared.setstate
        imports.after_import("uuid", self._uuid_arrived)

    def numpy_arrived(self) -> None:
        """Make it known that it is NumPy which asks `secrets` for entropy."""
        generator = sys.modules.get("numpy.random.bit_generator")
        patch.wrap(generator, "randbits", _entropy_for_numpy)

    def torch_arrived(self, torch: Any) -> None:
        """Wrap `torch.seed()`, which takes a seed from the operating system; so do CUDA's."""
        for owner, public, name in (
            (torch.random, torch, "seed"),
            (torch.cuda.random, torch.cuda, "seed"),
            (torch.cuda.random, torch.cuda, "seed_all"),
        ):
            source = f"{public.__name__}.{name}()"
            patch.wrap(owner, name, functools.partial(self._around, source), (public,))

    def _uuid_arrived(self, uuid: Any) -> None:
        if not source_line.inside(str(uuid.__file__)):  # else the workspace's own
            # host, clock, a number of the system's
            around = functools.partial(self._around, "uuid.uuid1")
            patch.wrap(uuid, "uuid1", around)

    def device(self, path: str) -> None:
        """Note a device that is opened, from inside the audit hook."""
        # above this, the hook and its handler
        self._draw(f"open({path!r})", sys._getframe(3))

    def forked(self) -> None:
        """Forget what the parent found; what this child draws is written at once."""
        self._open = {}
        self._forked = True

    def flush(self, current: session.Session, last: bool) -> None:
        """Write the draws since the last time that no seed made up for."""
        draws = self._open
        self._open = {}
        for draw, count in draws.items():
            if count > 0:
                self._write(draw)

    def _write(self, draw: Draw) -> None:
        source, file, line = draw
        session.current().notice("drawn", source=source, file=file, line=line)

    def _around(self, source: str, original: Any, *args: Any, **kwargs: Any) -> Any:
        self._draw(source, sys._getframe(1))
        return original(*args, **kwargs)

    def _seed(
        self,
        original: Any,
        generator: Any,
        a: Any = None,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        if a is None:
            self._draw("random", sys._getframe(1), generator)
        else:
            self._seeded(generator)
        return original(generator, a, *args, **kwargs)

    def _setstate(self, original: Any, generator: Any, state: Any) -> Any:
        self._seeded(generator)
        return original(generator, state)

    def _seeded(self, generator: Any) -> None:
        """Take back the draw of a generator that got another seed, before or after: what it gives
        is no longer the system's."""
        with contextlib.suppress(Exception):
            draw = self._unseeded.pop(generator, None)
            if draw in self._open:
                self._open[draw] -= 1

    def _draw(self, source: str, frame: Any, generator: Any = None) -> None:
        with contextlib.suppress(Exception):
            draw = self._find(source, frame, generator)
            if draw is None:
                return
            if self._forked and generator is None:
                self._write(draw)  # at once: it may be killed at any time
            else:
                self._open[draw] = self._open.get(draw, 0) + 1
                if generator is not None:
                    self._unseeded[generator] = draw

    def _find(self, source: str, frame: Any, generator: Any) -> Draw | None:
        """Return the line of the workspace that called a generator, whose own frames lie between,
        or a library that did; None where something else called it."""
        outermost: FrameType | None = None  # of the generator's own
        numpy = False
        library = None
        while frame is not None and not source_line.inside(frame.f_code.co_filename):
            module = source_line.module_of(frame)
            if library is not None:
                if module == "importlib._bootstrap":
                    return None
            elif module in _GENERATORS:
                outermost = frame
            elif module in _OWN:
                numpy = numpy or frame.f_code.co_name == "_entropy_for_numpy"
            elif _draws_for_others(frame):
                library = frame
            else:
                return None
            frame = frame.f_back
        if frame is None:
            return None
        name = self._call(source, outermost, generator)
        if numpy:
            name = _numpy_call(library or frame)
        if library is not None and name:
            if name.startswith(_NAMES):
                return None
            name = (name + BY_LIBRARY + source_line.module_of(library))[:_SOURCE]
        file, line = source_line.nearest(frame)
        return (name, file, line) if name else None

    def _call(self, source: str, outermost: FrameType | None, generator: Any) -> str:
        """Return what was called, by the outermost of the generator's own frames."""
        name = outermost.f_code.co_name if outermost is not None else ""
        if generator is not None:
            return "random.Random()" if name == "__init__" else "random.seed()"
        if outermost is None:
            return source
        module = source_line.module_of(outermost)
        return "random.SystemRandom" if module == "random" else f"{module}.{name}"


def _entropy_for_numpy(original: Any, bits: int) -> Any:
    return original(bits)


def _draws_for_others(frame: FrameType) -> bool:
    """Return whether the frame is that of a library which may hand on what it draws: an installed
    one."""
    file = frame.f_code.co_filename
    module = source_line.module_of(frame)
    if file.startswith("<") or module.partition(".")[0] in _FOR_ITSELF:
        return False
    # what is installed may lie below the standard library
    return not file.startswith(_STANDARD) or installed(file)


def _numpy_call(frame: FrameType) -> str:
    """Return which of NumPy's generators a line makes without a seed; empty for what takes entropy
    on its way to a seed or a state that it has: `RandomState(seed)`, copies, unpickling. A call
    that goes over several lines is read with them."""
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
    return f"numpy.random.{unseeded[0].group(1)}()" if unseeded else ""
