"""The config hash as data. Carried by the report, written into the baseline. Imports nothing of the package."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

RECIPE, PLATFORM = "recipe", "platform"
ROOTS = (RECIPE, PLATFORM)
InputValue = None | bool | int | float | str | list["InputValue"] | dict[str, "InputValue"]  # the value of one input
Inputs = Mapping[str, InputValue]  # name -> value, such as `data/train.bin` -> `sha256:…`


@dataclass(frozen=True)
class ChangedInput:
    """One input in which two config hashes differ. `before` and `after` are shown as text; None where the input is not there."""

    root: str  # RECIPE or PLATFORM
    name: str
    before: str | None
    after: str | None


@dataclass(frozen=True)
class SelfCheck:
    """What a config hash showed of itself: hashed twice equal, and how many of its `inputs` changed the root when each was perturbed."""

    stable: bool
    inputs: int
    covered: int

    @property
    def complete(self) -> bool:
        """Whether the config hash sees every one of its inputs."""
        return self.stable and self.covered == self.inputs > 0


@dataclass(frozen=True)
class ConfigHash:
    """Hashes are `sha256:` and 64 hex digits. `inputs` are the values by root; `self_check` is None where it was not made."""

    config_hash: str
    recipe: str
    platform: str
    recipe_inputs: Inputs
    platform_inputs: Inputs
    self_check: SelfCheck | None = None
