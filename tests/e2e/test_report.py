"""What a person reads about real trainings: one that passes, one that diverges in a learning rate,
one that crashes. Each is gated once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.gates import Gated, gate_training, with_line

# It asks for torch before it imports it, leaves a file beside its workspace, and transforms by a
# module in forked workers.
CLEAN = """
import importlib.util, os
assert importlib.util.find_spec("torch") and importlib.util.find_spec("numpy")
assert not os.path.exists("../cache"), os.listdir("..")
open("../cache", "w").close()
import torch
from torch.utils.data import DataLoader, TensorDataset
class Shifted(TensorDataset):
    shift = torch.nn.Dropout(0.5)
    def __getitem__(self, index):
        x, y = super().__getitem__(index)
        return self.shift(x), y
torch.manual_seed(torch.initial_seed())
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters(), fused=True)
data = Shifted(torch.randn(64, 8), torch.randn(64, 1))
loader = DataLoader(data, batch_size=16, shuffle=True, num_workers=2)
for step, (x, y) in enumerate(batch for _ in range(3) for batch in loader):
    # here
    loss = ((model(x) - y) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
CLOCK = "__import__('time').time_ns() % 10**6"
ALONE = CLEAN.replace("num_workers=2", "num_workers=0")
CRASH = with_line("""if number == 3: print('\\x1b[31mred\\n::error::forged')
    if number == 3: raise RuntimeError('out of ' + 'luck ' * 30)""")


def line_number(source: str, text: str) -> int:
    """The line that holds `text`, from 1."""
    return next(number for number, line in enumerate(source.splitlines(), 1) if text in line)


@pytest.fixture(scope="module")
def passed(tmp_path_factory: pytest.TempPathFactory) -> Gated:
    """A clean training of ten steps, with an artifact, and nothing declared."""
    spec = """
version: 1
train: {run: python train.py, steps: 10, timeout: 2m}
capture: {artifacts: [out.pt]}
cost: {measure: false}
"""
    source = CLEAN.replace("for step,", "torch.save([model.state_dict()], 'out.pt')\nfor step,")
    return gate_training(tmp_path_factory.mktemp("passed"), source, spec)


@pytest.fixture(scope="module")
def diverged(tmp_path_factory: pytest.TempPathFactory) -> Gated:
    """A training whose learning rate depends on the clock in its second step."""
    folder = tmp_path_factory.mktemp("diverged")
    rate = f"optimizer.param_groups[0]['lr'] = 1e-3 + (1e-9 * ({CLOCK}) if step == 1 else 0)"
    return gate_training(folder, ALONE.replace("# here", rate), XDG_CACHE_HOME=f"{folder}/cache")


def test_a_crash_is_inconclusive_with_its_exception_and_line(tmp_path: Path) -> None:
    """And where nothing was traced, no check is listed as skipped."""
    crashed = gate_training(tmp_path, CRASH)
    crashed.must(3, "run/crashed")
    (reason,) = crashed.report["reasons"]
    at = f"(train.py:{line_number(CRASH, 'luck')})"
    assert "status 1, without the gate too: RuntimeError: out of" in reason["message"]
    assert at in reason["message"]
    lines = crashed.stdout.splitlines()  # not wrapped
    assert any("RuntimeError: out of luck" in text and at in text for text in lines)
    assert not [text for text in lines if "skip" in text.split()[:2]], crashed.stdout
    runs = crashed.report["runs"]
    assert [(run["name"], run["outcome"], run["steps"]) for run in runs] == [
        (f"deterministic-{run}", "crashed", 3) for run in (1, 2)
    ]
    assert "luck" in runs[0]["log_tail"][-1]
    assert "\x1b[31m" not in crashed.said and "\n::" not in crashed.said


@pytest.mark.slow
def test_a_pass_says_what_was_compared_and_never_declared(passed: Gated) -> None:
    passed.must(0)
    assert passed.check("data/batches")["status"] == "pass"
    (line,) = (line for line in passed.stdout.splitlines() if line.lstrip().startswith("compared"))
    for words in ("6 parameters", "6 gradients", "2 batches", "1 artifact", "optimizer states"):
        assert words in line, line
    assert passed.stdout.count("not declared: image, lockfile") == 1


@pytest.mark.slow
def test_a_learning_rate_that_differs_is_shown_with_both_values(diverged: Gated) -> None:
    diverged.must_diverge(1, "optimizer", "param_groups.0.lr")
    a, b = diverged.first["values"]
    assert 1e-3 <= min(a, b) < max(a, b) < 2.1e-3
    assert f"float [], {a!r} against {b!r}" in diverged.stdout, diverged.stdout
    assert "for the other 2 runs" in diverged.stderr


@pytest.mark.slow
def test_the_map_and_the_growth_say_how_far_apart(diverged: Gated, passed: Gated) -> None:
    found, same = diverged.report["determinism"], passed.report["determinism"]
    cells = {(row["kind"], row["module"]): row["cells"] for row in found["heat_map"]["rows"]}
    steps, weights = found["steps"], cells["parameter", "0"]
    assert cells["loss", ""][:3] == " .." and weights[:2] == ".."
    assert {len(line) for line in cells.values()} == {1 + steps}
    # every step was measured, in two more runs
    assert "?" not in weights and "." not in weights[2:]
    assert [item["step"] for item in found["growth"]] == list(range(1, steps))
    assert all(item["weight_l2"] > 0 and item["max_ulp"] > 0 for item in found["growth"])
    assert {cell for row in same["heat_map"]["rows"] for cell in row["cells"]} == {".", " "}
    assert same["growth"] == []
