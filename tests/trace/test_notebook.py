"""A cell's name is read back, and no file that only looks like a notebook does harm."""

from __future__ import annotations

import json

import pytest

from repro_gate.trace.notebook import cell_name, code_cells, place, split


def test_a_line_of_a_cell_is_told_by_its_cell() -> None:
    cell = cell_name("nb/train.ipynb", 2)
    assert split(cell) == ("nb/train.ipynb", 2)
    assert place(cell, 3) == "nb/train.ipynb, cell 2, line 3"
    for file in ("train.py", "a#cell 2", "a.ipynb#cell x"):
        assert (split(file), place(file, 3)) == ((file, 0), f"{file}:3")


def test_code_cells_are_counted_as_jupyter_counts_what_it_runs() -> None:
    cells = {"code": ["x = 1\n", "y = 2"], "markdown": ["# a"]}
    found = [{"cell_type": kind, "source": source} for kind, source in cells.items()]
    found += [{"cell_type": "code", "source": source} for source in (" \n", "z = 3")]
    assert code_cells(json.dumps({"cells": found}).encode()) == ["x = 1\ny = 2", "z = 3"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff",
        b"[]",
        b'{"cells": 3}',
        b'{"cells": [{}]}',
        b'{"cells": [1]}',
        b'{"cells": [{"cell_type": "code", "source": [1]}]}',
        b"[" * 100_000,
    ],
)
def test_what_is_no_notebook_has_no_cells(content: bytes) -> None:
    assert code_cells(content) == []
