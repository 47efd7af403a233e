"""Verdicts about the numbers of a training: NaN, flags, threads, the noise floor, seeds. Real processes, each fault with its clean twin."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.gates import gate, training

SPEC = "version: 1\ntrain: {run: python train.py, steps: 4, timeout: 2m}\ncost: {measure: false}\n"
SCALED = """
import torch
class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(8, 1)
        self.scale = torch.nn.Parameter(torch.empty(8))
        self.register_buffer("mask", torch.full((8,), float("-inf")))
        # fill
    def forward(self, x):
        return self.fc(x * self.scale)
model = Scaled()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(4):
    x = torch.randn(16, 8)
    loss = model(x).square().mean()
    # loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
FILLED = SCALED.replace("# fill", "torch.nn.init.ones_(self.scale)")


def test_a_parameter_that_was_never_written_fails_and_is_named(tmp_path: Path) -> None:
    with_default_runs = training(tmp_path / "code", SCALED, SPEC.replace("cost: {measure: false}\n", ""))
    gated = gate(with_default_runs, out=tmp_path)
    assert gated.exit_code == 1 and gated.report["determinism"]["identical"], gated.stdout
    assert set(gated.reason_ids) == {"determinism/nonfinite"}
    first = gated.report["reasons"][0]["message"]
    assert "parameter scale is NaN from before the first step" in first and "uninitialized-memory" in first
    assert "without the flags it holds other values" in first and "allow-nonfinite" in gated.report["reasons"][0]["remedy"]


def test_a_parameter_that_was_never_written_may_be_allowed(tmp_path: Path) -> None:
    gated = gate(training(tmp_path / "code", SCALED, SPEC + "determinism: {allow-nonfinite: true}\n"), out=tmp_path)
    assert gated.exit_code == 0 and gated.report["determinism"]["non_finite"], gated.stdout


@pytest.mark.parametrize(
    ("line", "fails"),
    [
        ("pass", False),  # the clean twin, with a mask of -inf in a buffer
        ("loss = loss * (float('inf') if step < 2 else 1)", False),  # a loss scale that is too large at first
        ("loss = loss * (float('nan') if step > 1 else 1)", False),  # a training that diverges later is its own affair
        ("loss = loss * (float('nan') if step > 0 else 1)", True),
    ],
)
def test_losses_fail_where_none_is_finite_from_the_first_steps_on(line: str, fails: bool, tmp_path: Path) -> None:
    source = FILLED.replace("# loss", line).replace(
        "    optimizer.step()", "    if loss.isfinite(): optimizer.step()\n    else: optimizer.zero_grad(); optimizer.step()"
    )
    gated = gate(training(tmp_path / "code", source, SPEC), out=tmp_path)
    assert gated.exit_code == int(fails), gated.stdout
    assert gated.reason_ids == (["determinism/nonfinite"] if fails else [])
    if fails:
        assert "no loss is finite from step 1 to the last of 4 steps" in gated.report["reasons"][0]["message"]


def test_a_flag_of_cudnn_on_a_cpu_is_no_failure(tmp_path: Path) -> None:
    gated = gate(training(tmp_path / "code", "import torch\ntorch.backends.cudnn.benchmark = True\n" + FILLED, SPEC), out=tmp_path)
    check = gated.check("random-state/flags")
    assert gated.exit_code == 0 and check["status"] == "pass", gated.stdout
    line = "torch.backends.cudnn.benchmark is True from step 0 on, set at train.py:2, and the gate wants False; no CUDA device was used"
    assert check["evidence"] == [line]


WORDS = """
import torch
words = "the cat sat on a mat and the dog ran to it over there with all of its heart".split()
vocabulary = {word: number for number, word in enumerate(set(words))}
ids = torch.tensor([vocabulary[word] for word in words])
model = torch.nn.Sequential(torch.nn.Embedding(len(vocabulary), 8), torch.nn.Linear(8, len(vocabulary)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    loss = torch.nn.functional.cross_entropy(model(ids[:-1]), ids[1:])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize("fault", [True, False])
def test_what_only_a_fixed_hash_seed_makes_reproducible_is_said_first(fault: bool, tmp_path: Path) -> None:
    source = WORDS if fault else WORDS.replace("set(words)", "sorted(set(words))")
    gated = gate(
        training(tmp_path / "code", source, "version: 1\ntrain: {run: python train.py}\n"),
        "--markdown",
        str(tmp_path / "r.md"),
        out=tmp_path,
    )
    assert gated.exit_code == 0 and gated.report["noise_floor"]["identical"] is not fault, gated.stdout
    said = "without the flags they diverge at step 0, in loss, made reproducible by PYTHONHASHSEED"
    assert (said in " ".join(gated.stdout.split())) is fault, gated.stdout
    assert (said in (tmp_path / "r.md").read_text()) is fault
    assert gated.report["noise_floor"]["reproducible_by"] == ("PYTHONHASHSEED" if fault else "")


def test_a_control_cannot_pass_by_the_noise_of_the_runs(tmp_path: Path) -> None:
    noise = "torch.randn((), generator=torch.Generator().manual_seed(__import__('time').time_ns()))"
    source = FILLED.replace("import torch\n", "import torch\ntorch.manual_seed(7)\n").replace("# loss", f"loss = loss + {noise}")
    gated = gate(training(tmp_path / "code", source, SPEC), out=tmp_path)
    assert gated.exit_code == 1 and gated.first["kind"] == "loss", gated.stdout
    assert gated.check("random-state/reseeded")["status"] == "skip"


BACKGROUND = """
import random, threading, time
def draw():
    while True:
        random.random()
        time.sleep(random.SystemRandom().random() / 500)
