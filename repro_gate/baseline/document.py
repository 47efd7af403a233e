"""A config hash that somebody else wrote, in a report or a baseline, is untrusted: its inputs have
limits, and the hashes are made again from them."""

from __future__ import annotations

import json
from typing import Any

from repro_gate.baseline.config_hash import PLATFORM, RECIPE, ConfigHash, hash_inputs, plain
from repro_gate.errors import UsageError

MAX_NAME = 8_192  # characters
MAX_VALUE = 100_000  # characters of an input's value as JSON: a snippet may be long


def to_json(hashed: ConfigHash) -> dict[str, Any]:
    """Return a config hash as `report.json` and `repro-gate hash --json` have it."""
    return {
        "config_hash": hashed.config_hash,
        "recipe": hashed.recipe,
        "platform": hashed.platform,
        "inputs": {"recipe": dict(hashed.recipe_inputs), "platform": dict(hashed.platform_inputs)},
    }


def made_again(claimed: ConfigHash) -> ConfigHash:
    """Return the config hash of the inputs that one claims. Raises UsageError, in one line:
    malformed, or a hash that its inputs do not give."""
    for root, inputs in ((RECIPE, claimed.recipe_inputs), (PLATFORM, claimed.platform_inputs)):
        for name, value in inputs.items():
            if wrong := _problem(name, value):
                raise UsageError(
                    f"config_hash.inputs.{root}: the input {name[:60]!r}: {wrong}",
                    reason_id="config-hash/malformed",
                    remedy="it does not come from this version of repro-gate: make it again",
                )
    made = hash_inputs(claimed.recipe_inputs, claimed.platform_inputs)
    for name in (RECIPE, PLATFORM, "config_hash"):
        before, now = getattr(claimed, name), getattr(made, name)
        if before != now:
            raise UsageError(
                f"config_hash.{name} is {before}, but what it is made of gives {now}",
                reason_id="config-hash/forged",
                remedy="it was edited by hand or cut short: make it again with `repro-gate run` (a "
                "baseline: `repro-gate baseline`)",
            )
    return made


def _problem(name: str, value: Any) -> str:
    """Return why no config hash is made of an input; empty if one is."""
    try:
        is_plain = plain(name) == name and plain(value) == value
    except ValueError as error:
        return str(error)
    if not is_plain:
        return f"found {value!r:.60}, wanted no number beyond 2**53 or half a character"
    size = len(json.dumps(value, ensure_ascii=False))
    if size > MAX_VALUE:
        return f"found {size:,} characters, wanted at most {MAX_VALUE:,}"
    if len(name) > MAX_NAME:
        return f"found a name of {len(name):,} characters, wanted at most {MAX_NAME:,}"
    return ""
