"""Claims about .csv and .tsv files."""

from __future__ import annotations

from pathlib import Path

import pytest

from repro_gate.compare.artifacts import compare_artifacts
from repro_gate.trace.artifacts.interface import Artifact
from repro_gate.trace.artifacts.read import read_leaves


def written(path: Path, content: str | bytes) -> Artifact:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_leaves(path)


def test_a_cell_is_named_by_row_and_column(tmp_path: Path) -> None:
    a = written(tmp_path / "a.csv", "step,loss\n0,1.5\n1,0.5\n")
    b = written(tmp_path / "b.csv", "step,loss\n0,1.5\n1,0.25\n")
    assert [(item.leaf, item.values) for item in compare_artifacts(a, b, "")] == [("row 3, column loss", ("0.5", "0.25"))]


def test_a_file_without_a_header_goes_by_number(tmp_path: Path) -> None:
    assert list(written(tmp_path / "a.tsv", "1\t2\n3\t4\n").leaves)[-1] == "row 2, column 2"


def test_columns_of_one_name_and_cells_too_many_stay_apart(tmp_path: Path) -> None:
    leaves = written(tmp_path / "a.csv", "a,a\n1,2,3\n").leaves
    assert [name for name in leaves if name.startswith("row 2")] == ["row 2, column a", "row 2, column a (column 2)", "row 2, column 3"]


def test_quotes_and_line_ends_do_not_count_but_blanks_do(tmp_path: Path) -> None:
    a = written(tmp_path / "a.csv", 'x,y\n1,"a\nb"\n')
    assert compare_artifacts(a, written(tmp_path / "b.csv", '"x",y\r\n"1","a\nb"\r\n'), "") == ()
    assert compare_artifacts(a, written(tmp_path / "c.csv", 'x,y\n1 ,"a\nb"\n'), "") != ()


@pytest.mark.parametrize("content", ['a,"b', b"\xff\xfe", "a," * 300_000, "\n" * 300_000, "x" * 200_000])
def test_a_file_that_is_malformed_or_above_a_limit_is_opaque(tmp_path: Path, content: str | bytes) -> None:
    assert written(tmp_path / "a.csv", content).format == "opaque"


def test_an_empty_file_has_no_cells(tmp_path: Path) -> None:
    assert written(tmp_path / "a.csv", "").leaves == {}
