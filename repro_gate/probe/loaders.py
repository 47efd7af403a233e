"""What torch's DataLoaders hand out: each one at its first batch, whether training followed, and
digests of the records in its batches.

A record is the i-th slice of everything in a batch that has one slice for each record, so that the
same record has the same digest in whichever batch, and from whichever loader, it comes.
"""

from __future__ import annotations

import base64
import ctypes
import hashlib
import weakref
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from ..trace.format import MAX_LOADERS, MAX_RECORDS, RECORD_BYTES
from .digest import in_memory, local
from .names import SCALARS, held, is_array
from .patch import WeakByIdentity

_LEAVES = 1_000  # of one batch
_DEPTH = 8
# samplers of torch's that draw every record of a data set
_WHOLE = (
    "RandomSampler",
    "SequentialSampler",
    "DistributedSampler",
)
Slice = Callable[[int], bytes]


class _Loader:
    """One DataLoader: `records` holds each digest once, in the order of first sight; `dataset`
    numbers the data set that it draws whole."""

    def __init__(self, number: int, key: Any, dataset: Optional[int]) -> None:
        self.number, self.dataset = number, dataset
        self.role = "evaluation"
        self.records: Dict[bytes, None] = {}
        self.whole = True
        # else a batch is whatever the data set gave
        self.collates = bool(getattr(key, "_auto_collation", True))
        size = getattr(key, "batch_size", None)
        self.most: Optional[int] = size if isinstance(size, int) else None


class Loaders:
    """The DataLoaders of one process; tells them apart by identity and holds neither them nor their
    data sets alive."""

    def __init__(self, torch: Any, session: Any) -> None:
        self._torch = torch
        self._session = session
        self._made_by = WeakByIdentity()  # iterators, with weak references to their loaders
        self._known = WeakByIdentity()  # loaders, or iterators without one, with their _Loader
        self._datasets: List[
            Any
        ] = []  # weak references to data sets, in the order of their numbers
        self._all: List[_Loader] = []
        self._count = 0  # records of all that are kept
        self._last: Optional[_Loader] = None

    def started(self, loader: Any, iterator: Any) -> None:
        """`iter(loader)` gave this iterator."""
        if iterator is not loader:
            self._made_by.add(iterator, weakref.ref(loader))

    def batch(self, iterator: Any, value: Any) -> None:
        """An iterator hands out a batch."""
        reference = self._made_by.get(iterator)
        loader = reference() if reference is not None else None
        key = iterator if loader is None else loader
        known = self._known.get(key)
        if known is None and len(self._all) < MAX_LOADERS:
            known = self._known.add(key, self._new(key, iterator))
        # what is fetched without gradients is not trained on
        self._last = known if self._torch.is_grad_enabled() else None
        if (
            known is not None
            and self._session.config.get("observe")
            and known.whole
            and known.collates
        ):
            self._collect(known, value)

    def trained(self) -> None:
        """A backward pass, or an optimizer's step: the last batch before it was one to train on."""
        if self._last is not None:
            self._last.role = "train"

    def write(self) -> None:
        """Write the records of each loader; those of several that drew the same ones (a new loader
        for each epoch) once."""
        groups: List[_Loader] = []
        for loader in self._all:
            first = next(
                (
                    item
                    for item in groups
                    if item.role == loader.role
                    and not loader.records.keys().isdisjoint(item.records)
                ),
                None,
            )
            if first is None:
                groups.append(loader)
            else:
                first.records.update(loader.records)
                first.whole = first.whole and loader.whole
        for loader in groups:
            if loader.records:
                digests = base64.b64encode(b"".join(loader.records)).decode("ascii")
                self._session.event(
                    "records",
                    loader=loader.number,
                    role=loader.role,
                    digests=digests,
                    whole=loader.whole,
                )

    def _new(self, key: Any, iterator: Any) -> _Loader:
        known = _Loader(
            len(self._all), key, self._dataset(key, getattr(iterator, "_dataset", None))
        )
        self._all.append(known)
        seed, workers = getattr(iterator, "_base_seed", None), getattr(iterator, "_num_workers", 0)
        self._session.event(
            "loader",
            number=known.number,
            workers=workers if type(workers) is int else 0,
            base_seed=seed if type(seed) is int else None,
            dataset=known.dataset,
        )
        return known

    def _dataset(self, loader: Any, dataset: Any) -> Optional[int]:
        """A number for the data set that this loader draws whole; None where it draws a part of it,
        or that cannot be told."""
        if type(getattr(loader, "sampler", None)).__name__ not in _WHOLE:
            return None
        number = next(
            (number for number, reference in enumerate(self._datasets) if reference() is dataset),
            len(self._datasets),
        )
        if number == len(self._datasets):
            try:
                self._datasets.append(weakref.ref(dataset))
            except TypeError:  # a list
                return None
        return number

    def _collect(self, known: _Loader, value: Any) -> None:
        try:
            for digest in record_digests(self._torch, value, known.most):
                if digest not in known.records:
                    if self._count >= MAX_RECORDS and not self._make_room(known):
                        known.whole = False
                        return
                    known.records[digest] = None
                    self._count += 1
        except Exception as error:
            # a batch of a kind that was not foreseen: the recording of everything else goes on
            known.whole = False
            self._session.note(
                "records-not-read",
                "loader %d: %s: %s" % (known.number, type(error).__name__, error),
            )

    def _make_room(self, known: _Loader) -> bool:
        """Let go of a record of the loader that has the most, unless that is this one: a large
        training set leaves room for the others."""
        largest = max(self._all, key=lambda item: len(item.records))
        if len(largest.records) <= len(known.records) + 1:
            return False
        largest.records.popitem()
        largest.whole = False
        self._count -= 1
        return True


