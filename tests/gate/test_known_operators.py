"""Claims about `gate.known_operators`: what a catalog of this machine says of the operators that a
training asks for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from repro_gate.diagnosis.model import Diagnosis, ShownOperator
from repro_gate.gate.known_operators import Known, cited, known_operators, lines_of, said
from repro_gate.ops.catalog import (
    Arm,
    Catalog,
    Controls,
    Platform,
    Price,
    Repeats,
    Row,
    cached_path,
    platform_of,
    write,
)
from repro_gate.report.model import Reason
from repro_gate.runs.launch import Run
from tests.support.built_traces import run, training

FACTS = {
    "torch": "2.13.0",
    "device": "cpu: AVX512",
    "cpu-isa": "AVX512",
    "threads": "2",
    "python": "3.11.7",
}
MACHINE = {"cpu-model": "AMD EPYC", "os": "Linux"}
REPEATS, DIFFERS = (
    Arm(outcome="repeats", runs=20, distinct=1),
    Arm(outcome="differs", runs=20, differing=6, distinct=3, max_ulp=3),
)
RAISES = Arm(outcome="raises", message="put_ does not have a deterministic implementation")
FLOAT = ("float32", "forward")
ADD = (
    "index_add_ (float32, forward): without the flags it differs in 6 of 20, up to 3 ULP; with "
    "them it repeats in 20 of 20"
)


def row(operator: str, off: Arm = REPEATS, on: Arm = REPEATS, **more: Any) -> Row:
    given = {
        "case": f"kernel/{operator}",
        "dtype": "float32",
        "direction": "forward",
        "kernel": f"aten.{operator}.default",
        **more,
    }
    return Row(operator=operator, off=off, on=on, **given)


def catalog(*rows: Row, platform: Platform | None = None) -> Catalog:
    return Catalog(
        schema="repro-gate/ops/v1",
        repro_gate="0.1.0",
        date="2026-11-23T02:00:00Z",
        command="repro-gate ops",
        seconds=1.0,
        complete=True,
        scope="all",
        platform=platform or platform_of(FACTS, MACHINE),
        repeats=Repeats(in_process=10, contended=10, processes=2, excludes_rate=0.14),
        controls=Controls(races=DIFFERS, repeats=REPEATS),
        documented=(),
        rows=rows,
    )


def control(*asked: tuple[str, str, Any], form: str = "") -> Run:
    trace = training(2, facts=FACTS)
    trace.dispatched = [
        (f"aten.{name}.default", dtype, phase, form, 4) for name, dtype, phase in asked
    ]
    return run("reseeded", trace)


def known(place: Path, noted: Run | None, *rows: Row) -> tuple[Known | None, tuple[Reason, ...]]:
    found = catalog(*rows)
    environment = {"HOME": str(place)}
    path = cached_path(environment, found.platform)
    assert path is not None
    write(path, found)
    return known_operators(noted, MACHINE, environment)


def test_operators_that_differ_have_no_form_or_are_dear_are_told_of(tmp_path: Path) -> None:
    asked = control(
        ("index_add_", *FLOAT),
        ("put_", "float32", "forward"),
        ("mm", *FLOAT),
        ("relu", "", "forward"),
    )
    found, notes = known(
        tmp_path,
        asked,
        row("index_add_", DIFFERS),
        row("put_", DIFFERS, RAISES),
        row("mm", price=Price(ratio=6.04, low=5.8, high=6.3), documented="deterministic"),
        row("bmm", DIFFERS),  # not asked for
    )
    same = "repeats in 20 of 20"
    assert lines_of(found) == (
        ADD,
        (
            "put_ (float32, forward): without the flags it differs in 6 of 20, up to 3 ULP; with "
            "them it is refused by torch"
        ),
        (
            f"mm (float32, forward): without the flags it {same}; with them it {same}, 6.04 times "
            "the time [5.80, 6.30]"
        ),
        "3 of 4 operators by dtype, pass and form are in this machine's catalog of 2026-11-23",
    )
    (note,) = notes
    assert note.id == "ops/known" and note.message == (
        "2 operators of this training differ on this machine without the flags: index_add_ "
        "(float32, forward), put_ (float32, forward); 1 without a deterministic form: put_ "
        "(float32, forward); deterministic forms that cost here: mm 6.0 times slower"
    )


def test_where_all_repeat_at_no_price_there_is_no_note(tmp_path: Path) -> None:
    cheap = row("mm", price=Price(ratio=1.3, low=0.9, high=1.9), documented="deterministic")
    # the training's own may be either
    forms = (
        row("bmm", price=Price(ratio=2.0, low=1.9, high=2.1)),
        row("bmm", RAISES, RAISES),
    )
    found, notes = known(tmp_path, control(("mm", *FLOAT), ("bmm", *FLOAT)), cheap, forms[0])
    assert len(notes) == 1 and "bmm 2.0 times slower" in notes[0].message
    found, notes = known(tmp_path, control(("mm", *FLOAT)), cheap, *forms)
    assert notes == () and lines_of(found) == (
        "1 of 1 operators by dtype, pass and form are in this machine's catalog of 2026-11-23",
    )


@pytest.mark.parametrize(
    "asked",
    [
        ("index_add_", "float64", "forward"),
        ("index_add_", "float32", "backward"),
        ("index", *FLOAT),
    ],
)
def test_another_dtype_pass_or_operator_has_no_row(
    tmp_path: Path, asked: tuple[str, str, str]
) -> None:
    found, notes = known(tmp_path, control(asked), row("index_add_", DIFFERS))
    assert notes == () and len(lines_of(found)) == 1


def test_of_several_rows_of_one_operator_the_most_telling_is_told(tmp_path: Path) -> None:
    found, _ = known(
        tmp_path,
        control(("index_add_", *FLOAT)),
        row("index_add_"),
        row("index_add_", DIFFERS),
        row("index_add_"),
    )
    assert lines_of(found)[0] == f"{ADD}; other forms of it came to something else"


def test_what_only_some_forms_of_an_operator_come_to_is_said_so(tmp_path: Path) -> None:
    """`put_` that accumulates repeats, and one that does not is refused: a trace does not say which
    it was."""
    forms = (
        row("put_", DIFFERS, RAISES, case="kernel/put_ (no accumulate)"),
        row("put_", case="kernel/put_ (accumulate)"),
    )
    found, (note,) = known(tmp_path, control(("put_", *FLOAT)), *forms)
    assert found is not None and found.refused == ()
    assert (
        note.message
        == "1 operator of this training may differ on this machine without the flags: put_ "
        "(float32, forward)"
    )
    assert lines_of(found)[0].endswith(
        "with them it is refused by torch; other forms of it came to something else"
    )


def test_the_form_that_the_training_asks_for_is_the_one_that_is_told(tmp_path: Path) -> None:
    one = row("put_", DIFFERS, RAISES, case="kernel/put_ (no accumulate)")
    other = row(
        "put_",
        price=Price(ratio=3.0, low=2.9, high=3.1),
        form="accumulate=True",
        case="kernel/put_ (accumulate)",
    )
    plain, _ = known(tmp_path, control(("put_", *FLOAT)), one, other)
    adding, (note,) = known(tmp_path, control(("put_", *FLOAT), form="accumulate=True"), one, other)
    assert plain is not None and plain.rows == (one,) == plain.refused and not plain.mixed
    assert (
        adding is not None
        and adding.rows == (other,)
        and note.message == "deterministic forms that cost here: put_ 3.0 times slower"
    )
    unknown, _ = known(tmp_path, control(("put_", *FLOAT), form="accumulate=maybe"), one, other)
    assert unknown is not None and unknown.rows == (one,) and unknown.mixed


def test_without_a_control_a_note_of_operators_or_a_catalog_nothing_is_known(
    tmp_path: Path,
) -> None:
    asked = ("index_add_", *FLOAT)
    assert known(tmp_path, None, row("index_add_", DIFFERS)) == (None, ())
    assert known(tmp_path, control(), row("index_add_", DIFFERS)) == (None, ())
    assert known_operators(control(asked), MACHINE, {"HOME": str(tmp_path / "other")}) == (None, ())
    assert known_operators(
        control(asked), {**MACHINE, "cpu-model": "another"}, {"HOME": str(tmp_path)}
    ) == (None, ())
    assert lines_of(None) == ()


def test_a_catalog_that_cannot_be_read_is_a_note(tmp_path: Path) -> None:
    path = cached_path({"HOME": str(tmp_path)}, platform_of(FACTS, MACHINE))
    assert path is not None
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    found, (note,) = known_operators(control(("mm", *FLOAT)), MACHINE, {"HOME": str(tmp_path)})
    assert (
        found is None
        and note.id == "ops/unreadable"
        and "not a catalog" in note.message
        and "repro-gate ops" in note.remedy
    )


def test_a_diagnosis_that_names_an_operator_cites_its_row(tmp_path: Path) -> None:
    found, _ = known(tmp_path, control(("mm", *FLOAT)), row("index_add_", DIFFERS))
    diagnosis = Diagnosis(
        cause="nondeterministic-op", op="aten.index_add_.default", evidence=("seen",)
    )
    told = cited(diagnosis, found)
    assert told is not None and told.evidence == ("seen", f"this machine's catalog: {ADD}")
    assert cited(replace(diagnosis, op="aten.mm.default"), found) == replace(
        diagnosis, op="aten.mm.default"
    )
    seen = (ShownOperator(name="aten.index_add_.default", phase="backward", same_outputs=False),)
    assert cited(replace(diagnosis, operators=seen), found) == replace(diagnosis, operators=seen), (
        "no row of that pass"
    )
    both, _ = known(
        tmp_path,
        control(("mm", *FLOAT)),
        row("index_add_", DIFFERS),
        row("index_add_", case="kernel/another"),
    )
    told = cited(diagnosis, both)
    assert (
        told is not None
        and told.evidence[-1]
        == f"this machine's catalog: {ADD}; other forms of it came to something else"
    )
    assert cited(None, found) is None and cited(diagnosis, None) is diagnosis


def test_each_outcome_has_its_words() -> None:
    words = [
        said(row("x", Arm(outcome=name, runs=2)))
        for name in ("uninitialised", "crash", "timeout", "no-kernel")
    ]
    assert [
        "reads unwritten memory" in words[0],
        "`crash`" in words[1],
        "`timeout`" in words[2],
        "`no-kernel`" in words[3],
    ] == [True] * 4
