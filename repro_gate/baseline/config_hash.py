"""The content address as data. Built by `address`, carried by the report, written into the lock. Imports nothing of the package."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

RECIPE, PLATFORM = "recipe", "platform"
ROOTS = (RECIPE, PLATFORM)
Leaf = None | bool | int | float | str | list["Leaf"] | dict[str, "Leaf"]  # the value of one leaf
Leaves = Mapping[str, Leaf]  # name -> value, such as `data/train.bin` -> `sha256:…`


@dataclass(frozen=True)
class LeafMove:
    """One leaf in which two addresses differ. `before` and `after` are shown as text; None where the leaf is not there."""

    root: str  # RECIPE or PLATFORM
    name: str
    before: str | None
    after: str | None


@dataclass(frozen=True)
class Proof:
    """What an address showed of itself: hashed twice equal, and how many of its `leaves` changed the root when each was perturbed."""

    stable: bool
    leaves: int
    moved: int

    @property
    def holds(self) -> bool:
        """Whether the address sees every one of its leaves."""
        return self.stable and self.moved == self.leaves > 0


@dataclass(frozen=True)
class ContentAddress:
    """Hashes are `sha256:` and 64 hex digits. `leaves` are the values by root; `proof` is None where it was not made."""

    config_hash: str
    recipe: str
    platform: str
    recipe_leaves: Leaves
    platform_leaves: Leaves
    proof: Proof | None = None
