"""`repro-gate init`, then `repro-gate run`, with nothing written in between: layouts of public
repositories, with real training."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from repro_gate.spec.loader import load_spec
from tests.support.gates import ROOT, command, environment, gate

TRAIN = """
import torch
from nets import Net
torch.manual_seed(args.seed)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(5):
    optimizer.zero_grad()
    model(torch.randn(4, 3) + bias).sum().backward()
    optimizer.step()
"""
NET = (
    "import torch\nclass Net(torch.nn.Linear):\n    def __init__(self):\n        "
    "super().__init__(3, 1)\n"
)
ARGUMENTS = (
    "import argparse\np = argparse.ArgumentParser()\np.add_argument('--seed', type=int, "
    "default=3)\nargs = p.parse_args()\n"
)
# A sample that is named as a test, counts on its own folder and reads a file there; beside it, a
# library module with a training loop.
SAMPLES = {
    "nets/__init__.py": NET,
    "nets/trainer.py": "import torch\nclass Trainer:\n    def fit(self):\n        "
    "loss.backward()\n        self.optimizer.step()\n",
    "samples/adding/add_test.py": "import sys\nsys.path.append('../../')\n"
    + ARGUMENTS
    + "bias = float(open('bias.txt').read())\n"
    + TRAIN,
    "samples/adding/bias.txt": "0.5\n",
}
# A script that the README runs after another one, which makes its data; its package lies in `src`.
PREPARED = {
    "README.md": "```sh\npython scripts/make_data.py\npython scripts/train.py --seed 5\n```\n",
    "src/nets/__init__.py": NET,
    "scripts/make_data.py": "open('bias.txt', 'w').write('0.25')\n",
    "scripts/train.py": ARGUMENTS + "bias = float(open('bias.txt').read())\n" + TRAIN,
}


@pytest.mark.parametrize(
    ("files", "run"),
    [
        (SAMPLES, "python add_test.py --seed {seed}"),
        pytest.param(
            PREPARED,
            "python scripts/make_data.py && python scripts/train.py --seed {seed}",
            marks=pytest.mark.slow,
        ),
    ],
    ids=["samples", "prepared"],
)
def test_what_init_writes_runs_as_it_is(files: dict[str, str], run: str, tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    for name, text in files.items():
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).write_text(text)
    subprocess.run(command("init", checkout), cwd=ROOT, env=environment(), check=True, timeout=120)
    spec = load_spec(checkout)
    assert spec.train.run == run
    assert [item.path for item in spec.data] == (
        ["samples/adding/bias.txt"] if files is SAMPLES else []
    )
    gated = gate(checkout, "--steps", "3", "--set", "cost.measure=false", out=tmp_path)
    assert gated.exit_code == 0, gated.stdout + gated.stderr
    assert gated.check("random-state/seed-reach")["status"] == "pass"
