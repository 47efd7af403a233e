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
MARKERS = st.builds(
    Marker,
    key=st.text("0123456789abcdefz", min_size=1, max_size=64),
    head_sha=st.sampled_from([40, 64]).flatmap(
        lambda size: st.text("0123456789abcdef", min_size=size, max_size=size)
    ),
    run_id=st.integers(1, 2**53 - 1),
    run_attempt=st.integers(1, 2**53 - 1),
    state=st.text("0123456789abcdef", max_size=64),
    verdict=st.sampled_from(["", "pass", "fail", "inconclusive"]),
    cost=st.none() | st.tuples(st.integers(-(10**9), 10**9), st.integers(-(10**9), 10**9)),
)
LONGEST = Marker(
    "z" * 64, "b" * 64, 2**53 - 1, 2**53 - 1, "f" * 64, "inconclusive", (-(10**9), -(10**9))
)


def fields(**changed: object) -> str:
    plain: dict[str, object] = {
        "v": 1,
        "key": "0f" * 16,
        "head": "b" * 40,
        "run": 123,
        "attempt": 2,
        "state": "0123456789abcdef",
    }
    return f"<!-- repro-gate {json.dumps({**plain, **changed}, separators=(',', ':'))} -->"


@given(MARKERS, st.text())
def test_a_marker_is_read_back_whatever_follows(marker: Marker, rest: str) -> None:
    assert read_marker(f"{marker_line(marker)}\n{rest}") == marker
    assert read_marker(f"{marker_line(marker)}\r\n{rest}") == marker


@given(MARKERS)
def test_the_line_is_one_short_html_comment(marker: Marker) -> None:
    line = marker_line(marker)
    inside = line.removeprefix("<!--").removesuffix("-->")
    assert line.isascii() and line.isprintable()
    assert "--" not in inside and ">" not in inside and "<" not in inside
    assert len(line) <= len(marker_line(LONGEST)) == 357


@pytest.mark.parametrize(
    "change",
    [
        {"key": "a-->b"},
        {"key": ""},
        {"head_sha": "B" * 40},
        {"head_sha": "b" * 39},
        {"run_id": 0},
        {"run_id": 2**53},
        {"run_attempt": True},
        {"state": "<"},
        {"verdict": "-->"},
        {"cost": (10**9 + 1, 0)},
    ],
)
def test_a_marker_that_could_not_be_read_back_is_not_written(change: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="no comment can be marked"):
        marker_line(msgspec.structs.replace(MARKER, **change))  # type: ignore[arg-type]


def test_nothing_but_the_exact_form_on_the_first_line_is_a_marker() -> None:
    line = marker_line(MARKER)
    assert read_marker(fields()) == read_marker(line) == MARKER, "so that these can fail"
    wrong: list[dict[str, object]] = [
        {"v": 2}, {"v": True}, {"extra": 1}, {"run": "123"}, {"run": 1.0}, {"run": True}, {"run": -1}, {"attempt": None},
        {"key": None}, {"head": "main"}, {"head": "b" * 40 + "\n"}, {"state": "x" * 8},
    ]  # fmt: skip
    for text in (
        f"> {line}",
        f"Look at this:\n{line}",
        f"\n{line}",
        f" {line}",
        f"```\n{line}\n```",
        f"{line} and more",
        f"\ufeff{line}",
        *(fields(**change) for change in wrong),
        fields().replace('"run"', '"ran"'),
        fields().replace('"v":1', '"v": 1'),
        fields().replace('"run":123', '"run":7,"run":123'),
        fields().replace("repro-gate", "other-gate"),
        *(f"<!-- repro-gate {inside} -->" for inside in ("[]", "{}", "{not json}", "[" * 380)),
        "<!-- repro-gate " + " " * 500 + fields().removeprefix("<!-- repro-gate "),
        "",
    ):
        assert read_marker(text) is None, text


@given(st.text())
def test_reading_never_raises(text: str) -> None:
    assert read_marker(text) is None
    read_marker(f"<!-- repro-gate {text} -->")


def test_whatever_a_job_knows_makes_a_key_and_two_gates_have_two() -> None:
    hostile = key_for("ein ä/<!-- -->.yml", "folder")
    assert marker_line(msgspec.structs.replace(MARKER, key=hostile))
    named = [("repro.yml",), ("vision/repro.yml",), ("repro.yml", ""), ("repro.yml", "a100")]
    named += [("repro.yml", "h100"), ("repro.yml", "a1", "00"), ("repro.yml", "a", "100")]
    keys = [key_for(*names) for names in named]
    assert len(set(keys)) == len(keys) and keys == [key_for(*names) for names in named]
