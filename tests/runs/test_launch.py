"""However a training ends, the run has the right outcome, one clear sentence and a remedy."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from repro_gate.checkout.snapshot import Snapshot
from repro_gate.runs import arms, launch, order, variation, watching
from repro_gate.runs.launch import RunRequest, RunResult
from repro_gate.runs.workspaces import GateFolder, Workspace
from repro_gate.spec.model import CostBudget, Hardware, Spec, Train
from repro_gate.trace import format as fmt
from repro_gate.trace.model import Trace
from tests.support.built_traces import training
from tests.support.tracing import PATH, blocks, trace_script, trained

TRAIN = """
import os
from repro_gate import record, step
def one():
    record("x", 1)
    step()
"""


def ending(run: RunResult) -> tuple[str, str]:
    assert run.problem and "\n" not in run.problem and run.remedy and not run.good
    return run.outcome, run.reason_id


def launched(
    tmp_path: Path,
    train: Train,
    cwd: str = "",
    seed: int = 1,
    tick: Callable[[Sequence[Trace]], str | None] = lambda _: None,
    is_used: bool = False,
) -> RunResult:
    """A plain run in a workspace that is there."""
    workspace = tmp_path / "workspace"
    home, tmp = tmp_path / "home", tmp_path / "tmp"
    for folder in (workspace, home, tmp):
        folder.mkdir(exist_ok=True)
    snapshot = Snapshot(root=workspace, source=workspace, files=0)
    folder = GateFolder(path=tmp_path, snapshot=snapshot, outer={"PATH": PATH})
    place = Workspace(workspace, workspace / cwd, home, tmp, is_used)
    plan = RunRequest(name="one", arm=arms.default(seed, None))
    return launch.launch(Spec(path=tmp_path / "repro.yml", train=train), plan, folder, place, tick)


def test_a_working_directory_that_is_missing_is_named(tmp_path: Path) -> None:
    run = launched(tmp_path, Train(run="true", working_directory="sub/folder"), "sub/folder")
    assert ending(run) == ("crashed", "run/no-working-directory")
    assert "'sub/folder'" in run.problem


def test_a_rank_that_dies_leaves_a_truncated_trace_and_no_result(tmp_path: Path) -> None:
    run = trace_script(tmp_path, TRAIN + "one()\nos.kill(os.getpid(), 9)\n")
    assert ending(run) == ("killed", "run/killed")
    dies = "one()\nif os.fork() == 0:\n    one()\n    os.kill(os.getpid(), 9)\nos.wait()\none()\n"
    run = trace_script(tmp_path, TRAIN + dies)
    assert ending(run) == ("untraced", "trace/unreadable")
    assert "truncated after step 0: the process ended" in run.problem


@pytest.mark.parametrize(
    ("source", "command"),
    [
        ("print('no torch here')", "python train.py"),
        pytest.param("import torch.optim", "python train.py", marks=pytest.mark.slow),
        ("", "echo hello"),
    ],
)
def test_without_a_step_there_is_nothing_to_compare(
    source: str, command: str, tmp_path: Path
) -> None:
    run = trace_script(tmp_path, source, command=command)
    assert ending(run) == ("untraced", "run/nothing-recorded")
    assert ("no torch optimizer took a step" in run.problem) is bool(source)
    assert "add to the training loop" in run.remedy


ENDLESS = TRAIN + "import time\nwhile True:\n    one()\n    time.sleep(0.05)\n"


def test_a_text_of_the_tick_ends_the_run_early(tmp_path: Path) -> None:
    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace/train.py").write_text(ENDLESS)
    run = launched(
        tmp_path,
        Train(run="python train.py", timeout=60),
        tick=lambda traces: "diverged" if any(len(it.steps) >= 3 for it in traces) else None,
    )
    known = (run.outcome, run.problem, run.reason_id)
    assert known == ("interrupted", "diverged", "run/ended-early")


def test_what_stays_on_is_helped_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "STOP_GRACE", 0.2)
    stays = f"try:\n    {ENDLESS.strip().replace(chr(10), chr(10) + '    ')}"
    run = trace_script(tmp_path, f"{stays}\nfinally:\n    time.sleep(60)\n", steps=2)
    assert (run.outcome, run.steps, run.ended.stopped) == ("stopped", 2, "steps")


def test_a_snippet_and_the_seed_in_a_command_are_filled_in(tmp_path: Path) -> None:
    snippet = "from repro_gate import record, step\nrecord('x', {seed} / 4)\nstep()\n"
    run = launched(tmp_path, Train(snippet=snippet), seed=6)
    assert (run.outcome, blocks(trained(run), "loss", 0)[0].values) == ("finished", ((1.5).hex(),))
    echoed = trace_script(tmp_path / "two", "", command="echo seed={seed}", seed=7)
    assert echoed.ended.tail == ("seed=7",)


# What is done to the trace afterwards does not depend on who recorded.
WRITTEN = f"""{TRAIN}
import glob, json, resource, signal, time
one()
config = json.load(open(os.environ["REPRO_GATE_PROBE"]))
[path] = [item for item in glob.glob(config["traces"] + "/*.jsonl") if item.endswith("-%d.trace.jsonl" % os.getpid())]
def append(content):
    with open(path, "ab") as file:
        file.write(content)
