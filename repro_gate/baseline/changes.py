"""Which inputs two config hashes differ in, and a config hash as lines of text."""

from __future__ import annotations

import json
from collections.abc import Sequence

from repro_gate.baseline.config_hash import (
    PLATFORM,
    RECIPE,
    ChangedInput,
    ConfigHash,
    Inputs,
    InputValue,
    input_hash,
)


def changed_inputs(before: ConfigHash, after: ConfigHash) -> tuple[ChangedInput, ...]:
    """The inputs that differ: the recipe's first, each root's by name."""
    return (
        *changed(RECIPE, before.recipe_inputs, after.recipe_inputs),
        *changed(PLATFORM, before.platform_inputs, after.platform_inputs),
    )


def changed(root: str, before: Inputs, after: Inputs) -> tuple[ChangedInput, ...]:
    """The inputs of one root that differ, by name. Values are told apart as the hash does."""
    return tuple(
        ChangedInput(root, name, _text_of(before, name), _text_of(after, name))
        for name in sorted(before.keys() | after.keys())
        if name not in before
        or name not in after
        or input_hash(name, before[name]) != input_hash(name, after[name])
    )


def tree_lines(hashed: ConfigHash) -> tuple[str, ...]:
    """The config hash as a tree, one line for each hash and input. Names and values are as the
    checkout gave them: the printer escapes them."""
    lines = [f"{hashed.config_hash}  config"]
    for root, digest, inputs in (
        (RECIPE, hashed.recipe, hashed.recipe_inputs),
        (PLATFORM, hashed.platform, hashed.platform_inputs),
    ):
        width = max((len(name) for name in inputs if len(name) <= 60), default=0)
        lines += [
            f"  {digest}  {root}",
            *(f"    {name:<{width}}  {input_text(inputs[name])}" for name in inputs),
        ]
    return tuple(lines)


def diff_lines(moves: Sequence[ChangedInput]) -> tuple[str, ...]:
    """One line for each input that changed: `recipe   seeds  [42] -> [7]`; one line that says so
    where none did."""
    if not moves:
        return ("same config hash: no input differs",)
    count = "1 input differs" if len(moves) == 1 else f"{len(moves)} inputs differ"
    shown = [
        f"  {move.root:<8}  {move.name}  {_or_absent(move.before)} -> {_or_absent(move.after)}"
        for move in moves
    ]
    return (f"{count}:", *shown)


def input_text(value: InputValue) -> str:
    """A value as people read it: text without quotation marks, unless it would read as something
    else or cannot be seen."""
    if isinstance(value, str):
        plain = (
            value.isprintable()
            and value == value.strip()
            and value
            and not _reads_as_json(value)
            and value != "(absent)"
        )
        return value if plain else json.dumps(value)
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value, sort_keys=True)


def _text_of(inputs: Inputs, name: str) -> str | None:
    return input_text(inputs[name]) if name in inputs else None


def _or_absent(text: str | None) -> str:
    return "(absent)" if text is None else text


def _reads_as_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
