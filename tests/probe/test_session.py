"""Claims about `probe.session`: a training ends after its last wanted step whatever it catches, and a mistake of the probe's is said."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from repro_gate.compare.traces import compare_runs
from tests.support.tracing import blocks, trace_script, trained

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
LOOPS = {
    "that catches nothing": (
        """
        try:
            while True:
                one()
        finally:
            print("finally", done)
        """,
        ("finally 2",),
    ),
    "that catches Exception": (
        """
        while True:
            try:
                one()
            except Exception:
                print("caught")
            finally:
                print("finally", done)
        """,
        ("finally 1", "finally 2", "finally 2"),
    ),
    "that catches BaseException once": (
        """
        try:
            while True:
                one()
        except BaseException as error:
            print("caught", type(error).__name__, done)
        print("went on")
        """,
        ("caught StopTraining 2", "went on"),
    ),
    "that catches everything for ever": (
        """
        weights = []
        while True:
            try:
                one()
            except BaseException:
                print("caught", done, torch.equal(weights[-1], net.weight) if weights else "")
                weights.append(net.weight.detach().clone())
        """,
        ("caught 2 ", "caught 2 True"),
    ),
}


@pytest.mark.parametrize("loop", LOOPS)
def test_steps_ends_a_loop_exactly_there_and_well(loop: str, tmp_path: Path) -> None:
    source, said = LOOPS[loop]
    run = trace_script(tmp_path, HEAD + textwrap.dedent(source), steps=3)
    assert (run.outcome, run.ended.exit_code, run.steps) == ("stopped", 0, 3), (run.problem, run.ended.tail)
    assert trained(run).end == "steps"
    assert run.ended.tail == said


def test_a_training_shorter_than_its_steps_just_finishes(tmp_path: Path) -> None:
    run = trace_script(tmp_path, HEAD + "one(); one()\n", steps=5)
    assert (run.outcome, run.steps, trained(run).end) == ("finished", 2, "exit")


def test_digests_every_third_step_and_at_the_last(tmp_path: Path) -> None:
    run = trace_script(tmp_path, HEAD + "while True: one()\n", steps=5, every=3)
    trace = trained(run)
    assert len(trace.steps) == 5
    assert sorted({block.step for block in trace.blocks if block.kind == "parameter"}) == [-1, 0, 3, 4, 5]  # 5: as the process ended
    assert sorted({block.step for block in trace.blocks if block.kind == "loss"}) == [0, 1, 2, 3, 4]  # losses are cheap


def test_the_own_time_of_the_probe_is_kept_apart(tmp_path: Path) -> None:
    slow = """
    import time
    import _repro_gate.probe.torch_hooks as hooks
    original = hooks.digest_all
    def slow(*args):
        time.sleep(0.05)
        return original(*args)
    hooks.digest_all = slow
    for _ in range(3):
        time.sleep(0.02)
        one()
    """
    marks = trained(trace_script(tmp_path, HEAD + textwrap.dedent(slow))).steps
    assert all(mark.probe_ms > 150 for mark in marks[1:])  # loss, gradient, parameter
    assert all(20 < mark.ms < 50 for mark in marks[1:])


BUGS = {
    "in a digest": "import _repro_gate.probe.torch_hooks as part\npart.digest_all = None\n",
    "in naming": "import _repro_gate.probe.names as part\npart.name_tensors = None\n",
    "when flags are read": "import _repro_gate.probe.flags as part\npart.read = None\n",
    "in a generator's state": "import _repro_gate.probe.seeds as part\npart.rng_digests = None\n",
    "when waiting for the device": "import _repro_gate.probe.session as part\npart.current().synchronize = lambda: 1 / 0\n",
}


@pytest.mark.parametrize("place", BUGS)
def test_a_mistake_of_the_probes_is_said_and_leaves_the_training_alone(place: str, tmp_path: Path) -> None:
    run = trace_script(tmp_path, HEAD + BUGS[place] + "for _ in range(3): one()\nprint('trained', done)\n")
    assert "trained 3" in run.ended.tail and run.ended.exit_code == 0
    assert (run.outcome, run.reason_id) == ("untraced", "probe/error")
    assert "the probe itself failed" in run.problem and ".py:" in run.problem


def test_a_process_that_leaves_by_os_exit_closes_its_trace(tmp_path: Path) -> None:
    run = trace_script(tmp_path, HEAD + "one()\nimport os\nsys.stdout = None\nos._exit(0)\n")
    assert (run.outcome, trained(run).end) == ("finished", "exit")


def test_an_exception_is_a_crash_even_where_the_command_hides_it(tmp_path: Path) -> None:
    run = trace_script(tmp_path, HEAD + "one()\nraise ValueError('boom')\n", command="python train.py || true")
    assert (run.outcome, run.reason_id) == ("crashed", "run/crashed")
    assert trained(run).end == "exception"


def test_what_finally_does_after_the_last_wanted_step_is_recorded(tmp_path: Path) -> None:
    source = HEAD + "try:\n    while True: one()\nfinally:\n    net.weight.data.add_({0})\n    torch.save(net.state_dict(), 'net.pt')\n"
    changed = trained(trace_script(tmp_path / "1", source.format(1.0), steps=2))
    clean = trained(trace_script(tmp_path / "2", source.format(0.0), steps=2))
    assert changed.stopped and clean.stopped and (changed.end, clean.end) == ("steps", "steps")
    assert len(blocks(clean, "parameter", 2)) == len(blocks(changed, "parameter", 2)) == 1
    assert (
        blocks(changed, "parameter", 1)[0].digests == blocks(clean, "parameter", 1)[0].digests == blocks(clean, "parameter", 2)[0].digests
    )
    assert blocks(changed, "parameter", 2)[0].digests != blocks(clean, "parameter", 2)[0].digests
    assert not compare_runs([changed], [clean]).identical and compare_runs([clean], [clean]).identical


def test_a_stopped_process_that_is_killed_is_compared_up_to_its_last_step(tmp_path: Path) -> None:
    source = HEAD + "import os, signal\ntry:\n    while True: one()\nfinally:\n    {0}\n"
    killed = trained(trace_script(tmp_path / "1", source.format("os.kill(os.getpid(), signal.SIGKILL)"), steps=2))
    clean = trained(trace_script(tmp_path / "2", source.format("pass"), steps=2))
    assert (killed.stopped, killed.end) == (True, None)
    assert compare_runs([killed], [clean]).identical


@pytest.mark.parametrize(
    "leave",
    [
        "os.execv(sys.executable, [sys.executable, '-c', 'print(42)'])",
        "os.execvp('true', ['true'])",
        "os.execle('/bin/sh', 'sh', '-c', 'exit 0', {})",
        "sys.last_value = ValueError('shown, and dealt with')",
        "code.InteractiveInterpreter().runsource('1 / 0')",
    ],
)
def test_a_training_that_ends_well_in_an_unusual_way_is_finished(leave: str, tmp_path: Path) -> None:
    run = trace_script(tmp_path, HEAD + f"import code, os\none()\none()\n{leave}\n")
    assert (run.outcome, trained(run).end, len(trained(run).steps)) == ("finished", "exit", 2), (run.problem, run.ended.tail)


def test_a_training_goes_on_where_nothing_took_its_place(tmp_path: Path) -> None:
    source = (
        HEAD
        + """
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
    )
    run = trace_script(tmp_path, source)
    assert (run.outcome, trained(run).end, len(trained(run).steps)) == ("finished", "exit", 2), (run.problem, run.ended.tail)
    assert run.ended.tail == ("FileNotFoundError", "OSError")
