"""A member: what `torch.save` writes since torch 1.6 (.pt, .pth, .ckpt, .bin), a zip of one pickle and one entry for each storage.
 The pickle is read as data (`pickle_tree`), tensors are digested from the file without being loaded. Everything in the
zip that the pickle does not lead to (storages of no tensor, the code of a TorchScript archive) is a leaf as well.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import BinaryIO

from repro_gate.trace.artifacts import pickle_tree
from repro_gate.trace.artifacts.interface import Contents, Leaf, Unreadable
from repro_gate.trace.artifacts.strided import Budget, Layout, gathered, stream, swapped, tensor_leaf
from repro_gate.trace.artifacts.torch_tree import DTYPES, Walk, walk
from repro_gate.trace.artifacts.tree import Tree
from repro_gate.trace.artifacts.zip_directory import Entry, entries, unpacked, whole

# Written by torch for its own reader; none of it is content. The serialization id hashes the names and checksums of the other entries.
_BOOKKEEPING = frozenset(("version", "byteorder", ".format_version", ".storage_alignment", ".data/serialization_id"))


def read(file: BinaryIO) -> Contents:
    """The leaves of a checkpoint. Raises Unreadable for another kind of file, legacy torch files included."""
    file.seek(0)
    if file.read(4) != b"PK\x03\x04":
        raise Unreadable("it is no zip file (a legacy torch file, or none at all)")
    found = entries(file)
    root = _root(found)
    inner = {name.removeprefix(root): entry for name, entry in found.items()}
    if not all(entry.stored for entry in inner.values()):
        raise Unreadable("its entries are compressed, which torch never does")
    order = whole(file, inner["byteorder"], 16) if "byteorder" in inner else b"little"
    if order not in (b"little", b"big"):
        raise Unreadable("its byte order is unknown")
    node = pickle_tree.load(whole(file, inner["data.pkl"], pickle_tree.MAX_PICKLE))
    storages = _Storages(file, inner, order == b"big")
    tree = Tree()
    walk(Walk(tree, storages.leaf, storages.budget), "", node)
    for name, entry in inner.items():
        if name != "data.pkl" and name not in _BOOKKEEPING and name not in storages.used:
            leaf = tensor_leaf("bytes", (entry.size,), unpacked(file, entry))
            tree.add(f"zip entry {name}", replace(leaf, kind="bytes"))
    return tree.contents()


def _root(found: dict[str, Entry]) -> str:
    """The folder inside the zip that holds everything; it is named after the file, so names inside start below it."""
    roots = [name.removesuffix("data.pkl") for name in found if name.count("/") == 1 and name.endswith("/data.pkl")]
    if len(roots) != 1 or not all(name.startswith(roots[0]) for name in found):
        raise Unreadable("it is a zip file, but not one that torch.save wrote")
    return roots[0]


class _Storages:
    """Storages of one file: which were used, what was digested before (tied weights), how much work is left."""

    def __init__(self, file: BinaryIO, inner: dict[str, Entry], big: bool) -> None:
        self.file, self.inner, self.big = file, inner, big
        self.used: set[str] = set()
        self.budget = Budget(sum(entry.size for entry in inner.values()))
        self._done: dict[tuple[str, str, Layout], Leaf] = {}

    def leaf(self, key: str, label: str, layout: Layout) -> Leaf:
        """The leaf of the tensor that `layout` describes in storage `key`. Raises Unreadable where it reaches past the storage."""
        known = self._done.get((key, label, layout))
        if known is not None:
            return known
        name = f"data/{key}"
        entry = self.inner.get(name)
        if entry is None:
            raise Unreadable(f"its storage {key!r} is missing")
        if layout.end() * layout.itemsize > entry.size:
            raise Unreadable(f"a tensor reaches past the end of storage {key!r}")
        self.used.add(name)
        leaf = self._done[(key, label, layout)] = self._digest(entry, label, layout)
        return leaf

    def _digest(self, entry: Entry, label: str, layout: Layout) -> Leaf:
        dtype = label.partition(" ")[0]
        if dtype not in DTYPES:  # a type of less than a byte, or a future one: the whole storage, and how it is looked at
            self.budget.spend(Layout((entry.size,), (1,), 1))
            view = f"{label} offset {layout.offset} strides {layout.strides}"
            return replace(tensor_leaf(view, layout.shape, stream(self.file, entry.start, entry.size)), dtype=label)
        self.budget.spend(layout)
        part = DTYPES[dtype][1]
        if layout.contiguous:
            data: Iterable[bytes] = stream(self.file, entry.start + layout.offset * layout.itemsize, layout.nbytes)
            return tensor_leaf(label, layout.shape, swapped(data, part) if self.big else data)
        blocks = gathered(self.file, entry.start, entry.size, layout)
        return tensor_leaf(label, layout.shape, swapped(blocks, part) if self.big else blocks)
