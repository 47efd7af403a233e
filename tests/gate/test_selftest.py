"""Claims about the self-test's judgement: a fault is caught at its step, in its kind, by its name
and in its process, or it is not caught; and a gate whose comparison, checks or reading of files is
broken does not pass it."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from repro_gate.cli import main
from repro_gate.commands import arguments
from repro_gate.compare import traces
from repro_gate.compare.model import Divergence
from repro_gate.compare.traces import compare_runs
from repro_gate.gate.faults import FAULTS, Place, checkpoint_of, flip_in_file, place_of_fault
from repro_gate.gate.selftest import Row, SelfTest, judge
from repro_gate.runs.artifacts import Collected
from repro_gate.runs.flags import IN_PROCESS
from repro_gate.trace.model import StepMark, Trace
from tests.support.built_traces import changed, flip, place_of, results, run, training
from tests.support.gates import environment
from tests.support.gates import training as folder_of

ALGORITHMS = "torch.use_deterministic_algorithms"
CLEAN = training(6, settings=IN_PROCESS)
WEIGHT = Place(step=3, kind="parameter", name="fc.weight")


def faulty(step: int, kind: str, row: int = 0, trace: Trace = CLEAN) -> Trace:
    return changed(trace, place_of(trace, step, kind), flip(row))


def judged(put: Place, other: Trace) -> Row:
    first, second = run("deterministic-1", CLEAN), run("deterministic-2", other)
    pair = results(replace(first, unmatched=("a file that short runs do not write",)))
    return judge(put, compare_runs([CLEAN], [other]), pair, second)


@pytest.mark.parametrize(("rank", "outcome"), [("rank1", "caught"), ("rank0", "not caught")])
def test_a_fault_of_one_rank_is_not_that_of_another(rank: str, outcome: str) -> None:
    ranks = [training(6, key=f"rank{number}", settings=IN_PROCESS) for number in range(2)]
    clean = run("deterministic-1", *ranks)
    second = run("deterministic-2", ranks[0], faulty(3, "parameter", trace=ranks[1]))
    comparison, put = compare_runs(clean.traces, second.traces), replace(WEIGHT, process=rank)
    assert judge(put, comparison, results(clean), second).outcome == outcome


def off_from(step: int) -> Trace:
    """The flag is read as off from this step on."""
    marks = [
        StepMark(it.step, it.ms, 0.0, it.peak_bytes, int(it.step >= step)) for it in CLEAN.steps
    ]
    off = [dict(IN_PROCESS), {**IN_PROCESS, ALGORITHMS: False}]
    return replace(CLEAN, steps=marks, settings=off)


GENERATOR = Place(step=3, kind="rng", name="torch")
FLAG = Place(step=3, kind="flag", name=ALGORITHMS)
ALONE = faulty(3, "rng", row=1)  # a generator that nothing depends on
MOVED = faulty(4, "loss", trace=ALONE)  # and one that numbers depend on


def test_a_fault_is_caught_where_it_was_put_in_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for put, other, reason in (
        (WEIGHT, faulty(3, "parameter"), "determinism/diverged"),
        (WEIGHT, CLEAN, ""),
        (WEIGHT, faulty(4, "parameter"), ""),
        (WEIGHT, faulty(2, "parameter"), ""),
        (WEIGHT, faulty(3, "optimizer"), ""),
        (WEIGHT, faulty(3, "gradient"), ""),
        (WEIGHT, faulty(3, "parameter", row=1), ""),
        (WEIGHT, faulty(1, "loss", trace=faulty(3, "parameter")), ""),
        (GENERATOR, ALONE, "random-state/generators"),
        (replace(GENERATOR, step=2), ALONE, ""),
        (replace(GENERATOR, name="python"), ALONE, ""),
        (GENERATOR, CLEAN, ""),
        (GENERATOR, MOVED, "determinism/diverged"),
        (GENERATOR, faulty(2, "loss", trace=MOVED), ""),
        (FLAG, off_from(3), "random-state/flags"),
        (FLAG, off_from(2), ""),
        (FLAG, CLEAN, ""),
    ):
        row = judged(put, other)
        assert row.outcome == ("caught" if reason else "not caught") and (reason or row.why)
        assert row.reasons[:1] == (reason,) or not reason
        assert "artifact/missing" not in row.reasons
    # nor by a check that reads no flag back
    monkeypatch.setattr("repro_gate.checks.random_state.not_effective", lambda *_: {})
    assert judged(FLAG, off_from(3)).outcome == "not caught"


def test_a_file_is_caught_by_its_name_and_a_checkpoint_is_damaged_first() -> None:
    for name, outcome in (
        ("out/m.pt: fc.weight", "caught"),
        ("out/m.pt", "caught"),
        ("out/n.pt: fc.weight", "not caught"),
    ):
        clean, put = run("deterministic-1", CLEAN), Place(step=5, kind="artifact", name="out/m.pt")
        found = Divergence(step=5, kind="artifact", name=name, process="main")
        comparison = compare_runs([CLEAN], [CLEAN], (found,), 3)
        assert judge(put, comparison, results(clean), clean).outcome == outcome

    def item(name: str, size: int = 9, problem: str = "") -> Collected:
        files = (("(file)", "x", size),)
        return Collected(name=name, path=Path(name), digest="x", problem=problem, files=files)

    def chosen(*items: Collected) -> str | None:
        wrote = {item.name: item for item in items}
        return checkpoint_of(replace(run("deterministic-1"), artifacts=wrote))

    assert chosen(item("a.json"), item("m.pt")) == "m.pt"
    assert chosen(item("a.json"), item("m.pt", problem="not copied")) == "a.json"
    assert chosen(item("m.pt", size=0)) is None


def test_each_fault_has_a_place_in_the_middle_and_what_a_training_lacks_is_said() -> None:
    faults = [fault for fault in FAULTS if fault != "checkpoint"]
    places = {fault: place_of_fault(fault, run("deterministic-1", CLEAN)) for fault in faults}
    assert {
        fault: (put.kind, put.name)
        for fault, put in places.items()
        if isinstance(put, Place) and put.step == 3
    } == {
        "weight": ("parameter", "fc.weight"),
        "optimizer": ("optimizer", "fc.weight.exp_avg"),
        "batch": ("batch", "images"),
        "buffer": ("buffer", "norm.running_mean"),
        "generator": ("rng", "torch"),
        "race": ("parameter", "fc.weight"),
        "flag": ("flag", ALGORITHMS),
    }
    assert tuple(FAULTS) == arguments.FAULTS
    blocks = [block for block in CLEAN.blocks if block.kind in ("loss", "parameter")]
    bare = replace(CLEAN, blocks=blocks, facts={}, settings=[{}])
    lacking = {fault for fault in faults if isinstance(place_of_fault(fault, run("x", bare)), str)}
    assert lacking == {"optimizer", "batch", "buffer", "generator", "race", "flag"}


def test_one_bit_is_flipped_in_files_of_all_kinds(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.arange(1.0, 65.0)
    torch.save({"name": "x" * 200, "weight": tensor}, tmp_path / "m.pt")
    (tmp_path / "m.json").write_text('{"loss": 0.25, "note": "end"}\n')
    (tmp_path / "raw").write_bytes(bytes(20))
    for name in ("m.pt", "m.json", "raw"):
        flip_in_file(tmp_path / name)
    apart = torch.load(tmp_path / "m.pt", weights_only=True)["weight"] != tensor
    assert apart.sum() == 1
    assert (tmp_path / "m.json").read_text() == '{"loss": 0.25, "note":!"end"}\n'
    assert (tmp_path / "raw").read_bytes() == bytes(12) + b"\1" + bytes(7)
    (tmp_path / "empty.pt").touch()
    for name in ("empty.pt", "none.pt"):
        with pytest.raises(OSError, match=r"empty|No such file"):
            flip_in_file(tmp_path / name)
    with zipfile.ZipFile(tmp_path / "bad.pt", "w") as archive:
        archive.writestr("a/data/0", bytes(64))
    data = bytearray((tmp_path / "bad.pt").read_bytes())
    data[-40:-30] = b"\xff" * 10  # in the directory of the archive
    (tmp_path / "bad.pt").write_bytes(data)
    flip_in_file(tmp_path / "bad.pt")
    assert len((tmp_path / "bad.pt").read_bytes()) == len(data)


def test_the_exit_code_says_whether_all_were_caught() -> None:
    for outcomes, exit_code in (
        ({"weight": "caught", "batch": "not applicable"}, 0),
        ({"weight": "caught", "batch": "not caught", "race": "inconclusive"}, 1),
        ({"weight": "caught", "race": "inconclusive"}, 3),
        ({"weight": "not applicable", "batch": "caught"}, 3),
        ({"buffer": "not applicable"}, 3),
        ({"buffer": "caught"}, 0),
    ):
        rows = tuple(Row(fault=fault, outcome=outcome) for fault, outcome in outcomes.items())
        assert SelfTest(seed=1, steps=6, rows=rows, seconds=0.0).exit_code == exit_code


# ---- whole self-tests, of a training that needs no torch and takes a moment

SOURCE = """
import numpy, os, random
from repro_gate import record, step
weight, momentum = numpy.ones(3), numpy.zeros(3)
for number in range(8):
    # here
    momentum = 0.9 * momentum + random.random()
    weight -= 0.1 * momentum
    record("weight", weight, "parameter")
    record("momentum", momentum, "optimizer")
    step()
