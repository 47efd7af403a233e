"""The worker: its cases and what torch documents of them; in a fresh process, its lines, equal inputs
in two processes, and what is known of a row that ends the process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from repro_gate.ops.worker import bits  # noqa: E402
from repro_gate.ops.worker.cases import FLOATS, Case, Sample, assign, listed, matching  # noqa: E402

Lines = list[dict[str, Any]]
Rows = dict[tuple[str, str, str], dict[str, Any]]
_SOME = ["kernel/sum", "kernel/put_ (no accumulate)", "kernel/dropout", "opinfo/addmm"]
_SOME += ["optimizer/Adam (foreach)", "opinfo/empty"]
DET = "deterministic"
_LIST = """Sets …, they will throw a :class:`RuntimeError` when called.

    The following normally-nondeterministic operations will act
    deterministically when ``mode=True``:

        * :func:`torch.Tensor.index_copy` when called on a CPU or CUDA tensor
        * :func:`torch.new_one` when attempting to differentiate a CUDA tensor
          and the index is a list

    The following normally-nondeterministic operations will throw a
    :class:`RuntimeError` when ``mode=True``:

        * :func:`torch.nn.functional.interpolate` when attempting to differentiate a CUDA tensor
          and one of the following modes is used:

          - ``linear``
        * :class:`torch.nn.MaxUnpool1d`

    In addition, several operations …
        * :func:`torch.not_listed`
"""


def case(operator: str, entry: str = "") -> Case:
    return Case("kernel/" + operator, lambda make: Sample(print, []), entry=entry)


@pytest.mark.parametrize(
    ("device", "documented", "missing"),
    [
        ("cpu", [{"forward": DET}, {}, {}], ["MaxUnpool1d"]),
        ("cuda", [{"forward": DET}, {"backward": DET}, {"backward": "raises"}], ["MaxUnpool1d"]),
    ],
)
def test_an_entry_is_told_to_its_case_by_device_and_direction(
    device: str, documented: list[dict[str, str]], missing: list[str]
) -> None:
    cases = [case("a", "index_copy"), case("b", "index is a list$"), case("c", "used: - linear$")]
    found = assign(cases, _LIST, device)
    assert [item.documented for item in cases] == documented
    assert [note.rpartition(".")[2] for note in found] == missing and "not_listed" not in str(found)
    assert not assign([case("d", "MaxUnpool1d"), *cases], _LIST, device)


def test_every_entry_of_the_installed_torch_has_a_case() -> None:
    cases = list(listed("cpu"))
    documentation = torch.use_deterministic_algorithms.__doc__
    assert not assign(cases, documentation, "cpu") and not assign(cases, documentation, "cuda")
    assert sum(bool(item.documented) for item in cases) >= 40


def test_the_cases_are_many_and_unique_and_those_of_a_device_are_left_out() -> None:
    cases = {item.name: item for item in listed("cpu")}
    assert len(cases) == len(list(listed("cpu"))) > 220
    assert cases["kernel/bincount"].dtypes == ("int64",) and cases["kernel/sum"].dtypes > FLOATS
    only_here = cases.keys() - {item.name for item in listed("cuda")}
    assert only_here == {"kernel/GRU (dropout)"}, "no seed resets what it draws on CUDA"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("size", [0, 1])
def test_every_case_of_the_table_makes_its_inputs(size: int) -> None:
    for item in listed("cpu"):
        if item.source.startswith("torch"):  # packages that may be missing
            continue
        samples = [item.make("cpu", item.dtypes[0], "forward", size) for _ in range(2)]
        one, two = (bits.leaves(sample.inputs) for sample in samples)
        assert one and bits.equal(one, two) and callable(samples[0].function), item.name


def test_a_pattern_is_text_or_a_shell_pattern() -> None:
    cases = [case("sort"), case("cumsum")]
    for pattern, count in {"": 2, "SORT": 1, "kernel/*": 2, "c*m": 1, "none": 0}.items():
        assert len(matching(cases, pattern)) == count, pattern


def _rows(lines: Lines) -> Rows:
    rows = [line["row"] for line in lines if "row" in line]
    return {(row["case"], row["dtype"], row["direction"]): row for row in rows}


@pytest.mark.slow
def test_two_processes_make_equal_results(ask: Callable[..., Lines]) -> None:
    keys = [[name, "float32", "forward"] for name in _SOME]
    keys += [[name, "float32", "backward"] for name in _SOME[:4]]
    first = ask(rows=keys)
    rows, second = _rows(first), _rows(ask(rows=keys, again=True))
    began = [line["began"] for line in first if "began" in line]
    assert began == keys == list(map(list, rows)) and first[-1] == {"done": True}
    for key, row in rows.items():
        assert row["inputs"] == second[key]["inputs"]
        races = row["on"]["outcome"] == "raises"  # so few repeats may not show it
        if row["off"]["outcome"] == "repeats" and not races:
            assert second[key]["off"]["digests"][0] == row["off"]["digests"][0], key
        if key[::2] == ("kernel/put_ (no accumulate)", "forward"):
            assert races
        if key[0] == "opinfo/empty":
            assert (row["off"]["outcome"], row["on"]["outcome"]) == ("uninitialised", "repeats")


_OWN = """
import os
def dies(torch, device, dtype):
    return lambda: os._exit(9)
def lives(torch, device, dtype):
    x = torch.randn(100)
    return lambda: x.sin()
"""


@pytest.mark.slow
def test_a_row_that_ends_the_process_had_begun(ask: Callable[..., Lines], tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(_OWN)
    names = ["mine:lives", "mine:missing", "mine:dies"]
    rows = [[f"user/{name}", "float32", "forward"] for name in names]
    lines = ask(9, user=names, path=[str(tmp_path)], rows=rows)
    assert lines[-1]["began"][0] == "user/mine:dies"
    lives, missing = _rows(lines).values()
    assert lives["off"]["outcome"] == "repeats" and missing["off"]["outcome"] == "no-kernel"
    assert "missing" in missing["off"]["message"]


@pytest.mark.slow
def test_the_list_has_the_controls_the_torch_and_what_fits(ask: Callable[..., Lines]) -> None:
    lines = ask(pattern="*put_*")
    assert {"torch", "threads", "cpu-isa"} <= set(lines[0]["about"])
    arms = {row["case"]: row["off"] for row in _rows(lines).values()}
    outcomes = {name: arm["outcome"] for name, arm in arms.items()}
    assert outcomes == {"control/races": "differs", "control/repeats": "repeats"}
    assert all(bool(arm["max_ulp"]) == ("races" in name) for name, arm in arms.items())
    fitting = [line["listed"] for line in lines if "listed" in line]
    assert ["kernel/put_ (accumulate)", "float32", "backward"] in fitting
    assert not any(name == "opinfo/index_put" for name, *_ in fitting)
