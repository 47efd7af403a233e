"""Compares the content of two files that a training wrote, value by value. Pure: `runs.artifacts`
reads the files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from repro_gate.compare.model import Value

# characters of a number: every float has fewer, and a report keeps integers of up to 30 digits
MAX_NUMBER = 25
# the name of the only leaf of a file that is compared by its bytes
WHOLE_FILE = "(file)"
# The difference if all leaves are equal, but containers or types of keys differ.
_STRUCTURE = "(structure)"


@dataclass(frozen=True, kw_only=True)
class Leaf:
    """One value of a file. `kind` is `tensor`, `number`, `text` or `bytes`; `dtype` torch's name
    (`float32`), numpy's description (`>f4`) or the type of a scalar (`int`, `str`, `None`, `dict`
    for an empty one). `digest` (hex) sees dtype, shape and the elements in logical order, or type
    and value; `value` is the value itself where it is short."""

    kind: str
    dtype: str | None
    shape: tuple[int, ...] | None
    digest: str
    value: str | None = None


_MISSING = Leaf(kind="missing", dtype=None, shape=None, digest="")


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """A file's leaves by name, in its order. `format` is `torch`, `safetensors`, `distributed` (a
    folder), `npz`, `npy`, `json`, `jsonl`, `csv`, `tsv` or `opaque` (compared by its bytes).
    `digest` is the SHA-256 of its bytes, `structure` a digest over container types and types of
    keys, `note` what a person should know."""

    format: str
    digest: str = ""
    leaves: Mapping[str, Leaf] = field(default_factory=dict)
    structure: str = ""
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class LeafDifference:
    """One leaf in which two artifacts differ: `artifact` names the file, `leaf` the leaf in it.
    `what` is `value`, `dtype`, `shape`, `kind`, `missing` (on one side), `format` (the files were
    read in different ways) or `structure`. `values` are both sides where they are short, `detail`
    says in words what the values do not show."""

    artifact: str
    leaf: str
    what: str
    values: tuple[Value, Value] | None = None
    dtype: str | None = None
    shape: tuple[int, ...] | None = None
    detail: str = ""

    @property
    def name(self) -> str:
        """Return file and leaf as one name: `out/final.pt: state_dict.weight`."""
        return ": ".join(filter(None, (self.artifact, self.leaf)))


def compare_artifacts(
    a: Artifact, b: Artifact, name: str
) -> tuple[LeafDifference, ...]:
    """Return the differing leaves in the order of `a`, then those that only `b` has."""
    if a.digest == b.digest:
        return ()
    if a.format != b.format:
        notes = [f"first: {a.note}"] * bool(a.note) + [f"second: {b.note}"] * bool(
            b.note
        )
        detail = (
            "; ".join(notes) or f"{a.format} in the first, {b.format} in the second"
        )
        return (
            LeafDifference(
                artifact=name, leaf=WHOLE_FILE, what="format", detail=detail
            ),
        )
    found = []
    for leaf in dict.fromkeys([*a.leaves, *b.leaves]):
        ours = a.leaves.get(leaf, _MISSING)
        theirs = b.leaves.get(leaf, _MISSING)
        if ours != theirs:
            found.append(_difference(name, leaf, ours, theirs))
    if not found and a.structure != b.structure:
        detail = (
            "every value is equal, but containers, the types of "
            "keys, or what is trainable are not"
        )
        found = [
            LeafDifference(
                artifact=name, leaf=_STRUCTURE, what="structure", detail=detail
            )
        ]
    return tuple(found)


def _difference(artifact: str, name: str, a: Leaf, b: Leaf) -> LeafDifference:
    what = "value"
    detail = ""
    for part in ("shape", "dtype", "kind"):
        ours = getattr(a, part)
        theirs = getattr(b, part)
        if ours != theirs:
            what = part
            detail = f"{part} {ours} against {theirs}"
    if _MISSING in (a, b):
        what = "missing"
        detail = f"only in the {'second' if a == _MISSING else 'first'}"
    known = b if a == _MISSING else a
    first = _value(a)
    second = _value(b)
    return LeafDifference(
        artifact=artifact,
        leaf=name,
        what=what,
        values=None if first is None or second is None else (first, second),
        dtype=known.dtype,
        shape=known.shape,
        detail=detail,
    )


def _value(leaf: Leaf) -> Value | None:
    """Return the value of a scalar, as text if it is a very long number or none; None if the value
    is unknown."""
    if leaf.value is None or leaf.shape is not None:
        return None
    if leaf.kind != "number" or len(leaf.value) > MAX_NUMBER:
        return leaf.value
    try:
        if leaf.dtype == "bool":
            return leaf.value == "True"
        return int(leaf.value) if leaf.dtype == "int" else float(leaf.value)
    except ValueError:  # a complex number, a NaN with a payload
        return leaf.value
