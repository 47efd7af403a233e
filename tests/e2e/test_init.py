"""`repro-gate init`, then `repro-gate run`, with nothing written in between, on real training."""

from __future__ import annotations

from pathlib import Path

from repro_gate.spec.loader import load_spec
from tests.support.gates import call, gate
from tests.support.repositories import git

SEED = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument('--seed', type=int, required=True)
torch.manual_seed(parser.parse_args().seed)
"""
TRAIN = """
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(5):
    optimizer.zero_grad()
    model(torch.randn(4, 3)).sum().backward()
    optimizer.step()
"""
NET = "import torch\nclass Net(torch.nn.Linear):\n    def __init__(self):\n        super().__init__(3, 1)\n"
FILES = {
    "my code/kit/nets.py": NET,
    "my code/kit/train.py": "import torch\nfrom kit.nets import Net\nopen('../data/a.txt').read()\n"
    + SEED
    + TRAIN,
    "my code/data/a.txt": "1",
    "my code/data/.gitignore": "*.txt",
    "README.md": "```\n$ cd 'my code/kit' && python train.py  # trains\n```\n",
}


def test_what_init_writes_runs_as_it_is(tmp_path: Path) -> None:
    """With the command of a README, the folder, PYTHONPATH and the data that git ignores."""
    checkout = tmp_path / "checkout"
    for name, text in FILES.items():
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).write_text(text)
    git(checkout, "init", "-q")
    git(checkout, "add", "-A")
    assert call("init", checkout).returncode == 0
    spec = load_spec(checkout)
    assert spec.train.run == "python train.py --seed {seed}"
    assert (spec.train.working_directory, spec.train.env) == ("my code/kit", {"PYTHONPATH": ".."})
    assert [item.path for item in spec.data] == ["my code/data"]
    gated = gate(checkout, "--steps", "3", "--set", "cost.measure=false", out=tmp_path)
    gated.must(0)
    assert gated.check("random-state/seed-reach")["status"] == "pass"
