"""What a member of this family promises, in one page: a file goes in, named leaves come out, and nothing in the file is ever executed.

A member is a function `read(file) -> Contents` in a module of its own (`torch_zip`, `safetensors`, `npz`, `json_leaves`, `csv_leaves`).
The files were written by an untrusted code, so a member

- imports and calls nothing that the file names; globals in a pickle are text,
- raises `Unreadable` for a file that is malformed or above a limit below, and leaves everything else to `read.py`, which then falls
  back to one digest over the whole file and says why in `Artifact.note`,
- holds at most a few chunks of tensor data in memory, whatever the size of the file,
- gives the same leaves for the same content, whatever the name, the time stamps or the padding of the file that holds it.

Standard library only: the gate's side knows neither torch nor numpy.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import BinaryIO

CHUNK = 4 * 1024 * 1024  # bytes of tensor data held at once; a multiple of every item size up to 16
MAX_INPUTS = 250_000
MAX_SECONDS = 600.0  # for looking inside all artifacts of a gate run; what is not read by then is compared by its bytes
MAX_SIZE = 2**53  # of one dimension: above it a JSON number is no longer exact
MAX_DEPTH = 100  # of nested containers
MAX_NAME = 4096  # characters of one leaf's name
MAX_NAME_TOTAL = 64 * 1024 * 1024  # characters of all names and values of one file
MAX_VALUE = 200  # characters of `Leaf.value`; the digest covers all of them
MAX_EXPANSION = 16  # bytes that may be digested for each byte of the file: views that share a storage, expanded tensors
FREE_EXPANSION = 64 * 1024 * 1024  # bytes that may be digested whatever the size of the file
MAX_SLICES = 4_000_000  # strided copies for one file; about half a microsecond each

WHOLE_FILE = "(file)"  # the name of the one leaf of a file without inner structure
ROOT = "(root)"  # the name of the leaf of a file that holds one bare value
STRUCTURE = "(structure)"  # what differs when every leaf is equal, yet containers or the types of keys are not


_DEADLINE: ContextVar[float] = ContextVar("deadline")  # of the file that is being read, by the monotonic clock


class Unreadable(Exception):
    """A file that is not what its name says, is malformed, or is above a limit. The text is for a person."""


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Inside, `on_time` raises when `seconds` are over."""
    token = _DEADLINE.set(time.monotonic() + seconds)
    try:
        yield
    finally:
        _DEADLINE.reset(token)


def on_time() -> None:
    """To be called in every loop over what a file holds. Raises Unreadable past the deadline."""
    if time.monotonic() >= _DEADLINE.get(float("inf")):
        raise Unreadable(f"the time for looking inside artifacts ({MAX_SECONDS:g} s for a gate run) is over")


@dataclass(frozen=True)
class Leaf:
    """One comparable quantity of a file.

    `kind` is `tensor`, `number`, `text` or `bytes`. `dtype` is torch's name (`float32`, `bfloat16`), numpy's description (`>f4`), or the
    type of a scalar (`int`, `float`, `bool`, `str`, `None`, `dict` for an empty one). `digest` is the hex sha256 over dtype, shape and
    logical contiguous bytes in little-endian order for tensors, over type and value for everything else. `value` is the value itself
    where it is short.
    """

    kind: str
    dtype: str | None
    shape: tuple[int, ...] | None
    digest: str
    value: str | None = None


@dataclass(frozen=True)
class Contents:
    """What a member found. `structure` is a digest over container types and types of keys, blind to the order of keys."""

    leaves: Mapping[str, Leaf]
    structure: str = ""
    note: str = ""


@dataclass(frozen=True)
class Artifact:
    """A file read leaf by leaf, in the order in which the file holds them.

    `format` is `torch`, `safetensors`, `npz`, `npy`, `json`, `jsonl`, `csv`, `tsv`, `opaque` (one leaf over the whole file) or `refused`
    (a link, a device, a folder, nothing at all: no leaves). `digest` is the sha256 of the whole file, `note` what a person should know.
    """

    format: str
    digest: str = ""
    size: int = 0
    leaves: Mapping[str, Leaf] = field(default_factory=dict)
    structure: str = ""
    note: str = ""


Reader = Callable[[BinaryIO], Contents]
