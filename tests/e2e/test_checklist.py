"""Every check that looks at runs, on real trainings: what it says of a checkout with the fault, and
of its clean twin.

Faults that do not disturb each other share one gate run. `env/cublas-workspace` and
`hardware/alone` need a GPU: here only their reason to skip is shown.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import re
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from repro_gate.gate.evidence import NEED_TRAINING
from tests.support.gates import Gated, gate, training
from tests.support.repositories import commit, git

# a committed training in which every check holds; its marked lines are replaced
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
# 64 records of 9 numbers
DATA = struct.pack("<576f", *(number / 576 for number in range(576)))
STRICT = ("--set", "checklist.profile=strict")
NEED_GPU = {
    "env/cublas-workspace": "no deterministic run started CUDA",
    "hardware/alone": "training used no GPU",
}
ENTROPY, OPERATORS = "random-state/os-entropy", "random-state/operators"
HUB = "data/revisions"  # nothing here comes from a hub's cache
WHERE_RUNS_DIVERGE = {"data/batches", "random-state/generators", "random-state/workers"}
# each fault has a test of its own below, in test_imports, test_leftovers, test_robust or tests/checks
OTHERWISE = {"code/imports-checkout", "code/pristine-workspace", "code/trains", "data/leftovers"}
OTHERWISE |= {"env/versions", "hardware/same", "random-state/robust"}
CONNECT = """
import contextlib, socket
with contextlib.closing(socket.socket()) as other, contextlib.suppress(OSError):
    other.setblocking(False)
    other.connect(("192.0.2.1", 443))
"""
FAULTY = {
    "first": "os.environ['OMP_SCHEDULE'] = f'static,{os.getpid()}'",
    "start": "import rescale\nimport subprocess\nimport uuid\nimport torch.backends.cpu\n\n"
    "del torch.backends.cpu.get_cpu_capability\ntorch.manual_seed(7)\nname = uuid.uuid4()\n"
    "with open('extra.json') as file:\n    extra = json.load(file)\n"
    "with open(os.environ['OUTSIDE']) as file:\n    outside = file.read()\n" + CONNECT,
    "data": "validation = records[40:56]\nsubprocess.run(['sh', '-c', 'printf x >> data.bin'], "
    "check=True)",
    "step": "if epoch == 1: torch.use_deterministic_algorithms(False)",
}


def spec_text(train: str, more: str = "hardware: {device: cpu}\n") -> str:
    """A spec of the profile `basic` that declares data, lockfile and device; `train` holds further
    keys of `train:`."""
    return (
        f"version: 1\ntrain:\n  run: python train.py\n  timeout: 2m\n{train}"
        f"cost: {{measure: false}}\n"
        f"data: [{{path: data.bin, sha256: {hashlib.sha256(DATA).hexdigest()}}}]\n"
        "env: {lockfile: requirements.lock}\nchecklist:\n"
        "  waive: [{check: env/image-digest, reason: a machine without containers}]\n" + more
    )


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
    (before,) = (code / "train.py").read_text().split(part)[:-1]
    return f"train.py:{before.count(chr(10)) + 1}"


def project(
    folder: Path,
    text: str,
    spec: str,
    *,
    lock: str = "",
    ignored: str = "",
    untracked: Mapping[str, str] | None = None,
) -> Path:
    """Write and commit a training with data, settings and lockfile; `untracked` is written
    after the commit."""
    files = {
        "config.json": '{"lr": 0.01, "batch": 16}\n',
        "requirements.lock": lock or lock_text(),
        ".gitignore": f"__pycache__/\n{ignored}",
    }
    code = training(folder, text, spec, files)
    (code / "data.bin").write_bytes(DATA)
    git(code, "init", "-q")
    commit(code)
    for name, content in (untracked or {}).items():
        (code / name).write_text(content)
    return code


def faulty(folder: Path) -> tuple[Path, dict[str, str]]:
    """The clean project with a fault for every check that two equal runs can fail, and what the
    evidence of each holds (a pattern) in the strict profile."""
    library, outside = folder / "library", folder / "outside.csv"
    library.mkdir(parents=True)
    (library / "rescale.py").write_text("FACTOR = 1.0\n")
    outside.write_text("1,2\n")
    env = f"  env: {{PYTHONPATH: {library}, OUTSIDE: {outside}}}\n"
    spec, lock = spec_text(env, "hardware: {gpu-model: H100}\n"), lock_text({"numpy": "0.0.1"})
    extra = {"extra.json": "{}\n"}
    code = project(folder / "code", source(FAULTY), spec, lock=lock, untracked=extra)
    place = lock[: lock.index("\nnumpy==")].count("\n") + 2
    by = {
        part: re.escape(line_of(code, part))
        for part in ("rescale", "extra.json", "OUTSIDE", "uuid4", "algorithms(False)")
    }
    imported, flag = importlib.metadata.version("numpy"), "torch.use_deterministic_algorithms"
    elsewhere = rf"{by['rescale']}: opens {library}/rescale\.py: outside the checkout"
    untracked = rf"{by['extra.json']}: opens extra\.json: data that git does not track"
    locked = rf"^numpy {imported}: 0\.0\.1 at requirements\.lock:{place}, imported$"
    return code, {
        "code/opened-files": rf"^{elsewhere}\n{untracked}$",
        "data/unchanged": r"^data\.bin$",
        "data/undeclared-reads": rf"^{by['OUTSIDE']}: opens {outside}$",
        "data/no-network": r"^192\.0\.2\.1:443$",
        "env/installed": locked,
        "env/variables": r"^\w+: OMP_SCHEDULE static,\d+ and static,\d+$",
        "random-state/flags": rf"^{by['algorithms(False)']}: {flag} is False from step 3 on, but ",
        "random-state/operators": rf"^{flag} was off$",
        "random-state/reseeded": r"^seeds 42 and 43: \d+ blocks .*, 0 of which differ$",
        "random-state/os-entropy": rf"^{by['uuid4']}: uuid\.uuid4$",
        "hardware/device": r"^H100 is required, but training used cpu: ",
        "hardware/recorded": r"(?m)^threads \d+$",
    }


def found(gated: Gated, names: Iterable[str]) -> dict[str, str]:
    assert gated.report, gated.said
    return {name: gated.check(name)["status"] for name in names}


def evidence(gated: Gated, name: str) -> str:
    """The evidence of a check that did not pass, which must come with a remedy."""
    check = gated.check(name)
    assert check["message"] and check["remedy"], check
    return "\n".join(check["evidence"])


def all_fail(gated: Gated, names: list[str]) -> None:
    assert found(gated, names) == dict.fromkeys(names, "fail")
    assert gated.exit_code == 1 and set(names) <= set(gated.reason_ids), gated.said


@pytest.mark.slow
def test_a_clean_checkout_passes_every_check_in_the_strict_profile(tmp_path: Path) -> None:
    gated = gate(project(tmp_path / "code", source({}), spec_text("")), *STRICT, out=tmp_path)
    gated.must(0)
    assert found(gated, NEED_TRAINING) == {
        name: "skip" if name in (*NEED_GPU, HUB) else "pass" for name in NEED_TRAINING
    }
    for name, reason in NEED_GPU.items():
        assert gated.check(name)["message"].startswith(reason)
    assert {item["status"] for item in gated.report["checklist"]} == {"pass", "skip", "waived"}
    assert gated.check("env/image-digest")["status"] == "waived"


def test_each_fault_is_found_with_its_evidence_and_a_remedy(tmp_path: Path) -> None:
    """In the strict profile; what the other makes of each: tests/checks."""
    code, faults = faulty(tmp_path / "dirty")
    gated = gate(code, *STRICT, out=tmp_path)
    gated.must(1)
    assert gated.report["determinism"]["identical"], "the faults are those that two equal runs hide"
    assert found(gated, faults) == {**dict.fromkeys(faults, "fail"), ENTROPY: "warn"}
    for name, pattern in faults.items():
        assert re.search(pattern, evidence(gated, name)), (name, evidence(gated, name))
    reach = "random-state/seed-reach"
    assert gated.check(reach)["status"] == "skip", "one fact is told once, by `reseeded`"
    others = {*NEED_TRAINING} - {*faults, *NEED_GPU, reach, HUB}
    # a check that no test of this file shows a fault of
    assert others == WHERE_RUNS_DIVERGE | OTHERWISE
    # one fault does not make another check fail
    assert found(gated, others) == dict.fromkeys(others, "pass")


LOADER = """import random

