"""The report as JSON: what its schema says, whatever it holds, and read back as it was."""

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
from repro_gate.compare.model import Fingerprint, GrowthPoint, HeatMap, HeatRow
from repro_gate.github.marker import state_of
from repro_gate.report import document as written
from repro_gate.report import exports, html, markdown, matrix, terminal
from repro_gate.report.document import ReportError, to_json
from repro_gate.report.model import Origin, Report, WeakenedCheck
from repro_gate.spec.model import Tolerance
from repro_gate.trace.fields import Location
from repro_gate.trace.format import MAX_NAME
from tests.support import reports
from tests.support.schemas import path_of, schema_text


def _loaded(text: str | bytes, folder: Path) -> dict[str, Any]:
    path = folder / "report.json"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    written.load(path)
    document: dict[str, Any] = json.loads(path.read_bytes())
    return document


def _read(document: object) -> Report:
    return written.validate(document, Report, "report.json")


def _at(document: Any, pointer: str) -> tuple[Any, str | int]:
    """The object that holds the last part of a JSON pointer, and that part."""
    *steps, last = (int(step) if step.isdigit() else step for step in pointer.strip("/").split("/"))
    for step in steps:
        document = document[step]
    return document, last


def test_the_schema_that_is_shipped_is_made_of_the_types_and_explains_every_field() -> None:
    assert path_of("report").read_text(encoding="utf-8") == schema_text("report"), (
        "run `python -m tests.support.schemas`"
    )
    Draft202012Validator.check_schema(json.loads(schema_text("report")))

    def unexplained(part: Any, path: str) -> list[str]:
        fields = part.get("properties", {})
        missing = [f"{path}/{name}" for name in fields if not fields[name].get("description")]
        parts = {**fields, **part.get("$defs", {}), "items": part.get("items")}
        inner = ((found, name) for name, found in parts.items() if found)
        return missing + [
            more for one, name in inner for more in unexplained(one, f"{path}/{name}")
        ]

    assert unexplained(json.loads(schema_text("report")), "") == []


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
    document = written.to_json(reports.NOTHING)
    for name in ("determinism", "diagnosis", "noise_floor", "cost", "config_hash", "baseline"):
        assert document[name] is None
    assert document["against"] is document["base"] is None
    assert document["checklist"] == document["runs"] == document["reasons"] == []
    seeds = reports.compared(reports.SAME, reports.DIFFERENT)
    found = written.to_json(replace(reports.FAIL, determinism=seeds))["determinism"]
    assert (found["seed"], found["identical"]) == (2, False)
    assert [(item["seed"], item["identical"]) for item in found["seeds"]] == [(1, True), (2, False)]


def test_the_text_is_stable_plain_ascii_and_holds_no_nan_token(tmp_path: Path) -> None:
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
    text = written.render(reports.hostile("\u202eé\ud800\x1b"))
    assert text == written.render(reports.hostile("\u202eé\ud800\x1b")) and text.endswith("}\n")
    assert text.isascii() and "\x1b" not in text
    assert list(json.loads(text)) == sorted(json.loads(text))


@given(st.text())
def test_any_text_from_the_training_code_makes_a_valid_document(text: str) -> None:
    _read(json.loads(written.render(reports.hostile(text))))


def test_an_enormous_report_is_cut_to_what_the_schema_takes(tmp_path: Path) -> None:
    text = written.render(reports.enormous())
    assert len(text) <= written.MAX_BYTES
    assert _loaded(text, tmp_path)["determinism"]["differing"] == 14
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
    "report", [*reports.ALL.values(), reports.hostile()], ids=[*reports.ALL, "hostile"]
)
def test_what_is_written_follows_the_shipped_schema_however_it_is_shortened(report: Report) -> None:
    validator = Draft202012Validator(json.loads(schema_text("report")))
    validator.validate(json.loads(written.render(report)))
    for tier in written._SHORTER:
        _read(written.jsonable(written.to_json(report), *tier))


