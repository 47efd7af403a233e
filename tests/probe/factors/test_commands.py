"""Claims about `probe.factors.commands`: what a child prints is noted at the line that starts it,
and a pinned pair reads the same."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from repro_gate.runs.launch import Run
from repro_gate.trace.format import ANY_ORDER
from repro_gate.trace.model import Used
from tests.support.tracing import trace_script

pytestmark = pytest.mark.slow

RANDOM = "import os, sys; sys.stdout.write(os.urandom(%d).hex())"
HEAD = f"""
import asyncio, os, subprocess, sys
command = [sys.executable, "-c", "import random; print(random.SystemRandom().random())"]
large = [sys.executable, "-c", {RANDOM % 150_000!r}]
"""
WAYS = {
    "run": "subprocess.run(command, capture_output=True, text=True, check=True).stdout",
    "check_output": "subprocess.check_output(command)",
    "popen": "os.popen('shuf -n 9 -i 1-100000').read()",
    "lines": "list(subprocess.Popen(command, stdout=subprocess.PIPE, text=True).stdout)",
    "unbuffered": "subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=0).stdout.read()",
    "large": "subprocess.run(large, stdout=subprocess.PIPE, check=True).stdout[-50:]",
    "both": "subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, input='x', "
    "text=True).stdout",
    "stderr": "subprocess.run('uuidgen >&2 || shuf -n 9 -i 1-100000 >&2', shell=True, "
    "stderr=subprocess.PIPE).stderr",
    "async": "asyncio.run(ask())",
}
ASYNC = """
async def ask():
    child = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    return (await child.communicate())[0]
