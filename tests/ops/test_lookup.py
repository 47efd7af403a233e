"""Claims about `ops.lookup`: what a catalog of this machine says of the operators that a training
asks for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from repro_gate.diagnosis.model import Diagnosis
from repro_gate.ops.catalog import Arm, Row, cached_path, platform_of, write
from repro_gate.ops.lookup import Lookup, cited, look_up
from repro_gate.trace.model import Trace
from tests.support import operators
from tests.support.built_traces import training
from tests.support.operators import DIFFERS, RAISES, REPEATS, catalog, price

FACTS = {"torch": "2.13.0", "device": "cpu: AVX512", "cpu-isa": "AVX512", "threads": "2"}
MACHINE = {"cpu-model": "AMD EPYC", "os": "Linux"}
FLOAT = ("float32", "forward")
SAME = "repeats in 9 runs"
ADD = f"index_add_ (float32, forward): {DIFFERS} without the flags; {SAME} with them"


def row(operator: str, off: Arm = REPEATS, on: Arm = REPEATS, **more: Any) -> Row:
    given = {"case": f"kernel/{operator}", "kernel": f"aten.{operator}.default", **more}
    return operators.row(given.pop("case"), off, on, **given)


def control(*asked: tuple[str, str, Any], form: str = "") -> list[Trace]:
    trace = training(2, facts=FACTS)
    trace.dispatched = [
        (f"aten.{name}.default", dtype, phase, form, 4) for name, dtype, phase in asked
    ]
    return [trace]


def known(place: Path, traces: list[Trace], *rows: Row) -> Lookup:
    found = catalog(*rows, platform=platform_of(FACTS, MACHINE))
    environment = {"HOME": str(place)}
    path = cached_path(environment, found.platform)
    assert path is not None
    write(path, found)
    return look_up(traces, MACHINE, environment)


LOOKED_UP = "operators by dtype, pass and form are in this machine's catalog of 2026-11-23"


def test_operators_that_differ_have_no_form_or_are_dear_are_told_of(tmp_path: Path) -> None:
    names = [(name, *FLOAT) for name in ("index_add_", "put_", "mm")]
    found = known(
        tmp_path,
        control(*names, ("relu", "", "forward")),
        row("index_add_", DIFFERS),
        row("put_", DIFFERS, RAISES),
        row("mm", price=price(6.04, 5.8, 6.3), documented="deterministic"),
        row("bmm", DIFFERS),  # not asked for
    )
    price_of_mm = f"{SAME} with them, 6.04 (5.80 to 6.30) times the time"
    assert found.lines == (
        ADD,
        ADD.replace("index_add_", "put_").replace(SAME, "raises"),
        f"mm (float32, forward): {SAME} without the flags; {price_of_mm}",
        f"3 of 4 {LOOKED_UP}",
    )
    (note,) = found.notes
    told = [part.partition(": ")[2] for part in note.message.split("; ")]
    index_add, put, mm = (f"{name} (float32, forward)" for name, *_ in names)
    assert note.id == "ops/known" and told == [f"{index_add}, {put}", put, mm]


def test_if_all_repeat_at_no_price_there_is_no_note(tmp_path: Path) -> None:
    cheap, dear = row("mm", price=price(1.3, 0.9, 1.9)), row("bmm", price=price(2.0, 1.9, 2.1))
    asked = control(("mm", *FLOAT), ("bmm", *FLOAT))
    (note,) = known(tmp_path, asked, cheap, dear).notes
    assert note.message == "slower with the flags: bmm (float32, forward)"
    # the training's own may be either
    other = row("bmm", RAISES, RAISES, case="kernel/another")
    found = known(tmp_path, asked, cheap, dear, other)
    assert found.notes == () and found.lines == (f"2 of 2 {LOOKED_UP}",)
    # it has no row of that pass
    found = known(tmp_path, control(("mm", "float32", "backward")), row("mm", DIFFERS))
    assert found.notes == () and found.lines == (f"0 of 1 {LOOKED_UP}",)


def test_what_only_some_forms_of_an_operator_come_to_is_said_so(tmp_path: Path) -> None:
    """`put_` that accumulates repeats, and one that does not is refused: where a trace does not say
    which it was, the most telling one is told."""
    case = "kernel/put_ (accumulate)"
    adding = row("put_", price=price(3.0, 2.9, 3.1), form="accumulate=True", case=case)
    own, adds, unknown = (
        known(tmp_path, control(("put_", *FLOAT), form=form), row("put_", DIFFERS, RAISES), adding)
        for form in ("", "accumulate=True", "accumulate=maybe")
    )
    assert own.lines[0].startswith("put_ (float32, forward): differs")
    (note,) = adds.notes
    assert note.message == "slower with the flags: put_ (accumulate) (float32, forward)"
    assert unknown.lines[0] == own.lines[0].replace("):", ") in some forms:")
    (note,) = unknown.notes
    assert "in some forms" in note.message and "deterministic form" not in note.message


def test_without_a_control_or_a_catalog_nothing_is_known(tmp_path: Path) -> None:
    asked, differs = control(("index_add_", *FLOAT)), row("index_add_", DIFFERS)
    home = {"HOME": str(tmp_path)}
    assert known(tmp_path, [], differs) == known(tmp_path, control(), differs) == Lookup()
    assert look_up(asked, MACHINE, {"HOME": str(tmp_path / "other")}) == Lookup()
    assert look_up(asked, {**MACHINE, "cpu-model": "another"}, home) == Lookup()
    assert look_up(asked, MACHINE, home) != Lookup()
    path = cached_path(home, platform_of(FACTS, MACHINE))
    assert path is not None
    path.write_text("{}")  # it cannot be read, which is a note
    found = look_up(asked, MACHINE, home)
    (note,) = found.notes
    assert not found.lines and note.id == "ops/unreadable" and "not a catalog" in note.message


def test_a_diagnosis_that_names_an_operator_cites_its_row(tmp_path: Path) -> None:
    found = known(tmp_path, control(("mm", *FLOAT)), row("index_add_", DIFFERS))
    name = "aten.index_add_.default"
    diagnosis = Diagnosis(cause="nondeterministic-op", op=name, evidence=("seen",))
    # with or without its overload, as a trace has it, in place or not
    for op in (name, "aten::index_add_", "aten.index_add"):
        told = cited(replace(diagnosis, op=op), found)
        assert told is not None and told.evidence == ("seen", f"this machine's catalog: {ADD}")
    other = replace(diagnosis, op="aten.index")
    assert cited(other, found) == other
    assert cited(None, found) is None and cited(diagnosis, Lookup()) is diagnosis