def test_a_wrong_value_is_named_by_its_place() -> None:
    for pointer, value in (
        ("/verdict", "great"),
        ("/verdict", []),
        ("/schema", "repro-gate/report/v2"),
        ("/seconds", True),
        ("/seconds", -0.5),
        ("/cost/ci95", 1),
        ("/cost/ci95", [1.0]),
        ("/determinism/first_divergence/step", -2),
        ("/reasons/1/locations/0/file", "f" * (MAX_NAME + 1)),
        ("/runs/1", None),
        ("/config_hash/config_hash", "sha256:0"),
        ("/config_hash/platform", "sha256:" + "0" * 64 + "\n"),
        ("/config_hash/inputs/recipe", {str(index): 0 for index in range(20_001)}),
        ("/diagnosis/also/0/line", -1),
        ("/baseline/loss_gap", "far"),
        ("/baseline/unlike", ["weights"] * 1_001),
        ("/against/commit", "main"),
        ("/base/weakened", None),
    ):
        report = replace(reports.EXPLAINED, config_hash=reports.ADDRESS, base=reports.LOCKED.base)
        report = replace(report, baseline=reports.CHANGED.baseline, against=reports.CHANGED.against)
        document = written.to_json(report)
        holder, last = _at(document, pointer)
        holder[last] = value
        with pytest.raises(ReportError) as caught:
            _read(document)
        place = re.sub(r"/(\d+)", r"[\1]", pointer).replace("/", ".")
        assert f"`${place}`: " in caught.value.message and caught.value.exit_code == 2


def test_a_config_hash_can_be_hashed_again_and_no_other_renderer_is_needed(tmp_path: Path) -> None:
    inputs: dict[str, InputValue] = {"one": 1, "one-float": 1.0, "zero": -0.0, "large": 2**70}
    inputs |= {"text": "1.0", "list": [1, [1.0]], "map": {"1": None}, "long": "x = 1\n" * 9_000}
    real = hash_inputs(inputs, {"torch": "2.13.0"})
    (tmp_path / "whole.json").write_text(written.render(replace(reports.LOCKED, config_hash=real)))
    claimed = written.load(tmp_path / "whole.json").config_hash
    assert claimed is not None
    found = made_again(claimed)
    assert found == real and found.inputs.recipe["large"] == str(2**70)
    code = "import sys, repro_gate.report.document; print({*sys.modules} & {*sys.argv})"
    command = [sys.executable, "-c", code, "jsonschema", "rich", "jinja2"]
    root = Path(written.__file__).parents[2]
    assert subprocess.check_output(command, text=True, cwd=root) == "set()\n"


def test_what_is_no_report_is_refused_with_its_name_and_what_is_wrong(tmp_path: Path) -> None:
    for text, problem in (
        (b"\xff{}", "can't decode byte 0xff in position 0"),
        (b"", "not JSON"),
        (b'{"verdict": "fail", "verdict": "pass"}', "a key stands twice"),
        (b'{"cost": {"a": 1, "a\\u001b": 2, "a\\u001b": 3}}', "stands twice"),
        (b'{"seconds": NaN}', "NaN is not finite"),
        (b'{"seconds": -Infinity}', "-Infinity is not finite"),
        (b'{"seconds": 1e999}', "1e999 is not finite"),
        (b'{"seconds": ' + b"9" * 31 + b"}", "more than 30 digits"),
        (b'{"runs": [' + b"-" + b"9" * 4_000 + b"]}", "more than 30 digits"),
        (b"[" * 65 + b"]" * 65, "nested deeper than 64"),
        (b"[" * 100_000, "nested deeper than 64"),
        (b"[]", "Expected `object`"),
        (b'{"reasons": "\\ud800"}', "surrogates not allowed"),
        (b" " * (written.MAX_BYTES + 1), "larger than 16777216 bytes"),
    ):
        with pytest.raises(ReportError) as caught:
            _loaded(text, tmp_path)
        message = caught.value.message
        assert "report.json: " in message and problem in message and len(message) < 2_000
        assert all(line.isprintable() for line in caught.value.diagnostics().split("\n"))
    os.mkfifo(tmp_path / "pipe")
    for name, problem in (("pipe", "not a regular"), (".", "cannot|not a"), ("none", "not there")):
        with pytest.raises(ReportError, match=problem):
            written.load(tmp_path / name)
    hostile = {"verdict": "\x1b[31m" * 100_000, "reasons": ["x" * 10_000] * 100}
    with pytest.raises(ReportError) as caught:
        _read(written.to_json(reports.PASS) | hostile)
    assert len(caught.value.message) < 2_000 and "\x1b" not in caught.value.message
    document = written.to_json(reports.PASS)
    for name in ("subject", "verdict"):
        kept = {key: value for key, value in document.items() if key != name}
        with pytest.raises(ReportError, match=f"required field `{name}`"):
            _read(kept)


