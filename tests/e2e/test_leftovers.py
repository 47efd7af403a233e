"""What one run writes outside its own folders and a later run reads: no pass, for the later run's
result is not its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.gates import gate_training

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


@pytest.mark.parametrize("fault", [True, False])
def test_what_a_run_reads_of_an_earlier_one_is_no_pass(fault: bool, tmp_path: Path) -> None:
    """And a cache folder of the shell reaches no run."""
    (tmp_path / "shared").mkdir()
    lines = 'data = prepared(os.path.join(shared, "data.json"))' if fault else CLEAN
    train = f"{{run: python train.py, steps: 4, env: {{SHARED: {tmp_path}/shared}}}}"
    spec = f"version: 1\ntrain: {train}\ncost: {{measure: false}}\n"
    source = TRAIN.replace("# here", lines)
    gated = gate_training(tmp_path, source, spec, TORCHINDUCTOR_CACHE_DIR=str(tmp_path))
    found = gated.check("data/leftovers")
    if fault:
        gated.must(1, "data/leftovers")
        # the second run trained on what the first had prepared
        assert gated.report["determinism"]["identical"]
        place = f"train.py:10: {tmp_path}/shared/data.json"
        assert found["evidence"] == [f"{place}: read by deterministic-2, reseeded"]
        assert gated.check("data/undeclared-reads")["status"] == "pass", "one fact is told once"
    else:
        gated.must(0)
        assert found["status"] == "pass"
