"""Claims about `probe.session`: a training ends after its last wanted step, whatever it catches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from repro_gate.compare.traces import compare_runs
from tests.support.tracing import Case, blocks, trace_cases, trace_script, trained

HEAD = """
import sys
import torch
net = torch.nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
done = 0
def one():
    global done
    opt.zero_grad()
    net(torch.randn(4, 3)).square().mean().backward()
    opt.step()
    done += 1
"""
Cases = Mapping[str, Case]
FINALLY = "try:\n    while True: one()\nfinally:\n    "
EXCEPTIONS = """
while True:
    try: one()
    except Exception: print("caught")
    finally: print("finally", done)
"""
ONCE = """
try:
    while True: one()
except BaseException as error:
    print("caught", type(error).__name__, done)
print("went on")
"""
FOR_EVER = """
weights = []
while True:
    try: one()
    except BaseException:
        print("caught", done, torch.equal(weights[-1], net.weight) if weights else "")
        weights.append(net.weight.detach().clone())
"""
LOOPS = {  # a loop, and what it prints
    "catches_exceptions": (EXCEPTIONS, ("finally 1", "finally 2", "finally 2")),
    "catches_everything_once": (ONCE, ("caught StopTraining 2", "went on")),
    "catches_everything_for_ever": (FOR_EVER, ("caught 2 ", "caught 2 True")),
}


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Cases:
    """Scripts that are stopped after three steps."""
    cases = {name: HEAD + source for name, (source, _) in LOOPS.items()}
    cases |= {
        "changed": HEAD + FINALLY + "net.weight.data.add_(1.0)",
        "clean": HEAD + FINALLY + "net.weight.data.add_(0.0)",
        "killed": HEAD + FINALLY + "import os; os.kill(os.getpid(), 9)",
        "short": HEAD + "one(); one()\n",
    }
    return trace_cases(tmp_path_factory.mktemp("three"), cases, steps=3)


@pytest.mark.parametrize("loop", LOOPS)
def test_steps_ends_a_loop_exactly_there_and_well(loop: str, three: Cases) -> None:
    case, short = three[loop], three["short"].trace
    found = case.exit_code, len(case.trace.steps), case.trace.stopped, case.trace.end
    assert found == (0, 3, True, "steps"), case.printed
    assert case.printed == LOOPS[loop][1]
    # one that is shorter just finishes
    assert (len(short.steps), short.stopped, short.end) == (2, False, "exit")


def test_what_finally_does_after_the_last_step_is_recorded(three: Cases) -> None:
    changed, clean, killed = (
        replace(three[name].trace, key="main") for name in ("changed", "clean", "killed")
    )
    assert changed.stopped and clean.stopped and (changed.end, clean.end) == ("steps", "steps")
    [before], [end] = blocks(clean, "parameter", 2), blocks(clean, "parameter", 3)
    [same], [other] = blocks(changed, "parameter", 2), blocks(changed, "parameter", 3)
    assert before.digests == same.digests == end.digests != other.digests
    assert not compare_runs([changed], [clean]).identical
    # one that is killed is compared up to its last step
    assert (killed.stopped, killed.end, three["killed"].exit_code) == (True, None, -9)
    assert compare_runs([killed], [clean]).identical


def test_a_training_that_is_stopped_is_a_run_that_was_stopped(tmp_path: Path) -> None:
    run = trace_script(tmp_path, HEAD + "while True: one()\n", steps=5, every=3)
    trace = trained(run)
    assert (run.outcome, run.ended.exit_code, run.steps, trace.end) == ("stopped", 0, 5, "steps")
    assert len(trace.steps) == 5
    steps = {
        kind: sorted({block.step for block in trace.blocks if block.kind == kind})
        for kind in ("parameter", "loss")
    }
    # 5: as the process ended; losses are cheap
    assert steps == {"parameter": [-1, 0, 3, 4, 5], "loss": [0, 1, 2, 3, 4]}


GOES_ON = """
import os
one()
open("broken", "w").write("")
os.chmod("broken", 0o755)
for path in ("nowhere", "broken"):
    try:
        os.execv(path, [path])
    except OSError as error:
        print(type(error).__name__)
one()
"""
BUGS = (
    "import _repro_gate.probe.tensors as part; part.begin = None",
    "import _repro_gate.probe.names as part; part.name_tensors = None",
    "import _repro_gate.probe.step_time as part; part.mark = lambda devices: 1 / 0",
)
SLOW = """
import time
import _repro_gate.probe.tensors as hooks, _repro_gate.probe.loss as loss
original = hooks.begin
def slow(*args, **options):
    time.sleep(0.1)
    return original(*args, **options)
hooks.begin = loss.begin = slow
for _ in range(3):
    time.sleep(0.02)
    one()
"""
LEAVES = [
    "os.execv(sys.executable, [sys.executable, '-c', 'print(42)'])",
    "os.execvp('true', ['true'])",
    "os.execle('/bin/sh', 'sh', '-c', 'exit 0', {})",
    "sys.last_value = ValueError('shown, and dealt with')",
    "code.InteractiveInterpreter().runsource('1 / 0')",
    "sys.stdout = None; os._exit(0)",
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Cases:
    """Scripts that run to their end."""
    ends = {f"leave{number}": "one(); one()\n" + leave for number, leave in enumerate(LEAVES)}
    cases = {name: f"{HEAD}import code, os\n{end}\n" for name, end in ends.items()}
    cases |= {"goes_on": HEAD + GOES_ON, "slow": HEAD + SLOW}
    for number, bug in enumerate(BUGS):
        cases[f"bug{number}"] = f"{HEAD}{bug}\nfor _ in range(3): one()\nprint('trained', done)\n"
    return trace_cases(tmp_path_factory.mktemp("whole"), cases)


@pytest.mark.slow
def test_the_own_time_of_the_probe_is_kept_apart(whole: Cases) -> None:
    """It looks at the loss, the gradients and the parameters of a step."""
    marks = whole["slow"].trace.steps[1:]
    assert len(marks) == 2 and all(mark.probe_ms > 300 for mark in marks)
    assert all(20 < mark.ms < mark.probe_ms for mark in marks)


@pytest.mark.parametrize("name", [*(f"leave{number}" for number in range(len(LEAVES))), "goes_on"])
def test_a_training_may_end_well_in_an_unusual_way(name: str, whole: Cases) -> None:
    case = whole[name]
    assert (case.exit_code, case.trace.end, len(case.trace.steps)) == (0, "exit", 2), case.printed
    if name == "goes_on":  # nothing took its place
        assert case.printed == ("FileNotFoundError", "OSError")


@pytest.mark.parametrize("number", range(len(BUGS)))
def test_a_mistake_of_the_probes_is_said_and_ends_nothing(number: int, whole: Cases) -> None:
    case = whole[f"bug{number}"]
    assert "trained 3" in case.printed and case.exit_code == 0
    [(identifier, message)] = case.trace.notes
    assert identifier == "probe-error" and ".py:" in message
    assert (case.run.outcome, case.run.reason_id) == ("untraced", "probe/error")
    assert ".py:" in case.run.problem


def test_an_exception_is_a_crash_even_where_the_command_hides_it(tmp_path: Path) -> None:
    script = (
        "from repro_gate import record, step\nrecord('x', 1.0)\nstep()\nraise ValueError('boom')\n"
    )
    run = trace_script(tmp_path, script, command="python train.py || true")
    assert (run.outcome, run.reason_id) == ("crashed", "run/crashed")
    assert trained(run).end == "exception"