def record_digests(torch: Any, batch: Any, most: Optional[int] = None) -> Iterator[bytes]:
    """The digest (8 bytes of BLAKE2b) of each record of a batch, in order; none where its records
    cannot be told apart.

    The number of records is the first dimension of the first tensor or array that has one, `most`
    at most where it is given. What has this many slices is part of each record: tensors and arrays
    with dtype and shape, lists of plain values by their text.
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
    if is_array(value) and hasattr(type(value), "shape"):
        if len(value.shape):
            yield value
    elif depth > _DEPTH or isinstance(value, SCALARS):
        return
    else:
        items = [item for _, item in held(value)]
        if (
            isinstance(value, (list, tuple))
            and items
            and all(isinstance(item, SCALARS) for item in items)
        ):
            yield items
        else:
            for item in items:
                yield from _leaves(item, depth + 1)


def _length(leaf: Any) -> int:
    return len(leaf) if isinstance(leaf, (list, tuple)) else int(leaf.shape[0])


def _slices(torch: Any, leaf: Any) -> Optional[Tuple[bytes, Slice]]:
    """What all slices of a leaf share, and the bytes of each; None for a form that has no plain
    slices (sparse, nested, quantized)."""
    if isinstance(leaf, (list, tuple)):
        return b"|list|", lambda index: repr(leaf[index]).encode("utf-8", "backslashreplace") + b"|"
    count, *shape = (int(size) for size in leaf.shape)
    plain: Any = None
    content: Any = b""
    header = ("|%s|%s|" % (str(leaf.dtype).replace("torch.", ""), tuple(shape))).encode()
    if isinstance(leaf, torch.Tensor):
        nested = leaf.is_quantized or getattr(leaf, "is_nested", False) or local(leaf) is not leaf
        if nested or leaf.layout is not torch.strided or not in_memory(torch, leaf):
            return None
        with torch.no_grad(), torch._C.DisableTorchFunctionSubclass():
            plain = leaf.detach().resolve_conj().resolve_neg().cpu().contiguous()
        if plain.numel():
            content = memoryview(
                (ctypes.c_char * (plain.numel() * plain.element_size())).from_address(
                    plain.data_ptr()
                )
            )
    elif not hasattr(leaf, "tobytes"):
        return None
    elif leaf.dtype == object:
        return header, lambda index: repr(leaf[index]).encode("utf-8", "backslashreplace") + b"|"
    else:
        content = leaf.tobytes()
    size = len(content) // count

    def slice_of(index: int, holder: Any = plain) -> Any:
        # the memory lives as long as the tensor that holds it
        return content[index * size : (index + 1) * size]

    return header, slice_of
