"""The worker in a fresh process: its lines, equal inputs in two processes, and what is known of a
row that ends the process."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from repro_gate.ops.case import Case
from repro_gate.ops.worker import matching

Lines = list[dict[str, Any]]
_SOME = [
    "kernel/sum",
    "kernel/put_ (no accumulate)",
    "kernel/dropout",
    "kernel/LSTM",
    "optimizer/Adam (foreach)",
    "opinfo/addmm",
    "opinfo/empty",
    "opinfo/sin",
    "opinfo/kron",
]


def _rows(lines: Lines) -> dict[tuple[str, str, str], dict[str, Any]]:
    return {
        (line["case"], line["dtype"], line["direction"]): line for line in lines if "off" in line
    }


def _elements(shape: str) -> int:
    return math.prod(int(side) for side in shape.split("x"))


@pytest.mark.slow
def test_two_processes_make_equal_inputs_and_equal_results(ask: Callable[..., Lines]) -> None:
    request = {"mode": "measure", "cases": _SOME, "dtypes": ["float32"]}
    first = ask(**request, settings={"repeats": 1, "contended": 1})
    second = ask(
        **request, settings={"repeats": 0, "contended": 0, "price": 0, "sizes": 1, "record": False}
    )
    assert "about" in first[0] and first[-1] == {"done": True}
    began = [
        tuple(line["began"][key] for key in ("case", "dtype", "direction"))
        for line in first
        if "began" in line
    ]
    rows, again = _rows(first), _rows(second)
    assert began == list(rows) == list(again) and len(rows) >= 10
    assert [line["inputs"] for line in rows.values()] == [line["inputs"] for line in again.values()]
    for key, line in rows.items():
        if line["off"]["outcome"] == "repeats":
            assert again[key]["off"]["digests"][0] == line["off"]["digests"][0], key
    outcomes = {
        key[0]: (line["off"]["outcome"], line["on"]["outcome"])
        for key, line in rows.items()
        if key[2] == "forward"
    }
    sizes = {
        key[0]: _elements(line["size"].split(",")[0])
        for key, line in rows.items()
        if key[0] in ("opinfo/sin", "opinfo/kron")
    }
    assert sizes["opinfo/sin"] >= 1 << 17 > sizes["opinfo/kron"] > 0, (
        "samples grow, but for one whose result would grow by the square"
    )
    assert outcomes["kernel/sum"] == outcomes["opinfo/addmm"] == ("repeats", "repeats")
    assert outcomes["kernel/put_ (no accumulate)"][1] == "raises" and outcomes["opinfo/empty"] == (
        "uninitialised",
        "repeats",
    )


@pytest.mark.slow
def test_the_list_names_cases_dtypes_and_the_documentation(ask: Callable[..., Lines]) -> None:
    lines = ask(mode="list", pattern="*put_*")
    found = {line["case"]: line for line in lines if "case" in line}
    assert found["kernel/put_ (accumulate)"]["documented"] == "deterministic"
    assert found["kernel/put_ (accumulate)"]["documented_on"]["cuda"] == {"forward": "raises"}
    assert found["kernel/put_ (no accumulate)"]["documented"] == "raises"
    assert ["float32", "backward"] in found["kernel/put_ (accumulate)"][
        "rows"
    ] and "opinfo/index_put" not in found


@pytest.mark.slow
def test_the_row_that_ends_the_process_has_begun_and_can_be_skipped(
    ask: Callable[..., Lines], tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(
        "import os\n"
        "def dies(torch, device, dtype):\n"
        "    return lambda: os._exit(9)\n"
        "def lives():\n"
        "    import torch\n"
        "    x = torch.randn(100)\n"
        "    return lambda: x.sin()\n",
        encoding="utf-8",
    )
    request = {
        "mode": "measure",
        "user": ["mine:dies", "mine:lives", "mine:missing"],
        "path": [str(tmp_path)],
        "dtypes": ["float32"],
    }
    lines = ask(9, **request)
    assert lines[-1]["began"]["case"] == "user/mine:dies" and not _rows(lines)
    rows = _rows(
        ask(
            **request,
            skip=[
                ["user/mine:dies", "float32", direction] for direction in ("forward", "backward")
            ],
        )
    )
    assert rows["user/mine:lives", "float32", "forward"]["off"]["outcome"] == "repeats"
    missing = rows["user/mine:missing", "float32", "forward"]["off"]
    assert missing["outcome"] == "no-kernel" and "missing" in missing["message"]


@pytest.mark.parametrize(
    ("pattern", "names"), [("", 2), ("SORT", 1), ("kernel/*", 2), ("*sum", 1), ("none", 0)]
)
def test_a_pattern_is_text_or_a_shell_pattern(pattern: str, names: int) -> None:
    cases = [Case(name, lambda make: (print, [])) for name in ("sort", "cumsum")]
    assert len(matching(cases, pattern)) == names
