"""Claims about safetensors files."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from repro_gate.compare.artifacts import compare_artifacts
from repro_gate.trace.artifacts.interface import Artifact
from repro_gate.trace.artifacts.read import read_leaves

torch = pytest.importorskip("torch")
safetensors = pytest.importorskip("safetensors.torch")


def forged(path: Path, header: Any, data: bytes = b"", length: int | None = None) -> Artifact:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + data)
    return read_leaves(path)


def test_tensors_and_metadata_are_leaves_with_torchs_types(tmp_path: Path) -> None:
    dtypes = (torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.int64, torch.bool)
    safetensors.save_file({str(dtype): torch.ones(2, 3).to(dtype) for dtype in dtypes}, tmp_path / "a.safetensors", {"format": "pt"})
    artifact = read_leaves(tmp_path / "a.safetensors")
    assert artifact.format == "safetensors", artifact.note
    assert artifact.leaves["__metadata__.format"].value == "pt"
    for dtype in dtypes:
        assert f"torch.{artifact.leaves[str(dtype)].dtype}" == str(dtype)


def test_one_bit_is_named(tmp_path: Path) -> None:
    for name, value in (("a", 0.0), ("b", -0.0)):
        safetensors.save_file({"w": torch.ones(2), "v": torch.tensor([value])}, tmp_path / f"{name}.safetensors")
    found = compare_artifacts(read_leaves(tmp_path / "a.safetensors"), read_leaves(tmp_path / "b.safetensors"), "m")
    assert [(item.name, item.values) for item in found] == [("m: v", ("0.0", "-0.0"))]


def item(begin: int, end: int, shape: list[int], dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def test_a_type_of_tomorrow_is_compared_by_its_bytes(tmp_path: Path) -> None:
    assert forged(tmp_path / "a.safetensors", {"v": item(0, 5, [2], "F20")}, bytes(5)).leaves["v"].dtype == "F20"


@pytest.mark.parametrize(
    ("header", "data", "length"),
    [
        ({"v": item(0, 8, [3])}, bytes(8), None),
        ({"v": item(0, 8, [2])}, bytes(7), None),
        ({"v": item(0, 8, [2])}, bytes(9), None),
        ({"v": item(0, 8, [2]), "w": item(4, 12, [2])}, bytes(12), None),
        ({"v": item(4, 12, [2])}, bytes(12), None),
        ({"v": item(8, 0, [2])}, bytes(8), None),
        ({"v": {"dtype": "F32"}}, b"", None),
        ({"v": item(0, 8, [-2])}, bytes(8), None),
        ({"__metadata__": {"x": 1}}, b"", None),
        ([1], b"", None),
        (b'{"v":1,"v":2}', b"", None),
        (b"[" * 100_000, b"", None),
        ({}, b"", 1 << 63),
        ({}, b"", 100),
        (b"\xff", b"", None),
    ],
)
def test_a_malformed_file_is_opaque(tmp_path: Path, header: Any, data: bytes, length: int | None) -> None:
    assert forged(tmp_path / "a.safetensors", header, data, length).format == "opaque"
