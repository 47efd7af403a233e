"""The cost that real gate runs report, of trainings whose cost is known.

A step of the training multiplies matrices; while the flags are on it then computes for another 0,
2, 5 or 20 % of the time that it took. It is gated on a machine that does nothing else, and beside a
process that computes. In a further training a DataLoader takes 50 ms for a batch and the step 45 ms
without the flags, 55 with them: together 50 and 55, which alternating steps cannot tell. Each
figure is the share of gate runs whose interval holds the true cost or, of the loader, which leave
it to whole runs. Beside it stand their figures and intervals, those of the other measurement, runs,
seconds, and why whole runs decided.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.arms import OUTER, RunFailed
from benchmarks.figure import Figure

GOAL = 0.925  # 37 of 40
TRAIN = """
import sys, time
import torch
from torch.utils.data import DataLoader, Dataset

more, load, waits = (float(item) for item in sys.argv[1:])
torch.set_num_threads(1)

class Data(Dataset):
    def __len__(self):
        return 10_000
    def __getitem__(self, index):
        time.sleep(load / 1e3)
        return torch.ones(8) * (index % 7)

model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
left, right, product = torch.ones(3, 128, 128)
began = time.perf_counter()
for batch in DataLoader(Data(), batch_size=1, num_workers=int(load > 0)):
    slower = 1 + more / 100 * torch.are_deterministic_algorithms_enabled()
    if waits:
        time.sleep(waits * slower / 1e3)
    else:
        for _ in range(100):
            torch.mm(left, right, out=product)
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    if not waits:
        end = began + (time.perf_counter() - began) * slower
        while time.perf_counter() < end:
            pass
    optimizer.step()
    began = time.perf_counter()
"""
SPEC = """
version: 1
train: {{run: 'python train.py {} {} {}', steps: {}, timeout: 5m}}
robustness: {{vary: false}}
"""


@dataclass(frozen=True)
class Settings:
    """Gate runs of two equal arms, of each other case, and steps of a run."""

    equal: int = 40
    others: int = 10
    steps: int = 80


QUICK = Settings(equal=1, others=0, steps=30)


@dataclass(frozen=True)
class Case:
    """A training, and its true cost in percent. `more` work with the flags, in percent; the
    loader's and the step's milliseconds; whether another process computes."""

    name: str
    cost: float
    more: float
    load: float = 0.0
    waits: float = 0.0
    busy: bool = False


EQUAL = Case("two equal arms", 0.0, 0.0)
OTHERS = (
    *(Case(f"planted {cost:g} %", cost, cost) for cost in (2.0, 5.0, 20.0)),
    Case("planted 5 %, a busy neighbour", 5.0, 5.0, busy=True),
    Case(
        "a loader of 50 ms, a step of 45 or 55", 10.0, 100 * (55 / 45 - 1), 50.0, 45.0
    ),
)


def measure(settings: Settings) -> list[Figure]:
    """For each case: the share of gate runs whose interval holds the true cost."""
    figures = []
    counts = [(EQUAL, settings.equal), *((case, settings.others) for case in OTHERS)]
    for case, count in counts:
        reports = [_gate(case, settings.steps) for _ in range(count)]
        costs = [report["cost"] for report in reports]
        good = [
            "DataLoader" in item["why"]
            if case.load
            else item["ci95"][0] <= case.cost <= item["ci95"][1]
            for item in costs
        ]
        beside = {
            "figures_pct": [item["determinism_cost_pct"] for item in costs],
            "intervals": [item["ci95"] for item in costs],
            "others": [item["other"] for item in costs],
            "why": [item["why"] for item in costs],
            "runs": [len(report["runs"]) for report in reports],
            "seconds": [report["seconds"] for report in reports],
        }
        if reports:
            label = f"gate runs that are right, {case.name}"
            share = (sum(good) / count,)
            figures.append(Figure(label, "share", share, GOAL, beside, at_least=True))
    return figures


def _gate(case: Case, steps: int) -> Mapping[str, Any]:
    """Return the report of one gate run. Raises RunFailed if its cost was not measured."""
    with (
        tempfile.TemporaryDirectory(prefix="rgb", dir="/tmp") as name,
        _neighbour(case),
    ):
        folder = Path(name)
        (folder / "train.py").write_text(TRAIN)
        spec = SPEC.format(case.more, case.load, case.waits, steps)
        (folder / "repro.yml").write_text(spec)
        report = folder / "report.json"
        command = [sys.executable, "-m", "repro_gate", "run", "repro.yml", "--json"]
        done = subprocess.run(
            [*command, str(report)],
            cwd=name,
            env=OUTER,
            capture_output=True,
            check=False,
        )
        found = json.loads(report.read_text()) if report.exists() else {}
    if not found.get("cost"):
        raise RunFailed(f"{case.name}: {done.stdout[-4000:]!r} {done.stderr[-4000:]!r}")
    return found


@contextlib.contextmanager
def _neighbour(case: Case) -> Any:
    """Compute on one core for the block, now and then, if the case has a busy neighbour."""
    source = "import os, time\nparent = os.getppid()\nwhile os.getppid() == parent:\n"
    source += "    end = time.time() + 0.7\n    while time.time() < end: pass\n    time.sleep(0.5)"
    if not case.busy:
        yield
        return
    with subprocess.Popen([sys.executable, "-c", source]) as process:
        try:
            yield
        finally:
            process.kill()
