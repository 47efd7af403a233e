"""`factors.hashing`: children with random hashes are told; pinned, they get the seed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from repro_gate.probe.factors.hashing import heeding
from tests.probe.factors.runs import differing, pinned, uses_of, watched_twice

CHILD = (
    'import sys\nwords = {"a%d" % number for number in range(40)}\nprint(hash("text"), *words, '
    "sys.flags.no_user_site, sys.argv[1:])\n"
)
PARENT = """
import os, subprocess, sys
bare = {name: value for name, value in os.environ.items() if name != "PYTHONHASHSEED"}
subprocess.run([sys.executable, "child.py"], env=bare)
subprocess.run([sys.executable, "-I", "child.py", "-I"])
subprocess.run([sys.executable, "-sE", "child.py"])
subprocess.run(["sh", "run.sh"])
os.system("unset PYTHONHASHSEED; python child.py")
os.spawnve(os.P_WAIT, sys.executable, [sys.executable, "child.py"], bare)
subprocess.run([sys.executable, "child.py"])
subprocess.run([sys.executable, "child.py"], env={**bare, "PYTHONHASHSEED": "7"})
print(hash("text"))
"""
FILES = {"train.py": PARENT, "child.py": CHILD, "run.sh": 'env -i PATH="$PATH" python child.py x\n'}


def test_children_with_random_hashes_are_told_and_pinned_and_others_stay(tmp_path: Path) -> None:
    env = {"PYTHONHASHSEED": "42"}
    both = watched_twice(tmp_path, FILES, env=env)
    assert differing(both) == [True] * 6 + [False] * 3
    places = {(use.file, use.line) for use in uses_of(both[0], "hashing")}
    assert places == {("child.py", 1), *(("train.py", line) for line in (4, 5, 6, 9))}
    found = pinned(tmp_path, FILES, "hashing", env=env)
    hashes, plain = ([line.split()[0] for line in tail] for tail in (found, both[0].ended.tail))
    assert len(set(hashes[:7])) == 1 and hashes[6:] == plain[6:]
    assert found[1].endswith("1 ['-I']") and found[3].endswith("['x']")


@pytest.mark.parametrize(
    ("command", "wanted"),
    [
        (["python", "-I", "x.py", "-I"], ["python", "-s", "x.py", "-I"]),
        (["python", "-E", "-c", "-E"], ["python", "-c", "-E"]),
        (["python", "-Ec", "print()"], ["python", "-c", "print()"]),
        (["python", "-RB", "x.py", "-R"], ["python", "-B", "x.py", "-R"]),
        (["python", "-Im", "x"], ["python", "-sm", "x"]),
        (["python", "-X", "x", "-uE", "x.py"], ["python", "-X", "x", "-uE", "x.py"]),
        (["python", "-"], ["python", "-"]),
        ([b"python", b"-E", b"x"], [b"python", b"x"]),
        (["python"], ["python"]),
    ],
)
def test_options_against_the_environment_go(command: list[str], wanted: list[str]) -> None:
    safe = "-sP" if sys.version_info >= (3, 11) else "-s"
    assert heeding(command) == [
        item.replace("-s", safe) if isinstance(item, str) else item for item in wanted
    ]