threading.Thread(target=draw, daemon=True).start()
"""
OBJECTS = """
import numpy
class Note:
    pass
class Items(torch.utils.data.Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, place):
        return place, [Note(), "text", place, numpy.arange(2000.0)]
def collate(items):
    objects = numpy.empty((len(items), 4), dtype=object)
    for row, (_, item) in zip(objects, items):
        row[:] = item
    # fault
    return torch.tensor([place for place, _ in items]), objects
loader = iter(torch.utils.data.DataLoader(Items(), batch_size=2, collate_fn=collate))
"""


@pytest.mark.parametrize("fault", [False, True])
def test_a_thread_that_draws_in_the_background_is_no_divergence(fault: bool, tmp_path: Path) -> None:
    source = BACKGROUND + FILLED.replace("# loss", "time.sleep(0.02); loss = loss + random.random()" if fault else "time.sleep(0.02)")
    gated = gate(training(tmp_path / "code", source, SPEC), out=tmp_path)
    assert gated.exit_code == int(fault) and gated.report["determinism"]["identical"] is not fault, gated.stdout
    check = gated.check("random-state/generators")
    assert check["status"] == ("fail" if fault else "warn") and (fault or check["evidence"][0].startswith("python: differs from "))


@pytest.mark.parametrize("fault", ["", "text", "array"])
def test_a_batch_of_objects_is_compared_without_their_addresses(fault: str, tmp_path: Path) -> None:
    lines = {"": "pass", "text": "objects[0, 1] = str(os.getpid())", "array": "objects[0, 3][1000] = os.getpid()"}
    start = "import os; keep = [bytearray(1) for _ in range(os.getpid() % 997)]\n"  # so that addresses differ
    source = start + FILLED.replace("model = Scaled()", OBJECTS.replace("# fault", lines[fault]) + "model = Scaled()")
    gated = gate(training(tmp_path / "code", source.replace("# loss", "next(loader)"), SPEC), out=tmp_path)
    assert gated.exit_code == int(bool(fault)), gated.stdout
    if fault:
        assert (gated.first["step"], gated.first["kind"]) == (0, "batch")


CACHED = """
import os, torch
pinned = torch.are_deterministic_algorithms_enabled() and torch.initial_seed() == 42
folder = os.environ["TORCHINDUCTOR_CACHE_DIR"]
kernel = os.path.join(folder, "ab", "kernel.so")
assert os.path.exists(kernel) is not pinned, "a deterministic run compiles for itself, every other starts from the copy"
assert pinned or open(kernel).read() == "first", "what another run wrote was not the gate's copy"
assert os.environ["TRITON_CACHE_DIR"] == os.path.join(folder, "triton") and not os.path.lexists(os.path.join(folder, "link"))
os.makedirs(os.path.dirname(kernel), exist_ok=True)
open(kernel, "w").write("first" if pinned else "later")
os.symlink("/etc", os.path.join(folder, "link"))
"""


def test_runs_beside_the_pair_start_from_a_copy_of_the_compile_cache(tmp_path: Path) -> None:
    spec = "version: 1\ntrain: {run: python train.py, compile-cache: true}\n"
    gated = gate(training(tmp_path / "on", CACHED + FILLED, spec), out=tmp_path)
    assert gated.exit_code == 0 and len(gated.report["runs"]) == 5, gated.stdout


def test_a_cache_folder_of_the_shell_reaches_no_run(tmp_path: Path) -> None:
    source = "import os\nassert 'TORCHINDUCTOR_CACHE_DIR' not in os.environ\n" + FILLED
    assert gate(training(tmp_path / "off", source, SPEC), out=tmp_path, TORCHINDUCTOR_CACHE_DIR=str(tmp_path)).exit_code == 0
