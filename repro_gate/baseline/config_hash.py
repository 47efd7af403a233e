"""The config hash: inputs to the roots of recipe and platform to one hash.

Every hash is SHA-256 over a name that says what is hashed and in which version, a NUL, and the
content, so that no hash of one kind can be taken for one of another:

    input     repro-gate/input/v1     RFC 8785 of [name, value]
    recipe    repro-gate/recipe/v1    the 32-byte hashes of its inputs, ordered by name (code point)
    platform  repro-gate/platform/v1  likewise
    config    repro-gate/config/v1    the 32 bytes of the recipe root, then those of the platform

Two config hashes are compared input by input. One that somebody else wrote, in a report or a
baseline, is untrusted: the hashes are made again from its inputs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import rfc8785
from msgspec import Meta

from repro_gate.compare.model import about, described, one_of
from repro_gate.errors import UsageError

RECIPE = "recipe"
PLATFORM = "platform"
VERSION = "v1"
MAX_DEPTH = 16  # of an input's value
MAX_INPUTS = 20_000  # of one root
MAX_NAME = 8_192  # characters
MAX_VALUE = 100_000  # characters of an input's value as JSON: a snippet may be long

# the value of one input
InputValue = (
    None | bool | int | float | str | list["InputValue"] | dict[str, "InputValue"]
)
# name -> value, such as `data/train.bin` -> `sha256:…`
Inputs = Mapping[str, InputValue]

Digest = Annotated[str, Meta(pattern=r"^sha256:[0-9a-f]{64}\Z")]
_Named = Annotated[Mapping[str, Any], Meta(max_length=MAX_INPUTS)]


@dataclass(frozen=True)
@described
class ChangedInput:
    """One input in which two config hashes differ.

    name: Name of the input, such as `data/train.bin`. Untrusted text.
    before: The value before, as text; null where the input was not there.
    after: The value after, as text; null where the input is gone.
    """

    root: Annotated[
        str, about("The root that the input belongs to.", **one_of((RECIPE, PLATFORM)))
    ]
    name: str
    before: str | None
    after: str | None


class RootInputs(msgspec.Struct, frozen=True):
    """The inputs by root and name, each as it is hashed."""

    recipe: Annotated[_Named, about("Inputs of the recipe, by name.")]
    platform: Annotated[_Named, about("Inputs of the platform, by name.")]


class ConfigHash(msgspec.Struct, frozen=True, kw_only=True):
    """One hash of everything that a rerun needs, its two roots, and the inputs under them."""

    platform: Annotated[
        Digest, about("Root of image, driver, CUDA, cuDNN, GPU and SM count.")
    ]
    recipe: Annotated[Digest, about("Root of code, data, lockfile, seed and flags.")]
    config_hash: Annotated[Digest, about("Root of recipe and platform.")]
    inputs: Annotated[
        RootInputs,
        about("Each input as it is hashed. Whole numbers from 2**53 on are text."),
    ]

    def roots(self) -> tuple[tuple[str, str, Inputs], ...]:
        """Return name, hash and inputs of the two roots."""
        return (
            (RECIPE, self.recipe, self.inputs.recipe),
            (PLATFORM, self.platform, self.inputs.platform),
        )


def hash_inputs(recipe: Inputs, platform: Inputs) -> ConfigHash:
    """Return the config hash of these inputs, whatever order they come in. Raise UsageError for
    names that become one, and ValueError for a value that is nested too deep."""
    inputs = RootInputs(_as_hashed(recipe), _as_hashed(platform))
    roots = (_root(RECIPE, inputs.recipe), _root(PLATFORM, inputs.platform))
    return ConfigHash(
        config_hash=_text(_hash("config", b"".join(roots))),
        recipe=_text(roots[0]),
        platform=_text(roots[1]),
        inputs=inputs,
    )


def made_again(claimed: ConfigHash) -> ConfigHash:
    """Return the config hash of the inputs that one claims. Raise UsageError, in one line:
    malformed, or a hash that its inputs do not give."""
    try:
        made = hash_inputs(claimed.inputs.recipe, claimed.inputs.platform)
        for name, value in (*made.inputs.recipe.items(), *made.inputs.platform.items()):
            if len(name) > MAX_NAME or len(json.dumps(value)) > MAX_VALUE:
                raise ValueError(f"the input {name[:60]!r} is too large")
        if made.inputs != claimed.inputs:
            raise ValueError(
                "an input is beyond 2**53, or holds NaN or half a character"
            )
    except ValueError as error:
        raise UsageError(
            f"config_hash.inputs: {error}",
            reason_id="config-hash/malformed",
            remedy="it does not come from this version of repro-gate: make it again",
        ) from None
    for name in (RECIPE, PLATFORM, "config_hash"):
        before = getattr(claimed, name)
        now = getattr(made, name)
        if before != now:
            raise UsageError(
                f"config_hash.{name} is {before}, but what it is made of gives {now}",
                reason_id="config-hash/forged",
                remedy="it was edited by hand or cut short: make it again with `repro-gate run` (a "
                "baseline: `repro-gate baseline`)",
            )
    return made


def hashable(value: Any, depth: int = MAX_DEPTH) -> InputValue:
    """Return a value that RFC 8785 can write: whole numbers from 2**53 on, NaN and infinities are
    text; a byte of a path that is not UTF-8 becomes `\\udcXX`; keys are sorted. Raise ValueError
    for more than 16 levels."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, int | float):
        # no comparison with NaN is true
        return value if abs(value) < 2**53 else str(value)
    if depth == 1:
        raise ValueError(f"nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, list):
        return [hashable(item, depth - 1) for item in value]
    return {
        str(hashable(name)): hashable(value[name], depth - 1) for name in sorted(value)
    }


def _as_hashed(inputs: Inputs) -> dict[str, InputValue]:
    """Return the inputs by name, names and values as they are hashed, sorted."""
    by_name = {str(hashable(name)): hashable(value) for name, value in inputs.items()}
    if len(by_name) < len(inputs):
        raise UsageError(
            "two inputs of the config hash have one name",
            reason_id="config-hash/malformed",
            remedy="rename one of the files",
        )
    return dict(sorted(by_name.items()))


def _root(name: str, inputs: Inputs) -> bytes:
    hashes = (_hash("input", rfc8785.dumps([*item])) for item in inputs.items())
    return _hash(name, b"".join(hashes))


def _hash(kind: str, content: bytes) -> bytes:
    return hashlib.sha256(f"repro-gate/{kind}/{VERSION}\0".encode() + content).digest()


def _text(digest: bytes) -> str:
    return f"sha256:{digest.hex()}"


def changed_inputs(before: ConfigHash, after: ConfigHash) -> tuple[ChangedInput, ...]:
    """Return the inputs that differ: the recipe's first, each root's by name."""
    changes = []
    for (root, _, old), (_, _, new) in zip(before.roots(), after.roots(), strict=True):
        for name in sorted({*old, *new}):
            texts = [
                input_text(inputs[name]) if name in inputs else None
                for inputs in (old, new)
            ]
            if texts[0] != texts[1]:
                changes.append(ChangedInput(root, name, *texts))
    return tuple(changes)


def tree_lines(hashed: ConfigHash) -> list[str]:
    """Return the config hash as a tree, one line for each hash and input. Names and values
    are as the checkout gave them: the printer escapes them."""
    lines = [f"{hashed.config_hash}  config"]
    for root, digest, inputs in hashed.roots():
        width = max((len(name) for name in inputs if len(name) <= 60), default=0)
        lines.append(f"  {digest}  {root}")
        lines += [
            f"    {name:<{width}}  {input_text(value)}"
            for name, value in inputs.items()
        ]
    return lines


def input_text(value: InputValue) -> str:
    """Return a value as people read it: text without quotation marks, unless it would read as
    something else or cannot be seen."""
    if isinstance(value, str) and value.isprintable() and value == value.strip():
        try:
            json.loads(value)
        except (ValueError, RecursionError):
            if value:
                return value
    return json.dumps(value, sort_keys=True)
