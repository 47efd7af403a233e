"""The config hash: inputs to the roots of recipe and platform to one hash.

Every hash is SHA-256 over a name that says what is hashed and in which version, a NUL, and the
content, so that no hash of one kind can be taken for one of another:

    input     repro-gate/input/v1     RFC 8785 of [name, value]
    recipe    repro-gate/recipe/v1    the 32-byte hashes of its inputs, ordered by name (code point)
    platform  repro-gate/platform/v1  likewise
    config    repro-gate/config/v1    the 32 bytes of the recipe root, then those of the platform

Two config hashes are compared input by input, and told as lines of text.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import rfc8785
from msgspec import Meta

from repro_gate.compare.model import about, one_of
from repro_gate.errors import UsageError

RECIPE, PLATFORM = "recipe", "platform"
ROOTS = (RECIPE, PLATFORM)
VERSION = "v1"
MAX_DEPTH = 16  # of an input's value
_ABSENT = "(absent)"

# the value of one input
InputValue = None | bool | int | float | str | list["InputValue"] | dict[str, "InputValue"]
Inputs = Mapping[str, InputValue]  # name -> value, such as `data/train.bin` -> `sha256:…`

Digest = Annotated[str, Meta(pattern=r"\Asha256:[0-9a-f]{64}\Z")]
Text = Annotated[str, Meta(max_length=4_096)]


@dataclass(frozen=True)
class ChangedInput:
    """One input in which two config hashes differ."""

    root: Annotated[str, about("The root that the input belongs to.", **one_of(ROOTS))]
    name: Annotated[str, about("Name of the input, such as `data/train.bin`. Untrusted text.")]
    before: Annotated[
        str | None, about("The value before, as text; null where the input was not there.")
    ]
    after: Annotated[str | None, about("The value after, as text; null where the input is gone.")]


class ConfigHash(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"
):
    """The hash of everything that a rerun needs, its two roots, and the inputs under them, sorted
    by name, as `plain` returns their values."""

    platform: Digest
    recipe: Digest
    config_hash: Digest
    recipe_inputs: Mapping[Text, Any]
    platform_inputs: Mapping[Text, Any]


def hash_inputs(recipe: Inputs, platform: Inputs) -> ConfigHash:
    """Return the config hash of these inputs, whatever order they come in. Raises UsageError for
    names that become one, and ValueError for a value that is nested too deep."""
    halves = (_plain_inputs(recipe), _plain_inputs(platform))
    roots = [
        _hash(half, b"".join(input_hash(name, value) for name, value in inputs.items()))
        for half, inputs in zip(ROOTS, halves, strict=True)
    ]
    return ConfigHash(
        config_hash=_shown(_hash("config", b"".join(roots))),
        recipe=_shown(roots[0]),
        platform=_shown(roots[1]),
        recipe_inputs=halves[0],
        platform_inputs=halves[1],
    )


def plain(value: Any, depth: int = MAX_DEPTH) -> InputValue:
    """Return a value that RFC 8785 can write: whole numbers from 2**53 on, NaN and infinities are
    text; a byte of a path that is not UTF-8 becomes `\\udcXX`; keys are sorted. Raises ValueError
    for more than 16 levels, and for what JSON cannot hold."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, int | float):
        return value if abs(value) < 2**53 else str(value)  # no comparison with NaN is true
    if depth == 1:
        raise ValueError(f"nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, list):
        return [plain(item, depth - 1) for item in value]
    if isinstance(value, dict):
        return {str(plain(name)): plain(value[name], depth - 1) for name in sorted(value)}
    raise ValueError(f"{type(value).__name__} is no value of JSON")


def input_hash(name: str, value: InputValue) -> bytes:
    """Return the 32 bytes that stand for one input: its name and its value."""
    return _hash("input", rfc8785.dumps([name, value]))


def _plain_inputs(inputs: Inputs) -> dict[str, InputValue]:
    by_name = {str(plain(name)): plain(value) for name, value in inputs.items()}
    if len(by_name) < len(inputs):
        raise UsageError(
            "two inputs of the config hash have one name",
            reason_id="config-hash/malformed",
            remedy="rename one of the files",
        )
    return dict(sorted(by_name.items()))


def _hash(kind: str, content: bytes) -> bytes:
    return hashlib.sha256(f"repro-gate/{kind}/{VERSION}\0".encode() + content).digest()


def _shown(digest: bytes) -> str:
    return f"sha256:{digest.hex()}"


def changed_inputs(before: ConfigHash, after: ConfigHash) -> tuple[ChangedInput, ...]:
    """Return the inputs that differ: the recipe's first, each root's by name."""
    return (
        *changed(RECIPE, before.recipe_inputs, after.recipe_inputs),
        *changed(PLATFORM, before.platform_inputs, after.platform_inputs),
    )


def changed(root: str, before: Inputs, after: Inputs) -> tuple[ChangedInput, ...]:
    """Return the inputs of one root that differ, by name, values compared as the hash does."""
    return tuple(
        ChangedInput(root, name, _text_of(before, name), _text_of(after, name))
        for name in sorted(before.keys() | after.keys())
        if name not in before
        or name not in after
        or input_hash(name, before[name]) != input_hash(name, after[name])
    )


def tree_lines(hashed: ConfigHash) -> tuple[str, ...]:
    """Return the config hash as a tree, one line for each hash and input. Names and values
    are as the checkout gave them: the printer escapes them."""
    lines = [f"{hashed.config_hash}  config"]
    for root, digest, inputs in (
        (RECIPE, hashed.recipe, hashed.recipe_inputs),
        (PLATFORM, hashed.platform, hashed.platform_inputs),
    ):
        widths = [len(name) for name in inputs if len(name) <= 60]
        width = max(widths, default=0)
        lines += [
            f"  {digest}  {root}",
            *(f"    {name:<{width}}  {input_text(inputs[name])}" for name in inputs),
        ]
    return tuple(lines)


def diff_lines(moves: Sequence[ChangedInput]) -> tuple[str, ...]:
    """Return one line for each input that changed: `recipe   seeds  [42] -> [7]`; if none
    did, one line that says so."""
    if not moves:
        return ("same config hash: no input differs",)
    count = "1 input differs" if len(moves) == 1 else f"{len(moves)} inputs differ"
    lines = (
        f"  {move.root:<8}  {move.name}  {move.before or _ABSENT} -> {move.after or _ABSENT}"
        for move in moves
    )
    return (f"{count}:", *lines)


def input_text(value: InputValue) -> str:
    """Return a value as people read it: text without quotation marks, unless it would read as
    something else or cannot be seen."""
    quoted = json.dumps(value, sort_keys=True)
    if not isinstance(value, str) or value in ("", _ABSENT):
        return quoted
    if not value.isprintable() or value != value.strip():
        return quoted
    try:
        json.loads(value)
    except (ValueError, RecursionError):
        return value
    return quoted


def _text_of(inputs: Inputs, name: str) -> str | None:
    return input_text(inputs[name]) if name in inputs else None
