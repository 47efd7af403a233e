"""A config hash that somebody else wrote, in a report or a baseline, is untrusted: its inputs have
limits, and the hashes are made again from them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from repro_gate.baseline.config_hash import ConfigHash, hash_inputs, plain
from repro_gate.errors import UsageError

MAX_NAME = 8_192  # characters
MAX_VALUE = 100_000  # characters of an input's value as JSON: a snippet may be long


def to_json(given: ConfigHash) -> dict[str, Any]:
    """Return a config hash as `report.json` and `repro-gate hash --json` have it."""
    return {
        "config_hash": given.config_hash,
        "recipe": given.recipe,
        "platform": given.platform,
        "inputs": {"recipe": dict(given.recipe_inputs), "platform": dict(given.platform_inputs)},
    }


def wrong_input(inputs: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the name of the first input that no config hash is made of, and what is wrong."""
    for name, value in inputs.items():
        try:
            same = plain(name) == name and plain(value) == value
        except ValueError as error:
            return name, str(error)
        if not same:
            return name, f"found {value!r:.60}, wanted no number beyond 2**53 or half a character"
        size = len(json.dumps(value, ensure_ascii=False))
        if size > MAX_VALUE or len(name) > MAX_NAME:
            return name, f"found {size:,} characters, wanted at most {MAX_VALUE:,}"
    return None


def made_again(claimed: ConfigHash) -> ConfigHash:
    """Return the config hash of the inputs that one claims. Raises UsageError, in one line:
    malformed, or a hash that its inputs do not give."""
    for half, inputs in (("recipe", claimed.recipe_inputs), ("platform", claimed.platform_inputs)):
        if wrong := wrong_input(inputs):
            raise UsageError(
                f"config_hash.inputs.{half}: the input {wrong[0][:60]!r}: {wrong[1]}",
                reason_id="config-hash/malformed",
                remedy="it does not come from this version of repro-gate: make it again",
            )
    made = hash_inputs(claimed.recipe_inputs, claimed.platform_inputs)
    for name in ("recipe", "platform", "config_hash"):
        if getattr(claimed, name) != getattr(made, name):
            raise UsageError(
                f"config_hash.{name} is {getattr(claimed, name)}, but what it is made of gives "
                f"{getattr(made, name)}",
                reason_id="config-hash/forged",
                remedy="it was edited by hand or cut short: make it again with `repro-gate run` (a "
                "baseline: `repro-gate baseline`)",
            )
    return made
