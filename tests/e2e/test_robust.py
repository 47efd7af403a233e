"""What only a varied second run shows, and what it must not raise an alarm about. Real processes;
the training needs no torch."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.gates import LOOP, Gated, gate_training, tiered

PLAIN = "version: 1\ntrain: {run: python train.py 1}\ncost: {measure: false}\n"
SEEDED = PLAIN.replace("python train.py 1", "'python train.py {seed}'")
SPEC = PLAIN + "diagnosis: {runs: 12}\n"
LINE = 1 + LOOP.splitlines().index("    # here")
ROBUST = "random-state/robust"
# in the empty first line of the loop
CRC = "import zlib; crc = lambda text: zlib.crc32(text.encode()) % 1_000_003"
CRASHED = ("determinism/crashed", "run/crashed")


def gated(folder: Path, line: str, spec: str = SPEC, *arguments: str) -> Gated:
    """One gate run of the loop with a line in it that decides its numbers."""
    return gate_training(folder, CRC + LOOP.replace("# here", line), spec, *arguments)


def runs(found: Gated) -> list[str]:
    return [run["name"] for run in found.report["runs"]]


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


# of what is varied; the others are slow
@pytest.mark.parametrize("name", tiered(FRAGILE, ("path", "listing", "clock")))
def test_a_training_that_depends_on_its_surroundings_is_repeatable_but_not_robust(
    tmp_path: Path, name: str
) -> None:
    found = gated(tmp_path, FRAGILE[name], SPEC, "--set", "robustness.search=20")
    check = found.must_warn(ROBUST, f"in train.py:{LINE} depends on ")
    assert found.report["determinism"]["identical"]
    assert runs(found) == [*(f"deterministic-{number}" for number in (1, 2, 3)), "reseeded"]
    alone = f"varied in {name} alone, a run diverges from the first"
    assert any(alone in text for text in check["evidence"])


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
    listing = "import os\ndef first():\n    return os.listdir('.').index('train.py')\n"
    source, files = ASKING + LOOP.replace("# here", "x += first()"), {"data/loading.py": listing}
    for number, more, told in (
        (3, "", "robust: repeatable, but not robust: os.listdir('.') in data/loading.py:3 depends"),
        (2, "robustness: {search: 0}\n", "likeliest first: listing (os.listdir('.') in data/load"),
    ):
        found = gate_training(tmp_path / str(number), source, SPEC + more, files=files)
        found.must(0)
        assert found.stderr.count("robustness: one run") == number, found.stderr
        assert told in " ".join(found.stdout.split()), found.stdout
        diagnosis = found.report["diagnosis"]
        assert number == 3 or (not diagnosis["confirmed"] and len(diagnosis["one_of"]) == 13)


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
    line = SETS.strip().replace("ORDER", order)
    found = gated(tmp_path / "a", line)
    if not said:
        found.must(0)
        assert found.check(ROBUST)["status"] == "pass"
        return
    at = LINE + (0 if said.startswith("words") else 3)
    check = found.must_warn(ROBUST, f"train.py:{at} depends on the order of a set")
    assert check["message"].startswith(f"repeatable, but not robust: {said}")
    remedy = 'env: {PYTHONHASHSEED: "0"}'
    assert f"train.{remedy}" in check["remedy"]
    recipe = gated(tmp_path / "b", line, SPEC.replace("1}", f"1, {remedy}}}"))
    recipe.must(0)
    check = recipe.check(ROBUST)
    assert check["status"] == "pass" and "not varied: hash-seed" in check["evidence"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "clock", ["time.perf_counter()", "time.monotonic_ns() * 1e-9", "time.time()"]
)
def test_a_time_budget_that_is_filled_is_found_and_its_line_is_named(
    tmp_path: Path, clock: str
) -> None:
    """Every second takes so long that two plain runs do the same; and the same with a budget that
    is never reached."""
    line = f"""import time; start = {clock}; rounds, end = 0, {clock} + LIMIT
    if number == 1: print({clock} - start)
    while not number and rounds < 5 and {clock} < end: rounds += 1; time.sleep(0.4)
    x += rounds"""
    found = gated(tmp_path / "a", line.replace("LIMIT", "1.0"))
    found.must_warn(ROBUST, f"in train.py:{LINE + 2} depends on the time of day and durations")
    found = gated(tmp_path / "b", line.replace("LIMIT", "60"))
    found.must(0)
    assert found.check(ROBUST)["status"] == "pass", found.said


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
    found.must(0)
    assert runs(found) == ["deterministic-1", "deterministic-2", "reseeded"]
    check = found.check(ROBUST)
    assert check["status"] == "pass"
    assert "not varied: the host name as C code asks for it" in check["evidence"]
    assert not [item for item in found.report["notes"] if item["id"].startswith("unrecorded/")]


@pytest.mark.slow
def test_more_runs_exclude_rarer_faults_and_a_plain_repeat_that_is_planned_serves_as_the_word(
    tmp_path: Path,
) -> None:
    spec = SPEC + "robustness: {vary: [path]}\n"
    found = gated(tmp_path / "a", "", spec + "determinism: {repeat: 4}\n")
    determinism = found.report["determinism"]
    assert (determinism["runs"], determinism["bound_pct"]) == (4, 52.7)
    assert "4 of 4 identical; a fault in more than 53 %" in " ".join(found.stdout.split())
    found = gated(tmp_path / "b", FRAGILE["path"], spec + "determinism: {repeat: 3}\n")
    found.must_warn(ROBUST)
    assert runs(found) == [*(f"deterministic-{number}" for number in (1, 2, 3)), "reseeded"]
    assert found.report["determinism"]["runs"] == 2


def test_ordinary_nondeterminism_is_shown_by_the_plain_pair(tmp_path: Path) -> None:
    line = "x += __import__('os').urandom(1)[0] if number == 2 else 0"
    found = gated(tmp_path, line, SPEC + "determinism: {repeat: 3}\n")
    assert found.exit_code == 1 and found.first["step"] == 2
    assert found.check(ROBUST)["status"] == "skip"


@pytest.mark.slow
def test_a_training_that_repeats_by_luck_is_no_robust_one(tmp_path: Path) -> None:
    """The second run and the fifth are other ones: the varied one, and the first that looks for
    what it depends on."""
    line = """import os; seen = '/tmp/repro-gate-turn-%s' % os.getppid()
    if number == 0: open(seen, 'a').write('x'); turn = os.path.getsize(seen)
    x += turn in (2, 5) and number == 2
    if number == 5 and turn == 5: os.remove(seen)"""
    found = gated(tmp_path, line)
    assert found.exit_code == 1 and found.first["step"] == 2
    assert found.reason_ids[0] == "determinism/diverged"
    assert found.check(ROBUST)["status"] == "skip"


@pytest.mark.slow
def test_a_varied_run_that_breaks_leaves_the_word_to_a_plain_repeat(tmp_path: Path) -> None:
    line = "assert 'clone' not in __file__, 'wrong folder'"
    found = gated(tmp_path, line, SPEC, "--set", "robustness.search=20")
    check = found.must_warn(ROBUST, "depends on the path of the checkout")
    assert found.report["determinism"]["identical"]
    how = "diverges from the first in how it ends (it exited with status 1)"
    assert how in check["evidence"][0]


@pytest.mark.slow
def test_what_the_spec_does_not_vary_stays_and_strict_fails(tmp_path: Path) -> None:
    line = "import os; x += len(os.listdir('/proc/self/fd')) * 0 + crc(os.getcwd())"
    strict = SPEC + "checklist: {severity: {random-state/robust: fail}}\n"
    for vary, exit_code, status in (
        ("", 1, "fail"),
        ("robustness: {vary: [home, listing]}\n", 0, "pass"),
        ("robustness: {vary: false}\n", 0, "skip"),
    ):
        found = gated(tmp_path / status, line, strict + vary)
        found.must(exit_code)
        assert found.check(ROBUST)["status"] == status


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
    short = PLAIN.replace("1}", "1, timeout: 3s}")
    return gated(folder, IN_RUN.replace("WHEN", when) + how, short + spec)


@pytest.mark.parametrize("how", ENDINGS)
def test_a_second_run_that_fails_by_chance_never_passes(tmp_path: Path, how: str) -> None:
    """The second run is varied, and a plain repeat of the first comes through: done again, so does
    a varied one."""
    verdict, reason = FAILURES[how]
    found = failing(tmp_path, SECOND, how)
    assert found.report["verdict"] == verdict and reason in found.reason_ids, found.said
    assert any("deterministic-2" in item["message"] for item in found.report["reasons"])
    determinism = found.report["determinism"]
    assert (determinism["failed"], determinism["bound_pct"]) == (1, None)
    assert "95 % sure" not in found.stdout
    assert found.check(ROBUST)["status"] == "skip"
    assert found.check("code/pristine-workspace")["status"] == "pass"


def test_a_second_run_that_records_nothing_by_chance_never_passes(tmp_path: Path) -> None:
    how = IN_RUN.replace("number == 2 and WHEN", SECOND).replace("\n    ", "\n") + "sys.exit(0)\n"
    gate_training(tmp_path, how + LOOP, PLAIN).must(3, "run/nothing-recorded")


@pytest.mark.slow
@pytest.mark.parametrize("how", ENDINGS)
def test_a_run_that_fails_whenever_it_is_varied_is_not_robust_with_the_last_line_of_its_log(
    tmp_path: Path, how: str
) -> None:
    found = failing(tmp_path, "varied", f"print('the end'); {how}")
    check = found.must_warn(ROBUST, "repeatable, but not robust: ")
    assert found.report["determinism"]["failed"] == 0
    last = "RuntimeError: out of luck (train.py:" if "raise" in how else "the end"
    ended = f"deterministic-2 ended with: {last}"
    assert any(text.startswith(ended) for text in check["evidence"]), check


def test_a_plain_repeat_that_fails_too_is_told_with_the_varied_run(tmp_path: Path) -> None:
    found = failing(tmp_path, "name in ('deterministic-2', 'deterministic-3')", "sys.exit(3)")
    found.must(1, *CRASHED)
    message = found.report["reasons"][1]["message"]
    assert message.startswith("runs deterministic-2 and deterministic-3: ")


def test_within_a_tolerance_a_varied_run_that_fails_by_chance_never_passes(tmp_path: Path) -> None:
    spec = "determinism: {compare: {loss: 0.5, weights: 0.5}}\n"
    failing(tmp_path, SECOND, "sys.exit(3)", spec).must(1, *CRASHED)


@pytest.mark.slow
def test_a_varied_run_that_fails_for_one_seed_only_never_passes(tmp_path: Path) -> None:
    """The first seed depends on the path; the second one's varied run fails by chance."""
    line = IN_RUN.replace("number == 2 and WHEN", "name == 'seed7-deterministic-2' and number == 2")
    line += "sys.exit(3)\n    x += 1 if varied and sys.argv[1] == '42' else 0"
    found = gated(tmp_path, line, SEEDED + "random-state: {seeds: [42, 7]}\n")
    found.must(1, *CRASHED)
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
    assert found.report["verdict"] == verdict, found.said
    assert any("deterministic-2" in item["message"] for item in found.report["reasons"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "verdict"), [("", "inconclusive"), ("; x += name == 'deterministic-2'", "fail")]
)
def test_a_control_that_fails_ends_nothing(tmp_path: Path, more: str, verdict: str) -> None:
    """It notes operators, and is done once more without that note where it fails."""
    only = f"assert sys.argv[1] == '42', 'only this seed'{more}"
    line = IN_RUN.replace("if number == 2 and WHEN: ", only)
    found = gated(tmp_path, line, SEEDED)
    assert found.report["verdict"] == verdict, found.said
    assert "run/interrupted" not in found.reason_ids
    how = "run reseeded: it exited with status 1: AssertionError: only this seed"
    assert any(how in item["message"] for item in found.report["reasons"])


@pytest.mark.slow
def test_what_only_a_varied_run_does_not_write_is_not_robust_and_not_missing(
    tmp_path: Path,
) -> None:
    line = "open('a.txt', 'w').close(); 'clone' in __file__ or open('b.txt', 'w').close()"
    capture = PLAIN + "capture: {artifacts: [a.txt, NAME.txt]}\n"
    gated(tmp_path / "b", line, capture.replace("NAME", "b")).must_warn(ROBUST)
    gated(tmp_path / "c", line, capture.replace("NAME", "c")).must(3, "artifact/missing")


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
    spec = PLAIN + vary + "determinism: {repeat: REPEAT, compare: {loss: 0.5, weights: 0.5}}\n"
    found = gate_training(tmp_path / "a", source, spec.replace("REPEAT", "3"))
    found.must(1)
    assert "the loss differs by 5 at step 2" in found.stdout, found.said
    gate_training(tmp_path / "b", source, spec.replace("REPEAT", "2")).must(0)
