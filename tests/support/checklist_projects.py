"""The projects of `test_checklist`: a committed training in which every check holds, and the lines
that each break one of them.

`project` writes and commits one; what it is given replaces the marked lines of the clean training.
Nothing here runs anything but git.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import random
import struct
from collections.abc import Mapping
from pathlib import Path

from tests.support.gates import training
from tests.support.repositories import commit, git

RECORDS, COLUMNS = 64, 9
TRAIN = """
import json
import os
import random
# first

import torch
from torch.utils.data import DataLoader, TensorDataset

# start

with open("config.json") as file:
    settings = json.load(file)
with open("data.bin", "rb") as file:
    records = torch.frombuffer(bytearray(file.read(4 * 64 * 9)), dtype=torch.float32).reshape(64, 9)
training, validation = records[:48], records[48:]
# data

model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=settings["lr"])
train_loader = DataLoader(TensorDataset(training), batch_size=settings["batch"], shuffle=True, num_workers=1)
validation_loader = DataLoader(TensorDataset(validation), batch_size=settings["batch"])
# loaders

for epoch in range(2):
    for (batch,) in train_loader:
        # step
        loss = ((model(batch[:, :8] + 1e-3 * torch.randn(len(batch), 8)) - batch[:, 8:]) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        print(sum(((model(batch[:, :8]) - batch[:, 8:]) ** 2).sum().item() for (batch,) in validation_loader))
"""


def spec_text(train: str, more: str = "hardware: {device: cpu}\n") -> str:
    """A spec of the profile `basic` that declares data, lockfile and device; `train` holds further
    keys of `train:`."""
    return (
        f"version: 1\ntrain:\n  run: python train.py\n  timeout: 2m\n{train}"
        f"cost: {{measure: false}}\n"
        f"data: [{{path: data.bin, sha256: {hashlib.sha256(data()).hexdigest()}}}]\n"
        "env: {lockfile: requirements.lock}\nchecklist:\n"
        "  waive: [{check: env/image-digest, reason: a machine without containers}]\n" + more
    )


def data() -> bytes:
    """The declared data: 64 records of 9 numbers in single precision."""
    count, numbers = RECORDS * COLUMNS, random.Random(1)
    return struct.pack(f"<{count}f", *(numbers.uniform(-1, 1) for _ in range(count)))


def lock_text(other: Mapping[str, str] | None = None) -> str:
    """A hash-locked requirements file of what is installed here, with other versions for the names
    in `other`."""
    here = {item.metadata["Name"]: item.version for item in importlib.metadata.distributions()}
    return "".join(
        f"{name}=={version} --hash=sha256:{hashlib.sha256(name.encode()).hexdigest()}\n"
        for name, version in sorted({**here, **(other or {})}.items())
        if name not in ("pip", "setuptools", "repro-gate")
    )


def source(lines: Mapping[str, str], text: str = TRAIN) -> str:
    """The training with lines put in place of its marks (`# step`)."""
    for mark, line in lines.items():
        assert text.count(f"# {mark}\n") == 1, mark
        place = text.index(f"# {mark}\n")
        indent = place - text.rindex("\n", 0, place) - 1
        text = text.replace(f"# {mark}\n", line.replace("\n", "\n" + " " * indent) + "\n")
    return text


def line_of(code: Path, part: str) -> str:
    """`train.py:LINE` of the only line with `part` in it."""
    lines = (code / "train.py").read_text().splitlines()
    (number,) = (number for number, line in enumerate(lines, 1) if part in line)
    return f"train.py:{number}"


def project(
    folder: Path,
    text: str,
    spec: str,
    *,
    lock: str = "",
    ignored: str = "",
    untracked: Mapping[str, str] | None = None,
) -> Path:
    """Write and commit a training with data, settings, lockfile and licence; `untracked` is written
    after the commit."""
    files = {
        "config.json": '{"lr": 0.01, "batch": 16}\n',
        "requirements.lock": lock or lock_text(),
        "LICENSE": "Do with it what you like.\n",
        ".gitignore": f"__pycache__/\n{ignored}",
    }
    code = training(folder, text, spec, files)
    (code / "data.bin").write_bytes(data())
    git(code, "init", "-q")
    commit(code)
    for name, content in (untracked or {}).items():
        (code / name).write_text(content)
    return code
