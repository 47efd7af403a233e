"""Claims about .npy and .npz files."""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path
from typing import Any

import pytest

from repro_gate.compare.artifacts import compare_artifacts
from repro_gate.trace.artifacts.interface import Artifact
from repro_gate.trace.artifacts.read import read_leaves

np = pytest.importorskip("numpy")


def npz(path: Path, compressed: bool = False, **arrays: Any) -> Artifact:
    (np.savez_compressed if compressed else np.savez)(path, **arrays)
    return read_leaves(path)


def npy(path: Path, header: bytes, data: bytes = b"") -> Artifact:
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data)
    return read_leaves(path)


def test_arrays_are_leaves_by_name(tmp_path: Path) -> None:
    artifact = npz(tmp_path / "a.npz", w=np.zeros((2, 3), np.float32), step=np.int64(7), name=np.array("x"))
    assert artifact.format == "npz"
    assert (artifact.leaves["w"].dtype, artifact.leaves["w"].shape) == ("float32", (2, 3))
    assert artifact.leaves["step"].value == "7"


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6.0).reshape(2, 3),
        np.arange(6, dtype=">i4"),
        np.array(["ab", "c"]),
        np.array([b"ab"]),
        np.array(["2020-01-01"], "M8[D]"),
        np.array(1.5),
        np.zeros((0, 3)),
        np.array([True]),
        np.array([1 + 2j]),
        np.array([1.0], np.float16),
        np.zeros(2, [("a", "f4"), ("b", "i8")]),
    ],
)
def test_compression_and_memory_order_do_not_count(tmp_path: Path, array: Any) -> None:
    a = npz(tmp_path / "a.npz", v=array)
    assert a.format == "npz", a.note
    assert compare_artifacts(a, npz(tmp_path / "b.npz", compressed=True, v=array), "") == ()
    if array.dtype.names is None and array.ndim:
        assert compare_artifacts(a, npz(tmp_path / "c.npz", v=np.asfortranarray(array)), "") == ()
        assert compare_artifacts(a, npz(tmp_path / "d.npz", compressed=True, v=np.asfortranarray(array)), "") == ()


def test_one_bit_and_one_type_are_seen(tmp_path: Path) -> None:
    a = npz(tmp_path / "a.npz", v=np.array([0.0]), w=np.arange(4))
    b = npz(tmp_path / "b.npz", v=np.array([-0.0]), w=np.arange(4, dtype=np.int32))
    assert [(item.leaf, item.what) for item in compare_artifacts(a, b, "")] == [("v", "value"), ("w", "dtype")]


def test_an_object_array_is_never_unpickled(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([{"x": 1}, None], dtype=object), allow_pickle=True)
    leaf = read_leaves(tmp_path / "a.npy").leaves["array"]
    assert (leaf.kind, leaf.dtype, leaf.shape) == ("bytes", "object", (2,))


@pytest.mark.parametrize(
    ("header", "data"),
    [
        (b"{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }", bytes(11)),
        (b"{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }", bytes(13)),
        (b"{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }", bytes(4)),
        (b"{'descr': '<f4', 'fortran_order': False, 'shape': (1<<62,), }", b""),
        (b"{'descr': '<f4', 'fortran_order': True, 'shape': (2305843009213693952, 4), }", b""),
        (b"__import__('os').system('touch ran')", b""),
        (b"(" * 9000, b""),
        (b"-" * 9000 + b"1", b""),
        (b"[1,2]", b""),
        (b"\xff\xfe", b""),
        (b"{'descr': '<f4', 'fortran_order': 1, 'shape': 3}", b""),
    ],
)
def test_a_malformed_header_makes_the_file_opaque(tmp_path: Path, header: bytes, data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert npy(tmp_path / "a.npy", header, data).format == "opaque"
    assert not (tmp_path / "ran").exists()


def test_a_zip_bomb_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("repro_gate.trace.artifacts.zip_directory.FREE_INFLATION", 0)
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive, archive.open("v.npy", "w") as entry:
        for _ in range(20):
            entry.write(bytes(2**20))
    artifact = read_leaves(tmp_path / "a.npz")
    assert artifact.format == "opaque" and "far more" in artifact.note
