"""Claims about `assert_reproducible`."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from tests.support.gates import LOOP, ROOT, environment, training, with_line

_RUN = "{run: 'python train.py {seed}', steps: 4, timeout: 2m}"
_SPEC = f"version: 1\ntrain: {_RUN}\ncost: {{measure: false}}\n"
# never equal in two runs
_DRAWS = with_line("import os; x += int.from_bytes(os.urandom(6), sys.byteorder) / 2**48")
_TESTS = """
from repro_gate.commands.pytest_plugin import assert_reproducible as from_the_current_folder

def test_good(assert_reproducible):  # the fixture's paths start at pytest's root folder
    report = assert_reproducible("good/repro.yml", seed=7, steps=3, set={"capture.every": 3, "train.env": {"A": "1"}})
    assert (report["verdict"], report["subject"]["seeds"], report["determinism"]["steps"]) == ("pass", [7], 3)

def test_diverging():
    from_the_current_folder("../diverging")

def test_crashing(assert_reproducible):
    assert_reproducible("crashing")

def test_missing(assert_reproducible):
    assert_reproducible("nowhere")

def test_misspelt(assert_reproducible):
    assert_reproducible("good", set={"train.stpes": 3})
"""


def _pytest(folder: Path, source: str) -> list[str]:
    """The command of a pytest on one file of tests, without this repository's own settings."""
    (folder / "test_it.py").write_text(source)
    (folder / "pytest.ini").write_text("[pytest]\n")
    return [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(folder / "test_it.py")]


@pytest.fixture(scope="module")
def failures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What pytest printed of each failed test, by its name; started elsewhere than in the root
    folder, on GitHub."""
    folder = tmp_path_factory.mktemp("project")
    training(folder / "good", LOOP, _SPEC)
    training(folder / "diverging", _DRAWS, _SPEC + "diagnosis: {runs: 6}\n")
    training(folder / "crashing", "raise ValueError('##[add-mask]x')\n", _SPEC)
    (folder / "elsewhere").mkdir()
    options = {"cwd": folder / "elsewhere", "env": environment(GITHUB_ACTIONS="true")}
    command = _pytest(folder, _TESTS)
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 1 and "4 failed, 1 passed" in done.stdout, done.stdout
    assert "pytest_plugin.py:" not in done.stdout
    _, *parts = re.split(r"^_+ (test_\w+) _+$", done.stdout, flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def test_what_is_no_pass_fails_with_cause_and_remedy(failures: dict[str, str]) -> None:
    failure = failures["test_diverging"]
    line = LOOP.split("\n").index("    # here") + 1
    assert "E       Failed: ../diverging: exit code 1" in failure and "diverges at" in failure
    assert f"os.urandom(6) in train.py:{line}" in failure and "unseeded-rng" in failure
    assert "repro-gate run ../diverging --seed 42" in failure
    # the user's own line is shown
    assert '>       from_the_current_folder("../diverging")' in failure
    failure = failures["test_crashing"]
    assert "crashing: exit code 3" in failure and "run/crashed" in failure
    assert "# #[add-mask]x" in failure and "##[" not in failure
    for name, words in (("test_missing", "is not there"), ("test_misspelt", "`steps`?")):
        assert "exit code 2" in failures[name] and words in failures[name]


def test_what_ends_the_wait_ends_the_gate_and_its_training(tmp_path: Path) -> None:
    source = """
        import os, pathlib, time
        pathlib.Path(os.environ['PID']).write_text(str(os.getpid()))
        time.sleep(600)
    """
    training(tmp_path, source, _SPEC)
    pid, temporary = tmp_path / "pid", tmp_path / "tmp"
    temporary.mkdir()
    call = f"assert_reproducible(set={{'train.env.PID': {str(pid)!r}}})"
    command = _pytest(tmp_path, f"def test_training(assert_reproducible):\n    {call}\n")
    environ = environment(TMPDIR=str(temporary))
    with subprocess.Popen(command, cwd=tmp_path, env=environ, stdout=subprocess.DEVNULL) as process:
        end = time.monotonic() + 60
        while not (pid.is_file() and pid.read_text()) and time.monotonic() < end:
            time.sleep(0.05)
        # to pytest alone, as a time limit's exception comes to it alone
        process.send_signal(signal.SIGINT)
        process.wait(60)
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)
    assert not [*temporary.glob("repro-gate*")]


def test_every_pytest_start_loads_it_and_nothing_of_the_gate_with_it() -> None:
    plugin = "repro_gate.commands.pytest_plugin"
    assert plugin in [entry.value for entry in entry_points(group="pytest11")]
    before = "import pytest, sys; before = set(sys.modules)"
    code = f"{before}; import {plugin}; print(*set(sys.modules) - before)"
    loaded = subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, text=True).split()
    ours = {name for name in loaded if name.startswith("repro_gate")}
    assert ours <= {"repro_gate", "repro_gate._version", "repro_gate.commands", plugin}
    assert {name.partition(".")[0] for name in {*loaded} - ours} <= set(sys.stdlib_module_names)
