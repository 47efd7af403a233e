"""What the gate says about trainings that go wrong in one way each, and about their clean twins.
Real processes, real command line.

The training needs no torch; claims that one training can show together share a gate run.
"""

from __future__ import annotations

import subprocess
from hashlib import sha256
from pathlib import Path

import psutil
import pytest

from tests.support.gates import (
    LOOP,
    command,
    environment,
    gate,
    gate_training,
    temporary_folders,
    tiered,
    training,
    with_line,
)
from tests.support.repositories import git

SPEC = "version: 1\ntrain: {run: python train.py}\ncost: {measure: false}\n"


def test_a_crash_that_comes_only_with_the_gate_says_so(tmp_path: Path) -> None:
    """One that comes without it too: test_report."""
    source = with_line("import os\n    assert not 'REPRO_GATE_PROBE' in os.environ, 'no luck'")
    gated = gate_training(tmp_path, source)
    gated.must(3, "run/crashed")
    (reason,) = gated.report["reasons"]
    assert "status 1, only with the gate: AssertionError: no luck" in reason["message"]
    assert "without the gate it ran to its end" in reason["remedy"]
    assert [run["name"] for run in gated.report["runs"]] == ["deterministic-1", "deterministic-2"]


def test_a_quick_look_is_a_pair_and_the_control_and_says_what_it_left_out(tmp_path: Path) -> None:
    """Of a spec that asks for more; without --quick, each of it: the tests of each."""
    clean, fault = LOOP, with_line("x += random.SystemRandom().random()")
    more = "diagnosis: {runs: 4}\nrandom-state: {seeds: [1, 2]}\ndeterminism: {repeat: 3}\n"
    spec = f"version: 1\ntrain: {{run: 'python train.py {{seed}}', steps: 4}}\n{more}"
    good, bad = (
        gate_training(tmp_path / name, source, spec, "--quick")
        for name, source in (("good", clean), ("bad", fault))
    )
    good.must(0)
    assert "3 runs are coming, together about as long as 2 trainings of 4 steps" in good.stderr
    names = ["deterministic-1", "deterministic-2", "reseeded"]
    assert [run["name"] for run in good.report["runs"]] == names
    left = "the noise floor and the cost, why runs diverge, further seeds, further repeats"
    for gated in (good, bad):
        (note,) = (item for item in gated.report["notes"] if item["id"] == "run/quick")
        assert note["message"] == f"a quick look: without `--quick` the gate looks at {left} too"
        assert gated.report["reproduce"].endswith("--quick") is (gated is good)
    bad.must_diverge(0, "loss")
    assert bad.report["diagnosis"] is None and len(bad.report["runs"]) <= 3
    least = gate_training(tmp_path / "least", clean, SPEC, "--quick")
    assert "run/quick" not in {item["id"] for item in least.report["notes"]}, "nothing was left out"
    refused = subprocess.run(
        command("run", tmp_path / "good/code", "--quick", "--only", "resume", "--against", "HEAD"),
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert refused.returncode == 2 and "leave out --against, --only" in refused.stderr


def test_a_crash_names_the_data_that_git_ignores(tmp_path: Path) -> None:
    """Which the training only asked for, and its log does not name; with the line that the report
    names in the spec, it trains. The spec lies in a folder of the checkout."""
    asks = "import os; there = os.path.exists('sets/mnist')"
    source = with_line(f"{asks}\n    if not there: raise RuntimeError('download error')")
    files = {"../.gitignore": "sets/\n", "sets/mnist": "0"}
    code = training(tmp_path / "code/deep", source, files=files)
    git(tmp_path / "code", "init", "-q")
    git(tmp_path / "code", "add", "-A")
    gated, line = gate(code, out=tmp_path), "data: [{path: sets}]"
    gated.must(3, "data/undeclared", "run/crashed")
    needed, crashed = gated.report["reasons"]
    assert needed["message"] == "the training needs files that git ignores: `sets/` (1 file)"
    assert line in needed["remedy"] and "without the gate" not in crashed["message"]
    with open(code / "repro.yml", "a") as spec:
        spec.write(f"{line}\n")
    gate(code, out=tmp_path).must(0)


WRITES = f"""{LOOP}
try:
    open('data.bin', 'ab').write(b'x')
except PermissionError:
    raise SystemExit(0)
raise SystemExit(9)
"""


@pytest.mark.parametrize("true", [True, False])
def test_declared_data_is_read_only_and_must_have_its_checksum(true: bool, tmp_path: Path) -> None:
    spec = SPEC + f"data: [{{path: data.bin, sha256: {sha256(b'x').hexdigest()}}}]\n"
    gated = gate_training(tmp_path, WRITES, spec, files={"data.bin": "x" if true else "y"})
    gated.must(int(not true))
    assert gated.check("data/checksums")["status"] == ("pass" if true else "fail")
    assert true or (gated.reason_ids[0] == "data/checksums" and gated.report["runs"] == [])


def test_a_run_that_takes_too_long_is_ended_whole(tmp_path: Path) -> None:
    source = "import os\nos.system('setsid sleep 98765 & sleep 98765')\n"
    before = temporary_folders()
    gated = gate_training(tmp_path, source, SPEC.replace("train.py}", "train.py, timeout: 1s}"))
    gated.must(3, "run/timeout")
    assert "train.timeout" in gated.stdout
    assert temporary_folders() == before
    commands = (process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"]))
    assert not any("98765" in words for words in commands)


CRASHED = ("determinism/crashed", "run/crashed")
CRASHES = {  # a line of the loop -> the reasons
    # what diverged before it crashed still proves that it did
    "x += again and number == 1; assert not again or number < 3": (
        "determinism/diverged",
        "run/crashed",
    ),
    "assert not again or number < 3": CRASHED,
    "assert again or number < 3": CRASHED,
    # from outside, as far as anybody can tell
    "again or number < 3 or os.kill(os.getpid(), 15)": ("run/killed",),
    "if again and number == 3: raise MemoryError": ("run/crashed",),
}


@pytest.mark.parametrize("line", tiered(CRASHES, [line for line in CRASHES if "kill" not in line]))
def test_a_crash_in_one_run_is_a_fail_unless_of_the_machine(tmp_path: Path, line: str) -> None:
    """Gated without the default runs; the training knows whether it runs for the first time. More
    errors and signals: tests/runs/test_crashes.py."""
    seen = str(tmp_path / "seen")
    first = f"import os\nagain = os.path.exists({seen!r})\nopen({seen!r}, 'w').close()\n"
    gated = gate_training(tmp_path, first + with_line(line), SPEC + "robustness: {vary: false}\n")
    reason = CRASHES[line][0]
    gated.must(1 if reason.startswith("determinism") else 3, *CRASHES[line])
    if reason == "determinism/diverged":
        gated.must_diverge(1, "loss")
    elif reason == "determinism/crashed":
        gated.must_diverge(3, "optimizer", "steps")


def test_a_folder_for_temporary_files_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    code = "import sys, tempfile; tempfile.tempdir = '/none'; from repro_gate.cli import main; sys.exit(main())"
    arguments = [command()[0], "-c", code, "run", str(training(tmp_path, LOOP))]
    done = subprocess.run(arguments, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 3 and "Traceback" not in done.stderr and "TMPDIR" in done.stderr


def test_whole_runs_are_timed_without_digests_where_the_probe_takes_much_of_a_step(
    tmp_path: Path,
) -> None:
    spec = SPEC.replace("cost: {measure: false}\n", "robustness: {vary: false}\ndiagnosis: false\n")
    for busy, anew in (("", True), ("sum(range(200_000))", False)):
        source = with_line(busy).replace("range(6)", "range(30)")
        gated = gate_training(tmp_path / str(anew), source, spec)
        gated.must(0)
        names = [run["name"] for run in gated.report["runs"]]
        order = ("deterministic-1", "default-1", "default-2", "deterministic-2")
        assert names == [*order, "reseeded", *(f"undigested-{name}" for name in order if anew)]
        cost = gated.report["cost"]
        assert cost["undigested"] is anew is (cost["probe_pct"] > 10), cost
        assert cost["why"] and cost["gpus"] == []
        runs = {run["name"]: run["probe_seconds"] for run in gated.report["runs"]}
        if anew:
            assert runs["undigested-default-1"] < runs["default-1"]
            assert "from whole runs without digests: " in " ".join(gated.stdout.split())
