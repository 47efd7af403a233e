"""The probe gets in by every usual way of starting Python, and never silently not at all."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

import pytest

from repro_gate.runs.environment import INJECT
from tests.support.gates import ROOT, tiered
from tests.support.starting import ran
from tests.support.tracing import names, trace_script, trained

TRAIN = """
import torch
net = torch.nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(2):
    net(torch.randn(4, 3)).square().mean().backward()
    opt.step()
    opt.zero_grad()
"""
LIGHT = """
from repro_gate import record, step
for _ in range(2):
    record("model", {"weight": 0.5, "bias": 1.5})
    step()
"""  # what starts the probe does not depend on torch, whose import takes seconds
EXEC = """
import os, sys
os.environ["PYTHONPATH"] = "src"
os.execv(sys.executable, [sys.executable, "train.py"])
"""
CHANGED = """
import os, subprocess, sys
os.environ["PYTHONPATH"] = "src"
subprocess.run([sys.executable, "train.py"], check=True)
"""
CLEARED = """
import os, subprocess, sys
subprocess.run([sys.executable, "train.py"], env={"PATH": os.environ["PATH"], "PYTHONPATH": "src"}, check=True)
"""
SPAWNED = """
import os, sys
pid = os.posix_spawn(sys.executable, [sys.executable, "train.py"], {"A": "b"})
sys.exit(os.waitpid(pid, 0)[1])
"""
MINE = "import sys\nassert sys.mine\n"
OWN_NAMES = """
trace probe spec session names flags loss digest rng audit children distance resource sdk start
repro_gate_train writer format torch_hooks
"""
OWN = "".join(f"import {name}; assert {name}.WHOSE == {name!r}\n" for name in OWN_NAMES.split())
IN_SRC = {"train.py": "import model", "src/model.py": LIGHT}
COMMANDS = {
    "python -m": ("python -m pkg.train", {"pkg/__init__.py": "", "pkg/train.py": LIGHT}),
    "a shell wrapper": ("sh run.sh", {"run.sh": "python train.py\necho done\n", "train.py": LIGHT}),
    "a PYTHONPATH of the command's own": ("PYTHONPATH=src python train.py", IN_SRC),
    "standard input": ("python - < train.py", {"train.py": LIGHT}),
    "exec": ("python start.py", {"start.py": EXEC, **IN_SRC}),
    "a PYTHONPATH that the parent changed": ("python start.py", {"start.py": CHANGED, **IN_SRC}),
    "an environment made from nothing": ("python start.py", {"start.py": CLEARED, **IN_SRC}),
    "posix_spawn": ("python start.py", {"start.py": SPAWNED, "train.py": LIGHT}),
    "a folder before ours that holds a sitecustomize": (
        "export PYTHONPATH=boot:$PYTHONPATH; python train.py",
        {"boot/sitecustomize.py": "import sys; sys.mine = True", "train.py": MINE + LIGHT},
    ),
    "a folder with names like ours": (
        "python train.py",
        {f"{name}.py": f"WHOSE = {name!r}" for name in OWN_NAMES.split()}
        | {"train.py": OWN + TRAIN},
    ),
}


@pytest.mark.parametrize("way", tiered(COMMANDS, [*COMMANDS][:-1]))
def test_a_training_is_traced_when_it_is_started_by(way: str, tmp_path: Path) -> None:
    command, files = COMMANDS[way]
    run = trace_script(tmp_path, files, command=command)
    assert run.outcome == "finished", (run.problem, run.ended.tail)
    trace = trained(run)
    assert [name.rpartition(".")[2] for name in names(trace, "parameter", 1)] == ["weight", "bias"]
    assert (len(trace.steps), trace.key, trace.end) == (2, "main", "exit")
    assert run.ended.tail == (("done",) if way == "a shell wrapper" else ()), "nothing is printed"


def test_the_users_own_sitecustomize_still_runs_and_keeps_its_name(tmp_path: Path) -> None:
    check = """
