"""What a training that repeats prints and writes: told in one notice where it differs, silent where
only times do. Real processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.gates import gate_training

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


def test_what_differs_though_nothing_recorded_does_is_told_and_passes(tmp_path: Path) -> None:
    gated = gate_training(tmp_path, SOURCE.replace("NOISE", NOISY), SPEC)
    gated.must(0)
    notes = {item["id"]: item for item in gated.report["notes"]}
    files, log = notes["unrecorded/files"], notes["unrecorded/log"]["message"]
    assert files["message"].startswith("2 undeclared files that the runs wrote differ: ")
    assert "capture.artifacts" in files["remedy"]
    for text in (files["message"], gated.stdout):
        assert "out/eval.bin, out/metrics.csv" in text
    assert "printed numbers differ between the two deterministic runs: `val_acc 0.7" in log
    assert "val_acc" in gated.stdout


def test_times_alone_are_no_notice(tmp_path: Path) -> None:
    gated = gate_training(tmp_path, SOURCE.replace("NOISE", "0.5"), SPEC)
    gated.must(0)
    assert [item for item in gated.report["notes"] if item["id"].startswith("unrecorded/")] == []


HOSTILE = """
import os, random, zipfile
from repro_gate import record, step
for number in range(2):
    record("loss", random.random())
    step()
os.makedirs("out", exist_ok=True)
for name in ("out/empty.npz", "out/empty.pt"):
    with zipfile.ZipFile(name, "w") as archive:
        archive.writestr(zipfile.ZipInfo(""), b"x")
open(os.fsdecode(b"out/\\xff.bin"), "wb").write(b"1")
header = repr({"descr": "<f4", "fortran_order": False, "shape": (2**60, 0)}).encode().ljust(117) + b"\\n"
open("out/huge.npy", "wb").write(b"\\x93NUMPY\\x01\\x00" + len(header).to_bytes(2, "little") + header)
"""


@pytest.mark.slow
def test_artifacts_that_break_a_reader_still_give_a_report(tmp_path: Path) -> None:
    spec = SPEC.replace("out/model.bin", "out/*")
    gate_training(tmp_path / "a", HOSTILE, spec).must(0)  # the same bytes need no look inside
    noise = """
for name in ("empty.pt", "huge.npy"):
    open("out/" + name, "ab").write(os.urandom(8))
"""
    gated = gate_training(tmp_path / "b", HOSTILE + noise, spec)
    gated.must(1)
    notes = " ".join(item["message"] for item in gated.report["notes"])
    for name in ("huge.npy", "empty.pt"):
        assert f"artifact out/{name}: compared as a whole" in notes
    assert [run["artifacts"] for run in gated.report["runs"][:2]] == [4, 4]


MADE = """
import os, shutil
from repro_gate import record, step
for number in range(2):
    record("loss", number / 3)
    step()
os.mkdir("out")
open("out/model.bin", "wb").write(b"1")
"""
KINDS = """
os.mkfifo("out/pipe")
for name, target in (("a", "/root/.nowhere/x"), ("b", "/etc"), ("c", "nothing"), ("d", os.path.expanduser("~/x"))):
    os.symlink(target, f"out/{name}")
"""


def test_links_that_lead_out_or_nowhere_are_told_and_cost_nothing(tmp_path: Path) -> None:
    gated = gate_training(tmp_path, MADE + KINDS, SPEC.replace("out/model.bin", '"**/out/*"'))
    gated.must(0)
    notes = [item for item in gated.report["notes"] if item["id"] == "artifact/not-compared"]
    told = [item["message"].partition("not compared: in both runs it is a ")[2] for item in notes]
    outside = "that leads out of the working directory"
    assert told[:2] == [f"link to /root/.nowhere/x {outside}", f"link to /etc {outside}"]
    assert told[2] == "link to nothing that leads nowhere"
    assert told[3].endswith(f"/run/home/x {outside}") and told[4] == "FIFO"


def test_a_training_that_removes_its_own_folder_has_not_shown_its_artifacts(tmp_path: Path) -> None:
    gone = MADE + "shutil.rmtree(os.getcwd())\n"
    gate_training(tmp_path, gone, SPEC).must(3, "artifact/missing")
