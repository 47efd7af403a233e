"""Addresses, outcomes and entries of one small training, for tests of the baseline."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from repro_gate.baseline.config_hash import ConfigHash, InputValue, hash_inputs
from repro_gate.baseline.model import Baseline, Entry, RecordedResult
from repro_gate.baseline.record import entry_of
from repro_gate.compare.model import TimedArm

RECIPE: Mapping[str, InputValue] = {
    "code/train.py": "sha256:" + "1" * 64,
    "data/train.bin": "sha256:" + "2" * 64,
    "seeds": [42],
    "steps": 50,
    "tolerance": 1e-06,
    "train.env": {"WANDB_MODE": "disabled"},
}
Leaves = Mapping[str, InputValue]
CPU: Leaves = {"cpu-model": "AMD EPYC 7763 64-Core Processor", "torch": "2.13.0", "threads": 2}
GPU: Leaves = {"gpu-model": "NVIDIA H100 80GB HBM3", "torch": "2.13.0", "driver": "560.35"}
OUTSIDE = {"distribution/numpy": "2.1.0", "kernel": "Linux 6.8", "libc": "glibc 2.39"}
NOW = "2026-08-01T12:00:00Z"


def digest(*parts: object) -> str:
    return "sha256:" + hashlib.sha256(repr(parts).encode()).hexdigest()


def config_hash_of(
    recipe: Mapping[str, InputValue] = RECIPE, platform: Mapping[str, InputValue] = CPU
) -> ConfigHash:
    return hash_inputs(recipe, platform)


def curve(*losses: tuple[int, float]) -> dict[int, float | str]:
    """A loss curve as the file holds it."""
    return {step: loss if math.isfinite(loss) else str(loss) for step, loss in losses}


def outcome(seed: int = 42, bits: object = "first", **changes: Any) -> RecordedResult:
    """What a run ended with; `bits` decides its digests and shifts its losses."""
    shift = 0.0 if bits == "first" else 0.125
    fields: dict[str, Any] = {
        "steps": 50,
        "losses": digest(seed, bits, "losses"),
        "weights": digest(seed, bits, "weights"),
        "optimizer": digest(seed, bits, "optimizer"),
        "artifacts": {"out/final.pt": digest(seed, bits, "artifact")},
        "loss_curve": curve(*((step, 1 / (step + 1) + shift) for step in range(0, 50, 7))),
    }
    return RecordedResult(seed=seed, **{**fields, **changes})


def entry(
    recipe: Mapping[str, InputValue] = RECIPE,
    platform: Mapping[str, InputValue] = CPU,
    *outcomes: RecordedResult,
    outside: Mapping[str, str] = OUTSIDE,
    step_times: Mapping[TimedArm, tuple[float, ...]] = MappingProxyType({}),
) -> Entry:
    """An entry as `repro-gate baseline` makes it."""
    inputs, seen = config_hash_of(recipe, platform), outcomes or (outcome(),)
    return entry_of(inputs, seen, outside, NOW, "0.2.0", step_times)


def baseline(*entries: Entry) -> Baseline:
    return {item.platform: item for item in entries}
