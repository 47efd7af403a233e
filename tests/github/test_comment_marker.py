"""The hidden line: what is written is read back, and nothing else is taken for it."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from repro_gate.errors import UsageError
from repro_gate.github.marker import Marker, key_for, marker_line, read_marker

MARKER = Marker("0f" * 16, "b" * 40, 123, 2, "0123456789abcdef")
PERCENT = st.floats(-1e9, 1e9).map(lambda end: round(end, 1))
MARKERS = st.builds(
    Marker,
    key=st.text("0123456789abcdefz", min_size=1, max_size=64),
    head_sha=st.from_regex("[0-9a-f]{40}|[0-9a-f]{64}", fullmatch=True),
    run_id=st.integers(1, 2**53 - 1),
    run_attempt=st.integers(1, 2**53 - 1),
    state=st.text("0123456789abcdef", max_size=64),
    verdict=st.sampled_from(["", "pass", "fail", "inconclusive"]),
    cost=st.none() | st.tuples(PERCENT, PERCENT),
)
LONGEST = Marker(
    "z" * 64, "b" * 64, 2**53 - 1, 2**53 - 1, "f" * 64, "inconclusive", (-1e8 - 0.1, -1e8 - 0.1)
)
LINE = marker_line(MARKER)


def fields(**changed: object) -> str:
    """The line of MARKER as a forger writes it, with fields that are changed or more."""
    document = {"v": 1, "key": "0f" * 16, "head": "b" * 40, "run": 123, "attempt": 2}
    document |= {"state": "0123456789abcdef", **changed}
    return f"<!-- repro-gate {json.dumps(document, separators=(',', ':'))} -->"


@given(MARKERS, st.text())
def test_the_line_is_one_short_html_comment_that_is_read_back(marker: Marker, rest: str) -> None:
    line = marker_line(marker)
    assert read_marker(f"{line}\n{rest}") == read_marker(f"{line}\r\n{rest}") == marker
    inside = line.removeprefix("<!--").removesuffix("-->")
    assert line.isascii() and line.isprintable()
    assert "--" not in inside and ">" not in inside and "<" not in inside
    assert len(line) <= len(marker_line(LONGEST)) == 359


def test_nothing_but_the_exact_form_on_the_first_line_is_a_marker_nor_written() -> None:
    assert read_marker(fields()) == MARKER, "so that these can fail"
    hostile: list[dict[str, object]] = [
        {"v": 2}, {"extra": 1}, {"run": "123"}, {"run": -1}, {"key": None}, {"head": "b" * 40 + "\n"},
    ]  # fmt: skip
    for text in (
        *(f"{before}{LINE}" for before in ("> ", "Look at this:\n", "\n", " ", "```\n", "\ufeff")),
        f"{LINE} and more",
        *(fields(**change) for change in hostile),
        fields().replace('"run"', '"ran"'),
        fields().replace('"v":1', '"v": 1'),
        fields().replace('"run":123', '"run":7,"run":123'),
        fields().replace("repro-gate", "other-gate"),
        fields().replace("repro-gate ", "repro-gate " + " " * 500),
        *(f"<!-- repro-gate {inside} -->" for inside in ("[]", "{}", "{not json}", "[" * 380)),
        "",
    ):
        assert read_marker(text) is None, text
    for name, value in {
        "key": "a-->b", "head_sha": "B" * 40, "run_id": 2**53, "state": "<", "verdict": "-->", "cost": (2e9, 0),
    }.items():  # fmt: skip
        with pytest.raises(UsageError, match="no comment can be marked"):
            marker_line(msgspec.structs.replace(MARKER, **{name: value}))


@given(st.text())
def test_reading_never_raises(text: str) -> None:
    assert read_marker(text) is None
    read_marker(f"<!-- repro-gate {text} -->")


def test_whatever_a_job_knows_makes_a_key_and_two_gates_have_two() -> None:
    hostile = key_for("ein ä/<!-- -->.yml", "folder")
    assert marker_line(msgspec.structs.replace(MARKER, key=hostile))
    gates = [("repro.yml",), ("vision/repro.yml",), ("repro.yml", ""), ("repro.yml", "a100")]
    gates += [("repro.yml", "h100"), ("repro.yml", "a1", "00"), ("repro.yml", "a", "100")]
    assert len({key_for(*names) for names in gates}) == len(gates)
    assert key_for("repro.yml") == key_for("repro.yml")
