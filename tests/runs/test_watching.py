"""Claims about `runs.watching`: what is read of a process while it runs has a bound."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from repro_gate.runs import watching

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")


MAPS_A_LIBRARY = """
import mmap, sys
print(flush=True)
sys.stdin.readline()
with open(sys.argv[1], "wb+") as file:
    file.write(b"x" * 4096)
    file.flush()
    mapped = mmap.mmap(file.fileno(), 4096)
print(flush=True)
sys.stdin.readline()
"""


def test_torch_is_seen_among_the_files_that_a_process_has_mapped_up_to_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [sys.executable, "-IS", "-c", MAPS_A_LIBRARY, str(tmp_path / "libtorch_cpu.so")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdout.readline()
        assert not watching._has_torch(process.pid)
        process.stdin.write(b"\n")
        process.stdin.flush()
        process.stdout.readline()
        assert watching._has_torch(process.pid)
        maps = Path(f"/proc/{process.pid}/maps").read_bytes()
        monkeypatch.setattr(watching, "MAPS_BYTES", maps.index(b"libtorch") - 1)
        assert not watching._has_torch(process.pid)
