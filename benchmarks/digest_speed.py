"""How fast the probe's digest reads a tensor, against `torch.hash_tensor`, `hashlib.sha256`, a
plain `clone` and `sum` of the same bytes.

A ratio above 1 says how many times faster the digest is. `torch.hash_tensor` is an XOR and sees no
permutation; `clone` only copies: it is what a probe that kept tensors instead of digests would have
to do.

On a CUDA device the kernel is timed by the device's own events, against `sum` alone, and so is each
variant of it that `device_kernel.VARIANTS` names; waiting for the result and copying it are apart.
"""

from __future__ import annotations

import hashlib
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks.figure import Figure
from repro_gate.probe.digest import EXTENSION, Plan, begin, digest_all
from repro_gate.runs.environment import EXTENSION as GATES_OWN

MIB = 2**20
LARGE = 16 * MIB
GOALS = {
    "digest": 12.0,
    "torch.hash_tensor": 3.0,
    "hashlib.sha256": 6.0,
    "sum": 0.5,
}
EVENTS_GOAL = (
    0.85  # of the bandwidth that `sum` reaches on a CUDA device, for large tensors
)
EVENTS_LARGE = 256 * MIB
AHEAD = (
    20_000_000  # cycles, some 10 ms, in which a device waits while the host queues work
)
SMALL_GOAL = {"cpu": 1.0, "cuda": 0.3}
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
            torch.randn(size // 4) for _ in range(max(1, settings.batch // size))
        ]
        moved = size * len(tensors)
        contenders = _contenders(torch, tensors)
        seconds = _interleaved(contenders, settings.rounds, _nothing)
        label = _label(size)
        speeds = {
            name: [moved / taken / 1e9 for taken in found]
            for name, found in seconds.items()
        }
        beside = {
            f"{name}_gb_per_s": {"best": max(found), "median": statistics.median(found)}
            for name, found in speeds.items()
        }
        digest = tuple(speeds.pop("digest"))
        goals = GOALS if size >= LARGE else {}
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
    return [*figures, small(settings)]


def small(settings: Settings) -> Figure:
    """Milliseconds for one step of a model of 200 small tensors, from the tensors to their digests:
    parameters, gradients and two kinds of optimizer state."""
    import torch

    wait: Wait = torch.cuda.synchronize if settings.device != "cpu" else _nothing
    kinds = [
        [torch.randn(64, device=settings.device) for _ in range(200)] for _ in range(4)
    ]
    plans = [Plan() for _ in kinds]

    def step() -> None:
        begun = [
            begin(tensors, plan=known)
            for tensors, known in zip(kinds, plans, strict=True)
        ]
        for digests in begun:
            digests.result()

    seconds = _interleaved({"digest": step}, settings.rounds, wait)["digest"]
    return Figure(
        "digests of 4 x 200 tensors of 256 bytes",
        "ms",
        tuple(taken * 1e3 for taken in seconds),
        SMALL_GOAL[settings.device],
    )


def measure_by_events(settings: Settings) -> Iterator[Figure]:
    """Yield, for each size, the bandwidth of the kernel on the device and its ratio to that of
    `sum`, and the same of each variant."""
    import torch

    from repro_gate.probe import device_digest, device_launch

    device = torch.device(settings.device, 0)
    variants: Mapping[str, Any] = device_launch.VARIANTS
    for size in settings.sizes:
        content = torch.randn(max(settings.batch, size) // 4, device=settings.device)
        tensors = content.split(size // 4)
        kernel = partial(device_digest.sums_by, device, tensors)
        contenders: dict[str, Callable[[], object]] = {
            "sum": content.sum,
            "digest": kernel,
            "all": lambda: begin(tensors),  # noqa: B023  # timed within this round of the loop
        }
        sums = kernel()
        for name, options in variants.items():
            try:
                found = kernel(options)
            except Exception as error:  # noqa: BLE001  # a variant may need more than a device has
                print(f"  digest, {name}: {type(error).__name__}: {error}")
                continue
            print(f"  digest, {name}: same sums: {bool(torch.equal(found, sums))}")
            contenders[f"digest, {name},"] = partial(kernel, options)
        seconds = _by_events(torch, contenders, settings.rounds)
        later = statistics.median(seconds.pop("all")) - statistics.median(
            seconds["digest"]
        )
        beside = {
            "copy_ms": later * 1e3,
            "result_ms": _result_ms(torch, tensors, settings),
        }
        moved = content.numel() * 4
        of_sum = seconds.pop("sum")
        for name, taken in seconds.items():
            label = f"{name} of {_label(size)} by events"
            speeds = tuple(moved / item / 1e9 for item in taken)
            yield Figure(label, "GB/s", speeds, None, beside, at_least=True)
            ratios = tuple(one / own for one, own in zip(of_sum, taken, strict=True))
            goal = EVENTS_GOAL if size >= EVENTS_LARGE else None
            yield Figure(f"{label} over sum", "ratio", ratios, goal, {}, at_least=True)


def _by_events(
    torch: Any, contenders: Mapping[str, Callable[[], object]], rounds: int
) -> dict[str, list[float]]:
    """Seconds that the device spends on each contender in each round, after one round that is not
    counted. It is kept waiting until all work is queued, so none of that time is the host's."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds + 1):
        for name, call in contenders.items():
            before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda.synchronize()
            torch.cuda._sleep(AHEAD)
            before.record()
            call()
            after.record()
            after.synchronize()
            if number:
                seconds[name].append(before.elapsed_time(after) / 1e3)
    return seconds


def _result_ms(torch: Any, tensors: Sequence[Any], settings: Settings) -> float:
    """Milliseconds that the host takes for the result once the device is done with it."""
    taken = []
    for _ in range(settings.rounds):
        digests = begin(tensors)
        torch.cuda.synchronize()
        began = time.perf_counter()
        digests.result()
        taken.append((time.perf_counter() - began) * 1e3)
    return statistics.median(taken)


def _label(size: int) -> str:
    return f"{size // 1024} KiB" if size < MIB else f"{size // MIB} MiB"


def _contenders(torch: Any, tensors: list[Any]) -> Mapping[str, Callable[[], object]]:
    """What is timed, by name."""
    found: dict[str, Callable[[], object]] = {
        "digest": lambda: digest_all(tensors),
        "clone": lambda: [tensor.clone() for tensor in tensors],
        "sum": lambda: [tensor.sum() for tensor in tensors],
    }
    if hasattr(torch, "hash_tensor"):  # torch 2.9 and newer
        found["torch.hash_tensor"] = lambda: [
            torch.hash_tensor(tensor) for tensor in tensors
        ]
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
