"""What torch's DataLoaders hand out: each one at its first batch, whether training followed, and digests of the records in its batches.

Called by `torch_hooks` inside the probe's own time. A record is the i-th slice of everything in a batch that has one slice for each record,
so that the same record has the same digest in whichever batch, and from whichever loader, it comes.
"""

from __future__ import annotations

import base64
import ctypes
import dataclasses
import hashlib
import weakref
from collections.abc import Mapping
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from ..trace.format import MAX_LOADERS, MAX_RECORDS, RECORD_BYTES
from .digest import local
from .session import Session

_LEAVES = 1_000  # of one batch
_DEPTH = 8
_SCALARS = (str, bytes, int, float, complex, bool, type(None))
Slice = Callable[[int], bytes]


class _Loader:
    """One DataLoader in use. `records` holds each digest once, in the order of first sight."""

    def __init__(self, number: int, loader: Any) -> None:
        self.number = number
        self.role = "evaluation"
        self.records: Dict[bytes, None] = {}
        self.whole = True
        self.collates = bool(getattr(loader, "_auto_collation", True))  # else a batch is whatever the data set gave
        size = getattr(loader, "batch_size", None)
        self.most: Optional[int] = size if isinstance(size, int) else None


class Loaders:
    """The DataLoaders of one process; tells them apart by identity and holds none of them alive."""

    def __init__(self, torch: Any, session: Session) -> None:
        self._torch = torch
        self._session = session
        self._made_by: Any = weakref.WeakKeyDictionary()  # iterator -> weak reference to its loader
        self._known: Any = weakref.WeakKeyDictionary()  # loader, or an iterator without one -> _Loader
        self._all: List[_Loader] = []
        self._last: Optional[_Loader] = None

    def started(self, loader: Any, iterator: Any) -> None:
        """`iter(loader)` gave this iterator."""
        if iterator is not loader:
            self._made_by[iterator] = weakref.ref(loader)

    def batch(self, iterator: Any, value: Any) -> None:
        """An iterator hands out a batch."""
        reference = self._made_by.get(iterator)
        loader = reference() if reference is not None else None
        key = iterator if loader is None else loader
        known = self._known.get(key)
        if known is None:
            if len(self._all) >= MAX_LOADERS:
                self._last = None
                return
            known = self._known[key] = _Loader(len(self._all), key)
            self._all.append(known)
            seed = getattr(iterator, "_base_seed", None)
            workers = getattr(iterator, "_num_workers", 0)
            self._session.event(
                "loader",
                number=known.number,
                workers=workers if type(workers) is int else 0,
                base_seed=seed if type(seed) is int else None,
            )
        self._last = known if self._torch.is_grad_enabled() else None  # what is fetched without gradients is not trained on
        if self._session.config.get("observe") and known.whole and known.collates:
            self._collect(known, value)

    def trained(self) -> None:
        """A backward pass, or an optimizer's step: the last batch before it was one to train on."""
        if self._last is not None:
            self._last.role = "train"

    def write(self) -> None:
        """Write the records of each loader."""
        for loader in self._all:
            if loader.records:
                digests = base64.b64encode(b"".join(loader.records)).decode("ascii")
                self._session.event("records", loader=loader.number, role=loader.role, digests=digests, whole=loader.whole)

    def _collect(self, known: _Loader, value: Any) -> None:
        try:
            for digest in record_digests(self._torch, value, known.most):
                if digest not in known.records:
                    if len(known.records) >= MAX_RECORDS:
                        known.whole = False
                        return
                    known.records[digest] = None
        except Exception as error:  # a batch of a kind that was not foreseen: the recording of everything else goes on
            known.whole = False
            self._session.note("records-not-read", "loader %d: %s: %s" % (known.number, type(error).__name__, error))


def record_digests(torch: Any, batch: Any, most: Optional[int] = None) -> Iterator[bytes]:
    """The digest (8 bytes of BLAKE2b) of each record of a batch, in order; none where its records cannot be told apart.

    The number of records is the first dimension of the first tensor or array that has one, `most` at most where it is given. What has this
    many slices is part of each record: tensors and arrays with dtype and shape, lists of plain values by their text.
    """
    leaves = list(_leaves(batch, 0))[:_LEAVES]
    count = next((int(leaf.shape[0]) for leaf in leaves if not isinstance(leaf, (list, tuple))), 0)
    if not count or (most is not None and count > most):
        return
    slices = [_slices(torch, leaf) for leaf in leaves if _length(leaf) == count]
    parts = [part for part in slices if part is not None]
    for index in range(count if parts else 0):
        digest = hashlib.blake2b(digest_size=RECORD_BYTES)
        for header, content in parts:
            digest.update(header)
            digest.update(content(index))
        yield digest.digest()


def _leaves(value: Any, depth: int) -> Iterator[Any]:
    """Tensors and arrays with a dimension, and lists of plain values, in the order of the batch."""
    shape = getattr(value, "shape", None)
    if shape is not None and hasattr(value, "dtype"):
        if len(shape):
            yield value
    elif depth > _DEPTH:
        return
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _leaves(item, depth + 1)
    elif isinstance(value, (list, tuple)):
        if value and all(isinstance(item, _SCALARS) for item in value):
            yield value
        else:
            for item in value:
                yield from _leaves(item, depth + 1)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from _leaves(getattr(value, field.name, None), depth + 1)


def _length(leaf: Any) -> int:
    return len(leaf) if isinstance(leaf, (list, tuple)) else int(leaf.shape[0])


def _slices(torch: Any, leaf: Any) -> Optional[Tuple[bytes, Slice]]:
    """What all slices of a leaf share, and the bytes of each; None for a form that has no plain slices (sparse, nested, quantized)."""
    if isinstance(leaf, (list, tuple)):
        return b"|list|", lambda index: repr(leaf[index]).encode("utf-8", "backslashreplace") + b"|"
    shape = tuple(int(size) for size in leaf.shape[1:])
    header = ("|%s|%s|" % (str(leaf.dtype).replace("torch.", ""), shape)).encode()
    if isinstance(leaf, torch.Tensor):
        return _tensor_slices(torch, leaf, header)
    if not hasattr(leaf, "tobytes"):
        return None
    if leaf.dtype == object:
        return header, lambda index: repr(leaf[index]).encode("utf-8", "backslashreplace") + b"|"
    content = leaf.tobytes()
    size = len(content) // len(leaf)
    return header, lambda index: content[index * size : (index + 1) * size]


def _tensor_slices(torch: Any, tensor: Any, header: bytes) -> Optional[Tuple[bytes, Slice]]:
    if local(tensor) is not tensor or tensor.layout is not torch.strided or tensor.is_quantized or getattr(tensor, "is_nested", False):
        return None
    with torch.no_grad(), torch._C.DisableTorchFunctionSubclass():
        plain = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    total = plain.numel() * plain.element_size()
    if not total:
        return header, lambda index: b""
    content = memoryview((ctypes.c_char * total).from_address(plain.data_ptr()))
    size = total // int(plain.shape[0])

    def slice_of(index: int, holder: Any = plain) -> Any:  # the memory lives as long as the tensor that holds it
        return content[index * size : (index + 1) * size]

    return header, slice_of
