"""Claims about `probe.flags`: what is set is read back, and the line that undoes it is named."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from repro_gate.compare.cost import blocks_of
from repro_gate.probe import flags as probe_flags
from repro_gate.runs import arms, flags
from repro_gate.runs.launch import RunResult
from repro_gate.trace.model import Trace
from tests.support.gates import ROOT
from tests.support.tracing import ONE, STEP, trace_script, trained

MKL = "mkl.early_first_call"
ALGORITHMS = "torch.use_deterministic_algorithms"
CUDNN = "torch.backends.cudnn.deterministic"
MKLDNN = "torch.backends.mkldnn.deterministic"
FILL = "torch.utils.deterministic.fill_uninitialized_memory"
TIMED = {*probe_flags._TIMED.values()}


def test_every_flag_reads_back_as_it_was_set(undoing: RunResult) -> None:
    arm = arms.deterministic(42, frozenset(), None)
    trace = trained(undoing)
    settings = trace.settings[trace.steps[0].flags]
    wanted = {**arm.flags, **arm.environment}
    both = [name for name in flags.FLAGS if name in wanted and name not in TIMED]
    assert not TIMED & {*settings}, "nothing is compiled"
    assert {name: settings[name] for name in both} == {name: wanted[name] for name in both}
    assert arms.not_effective(settings, arm) == {}
    assert settings[flags.WARN_ONLY] is False
    assert not [item for item in trace.undone if item.step < 1]


def test_the_default_condition_leaves_torch_as_it_is(tmp_path: Path) -> None:
    names = "[name for name in os.environ if 'DETERMINISTIC' in name or 'CUBLAS' in name]"
    run = trace_script(tmp_path, f"import os\nprint({names})\n{ONE}", arm=arms.default(42, None))
    [settings] = trained(run).settings
    assert run.ended.tail == ("[]",)
    assert settings[ALGORITHMS] is settings[CUDNN] is settings[MKL] is False
    assert settings[FILL] is True, "torch's own default, idle while the first is off"
    assert {settings[name] for name in {*flags.IN_ENVIRONMENT} - TIMED} == {None}
    assert settings["PYTHONHASHSEED"] is None, "as in a shell"


@pytest.mark.slow
def test_an_allowed_flag_is_left_off_and_the_others_are_on(tmp_path: Path) -> None:
    allowed = frozenset({FILL, MKL, CUDNN, "CUBLAS_WORKSPACE_CONFIG"})
    arm = arms.deterministic(42, allowed, None)
    [settings] = trained(trace_script(tmp_path, ONE, arm=arm)).settings
    assert settings[CUDNN] is False and settings["CUBLAS_WORKSPACE_CONFIG"] is None
    assert settings[ALGORITHMS] is True
    assert settings[FILL] is False, "torch's own default is on"
    assert settings[MKL] is False
    assert arms.not_effective(settings, arm) == {}


VARIABLES = """import os
os.environ.pop("MKL_CBWR")
import torch
os.environ["MKL_CBWR"] = "AVX"
del os.environ["CUBLAS_WORKSPACE_CONFIG"]
os.environ["NCCL_ALGO"] = os.environ["NCCL_ALGO"]
os.environ.update(OTHER="1", PYTHONHASHSEED="5")
"""


@pytest.mark.slow
def test_the_line_that_changes_a_variable_is_named(tmp_path: Path) -> None:
    found = trained(trace_script(tmp_path, VARIABLES + ONE)).undone
    assert [(item.flag, item.value, item.file, item.line, item.late) for item in found] == [
        ("MKL_CBWR", "None", "train.py", 2, False),
        ("MKL_CBWR", "AVX", "train.py", 4, torch.backends.mkl.is_available()),
        ("CUBLAS_WORKSPACE_CONFIG", "None", "train.py", 5, False),
    ]


UNDONE = {  # line of code -> (flag, value)
    "torch.use_deterministic_algorithms(False)": (ALGORITHMS, "False"),
    "torch.use_deterministic_algorithms(True, warn_only=True)": (ALGORITHMS, "warn_only"),
    "torch.set_deterministic_debug_mode('warn')": (ALGORITHMS, "warn_only"),
    f"{CUDNN} = False": (CUDNN, "False"),
    "torch.backends.cudnn.benchmark = True": ("torch.backends.cudnn.benchmark", "True"),
    "torch.x = torch.backends.cudnn.flags(deterministic=False); torch.x.__enter__()": (
        CUDNN,
        "False",
    ),
    f"{FILL} = False": (FILL, "False"),
    "torch.backends.mkldnn.set_flags(_deterministic=False)": (MKLDNN, "False"),
}
AGAIN = """
import torch
def on():
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    torch.backends.mkldnn.deterministic = True
"""


@pytest.fixture(scope="module")
def undoing(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    """One run whose step number N undoes the N-th flag, in lib/setup.py at the line 10 * N + 10,
    and sets all again afterwards."""
    lines = ["import torch"] + [""] * 8
    body = f"{ONE}import again\nfrom lib import setup\n"
    for number, code in enumerate(UNDONE):
        lines += [f"def undo{number}():", f"    {code}"] + [""] * 8
        body += f"setup.undo{number}()\n{STEP}again.on()\n"
    files = {"train.py": body, "again.py": AGAIN, "lib/setup.py": "\n".join(lines)}
    run = trace_script(tmp_path_factory.mktemp("undoing"), files)
    assert run.outcome == "finished", (run.problem, run.ended.tail)
    return run


@pytest.mark.parametrize("number", range(len(UNDONE)), ids=list(UNDONE))
def test_the_line_that_undoes_a_flag_is_named(undoing: RunResult, number: int) -> None:
    trace, arm = trained(undoing), arms.deterministic(42, frozenset(), None)
    flag, value = list(UNDONE.values())[number]
    found = [item for item in trace.undone if item.step == number + 1 and item.flag == flag]
    where = (found[0].file, found[0].line, found[0].value)
    assert where == ("lib/setup.py", 10 * number + 11, value)
    wrong = arms.not_effective(trace.settings[trace.steps[number + 1].flags], arm)
    assert (flags.WARN_ONLY if value == "warn_only" else flag) in wrong


def test_nothing_else_is_called_undone(undoing: RunResult) -> None:
    wanted = {(step + 1, flag) for step, (flag, _) in enumerate(UNDONE.values())}
    # cudnn.flags() sets every flag of cuDNN, this one to what it already is
    also = {(6, "torch.backends.cudnn.benchmark")}
    assert {(item.step, item.flag) for item in trained(undoing).undone} - also == wanted


ALTERNATING: Any = [
    {ALGORITHMS: False, FILL: False},
    {ALGORITHMS: True, FILL: True},
    {ALGORITHMS: True, FILL: False},
]
TWELVE = ONE + "for _ in range(11):\n    record('loss', 1.0)\n    step()\n"


def alternating(tmp_path: Path, source: str, steps: int = 12, cycle: int = 1) -> Trace:
    on = arms.deterministic(42, frozenset(), steps)
    others = {name: value for name, value in on.flags.items() if name not in ALTERNATING[0]}
    plan = {"arms": ALTERNATING, "cycle": cycle, "seed": "42 1"}
    probe = {"alternating": plan, "every": steps + 1}
    arm = replace(on, name="alternating", flags=others)
    return trained(trace_script(tmp_path, source, arm=arm, steps=steps, probe=probe))


def test_in_an_alternating_run_each_arm_has_one_turn_in_a_block_in_an_order_of_the_seed(
    tmp_path: Path,
) -> None:
    trace = alternating(tmp_path, TWELVE)
    read = [{name: item[name] for name in ALTERNATING[0]} for item in trace.settings]
    turns = [ALTERNATING.index(read[mark.flags]) for mark in trace.steps]
    assert len(turns) == 12 and not trace.undone
    orders = []
    for block in range(4):
        own = random.Random(f"42 1 {block}")
        orders += own.sample(range(3), 3)
    assert turns == orders
    assert all(item[CUDNN] is True for item in trace.settings), "the others stay on"
    blocks = blocks_of([trace], ALTERNATING, 1, 0)
    assert not isinstance(blocks, str) and len(blocks) == 2


COMPILED = """
import torch
net = torch.compile(torch.nn.Linear(4, 1), backend="eager")
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(12):
    optimizer.zero_grad()
    net(torch.ones(2, 4)).sum().backward()
    optimizer.step()