os.makedirs("out")
numpy.save("out/weight.npy", weight)
"""
Tested = Callable[..., tuple[int, Any, str]]
SPEC = "version: 1\ntrain: {run: python train.py, timeout: 1m}\ncapture: {artifacts: [out/*]}\n"


@pytest.fixture
def tested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Tested:
    """Runs `repro-gate selftest` in this process: exit code, outcome by fault, what was printed."""
    pytest.importorskip("numpy")
    monkeypatch.setenv("PATH", environment()["PATH"])

    def run_it(*options: str, line: str = "pass", source: str = SOURCE) -> tuple[int, Any, str]:
        folder = folder_of(tmp_path / "code", source.replace("# here", line), SPEC)
        out = tmp_path / "selftest.json"
        out.unlink(missing_ok=True)
        code = main(["selftest", str(folder), "--quiet", "--json", str(out), *options])
        document = json.loads(out.read_text()) if out.exists() else {"faults": []}
        outcomes = {item["fault"]: item["outcome"] for item in document["faults"]}
        return code, outcomes, "".join(capsys.readouterr())

    return run_it


CAUGHT = dict.fromkeys(("weight", "optimizer", "generator", "checkpoint"), "caught")
ABSENT = dict.fromkeys(("batch", "buffer", "race", "flag"), "not applicable")


@pytest.mark.slow
def test_all_that_applies_is_caught_and_the_checkpoint_too(tested: Tested) -> None:
    code, outcomes, printed = tested()
    assert (code, outcomes) == (0, CAUGHT | ABSENT), printed
    assert "step 3, parameter weight" in printed and "step 7, artifact out/weight.npy" in printed
    named = SOURCE.replace("out/weight.npy", "out/%s.npy").replace(
        'npy"', 'npy" % os.urandom(4).hex()'
    )
    code, outcomes, printed = tested("--only", "checkpoint", source=named)
    assert (code, outcomes) == (0, {"checkpoint": "caught"}), printed


HONEST = traces._divergences
NOWHERE = {"what": "flip", "kind": "parameter", "name": "none", "step": 1, "process": "main"}


def one_step_late(*given: Any) -> list[tuple[Any, ...]]:
    found = HONEST(*given)
    return [(step + 1, place, replace(item, step=item.step + 1)) for step, place, item in found]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("broken", "instead", "code", "outcomes"),
    [
        ("compare.traces._divergences", lambda *_: [], 1, "not caught, not caught, caught"),
        ("compare.traces._divergences", one_step_late, 1, "not caught, not caught, caught"),
        ("compare.traces._differences", lambda *_: iter(()), 1, "not caught, not caught, caught"),
        ("runs.reading.compare_artifacts", lambda *_: (), 1, "caught, caught, not caught"),
        # a probe that puts nothing in
        ("gate.faults.Place.config", lambda *_: NOWHERE, 3, "inconclusive, inconclusive, caught"),
    ],
    ids=["no divergences", "late", "no differences", "no artifacts", "nothing put in"],
)
def test_a_gate_that_finds_nothing_or_elsewhere_fails_the_self_test(
    broken: str,
    instead: Any,
    code: int,
    outcomes: str,
    tested: Tested,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(f"repro_gate.{broken}", instead)
    names = ("weight", "optimizer", "checkpoint")
    found = tested(*(word for name in names for word in ("--only", name)))
    assert (found[0], ", ".join(found[1].values())) == (code, outcomes), found[2]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "old", "new", "outcomes"),
    [
        ("weight += os.getpid() * 1e-9", "", "", {}),
        ("if number == 2: raise RuntimeError('odd')", "", "", {}),
        # weights that cannot be changed: they are recorded as Python's own numbers
        ("pass", '"weight", weight,', '"weight", float(weight[0]),', {"weight": "not applicable"}),
        # the fault crashes the run, which shows nothing
        ("assert number < 4 or weight[0] == weight[1]", "", "", {"weight": "inconclusive"}),
    ],
    ids=["diverges", "crashes", "numbers", "fault-crashes"],
)
def test_a_training_that_the_gate_cannot_pass_or_the_fault_not_change_is_inconclusive(
    line: str, old: str, new: str, outcomes: dict[str, str], tested: Tested
) -> None:
    source = SOURCE.replace(old, new) if old else SOURCE
    code, found, printed = tested("--only", "weight", line=line, source=source)
    assert (code, found) == (3, outcomes), printed


def test_steps_are_the_short_runs_own_and_names_are_escaped(tested: Tested) -> None:
    source = SOURCE.replace('record("weight"', 'record("\\x1b[31mweight"')
    code, _, printed = tested("--only", "weight", "--steps", "3", source=source)
    assert code == 0 and "\x1b" not in printed and "\\x1b[31mweight" in printed
    assert tested("--only", "weight", "--steps", "0")[0] == 2


@pytest.mark.slow
def test_a_tolerance_and_steps_that_are_not_recorded_hide_no_fault(tested: Tested) -> None:
    settings = (
        "determinism.compare={loss: 1.0, weights: 1.0}",
        "random-state.seeds=[7, 8]",
        "capture.every=4",
    )
    options = [word for setting in settings for word in ("--set", setting)]
    code, outcomes, printed = tested("--only", "weight", "--only", "generator", *options)
    assert (code, outcomes) == (0, {"weight": "caught", "generator": "caught"}), printed
    assert "step 4, generator state python" in printed
