"""What YAML may do to the reader: files that are no spec, hostile files, any bytes."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from repro_gate.spec.errors import SpecError
from repro_gate.spec.loader import load_spec
from repro_gate.spec.model import Spec
from tests.support.reading import BASE, lines, load


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "1:1: found no value at the top level"),
        ("# only a comment\n", "1:1: found no value"),
        ("- a\n", "1:1: found a list at the top level"),
        ("hello\n", '1:1: found "hello" at the top level'),
        (BASE + "train: {run: y}\n", "4:1: train: stands twice, first on line 2, keep one"),
        ("a: b: c\n", "1:5: a `:` stands where no key can be"),
        ("a:\n\tb: 1\n", "2:1: a tab cannot indent YAML, use spaces"),
        ("version: 1\n---\nversion: 1\n", "2:1: a second document starts here"),
        ("a: [1, 2\nb: 3\n", "2:2: a list that is not closed"),
        ("a: 'x\n", "2:1: the file ends inside a quoted text"),
        (
            "a: !!python/object/apply:os.system [echo]\n",
            "1:4: the tag `tag:yaml.org,2002:python/object/apply:os.system` is not supported",
        ),
        ("a: !!timestamp 2027-01-01\n", "1:4: the tag"),
        ("a: *nowhere\n", "1:4: aliases are not supported, write the value out"),
        ("a: &a [*a]\n", "1:8: aliases are not supported, write the value out"),
        ("<<: {a: 1}\n" + BASE, "1:1: merge keys (`<<`) are not supported"),
        ("[a]: 1\n" + BASE, "1:1: a key cannot be a list or a mapping"),
        (b"version: 1\n# \xc3\xa9\xff\n", "2:4: not UTF-8"),
        (b"\xef\xbb\xbfversion: 1\n# \xff\n", "2:3: not UTF-8"),
        ("version: 1\n".encode("utf-16"), "1:1: not UTF-8"),
    ],
)
def test_what_is_no_spec_at_all_is_refused_with_its_place(text: str | bytes, line: str) -> None:
    assert lines(text)[0].startswith(f"repro.yml:{line}")


def test_a_byte_order_mark_is_no_mistake() -> None:
    assert load(b"\xef\xbb\xbf" + BASE.encode()).train.run == "python t.py"


def test_explicit_text_stays_text() -> None:
    assert load("version: 1\ntrain: {run: !!str 5}\n").train.run == "5"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "a: &a [x,x,x]\n"
            + "".join(f"b{i}: &a{i} [*a{i - 1 if i else ''}]\n" for i in range(12)),
            "aliases are not supported",
        ),
        ("[" * 1_000_000, "nested deeper than 50 levels"),
        ("- " * 500_000, "nested deeper than 50 levels"),
        ("{a: " * 250_000, "nested deeper than 50 levels"),
        ("a: [" + "x," * 500_000 + "]", "more than 10,000 values"),
        ("&a " * 300_000, ""),
        ("? " * 500_000, "nested deeper than 50 levels"),
        ("a: " + "x " * 500_000, "unknown key"),
        ('"' + "\\n" * 500_000, "ends inside a quoted text"),
        ("".join(f"k{i}: 1\n" for i in range(4_900)), "unknown key"),
        (BASE + "random-state: {seeds: [" + "1," * 9_000 + "]}", "stands twice"),
        ("x" * ((1 << 20) + 1), "larger than 1 MiB"),
    ],
)
def test_a_hostile_file_is_refused_in_bounded_time(text: str, said: str) -> None:
    start = time.monotonic()
    assert any(said in line for line in lines(text))
    assert time.monotonic() - start < 10


def _never_a_traceback(path: Path) -> None:
    start = time.monotonic()
    try:
        assert isinstance(load_spec(path), Spec)
    except SpecError as error:
        assert error.diagnostics()
        assert all(line.isprintable() for line in error.message.splitlines())
    assert time.monotonic() - start < 5


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.one_of(
        st.binary(max_size=300),
        st.text(alphabet="ab:-[]{},&*!|>'\"#%@`? \n\t\\0~<=", max_size=80).map(str.encode),
    )
)
def test_any_bytes_give_a_spec_or_a_spec_error(tmp_path: Path, raw: bytes) -> None:
    file = tmp_path / "repro.yml"
    file.write_bytes(raw)
    _never_a_traceback(file)


WORDS = st.sampled_from([
    "version", "train", "run", "snippet", "steps", "timeout", "env", "random-state", "seed", "seeds", "determinism", "compare",
    "allow", "flag", "reason", "loss", "weights", "capture", "artifacts", "cost", "measure", "max-percent", "data", "path", "sha256",
    "hardware", "device", "gpus", "checklist", "waive", "check", "until", "code", "A",
])  # fmt: skip
LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.dates(),
    st.sampled_from([1, "bitwise", "cpu", "1h", "env/x", "NCCL_ALGO", "2027-06-30", "a" * 64]),
)  # fmt: skip
TREES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=20,
)


@settings(
    max_examples=200,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.dictionaries(WORDS, TREES, max_size=5))
def test_any_yaml_gives_a_spec_or_a_spec_error(tmp_path: Path, data: dict[str, object]) -> None:
    file = tmp_path / "repro.yml"
    file.write_text(
        yaml.safe_dump({"version": 1, "train": {"run": "x"}, **data}, allow_unicode=True),
        encoding="utf-8",
        errors="surrogatepass",
    )
    _never_a_traceback(file)