"""


@pytest.mark.slow
def test_a_compiled_model_is_told_and_one_that_is_not_is_not(tmp_path: Path) -> None:
    found = blocks_of([alternating(tmp_path / "a", COMPILED)], ALTERNATING, 1, 0)
    assert isinstance(found, str) and "compiled model" in found
    plain = COMPILED.replace("torch.compile(", "(").replace(', backend="eager"', "")
    assert isinstance(blocks_of([alternating(tmp_path / "b", plain)], ALTERNATING, 1, 0), list)


LOADING = """
import time, torch
from torch.utils.data import DataLoader, Dataset
class Data(Dataset):
    def __len__(self):
        return 24
    def __getitem__(self, index):
        time.sleep(SECONDS)
        return torch.ones(4)
net = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for batch in DataLoader(Data(), batch_size=1, num_workers=1):
    time.sleep(0.11 if torch.are_deterministic_algorithms_enabled() else 0.09)
    optimizer.zero_grad()
    net(batch).sum().backward()
    optimizer.step()
"""


@pytest.mark.slow
def test_a_loader_that_sets_the_pace_is_told(short_path: Path) -> None:
    """It takes 150 ms for a batch, or 1 ms; a step 90 or 110."""
    for seconds, is_behind in (("0.15", True), ("0.001", False)):
        source = LOADING.replace("SECONDS", seconds)
        found = blocks_of([alternating(short_path / seconds, source, 18)], ALTERNATING, 1, 0)
        assert (isinstance(found, str) and "DataLoader" in found) is is_behind


READING = """
import json, torch
from repro_gate.probe import facts, flags

