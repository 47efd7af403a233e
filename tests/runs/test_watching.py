"""Claims about `runs.watching`: what is read of a process while it runs has a bound."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from repro_gate.runs import watching
from repro_gate.sandbox.identity import Sandbox
from repro_gate.trace import format as fmt

MAPS_A_LIBRARY = """
import mmap, sys
file = open(sys.argv[1], "wb+")
file.truncate(4096)
mapped = mmap.mmap(file.fileno(), 4096)
print(flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
@pytest.mark.parametrize(("name", "is_torch"), [("libtorch_cpu.so", True), ("libm.so", False)])
def test_torch_is_seen_among_mapped_files_up_to_a_bound(
    name: str, is_torch: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [sys.executable, "-IS", "-c", MAPS_A_LIBRARY, str(tmp_path / name)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline()
        assert watching._has_torch(process.pid) is is_torch
        maps = Path(f"/proc/{process.pid}/maps").read_bytes()
        monkeypatch.setattr(watching, "MAPS_BYTES", maps.find(b"libtorch"))
        assert not is_torch or not watching._has_torch(process.pid)


@pytest.mark.parametrize(("timeout", "seconds"), [(90.0, 90), (3600.0, 600)])
def test_traces_are_read_no_longer_than_a_run_may_take(
    timeout: float, seconds: float, tmp_path: Path
) -> None:
    watcher = watching.Watcher(
        folder=tmp_path, nonce="nonce", tick=lambda _: None, sandbox=Sandbox(), timeout=timeout
    )
    assert watcher.budget.limits[fmt.SECONDS] == seconds
