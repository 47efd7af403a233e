"""`python benchmarks/mkl_race.py [PASSES] [--without]`: gates a training with a plain Adam on loaded cores, and counts the verdicts.

Its first parameter is updated by the process's first call into MKL's vector math (docs/causes). `--without` leaves the early call out.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TRAIN = """
import torch
net = torch.nn.Sequential(torch.nn.Linear(32, 96), torch.nn.ReLU(), torch.nn.Linear(96, 96))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for _ in range(2):
    optimizer.zero_grad()
    net(torch.randn(4000, 32)).square().mean().backward()
    optimizer.step()
"""
SPEC = "version: 1\ntrain: {run: python train.py, env: {OMP_NUM_THREADS: '2'}}\ncost: {measure: false}\n"
WITHOUT = "determinism: {allow: [{flag: mkl.early_first_call, reason: to see the race}]}\n"
SPIN = "while True: pass"


def main(arguments: Sequence[str] | None = None) -> int:
    """Gate as often as asked, each time beside one busy process for each core. Exit code 1 where not every verdict is a pass."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("passes", nargs="?", type=int, default=300)
    parser.add_argument("--without", action="store_true", help="leave mkl.early_first_call off")
    options = parser.parse_args(arguments)
    verdicts: collections.Counter[str] = collections.Counter()
    load = [subprocess.Popen([sys.executable, "-c", SPIN]) for _ in range(os.cpu_count() or 1)]
    try:
        with tempfile.TemporaryDirectory(prefix="repro-gate-bench-") as name:
            folder = Path(name)
            (folder / "train.py").write_text(TRAIN)
            (folder / "repro.yml").write_text(SPEC + WITHOUT * options.without)
            for number in range(1, options.passes + 1):
                verdicts[_gated(folder)] += 1
                print(f"{number}: {dict(verdicts)}", flush=True)
    finally:
        for process in load:
            process.kill()
    return 0 if set(verdicts) <= {"pass"} else 1


def _gated(folder: Path) -> str:
    """The verdict of one gate run of low priority, with the first divergence where there is one."""
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)])
    command = ["nice", sys.executable, "-m", "repro_gate", "run", str(folder), "--json", str(folder / "report.json")]
    subprocess.run(command, cwd=ROOT, env={**os.environ, "PATH": path}, capture_output=True, check=False)
    report = json.loads((folder / "report.json").read_text())
    first = (report["determinism"] or {}).get("first_divergence")
    return str(report["verdict"]) if first is None else f"{report['verdict']}: {first['kind']} {first['name']} at step {first['step']}"


if __name__ == "__main__":
    sys.exit(main())
