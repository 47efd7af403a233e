"""How fast the probe's digest reads a tensor, against `torch.hash_tensor`, `hashlib.sha256`, a
plain `clone` and `sum` of the same bytes.

A ratio above 1 says how many times faster the digest is. `torch.hash_tensor` is an XOR and sees no
permutation; `clone` only copies: it is what a probe that kept tensors instead of digests would have
to do.
"""

from __future__ import annotations

import hashlib
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.figure import Figure
from repro_gate.probe.digest import EXTENSION, SLOT, begin, digest_all
from repro_gate.runs.environment import EXTENSION as GATES_OWN

MIB = 2**20
LARGE = 16 * MIB
GOALS: dict[str, dict[str, float]] = {
    "cpu": {
        "digest": 12.0,
        "torch.hash_tensor": 3.0,
        "hashlib.sha256": 6.0,
        "sum": 0.5,
    },
    # a copy reads and writes each byte: 0.7 of its bandwidth is 1.4 of its speed
    "cuda": {"clone": 1.4},
}
SMALL_GOAL = {"cpu": 1.0, "cuda": 0.5}
Wait = Callable[[], None]


@dataclass(frozen=True)
class Settings:
    """Sizes in bytes; rounds of each; `batch` is how many bytes one timing reads at least, by
    digesting several tensors of that size."""

    sizes: tuple[int, ...] = (64 * 1024, MIB, 16 * MIB, 256 * MIB)
    rounds: int = 15
    batch: int = 16 * MIB
    device: str = "cpu"


QUICK = Settings(sizes=(64 * 1024, MIB), rounds=2, batch=MIB)


def measure(settings: Settings) -> list[Figure]:
    """For each size: the digest's speed, and its ratio to each peer's, round by round."""
    import torch

    EXTENSION[:] = [GATES_OWN]
    figures = []
    for size in settings.sizes:
        tensors = [
            torch.randn(size // 4, device=settings.device)
            for _ in range(max(1, settings.batch // size))
        ]
        moved = size * len(tensors)
        wait: Wait = torch.cuda.synchronize if settings.device != "cpu" else _nothing
        seconds = _interleaved(
            _contenders(torch, tensors, settings.device), settings.rounds, wait
        )
        label = f"{size // 1024} KiB" if size < MIB else f"{size // MIB} MiB"
        speeds = {
            name: [moved / taken / 1e9 for taken in found]
            for name, found in seconds.items()
        }
        beside = {
            f"{name}_gb_per_s": {"best": max(found), "median": statistics.median(found)}
            for name, found in speeds.items()
        }
        digest = tuple(speeds.pop("digest"))
        goals = GOALS[settings.device] if size >= LARGE else {}
        figures.append(
            Figure(
                f"digest of {label}",
                "GB/s",
                digest,
                goals.get("digest"),
                beside,
                at_least=True,
            )
        )
        for name, found in speeds.items():
            ratios, bests = (
                tuple(a / b for a, b in zip(digest, found, strict=True)),
                {"ratio_of_bests": max(digest) / max(found)},
            )
            figures.append(
                Figure(
                    f"digest of {label} over {name}",
                    "ratio",
                    ratios,
                    goals.get(name),
                    bests,
                    at_least=True,
                )
            )
    return [*figures, _small(torch, settings)]


def _small(torch: Any, settings: Settings) -> Figure:
    """Milliseconds for one step of a model of 200 small tensors: parameters, gradients and two
    kinds of optimizer state."""
    wait: Wait = torch.cuda.synchronize if settings.device != "cpu" else _nothing
    kinds = [
        [torch.randn(64, device=settings.device) for _ in range(200)] for _ in range(4)
    ]
    slots = [
        None,
        *([SLOT] * 200 for _ in kinds[1:]),
    ]  # gradients are made anew at each step

    def step() -> None:
        for tensors, known in zip(kinds, slots, strict=True):
            begin(tensors, slots=known)

    seconds = _interleaved({"digest": step}, settings.rounds, wait)["digest"]
    return Figure(
        "digests of 4 x 200 tensors of 256 bytes",
        "ms",
        tuple(taken * 1e3 for taken in seconds),
        SMALL_GOAL[settings.device],
    )


def _contenders(
    torch: Any, tensors: list[Any], device: str
) -> Mapping[str, Callable[[], object]]:
    """What is timed, by name. SHA-256 reads host memory, so it has no say on a device."""
    found: dict[str, Callable[[], object]] = {
        "digest": lambda: digest_all(tensors),
        "clone": lambda: [tensor.clone() for tensor in tensors],
        "sum": lambda: [tensor.sum() for tensor in tensors],
    }
    if hasattr(torch, "hash_tensor"):  # torch 2.9 and newer
        found["torch.hash_tensor"] = lambda: [
            torch.hash_tensor(tensor) for tensor in tensors
        ]
    if device == "cpu":
        found["hashlib.sha256"] = lambda: [
            hashlib.sha256(memoryview(tensor.numpy()).cast("B")).digest()
            for tensor in tensors
        ]
    return found


def _interleaved(
    contenders: Mapping[str, Callable[[], object]], rounds: int, wait: Wait
) -> dict[str, list[float]]:
    """Seconds of each contender in each round, after one round that is not counted."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds + 1):
        for name, call in contenders.items():
            wait()
            began = time.perf_counter()
            call()
            wait()
            if number:
                seconds[name].append(time.perf_counter() - began)
    return seconds


def _nothing() -> None:
    """The CPU has nothing to wait for."""
