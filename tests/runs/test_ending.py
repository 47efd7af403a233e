"""How a run is said to have ended: the crash, and the exception in the end of its log."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from repro_gate.runs.ending import Raised, crash_of, last_exception
from repro_gate.runs.process import Ended
from repro_gate.trace.fields import Location

RANK = """[rank0]: Traceback (most recent call last):
[rank0]:   File "/tmp/repro-gate-1/run/workspace/src/train.py", line 9, in <module>
[rank0]:     main()
[rank0]:   File "/env/lib/python3.12/site-packages/torch/nn/modules/module.py", line 1, in _call_impl
[rank0]: RuntimeError: mat1 and mat2 shapes cannot be multiplied
W0101 torchrun: closing
Traceback (most recent call last):
  File "/env/bin/torchrun", line 8, in <module>
    sys.exit(main())
  File "/env/lib/python3.12/site-packages/torch/distributed/run.py", line 1, in main
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
"""


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("import json\n\n\njson.loads('{')\n", "(char 1) (train.py:4)"),
        (
            "try:\n    1 / 0\nexcept ZeroDivisionError:\n    raise ValueError('second\\nand more')\n",
            "ValueError: second (train.py:4)",
        ),
        ("x = 1\nif\n", "(train.py:2)"),
    ],
)
def test_the_last_exception_is_told_with_the_users_frame(
    source: str, said: str, tmp_path: Path
) -> None:
    """Of a script that lies where a run's files lie."""
    script = tmp_path / "run/workspace/train.py"
    script.parent.mkdir(parents=True)
    script.write_text(source)
    command = [sys.executable, "train.py"]
    done = subprocess.run(command, cwd=script.parent, capture_output=True, text=True, check=False)
    found = str(last_exception([*done.stderr.splitlines(), "bye"]))
    assert found.endswith(said) and "Error: " in found


def test_of_a_ranks_and_a_launchers_traceback_the_one_through_the_users_code_counts() -> None:
    text = "RuntimeError: mat1 and mat2 shapes cannot be multiplied"
    assert last_exception(RANK.splitlines()) == Raised(text, Location("src/train.py", 9))
    for log in ((), ("epoch 1: loss 0.5", "Killed"), ('  File "a.py", line 1',)):
        assert last_exception(log) is None
    head = ["Traceback (most recent call last):", '  File "a.py", line 1, in f']
    assert len(str(last_exception([*head, "E: " + "x" * 10_000]))) < 400


def test_an_operator_without_a_deterministic_form_is_named() -> None:
    said = "RuntimeError: put_ does not have a deterministic implementation, but you set"
    crash = crash_of(Ended(exit_code=1, tail=(f"{said} 'torch.use_deterministic_algorithms'.",)))
    assert crash is not None and crash.reason_id == "run/no-deterministic-implementation"
    assert "`put_`" in crash.problem and "determinism.allow" in crash.remedy
