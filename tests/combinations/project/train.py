"""A training of six steps that goes wrong in the way that TORCH_HOW says, in the run that it names:
`crash@deterministic-2`.

`TORCH_` is one of the prefixes that the gate hands on from the shell, and no input of the config
hash: so one baseline, recorded of the sound training, serves for all of them. Which run this is it
takes from the probe, as no training should.
"""

import json
import os
import random
import signal
import socket
import sys
import time

from which_run import run_name, varied

from repro_gate import record, step

STEPS, LAST = 6, 5
# `path+raises@…` depends on the path as well
HOW, _, WHERE = os.environ.get("TORCH_HOW", "passes").partition("@")
PATH, _, HOW = HOW.rpartition("+")


NAME = run_name()
HERE = varied() if WHERE == "varied" else WHERE in ("", NAME)
# how the second run differs from the first
APART = HOW if NAME == "deterministic-2" else ""
ENDINGS = {
    "exits": lambda: sys.exit(3),
    "killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "aborts": os.abort,
    "hangs": lambda: time.sleep(1000),
}
METRICS = {
    "artifact-number": {"accuracy": 0.5},
    "artifact-text": {"id": "run-b"},
    "artifact-key": {"more": 1},
    "artifact-type": {"tags": {"0": "x"}},
}


def misbehave(number):
    """End the run badly, in the second step: an artifact of the first is written by then."""
    if number == 1 and HERE and HOW == "raises":
        raise RuntimeError("out of luck")
    if number == 1 and HERE and HOW in ENDINGS:
        ENDINGS[HOW]()


def write(name, text):
    """Write a file below `out`."""
    with open(os.path.join("out", name), "w", encoding="utf-8") as file:
        file.write(text)


def artifacts(number):
    """Write what is declared under `capture.artifacts`, anew in each step."""
    metrics = {"accuracy": 0.75, "id": "run-a", "tags": ["x"], **METRICS.get(APART, {})}
    write("metrics.json", json.dumps(metrics))
    write("table.csv", "step,loss\n1,%s\n" % ("b" if APART == "artifact-cell" else "a"))
    if number or (HOW == "unwritten" and HERE):
        return
    write("first.txt", "written in the first step")
    if HOW == "artifact-kind":
        os.mkfifo("out/kind") if APART else write("kind", "a file")
    if APART == "artifact-link":
        os.symlink("nowhere", "out/link")
    if HOW == "unreadable":
        os.mkfifo("out/fifo")
        os.symlink("/dev/zero", "out/zero")
        os.symlink("loop", "out/loop")
        os.symlink("/nowhere/at/all", "out/outside")
        socket.socket(socket.AF_UNIX).bind("out/socket")


def loop(seed):
    """Train."""
    random.seed(seed)
    os.makedirs("out", exist_ok=True)
    weight = momentum = mean = 0.0
    for number in range(STEPS):
        artifacts(number)
        misbehave(number)
        x = random.random()
        if HOW == "unseeded" and number == 2:
            x += random.SystemRandom().random()
        x += (
            (APART == "tensor" and number == 2)
            or (APART == "last-step" and number == LAST)
            or (APART == "rank" and os.environ.get("RANK") == "1")
            or (HOW == "seed" and NAME == "seed7-deterministic-2" and number == 2)
            or ("path" in (HOW, PATH) and varied())
            or HOW == "drifts"
        )
        loss = float("nan") if HOW == "nan" and HERE else (weight - x) ** 2
        momentum = 0.9 * momentum + 0.2 * (weight - x)
        weight -= 0.1 * momentum
        mean += 0.1 * x + (APART == "buffer" and number == 2)
        if HOW == "noise":  # losses alone, which a tolerance can be asked of without torch
            far = 5.0 if NAME == "deterministic-3" and number == 1 else 0.0
            record("loss", 1.0 + 1e-9 * (sum(map(ord, NAME)) % 7) + far)
            step()
            continue
        record("loss", loss)
        record("weight", weight, "parameter")
        record("momentum", momentum, "optimizer")
        record("mean", mean, "buffer")
        step()
        if APART == "shorter" and number == 3:
            return


def main():
    """Train, after what the training does besides."""
    if HOW == "execs" and "AGAIN" not in os.environ:
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "AGAIN": "1"})
    if HOW == "nothing" and HERE:
        return
    if HOW == "bytes":
        sys.stdout.buffer.write(b"\xff\xfe\x00 \xc3\x28\n" * 50)
    if HOW == "prints":
        line = "epoch 1 loss 0.5 " * 60 + "\n"
        for _ in range(50 * 2**20 // len(line)):
            sys.stdout.write(line)
    if HOW == "hostile":
        print(
            "::error::a workflow command\n\x1b[31mred\n<script>alert(1)</script> "
            "[x](http://example.com) | a | b |\n" * 3
        )
    loop(int(sys.argv[1]))


main()
