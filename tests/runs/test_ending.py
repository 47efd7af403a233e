"""How a run is said to have ended: the crash, and the exception in the end of its log."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from repro_gate.runs.ending import Raised, crash_of, ending_of, last_exception
from repro_gate.runs.process import Ended
from repro_gate.trace.fields import Location
from tests.support.built_traces import spec, training

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


NO_FILL = """RuntimeError: "fill_empty_deterministic_" not implemented for 'Bits8'"""
OVERLAP = '  File "/usr/lib/python3/site-packages/deep_ep/buffer.py", line 402, in combine'
ALLOW_FILL = "allow: [{flag: torch.utils.deterministic.fill_uninitialized_memory"
NO_PUT = "put_ does not have a deterministic implementation, but you set 'torch.use_deterministic_algorithms"


@pytest.mark.parametrize(
    ("ended", "reason", "remedy"),
    [
        (
            Ended(exit_code=1, tail=(NO_PUT,)),
            "no-deterministic-implementation",
            "determinism.allow",
        ),
        (Ended(exit_code=2), "crashed", "see the log's end"),
        (Ended(exit_code=127), "crashed", "git-ignored files (a .venv, say) are not copied"),
        (Ended(exit_code=1, tail=("No module named 'torch'",)), "crashed", "activate the env"),
        (Ended(exit_code=1, tail=(NO_FILL,)), "crashed", ALLOW_FILL),
        (Ended(exit_code=1, tail=(OVERLAP, "RuntimeError: CUDA error")), "crashed", ALLOW_FILL),
        (Ended(exit_code=-9, out_of_memory=True), "out-of-memory", "larger machine"),
        (Ended(exit_code=-9), "killed", "look for what kills processes here"),
        (Ended(exit_code=-15), "killed", "see the log's end"),
        (Ended(exit_code=0), "", ""),
    ],
)
def test_each_way_to_crash_has_its_reason_and_remedy(
    ended: Ended, reason: str, remedy: str
) -> None:
    crash = crash_of(ended)
    assert (crash.reason_id if crash else "run/") == f"run/{reason}"
    assert remedy in (crash.remedy if crash else "")
    assert reason[:2] != "no" or (crash and "`put_`" in crash.problem)


ON_NODES = {"SLURM_STEP_NUM_TASKS": "2", "WORLD_SIZE": "4"}


@pytest.mark.parametrize(
    ("keys", "variables", "lost"),
    [
        (("rank0", "rank1"), ON_NODES, "2, 3"),
        (("rank0", "rank1", "rank2", "rank3/Thread-1"), ON_NODES, ""),
        (("rank0",), {"SLURM_STEP_NUM_TASKS": "2"}, "1"),
        (("main",), ON_NODES, ""),  # it does not use the ranks
        (("rank0",), {"WORLD_SIZE": "4"}, ""),  # one shard, without a launcher
    ],
)
def test_a_rank_of_slurms_that_left_no_trace_is_missed(
    keys: tuple[str, ...], variables: Mapping[str, str], lost: str
) -> None:
    traces = [replace(training(key=key), variables=dict(variables)) for key in keys]
    ending = ending_of(spec(), traces, "", Ended(exit_code=0), None)
    assert ending.reason_id == ("run/scratch-not-shared" if lost else "")
    assert not lost or f"of rank {lost} there is no trace" in ending.problem
