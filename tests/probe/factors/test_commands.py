"""Claims about `probe.factors.commands`: what a child prints is noted at the line that starts it,
and the training reads it as ever."""

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
        if use.factor in ("commands", "clock", "entropy", "identity", "listing") and use.outside
    ]


def test_the_output_of_a_child_is_noted_however_it_is_read(tmp_path: Path) -> None:
    source = HEAD + ASYNC + "".join(f"found = {call}\n" for call in WAYS.values())
    digests = [
        {(use.line, use.source): use.digest for use in noted(tmp_path, source, name)}
        for name in ("a", "b")
    ]
    assert digests[0].keys() == digests[1].keys()
    differing = {key[0] for key in digests[0] if digests[0][key] != digests[1][key]}
    assert len(differing) == len(WAYS)


@pytest.mark.parametrize(
    ("command", "factor"),
    [
        ("date +%N", "clock"),
        ("cat train.py | shuf", "entropy"),
        ("head -c 8 /dev/urandom | od", "entropy"),
        ("hostname", "identity"),
        ("find .", "listing"),
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
        "update.txt": "the date is of no use here\n",
    }
    uses = [use for use in noted(tmp_path, files) if use.source.startswith(command)]
    assert {(use.factor, use.file, use.line) for use in uses} == {(factor, "train.py", 2)}
    assert uses[0].call.startswith("subprocess.run(")


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
    watched = run(tmp_path, source, "watched", {"watch": True})
    assert ast.literal_eval(watched.ended.tail[-1]) == free


def test_what_a_child_writes_to_a_file_of_the_workspace_is_noted_at_the_childs_line(
    tmp_path: Path,
) -> None:
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
    seen = [
        {
            (use.line, use.factor, use.digest)
            for use in noted(tmp_path, source, name)
            if "shuf" in use.source
        }
        for name in ("x", "y")
    ]
    assert {(line, factor) for line, factor, _ in seen[0]} == {
        (line, "entropy") for line in (4, 5, 7, 10)
    }
    assert not seen[0] & seen[1]


def test_what_a_script_wrote_before_the_training_is_noted_at_the_line_that_reads_it(
    tmp_path: Path,
) -> None:
    script = "date +%N > seed.txt\necho fixed > fixed.txt\nexec python train.py\n"
    files = {"train.py": "open('seed.txt').read()\nopen('fixed.txt').read()\n", "run.sh": script}
    seen = []
    for name in ("x", "y"):
        done = trace_script(
            tmp_path, files, command="sh run.sh", name=name, factors={"watch": True}
        )
        uses = (use for use in done.traces[0].uses if use.outside and use.factor == "commands")
        seen.append({(use.file, use.line): use.digest for use in uses})
    clock, fixed = ("train.py", 1), ("train.py", 2)
    assert seen[0][clock] != seen[1][clock]
    assert seen[0][fixed] == seen[1][fixed]
