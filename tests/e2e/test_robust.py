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
def test_what_depends_on_its_surroundings_is_not_robust(tmp_path: Path, name: str) -> None:
    found = gated(tmp_path, FRAGILE[name], SPEC)
    check = found.must_warn(ROBUST, f"in train.py:{LINE} depends on ")
    assert found.report["determinism"]["identical"]
    assert runs(found) == [*(f"deterministic-{number}" for number in (1, 2, 3)), "reseeded"]
    alone = f"with only {name} varied, a run diverges from the first"
    assert any(alone in text for text in check["evidence"])
    of_one_user = name in ("path", "file-times", "clock", "listing", "hash-seed")
    assert found.report["robust"] is not of_one_user
    assert found.stdout.startswith(" PASS   only with ") is of_one_user


LISTED = """
import logging, os, platform, tempfile, time
from data.loading import first
print(os.path.abspath("out"), os.path.expanduser("~"), platform.node(), tempfile.gettempdir(), time.time(), os.stat("train.py").st_mtime)
logging.getLogger().warning("%s", time.localtime())
"""
LISTED += LOOP.replace("# here", "x += first()")


IN_THREE = (12, 3, "Confirmed: with only listing varied, a run diverges from the first")
USED_UP = (2, 2, "likeliest first: data/loading.py:3 os.listdir('.') (listing), ")


@pytest.mark.slow
@pytest.mark.parametrize(("most", "made", "told"), [IN_THREE, USED_UP])
def test_a_listing_in_another_file_is_named_though_the_training_asks_for_everything_else_too(
    most: int, made: int, told: str, tmp_path: Path
) -> None:
    listing = "import os\ndef first():\n    return os.listdir('.').index('train.py')\n"
    spec = f"{PLAIN}diagnosis: {{runs: {most}}}\n"
    # four names: of three, the middle one has the same place in the reverse order
    files = {"data/loading.py": listing, "notes.txt": ""}
    found = gate_training(tmp_path, LISTED, spec, files=files)
    found.must(0)
    assert found.stderr.count("robustness: one run") == made, found.stderr
    said = " ".join(found.stdout.split())
    assert "cause" in said and "os.listdir('.') in data/loading.py:3 took the order" in said
    assert told in said


@pytest.mark.parametrize("fault", [True, False])
def test_a_set_whose_order_counts_is_named_by_its_line(tmp_path: Path, fault: bool) -> None:
    """In the title of the pass, which the spec may turn into a fail. With the hash seed of the
    remedy it passes as any other."""
    words = "words = set('the cat sat on a mat and the dog ran to it over there'.split())"
    order = "words" if fault else "sorted(words)"
    line = f"{words}\n    for place, word in enumerate({order}): x += len(word) * 2**-place"
    found = gated(tmp_path / "a", line)
    if fault:
        check = found.must_warn(ROBUST, f"train.py:{LINE + 1} depends on the order of a set")
        remedy = 'env: {PYTHONHASHSEED: "0"}'
        assert f"train.{remedy}" in check["remedy"]
        only = "only with PYTHONHASHSEED=42: without it the runs differ because of"
        title = f"{only} train.py:{LINE + 1}"  # the loop over the set
        assert found.stdout.startswith(f" PASS   {title}\n") and not found.report["robust"]
        strict = gated(tmp_path / "s", line, f"{SPEC}robustness: {{on-dependence: fail}}\n")
        strict.must(1, ROBUST)
        assert strict.stdout.startswith(f" FAIL   the runs agree {title}\n")
        found = gated(tmp_path / "b", line, SPEC.replace("1}", f"1, {remedy}}}"))
    found.must(0)
    assert found.check(ROBUST)["status"] == "pass" and found.report["robust"]
    assert found.stdout.startswith(" PASS   bitwise identical: ")


@pytest.mark.slow
def test_a_time_budget_that_is_filled_is_found_and_its_line_is_named(tmp_path: Path) -> None:
    """Every second takes so long that two plain runs do the same; and the same with a budget that
    is never reached."""
    line = """from time import perf_counter, sleep; rounds, end = 0, perf_counter() + LIMIT
    while not number and rounds < 5 and perf_counter() < end: rounds += 1; sleep(0.4)
    x += rounds"""
    found = gated(tmp_path / "a", line.replace("LIMIT", "1.19"))
    found.must_warn(ROBUST, f"in train.py:{LINE + 1} depends on the time of day and durations")
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


def test_ordinary_nondeterminism_is_shown_by_the_plain_pair(tmp_path: Path) -> None:
    line = "x += int.from_bytes(__import__('os').urandom(4), 'big') * 1e-9 if number == 2 else 0"
    found = gated(tmp_path, line, SPEC + "determinism: {repeat: 3}\n")
    found.must_diverge(2, "loss")
    assert found.check(ROBUST)["status"] == "skip"


