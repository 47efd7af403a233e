"""What only a varied second run shows, and what it must not raise an alarm about. Real processes;
the training needs no torch."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.gates import LOOP, Gated, command, environment, gate, tiered, training

SPEC = (
    "version: 1\ntrain: {run: python train.py 1}\ncost: {measure: false}\ndiagnosis: {runs: 12}\n"
)
LINE = 1 + LOOP.splitlines().index("    # here")
ROBUST = "random-state/robust"
# in the empty first line of the loop
CRC = "import zlib; crc = lambda text: zlib.crc32(text.encode()) % 1_000_003"


def gated(folder: Path, line: str, spec: str = SPEC, *arguments: str) -> Gated:
    """One gate run of the loop with a line in it that decides its numbers."""
    return gate(
        training(folder / "code", CRC + LOOP.replace("# here", line), spec), *arguments, out=folder
    )


FRAGILE = {
    "path": "x += len(__file__) + crc(__import__('os').path.abspath('data'))",
    "home": "x += crc(__import__('os').path.expanduser('~'))",
    "tmpdir": "x += crc(__import__('tempfile').gettempdir())",
    "hostname": "x += crc(__import__('socket').gethostname())",
    "timezone": "x += __import__('time').localtime(1_700_000_000).tm_hour",
    "locale": "x += crc(__import__('os').environ.get('LANG', ''))",
    "umask": "import os; open('f', 'w').close(); x += os.stat('f').st_mode",
    "environment": "x += [name for name in __import__('os').environ if name in ('HOME', 'PATH', "
    "'TMPDIR')].index('HOME')",
    "file-times": "x += int(__import__('os').path.getmtime('train.py')) % 1_000_003",
    "clock": "x += int(__import__('time').time()) // 86_400",
    "listing": "import os; x += os.listdir('.').index('train.py')",
    "hash-seed": "import sys, subprocess as s; x += float(s.check_output([sys.executable, '-c', "
    "'print(hash(\"a\") % 1_000_003)']))",
}


QUICK = ("path", "listing", "clock")  # of what is varied; the others are slow


@pytest.mark.parametrize("name", tiered(FRAGILE, QUICK))
def test_a_training_that_depends_on_its_surroundings_is_repeatable_but_not_robust(
    tmp_path: Path, name: str
) -> None:
    found = gated(tmp_path, FRAGILE[name], SPEC, "--set", "robustness.search=20")
    assert found.exit_code == 0 and found.report["determinism"]["identical"], (
        found.stdout + found.stderr
    )
    assert [run["name"] for run in found.report["runs"]] == [
        "deterministic-1",
        "deterministic-2",
        "deterministic-3",
        "reseeded",
    ]
    check = found.check(ROBUST)
    assert check["status"] == "warn" and f"in train.py:{LINE} depends on " in check["message"], (
        check
    )
    assert any(
        f"varied in {name} alone, a run diverges from the first" in text
        for text in check["evidence"]
    )


ASKING = """
import logging, os, platform, tempfile, time
from data.loading import first
names = {name: value for name, value in os.environ.items() if name.startswith("UNET_")}
print(os.path.abspath("out"), os.path.expanduser("~"), platform.node(), tempfile.gettempdir(), time.time(), os.stat("train.py").st_mtime)
logging.getLogger().warning("%s", time.localtime())
"""


@pytest.mark.slow
def test_a_listing_in_another_file_is_found_in_three_runs_and_on_the_terminal(
    tmp_path: Path,
) -> None:
    """The training asks for everything else too; only the listing reaches its numbers. Where the
    time is used up, what is left is named."""
    files = {
        "data/loading.py": "import os\ndef first():\n    return os.listdir('.').index('train.py')\n"
    }
    source = ASKING + LOOP.replace("# here", "x += first()")
    found = gate(training(tmp_path / "a", source, SPEC, files), out=tmp_path)
    said = " ".join(found.stdout.split())
    assert found.exit_code == 0 and found.stderr.count("robustness: one run") == 3, (
        found.stdout + found.stderr
    )
    assert (
        "random-state/robust: repeatable, but not robust: os.listdir('.') in data/loading.py:3 "
        "depends on the order" in said
    )
    found = gate(
        training(tmp_path / "b", source, SPEC + "robustness: {search: 0}\n", files), out=tmp_path
    )
    said = " ".join(found.stdout.split())
    assert found.exit_code == 0 and found.stderr.count("robustness: one run") == 2, (
        found.stdout + found.stderr
    )
    assert (
        "one of these 13, or several of them, likeliest first: listing (os.listdir('.') in "
        "data/loading.py:3)" in said
    )
    assert (
        found.report["diagnosis"]["confirmed"] is False
        and len(found.report["diagnosis"]["one_of"]) == 13
    )


SETS = """
    words = set("the cat sat on a mat and the dog ran to it over there with all of its heart".split())
    known = {"cat", "dog", "rat"} | {"mat"}
    x += len(words & known)
    ORDER
