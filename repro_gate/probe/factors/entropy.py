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
from .use import USES

NAME = "entropy"
_DEVICES = ("/dev/urandom", "/dev/random", "/dev/hwrng")
_os_open = os.open
_FILE_BYTES = 1 << 23  # what a pinned device holds; who reads more comes to its end


def install() -> None:
    """Wrap the ways to the entropy that are there, and the others once they are imported."""
    for name in ("urandom", "getrandom"):
        wrap(
            os,
            name,
            functools.partial(_bytes, "os." + name),
            also=(sys.modules[os.name],),
        )
    random._urandom = os.urandom  # type: ignore[attr-defined]
    _watch_random()
    for owner, name in ((builtins, "open"), (io, "open"), (os, "open")):
        wrap(owner, name, _open)
    imports.wrap_later("uuid", "uuid1", _uuid1)


def torch_arrived(torch: Any) -> None:
    """`Generator.seed` takes a seed from the operating system: `torch.seed()` and CUDA's go through
    it."""

    def seed(original: Any, generator: Any) -> Any:
        def pinned(stream: Any) -> Any:
            number = stream.integer(53)
            generator.manual_seed(number)
            return number

        return USES.ask(NAME, "torch.Generator.seed", original, pinned)

    wrap_in_type(torch._C.Generator, "seed", seed)


def _bytes(source: str, original: Any, size: int, *args: Any) -> Any:
    return USES.ask(NAME, source, lambda: original(size, *args), lambda stream: stream.bytes(size))


def _uuid1(original: Any, *args: Any, **kwargs: Any) -> Any:
    def pinned(stream: Any) -> Any:
        return sys.modules["uuid"].UUID(bytes=stream.bytes(16), version=1)

    return USES.ask(NAME, "uuid.uuid1", lambda: original(*args, **kwargs), pinned)


def _watch_random() -> None:
    shared = vars(random)["_inst"]

    def drawn(source: str, generator: Any, seed: Any, real: Any) -> None:
        def state() -> Any:
            real()
            return generator.getstate() if USES.watch else None  # C hands what it drew to nobody

        USES.ask(NAME, source, state, lambda stream: seed(stream.integer(256)))

    def seeded(original: Any, generator: Any, a: Any = None, *args: Any, **kwargs: Any) -> None:
        seed = functools.partial(original, generator)
        if a is None:
            drawn("random.Random.seed", generator, seed, seed)
        else:
            seed(a, *args, **kwargs)

    def forked() -> None:  # `random` has just seeded itself anew in this child
        drawn("random, in a forked process", shared, shared.seed, int)

    wrap(random.Random, "seed", seeded)
    random.seed = shared.seed
    os.register_at_fork(after_in_child=forked)


def _open(original: Any, path: Any, *args: Any, **kwargs: Any) -> Any:
    name = path if isinstance(path, str) else _text(path)
    if name not in _DEVICES:
        return original(path, *args, **kwargs)

    def pinned(stream: Any) -> Any:
        held = os.memfd_create("random")
        os.write(held, stream.bytes(_FILE_BYTES))
        os.lseek(held, 0, os.SEEK_SET)
        return _Opened(held if original is _os_open else original(held, *args, **kwargs))

    real = functools.partial(original, path, *args, **kwargs)
    return USES.ask(NAME, "open(%r)" % name, lambda: _Opened(real()), pinned).file


def _text(path: Any) -> str:
    try:
        return os.fsdecode(path)
    except TypeError:  # a descriptor
        return ""


class _Opened:
    """A file that was opened; what is read from it later is not seen, so every opening counts as
    another answer."""

    def __init__(self, file: Any) -> None:
        self.file = file

    def __repr__(self) -> str:
        return "opened at %x" % id(self)
