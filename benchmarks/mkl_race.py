"""`python benchmarks/mkl_race.py [PAIRS] [--jobs N] [--without]`: gates a training with a plain
Adam on loaded cores, and counts verdicts.

A gate run compares ten pairs of runs, one for each of ten seeds. Two gate runs at a time for each
core, unless told otherwise, are the load. The training's first parameter is updated by the
process's first call into MKL's vector math (docs/causes). `--without` leaves the early call out.
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
from concurrent.futures import ThreadPoolExecutor
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
SEEDS = 10
SPEC = f"""version: 1
train: {{run: python train.py, env: {{OMP_NUM_THREADS: '2'}}}}
random-state: {{seeds: {list(range(1, SEEDS + 1))}}}
cost: {{measure: false}}
"""
WITHOUT = (
    "determinism: {allow: [{flag: mkl.early_first_call, reason: to see the race}]}\n"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Gate as often as asked. Exit code 1 where not every verdict is a pass."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pairs", nargs="?", type=int, default=300)
    parser.add_argument(
        "--jobs",
        type=int,
        default=2 * (os.cpu_count() or 1),
        help="gate runs at a time",
    )
    parser.add_argument(
        "--without", action="store_true", help="leave mkl.early_first_call off"
    )
    options = parser.parse_args(arguments)
    verdicts: collections.Counter[str] = collections.Counter()
    spec = SPEC + WITHOUT * options.without
    with ThreadPoolExecutor(options.jobs) as pool:
        for number, verdict in enumerate(
            pool.map(_gated, [spec] * -(-options.pairs // SEEDS)), 1
        ):
            verdicts[verdict] += 1
            print(f"{number * SEEDS} pairs: {dict(verdicts)}", flush=True)
    return 0 if set(verdicts) <= {"pass"} else 1


def _gated(spec: str) -> str:
    """The verdict of one gate run, with the first divergence where there is one."""
    path = os.pathsep.join(
        [os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)]
    )
    with tempfile.TemporaryDirectory(prefix="repro-gate-bench-") as name:
        folder, report = Path(name), Path(name) / "report.json"
        (folder / "train.py").write_text(TRAIN)
        (folder / "repro.yml").write_text(spec)
        command = [
            sys.executable,
            "-m",
            "repro_gate",
            "run",
            str(folder),
            "--json",
            str(report),
        ]
        subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, "PATH": path},
            capture_output=True,
            check=False,
        )
        said = json.loads(report.read_text())
    first = (said["determinism"] or {}).get("first_divergence")
    return (
        str(said["verdict"])
        if first is None
        else f"{said['verdict']}: {first['kind']} {first['name']} at step {first['step']}"
    )


if __name__ == "__main__":
    sys.exit(main())
