"""`ops.measure`, the gate's side: what a worker writes is untrusted, and becomes the record."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from repro_gate.compare.operators import Operators
from repro_gate.errors import Inconclusive, UsageError
from repro_gate.ops import measure
from repro_gate.ops.measure import of_training, without_training
from repro_gate.runs.flags import FILL
from repro_gate.sandbox.identity import Sandbox
from repro_gate.spec.model import AllowedFlag, Determinism, Spec, Train
from repro_gate.trace.fields import Call, Location

WORKER = """
import json, sys
request = json.load(open(sys.argv[1]))
json.dump(request, open({asked!r}, "w"))
with open(request["answer"], "a") as out:
    for line in json.load(open({lines!r})):
        out.write((line if isinstance(line, str) else json.dumps(line)) + "\\n")
print("a last line", file=sys.stderr)
"""
REPEATS, DIFFERS = {"outcome": "repeats", "runs": 9}, {"outcome": "differs", "runs": 9}
DONE = {"done": True}
CALLS = [
    Call("aten.mm.default", "", "float32", "backward", "[1]", 3, (("model.py", 4), ("", 0))),
    Call("aten.put_.default", "accumulate=True", "float32", "forward", "x" * 2_000, 1, ()),
]


class Double:
    """Stands for the worker: it writes the lines that it is given."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.calls = CALLS
        worker = folder / "worker.py"
        worker.write_text(WORKER.format(asked=str(folder / "asked"), lines=str(folder / "lines")))
        monkeypatch.setattr(measure, "_WORKER", worker)
        self.spec = Spec(path=folder / "repro.yml", train=Train(run=f"{sys.executable} train.py"))

    def training(self, *lines: Any) -> Operators:
        (self.folder / "lines").write_text(json.dumps(lines))
        return of_training(self.spec, self.calls, os.environ, Sandbox(), 1.0)

    def known(self, *lines: Any, own: tuple[str, ...] = (), python: str = "") -> Operators:
        (self.folder / "lines").write_text(json.dumps(lines))
        return without_training(own, python or sys.executable, os.environ, Sandbox(), 1.0)

    @property
    def asked(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "asked").read_text())
        return found


@pytest.fixture
def double(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Double:
    return Double(tmp_path, monkeypatch)


def row(number: int, off: Any = REPEATS, **more: Any) -> dict[str, Any]:
    return {"number": number, "off": off, "on": REPEATS, **more}


def test_a_line_becomes_the_record_of_its_call(double: Double) -> None:
    times = {"off_ms": [1.0] * 3, "on_ms": [3.0] * 3, "unfilled_ms": [2.0] * 3}
    found = double.training({"about": {"torch": "2.13", "gpus": 0}}, row(0, **times), row(1), DONE)
    assert found.platform == {"torch": "2.13", "gpus": "0"}
    mm, put = found.calls
    assert (mm.operator, mm.form, mm.calls, mm.phase) == ("aten.mm.default", "[1]", 3, "backward")
    # a call whose line is not known has none
    assert mm.lines == (Location("model.py", 4),) and put.lines == ()
    assert mm.flags is not None and mm.flags.ms == pytest.approx(1.0)
    assert mm.filling is not None and mm.filling.ms == pytest.approx(1.0)
    assert put.options == "accumulate=True" and put.flags is None
    # a long form is the key as well, shortened so that no other has the same
    assert len(put.form) < 1_100
    other = msgspec.structs.replace(CALLS[1], form=CALLS[1].form + "y")
    double.calls = [CALLS[0], other]
    assert double.training(row(1), DONE).calls[0].form != put.form


def test_the_worker_gets_the_calls_the_flags_and_the_time(double: Double) -> None:
    double.training(DONE)
    asked = double.asked
    assert asked["calls"][0] == ["aten.mm.default", "[1]"] and asked["seconds"] == 1.0
    assert asked["flags"]["torch.use_deterministic_algorithms"] is True


def test_a_flag_that_the_spec_allows_stays_off(double: Double) -> None:
    allow = Determinism(allow=(AllowedFlag(FILL, "it costs"),))
    double.spec = replace(double.spec, determinism=allow)
    double.training(DONE)
    assert FILL not in double.asked["flags"]


def test_lines_that_name_no_call_or_one_twice_change_nothing(double: Double) -> None:
    found = double.training(row(0), row(0, DIFFERS), row(7), DONE)
    assert [call.off.outcome for call in found.calls] == ["repeats"]


@pytest.mark.parametrize(
    "line",
    [
        "no JSON",
        row(0, {"outcome": "fine"}),
        row(-3),
        row(0, off_ms=[-1.0]),
        row(0, off_ms=[1.0] * 501),
        row(0, off={"outcome": "differs", "message": "x" * 1_001}),
        '{"number": 0, "off": {"outcome": "differs", "differing": 1%s}}' % ("0" * 400),
        row(0, {**REPEATS, "runs": 10**31}),
        row(0, {**DIFFERS, "max_ulp": 1 << 64}),
        '{"about": {"gpus": 1%s}}' % ("0" * 5_000),
        {"about": {"interpreter": "x" * 5_000}},
        "[" * 100_000,
        '"' + "x" * (1 << 21),
    ],
    ids=[
        "text",
        "outcome",
        "number",
        "time",
        "times",
        "message",
        "differing",
        "runs",
        "ulp",
        "fact",
        "text-fact",
        "depth",
        "length",
    ],
)
def test_what_is_no_answer_is_refused(double: Double, line: Any) -> None:
    with pytest.raises(Inconclusive, match="answer cannot be used") as caught:
        double.training(line, DONE)
    assert caught.value.reason_id == "ops/no-answer" and caught.value.remedy


def test_facts_have_their_limit_over_all_lines_and_a_path_may_be_long(double: Double) -> None:
    lines = [{"about": {f"{line}-{fact}": "x" for fact in range(150)}} for line in range(9)]
    path = "/" + "p" * 1_000
    found = double.training({"about": {"interpreter": path}}, *lines, DONE)
    assert len(found.platform) == 200 and found.platform["interpreter"] == path


def test_a_worker_that_ends_early_gives_no_answer_and_its_last_line(double: Double) -> None:
    with pytest.raises(Inconclusive, match="a last line"):
        double.training(row(0))


def known(name: str, outcome: str) -> dict[str, Any]:
    return {"operator": name, "form": "float32", "off": {"outcome": outcome, "runs": 9}}


def test_the_known_list_comes_without_its_controls(double: Double) -> None:
    races, repeats = known("control/races", "differs"), known("control/repeats", "repeats")
    lines = [
        {**each, "number": at} for at, each in enumerate([races, repeats, known("mm", "repeats")])
    ]
    found = double.known(*lines, DONE)
    assert [call.operator for call in found.calls] == ["mm"] and double.asked["known"] is True
    double.known(*lines, DONE, own=("mine:own",))
    assert double.asked["own"] == ["mine:own"] and double.asked["known"] is False
    lines[0]["off"] = REPEATS
    with pytest.raises(Inconclusive, match="control/races came out wrong: repeats, not `differs`"):
        double.known(*lines, DONE)
    lines[0]["off"] = DIFFERS
    with pytest.raises(Inconclusive, match="control/repeats came out wrong: not measured"):
        double.known(lines[0], lines[2], DONE)


def test_an_interpreter_that_is_none_is_named(double: Double) -> None:
    with pytest.raises(UsageError, match="--python no-such-python: is no program"):
        double.known(python="no-such-python")
