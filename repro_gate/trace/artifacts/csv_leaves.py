"""A member: .csv and .tsv, cell by cell as text: `row 3, column loss`.
 Rows are counted as an editor counts them, the header being row 1. The first row is a header if none of its cells is empty
or a number; else columns go by number, from 1. Quoting and line ends do not count; a cell's text does, blanks included.
"""

from __future__ import annotations

import csv
import io
from typing import BinaryIO

from repro_gate.trace.artifacts.interface import MAX_INPUTS, MAX_NAME, Contents, Unreadable, on_time
from repro_gate.trace.artifacts.tree import Tree, text

MAX_BYTES = 64 * 1024 * 1024
MAX_ROWS = MAX_INPUTS


def read(file: BinaryIO) -> Contents:
    """The cells of a comma-separated file."""
    return _read(file, ",")


def read_tsv(file: BinaryIO) -> Contents:
    """The cells of a tab-separated file."""
    return _read(file, "\t")


def _read(file: BinaryIO, delimiter: str) -> Contents:
    file.seek(0)
    data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise Unreadable(f"it is larger than {MAX_BYTES // 2**20} MiB")
    tree, names = Tree(), []
    try:
        rows = csv.reader(io.StringIO(data.decode("utf-8-sig"), newline=""), delimiter=delimiter, strict=True)
        for number, row in enumerate(rows, 1):
            on_time()
            if number > MAX_ROWS:
                raise Unreadable(f"it has more than {MAX_ROWS:,} rows")
            if number == 1:
                names = _columns(row)
            tree.structure(f"row {number}", str(len(row)))
            for place, cell in enumerate(row):
                tree.add(f"row {number}, column {names[place] if place < len(names) else place + 1}", text(cell, "cell"))
    except UnicodeDecodeError as error:
        raise Unreadable("it is no UTF-8") from error
    except csv.Error as error:
        raise Unreadable(f"it is no valid table ({error})") from error
    return tree.contents()


def _columns(first: list[str]) -> list[str]:
    """Names of the columns, each once: a name that comes again gets its number behind it."""
    if not all(cell.strip() and not _numeric(cell) for cell in first):
        return []
    if any(len(cell) > MAX_NAME // 2 for cell in first):
        raise Unreadable("the name of a column is too long")
    seen: set[str] = set()
    names: list[str] = []
    for place, cell in enumerate(first, 1):
        names.append(cell if cell not in seen else f"{cell} (column {place})")
        seen.add(cell)
    return names


def _numeric(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
