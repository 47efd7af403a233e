"""An address as JSON, for report.json and repro.lock, and back. What is read is untrusted: the hashes are made again from the leaves.

Called by `report` and `lock`, and by `read`. Leaves stand in the form that is hashed (`canonical`), so that the roots can be recomputed
from the document without this program, and so that no JSON tool changes a value on the way.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from repro_gate.baseline.canonical import Form, escape, from_form, to_form, unescape
from repro_gate.baseline.config_hash import PLATFORM, RECIPE, ROOTS, ContentAddress, Leaf, Leaves, Proof
from repro_gate.baseline.tree import address
from repro_gate.errors import UsageError

MAX_LEAVES = 20_000  # of one root
MAX_NAME = 8_192  # characters
MAX_VALUE = 65_536  # characters of one leaf's value, in all
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def to_json(given: ContentAddress) -> dict[str, Any]:
    """`config_hash`, `recipe`, `platform`, `leaves` by root and name in their hashed form, and `proof` (None where there is none)."""
    proof = given.proof
    return {
        "config_hash": given.config_hash,
        RECIPE: given.recipe,
        PLATFORM: given.platform,
        "leaves": {RECIPE: leaves_to_json(given.recipe_leaves), PLATFORM: leaves_to_json(given.platform_leaves)},
        "proof": None if proof is None else {"stable": proof.stable, "leaves": proof.leaves, "moved": proof.moved},
    }


def from_json(document: object) -> ContentAddress:
    """An address that somebody else wrote. Raises UsageError, in one line: malformed, or a hash that its leaves do not give."""
    fields = _mapping(document, "content_address")
    leaves = _mapping(fields.get("leaves"), "content_address.leaves")
    if set(leaves) != set(ROOTS):
        raise _malformed("content_address.leaves", f"expected `{RECIPE}` and `{PLATFORM}`")
    recipe, platform = (leaves_from_json(leaves[root], f"content_address.leaves.{root}") for root in ROOTS)
    made = address(recipe, platform)
    claimed = {name: _digest(fields.get(name), f"content_address.{name}") for name in (RECIPE, PLATFORM, "config_hash")}
    for name, claim in claimed.items():
        if claim != getattr(made, name):
            raise UsageError(
                f"content_address.{name} is {claim}, but what it is made of gives {getattr(made, name)}",
                reason_id="address/forged",
                remedy="it was edited by hand or cut short: make it again with `repro-gate run` (a lock: `repro-gate lock`)",
            )
    proof = _proof(fields.get("proof"), len(recipe) + len(platform))
    return ContentAddress(made.config_hash, made.recipe, made.platform, made.recipe_leaves, made.platform_leaves, proof)


def leaves_to_json(leaves: Leaves) -> dict[str, Form]:
    """One root's leaves by name, sorted, each in its hashed form."""
    return {escape(name): to_form(leaves[name]) for name in sorted(leaves)}


def leaves_from_json(document: object, where: str) -> dict[str, Leaf]:
    """One root's leaves as somebody else wrote them. Raises UsageError with `where` in it for what `leaves_to_json` never gives."""
    found: dict[str, Leaf] = {}
    entries = _mapping(document, where)
    if len(entries) > MAX_LEAVES:
        raise _malformed(where, f"{len(entries)} leaves, {MAX_LEAVES} at most")
    for name, form in entries.items():
        if len(name) > MAX_NAME or _size(form) > MAX_VALUE:
            raise _malformed(where, f"the leaf {name[:60]!r} is too large")
        try:
            found[unescape(name)] = from_form(form)
        except ValueError as error:
            raise _malformed(where, f"the leaf {name[:60]!r}: {error}") from None
    return found


def _proof(document: object, leaves: int) -> Proof | None:
    if document is None:
        return None
    fields = _mapping(document, "content_address.proof")
    stable, counted, moved = fields.get("stable"), fields.get("leaves"), fields.get("moved")
    if type(stable) is not bool or type(counted) is not int or type(moved) is not int or counted != leaves or not 0 <= moved <= leaves:
        raise _malformed("content_address.proof", f"expected `stable`, and `leaves` {leaves}, of which `moved`")
    return Proof(stable, counted, moved)


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
    return UsageError(f"{where}: {what}", reason_id="address/malformed", remedy=remedy)
