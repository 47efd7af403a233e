"""The faults of a self-test. Chooses the place of each from what a clean run recorded, and damages
a checkpoint; the probe causes all other faults (`probe/faults.py`)."""

from __future__ import annotations

import math
import os
import zipfile
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from repro_gate.compare.traces import processes
from repro_gate.runs.artifacts import with_digest
from repro_gate.runs.flags import ALGORITHMS
from repro_gate.runs.launch import RunResult
from repro_gate.trace.blocks import Block
from repro_gate.trace.fields import Row
from repro_gate.trace.model import Trace

# name on the command line -> description
FAULTS = {
    "weight": "one flipped last bit in a weight",
    "optimizer": "one flipped last bit in an optimizer state",
    "batch": "one flipped last bit in a batch",
    "buffer": "one flipped last bit in a buffer",
    "generator": "one extra number drawn from a generator",
    "race": "one racing operator",
    "flag": "the deterministic algorithms switched off in mid-training",
    "checkpoint": "one flipped bit in a checkpoint",
}
# fault -> (the probe's action, the kind of tensor, the sentence if a training has no such tensor)
_PUT_IN = {
    "weight": (
        "flip",
        "parameter",
        "no parameter was recorded as a tensor of floating-point numbers",
    ),
    "optimizer": (
        "flip",
        "optimizer",
        "the optimizer keeps no tensor of floating-point numbers",
    ),
    "batch": ("flip", "batch", "no batch came from a torch DataLoader"),
    "buffer": ("flip", "buffer", "the model has no buffer"),
    "generator": ("draw", "rng", "no generator was recorded"),
    "race": (
        "race",
        "parameter",
        "the training does not use torch, or records no parameter of floating-point numbers",
    ),
    "flag": (
        "flag",
        "rng",
        f"{ALGORITHMS} is not on in this training (no torch, or named by determinism.allow)",
    ),
}
_FLOATS = ("float64", "float32", "bfloat16", "float16", "complex64", "complex128")
_INTEGERS = ("int64", "int32", "int16", "int8", "uint8", "bool")
_GENERATORS = ("torch", "cuda:0", "numpy", "python")
_CHECKPOINTS = (".pt", ".pth", ".ckpt", ".bin", ".safetensors")
# In the last 8 bytes this is the lowest byte of an element, whatever the element's size.
_FROM_THE_END = 8


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a fault is put in, and where the gate must find it. `key` is the probe's name of the
    process."""

    step: int
    kind: str  # one of compare.model.KINDS, or `flag`
    name: str
    process: str = "main"
    key: str = "main"

    def config(self, fault: str) -> dict[str, object]:
        """Return the fault as the probe's configuration."""
        return {
            "what": _PUT_IN[fault][0],
            "kind": self.kind,
            "name": self.name,
            "step": self.step,
            "process": self.key,
        }


def place_of_fault(fault: str, clean: RunResult) -> Place | str:
    """Return where the probe puts a fault: at the middle one of the steps that a clean run
    recorded. Return a sentence if there is no such place."""
    _, kind, why_not = _PUT_IN[fault]
    for label, trace in processes(clean.traces).items():
        place = _place_in(trace, fault, kind)
        if place is not None:
            step, name = place
            kind = "flag" if fault == "flag" else kind
            return Place(step=step, kind=kind, name=name, process=label, key=trace.key)
    return why_not


def _place_in(trace: Trace, fault: str, kind: str) -> tuple[int, str] | None:
    """Return the step and the tensor's name; None if the process recorded no such tensor."""
    blocks = [
        block
        for block in trace.blocks
        if block.kind == kind and 0 <= block.step < len(trace.steps)
        if _eligible(block.rows, kind)
    ]
    steps = sorted({block.step for block in blocks})
    if not steps or (fault == "race" and "torch" not in trace.facts):
        return None
    step = steps[len(steps) // 2]
    if fault == "flag":
        settings = trace.settings[trace.steps[step].flags]
        return (step, ALGORITHMS) if settings.get(ALGORITHMS) is True else None
    if fault == "generator":
        return step, _drawn_from([block for block in blocks if block.step >= step])
    rows = next(block.rows for block in blocks if block.step == step)
    return step, max(_eligible(rows, kind), key=_size)[0]


def _size(row: Row) -> int:
    return math.prod(row[2])


def _eligible(rows: Sequence[Row], kind: str) -> Sequence[Row]:
    """Return the rows that can hold a fault: tensors of floating-point numbers. In batches and
    buffers without any, tensors of integers."""
    if kind == "rng":
        return rows
    filled = list(filter(_size, rows))
    floats = [row for row in filled if row[1] in _FLOATS]
    if floats or kind not in ("batch", "buffer"):
        return floats
    return [row for row in filled if row[1] in _INTEGERS]


def _drawn_from(blocks: Sequence[Block]) -> str:
    """Return the first generator, torch's before others, whose state still changes; if none does,
    the first."""
    states = defaultdict(set)
    for block in blocks:
        for place, row in enumerate(block.rows):
            states[row[0]].add(block.digest(place))
    names = [name for name in _GENERATORS if name in states] or [*states]
    return next((name for name in names if len(states[name]) > 1), names[0])


def checkpoint_of(run: RunResult) -> str | None:
    """Return the declared artifact to damage, a checkpoint if there is one; None if there is no
    artifact."""
    items = [item for item in run.artifacts.values() if item.readable]
    names = [item.name for item in items if any(size for _, _, size in item.files)]
    return min(names, key=lambda name: not name.endswith(_CHECKPOINTS), default=None)


def damaged(run: RunResult, name: str) -> RunResult:
    """Return the run as if it had written this artifact with one bit flipped. Raises OSError if it
    wrote none."""
    item = run.artifacts.get(name)
    if item is None or not item.readable:
        raise OSError("this run did not write it")
    path = item.path
    if path.is_dir():
        path = max(filter(Path.is_file, path.iterdir()), key=os.path.getsize)
    flip_in_file(path)
    return replace(run, artifacts={**run.artifacts, name: with_digest(item)})


def flip_in_file(path: Path) -> None:
    """Flip one bit of a file, whose content is untrusted: in a tensor of an archive, in any other
    file in the last eight bytes. Raises OSError if the file is empty."""
    with path.open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        if not size:
            raise OSError("it is empty")
        at = min(max(_number_in(file, size), 0), size - 1)
        file.seek(at)
        bits = file.read(1)
        file.seek(at)
        file.write(bytes([bits[0] ^ 1]))


def _number_in(file: BinaryIO, size: int) -> int:
    """Return the offset of a number's byte: in an archive in the largest uncompressed tensor, else
    8 bytes before the end."""
    entries = []
    with suppress(zipfile.BadZipFile, ValueError, OverflowError):
        entries = zipfile.ZipFile(file).infolist()
    tensors = [
        item
        for item in entries
        if item.compress_type == zipfile.ZIP_STORED and item.file_size >= _FROM_THE_END
        if "/data/" in item.filename or item.filename.endswith(".npy")
    ]
    if not tensors:
        return size - _FROM_THE_END
    entry = max(tensors, key=lambda item: item.file_size)
    file.seek(entry.header_offset + 26)
    name, extra = (int.from_bytes(file.read(2), "little") for _ in range(2))
    return entry.header_offset + 30 + name + extra + entry.file_size - _FROM_THE_END
