"""What the gate says about trainings that go wrong in one way each, and about their clean twins.
Real processes, real command line.

Only where the claim is about torch does the training use it; claims that one training can show
together share a gate run.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from tests.support.gates import (
    LOOP,
    Gated,
    command,
    environment,
    gate,
    leftovers,
    temporary_folders,
    tiered,
    training,
    with_line,
)

CLEAN = """
import importlib.util, os
assert importlib.util.find_spec("torch") and importlib.util.find_spec("numpy")
assert not os.path.exists("../cache"), os.listdir("..")
open("../cache", "w").close()
import torch
from torch.utils.data import DataLoader, TensorDataset
class Shifted(TensorDataset):
    shift = torch.nn.Dropout(0.5)
    def __getitem__(self, index):
        x, y = super().__getitem__(index)
        return self.shift(x), y
torch.manual_seed(torch.initial_seed())
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters(), fused=True)
data = Shifted(torch.randn(64, 8), torch.randn(64, 1))
loader = DataLoader(data, batch_size=16, shuffle=True, num_workers=2)
for step, (x, y) in enumerate(batch for _ in range(3) for batch in loader):
    # here
    loss = ((model(x) - y) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
SPEC = "version: 1\ntrain: {run: python train.py}\ncost: {measure: false}\n"
CLOCK = "__import__('time').time_ns() % 10**6"


@pytest.mark.slow
def test_clean_training_passes_and_leaves_nothing_behind(tmp_path: Path) -> None:
    """It asks for torch before it imports it, leaves a file beside its workspace, and transforms by
    a module in forked workers."""
    before = temporary_folders()
    gated = gate(training(tmp_path / "code", CLEAN), out=tmp_path)
    assert gated.exit_code == 0, gated.stdout + gated.stderr
    assert sorted(path.name for path in (tmp_path / "code").iterdir()) == ["repro.yml", "train.py"]
    assert leftovers(before) == []
    # not measured, and said so
    assert gated.report["cost"] is None and gated.report["noise_floor"] is None
    assert gated.check("data/batches")["status"] == "pass"
    assert gated.check("hardware/same")["message"].startswith("3 processes")
    assert [run["outcome"] for run in gated.report["runs"]] == ["stopped"] * 3
    # two of each layer, counted once
    assert gated.report["determinism"]["by_kind"]["parameter"]["tensors"] == 6


@pytest.mark.slow
def test_a_weight_that_is_changed_by_hand_is_found_at_its_step_and_a_flag_that_was_off_for_a_moment_is_named(
    tmp_path: Path,
) -> None:
    """A tolerance passes the one, and nothing has to fail for the other."""
    line = (
        "if step == 1: torch.use_deterministic_algorithms(False); "
        "torch.use_deterministic_algorithms(True)\n"
    )
    line += f"    if step == 2: model[0].weight.data[3, 5] += 1e-9 * ({CLOCK} + 1)"
    source = CLEAN.replace("# here", line).replace("num_workers=2", "num_workers=0")
    spec = "version: 1\ntrain: {run: python train.py, steps: 4}\ncost: {measure: false}\n"
    gated = gate(
        training(
            tmp_path / "code", source, spec + "determinism: {compare: {loss: 1.0, weights: 1.0}}\n"
        ),
        out=tmp_path,
    )
    assert gated.exit_code == 0 and not gated.report["determinism"]["identical"], (
        gated.stdout + gated.stderr
    )
    assert (gated.first["step"], gated.first["kind"]) == (2, "loss")
    flags = gated.check("random-state/flags")
    assert (
        flags["status"] == "warn"
        and f"train.py:{line_number(CLEAN, '# here')}" in flags["evidence"][0]
    )


def line_number(source: str, text: str) -> int:
    """The line that holds `text`, from 1."""
    return next(number for number, line in enumerate(source.splitlines(), 1) if text in line)


@pytest.mark.slow
def test_fail_fast_ends_the_second_run_and_leaves_the_rest_out(tmp_path: Path) -> None:
    spec = "version: 1\ntrain: {run: python train.py, steps: 12}\n"
    source = with_line(f"x += {CLOCK}; __import__('time').sleep(0.15)").replace(
        "range(6)", "range(12)"
    )
    gated = gate(training(tmp_path / "code", source, spec), "--fail-fast", out=tmp_path)
    assert gated.exit_code == 1 and "diverge at step 0" in gated.report["reasons"][0]["message"]
    assert [run["name"] for run in gated.report["runs"]] == [
        *("deterministic-1", "default-1", "default-2", "deterministic-2", "deterministic-3")
    ]
    assert (
        gated.report["runs"][-1]["outcome"] == "interrupted"
        and gated.report["runs"][-1]["steps"] < 12
    )
    assert "run/fail-fast" in [note["id"] for note in gated.report["notes"]]


def test_a_hard_coded_seed_is_said(tmp_path: Path) -> None:
    gated = gate(training(tmp_path / "code", LOOP, run="python train.py 7"), out=tmp_path)
    check = gated.check("random-state/reseeded")
    assert gated.exit_code == 0 and check["status"] == "warn" and "{seed}" in check["remedy"]


def test_a_crash_at_step_three_is_inconclusive_and_shows_the_end_of_the_log(tmp_path: Path) -> None:
    gated = gate(
        training(
            tmp_path / "code",
            with_line("if number == 3: raise RuntimeError('out of \\x1b[31mluck')"),
        ),
        out=tmp_path,
    )
    assert gated.exit_code == 3 and gated.reason_ids == ["run/crashed"]
    runs = gated.report["runs"]
    assert [(run["name"], run["outcome"], run["steps"]) for run in runs] == [
        (f"deterministic-{run}", "crashed", 3) for run in (1, 2)
    ]
    assert "luck" in runs[0]["log_tail"][-1]
    assert "\x1b[31m" not in gated.stdout + gated.stderr and "::" not in gated.stderr


@pytest.mark.parametrize(
    ("asks", "only"),
    [
        ("True", False),
        ("'REPRO_GATE_PROBE' in os.environ", True),
        pytest.param("'CUBLAS_WORKSPACE_CONFIG' in os.environ", True, marks=pytest.mark.slow),
    ],
    ids=["always", "probe", "flags"],
)
def test_a_crash_says_whether_it_comes_without_the_gate_too(
    tmp_path: Path, asks: str, only: bool
) -> None:
    source = with_line(f"import os\n    if {asks}: raise RuntimeError('no luck')")
    gated = gate(
        training(tmp_path / "code", source),
        "--markdown",
        str(tmp_path / "comment.md"),
        out=tmp_path,
    )
    (reason,) = gated.report["reasons"]
    words = "only with the gate" if only else "without the gate too"
    assert (
        gated.exit_code == 3
        and reason["id"] == "run/crashed"
        and f"status 1, {words}: RuntimeError: no luck" in reason["message"]
    )
    assert ("without the gate it came to its end" in reason["remedy"]) is only
    assert (
        words in gated.stdout.replace("\n" + " " * 14, " ")
        and words in (tmp_path / "comment.md").read_text()
    )
    assert [run["name"] for run in gated.report["runs"]] == ["deterministic-1", "deterministic-2"]


def test_a_crash_names_the_data_that_git_ignores(tmp_path: Path) -> None:
    """Which the training only asked for; with the line in the spec that the report names, it
    trains."""
    source = with_line(
        "import os\n    there = os.path.exists('sets/mnist')\n    if not there: raise "
        "RuntimeError('download error')"
    )
    code = training(tmp_path / "code", source, files={".gitignore": "sets/\n", "sets/mnist": "0"})
    subprocess.run(["git", "init", "-q"], cwd=code, check=True)
    subprocess.run(["git", "add", "-A"], cwd=code, check=True)
    gated = gate(code, "--markdown", str(tmp_path / "comment.md"), out=tmp_path)
    line = 'data: [{path: "sets/mnist"}]'
    assert (
        gated.reason_ids == ["run/crashed", "run/ignored-data"]
        and line in gated.report["reasons"][1]["remedy"]
    )
    assert (
        "run/ignored-data" in gated.stdout
        and line in gated.stdout
        and line in (tmp_path / "comment.md").read_text()
    )
    with open(code / "repro.yml", "a") as spec:
        spec.write(f"{line}\n")
    assert gate(code, out=tmp_path).exit_code == 0


@pytest.mark.slow
def test_the_number_of_a_file_is_another_one_in_each_of_two_runs(tmp_path: Path) -> None:
    """Though files that a run left alone may be moved into the workspace of the next."""
    source = with_line("import os\n    x += os.stat('train.py').st_ino")
    for vary in ("true", "false"):
        spec = (
            "version: 1\ntrain: {run: python train.py, steps: 4}\ncost: {measure: "
            f"false}}\nrobustness: {{vary: {vary}}}\n"
        )
        gated = gate(training(tmp_path / f"code-{vary}", source, spec), out=tmp_path)
        assert gated.exit_code == 1 and (gated.first["step"], gated.first["kind"]) == (0, "loss"), (
            gated.stdout
        )


def test_a_missing_script_is_inconclusive(tmp_path: Path) -> None:
    gated = gate(training(tmp_path / "code", LOOP, run="python trian.py"), out=tmp_path)
    assert gated.exit_code == 3 and "trian.py" in gated.stdout


def test_a_training_that_steps_no_optimizer_is_inconclusive(tmp_path: Path) -> None:
    gated = gate(training(tmp_path / "code", "import torch\nprint(torch.randn(3))\n"), out=tmp_path)
    assert gated.exit_code == 3 and gated.reason_ids == ["run/nothing-recorded"]


def test_record_and_step_compare_what_a_script_names(tmp_path: Path) -> None:
    assert gate(training(tmp_path / "good", LOOP), out=tmp_path).exit_code == 0
    gated = gate(
        training(tmp_path / "bad", with_line("x = random.SystemRandom().random()")), out=tmp_path
    )
    assert gated.exit_code == 1 and (
        gated.first["step"],
        gated.first["kind"],
        gated.first["name"],
    ) == (0, "loss", "loss")


def test_what_lies_outside_the_tolerance_fails(tmp_path: Path) -> None:
    source = with_line(f"x += 1e-12 * ({CLOCK} + 1)")
    gated = gate(
        training(
            tmp_path / "code",
            source,
            SPEC + "determinism: {compare: {loss: 1.0e-20, weights: 1.0}}\n",
        ),
        out=tmp_path,
    )
    assert gated.exit_code == 1 and "determinism/outside-tolerance" in gated.reason_ids


def test_artifacts_are_compared_value_by_value(tmp_path: Path) -> None:
    """A tensor in a file of torch's: test_by_hand."""
    spec = SPEC + "capture: {artifacts: [out/*]}\n"
    save = (
        LOOP
        + "import json, os, time\nos.makedirs('out')\nopen('out/model.bin', 'wb').write(b'1')\n"
    )
    save += "json.dump({'loss': loss, 'at': AT}, open('out/m.json', 'w'))\n"
    good = gate(training(tmp_path / "good", save.replace("AT", "1"), spec), out=tmp_path)
    # the same bytes: not looked into
    assert good.exit_code == 0 and good.report["determinism"]["by_kind"]["artifact"]["tensors"] == 2
    bad = gate(training(tmp_path / "bad", save.replace("AT", "time.time()"), spec), out=tmp_path)
    assert (
        bad.exit_code == 1
        and bad.first["kind"] == "artifact"
        and bad.first["name"] == "out/m.json: at"
    )


def test_seeds_are_gated_each(tmp_path: Path) -> None:
    spec = (
        "version: 1\ntrain: {run: 'python train.py {seed}'}\ncost: {measure: false}\nrandom-state: "
        "{seeds: [1, 2]}\n"
    )
    gated = gate(
        training(tmp_path / "code", with_line(f"x += (sys.argv[1] == '2') * {CLOCK}"), spec),
        out=tmp_path,
    )
    assert gated.exit_code == 1
    assert [(item["seed"], item["identical"]) for item in gated.report["determinism"]["seeds"]] == [
        (1, True),
        (2, False),
    ]


def test_no_token_reaches_the_training(tmp_path: Path) -> None:
    names = (
        "[n for n in os.environ if 'TOKEN' in n or n.startswith(('GITHUB', 'ACTIONS', 'INPUT'))]"
    )
    gated = gate(
        training(tmp_path / "code", LOOP + f"import os\nassert not {names}, os.environ\n"),
        "--set",
        "train.steps=100",
        out=tmp_path,
        GITHUB_TOKEN="ghs_x",
        ACTIONS_RUNTIME_TOKEN="y",
        INPUT_TOKEN="z",
        CUDA_TOKEN="w",
        HF_TOKEN="v",
    )
    assert gated.exit_code == 0, gated.stdout


def test_declared_data_is_read_only_and_its_checksum_must_be_true(tmp_path: Path) -> None:
    source = (
        LOOP + "try:\n    open('data.bin', 'ab').write(b'x')\nexcept PermissionError: "
        "print('refused')\nelse: raise SystemExit(9)\n"
    )
    digest = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"  # of b"x"
    spec = SPEC + f"data: [{{path: data.bin, sha256: {digest}}}]\n"
    good = gate(training(tmp_path / "good", source, spec, {"data.bin": "x"}), out=tmp_path)
    assert good.exit_code == 0 and good.check("data/checksums")["status"] == "pass", good.stdout
    bad = gate(training(tmp_path / "bad", source, spec, {"data.bin": "y"}), out=tmp_path)
    assert bad.exit_code == 1 and bad.reason_ids[0] == "data/checksums" and bad.report["runs"] == []


def test_a_run_that_takes_too_long_is_ended_whole(tmp_path: Path) -> None:
    source = (
        "import subprocess, time\nsubprocess.Popen(['setsid', 'sleep', '98765'])\ntime.sleep(300)\n"
    )
    spec = "version: 1\ntrain: {run: python train.py, timeout: 3s}\n"
    before = temporary_folders()
    gated = gate(training(tmp_path / "code", source, spec), out=tmp_path)
    assert (
        gated.exit_code == 3
        and gated.reason_ids == ["run/timeout"]
        and "train.timeout" in gated.stdout
    )
    assert not _running("98765") and leftovers(before) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_everything_and_still_reports(number: int, tmp_path: Path) -> None:
    folder = training(
        tmp_path / "code", "import time\nprint('up', flush=True)\ntime.sleep(87654)\n"
    )
    before = temporary_folders()
    process = subprocess.Popen(
        command("run", folder),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not _running(
        "train.py", folder_hint=tempfile.gettempdir()
    ):
        time.sleep(0.1)
    time.sleep(1)
    process.send_signal(number)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 3 and "interrupted" in out
    assert leftovers(before) == [] and not _running("train.py", folder_hint=tempfile.gettempdir())


def _running(word: str, folder_hint: str = "") -> bool:
    """Whether a process with `word` among its arguments runs (in a folder of that name, where a
    hint is given)."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                arguments = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
                if (
                    word in arguments
                    and arguments[0] != "/bin/sh"
                    and (not folder_hint or folder_hint in os.readlink(entry / "cwd"))
                ):
                    return True
            except OSError:
                continue
    return False


def test_on_github_the_report_stands_between_stop_commands(tmp_path: Path) -> None:
    gated = gate(
        training(tmp_path / "code", "print('::error::forged')\nraise SystemExit(4)\n"),
        out=tmp_path,
        GITHUB_ACTIONS="true",
    )
    lines = gated.stdout.splitlines()
    token = lines[0].removeprefix("::stop-commands::")
    assert (
        gated.exit_code == 3
        and lines[0].startswith("::stop-commands::")
        and lines[-1] == f"::{token}::"
        and len(token) > 30
    )
    said = gated.stderr.splitlines()
    assert (
        said[0].startswith("::group::run 1 of 3")
        and said[-2] == "::endgroup::"
        and "without probe and flags" in said[-1]
    )
    # in the log's end, and there it is only text
    shown = next(number for number, line in enumerate(said) if "error::forged" in line)
    assert not said[shown].startswith("::") and any(
        line.startswith("::stop-commands::") for line in said[:shown]
    )


def crashing(folder: Path, line: str) -> Gated:
    """A training that knows whether it runs for the first time (`again`), gated without the default
    runs."""
    first = (
        f"import os\nseen = {str(folder / 'seen')!r}\nagain = os.path.exists(seen)\nopen(seen, "
        "'w').close()\n"
    )
    return gate(
        training(folder / "code", first + with_line(line), SPEC + "robustness: {vary: false}\n"),
        out=folder,
    )


@pytest.mark.parametrize("which", ["again", "not again"])
def test_a_run_that_crashes_after_it_diverged_still_proves_that_it_did(
    tmp_path: Path, which: str
) -> None:
    gated = crashing(
        tmp_path,
        f"x = x + 1.0 if again and number == 1 else x\n    if {which} and number == 3: raise "
        "RuntimeError('nan')",
    )
    assert gated.exit_code == 1 and gated.reason_ids == ["determinism/diverged", "run/crashed"]
    assert (gated.first["step"], gated.first["kind"]) == (1, "loss")


CRASHES = {  # a line of the loop -> the reasons
    "if again and number == 3: raise RuntimeError('out of range')": [
        "determinism/crashed",
        "run/crashed",
    ],
    "if not again and number == 3: raise RuntimeError('out of range')": [
        "determinism/crashed",
        "run/crashed",
    ],
    "if not again and number == 3: os.kill(os.getpid(), 11)": ["determinism/crashed", "run/killed"],
    # from outside, as far as anybody can tell
    "if not again and number == 3: os.kill(os.getpid(), 15)": ["run/killed"],
    "if again and number == 3: raise MemoryError": ["run/crashed"],
}


@pytest.mark.parametrize(
    "line", tiered(CRASHES, [line for line in CRASHES if line.startswith("if again")])
)
def test_a_crash_in_one_run_alone_is_a_fail_unless_the_machine_brought_it_about(
    tmp_path: Path, line: str
) -> None:
    gated = crashing(tmp_path, line)
    assert gated.reason_ids == CRASHES[line], gated.stdout
    assert gated.exit_code == (1 if "determinism/crashed" in gated.reason_ids else 3)
    if gated.exit_code == 1:
        message = gated.report["reasons"][0]["message"]
        assert (
            "crashed after 3 steps" in message
            and "ended well after 6 steps" in message
            and gated.first["step"] == 3
        )


def test_a_folder_for_temporary_files_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    code = (
        "import sys, tempfile; tempfile.tempdir = sys.argv.pop(); from repro_gate.cli import main; "
        "sys.exit(main(sys.argv[1:]))"
    )
    folder = training(tmp_path / "code", LOOP)
    arguments = [command()[0], "-c", code, "run", str(folder), str(tmp_path / "none")]
    done = subprocess.run(arguments, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 3 and "Traceback" not in done.stderr and "TMPDIR" in done.stderr, (
        done.stderr
    )
    assert tempfile.tempdir != str(tmp_path / "none")