"""


def untraced(run: RunResult) -> str:
    """The problem of a run whose trace cannot be used: one line, and nothing of it is a result."""
    found = (run.outcome, run.reason_id, run.good)
    assert found == ("untraced", "trace/unreadable", False), (run.problem, run.ended)
    assert "\n" not in run.problem and len(run.problem) < 500
    return run.problem


@pytest.mark.parametrize(
    ("code", "said", "remedy"),
    [
        ('append(b\'{"e":"reward"}\\n\')', "is no event of the format", "must not write to"),
        ("append(b' ' * 200_000)", "more than 100,000 bytes", "raise capture.every"),
    ],
    ids=["a forged line", "more than a run may write"],
)
def test_a_trace_that_is_forged_or_too_large_is_named_and_ends_the_run_at_once(
    code: str, said: str, remedy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(fmt.MAX_OF_RUN, fmt.BYTES, 100_000)
    run = trace_script(tmp_path, WRITTEN + code + "\ntime.sleep(60)\n")
    assert said in untraced(run) and ".trace.jsonl:" in run.problem and remedy in run.remedy
    assert run.ended.stopped == "trace" and run.ended.seconds < 40


LIMITED = """
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))
try:
    for _ in range(500):
        one()
except BaseException:
    pass
print('went on unseen')
"""


def test_a_trace_that_cannot_be_written_ends_the_training(tmp_path: Path) -> None:
    run = trace_script(tmp_path, WRITTEN + LIMITED)
    assert "File too large" in untraced(run) and "capture.every" in run.remedy
    # of its own accord, or by the gate, which saw the broken trace first
    assert run.ended.exit_code in (74, -9) and "went on unseen" not in run.ended.tail


def test_a_workspace_that_is_used_is_not_given_to_the_training_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may hold hard links to files of others by then."""
    given: list[Path] = []
    monkeypatch.setattr(launch, "chown_to_training", lambda _, *trees: given.extend(trees))
    for is_used, expected in ((False, {"workspace", "home", "tmp"}), (True, {"tmp"})):
        given.clear()
        launched(tmp_path, Train(run="true"), is_used=is_used)
        assert {tree.name for tree in given if tree.parent == tmp_path} == expected


@pytest.mark.parametrize("length", range(1, 258, 8))
def test_the_configuration_is_as_long_in_each_run_whatever_the_folders_are(
    length: int, tmp_path: Path
) -> None:
    """A few bytes more or less may move what is allocated after it was read."""
    gate = GateFolder(
        path=tmp_path / ("f" * length),
        snapshot=Snapshot(root=tmp_path, source=tmp_path, files=0),
        outer={},
    )
    spec = Spec(path=tmp_path / "repro.yml", train=Train(run="true"))
    first, second = order.pair(spec, 42)
    ranks = [training(key=f"rank{number}") for number in range(8)]
    traces = [replace(it, path=gate.path / "traces" / it.path) for it in ranks]
    varied = frozenset(variation.PROBE)
    requests = [
        first,
        replace(second, reference=tuple(traces)),
        replace(second, reference=tuple(traces), varied=varied),
        replace(second, arm=arms.default(42, 50), probe={"factors": {"watch": True}}),
    ]
    sizes = set()
    for request in requests:
        folder = gate.path / "traces" / request.name
        names = variation.SECOND if request.varied else variation.FIRST
        root, home, tmp = (gate.path / "run" / name for name in names)
        cwd = root / "sub"
        text = launch.configuration(
            spec, request, gate, Workspace(root, cwd, home, tmp), folder, "0" * 32, ()
        )
        read = json.loads(text)
        assert read["workspace"] == str(root)
        assert isinstance(read["started"], int), "a float has fewer digits if they end in zeros"
        sizes.add(len(text))
    assert len(sizes) == 1


SMI = """#!/bin/sh
# takes one query alone, and says at which moment of the run it was asked
[ "$*" = "--query-gpu=uuid,clocks.sm,clocks.mem,temperature.gpu,power.draw,{}.active --format=csv,noheader" ] || exit 2
echo asked >>"$PLACE"
echo "GPU-1, $(/usr/bin/wc -l <"$PLACE") MHz, 1593 MHz, 40, 70.1 W, 0x0000000000000000"
"""


def test_the_gpus_are_read_just_before_and_after_a_run_that_may_be_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, smi = tmp_path / "place.txt", tmp_path / "bin/nvidia-smi"
    smi.parent.mkdir()
    monkeypatch.setenv("PLACE", str(place))
    monkeypatch.setenv("PATH", str(smi.parent), prepend=os.pathsep)
    train = f"{TRAIN}one()\nopen({str(place)!r}, 'a').write('trained\\n')\n"
    options = {"name": "default-1", "arm": arms.default(42, None)}
    assert trace_script(tmp_path / "without", train, **options).gpus == ()
    smi.write_text(SMI.format("clocks_event_reasons"))
    smi.chmod(0o755)
    place.unlink()
    run = trace_script(tmp_path / "with", train, **options)
    assert place.read_text().split() == ["asked", "trained", "asked"]
    before, after = run.gpus
    assert (before.run, before.arm, before.when) == ("default-1", "default", "before")
    assert (after.gpu, after.when, after.sm_mhz, after.slowed) == ("GPU-1", "after", 3.0, ())
    for section in ({"cost": CostBudget(measure=False)}, {"hardware": Hardware("cpu")}):
        spec = Spec(path=tmp_path, train=Train(run="x"), **section)
        assert launch._gpus(spec, run.request, "before") == ()
