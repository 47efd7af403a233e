"""How long the gate takes to digest declared data, over `sha256sum` (and `b3sum`, where it is
installed) on the same files, and its memory.

One large file, and a folder of many small ones, both in the page cache. `sha256sum` gets the small
ones from `find` and `xargs`, in one process and in two, and the faster of the two counts. At least
80 % of its throughput is a ratio of at most 1.25. Memory is the peak of a fresh process that only
verifies.
"""

from __future__ import annotations

import functools
import os
import random
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.figure import ROOT, Figure
from repro_gate.data.declared import verify_data
from repro_gate.spec.model import DataItem

MIB = 2**20
GOAL = 1.25  # 1 / 0.8
ALLOWED_MIB = 64
FOLDERS = 100
PEAK = """\
import sys
from pathlib import Path
from repro_gate.data.declared import verify_data
from repro_gate.spec.model import DataItem
(found,) = verify_data([DataItem(sys.argv[1])], Path("/"))
assert found.actual is not None, found.problem
print(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])
"""


@dataclass(frozen=True)
class Settings:
    """Bytes of the large file, number of small ones and the least and greatest bytes of each,
    rounds of each, bytes for the memory of a large file (not timed)."""

    large: int = 1024 * MIB
    small: int = 100_000
    least: int = 2 * 1024
    greatest: int = 8 * 1024
    rounds: int = 3
    memory: int = 4096 * MIB


QUICK = Settings(large=4 * MIB, small=300, rounds=2, memory=4 * MIB)


class NoRoom(Exception):
    """The temporary folder is too small for what should be measured."""


def measure(settings: Settings) -> list[Figure]:
    """Time over each peer's, round by round, and peak memory, for one large file and for many small
    ones."""
    needed = max(settings.large, settings.memory) + settings.small * (
        settings.greatest + 4096
    )
    with tempfile.TemporaryDirectory(prefix="repro-gate-bench-") as name:
        if shutil.disk_usage(name).free < 2 * needed:
            raise NoRoom(
                f"{name} has not twice the {needed // MIB} MiB that this needs: set TMPDIR, or "
                "measure less"
            )
        place = Path(name)
        large, small = place / "large", place / "small"
        _write_large(large, settings.large)
        bytes_small = _write_small(small, settings)
        quoted = shlex.quote(os.fspath(large))
        figures = _times(
            f"one file of {settings.large // MIB} MiB",
            large,
            settings.large,
            _each("{} " + quoted),
            settings.rounds,
        )
        found = (
            f"find {shlex.quote(os.fspath(small))} -type f -print0 | xargs -0 -n 1000"
        )
        peers = {
            **_each(found + " {}"),
            **{
                f"{name}, two processes": call
                for name, call in _each(found + " -P 2 {}").items()
            },
        }
        figures += _times(
            f"{settings.small} small files", small, bytes_small, peers, settings.rounds
        )
        figures.append(_memory(f"{settings.small} small files", small))
        _write_large(large, settings.memory)
        figures.append(_memory(f"one file of {settings.memory // MIB} MiB", large))
    return figures


def _each(command: str) -> dict[str, Callable[[], object]]:
    """The command with each tool that is installed in it, by the tool's name; `b3sum` on one
    thread, as `sha256sum` is."""
    tools = {
        "sha256sum": "sha256sum",
        **({"b3sum": "b3sum --num-threads 1"} if shutil.which("b3sum") else {}),
    }
    return {
        name: functools.partial(_shell, command.format(tool))
        for name, tool in tools.items()
    }


def _shell(line: str) -> None:
    subprocess.run(
        ["bash", "-c", f"set -o pipefail; {line}"],
        check=True,
        stdout=subprocess.DEVNULL,
    )


def _times(
    label: str,
    path: Path,
    size: int,
    peers: Mapping[str, Callable[[], object]],
    rounds: int,
) -> list[Figure]:
    """The gate's time over each peer's, taking turns, after one round that is not counted; and over
    the best sha256sum of each round."""
    contenders: dict[str, Callable[[], object]] = {
        "gate": lambda: _verified(path),
        **peers,
    }
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds + 1):
        for name, call in contenders.items():
            began = time.perf_counter()
            call()
            if number:
                seconds[name].append(time.perf_counter() - began)
    beside = {
        f"{name}_gb_per_s": [size / taken / 1e9 for taken in found]
        for name, found in seconds.items()
    }
    gate = seconds.pop("gate")
    best = [
        min(taken)
        for taken in zip(
            *(found for name, found in seconds.items() if name.startswith("sha256sum")),
            strict=True,
        )
    ]
    figures = [
        Figure(
            f"{label}, over the best sha256sum",
            "ratio",
            _over(gate, best),
            GOAL,
            beside,
        )
    ]
    return figures + [
        Figure(f"{label}, over {name}", "ratio", _over(gate, found))
        for name, found in seconds.items()
        if len(seconds) > 1
    ]


def _over(gate: list[float], peer: list[float]) -> tuple[float, ...]:
    return tuple(ours / theirs for ours, theirs in zip(gate, peer, strict=True))


def _verified(path: Path) -> None:
    (found,) = verify_data((DataItem(os.fspath(path)),), path.parent)
    if found.actual is None:
        raise OSError(found.problem)


def _memory(label: str, path: Path) -> Figure:
    """Peak memory in MiB of a process that verifies one item."""
    done = subprocess.run(
        [sys.executable, "-c", PEAK, os.fspath(path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    return Figure(
        f"peak memory, {label}", "MiB", (int(done.stdout) / 1024,), ALLOWED_MIB
    )


def _write_large(path: Path, size: int) -> None:
    """Random bytes, over and over: nothing here compresses."""
    piece = random.Random(0).randbytes(min(size, 16 * MIB))
    with path.open("wb") as file:
        while file.tell() < size:
            file.write(piece[: size - file.tell()])


def _write_small(folder: Path, settings: Settings) -> int:
    """Files of random sizes in a few folders. Returns their bytes."""
    source, total = random.Random(0), 0
    piece = source.randbytes(settings.greatest)
    for number in range(min(FOLDERS, settings.small)):
        (folder / f"{number:03}").mkdir(parents=True)
    for number in range(settings.small):
        size = source.randint(settings.least, settings.greatest)
        (folder / f"{number % FOLDERS:03}" / f"{number:07}.bin").write_bytes(
            piece[:size]
        )
        total += size
    return total