@pytest.mark.slow
def test_a_training_that_repeats_by_luck_is_no_robust_one(tmp_path: Path) -> None:
    """The second run and the fifth are other ones: the varied one, and the first that looks for
    what it depends on."""
    line = f"""import os; seen = {str(tmp_path / "turn")!r}
    if number == 0: open(seen, 'a').write('x'); turn = os.path.getsize(seen)
    x += turn in (2, 5) and number == 2"""
    found = gated(tmp_path, line)
    found.must_diverge(2, "loss")
    assert found.check(ROBUST)["status"] == "skip"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("vary", "exit_code", "status"),
    [("", 1, "fail"), ("{vary: [home, listing]}", 0, "pass"), ("{vary: false}", 0, "skip")],
)
def test_what_is_not_varied_stays(vary: str, exit_code: int, status: str, tmp_path: Path) -> None:
    strict = SPEC + "checklist: {severity: {random-state/robust: fail}}\n"
    spec = strict + (f"robustness: {vary}\n" if vary else "")
    found = gated(tmp_path, "x += crc(__import__('os').getcwd())", spec)
    found.must(exit_code)
    assert found.check(ROBUST)["status"] == status


# What else ends badly, under every option: tests/combinations.
IN_RUN = """import os, sys, signal
    from _repro_gate.probe import session
    name, varied = os.path.basename(session.current().config['traces']), 'clone' in __file__
    """


EXITS = ("sys.exit(3)", 1, "determinism/crashed")
KILLED = ("os.kill(os.getpid(), signal.SIGKILL)", 3, "run/killed")


@pytest.mark.parametrize(("how", "code", "reason"), [EXITS, KILLED])
def test_a_run_that_fails_by_chance_never_passes(
    tmp_path: Path, how: str, code: int, reason: str
) -> None:
    """The second run is varied, and a plain repeat of the first comes through: done again, so does
    a varied one."""
    line = f"{IN_RUN}if number == 2 and name == 'deterministic-2': {how}"
    found = gated(tmp_path, line, PLAIN)
    assert found.exit_code == code and reason in found.reason_ids, found.said
    assert any("deterministic-2" in item["message"] for item in found.report["reasons"])
    determinism = found.report["determinism"]
    assert (determinism["failed"], determinism["bound_pct"]) == (1, None)
    assert found.check(ROBUST)["status"] == "skip"
    assert found.check("code/pristine-workspace")["status"] == "pass"


@pytest.mark.slow
def test_a_run_that_fails_whenever_it_is_varied_is_not_robust(tmp_path: Path) -> None:
    line = f"{IN_RUN}if number == 2 and varied: print('the end'); sys.exit(3)"
    found = gated(tmp_path, line, SPEC)
    check = found.must_warn(ROBUST, "depends on the path of the checkout")
    determinism = found.report["determinism"]
    assert determinism["identical"] and determinism["failed"] == 0
    evidence = "\n".join(check["evidence"])
    assert "diverges from the first in how it ends (it exited with status 3)" in evidence
    assert "deterministic-2 ended with: the end" in evidence


@pytest.mark.slow
def test_a_varied_run_that_fails_for_one_seed_only_never_passes(tmp_path: Path) -> None:
    """The first seed depends on the path; the second one's varied run fails by chance."""
    line = f"{IN_RUN}if name == 'seed7-deterministic-2' and number == 2: sys.exit(3)"
    line += "\n    x += varied and sys.argv[1] == '42'"
    found = gated(tmp_path, line, SEEDED + "random-state: {seeds: [42, 7]}\n")
    found.must(1, *CRASHED)
    assert found.check(ROBUST)["status"] == "warn"


@pytest.mark.slow
@pytest.mark.parametrize(("repeat", "exit_code"), [(3, 1), (2, 0)])
def test_within_a_tolerance_the_worst_decides(repeat: int, exit_code: int, tmp_path: Path) -> None:
    """The second run is within the tolerance and the third is not."""
    loop = """
from repro_gate import record, step
for number in range(4):
    far = 5.0 if name == "deterministic-3" and number == 2 else 0.0
    record("loss", 1.0 + 1e-9 * (sum(map(ord, name)) % 7) + far)
    step()
"""
    lines = IN_RUN.replace("\n    ", "\n") + loop
    spec = f"determinism: {{repeat: {repeat}, compare: {{loss: 0.5, weights: 0.5}}}}\n"
    gate_training(tmp_path, lines, PLAIN + spec).must(exit_code)
