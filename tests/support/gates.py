"""Runs the command line of the gate in a real process on a folder, and reads the report that it
writes: what the e2e tests stand on."""

from __future__ import annotations

import atexit
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from repro_gate.checks.interface import EvidenceLine
from repro_gate.report.document import read_json
from repro_gate.trace.fields import Location

ROOT = Path(__file__).resolve().parents[2]
# A training without torch, for claims that are not about torch: a run of it takes a tenth of a
# second, where torch's imports take four.
LOOP = """
import random, sys
from repro_gate import record, step
random.seed(int(sys.argv[1])) if len(sys.argv) > 1 else None
weight = momentum = 0.0
for number in range(6):
    x = random.random()
    # here
    loss = (weight - x) ** 2
    momentum = 0.9 * momentum + 0.2 * (weight - x)
    weight -= 0.1 * momentum
    record("loss", loss)
    record("weight", weight, "parameter")
    record("momentum", momentum, "optimizer")
    step()
"""


def tiered(values: Iterable[str], quick: Container[str]) -> list[Any]:
    """Return the values as parameters of a test, of which all but the `quick` ones are slow."""
    return [
        pytest.param(value, marks=() if value in quick else pytest.mark.slow) for value in values
    ]


@dataclass(frozen=True)
class Gated:
    """What one call of `repro-gate run` gave."""

    exit_code: int
    report: Mapping[str, Any]
    stdout: str
    stderr: str

    @property
    def first(self) -> Mapping[str, Any]:
        found = self.report["determinism"]["first_divergence"]
        assert found is not None, self.stdout
        return dict(found)

    @property
    def said(self) -> str:
        """What it printed, for a test that fails."""
        return self.stdout + self.stderr

    @property
    def reason_ids(self) -> list[str]:
        return [item["id"] for item in self.report["reasons"]]

    def must(self, exit_code: int, *reasons: str) -> None:
        """It ended so, for these reasons and no others; without any named, for whichever."""
        assert self.exit_code == exit_code, self.said
        assert not reasons or self.reason_ids == [*reasons], self.said

    def must_diverge(self, step: int, kind: str, name: str | None = None) -> None:
        """It failed, and this differs first."""
        self.must(1)
        first = self.first
        assert (first["step"], first["kind"], name or first["name"]) == (step, kind, first["name"])

    def must_warn(self, name: str, message: str = "") -> Mapping[str, Any]:
        """It passed, with a warning of this check."""
        self.must(0)
        check = self.check(name)
        assert check["status"] == "warn" and message in check["message"], check
        return check

    def check(self, name: str) -> Mapping[str, Any]:
        """One item of the checklist, its evidence as a person reads it."""
        found = next(item for item in self.report["checklist"] if item["id"] == name)
        given = [(item["text"], item["location"]) for item in found["evidence"]]
        seen = [EvidenceLine(text, place and Location(**place)) for text, place in given]
        return {**found, "evidence": [*map(str, seen)]}


def environment(**more: str) -> dict[str, str]:
    """The environment of a person's shell in which `python` is the interpreter that runs the tests,
    with a cache of the tests' own: a developer's holds catalogs of operators, which would put notes
    into reports."""
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    names = ("LANG", "TMPDIR", "LD_LIBRARY_PATH", "OMP_WAIT_POLICY")
    kept = {name: os.environ[name] for name in names if name in os.environ}
    home = os.environ.get("HOME", "/")
    return {**kept, "PATH": path, "HOME": home, "XDG_CACHE_HOME": _cache(), **more}


@functools.cache
def _cache() -> str:
    folder = tempfile.mkdtemp(prefix="cache-of-repro-gates-tests-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "repro_gate", *map(str, arguments)]


def call(
    *arguments: str | Path, timeout: float = 900, **more: str
) -> subprocess.CompletedProcess[str]:
    """One call of `repro-gate ARGUMENTS`; `more` goes into the environment."""
    return subprocess.run(
        command(*arguments),
        cwd=ROOT,
        env=environment(**more),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def gate(folder: Path, *arguments: str | Path, out: Path, **more: str) -> Gated:
    """Gate the spec in `folder`. The report is compared with its schema on the way in."""
    target = out / "report.json"
    done = call("run", folder, "--json", target, *arguments, **more)
    report = read_json(target) if target.exists() else {}
    return Gated(done.returncode, report, done.stdout, done.stderr)


def training(
    folder: Path,
    source: str,
    spec: str = "",
    files: Mapping[str, str] | None = None,
    run: str = "python train.py",
) -> Path:
    """A folder with `train.py` and a `repro.yml` that runs it for four steps without the default
    runs, unless `spec` says otherwise.

    Why runs diverge is not looked for unless `spec` has the key `diagnosis`: that takes up to
    twelve more runs.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in {"train.py": source, **(files or {})}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(textwrap.dedent(text))
    train = f"train: {{run: {json.dumps(run)}, steps: 4, timeout: 2m}}"
    text = textwrap.dedent(spec) or f"version: 1\n{train}\ncost: {{measure: false}}"
    more = "" if "diagnosis:" in text else "\ndiagnosis: false\n"
    (folder / "repro.yml").write_text(text.rstrip() + more)
    return folder


def gate_training(
    place: Path, source: str, spec: str = "", *arguments: str | Path, **made: Any
) -> Gated:
    """Gate a training in a folder of its own, with the report beside it. `made`: what `training`
    takes besides, and variables of the environment."""
    of_training = {name: made.pop(name) for name in ("files", "run") if name in made}
    folder = training(place / "code", source, spec, **of_training)
    return gate(folder, *arguments, out=place, **made)


def with_line(line: str) -> str:
    """The training without torch, with one more line in its loop."""
    return LOOP.replace("# here", line)


def temporary_folders() -> list[Path]:
    return sorted(Path(os.environ.get("TMPDIR", "/tmp")).glob("repro-gate-*"))
