"""What only a varied second run shows, and what it must not raise an alarm about. Real processes; the training needs no torch."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.gates import LOOP, Gated, gate, training

SPEC = "version: 1\ntrain: {run: python train.py 1}\ncost: {measure: false}\ndiagnosis: {runs: 12}\n"
LINE = 1 + LOOP.splitlines().index("    # here")
ROBUST = "random-state/robust"


def gated(folder: Path, line: str, spec: str = SPEC, *arguments: str) -> Gated:
    """One gate run of the loop with a line in it that decides its numbers."""
    return gate(training(folder / "code", LOOP.replace("# here", line), spec), *arguments, out=folder)


FRAGILE = {
    "path": "x += len(__file__) + (hash(__import__('os').path.abspath('data')) % 1_000_003)",
    "home": "x += hash(__import__('os').path.expanduser('~')) % 1_000_003",
    "tmpdir": "x += hash(__import__('tempfile').gettempdir()) % 1_000_003",
    "hostname": "x += hash(__import__('socket').gethostname()) % 1_000_003",
    "timezone": "x += __import__('time').localtime(1_700_000_000).tm_hour",
    "locale": "x += hash(__import__('os').environ.get('LANG', '')) % 1_000_003",
    "umask": "import os; open('f', 'w').close(); x += os.stat('f').st_mode",
    "environment": "x += [name for name in __import__('os').environ if name in ('HOME', 'PATH', 'TMPDIR')].index('HOME')",
    "file-times": "x += int(__import__('os').path.getmtime('train.py')) % 1_000_003",
    "clock": "x += int(__import__('time').time()) // 86_400",
    "listing": "import os; x += os.listdir('.').index('train.py')",
    "hash-seed": "import sys, subprocess as s; x += float(s.check_output([sys.executable, '-c', 'print(hash(\"a\") % 1_000_003)']))",
}


@pytest.mark.parametrize("name", FRAGILE)
def test_a_training_that_depends_on_its_surroundings_is_repeatable_but_not_robust(tmp_path: Path, name: str) -> None:
    found = gated(tmp_path, FRAGILE[name])
    assert found.exit_code == 0 and found.report["determinism"]["identical"], found.stdout + found.stderr
    assert [run["name"] for run in found.report["runs"]] == ["deterministic-1", "deterministic-2", "deterministic-3", "reseeded"]
    check = found.check(ROBUST)
    assert check["status"] == "warn" and f"in train.py:{LINE} depends on " in check["message"], check
    assert any(f"varied in {name} alone, a run diverges from the first" in text for text in check["evidence"])


def test_what_was_varied_and_does_not_reach_the_numbers_raises_no_alarm(tmp_path: Path) -> None:
    """It asks for everything that is varied, prints it, writes it to files and works with the answers."""
    line = """
    import os, platform, socket, subprocess, sys, tempfile, time
    host, place = socket.gethostname(), os.path.expanduser("~/.cache/own")
    socket.getaddrinfo(host, 80)
    os.makedirs(place, exist_ok=True)
    listed = {name: os.path.getsize(name) for name in sorted(os.listdir("."))}
    with tempfile.NamedTemporaryFile(delete=False) as file:
        file.write(repr((host, place, time.time(), time.localtime(), list(os.environ), platform.node())).encode())
    with open("out.txt", "a") as file:
        print(os.path.abspath(__file__), place, file=file)
    x += float(subprocess.check_output([sys.executable, "-c", "print(len({1, 2}))"])) + ("train.py" in listed)
    print(os.getcwd(), time.asctime(), os.environ["HOME"])
