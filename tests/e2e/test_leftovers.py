"""What one run writes outside its own folders and a later run reads: no pass, for the later run's
result is not its own."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.gates import Gated, gate_training

TRAIN = """
import json, os, random, tempfile
from repro_gate import record, step
shared = os.environ["SHARED"]

def prepared(path):
    if not os.path.exists(path):
        with open(path, "w") as file:
            json.dump(random.SystemRandom().random(), file)
    with open(path) as file:
        return json.load(file)

# here
for _ in range(4):
    record("loss", data + random.random())
    step()
"""
CLEAN = """
assert "TORCHINDUCTOR_CACHE_DIR" not in os.environ
with open(os.path.join(shared, "log.txt"), "a") as log:  # written by every run, read by none
    log.write("started")
with open(os.path.join(shared, "settings.txt"), "w") as file:  # made by every run, and read by it
    file.write("1")
with open(os.path.join(shared, "settings.txt")) as file:
    scale = float(file.read())
with open(os.path.join(shared, "lock"), "a+") as lock:  # empty
    lock.read()
with open(os.path.join(tempfile.gettempdir(), "data.json"), "w") as file:
    json.dump(scale * random.random(), file)
data = prepared(os.path.join(tempfile.gettempdir(), "data.json"))
"""


def gated_with(lines: str, folder: Path, **more: str) -> Gated:
    """A training with these lines, whose runs share a folder."""
    (folder / "shared").mkdir()
    env = {"SHARED": f"{folder}/shared"}
    train = {"run": "python train.py", "steps": 4, "timeout": "2m", "env": env}
    spec = f"version: 1\ntrain: {json.dumps(train)}\ncost: {{measure: false}}\n"
    return gate_training(folder, TRAIN.replace("# here", lines), spec, **more)


def test_what_a_later_run_reads_of_an_earlier_one_is_no_pass(tmp_path: Path) -> None:
    gated = gated_with('data = prepared(os.path.join(shared, "data.json"))', tmp_path)
    gated.must(1, "data/leftovers")
    # the second run trained on what the first had prepared
    assert gated.report["determinism"]["identical"]
    found = gated.check("data/leftovers")
    assert found["status"] == "fail"
    place = f"train.py:10: {tmp_path}/shared/data.json"
    assert found["evidence"] == [f"{place}: read by deterministic-2, reseeded"]
    assert gated.check("data/undeclared-reads")["status"] == "pass", "one fact is told once"


def test_what_each_run_makes_for_itself_is_no_finding(tmp_path: Path) -> None:
    """And a cache folder of the shell reaches no run."""
    gated = gated_with(CLEAN, tmp_path, TORCHINDUCTOR_CACHE_DIR=str(tmp_path))
    gated.must(0)
    assert gated.check("data/leftovers")["status"] == "pass"
