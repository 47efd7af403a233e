"""A config hash as JSON, for report.json and `repro-gate hash`, and back. What is read is
untrusted: the hashes are made again from the inputs."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from repro_gate.baseline.config_hash import ConfigHash, InputValue, hash_inputs, plain
from repro_gate.baseline.model import Digest, problem_of
from repro_gate.errors import UsageError

MAX_INPUTS = 20_000  # of one root
MAX_NAME = 8_192  # characters
MAX_VALUE = 65_536  # characters of one input's value, in all

_Inputs = Annotated[dict[str, Any], Meta(max_length=MAX_INPUTS)]


class _Halves(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    recipe: _Inputs
    platform: _Inputs


class _Document(msgspec.Struct, frozen=True):
    config_hash: Digest
    recipe: Digest
    platform: Digest
    inputs: _Halves


def to_json(given: ConfigHash) -> dict[str, Any]:
    """Return `config_hash`, `recipe`, `platform`, and `inputs` by root and name."""
    inputs = _Halves(dict(given.recipe_inputs), dict(given.platform_inputs))
    written: dict[str, Any] = msgspec.to_builtins(
        _Document(given.config_hash, given.recipe, given.platform, inputs)
    )
    return written


def from_json(document: object) -> ConfigHash:
    """A config hash that somebody else wrote. Raises UsageError, in one line: malformed, or a hash
    that its inputs do not give."""
    try:
        given = msgspec.convert(document, _Document)
    except msgspec.ValidationError as error:
        message, where = problem_of(error)
        raise _malformed(f"config_hash{where[:80]}", message) from None
    recipe = _inputs(given.inputs.recipe, "config_hash.inputs.recipe")
    platform = _inputs(given.inputs.platform, "config_hash.inputs.platform")
    made = hash_inputs(recipe, platform)
    for name in ("recipe", "platform", "config_hash"):
        if getattr(given, name) != getattr(made, name):
            raise UsageError(
                f"config_hash.{name} is {getattr(given, name)}, but what it is made of gives "
                f"{getattr(made, name)}",
                reason_id="config-hash/forged",
                remedy="it was edited by hand or cut short: make it again with `repro-gate run` (a "
                "baseline: `repro-gate baseline`)",
            )
    return made


def _inputs(given: dict[str, Any], where: str) -> dict[str, InputValue]:
    """One root's inputs. Raises UsageError with `where` in it for what no config hash is made
    of."""
    for name, value in given.items():
        if len(name) > MAX_NAME or _size(value) > MAX_VALUE:
            raise _malformed(where, f"the input {name[:60]!r} is too large")
        try:
            same = plain(name) == name and plain(value) == value
        except ValueError as error:
            raise _malformed(where, f"the input {name[:60]!r}: {error}") from None
        if not same:
            raise _malformed(
                where,
                f"the input {name[:60]!r} holds a number beyond 2**53 or half a surrogate pair",
            )
    return given


def _size(value: object) -> int:
    """Characters and nodes of a value, without recursion; no further than it matters."""
    total, waiting = 0, [value]
    while waiting and total <= MAX_VALUE:
        item = waiting.pop()
        total += 1 + (len(item) if isinstance(item, str) else 0)
        waiting += (
            [*item, *item.values()]
            if isinstance(item, dict)
            else item
            if isinstance(item, list)
            else []
        )
    return total


def _malformed(where: str, what: str) -> UsageError:
    remedy = "it does not come from this version of repro-gate: make it again"
    return UsageError(f"{where}: {what}", reason_id="config-hash/malformed", remedy=remedy)