"""


@pytest.mark.parametrize(
    ("order", "said"),
    [
        ("for place, word in enumerate(words): x += len(word) * 2**-place", 'words = set("the cat'),
        pytest.param(
            "x += sum(len(word) * 2**-place for place, word in enumerate(words))",
            'words = set("the cat',
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "x += hash('the cat') % 1_000_003", "x += hash('the cat')", marks=pytest.mark.slow
        ),
        ("for place, word in enumerate(sorted(words)): x += len(word) * 2**-place", ""),
    ],
)
def test_a_set_whose_order_reaches_the_numbers_is_named_by_the_line_that_made_it(
    tmp_path: Path, order: str, said: str
) -> None:
    found = gated(tmp_path / "a", SETS.strip().replace("ORDER", order))
    check = found.check(ROBUST)
    assert found.exit_code == 0 and check["status"] == ("warn" if said else "pass"), (
        found.stdout + found.stderr
    )
    if said:
        line = LINE + (0 if said.startswith("words") else 3)
        assert (
            check["message"].startswith(f"repeatable, but not robust: {said}")
            and f"train.py:{line} depends on the order of a set" in check["message"]
        )
        assert 'train.env: {PYTHONHASHSEED: "0"}' in check["remedy"]
        recipe = gated(
            tmp_path / "b",
            SETS.strip().replace("ORDER", order),
            SPEC.replace("1}", '1, env: {PYTHONHASHSEED: "0"}}'),
        )
        check = recipe.check(ROBUST)
        assert (
            recipe.exit_code == 0
            and check["status"] == "pass"
            and "not varied: hash-seed" in check["evidence"]
        ), recipe.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    "clock", ["time.perf_counter()", "time.monotonic_ns() * 1e-9", "time.time()"]
)
def test_a_time_budget_that_is_filled_is_found_and_its_line_is_named(
    tmp_path: Path, clock: str
) -> None:
    """Every second takes so long that two plain runs do the same; and the same with a budget that
    is never reached."""
    line = (
        f"import time; start = {clock}; rounds, end = 0, {clock} + LIMIT\n    if number == 1: "
        f"print({clock} - start)\n"
    )
    line += (
        f"    while not number and rounds < 5 and {clock} < end: rounds += 1; time.sleep(0.4)\n    "
        "x += rounds"
    )
    found = gated(tmp_path / "a", line.replace("LIMIT", "1.0"))
    check = found.check(ROBUST)
    assert found.exit_code == 0 and check["status"] == "warn", found.stdout + found.stderr
    assert f"in train.py:{LINE + 2} depends on the time of day and durations" in check["message"], (
        check
    )
    found = gated(tmp_path / "b", line.replace("LIMIT", "60"))
    assert found.exit_code == 0 and found.check(ROBUST)["status"] == "pass", (
        found.stdout + found.stderr
    )


def test_what_was_varied_and_does_not_reach_the_numbers_raises_no_alarm(tmp_path: Path) -> None:
    """It asks for everything that is varied, prints it, writes it to files and works with the
    answers."""
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
    assert [run["name"] for run in found.report["runs"]] == [
        "deterministic-1",
        "deterministic-2",
        "reseeded",
    ]
    check = found.check(ROBUST)
    assert (
        check["status"] == "pass"
        and "not varied: the host name as C code asks for it" in check["evidence"]
    )
    assert [
        note["id"] for note in found.report["notes"] if note["id"].startswith("unrecorded/")
    ] == []


@pytest.mark.slow
def test_more_runs_exclude_rarer_faults_and_a_plain_repeat_that_is_planned_serves_as_the_word(
    tmp_path: Path,
) -> None:
    found = gated(
        tmp_path / "a", "", SPEC + "determinism: {repeat: 4}\nrobustness: {vary: [path]}\n"
    )
    assert (found.report["determinism"]["runs"], found.report["determinism"]["bound_pct"]) == (
        4,
        52.7,
    )
    assert "4 of 4 identical; a fault in more than 53 % of runs would have shown" in " ".join(
        found.stdout.split()
    )
    found = gated(
        tmp_path / "b",
        FRAGILE["path"],
        SPEC + "determinism: {repeat: 3}\nrobustness: {vary: [path]}\n",
    )
    assert [run["name"] for run in found.report["runs"]] == [
        "deterministic-1",
        "deterministic-2",
        "deterministic-3",
        "reseeded",
    ]
    assert (found.report["determinism"]["runs"], found.check(ROBUST)["status"]) == (2, "warn")


def test_ordinary_nondeterminism_is_shown_by_the_plain_pair(tmp_path: Path) -> None:
    found = gated(
        tmp_path,
        "x += __import__('os').urandom(1)[0] if number == 2 else 0",
        SPEC + "determinism: {repeat: 3}\n",
    )
    assert found.exit_code == 1 and found.first["step"] == 2
    assert found.check(ROBUST)["status"] == "skip"


@pytest.mark.slow
def test_a_training_that_repeats_by_luck_is_no_robust_one(tmp_path: Path) -> None:
    """The second run and the fifth are other ones: the varied one, and the first that looks for
    what it depends on."""
    line = "import os; seen = '/tmp/repro-gate-turn-%s' % os.getppid()"
    line += "\n    if number == 0: open(seen, 'a').write('x'); turn = os.path.getsize(seen)"
    line += "\n    x += turn in (2, 5) and number == 2"
    line += "\n    if number == 5 and turn == 5: os.remove(seen)"
    found = gated(tmp_path, line)
    assert (
        found.exit_code == 1
        and found.first["step"] == 2
        and found.reason_ids[0] == "determinism/diverged"
    )
    assert found.check(ROBUST)["status"] == "skip"


@pytest.mark.slow
def test_a_varied_run_that_breaks_leaves_the_word_to_a_plain_repeat(tmp_path: Path) -> None:
    line = "assert 'clone' not in __file__, 'wrong folder'"
    found = gated(tmp_path, line, SPEC, "--set", "robustness.search=20")
    assert found.exit_code == 0 and found.report["determinism"]["identical"], (
        found.stdout + found.stderr
    )
    check = found.check(ROBUST)
    assert check["status"] == "warn" and check["message"].endswith(
        "depends on the path of the checkout"
    )
    assert (
        "diverges from the first in how it ends (it exited with status 1)" in check["evidence"][0]
    )


@pytest.mark.slow
def test_what_the_spec_does_not_vary_stays_and_strict_fails(tmp_path: Path) -> None:
    two = "x += len(os.listdir('/proc/self/fd')) * 0 + crc(os.getcwd())".replace(
        "os.", "__import__('os')."
    )
    strict = SPEC + "checklist: {severity: {random-state/robust: fail}}\n"
    assert gated(tmp_path / "a", two, strict).exit_code == 1
    found = gated(tmp_path / "b", two, strict + "robustness: {vary: [home, listing]}\n")
    assert found.exit_code == 0 and found.check(ROBUST)["status"] == "pass"
    found = gated(tmp_path / "c", two, strict + "robustness: {vary: false}\n")
    assert found.exit_code == 0 and found.check(ROBUST)["status"] == "skip"


IN_RUN = "import os, sys, time, signal\n    from _repro_gate.probe import session\n"
IN_RUN += (
    "    name, varied = os.path.basename(session.current().config['traces']), 'clone' in "
    "__file__\n    if number == 2 and WHEN: "
)
SECOND = "name == 'deterministic-2'"
FAILURES = {
    "raise RuntimeError('out of luck')": ("fail", "determinism/crashed"),
    "sys.exit(3)": ("fail", "determinism/crashed"),
    "os.abort()": ("fail", "determinism/crashed"),
    "os.kill(os.getpid(), signal.SIGKILL)": ("inconclusive", "run/killed"),
    "time.sleep(100)": ("inconclusive", "run/timeout"),
}
ENDINGS = tiered(FAILURES, ("sys.exit(3)", "os.kill(os.getpid(), signal.SIGKILL)"))


def failing(folder: Path, when: str, how: str, spec: str = "") -> Gated:
    short = "version: 1\ntrain: {run: python train.py 1, timeout: 3s}\ncost: {measure: false}\n"
    return gated(folder, IN_RUN.replace("WHEN", when) + how, short + spec)


@pytest.mark.parametrize("how", ENDINGS)
def test_a_second_run_that_fails_by_chance_never_passes(tmp_path: Path, how: str) -> None:
    """The second run is varied, and a plain repeat of the first comes through: done again, so does
    a varied one."""
    verdict, reason = FAILURES[how]
    found = failing(tmp_path, SECOND, how)
    assert found.report["verdict"] == verdict and reason in found.reason_ids, (
        found.stdout + found.stderr
    )
    assert any("deterministic-2" in item["message"] for item in found.report["reasons"])
    determinism = found.report["determinism"]
    assert (determinism["failed"], determinism["bound_pct"]) == (
        1,
        None,
    ) and "95 % sure" not in found.stdout
    assert (
        found.check(ROBUST)["status"] == "skip"
        and found.check("code/pristine-workspace")["status"] == "pass"
    )


def test_a_second_run_that_records_nothing_by_chance_never_passes(tmp_path: Path) -> None:
    how = IN_RUN.replace("number == 2 and WHEN", SECOND).replace("\n    ", "\n") + "sys.exit(0)\n"
    spec = "version: 1\ntrain: {run: python train.py 1}\ncost: {measure: false}\n"
    found = gate(training(tmp_path / "code", how + LOOP, spec), out=tmp_path)
    assert found.exit_code == 3 and found.reason_ids == ["run/nothing-recorded"], (
        found.stdout + found.stderr
    )


@pytest.mark.slow
@pytest.mark.parametrize("how", ENDINGS)
def test_a_run_that_fails_whenever_it_is_varied_is_not_robust_with_the_last_line_of_its_log(
    tmp_path: Path, how: str
) -> None:
    found = failing(tmp_path, "varied", f"print('the end'); {how}")
    assert found.exit_code == 0 and found.report["determinism"]["failed"] == 0, (
        found.stdout + found.stderr
    )
    check = found.check(ROBUST)
    assert check["status"] == "warn" and check["message"].startswith("repeatable, but not robust: ")
    last = "RuntimeError: out of luck (train.py:" if "raise" in how else "the end"
    assert any(
        text.startswith(f"deterministic-2 ended with: {last}") for text in check["evidence"]
    ), check


def test_a_plain_repeat_that_fails_too_is_told_with_the_varied_run(tmp_path: Path) -> None:
    found = failing(tmp_path, "name in ('deterministic-2', 'deterministic-3')", "sys.exit(3)")
    assert found.exit_code == 1 and found.reason_ids == ["determinism/crashed", "run/crashed"]
    assert (
        found.report["reasons"][1]["message"]
        == "runs deterministic-2 and deterministic-3: it exited with status 3"
    )


@pytest.mark.slow
def test_a_diagnosis_of_a_run_that_fails_whenever_it_is_varied_names_what_was_varied(
    tmp_path: Path,
) -> None:
    line = "assert 'clone' not in __file__, 'wrong folder'"
    code = training(tmp_path / "code", LOOP.replace("# here", line), SPEC)
    done = subprocess.run(
        command("diagnose", code, "--quiet"),
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1 and "depends on the path of the checkout" in " ".join(
        done.stdout.split()
    ), done.stdout + done.stderr


@pytest.mark.slow
def test_a_varied_run_that_fails_for_one_seed_only_never_passes(tmp_path: Path) -> None:
    """The first seed depends on the path; the second one's varied run fails by chance."""
    line = IN_RUN.replace("number == 2 and WHEN", "name == 'seed7-deterministic-2' and number == 2")
    line += "sys.exit(3)\n    x += 1 if varied and sys.argv[1] == '42' else 0"
    spec = (
        "version: 1\ntrain: {run: 'python train.py {seed}'}\nrandom-state: {seeds: [42, 7]}\ncost: "
        "{measure: false}\n"
    )
    found = gated(tmp_path, line, spec)
    assert found.exit_code == 1 and found.reason_ids == ["determinism/crashed", "run/crashed"], (
        found.stdout + found.stderr
    )
    assert found.check(ROBUST)["status"] == "warn"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "verdict"),
    [("sys.exit(3)", "fail"), ("os.kill(os.getpid(), signal.SIGKILL)", "inconclusive")],
)
def test_a_training_that_depends_on_what_is_varied_does_not_explain_a_failure_by_chance(
    tmp_path: Path, how: str, verdict: str
) -> None:
    """The second varied run differs too, but it comes through: so nothing that was varied explains
    that the first one failed."""
    found = failing(tmp_path, SECOND, f"{how}\n    x += 1 if varied and number == 4 else 0")
    assert found.report["verdict"] == verdict, found.stdout + found.stderr
    assert any("deterministic-2" in item["message"] for item in found.report["reasons"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "verdict"), [("", "inconclusive"), ("; x += name == 'deterministic-2'", "fail")]
)
def test_a_control_that_fails_ends_nothing(tmp_path: Path, more: str, verdict: str) -> None:
    """It notes operators, and is done once more without that note where it fails."""
    line = IN_RUN.replace(
        "if number == 2 and WHEN: ", f"assert sys.argv[1] == '42', 'only this seed'{more}"
    )
    spec = "version: 1\ntrain: {run: 'python train.py {seed}'}\ncost: {measure: false}\n"
    found = gated(tmp_path, line, spec)
    assert found.report["verdict"] == verdict and "run/interrupted" not in found.reason_ids, (
        found.stdout + found.stderr
    )
    assert any(
        "run reseeded: it exited with status 1: AssertionError: only this seed" in item["message"]
        for item in found.report["reasons"]
    )


