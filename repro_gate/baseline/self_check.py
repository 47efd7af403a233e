"""An address shows of itself that it is stable and sees every leaf. Pure; called by `build`, for every run of the gate."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace

from repro_gate.baseline.config_hash import PLATFORM, RECIPE, ContentAddress, Leaf, Leaves, Proof
from repro_gate.baseline.tree import address, config_hash, leaf_hash, leaf_hashes, root_hash


def prove(given: ContentAddress) -> ContentAddress:
    """The address with its proof.

    Stable: a copy of the leaves, put together in reverse order, hashes to the same. Moved: a leaf counts if each way of changing its value
    gives it another hash, and if changing it and removing it both give its root and the config hash another value, the other root standing.
    """
    again = address(_copied(given.recipe_leaves), _copied(given.platform_leaves))
    stable = (again.config_hash, again.recipe, again.platform) == (given.config_hash, given.recipe, given.platform)
    return replace(given, proof=Proof(stable, len(given.recipe_leaves) + len(given.platform_leaves), _moved(given)))


def changes(value: Leaf) -> Iterator[Leaf]:
    """Other values that a hash must tell from this one: the next of its kind, and what a careless hash folds with it."""
    if value is None:
        yield from ("", False, "null")
    elif isinstance(value, bool):
        yield from (not value, int(value), None)
    elif isinstance(value, int):
        yield from (value + 1, str(value), bool(value))
        if abs(value) <= 2**53:
            yield float(value)
    elif isinstance(value, float):
        yield from (-value if value == value else 0.0, None, value.hex())
    elif isinstance(value, str):
        yield value + " "
        yield value[:-1] if value else None
        yield [value]
    elif isinstance(value, list):
        yield [*value, None]
        yield None
        if value:
            yield value[:-1]
    else:
        yield {**value, max(value, default="") + " ": None}
        yield None
        yield list[Leaf](value)


def _moved(given: ContentAddress) -> int:
    """How many leaves move their root and the config hash, and nothing else."""
    hashes = {RECIPE: leaf_hashes(given.recipe_leaves), PLATFORM: leaf_hashes(given.platform_leaves)}
    before = {kind: root_hash(kind, leaves.values()) for kind, leaves in hashes.items()}
    count = 0
    for kind, leaves in ((RECIPE, given.recipe_leaves), (PLATFORM, given.platform_leaves)):
        for name, value in leaves.items():
            changed = [leaf_hash(name, other) for other in changes(value)]
            rest = [digest for other, digest in hashes[kind].items() if other != name]
            roots = [before | {kind: root_hash(kind, some)} for some in ([*rest, changed[0]], rest)]
            count += hashes[kind][name] not in changed and all(_only(kind, before, after) for after in roots)
    return count


def _only(kind: str, before: dict[str, bytes], after: dict[str, bytes]) -> bool:
    """Whether that root and the config hash differ, and the other root does not."""
    others = all(before[other] == after[other] for other in before if other != kind)
    return others and before[kind] != after[kind] and _config(before) != _config(after)


def _config(roots: dict[str, bytes]) -> bytes:
    return config_hash(roots[RECIPE], roots[PLATFORM])


def _copied(leaves: Leaves) -> dict[str, Leaf]:
    return deepcopy(dict(reversed(list(leaves.items()))))
