"""Measurements with the worker's double in `ops_worker.py`, and catalogs that are only written
down."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from repro_gate.ops import command, process
from repro_gate.ops.catalog import Arm, Catalog, Platform, Price, Row
from repro_gate.runs.progress import Watch
from repro_gate.sandbox.identity import Sandbox

Cases = Mapping[str, Mapping[str, Any]]


class Double:
    """The double in a folder of its own, in place of the real worker; `cache` is where the gate
    keeps what it measures."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.cache = folder / "double", folder / "cache"
        self.folder.mkdir()
        shutil.copy(Path(__file__).with_name("ops_worker.py"), self.folder)
        monkeypatch.setattr(process, "WORKER", self.folder / "ops_worker.py")
        monkeypatch.setenv("XDG_CACHE_HOME", str(self.cache))
        monkeypatch.setenv("GITHUB_TOKEN", "not for the training")
        monkeypatch.delenv("GITHUB_ACTIONS", raising=False)

    def set(self, *names: str, cases: Cases | None = None, **more: Any) -> None:
        """Set which cases there are, each with what its rows say besides; and everything else that
        `setting.json` knows."""
        found = {**{f"kernel/{name}": dict[str, Any]() for name in names}, **(cases or {})}
        (self.folder / "setting.json").write_text(json.dumps({"cases": found, **more}))

    def measure(self, watch: Watch | None = None, **wanted: Any) -> Catalog:
        asked = command.Choice(**{"device": "cpu", "python": sys.executable, **wanted})
        return command.measure(asked, os.environ, Sandbox(), watch or Watch())

    def executed(self) -> list[str]:
        """Return every row that a worker began since this was asked last: process, case, dtype."""
        log = self.folder / "measured.txt"
        lines = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return lines


_VERSIONS = {"torch": "2.13.0+cpu", "python": "3.11.7", "system": "Linux"}
PLATFORM = Platform(device="cpu", device_name="A CPU", threads=2, isa="AVX512", **_VERSIONS)
REPEATS = Arm(outcome="repeats", runs=9)
DIFFERS = Arm(outcome="differs", runs=9, differing=5, max_ulp=3)
RAISES = Arm(outcome="raises", message="does not have a deterministic implementation")


def row(
    case: str, off: Arm = REPEATS, on: Arm = REPEATS, dtype: str = "float32", **more: Any
) -> Row:
    of = {"case": case, "dtype": dtype, "direction": "forward"}
    return Row(**{**of, "off": off, "on": on, **more})


def price(ratio: float, low: float, high: float) -> Price:
    return Price(ratio=ratio, low=low, high=high)


def catalog(*rows: Row, **more: Any) -> Catalog:
    by = {"schema": "repro-gate/ops/v1", "repro_gate": "0.1.0", "command": "repro-gate ops"}
    at = {"date": "2026-11-23T00:00:00+00:00", "seconds": 321.0, "platform": PLATFORM}
    return Catalog(**{**by, **at, "complete": True, "scope": "all", "rows": rows, **more})


def changed(given: Catalog, **more: Any) -> Catalog:
    return msgspec.structs.replace(given, **more)
