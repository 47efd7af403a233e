"""Entropy of the operating system: every way in which Python, NumPy and torch draw random bytes
that no seed decides.

`secrets`, `uuid` and NumPy's `SeedSequence` end in `os.urandom`; `random.Random()` seeds itself in
C, and torch draws in C++. Out of sight: other C and C++ code that asks the kernel itself (OpenSSL,
`std::random_device`), and what a program that is not Python draws.
"""

from __future__ import annotations

import builtins
import functools
import io
import os
import random
import sys
from typing import Any

from .. import imports
from ..patch import wrap, wrap_in_type
from .use import Uses

NAME = "entropy"
_DEVICES = ("/dev/urandom", "/dev/random", "/dev/hwrng")
_FILE_BYTES = 1 << 23  # what a pinned device holds; who reads more comes to its end


def install(uses: Uses) -> None:
    """Wrap the ways to the entropy that are there, and the others once they are imported."""
    for name in ("urandom", "getrandom"):
        wrap(
            os,
            name,
            functools.partial(_bytes, uses, "os." + name),
            also=(sys.modules[os.name], random),
        )
    random._urandom = os.urandom  # type: ignore[attr-defined]
    _watch_random(uses)
    for owner, name in ((builtins, "open"), (io, "open"), (os, "open")):
        wrap(owner, name, functools.partial(_open, uses))
    imports.after_import(
        "uuid", lambda module: wrap(module, "uuid1", functools.partial(_uuid1, uses, module))
    )


def torch_arrived(torch: Any, uses: Uses) -> None:
    """`Generator.seed` takes a seed from the operating system: `torch.seed()` and CUDA's go through
    it."""

    def seed(original: Any, generator: Any) -> Any:
        def pinned(stream: Any) -> Any:
            number = stream.integer(53)
            generator.manual_seed(number)
            return number

        return uses.ask(NAME, "torch.Generator.seed", original, pinned, frame=sys._getframe(2))

    wrap_in_type(torch._C.Generator, "seed", seed)


def _bytes(uses: Uses, source: str, original: Any, size: int, *args: Any) -> Any:
    return uses.ask(
        NAME,
        source,
        lambda: original(size, *args),
        lambda stream: stream.bytes(size),
        frame=sys._getframe(2),
    )


def _uuid1(uses: Uses, module: Any, original: Any, *args: Any, **kwargs: Any) -> Any:
    def pinned(stream: Any) -> Any:
        return module.UUID(bytes=stream.bytes(16), version=1)

    return uses.ask(
        NAME, "uuid.uuid1", lambda: original(*args, **kwargs), pinned, frame=sys._getframe(2)
    )


def _watch_random(uses: Uses) -> None:
    kind: Any = random.Random
    seed = kind.seed

    @functools.wraps(seed)
    def watched(generator: Any, a: Any = None, *args: Any, **kwargs: Any) -> Any:
        if a is not None:
            return seed(generator, a, *args, **kwargs)

        def real() -> Any:
            seed(generator, None, *args, **kwargs)
            # what it drew: C hands the bytes to nobody
            return generator.getstate() if uses.watch else None

        uses.ask(
            NAME,
            "random.Random.seed",
            real,
            lambda stream: seed(generator, stream.integer(256)),
            frame=sys._getframe(1),
        )
        return None

    kind.seed = watched
    shared = vars(random)["_inst"]
    random.seed = shared.seed

    def forked() -> None:  # `random` has just seeded itself anew in this child
        uses.ask(
            NAME,
            "random, in a forked process",
            lambda: shared.getstate() if uses.watch else None,
            lambda stream: seed(shared, stream.integer(256)),
            frame=sys._getframe(1),
        )

    os.register_at_fork(after_in_child=forked)


def _open(uses: Uses, original: Any, path: Any, *args: Any, **kwargs: Any) -> Any:
    if isinstance(path, int) or (path if isinstance(path, str) else _text(path)) not in _DEVICES:
        return original(path, *args, **kwargs)
    name = _text(path)

    def pinned(stream: Any) -> Any:
        held = os.memfd_create("random") if hasattr(os, "memfd_create") else None
        if held is None:
            return original(path, *args, **kwargs)
        os.write(held, stream.bytes(_FILE_BYTES))
        os.lseek(held, 0, os.SEEK_SET)
        return held if original.__module__ == os.name else original(held, *args, **kwargs)

    opened = uses.ask(
        NAME,
        "open(%r)" % name,
        lambda: _Opened(original(path, *args, **kwargs)),
        lambda stream: _Opened(pinned(stream)),
    )
    return opened.file


def _text(path: Any) -> str:
    try:
        return os.fsdecode(path)
    except TypeError:
        return ""


class _Opened:
    """A file that was opened; what is read from it later is not seen, so every opening counts as
    another answer."""

    def __init__(self, file: Any) -> None:
        self.file = file

    def __repr__(self) -> str:
        return "opened at %x" % id(self)
