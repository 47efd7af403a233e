"""Claims about `factors.commands`: what a child prints is noted at its line, and read as ever."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from repro_gate.trace.format import ANY_ORDER
from repro_gate.trace.model import Used
from tests.probe.factors.runs import once

pytestmark = pytest.mark.slow

RANDOM = "import os, sys; sys.stdout.write(os.urandom(%d).hex())"
HEAD = f"""
import asyncio, os, subprocess, sys
command = [sys.executable, "-c", "import random; print(random.SystemRandom().random())"]
large = [sys.executable, "-c", {RANDOM % 150_000!r}]
PIPE = subprocess.PIPE
async def ask():
    child = await asyncio.create_subprocess_exec(*command, stdout=PIPE)
    return await child.communicate()
"""
WATCH = {"watch": True}
WAYS = """
subprocess.run(command, capture_output=True, text=True, check=True)
subprocess.check_output(command)
os.popen('shuf -n 9 -i 1-100000').read()
list(subprocess.Popen(command, stdout=PIPE, text=True).stdout)
subprocess.Popen(command, stdout=PIPE, bufsize=0).stdout.read()
subprocess.run(large, stdout=PIPE, check=True)
subprocess.run(command, stdout=PIPE, stderr=PIPE, input='x', text=True)
subprocess.run('uuidgen >&2 || shuf -n 9 -i 1-100000 >&2', shell=True, stderr=PIPE)
asyncio.run(ask())
"""


def noted(tmp_path: Path, source: str | dict[str, str], **options: Any) -> list[Used]:
    """The uses that came of commands."""
    done = once(tmp_path, source, WATCH, **options)
    [trace] = [trace for trace in done.traces if "train.py" in trace.argv]
    factors = ("commands", "clock", "entropy", "identity", "listing")
    return [use for use in trace.uses if use.factor in factors and use.outside]


def test_the_output_of_a_child_is_noted_however_it_is_read(tmp_path: Path) -> None:
    source = HEAD + WAYS
    first, second = (
        {(use.line, use.source): use.digest for use in noted(tmp_path, source)} for _ in range(2)
    )
    assert first.keys() == second.keys()
    assert len({key[0] for key in first if first[key] != second[key]}) == WAYS.count("\n") - 1


FACTORS = {
    "date +%N": "clock",
    "cat train.py | shuf": "entropy",
    "head -c 8 /dev/urandom | od": "entropy",
    "hostname": "identity",
    "find .": "listing",
    "cat update.txt; cat /proc/uptime": "commands",
    "env A=1 /usr/bin/date +%N | cat": "clock",
    "echo dated": "commands",
}


def test_a_program_whose_business_is_known_is_a_use_of_that_factor(tmp_path: Path) -> None:
    calls = [f"subprocess.run({name!r}, shell=True, capture_output=True)\n" for name in FACTORS]
    files = {"train.py": "import subprocess\n" + "".join(calls), "update.txt": "of no date\n"}
    uses = noted(tmp_path, files)
    found = {(use.line, use.factor, use.file) for use in uses}
    assert found == {(at, factor, "train.py") for at, factor in enumerate(FACTORS.values(), 2)}
    assert all(use.call.startswith("subprocess.run(") for use in uses)


def test_the_same_lines_in_another_order_are_told_from_other_lines(tmp_path: Path) -> None:
    source = "import subprocess\nsubprocess.run('cat lines', shell=True, capture_output=True)\n"

    def uses_of(lines: str) -> list[str]:
        uses = noted(tmp_path, {"train.py": source, "lines": "\n".join(lines)})
        found = {use.source: use.digest for use in uses}
        return [found["cat lines"], found["cat lines" + ANY_ORDER]]

    first, turned, other = uses_of("123"), uses_of("312"), uses_of("314")
    assert first == uses_of("123")
    assert first[0] != turned[0] != other[0] and first[1] == turned[1] != other[1]


def test_a_child_whose_output_stays_the_same_is_as_ever(tmp_path: Path) -> None:
    source = """
    import subprocess
    failed = subprocess.run("echo gone; exit 3", shell=True, capture_output=True, text=True)
    late = subprocess.Popen(["sleep", "20"], stdout=subprocess.PIPE)
    try:
        late.communicate(timeout=0.1)
    except subprocess.TimeoutExpired:
        late.kill()
    head = subprocess.Popen("yes | head -n 100000", shell=True, stdout=subprocess.PIPE)
    first = head.stdout.read(4)
    head.stdout.close()
    print([failed.stdout, failed.returncode, late.wait(), first])
    """
    tail = once(tmp_path, source, WATCH).ended.tail
    assert ast.literal_eval(tail[-1]) == ["gone\n", 3, -9, b"y\ny\n"]


def test_what_a_child_writes_to_a_file_is_noted_at_its_line(tmp_path: Path) -> None:
    source = """
    import os, subprocess
    from pathlib import Path
    os.system("shuf -n 9 -i 1-100000 > a.txt")
    subprocess.run(["sh", "-c", "shuf -n 9 -i 1-100000 > b.txt"], check=True)
    with open("c.txt", "w") as file:
        subprocess.run(["shuf", "-n", "9", "-i", "1-100000"], stdout=file)
    subprocess.run(["true"])
    found = [Path(name).read_text() for name in ("a.txt", "b.txt", "c.txt")]
    os.system("shuf -n 9 -i 1-100000 > a.txt")
    found.append(open("a.txt").read())
    Path("own.txt").write_text("x")
    print([*found, Path("own.txt").read_text(), len(Path("train.py").read_text()) > 0])
    """
    first, second = (
        {(use.line, use.factor, use.digest) for use in uses if "shuf" in use.source}
        for uses in (noted(tmp_path, source) for _ in range(2))
    )
    assert {use[:2] for use in first} == {(line, "entropy") for line in (4, 5, 7, 10)}
    assert not first & second


def test_what_a_script_wrote_before_is_noted_where_it_is_read(tmp_path: Path) -> None:
    script = "date +%N > seed.txt\necho fixed > fixed.txt\nexec python train.py\n"
    files = {"train.py": "open('seed.txt').read()\nopen('fixed.txt').read()\n", "run.sh": script}
    runs = (noted(tmp_path, files, command="sh run.sh") for _ in range(2))
    first, second = (
        {use.line: use.digest for use in uses if use.factor == "commands"} for uses in runs
    )
    assert first[1] != second[1] and first[2] == second[2]