import sys, sitecustomize
assert sitecustomize.MINE and "boot" in sitecustomize.__file__
assert not any("inject" in entry for entry in sys.path)
"""
    files = {"boot/sitecustomize.py": "MINE = True", "train.py": check + LIGHT}
    assert len(trained(trace_script(tmp_path, files, env={"PYTHONPATH": "boot"})).steps) == 2


def test_where_the_runs_folder_is_not_seen_a_process_says_so_and_goes_on(tmp_path: Path) -> None:
    """As on a node of a cluster that does not share it, or in a container."""
    source = "from repro_gate import record, step\nrecord('loss', 1.0)\nstep()\nprint('done')\n"
    env = {"PYTHONPATH": f"{INJECT}:{ROOT}", "REPRO_GATE_PROBE": "/none", "SLURMD_NODENAME": "gpu7"}
    done = ran([sys.executable, "-c", source], env, tmp_path)
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert done.stderr == "repro-gate: gpu7 does not see /none\n"


def test_a_clock_that_is_behind_the_gates_is_a_note(tmp_path: Path) -> None:
    source = {"train.py": "from repro_gate import record, step\nrecord('loss', 1.0)\nstep()\n"}
    run = trace_script(tmp_path, source, probe={"started": time.time_ns() + 6000 * 10**9})
    [(name, message)] = run.traces[0].notes
    assert name == "clock-behind"
    assert re.search(r"is (59\d\d|6000) s behind", message)


WAITS = "import time, torch\ntime.sleep(2)  # long enough to be seen from outside\n"


def test_a_python_that_cannot_be_reached_is_named_with_its_line(tmp_path: Path) -> None:
    command = f"['/bin/sh', '-c', 'exec env -i {sys.executable} child.py']"
    source = f"{LIGHT}import subprocess\nsubprocess.run({command}, check=True)\n"
    run = trace_script(tmp_path, {"train.py": source, "child.py": WAITS})
    assert (run.outcome, run.reason_id) == ("untraced", "probe/untraced-process")
    line = source.count("\n")
    assert run.problem.endswith(f": {sys.executable} child.py, started at train.py:{line}")
    assert "PYTHONPATH" in run.remedy


@pytest.mark.slow
@pytest.mark.parametrize("how", ["env -i {0}", "{0} -I", "python -E"])
def test_a_python_that_the_command_keeps_from_us_is_named(how: str, tmp_path: Path) -> None:
    run = trace_script(tmp_path, WAITS, command=how.format(sys.executable) + " train.py")
    assert (run.outcome, run.reason_id) == ("untraced", "probe/untraced-process")
    assert run.problem.endswith(" train.py")


def test_processes_of_multiprocessing_train_under_their_names(short_path: Path) -> None:
    script = """
    import multiprocessing, subprocess, sys
    def work():
        import model
    if __name__ == "__main__":
        for method in ("spawn", "fork", "forkserver"):
            process = multiprocessing.get_context(method).Process(target=work, name="by-" + method)
            process.start()
            process.join()
            assert process.exitcode == 0
        # children that do not train are no trouble
        subprocess.run([sys.executable, "-I", "-c", "print(1)"], check=True)
        subprocess.run(["true"], env={})
    """
    run = trace_script(short_path, {"train.py": script, "model.py": LIGHT})
    assert run.outcome == "finished", (run.problem, run.ended.tail)
    found = {trace.key: trace for trace in run.traces if trace.trained}
    assert sorted(found) == ["by-fork", "by-forkserver", "by-spawn"]
    assert {(len(trace.steps), trace.end) for trace in found.values()} == {(2, "exit")}


def test_the_python_of_a_path_in_train_env_is_the_one_that_runs(tmp_path: Path) -> None:
    other = tmp_path / "venv" / "bin"
    other.mkdir(parents=True)
    (other / "python").write_text(f'#!/bin/sh\necho the other one\nexec {sys.executable} "$@"\n')
    (other / "python").chmod(0o755)
    run = trace_script(tmp_path, LIGHT, env={"PATH": f"{other}:/usr/bin:/bin"})
    assert run.outcome == "finished", (run.problem, run.ended.tail)
    assert run.ended.tail == ("the other one",)


def test_jupyter_waits_for_the_probe_unless_told_otherwise(tmp_path: Path) -> None:
    source = """
from jupyter_client.manager import KernelManager
from repro_gate import record, step
assert KernelManager().shutdown_wait_time > 60
assert KernelManager(shutdown_wait_time=1.0).shutdown_wait_time == 1
record("model", {"weight": 0.5})
step()
"""
    trained(trace_script(tmp_path, source))