@pytest.mark.slow
def test_what_only_a_varied_run_does_not_write_is_not_robust_and_not_missing(
    tmp_path: Path,
) -> None:
    line = "open('a.txt', 'w').close(); 'clone' in __file__ or open('b.txt', 'w').close()"
    spec = SPEC.replace("diagnosis: {runs: 12}", "diagnosis: false")
    found = gated(tmp_path / "a", line, spec + "capture: {artifacts: [a.txt, b.txt]}\n")
    assert found.exit_code == 0 and found.check(ROBUST)["status"] == "warn", (
        found.stdout + found.stderr
    )
    found = gated(tmp_path / "b", line, spec + "capture: {artifacts: [a.txt, c.txt]}\n")
    assert found.exit_code == 3 and found.reason_ids == ["artifact/missing"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "line",
    [
        "[open(f'{place}.txt', 'w').close() for place in range(1001)]",
        "open('a.txt', 'w').close(); __import__('os').truncate('a.txt', 1 << 40)",
    ],
    ids=["files", "bytes"],
)
def test_too_many_artifacts_have_their_own_reason(tmp_path: Path, line: str) -> None:
    spec = (
        SPEC.replace("diagnosis: {runs: 12}", "diagnosis: false")
        + "capture: {artifacts: ['*.txt']}\n"
    )
    found = gated(tmp_path, line, spec)
    assert found.exit_code == 3 and found.reason_ids == ["artifact/too-many"], (
        found.stdout + found.stderr
    )
    assert found.report["reasons"][0]["remedy"] == "name the files to compare more narrowly"


