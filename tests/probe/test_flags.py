"""Claims about `probe.flags`: what is set is read back, and the line that undoes it is named."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from repro_gate.runs import arms, flags
from repro_gate.runs.launch import RunResult
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
