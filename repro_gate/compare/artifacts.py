"""Compares the content of two files that a training wrote, value by value. Pure: `runs.artifacts`
reads the files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from repro_gate.compare.distances import distance_of_values
from repro_gate.compare.model import Distance, Divergence, Value

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
    `digest` is one of its bytes, `structure` a digest over container types and types of
    keys, `note` what a person should know."""

    format: str
    digest: str = ""
    leaves: Mapping[str, Leaf] = field(default_factory=dict)
    structure: str = ""
    note: str = ""


class Pair(NamedTuple):
    """What is compared as `name`: the name that it has in each run, empty where it is not there."""

    name: str
    first: str
    second: str


def paired(a: Mapping[str, str], b: Mapping[str, str]) -> list[Pair]:
    """Return which artifacts of two runs are compared, in order; each run's are given by name, with
    the glob that matched them.

    Those of one name belong together. A glob may match as many others in each run, as where a
    folder is named by the time: these go by the glob, in the order of what its wildcards matched.
    """
    pairs = [Pair(name, name, name) for name in a.keys() & b.keys()]
    others = defaultdict[str, tuple[list[str], list[str]]](lambda: ([], []))
    for side, (ours, theirs) in enumerate(((a, b), (b, a))):
        for name in sorted(ours.keys() - theirs, key=lambda name: name.split("/")):
            others[ours[name]][side].append(name)
    for glob, (first, second) in others.items():
        if len(first) == len(second):
            for number, both in enumerate(zip(first, second, strict=True), 1):
                pairs.append(
                    Pair(f"{glob} ({number})" if len(first) > 1 else glob, *both)
                )
        else:
            pairs += [Pair(name, name, "") for name in first]
            pairs += [Pair(name, "", name) for name in second]
    return sorted(pairs)


def compare_artifacts(
    a: Artifact, b: Artifact, name: str, step: int
) -> tuple[Divergence, ...]:
    """Return the differing leaves of the file `name`, as divergences at `step`: in the order of
    `a`, then those that only `b` has."""
    if a.digest == b.digest:
        return ()
    if a.format != b.format:
        notes = [f"first: {a.note}"] * bool(a.note) + [f"second: {b.note}"] * bool(
            b.note
        )
        detail = (
            "; ".join(notes) or f"{a.format} in the first, {b.format} in the second"
        )
        return (_divergence(name, step, WHOLE_FILE, detail),)
    found = []
    for leaf in dict.fromkeys([*a.leaves, *b.leaves]):
        ours = a.leaves.get(leaf, _MISSING)
        theirs = b.leaves.get(leaf, _MISSING)
        if ours != theirs:
            found.append(_of_leaf(name, step, leaf, ours, theirs))
    if not found and a.structure != b.structure:
        detail = (
            "every value is equal, but containers, the types of "
            "keys, or what is trainable are not"
        )
        found = [_divergence(name, step, _STRUCTURE, detail)]
    return tuple(found)


def _divergence(
    artifact: str, step: int, leaf: str, detail: str, **more: Any
) -> Divergence:
    """Return a divergence, named by file and leaf: `out/final.pt: state_dict.weight`."""
    name = ": ".join(filter(None, (artifact, leaf)))
    return Divergence(step=step, kind="artifact", name=name, detail=detail, **more)


def _of_leaf(artifact: str, step: int, name: str, a: Leaf, b: Leaf) -> Divergence:
    detail = ""
    for part in ("shape", "dtype", "kind"):
        ours = getattr(a, part)
        theirs = getattr(b, part)
        if ours != theirs:
            detail = f"{part} {ours} against {theirs}"
    if _MISSING in (a, b):
        detail = f"only in the {'second' if a == _MISSING else 'first'}"
    known = b if a == _MISSING else a
    first = _value(a)
    second = _value(b)
    values = None
    far = None
    if first is not None and second is not None:
        values = first, second
        far = None if detail else distance_of_values(first, second, known.dtype)
    return _divergence(
        artifact,
        step,
        name,
        detail,
        values=values,
        dtype=known.dtype,
        shape=known.shape,
        **vars(far or Distance()),
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