def refuse(*_):
    raise AssertionError("a reading starts CUDA")

torch._C._cuda_init = torch.cuda._lazy_init = refuse
facts.started = lambda: CUDA
before = flags.read(torch, ())
matmul, cudnn, cuda = torch.backends.cuda.matmul, torch.backends.cudnn, torch.backends.cuda
matmul.allow_tf32 = matmul.allow_fp16_accumulation = True
matmul.allow_fp16_reduced_precision_reduction = False
matmul.allow_bf16_reduced_precision_reduction = False
for name in ("flash", "mem_efficient", "math", "cudnn"):
    getattr(cuda, f"enable_{name}_sdp")(False)
cuda.allow_fp16_bf16_reduction_math_sdp(True)
cudnn.allow_tf32 = False
torch.backends.mkldnn.matmul.fp32_precision = "bf16"
torch.backends.mkldnn.conv.fp32_precision = "tf32"
print(json.dumps([before, flags.read(torch, ())]))
"""


def reading(cuda: bool) -> list[dict[str, Any]]:
    """What is read before and after all switches of precision are set otherwise."""
    script = READING.replace("lambda: CUDA", f"lambda: {cuda}")
    said = subprocess.check_output([sys.executable, "-Wignore", "-c", script], cwd=ROOT, text=True)
    found: list[dict[str, Any]] = json.loads(said)
    return found


def test_every_switch_of_precision_is_read_back_and_none_starts_cuda() -> None:
    before, after = reading(cuda=True)
    changed = {name for name in after if after[name] != before.get(name)}
    table = probe_flags._READ_ON_CUDA.split("\n")[1:-1]
    every = {line.partition(" = ")[2] for line in table}
    newer = {name for name in every if name.endswith("fp32_precision")}
    libraries = {
        name for name in every if "preferred" in name
    }  # a torch without CUDA has no choice
    assert every - newer - libraries <= changed and libraries <= {*after}
    assert {f"torch.backends.mkldnn.{name}.fp32_precision" for name in ("matmul", "conv")} < changed
    assert after["torch.backends.cuda.preferred_linalg_library"] == "Default"
    allowed = {bool, str, int}
    assert {type(value) for value in after.values()} <= allowed, "as a trace can hold them"


def test_a_process_without_cuda_reads_none_of_its_switches() -> None:
    before, after = reading(cuda=False)
    assert not [name for name in after if ".cuda." in name or "cudnn.allow" in name]
    assert not [name for name in before if name.endswith("fp32_precision")], "nobody set one"
    assert "torch.backends.mkldnn.matmul.fp32_precision" in after


def test_switches_of_two_kinds_that_were_mixed_are_said_to_be() -> None:
    def mixed() -> None:
        raise RuntimeError("mix of the legacy and new APIs to set the TF32 status")

    core = SimpleNamespace(_get_float32_matmul_precision=mixed, _get_cudnn_benchmark=lambda: True)
    stand_in = ModuleType("torch")
    vars(stand_in).update(_C=core, get_num_threads=lambda: 1)
    read = probe_flags.read(stand_in, ())
    assert read["torch.get_float32_matmul_precision"] == "mixed"
    assert read["torch.backends.cudnn.benchmark"] is True
    assert FILL not in read, "this torch does not have it"


@pytest.mark.slow
def test_a_variable_that_changes_between_two_steps_is_read_anew(tmp_path: Path) -> None:
    source = f"import os\n{ONE}os.environ['NCCL_ALGO'] = 'NVLS'\n"
    source += f"os.environ['NCCL_NVLS_ENABLE'] = '1'\n{STEP}"
    trace = trained(trace_script(tmp_path, source))
    first, second = (trace.settings[mark.flags] for mark in trace.steps)
    assert (first["NCCL_ALGO"], second["NCCL_ALGO"]) == ("Ring", "NVLS")
    assert "NCCL_NVLS_ENABLE" not in first and second["NCCL_NVLS_ENABLE"] == "1"


MODE = """
import torch
import torch._inductor.config as config
OLD
net = torch.nn.Linear(4, 1)
compiled = torch.compile(net, MODE)
from repro_gate import record, step
record("loss", 1.0)
step()
"""
OLDER = 'del config._config["deterministic"]'
MAX = 'mode="max-autotune-no-cudagraphs"'
TUNED = 'options={"coordinate_descent_tuning": True}'


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "mode", "on"),
    [
        (OLDER, MAX, "TORCHINDUCTOR_MAX_AUTOTUNE"),
        (OLDER, TUNED, "TORCHINDUCTOR_COORDINATE_DESCENT_TUNING"),
        (OLDER, "mode='default'", ""),
        (OLDER + "; config.max_autotune_gemm = True", "", "TORCHINDUCTOR_MAX_AUTOTUNE_GEMM"),
        ("", MAX, ""),
    ],
    ids=["mode", "options", "default", "config", "newer"],
)
def test_a_model_whose_kernels_are_chosen_by_timing_is_told(
    tmp_path: Path, old: str, mode: str, on: str
) -> None:
    arm = arms.deterministic(42, frozenset(), None)
    trace = trained(trace_script(tmp_path, MODE.replace("OLD", old).replace("MODE", mode), arm=arm))
    [settings] = trace.settings
    wrong = arms.not_effective(settings, arm)
    assert wrong.get(on) == (("1", "0") if on else None) and bool(wrong) == bool(on)
    said = {item.flag: (item.value, item.file, item.line) for item in trace.undone}
    assert said.get(on) == (("1", "train.py", 6) if on and mode else None)
    assert {*said} == ({*wrong} if mode else set()) and (old or not TIMED & {*settings})


FLASH = """
import torch
def flash_attn_func(q, k, v, dropout_p=0.0, softmax_scale=None, causal=False,
                    deterministic=False, return_attn_probs=False):
    return q * 2 if deterministic else q
