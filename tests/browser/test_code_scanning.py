"""Claims about `report.sarif` that take a part from npm."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from repro_gate.report.exports import sarif
from repro_gate.report.model import Origin
from tests.browser.conftest import missing
from tests.browser.picture import MODULES
from tests.support import reports

pytestmark = pytest.mark.browser
_SCHEMA = MODULES / "@microsoft" / "sarif-multitool-linux" / "sarif-2.1.0.json"
_ORIGIN = Origin("octo/training", "c" * 40, 17, 2, reports.HOSTILE[:200])


@pytest.fixture(scope="module")
def schema() -> Draft202012Validator:
    if not _SCHEMA.is_file():
        missing(f"no {_SCHEMA.name}: npm ci --prefix tests/browser, on Linux")
    document: dict[str, Any] = json.loads(_SCHEMA.read_text(encoding="utf-8-sig"))
    assert document["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    return Draft202012Validator(document, format_checker=Draft202012Validator.FORMAT_CHECKER)


@pytest.mark.parametrize("name", [*reports.ALL, "hostile"])
def test_every_report_follows_the_official_schema(name: str, schema: Draft202012Validator) -> None:
    report = reports.ALL.get(name) or reports.hostile()
    for document in (json.loads(sarif(report)), json.loads(sarif(replace(report, origin=_ORIGIN)))):
        assert [error.message[:300] for error in schema.iter_errors(document)] == []


def test_the_schema_refuses_what_is_none(schema: Draft202012Validator) -> None:
    document = json.loads(sarif(reports.FAIL))
    document["runs"][0]["results"][0]["level"] = "fatal"
    document["runs"][0]["results"][1]["locations"][0]["physicalLocation"]["region"]["startLine"] = 0
    assert len(list(schema.iter_errors(document))) == 2
