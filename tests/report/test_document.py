"""Claims about `report.document`."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from repro_gate.baseline.config_hash import InputValue, hash_inputs, made_again
from repro_gate.report import document as written
from repro_gate.report import schema
from repro_gate.report.document import ReportError
from repro_gate.report.model import Report
from repro_gate.trace.format import MAX_NAME
from tests.support import reports


def _loaded(text: str | bytes, folder: Path) -> dict[str, Any]:
    path = folder / "report.json"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    written.load(path)
    document: dict[str, Any] = json.loads(path.read_bytes())
    return document


def _at(document: Any, pointer: str) -> tuple[Any, str | int]:
    """The object that holds the last part of a JSON pointer, and that part."""
    *steps, last = (int(step) if step.isdigit() else step for step in pointer.strip("/").split("/"))
    for step in steps:
        document = document[step]
    return document, last


def test_the_schema_that_is_shipped_is_made_of_the_types() -> None:
    assert schema.PATH.read_text(encoding="utf-8") == schema.schema_text(), (
        "run `python -m repro_gate.report.schema`"
    )
    Draft202012Validator.check_schema(json.loads(schema.schema_text()))


def test_the_schema_explains_every_field() -> None:
    def unexplained(part: Any, path: str) -> list[str]:
        fields = part.get("properties", {})
        missing = [f"{path}/{name}" for name in fields if not fields[name].get("description")]
        parts = {**fields, **part.get("$defs", {}), "items": part.get("items")}
        inner = ((found, name) for name, found in parts.items() if found)
        return missing + [
            more for one, name in inner for more in unexplained(one, f"{path}/{name}")
        ]

    assert unexplained(json.loads(schema.schema_text()), "") == []


def test_the_fields_that_others_rely_on_are_where_the_design_says() -> None:
    document = written.to_json(reports.EXPLAINED)
    for pointer, value in {
        "/schema": "repro-gate/report/v1",
        "/verdict": "fail",
        "/reasons/0/id": "determinism/diverged",
        "/determinism/identical": False,
        "/determinism/runs": 2,
        "/determinism/steps": 50,
        "/determinism/tensors": 202,
        "/determinism/differing": 14,
        "/determinism/determinism_settings/CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        "/determinism/first_divergence/step": 3,
        "/determinism/first_divergence/kind": "gradient",
        "/determinism/first_divergence/name": "blocks.3.attn.weight",
        "/determinism/first_divergence/max_abs": 1.2e-7,
        "/determinism/first_divergence/max_ulp": 3,
        "/noise_floor/loss_gap": 3.1e-5,
        "/cost/determinism_cost_pct": 12.4,
        "/cost/ci95": [10.1, 14.6],
        "/checklist/0/id": "code/committed",
        "/checklist/0/status": "warn",
        "/diagnosis/cause": "unseeded-rng",
        "/diagnosis/factor": "entropy",
        "/diagnosis/confirmed": True,
        "/diagnosis/file": "src/train.py",
        "/diagnosis/line": 41,
        "/diagnosis/rate": {"diverged": 3, "pairs": 8},
        "/diagnosis/also/0/cause": "wall-clock",
    }.items():
        holder, last = _at(document, pointer)
        assert holder[last] == value, pointer


def test_a_part_that_was_not_measured_is_null() -> None:
    document = written.to_json(reports.NOTHING)
    for name in ("determinism", "diagnosis", "noise_floor", "cost", "config_hash", "baseline"):
        assert document[name] is None
    assert document["against"] is document["base"] is None
    assert document["checklist"] == document["runs"] == document["reasons"] == []


def test_the_first_seed_that_diverged_is_the_one_shown() -> None:
    seeds = reports.compared(reports.SAME, reports.DIFFERENT)
    found = written.to_json(replace(reports.FAIL, determinism=seeds))["determinism"]
    assert (found["seed"], found["identical"]) == (2, False)
    assert [(item["seed"], item["identical"]) for item in found["seeds"]] == [(1, True), (2, False)]


def test_a_figure_that_json_cannot_hold_becomes_text_and_never_a_nan_token(tmp_path: Path) -> None:
    deep: InputValue = "x"
    for _ in range(100):
        deep = [deep]
    inputs: dict[str, InputValue] = {"deep": deep, "nan": math.nan, "surrogate": "\ud800"}
    far = replace(reports.FIRST, max_abs=math.inf, max_ulp=None, l2=math.nan, relative_l2=-math.inf)
    report = replace(
        reports.FAIL,
        determinism=reports.compared(
            replace(reports.DIFFERENT, first_divergence=far),
            determinism_settings={"x": math.nan, "y": {1: (2, None)}, "huge": 10**5_000},
        ),
        config_hash=reports.address(recipe=inputs),
    )
    found = _loaded(written.render(report), tmp_path)
    first = found["determinism"]["first_divergence"]
    assert [first[name] for name in ("max_abs", "l2", "relative_l2")] == ["inf", "nan", "-inf"]
    assert first["max_ulp"] is None
    assert found["determinism"]["determinism_settings"]["huge"].startswith("0x")
    recipe = found["config_hash"]["inputs"]["recipe"]
    assert recipe["nan"] == "nan" and recipe["deep"][0][0] and recipe["surrogate"] == "\\ud800"


def test_the_text_is_stable_sorted_and_plain_ascii() -> None:
    text = written.render(reports.hostile("\u202eé\ud800\x1b"))
    assert text == written.render(reports.hostile("\u202eé\ud800\x1b")) and text.endswith("}\n")
    assert text.isascii() and "\x1b" not in text
    assert list(json.loads(text)) == sorted(json.loads(text))


@given(st.text())
def test_any_text_from_the_training_code_makes_a_valid_document(text: str) -> None:
    written.report_from(json.loads(written.render(reports.hostile(text))))


def test_an_enormous_report_is_still_one_that_we_read(tmp_path: Path) -> None:
    text = written.render(reports.enormous())
    assert len(text) <= written.MAX_BYTES
    assert _loaded(text, tmp_path)["determinism"]["differing"] == 14


@pytest.mark.parametrize(
    "report", [*reports.ALL.values(), reports.hostile()], ids=[*reports.ALL, "hostile"]
)
def test_what_is_written_follows_the_shipped_schema_however_it_is_shortened(report: Report) -> None:
    validator = Draft202012Validator(json.loads(schema.schema_text()))
    validator.validate(json.loads(written.render(report)))
    for tier in written._SHORTER:
        written.report_from(written.plain(written.to_json(report), *tier))


@pytest.mark.parametrize(
    ("pointer", "value"),
    [
        ("/verdict", "great"),
        ("/schema", "repro-gate/report/v2"),
        ("/seconds", True),
        ("/seconds", -0.5),
        ("/cost/ci95", [1.0]),
        ("/determinism/first_divergence/step", -2),
        ("/reasons/1/locations/0/file", "f" * (MAX_NAME + 1)),
        ("/runs/1/steps", None),
        ("/config_hash/config_hash", "sha256:0"),
        ("/config_hash/recipe", "sha512:" + "0" * 64),
        ("/config_hash/platform", "sha256:" + "0" * 64 + "\n"),
        ("/config_hash/inputs/recipe", {str(index): 0 for index in range(20_001)}),
        ("/config_hash/inputs/platform", {str(index): 0 for index in range(20_001)}),
        ("/diagnosis/also/0/line", -1),
        ("/baseline/loss_gap", "far"),
        ("/baseline/unlike", ["weights"] * 1_001),
        ("/against/commit", "main"),
        ("/base/weakened", None),
    ],
)
def test_a_wrong_value_is_named_by_its_place(pointer: str, value: object) -> None:
    report = replace(reports.EXPLAINED, config_hash=reports.ADDRESS, base=reports.LOCKED.base)
    report = replace(report, baseline=reports.CHANGED.baseline, against=reports.CHANGED.against)
    document = written.to_json(report)
    holder, last = _at(document, pointer)
    holder[last] = value
    with pytest.raises(ReportError) as caught:
        written.report_from(document)
    place = re.sub(r"/(\d+)", r"[\1]", pointer).replace("/", ".")
    assert f"`${place}`: " in caught.value.message and caught.value.exit_code == 2


def test_a_missing_field_is_named() -> None:
    document = written.to_json(reports.PASS)
    for name in ("subject", "verdict"):
        kept = {key: value for key, value in document.items() if key != name}
        with pytest.raises(ReportError, match=f"required field `{name}`"):
            written.report_from(kept)


def test_a_config_hash_can_be_hashed_again_from_the_report(tmp_path: Path) -> None:
    inputs: dict[str, InputValue] = {"one": 1, "one-float": 1.0, "zero": -0.0, "large": 2**70}
    inputs |= {"text": "1.0", "list": [1, [1.0]], "map": {"1": None}, "long": "x = 1\n" * 9_000}
    real = hash_inputs(inputs, {"torch": "2.13.0"})
    (tmp_path / "whole.json").write_text(written.render(replace(reports.LOCKED, config_hash=real)))
    claimed = written.load(tmp_path / "whole.json").config_hash
    assert claimed is not None
    found = made_again(claimed)
    assert found == real and found.inputs.recipe["large"] == str(2**70)


def test_more_inputs_changes_and_weakened_checks_than_the_schema_takes_are_cut(
    tmp_path: Path,
) -> None:
    found = _loaded(written.render(reports.enormous(tensors=20_001, name=10, reasons=1)), tmp_path)
    for pointer, most in {
        "/config_hash/inputs/recipe": 20_000,
        "/baseline/changed_inputs": 1_000,
        "/baseline/unlike": 1_000,
        "/baseline/outside": 1_000,
        "/against/changed_inputs": 1_000,
        "/base/weakened": 1_000,
        "/diagnosis/evidence": 100,
        "/diagnosis/ruled_out": 100,
        "/diagnosis/also": 20,
    }.items():
        holder, last = _at(found, pointer)
        assert len(holder[last]) == most, pointer


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"\xff{}", "not UTF-8 at byte 0"),
        (b"", "not JSON"),
        (b'{"verdict": "fail", "verdict": "pass"}', "a key stands twice"),
        (b'{"cost": {"a": 1, "a\\u001b": 2, "a\\u001b": 3}}', "stands twice"),
        (b'{"seconds": NaN}', "NaN is not JSON"),
        (b'{"seconds": -Infinity}', "-Infinity is not JSON"),
        (b'{"seconds": 1e999}', "too large"),
        (b'{"seconds": ' + b"9" * 31 + b"}", "more than 30 digits"),
        (b"[" * 65 + b"]" * 65, "nested deeper than 64"),
        (b"[" * 100_000, "nested deeper than 64"),
        (b"[]", "Expected `object`"),
        (b" " * (written.MAX_BYTES + 1), "larger than 16777216 bytes"),
    ],
)
def test_a_hostile_file_is_refused_with_its_name_and_what_is_wrong(
    text: bytes, problem: str, tmp_path: Path
) -> None:
    with pytest.raises(ReportError) as caught:
        _loaded(text, tmp_path)
    message = caught.value.message
    assert "report.json: " in message and problem in message and len(message) < 2_000
    assert all(line.isprintable() for line in caught.value.diagnostics().split("\n"))


def test_what_is_no_file_is_refused_and_never_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, problem in (("pipe", "not a regular"), (".", "cannot|not a"), ("none", "not there")):
        with pytest.raises(ReportError, match=problem):
            written.load(tmp_path / name)


def test_an_error_never_repeats_a_long_hostile_value() -> None:
    hostile = {"verdict": "\x1b[31m" * 100_000, "reasons": ["x" * 10_000] * 100}
    with pytest.raises(ReportError) as caught:
        written.report_from(written.to_json(reports.PASS) | hostile)
    assert len(caught.value.message) < 2_000 and "\x1b" not in caught.value.message


def test_json_is_written_without_the_libraries_of_the_other_renderers() -> None:
    code = "import sys, repro_gate.report.document; print({*sys.modules} & {*sys.argv})"
    command = [sys.executable, "-c", code, "jsonschema", "rich", "jinja2"]
    root = Path(written.__file__).parents[2]
    assert subprocess.check_output(command, text=True, cwd=root) == "set()\n"
