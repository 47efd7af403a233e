"""A cell's name is read back, and no file that only looks like a notebook does harm."""

from __future__ import annotations

import json

import pytest

from repro_gate.trace.notebook import cell_name, code_cells, place, split


@pytest.mark.parametrize(
    ("file", "parts", "told"),
    [
        (cell_name("nb/train.ipynb", 2), ("nb/train.ipynb", 2), "nb/train.ipynb, cell 2, line 3"),
        ("train.py", ("train.py", 0), "train.py:3"),
        ("a#cell 2", ("a#cell 2", 0), "a#cell 2:3"),
        ("a.ipynb#cell x", ("a.ipynb#cell x", 0), "a.ipynb#cell x:3"),
    ],
)
def test_a_line_of_a_cell_is_told_by_its_cell(file: str, parts: tuple[str, int], told: str) -> None:
    assert split(file) == parts
    assert place(file, 3) == told


def test_code_cells_are_counted_as_jupyter_counts_what_it_runs() -> None:
    cells = {"code": ["x = 1\n", "y = 2"], "markdown": ["# a"]}
    found = [{"cell_type": kind, "source": source} for kind, source in cells.items()]
    found += [{"cell_type": "code", "source": source} for source in (" \n", "z = 3")]
    assert code_cells(json.dumps({"cells": found}).encode()) == ["x = 1\ny = 2", "z = 3"]


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff", b"[]", b'{"cells": 3}', b'{"cells": [{}]}', b'{"cells": [1]}', b"[" * 100_000],
)
def test_what_is_no_notebook_has_no_cells(content: bytes) -> None:
    assert code_cells(content) == []
    assert code_cells(b'{"cells": [{"cell_type": "code", "source": [1]}]}') == []
