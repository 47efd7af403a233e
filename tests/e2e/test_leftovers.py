"""What one run writes outside its own folders and a later run reads: no pass, for the later run's
result is not its own. What a training that repeats prints and writes: told in one notice where it
differs, silent where only times do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.gates import gate_training, tiered

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


SOURCE = """
import json, os, subprocess, sys, time
import random
from repro_gate import record, step
begun = time.time()
os.makedirs("out", exist_ok=True)
for number in range(4):
    loss = random.random()
    record("loss", loss)
    step()
    print(f"{time.ctime()} step {number}: loss {loss:.6f}, time {1000 * (time.time() - begun):.2f}ms", flush=True)
noise = NOISE
val_acc = 0.7 + noise / 10
print(f"{time.ctime()} epoch 0 val_acc: {val_acc:.6f}\\nsamples/s: {64 / (time.time() - begun):.1f}\\npid={os.getpid()}", flush=True)
with open("out/metrics.csv", "w") as file:
    file.write(f"step,val_acc,seconds\\n4,{val_acc},{time.time() - begun}\\n")
code = f"open('out/eval.bin', 'wb').write(repr({noise}).encode())"
subprocess.run([sys.executable, "-S", "-c", code], check=True)
with open("out/summary.json", "w") as file:
    json.dump({"runtime": time.time() - begun, "finished": time.strftime("%Y-%m-%d %H:%M:%S"), "steps": 4}, file)
os.makedirs("runs/a", exist_ok=True)
open(f"runs/a/events.out.tfevents.{time.time():.0f}.host.{os.getpid()}.0", "wb").write(os.urandom(64))
open("out/model.bin", "wb").write(b"1")
"""
SPEC = (
    "version: 1\ntrain: {run: python train.py, timeout: 2m}\ncost: {measure: false}\ncapture: "
    "{artifacts: [out/model.bin]}\n"
)
NOISY = "int.from_bytes(os.urandom(4), 'little') / 2**32"


@pytest.mark.parametrize("noise", [NOISY, "0.5"], ids=["noise", "times alone"])
def test_what_differs_though_nothing_recorded_does_is_told_and_passes_and_times_alone_are_no_notice(
    noise: str, tmp_path: Path
) -> None:
    gated = gate_training(tmp_path, SOURCE.replace("NOISE", noise), SPEC)
    gated.must(0)
    notes = {item["id"]: item for item in gated.report["notes"] if "unrecorded" in item["id"]}
    if noise != NOISY:
        assert notes == {}
        return
    files, log = notes["unrecorded/files"], notes["unrecorded/log"]["message"]
    assert "capture.artifacts" in files["remedy"] and "`val_acc 0.7" in log
    for text in (files["message"], gated.stdout):
        assert "out/eval.bin, out/metrics.csv" in text


MADE = """
import os, shutil
from repro_gate import record, step
for number in range(2):
    record("loss", number / 3)
    step()
os.mkdir("out")
open("out/model.bin", "wb").write(b"1")
"""


def test_a_training_that_removes_its_own_folder_has_not_shown_its_artifacts(tmp_path: Path) -> None:
    gone = MADE + "shutil.rmtree(os.getcwd())\n"
    gate_training(tmp_path, gone, SPEC).must(3, "artifact/missing")


# As Hydra, Lightning and trackers do: a folder that is named by the time or an id.
NAMED = """
import os, uuid
from repro_gate import record, step
record("loss", 0.5)
step()
for letter in "abc":
    folder = f"outputs/{letter}-{uuid.uuid4()}"
    os.makedirs(folder)
    open(folder + "/model.bin", "wb").write(b"weights of " + letter.encode())
    if "many" not in NAME: break
"""
SEVERAL = "capture.artifacts 'outputs/*/*.bin' matches several files, by other names in each run"


@pytest.mark.parametrize("name", tiered(["one", "many"], ["many"]))
@pytest.mark.parametrize("fault", [True, False])
def test_a_folder_that_an_id_names_is_no_difference_and_what_it_holds_is(
    fault: bool, name: str, tmp_path: Path
) -> None:
    source = NAMED.replace("NAME", repr(name))
    if fault:
        source = source.replace("letter.encode()", "letter.encode() + os.urandom(2)")
    gated = gate_training(tmp_path, source, SPEC.replace("out/model.bin", "'outputs/*/*.bin'"))
    gated.must(int(fault))
    if fault:
        assert gated.first["name"] == f"outputs/*/*.bin{' (1)' * (name == 'many')}: (file)"
    told = [item["message"] for item in gated.report["notes"] if "outputs/*" in item["message"]]
    assert [SEVERAL in note for note in told] == [True] * (name == "many"), told
