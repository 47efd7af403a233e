"""What a training that repeats prints and writes: told in one notice where it differs, silent where
only times do. Real processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.gates import gate, training

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
    gated = gate(training(tmp_path / "code", SOURCE.replace("NOISE", NOISY), SPEC), out=tmp_path)
    assert gated.exit_code == 0, gated.said
    notes = {item["id"]: item for item in gated.report["notes"]}
    assert (
        "2 undeclared files that the runs wrote differ: out/eval.bin, out/metrics.csv"
        in notes["unrecorded/files"]["message"]
    )
    assert "capture.artifacts" in notes["unrecorded/files"]["remedy"]
    assert (
        "printed numbers differ between the two deterministic runs: `val_acc 0.7"
        in notes["unrecorded/log"]["message"]
    )
    assert "out/metrics.csv" in gated.stdout and "val_acc" in gated.stdout


def test_times_alone_are_no_notice(tmp_path: Path) -> None:
    gated = gate(training(tmp_path / "code", SOURCE.replace("NOISE", "0.5"), SPEC), out=tmp_path)
    assert gated.exit_code == 0, gated.said
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
    spec = (
        "version: 1\ntrain: {run: python train.py, timeout: 2m}\ncost: {measure: false}\ncapture: "
        "{artifacts: [out/*]}\n"
    )
    gated = gate(training(tmp_path / "code", HOSTILE, spec), out=tmp_path)
    assert gated.exit_code == 0, gated.said  # the same bytes need no look inside
    noisy = (
        HOSTILE + 'for name in ("empty.pt", "huge.npy"):\n    open("out/" + name, '
        '"ab").write(os.urandom(8))\n'
    )
    gated = gate(training(tmp_path / "noisy", noisy, spec), out=tmp_path)
    assert gated.exit_code == 1, gated.said
    notes = " ".join(item["message"] for item in gated.report["notes"])
    assert (
        "artifact out/huge.npy: compared as a whole" in notes
        and "artifact out/empty.pt: compared as a whole" in notes
    )
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
    spec = SPEC.replace("out/model.bin", '"**/out/*"')
    gated = gate(training(tmp_path / "code", MADE + KINDS, spec), out=tmp_path)
    assert gated.exit_code == 0, gated.said
    told = [
        item["message"].partition("not compared: ")[2]
        for item in gated.report["notes"]
        if item["id"] == "artifact/not-compared"
    ]
    assert told[:3] == [
        "in both runs it is a link to /root/.nowhere/x that leads out of the working directory",
        "in both runs it is a link to /etc that leads out of the working directory",
        "in both runs it is a link to nothing that leads nowhere",
    ]
    assert (
        told[3].endswith("/run/home/x that leads out of the working directory")
        and told[4] == "in both runs it is a FIFO"
    )


def test_a_training_that_removes_its_own_folder_has_not_shown_its_artifacts(tmp_path: Path) -> None:
    gone = MADE + "shutil.rmtree(os.getcwd())\n"
    gated = gate(training(tmp_path / "code", gone, SPEC), out=tmp_path)
    assert (gated.exit_code, gated.reason_ids) == (3, ["artifact/missing"]), gated.said