"""
    found = gated(tmp_path, line.strip())
    assert found.exit_code == 0, found.stdout + found.stderr
    assert [run["name"] for run in found.report["runs"]] == ["deterministic-1", "deterministic-2", "reseeded"]
    check = found.check(ROBUST)
    assert check["status"] == "pass" and "not varied: the host name as C code asks for it" in check["evidence"]
    assert [note["id"] for note in found.report["notes"] if note["id"].startswith("unrecorded/")] == []


def test_more_runs_exclude_rarer_faults_and_a_plain_repeat_that_is_planned_serves_as_the_word(tmp_path: Path) -> None:
    found = gated(tmp_path / "a", "", SPEC + "determinism: {repeat: 4}\nrobustness: {vary: [path]}\n")
    assert (found.report["determinism"]["runs"], found.report["determinism"]["bound_pct"]) == (4, 52.7)
    assert "4 of 4 identical: excludes faults that show in more than 53 % of runs" in " ".join(found.stdout.split())
    found = gated(tmp_path / "b", FRAGILE["path"], SPEC + "determinism: {repeat: 3}\nrobustness: {vary: [path]}\n")
    assert [run["name"] for run in found.report["runs"]] == ["deterministic-1", "deterministic-2", "deterministic-3", "reseeded"]
    assert (found.report["determinism"]["runs"], found.check(ROBUST)["status"]) == (2, "warn")


def test_a_race_that_the_others_hardly_show_diverges_in_the_stressed_run(tmp_path: Path) -> None:
    """Two threads, the first of which has nothing to wait for; and the same with the results in order."""
    race = """
    import threading, time
    for trial in range(10):
        order = []
        threads = [threading.Thread(target=lambda n=n: (time.sleep(0.003 * n), order.append(n))) for n in range(2)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        x += ORDER[0]
"""
    spec = SPEC + "robustness: {stress: true}\n"
    found = gated(tmp_path / "a", race.strip().replace("ORDER", "sorted(order)"), spec)
    assert found.exit_code == 0 and found.report["determinism"]["runs"] == 3, found.stdout + found.stderr
    found = gated(tmp_path / "b", race.strip().replace("ORDER", "order"), spec)
    assert found.exit_code == 1, found.stdout + found.stderr


def test_ordinary_nondeterminism_is_shown_by_the_plain_pair(tmp_path: Path) -> None:
    found = gated(tmp_path, "x += __import__('os').urandom(1)[0] if number == 2 else 0", SPEC + "determinism: {repeat: 3}\n")
    assert found.exit_code == 1 and found.first["step"] == 2
    assert found.check(ROBUST)["status"] == "skip"


def test_a_training_that_repeats_by_luck_is_no_robust_one(tmp_path: Path) -> None:
    """The second run and the fifth are other ones: the varied one, and the first that looks for what it depends on."""
    line = "import os; seen = '/tmp/repro-gate-turn-%s' % os.getppid()"
    line += "\n    if number == 0: open(seen, 'a').write('x'); turn = os.path.getsize(seen)"
    line += "\n    x += turn in (2, 5) and number == 2"
    line += "\n    if number == 5 and turn == 5: os.remove(seen)"
    found = gated(tmp_path, line)
    assert found.exit_code == 1 and found.first["step"] == 2 and found.reason_ids[0] == "determinism/diverged"
    assert found.check(ROBUST)["status"] == "skip"


def test_a_varied_run_that_breaks_leaves_the_word_to_a_plain_repeat(tmp_path: Path) -> None:
    line = "assert 'clone' not in __file__, 'wrong folder'"
    found = gated(tmp_path, line)
    assert found.exit_code == 0 and found.report["determinism"]["identical"], found.stdout + found.stderr
    check = found.check(ROBUST)
    assert check["status"] == "warn" and check["message"].endswith("depends on the path of the checkout")
    assert "diverges from the first in how it ends (it exited with status 1)" in check["evidence"][0]


def test_what_the_spec_does_not_vary_stays_and_strict_fails(tmp_path: Path) -> None:
    two = "x += len(os.listdir('/proc/self/fd')) * 0 + hash(os.getcwd()) % 1_000_003".replace("os.", "__import__('os').")
    strict = SPEC + "checklist: {severity: {random-state/robust: fail}}\n"
    assert gated(tmp_path / "a", two, strict).exit_code == 1
    found = gated(tmp_path / "b", two, strict + "robustness: {vary: [home, listing]}\n")
    assert found.exit_code == 0 and found.check(ROBUST)["status"] == "pass"
    found = gated(tmp_path / "c", two, strict + "robustness: {vary: false}\n")
    assert found.exit_code == 0 and found.check(ROBUST)["status"] == "skip"
