"""Claims about flags that act on a device only: what chooses a kernel by timing is recorded or off,
and what changes numbers is read back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from repro_gate.probe import flags
from repro_gate.runs import arms
from tests.gpu.device_training import DETERMINISTIC, OUTER, train
from tests.support.tracing import trace_script, trained

pytestmark = pytest.mark.gpu

STEP = """
w = torch.nn.Parameter(torch.ones(64, 64, device="cuda"))
optimizer = torch.optim.SGD([w], lr=0.1)
(w @ w).sum().backward()
optimizer.step()
"""
TUNED = """
import torch, triton
import triton.language as tl

@triton.autotune([triton.Config({"BLOCK": size}) for size in (64, 128, 256)], key=["size"])
@triton.jit
def double(x, size, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + place, tl.load(x + place, mask=place < size) * 2, mask=place < size)

x = torch.ones(4096, device="cuda")
double[lambda meta: (triton.cdiv(4096, meta["BLOCK"]),)](x, 4096)
print(double.best_config.kwargs["BLOCK"])
"""


def test_an_autotuned_kernel_is_recorded_and_pinned_takes_the_first_configuration(
    tmp_path: Path,
) -> None:
    pytest.importorskip("triton")
    options = {"command": "python3 train.py", "timeout": 240, "env": OUTER}
    for name, factors in (("watch", {"watch": True}), ("pin", {"pin": {"autotune": None}})):
        run = trace_script(tmp_path / name, TUNED + STEP, factors=factors, **options)
        assert run.good, (run.problem, run.ended.tail)
        uses = [use for use in trained(run).uses if use.factor == "autotune"]
        block = run.ended.tail[-1]
        if name == "pin":
            assert block == "64" and not uses
        else:
            assert [use.source for use in uses] == ["double for [4096, 'torch.float32']"]
            assert uses[0].call.startswith(f"double(BLOCK: {block}") and uses[0].file == "train.py"


TUNABLE = """
import torch
torch.cuda.tunable.enable(True)
torch.cuda.tunable.tuning_enable(True)
print(torch.cuda.tunable.is_enabled(), torch.cuda.tunable.tuning_is_enabled())
"""


def test_tunable_operators_do_not_tune_in_the_deterministic_arm(tmp_path: Path) -> None:
    allowed = arms.deterministic(42, frozenset({"PYTORCH_TUNABLEOP_TUNING"}), None)
    for arm, tunes in (
        (DETERMINISTIC, "True False"),
        (replace(allowed, name="allowed"), "True True"),
    ):
        run = train(tmp_path, TUNABLE + STEP, arm, arm.name)
        assert run.ended.tail[-1] == tunes


def test_what_changes_numbers_on_the_device_is_read_back(tmp_path: Path) -> None:
    lines = "import torch\ntorch.backends.cuda.matmul.allow_tf32 = True\n"
    lines += 'torch.backends.cuda.preferred_blas_library("cublaslt")\n'
    [settings] = trained(train(tmp_path, lines + STEP)).settings
    table = flags._READ_ON_CUDA.split("\n")[1:-1]
    names = {line.partition(" = ")[2] for line in table}
    newer = {name for name in names if name.endswith(("fp32_precision", "accumulation"))}
    assert names - newer <= {*settings}
    assert settings["torch.backends.cuda.matmul.allow_tf32"] is True
    assert settings["torch.backends.cuda.preferred_blas_library"] == "Cublaslt"
