"""A config hash as JSON, for report.json and `repro-gate hash`, and back. What is read is untrusted: the hashes are made again from the
inputs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from repro_gate.baseline.config_hash import PLATFORM, RECIPE, ROOTS, ConfigHash, InputValue, SelfCheck, hash_inputs, plain
from repro_gate.errors import UsageError

MAX_INPUTS = 20_000  # of one root
MAX_NAME = 8_192  # characters
MAX_VALUE = 65_536  # characters of one input's value, in all
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def to_json(given: ConfigHash) -> dict[str, Any]:
    """`config_hash`, `recipe`, `platform`, `inputs` by root and name, and `self_check` (None where there is none)."""
    self_check = given.self_check
    return {
        "config_hash": given.config_hash,
        RECIPE: given.recipe,
        PLATFORM: given.platform,
        "inputs": {RECIPE: dict(given.recipe_inputs), PLATFORM: dict(given.platform_inputs)},
        "self_check": None
        if self_check is None
        else {"stable": self_check.stable, "inputs": self_check.inputs, "covered": self_check.covered},
    }


def from_json(document: object) -> ConfigHash:
    """A config hash that somebody else wrote. Raises UsageError, in one line: malformed, or a hash that its inputs do not give."""
    fields = _mapping(document, "config_hash")
    inputs = _mapping(fields.get("inputs"), "config_hash.inputs")
    if set(inputs) != set(ROOTS):
        raise _malformed("config_hash.inputs", f"expected `{RECIPE}` and `{PLATFORM}`")
    recipe, platform = (inputs_from_json(inputs[root], f"config_hash.inputs.{root}") for root in ROOTS)
    made = hash_inputs(recipe, platform)
    claimed = {name: _digest(fields.get(name), f"config_hash.{name}") for name in (RECIPE, PLATFORM, "config_hash")}
    for name, claim in claimed.items():
        if claim != getattr(made, name):
            raise UsageError(
                f"config_hash.{name} is {claim}, but what it is made of gives {getattr(made, name)}",
                reason_id="config-hash/forged",
                remedy="it was edited by hand or cut short: make it again with `repro-gate run` (a baseline: `repro-gate baseline`)",
            )
    self_check = _self_check(fields.get("self_check"), len(recipe) + len(platform))
    return replace(made, self_check=self_check)


def inputs_from_json(document: object, where: str) -> dict[str, InputValue]:
    """One root's inputs as somebody else wrote them. Raises UsageError with `where` in it for what no config hash is made of."""
    found: dict[str, InputValue] = {}
    entries = _mapping(document, where)
    if len(entries) > MAX_INPUTS:
        raise _malformed(where, f"{len(entries)} inputs, {MAX_INPUTS} at most")
    for name, form in entries.items():
        if len(name) > MAX_NAME or _size(form) > MAX_VALUE:
            raise _malformed(where, f"the input {name[:60]!r} is too large")
        try:
            found[name] = plain(form)
        except ValueError as error:
            raise _malformed(where, f"the input {name[:60]!r}: {error}") from None
        if plain(name) != name or found[name] != form:
            raise _malformed(where, f"the input {name[:60]!r} holds a number beyond 2**53 or half a surrogate pair")
    return found


def _self_check(document: object, inputs: int) -> SelfCheck | None:
    if document is None:
        return None
    fields = _mapping(document, "config_hash.self_check")
    stable, counted, covered = fields.get("stable"), fields.get("inputs"), fields.get("covered")
    if type(stable) is not bool or type(counted) is not int or type(covered) is not int or counted != inputs or not 0 <= covered <= inputs:
        raise _malformed("config_hash.self_check", f"expected `stable`, and `inputs` {inputs}, of which `covered`")
    return SelfCheck(stable, counted, covered)


def _digest(value: object, where: str) -> str:
    if not isinstance(value, str) or not _DIGEST.fullmatch(value):
        raise _malformed(where, "expected `sha256:` and 64 hex digits")
    return value


def _mapping(value: object, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise _malformed(where, "expected an object")
    return value


def _size(form: object) -> int:
    """Characters and nodes of a form, without recursion; no further than it matters."""
    total, waiting = 0, [form]
    while waiting and total <= MAX_VALUE:
        item = waiting.pop()
        total += 1 + (len(item) if isinstance(item, str) else 0)
        if isinstance(item, dict):
            waiting += [*item, *item.values()]
        elif isinstance(item, list):
            waiting += item
    return total


def _malformed(where: str, what: str) -> UsageError:
    remedy = "it does not come from this version of repro-gate: make it again"
    return UsageError(f"{where}: {what}", reason_id="config-hash/malformed", remedy=remedy)