"""


def run(tmp_path: Path, source: str | dict[str, str], name: str, factors: dict[str, Any]) -> Run:
    done = trace_script(tmp_path, source, name=name, factors=factors)
    assert done.ended.exit_code == 0, done.ended.tail
    return done


def pair(tmp_path: Path, source: str | dict[str, str], *pin: str) -> tuple[Any, Any]:
    """What two runs print with factors pinned."""
    first = run(tmp_path, source, "a", {"pin": dict.fromkeys(pin)})
    second = run(tmp_path, source, "b", {"pin": dict.fromkeys(pin), "recording": str(first.folder)})
    return ast.literal_eval(first.ended.tail[-1]), ast.literal_eval(second.ended.tail[-1])


def noted(tmp_path: Path, source: str | dict[str, str], name: str = "watched") -> list[Used]:
    """The uses that came of commands."""
    [trace] = [
        trace
        for trace in run(tmp_path, source, name, {"watch": True}).traces
        if "train.py" in trace.argv
    ]
    return [
        use
        for use in trace.uses
        if use.factor in ("commands", "clock", "entropy", "identity", "listing")
        and use.file
        and use.count
    ]


def test_the_output_of_a_child_is_held_fixed_however_it_is_read(tmp_path: Path) -> None:
    source = (
        HEAD
        + ASYNC
        + "print({"
        + ", ".join(f"{name!r}: {call}" for name, call in WAYS.items())
        + "})\n"
    )
    first, second = pair(tmp_path, source, "commands")
    assert first == second
    assert all(first.values())
    third = run(tmp_path, source, "c", {})
    assert all(ast.literal_eval(third.ended.tail[-1])[name] != first[name] for name in WAYS)


@pytest.mark.slow
def test_a_child_that_answers_line_by_line_is_held_fixed_and_not_kept_waiting(
    tmp_path: Path,
) -> None:
    worker = (
        "import random, sys\\nfor line in sys.stdin: print(line.strip(), "
        "random.SystemRandom().random(), 'x' * 300, flush=True)"
    )
    source = f"""
    import subprocess, sys
    child = subprocess.Popen([sys.executable, "-c", "{worker}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    answers = []
    for number in range(400):
        print(number, file=child.stdin, flush=True)
        answers.append(child.stdout.readline()[:20])
    child.stdin.close()
    print([answers, child.wait(), child.stdout.read()])
    """
    first, second = pair(tmp_path, source, "commands")
    assert first == second
    assert [answer.split()[0] for answer in first[0]] == [str(number) for number in range(400)]


@pytest.mark.parametrize(
    ("command", "factor"),
    [
        ("date +%N", "clock"),
        ("cat train.py | shuf", "entropy"),
        ("head -c 8 /dev/urandom | od", "entropy"),
        ("hostname", "identity"),
        ("find .", "listing"),
        ("sh stamp.sh", "clock"),
        ("cat update.txt; cat /proc/uptime", "commands"),
        ("env A=1 /usr/bin/date +%N | cat", "clock"),
        ("echo dated", "commands"),
    ],
)
def test_a_program_whose_business_is_known_is_a_use_of_that_factor(
    tmp_path: Path, command: str, factor: str
) -> None:
    files = {
        "train.py": f"import subprocess\nout = subprocess.run({command!r}, shell=True, "
        "capture_output=True).stdout\n",
        "stamp.sh": "date +%s%N\n",
        "update.txt": "the date is of no use here\n",
    }
    uses = [use for use in noted(tmp_path, files) if use.source.startswith(command)]
    assert {(use.factor, use.file, use.line) for use in uses} == {(factor, "train.py", 2)}
    assert uses[0].call.startswith("subprocess.run(")


def test_a_known_program_is_held_fixed_with_its_factor_and_others_are_not(tmp_path: Path) -> None:
    source = (
        "import subprocess\nprint([subprocess.getoutput('date +%N'), subprocess.getoutput('cat "
        "/proc/uptime')])\n"
    )
    first, second = pair(tmp_path, source, "clock")
    assert first[0] == second[0]
    assert first[1] != second[1]


def test_the_same_lines_in_another_order_are_told_from_other_lines(tmp_path: Path) -> None:
    source = (
        "import subprocess, sys\nsubprocess.run('cat lines', shell=True, capture_output=True)\n"
    )
    seen = {}
    for name, lines in (
        ("a", "1\n2\n3\n"),
        ("b", "3\n1\n2\n"),
        ("c", "3\n1\n4\n"),
        ("d", "1\n2\n3\n"),
    ):
        seen[name] = {
            use.source.removeprefix("cat lines"): use.digest
            for use in noted(tmp_path, {"train.py": source, "lines": lines}, name)
        }
    assert seen["a"] == seen["d"]
    assert seen["a"][""] != seen["b"][""] != seen["c"][""]
    assert seen["a"][ANY_ORDER] == seen["b"][ANY_ORDER] != seen["c"][ANY_ORDER]


def test_a_child_whose_output_stays_the_same_is_as_ever(tmp_path: Path) -> None:
    source = """
    import subprocess, sys
    from concurrent.futures import ThreadPoolExecutor
    def double(number):
        return int(subprocess.check_output([sys.executable, "-c", "print(2 * %d)" % number]))
    with ThreadPoolExecutor(3) as pool:
        doubled = list(pool.map(double, range(6)))
    failed = subprocess.run("echo gone; exit 3", shell=True, capture_output=True, text=True)
    late = subprocess.Popen(["sleep", "20"], stdout=subprocess.PIPE)
    try:
        late.communicate(timeout=0.1)
    except subprocess.TimeoutExpired:
        late.kill()
    quiet = subprocess.run(["true"], stdout=subprocess.DEVNULL)
    head = subprocess.Popen("yes | head -n 100000", shell=True, stdout=subprocess.PIPE)
    first = head.stdout.read(4)
    head.stdout.close()
    print([doubled, failed.stdout, failed.returncode, late.wait(), quiet.returncode, first, head.wait() != None])
    """
    free = ast.literal_eval(run(tmp_path, source, "free", {}).ended.tail[-1])
    assert pair(tmp_path, source, "commands") == (free, free)
    watched = run(tmp_path, source, "watched", {"watch": True})
    assert ast.literal_eval(watched.ended.tail[-1]) == free


def test_what_a_child_writes_to_a_file_of_the_workspace_is_held_fixed(tmp_path: Path) -> None:
    source = """
    import os, subprocess
    from pathlib import Path
    os.system("shuf -n 9 -i 1-100000 > a.txt")
    subprocess.run(["sh", "-c", "shuf -n 9 -i 1-100000 > b.txt"], check=True)
    with open("c.txt", "w") as file:
        subprocess.run(["shuf", "-n", "9", "-i", "1-100000"], stdout=file)
    found = [Path(name).read_text() for name in ("a.txt", "b.txt", "c.txt")]
    os.system("shuf -n 9 -i 1-100000 > a.txt")
    found.append(open("a.txt").read())
    Path("own.txt").write_text("x")
    print([*found, Path("own.txt").read_text(), len(Path("train.py").read_text()) > 0])
    """
    seen = [
        {
            (use.line, use.factor, use.digest)
            for use in noted(tmp_path, source, name)
            if "shuf" in use.source
        }
        for name in ("x", "y")
    ]
    assert {(line, factor) for line, factor, _ in seen[0]} == {
        (line, "entropy") for line in (4, 5, 7, 9)
    }
    assert not seen[0] & seen[1]
    first, second = pair(tmp_path, source, "commands")
    assert first == second
    assert first[0] != first[3]
    assert all(first)


def test_what_a_script_wrote_before_the_training_is_noted_at_the_scripts_line(
    tmp_path: Path,
) -> None:
    script = (
        "#!/bin/sh\n# makes seed.txt\ndate +%N > seed.txt\necho fixed > fixed.txt\nexec python "
        "train.py\n"
    )
    files = {
        "train.py": "print([open('seed.txt').read(), open('fixed.txt').read()])\n",
        "run.sh": script,
    }
    done = [
        trace_script(tmp_path, files, command="sh run.sh", name=name, factors={"watch": True})
        for name in ("x", "y")
    ]
    seen = [
        {
            (use.factor, use.file, use.line): use.digest
            for use in run.traces[0].uses
            if use.file == "run.sh"
        }
        for run in done
    ]
    clock, fixed = ("clock", "run.sh", 3), ("commands", "run.sh", 4)
    assert seen[0][clock] != seen[1][clock]
    assert seen[0][fixed] == seen[1][fixed]
    pin: dict[str, Any] = {"pin": {"clock": [["run.sh", 3]]}}
    first = trace_script(tmp_path, files, command="sh run.sh", name="a", factors=pin)
    second = trace_script(
        tmp_path,
        files,
        command="sh run.sh",
        name="b",
        factors={**pin, "recording": str(first.folder)},
    )
    assert first.ended.tail == second.ended.tail
    assert first.ended.tail != done[0].ended.tail
