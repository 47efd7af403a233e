"""Claims about .json and .jsonl files."""

from __future__ import annotations

from pathlib import Path

import pytest

from repro_gate.compare.artifacts import compare_artifacts
from repro_gate.trace.artifacts.interface import Artifact
from repro_gate.trace.artifacts.read import read_leaves


def written(path: Path, content: str | bytes) -> Artifact:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_leaves(path)


def test_leaves_are_named_by_their_path(tmp_path: Path) -> None:
    artifact = written(tmp_path / "a.json", '{"history": [{"loss": 0.5}, {"loss": 0.25}], "ok": true, "none": null, "n": 3, "e": {}}')
    assert artifact.format == "json"
    assert {name: leaf.value for name, leaf in artifact.leaves.items()} == {
        "history.0.loss": "0.5",
        "history.1.loss": "0.25",
        "ok": "True",
        "none": "null",
        "n": "3",
        "e": "{}",
    }


@pytest.mark.parametrize(
    ("a", "b", "what"),
    [
        ("0.1", "0.10000000000000002", "value"),
        ("0.0", "-0.0", "value"),
        ("0", "-0", "value"),
        ("1", "1.0", "dtype"),
        ('"1"', "1", "kind"),
        ("NaN", "Infinity", "value"),
        ("NaN", "null", "kind"),
        ("1e999", "Infinity", "value"),
        ("9007199254740993", "9007199254740992", "value"),
        ("[1,2]", "[2,1]", "value"),
        ('{"a":1}', '{"b":1}', "missing"),
        ('{"a":1,"a":2}', '{"a":2}', "value"),
        ("[]", "{}", "dtype"),
        ('{"0":1}', "[1]", "structure"),
        ("true", "1", "dtype"),
        ('"a"', '"a "', "value"),
    ],
)
def test_what_differs_is_seen(tmp_path: Path, a: str, b: str, what: str) -> None:
    found = compare_artifacts(written(tmp_path / "a.json", a), written(tmp_path / "b.json", b), "")
    assert what in {item.what for item in found}


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("0.1", "1e-1"),
        ('{"a": 1, "b": 2}', '{"b":2,\n"a":1}'),
        ('"\\u0061"', '"a"'),
        ("NaN", " NaN"),
        ("1E2", "100.0"),
        ('\ufeff{"a":1}', '{"a":1}'),
    ],
)
def test_spelling_does_not_count(tmp_path: Path, a: str, b: str) -> None:
    assert compare_artifacts(written(tmp_path / "a.json", a), written(tmp_path / "b.json", b), "") == ()


def test_lines_are_read_one_by_one(tmp_path: Path) -> None:
    a = written(tmp_path / "a.jsonl", '{"loss": 1.0}\n{"loss": 0.5}\n')
    b = written(tmp_path / "b.jsonl", '{"loss": 1.0}\n{"loss": 0.25}\n')
    assert [(item.leaf, item.values) for item in compare_artifacts(a, b, "")] == [("line 2.loss", ("0.5", "0.25"))]


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "{'a': 1}",
        b"\xff\xfe{",
        "[" * 50_000,
        "[" * 150 + "]" * 150,
        "[" + "[]," * 2_100_000 + "[]]",
        '{"a": 01}',
        '{"' + "k" * 5000 + '": 1}',
    ],
)
def test_a_file_that_is_malformed_or_above_a_limit_is_opaque(tmp_path: Path, content: str | bytes) -> None:
    artifact = written(tmp_path / "a.json", content)
    assert artifact.format == "opaque" and artifact.note


def test_surrogates_and_endless_digits_are_values_like_any_other(tmp_path: Path) -> None:
    a = written(tmp_path / "a.json", '{"\\ud800": "\\udfff", "n": ' + "9" * 100_000 + "}")
    b = written(tmp_path / "b.json", '{"\\ud800": "\\udffe", "n": ' + "9" * 99_999 + "8}")
    assert [item.leaf for item in compare_artifacts(a, b, "")] == ["\\ud800", "n"]
