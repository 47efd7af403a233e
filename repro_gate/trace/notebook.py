"""How a line of a notebook is named, by the probe that sees it run and the gate that shows it:
`train.ipynb#cell 2`, line 3."""

from __future__ import annotations

import json

SUFFIX = ".ipynb"
MAX_BYTES = 16 * 1024 * 1024  # of a notebook that is read: outputs hold pictures
_MARK = "#cell "


def cell_name(notebook: str, number: int) -> str:
    """Return what stands for a file: the notebook and its cell, as `code_cells` counts them from
    1."""
    return "%s%s%d" % (notebook, _MARK, number)


def split(file: str) -> tuple[str, int]:
    """Return the notebook and the number of its cell; of any other file its own name and 0."""
    name, _, number = file.rpartition(_MARK)
    return (
        (name, int(number))
        if name.endswith(SUFFIX) and number.isdecimal() and len(number) < 6
        else (file, 0)
    )


def place(file: str, line: int) -> str:
    """Return a line as a person reads it: `train.py:3`, and of a notebook `train.ipynb, cell 2,
    line 3`."""
    name, cell = split(file)
    return (
        "%s, cell %d, line %d" % (name, cell, line) if cell else "%s:%d" % (file, line)
    )


def code_cells(content: bytes) -> list[str]:
    """Return the texts of the code cells that hold code, in order, as Jupyter counts them: `In [1]`
    is the first. None where it is no notebook."""
    try:
        cells = json.loads(content)["cells"]
        texts = [
            "".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"
        ]
    except (ValueError, TypeError, KeyError, RecursionError):
        return []
    return [text for text in texts if text.strip()]
