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
from typing import Any

from ..patch import held, wrap
from .use import Stream, ask, ask_about, random_marker

NAME = "entropy"
_DEVICES = ("/dev/urandom", "/dev/random", "/dev/hwrng")
_FILE_BYTES = 1 << 23  # what a pinned device holds; who reads more comes to its end


def install() -> None:
    """Wrap the ways to the entropy that are there, and the others once they are imported."""
    ask_about(NAME, "os", "urandom getrandom", _bytes)
    ask_about(NAME, "uuid", "uuid1", _uuid1)
    for owner in (builtins, io, os):
        wrap(owner, "open", _open)
    shared = held("random")._inst
    # `random`'s own names follow with those that `Draws` wraps behind this
    wrap(random.Random, "seed", _seed)
    source = "random, in a forked process"  # where `random` has just seeded itself anew
    again = functools.partial(_seeded, source, shared, int, shared.seed)
    os.register_at_fork(after_in_child=again)


def torch_arrived(torch: Any) -> None:
    """Wrap `Generator.seed`, which takes a seed from the operating system: `torch.seed()` and
    CUDA's go through it."""

    def seed(original: Any, generator: Any) -> Any:
        return ask(
            NAME,
            "torch.Generator.seed",
            lambda: original(generator),
            lambda stream, _: generator.manual_seed(
                stream.getrandbits(53)
            ).initial_seed(),
        )

    wrap(torch._C.Generator, "seed", seed)


def _bytes(stream: Stream, real: bytes) -> bytes:
    return stream.randbytes(len(real))


def _uuid1(stream: Stream, real: Any) -> Any:
    return type(real)(bytes=stream.randbytes(16), version=1)


def _seed(original: Any, generator: Any, a: Any = None, *args: Any, **kw: Any) -> None:
    seed = functools.partial(original, generator)
    if a is None:
        _seeded("random.Random.seed", generator, seed, seed)
    else:
        seed(a, *args, **kw)


def _seeded(source: str, generator: Any, real: Any, seed: Any) -> None:
    ask(
        NAME,
        source,
        real,
        lambda stream, _: seed(stream.getrandbits(256)),
        # C hands what it drew to nobody
        content=lambda _: generator.getstate(),
    )


def _open(original: Any, *args: Any, **kwargs: Any) -> Any:
    real = functools.partial(original, *args, **kwargs)
    path = args[0] if args else kwargs.get("file", kwargs.get("path"))
    name = os.fsdecode(path) if isinstance(path, (str, bytes, os.PathLike)) else ""
    if name not in _DEVICES:
        return real()
    source = f"open({name!r})"
    return ask(NAME, source, real, _filled, content=lambda _: random_marker())


def _filled(stream: Stream, opened: Any) -> Any:
    """Put a file of pinned bytes in the place of a device that was opened."""
    memory = os.memfd_create("random")
    os.write(memory, stream.randbytes(_FILE_BYTES))
    os.lseek(memory, 0, os.SEEK_SET)
    place = opened if isinstance(opened, int) else opened.fileno()
    os.dup2(memory, place, inheritable=False)
    os.close(memory)
    return opened
