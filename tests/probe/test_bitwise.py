"""The probe never changes a number: a script ends with the same bits bare and under the probe."""

from __future__ import annotations

import subprocess
from pathlib import Path

from repro_gate.runs import arms
from repro_gate.runs.environment import training_environment
from repro_gate.trace.format import CONFIG_VARIABLE
from tests.support.tracing import PATH, names, trace_script, trained

SCRIPT = """
import os, random, sys
import numpy, torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.use_deterministic_algorithms(True)
torch.utils.deterministic.fill_uninitialized_memory = True
torch.backends.cudnn.deterministic = True
torch.backends.cudnn.benchmark = False
torch.backends.mkldnn.deterministic = True
random.seed(1); numpy.random.seed(2); torch.manual_seed(3)

class Data(Dataset):
    def __len__(self):
        return 24
    def __getitem__(self, index):
        return torch.randn(8) + random.random() + numpy.random.rand(), torch.tensor(float(index % 2))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 300), nn.BatchNorm1d(300), nn.ReLU(), nn.Dropout(0.3), nn.Linear(300, 1))
        self.table = nn.Parameter(torch.randn(40_000))
    def forward(self, x):
        picked = self.table[torch.randint(0, 40_000, (len(x), 4000))]
        return self.body(x).squeeze(1) + picked.mean(1) + torch.rand(len(x)) * 1e-3

saved = {}
for name, workers, half in (("workers", 2, False), ("amp", 0, True)):
    net = Net()
    opt = torch.optim.AdamW(net.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.StepLR(opt, 2, 0.5)
    scaler = torch.amp.GradScaler("cpu", enabled=half)
    for epoch in range(2):
        loader = DataLoader(Data(), batch_size=8, shuffle=True, num_workers=workers, worker_init_fn=lambda index: numpy.random.seed(index))
        for x, y in loader:
            opt.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=half):
                loss = nn.functional.binary_cross_entropy_with_logits(net(x).float(), y)
            scaler.scale(loss).backward()
            scaler.step(opt)
            scaler.update()
            schedule.step()
            random.random(); numpy.random.rand()
    saved[name] = [item.numpy().tobytes() for item in net.state_dict().values()]
    saved[name] += [value.numpy().tobytes() for state in opt.state.values() for value in state.values()]
    saved[name] += [loss.item().hex(), scaler.get_scale()]
    saved[name] += [str(random.getstate()), str(numpy.random.get_state()), torch.get_rng_state().numpy().tobytes()]
import hashlib
print({name: [hashlib.sha256(repr(item).encode()).hexdigest()[:16] for item in items] for name, items in saved.items()})
"""


def test_a_training_has_the_same_bits_with_and_without_the_probe(short_path: Path) -> None:
    run = trace_script(short_path, SCRIPT, keep_final=True, observe=True)
    unobserved = trace_script(short_path, SCRIPT, name="unobserved")
    assert trained(run).distributions and len(trained(run).loaders) == 4
    assert run.outcome == "finished", (run.problem, run.ended.tail)
    assert len(trained(run).steps) == 12 and len(names(trained(run), "batch", 3)) == 2
    place = short_path / "place"
    outer, arm = {"PATH": PATH, "LANG": "C.UTF-8"}, arms.deterministic(42, frozenset(), None)
    bare = {**training_environment(outer, arm, {}, place), "PATH": PATH}
    del bare["PYTHONPATH"], bare[CONFIG_VARIABLE]
    script = place / "workspace" / "train.py"
    script.write_text("import sys\nassert '_repro_gate' not in sys.modules\n" + script.read_text())
    printed = subprocess.check_output(["python", script], cwd=script.parent, env=bare, text=True)
    assert len(printed) > 500
    assert run.ended.tail == (printed.strip(),) == unobserved.ended.tail
    observed, plain = trained(run), trained(unobserved)
    for name in ("blocks", "settings", "facts", "loaders"):
        assert getattr(observed, name) == getattr(plain, name), name
    assert not plain.distributions
