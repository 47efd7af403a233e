"""Claims about the order in which a gate run does things: the first run does not wait for declared
data that takes long to read."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from repro_gate.gate.options import Options
from repro_gate.gate.run import run_gate
from repro_gate.report.model import Report
from repro_gate.runs.progress import Watch
from repro_gate.spec.loader import load_spec
from tests.support.gates import LOOP, environment, training

DATA = (
    "version: 1\ntrain: {run: python train.py}\ncost: {measure: false}\ndata: [{path: data.bin, "
    "sha256: %s}]\n"
)
ZEROS = "bb9f8df61474d25e71fa00722318cd387396ca1736605e1248821cc0de3d3af8"  # of 4 MiB


class SlowDisk(Watch):
    """Data is read for as long as no run has begun; `at` is called when one begins."""

    def __init__(self, interrupt: bool = False) -> None:
        self.started: list[str] = []
        self._interrupt, self._began = interrupt, threading.Event()

    def verifying(self, done: int, total: int) -> None:
        assert self._began.wait(60)

    def run_started(self, name: str, number: int, total: int, steps: int | None) -> None:
        self.started.append(name)
        if self._interrupt:
            threading.Timer(1.0, self._began.set).start()
            raise KeyboardInterrupt
        self._began.set()


def run(tmp_path: Path, watch: Watch, digest: str = ZEROS) -> Report:
    folder = training(tmp_path / "code", LOOP, DATA % digest)
    (folder / "data.bin").write_bytes(bytes(4 * 2**20))
    return run_gate(
        load_spec(folder / "repro.yml"), Options(environment=environment(), cache=False), watch
    )


@pytest.mark.parametrize(
    ("watch", "order"),
    [
        (SlowDisk(), ["reseeded", "deterministic-1", "deterministic-2"]),
        (Watch(), ["deterministic-1", "deterministic-2", "reseeded"]),
    ],
    ids=["late", "at-once"],
)
def test_slow_data_is_read_meanwhile(tmp_path: Path, watch: Watch, order: list[str]) -> None:
    report = run(tmp_path, watch)
    assert report.verdict == "pass" and [item.name for item in report.runs] == order
    assert [item.status for item in report.checklist if item.id == "data/checksums"] == ["pass"]


@pytest.mark.parametrize("watch", [Watch(), SlowDisk()], ids=["at-once", "late"])
def test_on_other_data_than_declared_nothing_is_trained(tmp_path: Path, watch: Watch) -> None:
    report = run(tmp_path, watch, "0" * 64)
    assert report.verdict == "fail" and not report.runs
    assert getattr(watch, "started", ["reseeded"]) == ["reseeded"]


def test_an_interrupt_does_not_wait_for_data(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, SlowDisk(interrupt=True))


class FullDisk(Watch):
    """The disk is full when the second run begins."""

    def run_started(self, name: str, number: int, total: int, steps: int | None) -> None:
        if number == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_disk_that_is_full_after_the_first_run_is_named_with_its_remedy(tmp_path: Path) -> None:
    [reason] = run(tmp_path, FullDisk()).reasons
    assert reason.id == "run/interrupted" and reason.message.endswith("No space left on device")
    assert "TMPDIR" in reason.remedy
