"""The faults of a self-test: where each is put, chosen from what a clean run recorded, and the one
that the gate puts in itself, into a file. The others are put in by the probe
(`probe/faults.py`)."""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from repro_gate.checks.random_state import ALGORITHMS
from repro_gate.compare.traces import processes
from repro_gate.runs.artifacts import Collected
from repro_gate.runs.launch import Run
from repro_gate.trace.blocks import Block
from repro_gate.trace.fields import Row
from repro_gate.trace.model import Trace

# name on the command line -> what it is
FAULTS = {
    "weight": "one flipped last bit in a weight",
    "optimizer": "one flipped last bit in an optimizer state",
    "batch": "one flipped last bit in a batch",
    "buffer": "one flipped last bit in a buffer",
    "generator": "one number more drawn from a generator",
    "race": "one racing operator",
    "flag": "the deterministic algorithms switched off in mid-training",
    "checkpoint": "one flipped bit in a checkpoint",
}
_KINDS = {
    "weight": "parameter",
    "race": "parameter",
    "optimizer": "optimizer",
    "batch": "batch",
    "buffer": "buffer",
}
_WHY_NOT = {
    "parameter": "no parameter was recorded as a tensor of floating-point numbers",
    "optimizer": "the optimizer keeps no tensor of floating-point numbers",
    "batch": "no batch came from a torch DataLoader",
    "buffer": "the model has no buffer",
}
_FLOATS = ("float64", "float32", "bfloat16", "float16", "complex64", "complex128")
_INTEGERS = ("int64", "int32", "int16", "int8", "uint8", "bool")
_GENERATORS = ("torch", "cuda:0", "numpy", "python")
_CHECKPOINTS = (".pt", ".pth", ".ckpt", ".bin", ".safetensors")
_TEXTS = (".json", ".jsonl", ".csv", ".tsv", ".txt", ".log")
_FROM_THE_END = 8  # bytes: the lowest of one element, whatever size its kind of number has


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a fault is put, and where it must be found. `key` is the process as the probe knows
    it."""

    step: int
    kind: str  # one of compare.model.KINDS, or `flag`
    name: str
    process: str = "main"
    key: str = "main"

    def config(self, fault: str) -> dict[str, object]:
        """For the probe."""
        what = {"race": "race", "generator": "draw", "flag": "flag"}.get(fault, "flip")
        return {
            "what": what,
            "kind": self.kind,
            "name": self.name,
            "step": self.step,
            "process": self.key,
        }


def place_of_fault(fault: str, clean: Run) -> Place | str:
    """Where the probe puts a fault: in the middle of what a clean run recorded. A sentence where
    there is no such place."""
    kind = _KINDS.get(fault, "rng")
    for label, trace in processes(clean.traces).items():
        found = next(_places(fault, kind, trace), None)
        if found is not None:
            step, name = found
            return Place(
                step=step,
                kind="flag" if fault == "flag" else kind,
                name=name,
                process=label,
                key=trace.key,
            )
    if fault == "flag":
        return (
            f"{ALGORITHMS} is not on in this training: it does not use torch, or determinism.allow "
            "names it"
        )
    if fault == "race" and place_of_fault("weight", clean) != _WHY_NOT[kind]:
        return "the training does not use torch"
    return _WHY_NOT.get(kind, "no generator was recorded")


def _places(fault: str, kind: str, trace: Trace) -> Iterator[tuple[int, str]]:
    """(step, name), the one to take first."""
    if fault == "race" and "torch" not in trace.facts:
        return
    inside = [
        block for block in trace.blocks if block.kind == kind and 0 <= block.step < len(trace.steps)
    ]
    blocks = [(block, rows) for block in inside if (rows := _eligible(block.rows, fault))]
    steps = sorted({block.step for block, _ in blocks})
    if not steps:
        return
    step = steps[len(steps) // 2]
    if fault == "flag":
        mark = trace.steps[step]
        if trace.settings and trace.settings[mark.flags].get(ALGORITHMS) is True:
            yield step, ALGORITHMS
    elif fault == "generator":
        yield step, _drawn_from([block for block, _ in blocks if block.step >= step])
    else:
        rows = next(rows for block, rows in blocks if block.step == step)
        yield (
            step,
            (
                max(rows, key=lambda row: math.prod(row[2]))
                if fault == "race"
                else rows[len(rows) // 2]
            )[0],
        )


def _eligible(rows: Sequence[Row], fault: str) -> list[Row]:
    """The rows that the fault can be put into. Of a batch or the buffers, whole numbers where there
    are no others."""
    if fault in ("generator", "flag"):
        return list(rows)
    filled = [row for row in rows if math.prod(row[2])]
    floats = [row for row in filled if row[1] in _FLOATS]
    floats = [row for row in floats if row[2]] or floats  # a step count says less than a moment
    whole = (
        [row for row in filled if row[1] in _INTEGERS and (row[1] != "bool" or row[2])]
        if fault in ("batch", "buffer")
        else []
    )
    return floats or whole


def _drawn_from(blocks: Sequence[Block]) -> str:
    """The first generator, torch's own before the others, that the training still draws from; else
    the first."""
    recorded = [row[0] for row in blocks[0].rows]
    names = [name for name in _GENERATORS if name in recorded] or recorded
    for name in names:
        states = {
            block.digest(place)
            for block in blocks
            for place, row in enumerate(block.rows)
            if row[0] == name
        }
        if len(states) > 1:
            return name
    return names[0]


def checkpoint_of(artifacts: Sequence[Collected]) -> str | None:
    """The declared artifact to damage: a checkpoint before other files; None where there is
    none."""
    whole = [item for item in artifacts if item.readable and any(size for _, _, size in item.files)]
    whole.sort(key=lambda item: not item.name.endswith(_CHECKPOINTS))
    return whole[0].name if whole else None


def flip_in_file(root: Path, name: str) -> None:
    """Flip one bit of a number in a file, or in the largest file of a folder, below `root`. Raises
    OSError where there is none, or a link leads out. What is in the file is untrusted."""
    base, path = os.path.realpath(root), os.path.realpath(root / name)
    if os.path.isdir(path):
        path = max(
            (entry.path for entry in os.scandir(path) if entry.is_file(follow_symlinks=False)),
            key=os.path.getsize,
            default=path,
        )
    if os.path.commonpath([base, path]) != base:
        raise OSError(f"{name}: a link leads out of the working directory")
    handle = os.open(path, os.O_RDWR | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0))
    with os.fdopen(handle, "r+b") as file:
        at = _number_in(file, path)
        file.seek(at)
        bits = file.read(1)
        if not bits:
            raise OSError(f"{name}: it is empty")
        file.seek(at)
        file.write(bytes([bits[0] ^ 1]))


def _number_in(file: BinaryIO, path: str) -> int:
    """The offset of a byte of a number: the last digit of a text; in an archive, in the largest
    tensor that is stored as it is."""
    size = file.seek(0, os.SEEK_END)
    if path.endswith(_TEXTS):
        start = max(size - 65_536, 0)
        file.seek(start)
        digits = [
            start + place for place, char in enumerate(file.read()) if chr(char) in "0123456789"
        ]
        return digits[-1] if digits else max(size - 1, 0)
    try:
        entries = zipfile.ZipFile(file).infolist() if zipfile.is_zipfile(file) else []
    except (zipfile.BadZipFile, ValueError, OverflowError):
        entries = []
    stored = [
        item
        for item in entries
        if item.compress_type == zipfile.ZIP_STORED and item.file_size >= _FROM_THE_END
    ]
    tensors = [
        item for item in stored if "/data/" in item.filename or item.filename.endswith(".npy")
    ]
    if not tensors:
        return max(size - _FROM_THE_END, 0)
    entry = max(tensors, key=lambda item: item.file_size)
    file.seek(entry.header_offset + 26)
    lengths = file.read(4)
    ahead = 30 + int.from_bytes(lengths[:2], "little") + int.from_bytes(lengths[2:], "little")
    return min(entry.header_offset + ahead + entry.file_size - _FROM_THE_END, max(size - 1, 0))
