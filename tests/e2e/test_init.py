"""`repro-gate init`, then `repro-gate run`, with nothing written in between, on real training."""

from __future__ import annotations

from pathlib import Path

from repro_gate.spec.loader import load_spec
from tests.support.gates import call, gate

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
    "my code/nets.py": NET,
    "my code/train.py": "import torch\nfrom nets import Net\n" + SEED + TRAIN,
}


def test_what_init_writes_runs_as_it_is(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    for name, text in FILES.items():
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).write_text(text)
    assert call("init", checkout).returncode == 0
    assert load_spec(checkout).train.run == "python 'my code/train.py' --seed {seed}"
    gated = gate(checkout, "--steps", "3", "--set", "cost.measure=false", out=tmp_path)
    gated.must(0)
    assert gated.check("random-state/seed-reach")["status"] == "pass"