@pytest.mark.slow
def test_each_seeds_own_plain_repeat_decides_what_its_varied_run_shows(tmp_path: Path) -> None:
    line = "import os, sys; x += os.urandom(1)[0] if number == 2 and sys.argv[1] == '7' else 0"
    spec = (
        "version: 1\ntrain: {run: 'python train.py {seed}'}\nrandom-state: {seeds: [42, 7]}\ncost: "
        "{measure: false}\n"
    )
    found = gated(tmp_path, line, spec)
    assert found.exit_code == 1 and found.check(ROBUST)["status"] == "skip", found.check(ROBUST)


@pytest.mark.slow
@pytest.mark.parametrize("vary", ["", "robustness: {vary: false}\n"])
def test_with_a_tolerance_the_worst_of_several_runs_decides(tmp_path: Path, vary: str) -> None:
    """The second run is within the tolerance and the third is not."""
    source = (
        IN_RUN.partition("    name")[0].replace("\n    ", "\n")
        + """
from repro_gate import record, step
name = os.path.basename(session.current().config["traces"])
for number in range(4):
    record("loss", 1.0 + 1e-9 * (sum(map(ord, name)) % 7) + (5.0 if name == "deterministic-3" and number == 2 else 0.0))
    step()
"""
    )
    spec = "version: 1\ntrain: {run: python train.py}\ncost: {measure: false}\n"
    spec += "determinism: {repeat: REPEAT, compare: {loss: 0.5, weights: 0.5}}\n"
    found = gate(training(tmp_path / "a", source, spec.replace("REPEAT", "3") + vary), out=tmp_path)
    assert found.exit_code == 1 and "the loss differs by 5 at step 2" in found.stdout, (
        found.stdout + found.stderr
    )
    found = gate(training(tmp_path / "b", source, spec.replace("REPEAT", "2") + vary), out=tmp_path)
    assert found.exit_code == 0, found.stdout + found.stderr


def test_within_a_tolerance_a_varied_run_that_fails_by_chance_never_passes(tmp_path: Path) -> None:
    spec = "determinism: {compare: {loss: 0.5, weights: 0.5}}\n"
    found = failing(tmp_path, SECOND, "sys.exit(3)", spec)
    assert found.exit_code == 1 and found.reason_ids == ["determinism/crashed", "run/crashed"], (
        found.stdout + found.stderr
    )


def test_a_run_id_in_a_file_is_a_fail_that_shows_both(tmp_path: Path) -> None:
    line = (
        "import json; open('metrics.json', 'w').write(json.dumps({'run': 'run-%d' % "
        "__import__('time').time_ns()}))"
    )
    spec = (
        SPEC.replace("diagnosis: {runs: 12}", "diagnosis: false")
        + "capture: {artifacts: [metrics.json]}\n"
    )
    found = gated(tmp_path, line, spec)
    assert found.exit_code == 1 and "Traceback" not in found.stderr, found.stderr
    assert (found.first["kind"], found.first["name"], found.first["max_abs"]) == (
        "artifact",
        "metrics.json: run",
        None,
    )
    assert [text[:4] for text in found.first["values"]] == ["run-", "run-"]
