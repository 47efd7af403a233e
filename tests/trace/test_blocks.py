"""Claims about where the digests of a trace are kept: a long training's are not in memory."""

from __future__ import annotations

import errno
import os
import tempfile
import tracemalloc
from pathlib import Path

import pytest

from repro_gate.compare.traces import compare_runs
from repro_gate.trace import blocks
from repro_gate.trace.blocks import Spool
from repro_gate.trace.model import TraceError
from repro_gate.trace.reader import read_folder
from repro_gate.trace.writer import TraceWriter

ROWS, STEPS = 500, 2_000  # a million digests: 16 MB
TABLE = tuple((f"layer.{number}.weight", "float32", (64,)) for number in range(ROWS))


def content(step: int, other: int | None = None) -> bytes:
    """Digests of a step, in the order of the rows; row 7 of step `other` differs."""
    return b"".join(
        (step * ROWS + row + (1 << 64) * (step == other and row == 7)).to_bytes(16, "little")
        for row in range(ROWS)
    )


def written(folder: Path, other: int | None = None) -> Path:
    folder.mkdir()
    writer = TraceWriter(str(folder), {"nonce": "n", "pid": 1, "argv": [], "forked": False})
    flags = writer.flags({})
    for step in range(STEPS):
        writer.block(step, "parameter", TABLE, content(step, other))
        writer.event("step", step=step, ms=1.0, probe_ms=0.0, peak_bytes=0, flags=flags)
    writer.event("end", reason="exit", steps=STEPS)
    return folder


def test_a_million_digests_are_compared_in_a_fraction_of_their_size(tmp_path: Path) -> None:
    folders = [written(tmp_path / "a"), written(tmp_path / "b", STEPS - 1)]
    tracemalloc.start()
    try:
        first, second = (read_folder(folder, "n") for folder in folders)
        found = compare_runs(first, second).first_divergence
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found is not None and (found.step, found.name) == (STEPS - 1, "layer.7.weight")
    digests = [block.digests for block in second[0].blocks]
    assert digests == [content(step, STEPS - 1) for step in range(STEPS)]
    assert peak < 2 * 16 * ROWS * STEPS / 3, peak


def test_digests_without_room_in_a_file_are_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(blocks, "IN_MEMORY", 100)
    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    with pytest.raises(TraceError, match=r":\d+: cannot be read: no room for its digests in "):
        read_folder(written(tmp_path / "a"), "n")


def test_what_was_cut_off_is_not_taken_for_a_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "IN_MEMORY", 1)
    place = Spool().put(b"0123456789")
    os.ftruncate(place.spool.file.fileno(), 4)
    with pytest.raises(OSError, match="cut off"):
        place.read()
