"""What YAML may do to the reader: files that are no spec, hostile files, any bytes."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from repro_gate.spec.errors import SpecError
from repro_gate.spec.model import Spec
from tests.support.reading import BASE, lines, load


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_what_is_no_spec_at_all_is_refused_with_its_place() -> None:
    for text, line in (
        ("", "1:1: found no value at the top level"),
        ("- a\n", "1:1: found a list at the top level"),
        (BASE + "train: {run: y}\n", "4:1: train: stands twice, first on line 2, keep one"),
        ("a: b: c\n", "1:5: a `:` stands where no key can be"),
        ("a:\n\tb: 1\n", "2:1: a tab cannot indent YAML, use spaces"),
        ("version: 1\n---\nversion: 1\n", "2:1: a second document starts here"),
        ("a: [1, 2\nb: 3\n", "2:2: a list that is not closed"),
        ("a: !!python/object/apply:os.system [echo]\n", "1:4: the tag `tag:yaml.org,2002:python/"),
        ("a: 'x\n", "2:1: the file ends inside a quoted text"),
        ("[a]: 1\n" + BASE, "1:1: a key cannot be a list or a mapping"),
        ("version: 1\n".encode("utf-16"), "1:1: not UTF-8"),
        ("a: *nowhere\n", "1:4: aliases are not supported, write the value out"),
        ("<<: {a: 1}\n" + BASE, "1:1: merge keys (`<<`) are not supported"),
        (b"version: 1\n# \xc3\xa9\xff\n", "2:4: not UTF-8"),
    ):
        assert lines(text)[0].startswith(f"repro.yml:{line}")
    assert load(b"\xef\xbb\xbf" + BASE.encode()).train.run == "python t.py"
    assert load("version: 1\ntrain: {run: !!str 5}\n").train.run == "5"


def test_a_hostile_file_is_refused_in_bounded_time() -> None:
    for text, said in (
        (
            "a: &a [x,x,x]\n"
            + "".join(f"b{i}: &a{i} [*a{i - 1 if i else ''}]\n" for i in range(12)),
            "aliases are not supported",
        ),
        ("[" * 1_000_000, "nested deeper than 50 levels"),
        ("a: [" + "x," * 500_000 + "]", "more than 10,000 values"),
        # the mapping, its key, the list
        ("a: [" + "x," * (10_000 - 3) + "]", "unknown key"),
        ("a: [" + "x," * (10_000 - 2) + "]", "more than 10,000 values"),
        ("&a " * 300_000, ""),
        ("? " * 500_000, "nested deeper than 50 levels"),
        ("".join(f"k{i}: 1\n" for i in range(4_900)), "unknown key"),
        ('"' + "\\n" * 500_000, "ends inside a quoted text"),
        (BASE + "random-state: {seeds: [" + "1," * 9_000 + "]}", "stands twice"),
        ("x" * ((1 << 20) + 1), "is larger than"),
    ):
        start = time.process_time()
        assert any(said in line for line in lines(text))
        assert time.process_time() - start < 10


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.binary(max_size=300)
    | st.text("ab:-[]{},&*!|>'\"#%@`? \n\t\\0~<=", max_size=80).map(str.encode)
    | (st.text(max_size=8) | st.integers().map(str)).map(
        lambda text: f"{BASE}random-state: {{seed: {text}}}\n".encode()
    )
)
def test_any_bytes_give_a_spec_or_a_spec_error(raw: bytes) -> None:
    try:
        assert isinstance(load(raw), Spec)
    except SpecError as error:
        assert error.diagnostics()
        assert all(line.isprintable() for line in error.message.splitlines())