def flash_attn_with_kvcache(q):
    return q
"""
ATTEND = """
import torch
from flash_attn import flash_attn_func, flash_attn_with_kvcache
from repro_gate import record, step
q = torch.ones(1)
compiled = torch.compile(flash_attn_func, backend="eager", fullgraph=True)
print(flash_attn_func(q, q, v=q, causal=True).item(), compiled(q, q, q).item(),
      flash_attn_func(q, q, q, deterministic=True).item(), flash_attn_with_kvcache(q).item())
print(flash_attn_func(q, q, q, deterministic=False).item())
print(flash_attn_func(q, q, q, 0.0, None, False, False).item())
record("loss", 1.0)
step()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arm", "default"),
    [
        (arms.deterministic(42, frozenset(), None), 2.0),
        (arms.deterministic(42, frozenset({"FLASH_ATTENTION_DETERMINISTIC"}), None), 1.0),
        (arms.default(42, None), 1.0),
    ],
    ids=["deterministic", "allowed", "default"],
)
def test_flash_attention_is_deterministic_unless_its_caller_says_otherwise(
    tmp_path: Path, arm: arms.Arm, default: float
) -> None:
    names = "flash_attn_func, flash_attn_with_kvcache"
    files = {
        "train.py": ATTEND,
        "flash_attn/__init__.py": f"from flash_attn.flash_attn_interface import {names}\n",
        "flash_attn/flash_attn_interface.py": FLASH,
    }
    run = trace_script(tmp_path, files, arm=arm)
    assert run.ended.tail == (f"{default} {default} 2.0 1.0", "1.0", "1.0")
    said = [(item.value, item.file, item.line) for item in trained(run).undone]
    assert said == ([("False", "train.py", 9), ("False", "train.py", 10)] if default == 2 else [])