_WHOLE = replace(
    reports.CHANGED,
    determinism=reports.compared(
        reports.SAME,
        reports.DIFFERENT,
        tolerance=Tolerance(1e-6, 1e-5),
        non_finite=((3, "nan"), (4, "-inf")),
    ),
    cost=replace(reports.COST, suspicious="outside", memory_ci95=(0.5, 2.5)),
    noise_floor=replace(
        reports.NOISE,
        first_divergence=reports.FIRST,
        losses=((0, 1.0, math.nan), (1, math.inf, 1.0)),
    ),
    fingerprint=Fingerprint(
        42, ((-1, "0" * 32), (0, "f" * 32)), {"loss": "a" * 32, "rng": "b" * 32}
    ),
    origin=Origin("octo/training", "c" * 40, 17, 2, "gpu"),
    base=reports.WEAKENED.base,
    diagnosis=reports.EXPLAINED.diagnosis,
)
_ALL = {**reports.ALL, "whole": _WHOLE, "hostile": reports.hostile()}


def _stored(report: Report) -> dict[str, Any]:
    """Through the file: keys come back sorted."""
    document: dict[str, Any] = json.loads(written.render(report))
    _read(document)
    return document


@pytest.mark.parametrize("name", _ALL)
def test_a_report_that_was_written_is_read_back_and_looks_the_same(name: str) -> None:
    report, document = _ALL[name], _stored(_ALL[name])
    again = _read(document)
    assert to_json(again) == document
    for shown in (markdown.comment, exports.junit, exports.sarif, terminal.render):
        assert shown(again) == shown(report)


def test_a_cut_report_keeps_its_seed_its_config_hash_and_its_longest_path() -> None:
    document = _stored(_WHOLE)
    # the one that diverged lies beyond the rows that are kept
    document["determinism"]["seeds"] = document["determinism"]["seeds"][:1]
    found = _read(document).determinism
    assert found is not None and (found.seed, found.identical) == (2, False)
    long = WeakenedCheck("data", "less", Location("x" * 5_000, 3))
    base = replace(reports.WEAKENED.base or pytest.fail("it has one"), weakened=(long,))
    read = _read(to_json(replace(reports.WEAKENED, base=base)))
    assert read.base is not None and read.base.weakened[0].location is not None
    assert len(read.base.weakened[0].location.file) == 4096


def test_only_what_the_schema_requires_is_enough() -> None:
    document = _stored(reports.FAIL)
    for part in ("baseline", "against", "base", "origin", "fingerprint"):
        del document[part]
    found = document["determinism"]
    for name in ("seeds", "by_kind", "by_step", "losses", "weights", "non_finite", "tolerance"):
        del found[name]
    found["first_divergence"] = {"step": 3, "kind": "loss", "name": "loss"}
    document["subject"] = {"spec": "repro.yml", "command": "true", "commit": None}
    document["noise_floor"] = None
    assert "**step 3**, the `loss`" in markdown.comment(_read(document))


def _odd() -> dict[str, Report]:
    """Valid by the schema, and not as the gate writes them."""

    def with_pair(**changes: object) -> Report:
        pair = replace(reports.DIFFERENT, **changes)  # type: ignore[arg-type]
        return replace(reports.FAIL, determinism=reports.compared(pair))

    def with_map(steps: int, cells: str) -> Report:
        rows = tuple(HeatRow("main", kind, "a.b", 1, cells) for kind in ("loss", "gradient"))
        return with_pair(heat_map=HeatMap(steps=steps, width=1, depth=1, rows=rows))

    def growth(*points: tuple[int, float, int | None]) -> tuple[GrowthPoint, ...]:
        return tuple(GrowthPoint(step=s, weight_l2=l2, max_ulp=ulp) for s, l2, ulp in points)

    turned = growth(*((step, 10.0**-step, 1 << 70) for step in (9, 2, 40, 0)))
    losses = ((0, 0.0, 1.7e308), (1, 5e-324, 0.0))
    dear = replace(reports.COST, ci95=(1.0, 1.7e308), determinism_cost_pct=1e308)
    return {
        "no cells": with_map(0, ""),
        "growth out of order": with_pair(growth=turned, losses=()),
        "the largest figures": with_pair(growth=growth((0, 1.7e308, None)), losses=losses),
        "a cost beyond any": replace(reports.PASS, cost=dear),
        "a far step": with_map(10**28, ".?"),
        "a cause without a reason": replace(reports.EXPLAINED, reasons=()),
    }


@pytest.mark.parametrize("report", _odd().values(), ids=_odd())
def test_an_odd_report_is_shown_by_every_renderer(report: Report) -> None:
    read = _read(to_json(report))
    for render in (html.render, markdown.comment, markdown.summary, terminal.render):
        assert render(read)
    assert exports.sarif(read) and exports.junit(read)
    assert matrix.between(read, reports.PASS, ("a", "b")) and state_of(read)
