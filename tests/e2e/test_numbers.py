"""Verdicts about the numbers of a training: NaN, flags, threads, the noise floor, seeds. Real
processes, each fault with its clean twin: what passes with torch shares one gate run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.gates import LOOP, gate, training, with_line

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


@pytest.mark.slow
def test_a_parameter_that_was_never_written_fails_and_is_named(tmp_path: Path) -> None:
    with_default_runs = training(
        tmp_path / "code", SCALED, SPEC.replace("cost: {measure: false}\n", "")
    )
    gated = gate(with_default_runs, out=tmp_path)
    assert gated.exit_code == 1 and gated.report["determinism"]["identical"], gated.stdout
    assert set(gated.reason_ids) == {"determinism/nonfinite"}
    first = gated.report["reasons"][0]["message"]
    assert (
        "parameter scale is NaN from before the first step" in first
        and "uninitialized-memory" in first
    )
    assert (
        "without the flags it holds other values" in first
        and "allow-nonfinite" in gated.report["reasons"][0]["remedy"]
    )


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


# so that addresses differ
START = "import os; keep = [bytearray(1) for _ in range(os.getpid() % 997)]\n"


def objects(source: str, fault: str) -> str:
    """The training with a loader whose batches hold objects, and this fault in its batches."""
    source = START + source.replace(
        "model = Scaled()", OBJECTS.replace("# fault", fault) + "model = Scaled()"
    )
    return source.replace("# loss", "next(loader)")


@pytest.mark.slow
def test_what_is_no_fault_passes(tmp_path: Path) -> None:
    """A batch of objects, without their addresses; a flag of cuDNN on a CPU; a mask of -inf; a
    parameter of NaN that is allowed."""
    source = objects("import torch\ntorch.backends.cudnn.benchmark = True\n" + SCALED, "pass")
    gated = gate(
        training(tmp_path / "code", source, SPEC + "determinism: {allow-nonfinite: true}\n"),
        out=tmp_path,
    )
    assert gated.exit_code == 0 and gated.report["determinism"]["non_finite"], gated.stdout
    check = gated.check("random-state/flags")
    line = (
        "torch.backends.cudnn.benchmark is True from step 0 on, set at train.py:3, and the gate "
        "wants False; no CUDA device was used"
    )
    assert check["status"] == "pass" and check["evidence"] == [line]


@pytest.mark.slow
def test_what_an_object_of_a_batch_holds_is_compared(tmp_path: Path) -> None:
    gated = gate(
        training(tmp_path / "code", objects(FILLED, "objects[0, 3][1000] = os.getpid()"), SPEC),
        "--fail-fast",
        out=tmp_path,
    )
    assert gated.exit_code == 1, gated.stdout
    assert (gated.first["step"], gated.first["kind"]) == (0, "batch")


@pytest.mark.parametrize(
    ("factor", "fails"),
    [
        ("float('inf') if number < 2 else 1", False),  # a loss scale that is too large at first
        # a training that diverges later is its own affair
        (
            "float('nan') if number > 1 else 1",
            False,
        ),
        ("float('nan') if number > 0 else 1", True),
    ],
)
def test_losses_fail_where_none_is_finite_from_the_first_steps_on(
    factor: str, fails: bool, tmp_path: Path
) -> None:
    source = LOOP.replace('record("loss", loss)', f'record("loss", loss * ({factor}))')
    gated = gate(training(tmp_path / "code", source, SPEC), out=tmp_path)
    assert gated.exit_code == int(fails), gated.stdout
    assert gated.reason_ids == (["determinism/nonfinite"] if fails else [])
    if "nan" in factor:
        # told even where it is no fault
        assert [2, "nan"] in gated.report["determinism"]["non_finite"]
    if fails:
        assert (
            "no loss is finite from step 1 to the last of 4 steps"
            in gated.report["reasons"][0]["message"]
        )


WORDS = "set('the cat sat on a mat and the dog ran to it over there with all of its heart'.split())"


@pytest.mark.parametrize("fault", [True, False])
def test_what_only_a_fixed_hash_seed_makes_reproducible_is_said_first(
    fault: bool, tmp_path: Path
) -> None:
    words = WORDS if fault else f"sorted({WORDS})"
    source = with_line(f"x = sum(len(word) * 2**-place for place, word in enumerate({words}))")
    gated = gate(
        training(
            tmp_path / "code",
            source,
            "version: 1\ntrain: {run: python train.py}\nrobustness: {vary: [home]}\n",
        ),
        "--markdown",
        str(tmp_path / "r.md"),
        out=tmp_path,
    )
    assert gated.exit_code == 0 and gated.report["noise_floor"]["identical"] is not fault, (
        gated.stdout
    )
    said = "diverge at step 0, in loss, made reproducible by PYTHONHASHSEED"
    assert (
        f"noise floor two runs without flags {said}" in " ".join(gated.stdout.split())
    ) is fault, gated.stdout
    assert (
        f"without the flags they {said}" in (tmp_path / "r.md").read_text().replace("`", "")
    ) is fault
    assert gated.report["noise_floor"]["reproducible_by"] == ("PYTHONHASHSEED" if fault else "")


def test_a_control_cannot_pass_by_the_noise_of_the_runs(tmp_path: Path) -> None:
    source = "import random\nrandom.seed(7)\n" + with_line("x += random.SystemRandom().random()")
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


@pytest.mark.slow
@pytest.mark.parametrize("fault", [False, True])
def test_a_thread_that_draws_in_the_background_is_no_divergence(
    fault: bool, tmp_path: Path
) -> None:
    source = BACKGROUND + with_line("time.sleep(0.02)" + ("" if fault else "; x = number"))
    gated = gate(training(tmp_path / "code", source, SPEC), out=tmp_path)
    assert (
        gated.exit_code == int(fault) and gated.report["determinism"]["identical"] is not fault
    ), gated.stdout
    check = gated.check("random-state/generators")
    assert check["status"] in (("fail", "warn") if fault else ("warn",)), (
        "`fail` where a generator's state is the first that differs"
    )
    assert fault or check["evidence"][0].startswith("python: differs from ")


@pytest.mark.slow
def test_a_cache_folder_of_the_shell_reaches_no_run(tmp_path: Path) -> None:
    source = "import os\nassert 'TORCHINDUCTOR_CACHE_DIR' not in os.environ\n" + LOOP
    assert (
        gate(
            training(tmp_path / "off", source, SPEC),
            out=tmp_path,
            TORCHINDUCTOR_CACHE_DIR=str(tmp_path),
        ).exit_code
        == 0
    )
