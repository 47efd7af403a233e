"""Which leaves two addresses differ in, and an address as lines of text. Pure; called by `repro-gate hash`, the lock and the report."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from repro_gate.baseline.canonical import to_form
from repro_gate.baseline.config_hash import PLATFORM, RECIPE, ContentAddress, Leaf, LeafMove, Leaves


def moved(before: ContentAddress, after: ContentAddress) -> tuple[LeafMove, ...]:
    """The leaves that differ: the recipe's first, each root's by name. Values are told apart as the hash does: `1` is not `1.0`."""
    return tuple(
        LeafMove(root, name, _text_of(old, name), _text_of(new, name))
        for root, old, new in (
            (RECIPE, before.recipe_leaves, after.recipe_leaves),
            (PLATFORM, before.platform_leaves, after.platform_leaves),
        )
        for name in sorted(old.keys() | new.keys())
        if name not in old or name not in new or to_form(old[name]) != to_form(new[name])
    )


def tree_lines(address: ContentAddress) -> tuple[str, ...]:
    """The address as a tree, one line for each hash and leaf. Names and values are as the checkout gave them: the printer escapes them."""
    lines = [f"{address.config_hash}  config"]
    for root, digest, leaves in (
        (RECIPE, address.recipe, address.recipe_leaves),
        (PLATFORM, address.platform, address.platform_leaves),
    ):
        width = max((len(name) for name in leaves if len(name) <= 60), default=0)
        lines += [f"  {digest}  {root}", *(f"    {name:<{width}}  {leaf_text(leaves[name])}" for name in leaves)]
    return (*lines, *_proof_line(address))


def diff_lines(moves: Sequence[LeafMove]) -> tuple[str, ...]:
    """One line for each leaf that moved: `recipe   seeds  [42] -> [7]`; one line that says so where none did."""
    if not moves:
        return ("same address: no leaf differs",)
    count = "1 leaf differs" if len(moves) == 1 else f"{len(moves)} leaves differ"
    shown = [f"  {move.root:<8}  {move.name}  {_or_absent(move.before)} -> {_or_absent(move.after)}" for move in moves]
    return (f"{count}:", *shown)


def leaf_text(value: Leaf) -> str:
    """A value as people read it: text without quotation marks, unless it would read as something else or cannot be seen."""
    if isinstance(value, str):
        plain = value.isprintable() and value == value.strip() and value and not _reads_as_json(value) and value != "(absent)"
        return value if plain else json.dumps(value)
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value, sort_keys=True)


def _text_of(leaves: Leaves, name: str) -> str | None:
    return leaf_text(leaves[name]) if name in leaves else None


def _or_absent(text: str | None) -> str:
    return "(absent)" if text is None else text


def _reads_as_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _proof_line(address: ContentAddress) -> Iterator[str]:
    proof = address.proof
    if proof is not None:
        twice = "hashed twice: equal" if proof.stable else "hashed twice: NOT equal"
        yield f"{twice}; {proof.moved} of {proof.leaves} leaves move it when changed"
