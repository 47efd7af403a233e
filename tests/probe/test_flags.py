"""Claims about `probe.flags`: what is set is read back, and the line that undoes it is named."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from repro_gate.compare.cost import blocks_of
from repro_gate.runs import arms, flags
from repro_gate.runs.launch import RunResult
from repro_gate.trace.model import Trace
from tests.support.tracing import ONE, STEP, trace_script, trained

MKL = "mkl.early_first_call"
ALGORITHMS = "torch.use_deterministic_algorithms"
CUDNN = "torch.backends.cudnn.deterministic"
MKLDNN = "torch.backends.mkldnn.deterministic"
FILL = "torch.utils.deterministic.fill_uninitialized_memory"


def test_every_flag_reads_back_as_it_was_set(undoing: RunResult) -> None:
    arm = arms.deterministic(42, frozenset(), None)
    trace = trained(undoing)
    settings = trace.settings[trace.steps[0].flags]
    wanted = {**arm.flags, **arm.environment}
    both = [name for name in flags.FLAGS if name in wanted]
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
    assert {settings[name] for name in flags.IN_ENVIRONMENT} == {None}
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