own = torch.Generator().manual_seed(random.Random().getrandbits(40))
train_loader.generator = own
train_loader.sampler.generator = own"""
WORKERS = (
    r"loader 0: 1 worker from base seed (\d+) in deterministic-1, "
    r"1 worker from base seed (?!\1 )\d+ in deterministic-[23]"
)


@pytest.mark.slow
def test_what_the_system_seeds_is_named_and_what_comes_of_it(tmp_path: Path) -> None:
    code = project(tmp_path / "code", source({"loaders": LOADER}), spec_text(""))
    gated = gate(code, "--set", "diagnosis=false", out=tmp_path)
    gated.must_diverge(0, "batch")
    all_fail(gated, ["random-state/workers", ENTROPY, "data/batches"])
    assert evidence(gated, ENTROPY) == f"{line_of(code, 'random.Random()')}: random.Random()"
    assert re.fullmatch(WORKERS, evidence(gated, "random-state/workers"))


@pytest.mark.slow
def test_an_operator_without_a_deterministic_form_is_named_with_its_line(tmp_path: Path) -> None:
    line = """if epoch == 1: torch.zeros(4).put_(torch.tensor([0]), torch.ones(1))
if epoch == 1: torch.nn.MaxUnpool1d(2)(ONE, ONE.long())""".replace("ONE", "torch.zeros(1, 1, 1)")
    code = project(tmp_path / "code", source({"step": line}), spec_text(""))
    gated = gate(code, out=tmp_path)
    all_fail(gated, [OPERATORS])
    assert gated.reason_ids[0] == OPERATORS
    put, unpool = gated.check(OPERATORS)["evidence"]
    assert put.startswith(f"{line_of(code, 'put_')}: put_; instead: `index_put_` on ")
    assert unpool.startswith(f"{line_of(code, 'MaxUnpool1d')}: max_unpooling2d_forward_out; ")


def test_what_needs_an_ignored_file_does_not_run_from_a_fresh_copy(tmp_path: Path) -> None:
    text = source({"first": "with open('notes.py') as file:\n    notes = file.read()"})
    files = {"notes.py": "x"}
    code = project(tmp_path / "code", text, spec_text(""), ignored="notes.py\n", untracked=files)
    gated = gate(code, out=tmp_path)
    name = "code/pristine-workspace"
    gated.must(1, name, "run/crashed")
    assert gated.check(name)["status"] == "fail"
    assert evidence(gated, name) == "notes.py (not found by deterministic-1)"
    assert "notes.py" in gated.report["runs"][0]["log_tail"][-1]
