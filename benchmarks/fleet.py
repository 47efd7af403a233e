"""How long `repro-gate compare` takes over the reports of many nodes, and how much more memory than
over ten.

The reports are one real recording of 200 steps, again and again, each with the facts of a node of
its own with eight GPUs; one node computed other bits. Memory is the peak of a fresh process.
"""

from __future__ import annotations

import copy
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.arms import OUTER
from benchmarks.figure import ROOT, Figure

GOAL = 10.0  # seconds
MORE_MIB = 8.0
FEW = 10
COMPARE = """\
import sys, time
from pathlib import Path
from repro_gate.cli import main
began = time.perf_counter()
code = main(["compare", *map(str, sorted(Path(sys.argv[1]).glob("*.json")))])
took = time.perf_counter() - began
# not getrusage: its peak is at least that of the process which started this one
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(code, took, int(peak.split()[1]) / 1024)
"""


@dataclass(frozen=True)
class Settings:
    """Number of reports, optimizer steps that each holds, and rounds."""

    reports: int = 1_000
    steps: int = 200
    rounds: int = 3


QUICK = Settings(20, 8, 1)


def measure(settings: Settings) -> list[Figure]:
    """Seconds over all reports, and peak memory beyond that over ten."""
    with tempfile.TemporaryDirectory(prefix="repro-gate-bench-") as name:
        place = Path(name)
        report = _recorded(place / "report.json", settings.steps)
        for count in (FEW, settings.reports):
            folder = place / str(count)
            folder.mkdir()
            for number in range(count):
                made = json.dumps(_of_node(report, number))
                (folder / f"node-{number}.json").write_text(made)
        few, many = [], []
        for _ in range(settings.rounds):
            few.append(_compared(place / str(FEW)))
            many.append(_compared(place / str(settings.reports)))
    beside = {
        "report_kib": len(json.dumps(report)) / 1024,
        "few_s": [took for took, _ in few],
        "few_mib": [peak for _, peak in few],
        "many_mib": [peak for _, peak in many],
    }
    what = f"compare of {settings.reports:,} reports of {settings.steps} steps"
    more = tuple(
        after - before for (_, before), (_, after) in zip(few, many, strict=True)
    )
    return [
        Figure(what, "s", tuple(took for took, _ in many), GOAL, beside),
        Figure(f"{what}, memory beyond {FEW}", "MiB", more, MORE_MIB, beside),
    ]


def _recorded(path: Path, steps: int) -> dict[str, Any]:
    """Return the report of a recording of the fleet's example."""
    command = f"train.run=python train.py --seed {{seed}} --steps {steps}"
    options = ["--steps", str(steps), "--set", command, "--json", str(path), "--quiet"]
    folder = ROOT / "examples" / "slurm" / "fleet"
    subprocess.run(
        [sys.executable, "-m", "repro_gate", "run", folder, "--record", *options],
        cwd=ROOT,
        env=OUTER,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def _of_node(report: Mapping[str, Any], number: int) -> dict[str, Any]:
    """Return the report as if it were of a node of its own. The fifth computed other bits in its
    last step."""
    made = copy.deepcopy(dict(report))
    facts = {"driver": "570.86.15", "kernel": "Linux 6.8.0-60-generic"}
    for gpu in range(8):
        facts |= {
            f"gpu.{gpu}.uuid": f"GPU-{number:08x}-{gpu:04x}-4c11-9d3e-0123456789ab",
            f"gpu.{gpu}.ecc-corrected": str(number * gpu % 3),
            f"gpu.{gpu}.model": "NVIDIA H100 80GB HBM3",
            f"gpu.{gpu}.clock-sm": "1980 MHz",
        }
    made["subject"]["versions"] |= {"host": f"gpu-{number}"}
    made["subject"]["machine"] |= facts
    if number == 4:
        found = made["fingerprint"]
        found["by_step"][-1][1] = "0" * 32
        found["by_kind"]["parameter"] = "0" * 32
    return made


def _compared(folder: Path) -> tuple[float, float]:
    """Return the seconds and the peak MiB of one comparison."""
    done = subprocess.run(
        [sys.executable, "-c", COMPARE, folder],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    *_, answer, last = done.stdout.splitlines()
    code, took, peak = last.split()
    assert code == "1" and "gpu-4 differs from step" in answer, done.stdout
    return float(took), float(peak)
