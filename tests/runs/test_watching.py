"""Claims about `runs.watching`: what is read of a process while it runs has a bound."""

from __future__ import annotations

import mmap
import os
import sys
from pathlib import Path

import pytest

from repro_gate.runs import watching

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")


def test_torch_is_seen_among_the_files_that_a_process_has_mapped_up_to_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not watching._has_torch(os.getpid())
    with open(tmp_path / "libtorch_cpu.so", "wb+") as file:
        file.write(b"x" * 4096)
        file.flush()
        with mmap.mmap(file.fileno(), 4096):
            assert watching._has_torch(os.getpid())
            read = Path("/proc/self/maps").read_bytes()
            monkeypatch.setattr(watching, "MAPS_BYTES", read.index(b"libtorch") - 1)
            assert not watching._has_torch(os.getpid())
