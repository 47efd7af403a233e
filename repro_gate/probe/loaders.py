"""What torch's DataLoaders hand out: each one at its first batch, whether training followed, and digests of the records in its batches.

A record is the i-th slice of everything in a batch that has one slice for each record, so that the same record has the same digest in
whichever batch, and from whichever loader, it comes.
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
from .digest import in_memory, local
from .session import Session

_LEAVES = 1_000  # of one batch
_DEPTH = 8
_SCALARS = (str, bytes, int, float, complex, bool, type(None))
Slice = Callable[[int], bytes]


class _Kept:
    """The records of one DataLoader, or of all that were made for the same ones (a new one for each epoch); `number` is the first of them.
    `records` holds each digest once, in the order of first sight; `size` is the length of the data set, where it has one."""

    def __init__(self, number: int, dataset: Any) -> None:
        self.number = number
        self.role = "evaluation"
        self.records: Dict[bytes, None] = {}
        self.whole = True
        self.dataset = _reference(dataset)
        self.size = _size(dataset)

    def same(self, other: "_Kept") -> bool:
        """Whether `other`, whose loader came later, draws from the same records. A data set that lives is itself and no other one; where
        one is gone, or cannot be referred to weakly, its size and a record that both hold tell. Samplers may share out one data set for
        evaluation: there a record that both hold is asked for as well."""
        mine, others = self.dataset(), other.dataset()
        if self.role != other.role or (mine is not None and mine is not others) or (mine is None and self.size != other.size):
            return False
        return (mine is not None and self.role == "train") or not self.records.keys().isdisjoint(other.records)


class _Loader:
    """One DataLoader in use. `alive` gives it, or its iterator where that is all there is, as long as it exists."""

    def __init__(self, key: Any, kept: _Kept) -> None:
        self.alive = weakref.ref(key)
        self.kept = kept
        self.collates = bool(getattr(key, "_auto_collation", True))  # else a batch is whatever the data set gave
        size = getattr(key, "batch_size", None)
        self.most: Optional[int] = size if isinstance(size, int) else None


_WHOLE = ("RandomSampler", "SequentialSampler", "DistributedSampler")  # samplers of torch's that draw every record of a data set


class Loaders:
    """The DataLoaders of one process; tells them apart by identity and holds neither them nor their data sets alive.

    What a loader drew is kept apart until its role is certain: it was trained on, or it is gone. Then it joins what the loaders before it
    drew from the same records, so that a new loader for each epoch costs no more than one for all.
    """

    def __init__(self, torch: Any, session: Session) -> None:
        self._torch = torch
        self._session = session
        self._made_by: Any = weakref.WeakKeyDictionary()  # iterator -> weak reference to its loader
        self._known: Any = weakref.WeakKeyDictionary()  # loader, or an iterator without one -> _Loader
        self._datasets: List[Callable[[], Any]] = []  # weak references to data sets, in the order of their numbers
        self._open: List[_Loader] = []  # those that live
        self._kept: List[_Kept] = []  # in the order of their numbers
        self._count = 0  # loaders so far
        self._records = 0  # records of all that are kept
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
            self._settle()
            if self._count >= MAX_LOADERS:
                self._last = None
                return
            known = self._known[key] = self._new(key, iterator)
        self._last = known if self._torch.is_grad_enabled() else None  # what is fetched without gradients is not trained on
        if self._session.config.get("observe") and known.kept.whole and known.collates:
            self._collect(known, value)

    def trained(self) -> None:
        """A backward pass, or an optimizer's step: the last batch before it was one to train on."""
        if self._last is not None and self._last.kept.role != "train":
            self._last.kept.role = "train"
            self._join(self._last)

    def write(self) -> None:
        """Write the records of each loader, those of several that drew from the same ones once."""
        self._settle()
        for kept in self._kept:
            if kept.records:
                digests = base64.b64encode(b"".join(kept.records)).decode("ascii")
                self._session.event("records", loader=kept.number, role=kept.role, digests=digests, whole=kept.whole)

    def _new(self, key: Any, iterator: Any) -> _Loader:
        kept = _Kept(self._count, getattr(iterator, "_dataset", None))
        known = _Loader(key, kept)
        self._count += 1
        self._open.append(known)
        self._kept.append(kept)
        seed = getattr(iterator, "_base_seed", None)
        workers = getattr(iterator, "_num_workers", 0)
        self._session.event(
            "loader",
            number=kept.number,
            workers=workers if type(workers) is int else 0,
            base_seed=seed if type(seed) is int else None,
            dataset=self._dataset(key, iterator),
        )
        return known

    def _dataset(self, loader: Any, iterator: Any) -> Optional[int]:
        """A number for the data set that this loader draws whole; None where it draws a part of it, or that cannot be told."""
        dataset = getattr(iterator, "_dataset", None)
        if type(getattr(loader, "sampler", None)).__name__ not in _WHOLE:
            return None
        number = next((number for number, reference in enumerate(self._datasets) if reference() is dataset), None)
        if number is None and dataset is not None and len(self._datasets) < MAX_LOADERS:
            number = len(self._datasets)
            self._datasets.append(_reference(dataset))
        return number

    def _settle(self) -> None:
        """The role of a loader that is gone is certain: let it join the others."""
        gone = [known for known in self._open if known.alive() is None]
        self._open = [known for known in self._open if known.alive() is not None]
        for known in gone:
            self._join(known)

    def _join(self, known: _Loader) -> None:
        """Put what a loader drew to what loaders before it drew from the same records, if any did."""
        mine = known.kept
        others = {id(item.kept) for item in self._open if item.kept.role == "evaluation"}  # may yet be trained on
        first = next((item for item in self._kept if item.number < mine.number and id(item) not in others and item.same(mine)), None)
        if first is None or any(item is not known and item.kept is mine for item in self._open):
            return
        self._kept.remove(mine)
        before = len(first.records) + len(mine.records)
        first.records.update(mine.records)
        first.whole = first.whole and mine.whole
        first.dataset = mine.dataset
        self._records += len(first.records) - before
        known.kept = first

    def _collect(self, known: _Loader, value: Any) -> None:
        kept = known.kept
        try:
            for digest in record_digests(self._torch, value, known.most):
                if digest not in kept.records:
                    if self._records >= MAX_RECORDS and not self._make_room(kept):
                        kept.whole = False
                        return
                    kept.records[digest] = None
                    self._records += 1
        except Exception as error:  # a batch of a kind that was not foreseen: the recording of everything else goes on
            kept.whole = False
            self._session.note("records-not-read", "loader %d: %s: %s" % (kept.number, type(error).__name__, error))

    def _make_room(self, kept: _Kept) -> bool:
        """Let go of a record of the loader that has the most, unless that is this one: a large training set leaves room for the others."""
        largest = max(self._kept, key=lambda item: len(item.records))
        if len(largest.records) <= len(kept.records) + 1:
            return False
        largest.records.popitem()
        largest.whole = False
        self._records -= 1
        return True


def _reference(dataset: Any) -> Callable[[], Any]:
    """A weak reference; one to nothing where there can be none (a list)."""
    try:
        return weakref.ref(dataset)
    except TypeError:
        return lambda: None


def _size(dataset: Any) -> Optional[int]:
    try:
        return len(dataset)
    except Exception:  # an iterable data set has no length, and a length can be the training's own code
        return None


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
    if not in_memory(torch, tensor):
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
