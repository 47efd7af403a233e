"""a config hash shows of itself that it is stable and sees every input. Pure; called by `build`, for every run of the gate."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace

from repro_gate.baseline.config_hash import PLATFORM, RECIPE, ConfigHash, Inputs, InputValue, SelfCheck
from repro_gate.baseline.tree import config_hash, hash_inputs, input_hash, input_hashes, root_hash


def prove(given: ConfigHash) -> ConfigHash:
    """The config hash with its self_check.

    Stable: a copy of the inputs, put together in reverse order, hashes to the same. Moved: an input counts if each way of changing its
    value gives it another hash, and if changing it and removing it both give its root and the config hash another value, the other root
    standing.
    """
    again = hash_inputs(_copied(given.recipe_inputs), _copied(given.platform_inputs))
    stable = (again.config_hash, again.recipe, again.platform) == (given.config_hash, given.recipe, given.platform)
    return replace(given, self_check=SelfCheck(stable, len(given.recipe_inputs) + len(given.platform_inputs), _moved(given)))


def changes(value: InputValue) -> Iterator[InputValue]:
    """Other values that a hash must tell from this one: the next of its kind, and what a careless hash folds with it."""
    if value is None:
        yield from ("", False, "null")
    elif isinstance(value, bool):
        yield from (not value, int(value), None)
    elif isinstance(value, int):
        yield from (value + 1, str(value), bool(value))
        if abs(value) <= 2**53:
            yield float(value)
    elif isinstance(value, float):
        yield from (-value if value == value else 0.0, None, value.hex())
    elif isinstance(value, str):
        yield value + " "
        yield value[:-1] if value else None
        yield [value]
    elif isinstance(value, list):
        yield [*value, None]
        yield None
        if value:
            yield value[:-1]
    else:
        yield {**value, max(value, default="") + " ": None}
        yield None
        yield list[InputValue](value)


def _moved(given: ConfigHash) -> int:
    """How many inputs move their root and the config hash, and nothing else."""
    hashes = {RECIPE: input_hashes(given.recipe_inputs), PLATFORM: input_hashes(given.platform_inputs)}
    before = {kind: root_hash(kind, inputs.values()) for kind, inputs in hashes.items()}
    count = 0
    for kind, inputs in ((RECIPE, given.recipe_inputs), (PLATFORM, given.platform_inputs)):
        for name, value in inputs.items():
            changed = [input_hash(name, other) for other in changes(value)]
            rest = [digest for other, digest in hashes[kind].items() if other != name]
            roots = [before | {kind: root_hash(kind, some)} for some in ([*rest, changed[0]], rest)]
            count += hashes[kind][name] not in changed and all(_only(kind, before, after) for after in roots)
    return count


def _only(kind: str, before: dict[str, bytes], after: dict[str, bytes]) -> bool:
    """Whether that root and the config hash differ, and the other root does not."""
    others = all(before[other] == after[other] for other in before if other != kind)
    return others and before[kind] != after[kind] and _config(before) != _config(after)


def _config(roots: dict[str, bytes]) -> bytes:
    return config_hash(roots[RECIPE], roots[PLATFORM])


def _copied(inputs: Inputs) -> dict[str, InputValue]:
    return deepcopy(dict(reversed(list(inputs.items()))))
