"""Inputs to roots to `config_hash`. Pure; called by `build` (through `self_check`) and by `document`, which hashes again what it reads.

Every hash is SHA-256 over a name that says what is hashed and in which version, a NUL, and the content, so that no hash of one kind can be
taken for one of another:

    input      repro-gate/input/v1      RFC 8785 of [name, value in the form of `canonical`]
    recipe    repro-gate/recipe/v1    the 32-byte hashes of its inputs, sorted, one after the other
    platform  repro-gate/platform/v1  likewise
    config    repro-gate/config/v1    the 32 bytes of the recipe root, then those of the platform root
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from repro_gate.baseline.canonical import canonical, escape, to_form
from repro_gate.baseline.config_hash import PLATFORM, RECIPE, ConfigHash, Inputs, InputValue

VERSION = "v1"


def hash_inputs(recipe: Inputs, platform: Inputs) -> ConfigHash:
    """The config hash of these inputs, whatever order they come in; without a self_check."""
    roots = {kind: root_hash(kind, input_hashes(inputs).values()) for kind, inputs in ((RECIPE, recipe), (PLATFORM, platform))}
    config = config_hash(roots[RECIPE], roots[PLATFORM])
    return ConfigHash(shown(config), shown(roots[RECIPE]), shown(roots[PLATFORM]), _sorted(recipe), _sorted(platform))


def input_hashes(inputs: Inputs) -> dict[str, bytes]:
    """The 32-byte hash of each input, by its name."""
    return {name: input_hash(name, value) for name, value in inputs.items()}


def input_hash(name: str, value: InputValue) -> bytes:
    """The 32 bytes that stand for one input: its name and its value."""
    return _hash("input", canonical([escape(name), to_form(value)]))


def root_hash(kind: str, inputs: Iterable[bytes]) -> bytes:
    """The 32 bytes of a root (RECIPE or PLATFORM) over the hashes of its inputs, in any order."""
    return _hash(kind, b"".join(sorted(inputs)))


def config_hash(recipe: bytes, platform: bytes) -> bytes:
    """The 32 bytes over both roots."""
    return _hash("config", recipe + platform)


def shown(digest: bytes) -> str:
    """A hash as it stands in reports: `sha256:` and 64 hex digits."""
    return f"sha256:{digest.hex()}"


def _hash(kind: str, content: bytes) -> bytes:
    return hashlib.sha256(f"repro-gate/{kind}/{VERSION}\0".encode() + content).digest()


def _sorted(inputs: Inputs) -> dict[str, InputValue]:
    return {name: inputs[name] for name in sorted(inputs)}
