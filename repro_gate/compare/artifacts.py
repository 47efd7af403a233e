"""Two artifacts compared with each other, leaf by leaf.
A pure function over what `read_leaves` found.
"""

from __future__ import annotations

from dataclasses import dataclass

from repro_gate.trace.artifacts.interface import STRUCTURE, WHOLE_FILE, Artifact, Leaf

_UNREAD = "a file that was not read cannot be compared"


@dataclass(frozen=True)
class LeafDifference:
    """One leaf in which two artifacts differ.

    `artifact` names the file, `leaf` the leaf in it, `name` both (`out/final.pt: state_dict.weight`). `what` is `value`, `dtype`, `shape`,
    `kind`, `missing` (on one side), `format` (the files were read by different members), `structure`, or `unread` (a side was refused).
    `values` are both sides as short text: values where they are known, else the first 12 digits of the digests. `dtype` and `shape` are
    the first side's, or the second's where the first has no such leaf. `detail` says in words what the values do not show; it is empty
    where only values differ.
    """

    artifact: str
    leaf: str
    what: str
    values: tuple[str, str]
    dtype: str | None = None
    shape: tuple[int, ...] | None = None
    detail: str = ""

    @property
    def name(self) -> str:
        """File and leaf as one name."""
        return f"{self.artifact}: {self.leaf}" if self.artifact and self.leaf else self.artifact or self.leaf


def compare_artifacts(a: Artifact, b: Artifact, name: str) -> tuple[LeafDifference, ...]:
    """Differing leaves in the order of `a`, then those that only `b` holds. Empty when both hold the same.

    Files with equal digests are equal without a look inside. A refused artifact is never equal to anything: what was not read cannot be
    shown to repeat.
    """
    if "refused" in (a.format, b.format):
        return (LeafDifference(name, WHOLE_FILE, "unread", (a.note or "read", b.note or "read"), detail=_UNREAD),)
    if a.digest == b.digest and a.size == b.size:
        return ()
    if a.format != b.format:
        detail = "; ".join(f"{side}: {artifact.note}" for side, artifact in (("first", a), ("second", b)) if artifact.note)
        return (LeafDifference(name, WHOLE_FILE, "format", (a.format, b.format), detail=detail or "the files are of different formats"),)
    found = [difference for leaf, left in a.leaves.items() if (difference := _differs(name, leaf, left, b.leaves.get(leaf)))]
    found += [difference for leaf, right in b.leaves.items() if leaf not in a.leaves if (difference := _differs(name, leaf, None, right))]
    if not found and a.structure != b.structure:
        detail = "every value is equal, but containers, the types of keys, or what is trainable are not"
        found.append(LeafDifference(name, STRUCTURE, "structure", (a.structure[:12], b.structure[:12]), detail=detail))
    return tuple(found)


def _differs(artifact: str, name: str, a: Leaf | None, b: Leaf | None) -> LeafDifference | None:
    if a is not None and b is not None and (a.digest, a.kind, a.dtype, a.shape) == (b.digest, b.kind, b.dtype, b.shape):
        return None
    what, detail = _what(a, b)
    known = a or b
    assert known is not None  # one side has the leaf
    return LeafDifference(artifact, name, what, (_shown(a), _shown(b)), known.dtype, known.shape, detail)


def _what(a: Leaf | None, b: Leaf | None) -> tuple[str, str]:
    if a is None or b is None:
        return "missing", f"missing in the {'first' if a is None else 'second'}"
    for what, left, right in (("kind", a.kind, b.kind), ("dtype", a.dtype, b.dtype)):
        if left != right:
            return what, f"{what} {left} against {right}"
    if a.shape != b.shape:
        return "shape", f"shape {list(a.shape or ())} against {list(b.shape or ())}"
    return "value", ""


def _shown(leaf: Leaf | None) -> str:
    if leaf is None:
        return "missing"
    return leaf.digest[:12] if leaf.value is None else leaf.value
