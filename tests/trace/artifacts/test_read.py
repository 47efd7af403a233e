"""Claims about reading any file at all: always an Artifact, never an exception, nothing but regular files opened."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from repro_gate.compare.artifacts import compare_artifacts
from repro_gate.trace.artifacts.interface import Unreadable
from repro_gate.trace.artifacts.pickle_tree import load
from repro_gate.trace.artifacts.read import read_leaves
from repro_gate.trace.artifacts.strided import Layout, gather

SUFFIXES = (".pt", ".bin", ".safetensors", ".npz", ".npy", ".json", ".jsonl", ".csv", ".tsv", ".txt", "")
STARTS = (b"", b"PK\x03\x04", b"\x93NUMPY\x01\x00v\x00{'descr'", b"\x10\0\0\0\0\0\0\0{", b"\x80\x02", b'{"a":[', b"a,b\n")
OPCODES = [bytes([code]) for code in range(256)]
RELAXED = settings(max_examples=150, deadline=2000, suppress_health_check=[HealthCheck.function_scoped_fixture])


@RELAXED
@given(st.binary(max_size=600), st.sampled_from(STARTS), st.sampled_from(SUFFIXES))
def test_any_bytes_are_an_artifact(tmp_path: Path, data: bytes, start: bytes, suffix: str) -> None:
    path = tmp_path / f"file{suffix}"
    path.write_bytes(start + data)
    artifact = read_leaves(path)
    assert artifact.format != "refused" and artifact.digest == hashlib.sha256(start + data).hexdigest()
    assert compare_artifacts(artifact, read_leaves(path), "x") == ()


@RELAXED
@given(st.data(), st.binary(max_size=40))
def test_a_damaged_checkpoint_is_an_artifact(tmp_path: Path, data: st.DataObject, patch: bytes) -> None:
    torch = pytest.importorskip("torch")
    whole = tmp_path / "whole.pt"
    if not whole.exists():
        torch.save({"w": torch.ones(3, 2).t(), "o": {0: [1.5, "x"]}}, whole)
    content = bytearray(whole.read_bytes())
    place = data.draw(st.integers(0, len(content)))
    content[place : place + len(patch)] = patch
    (tmp_path / "a.pt").write_bytes(content)
    begun = time.monotonic()
    assert read_leaves(tmp_path / "a.pt").format in ("torch", "opaque")
    assert time.monotonic() - begun < 2


@settings(max_examples=300, deadline=2000)
@given(st.lists(st.sampled_from([*OPCODES, b"K\x01", b"]", b"}", b"(", b"q\x00", b"h\x00", b"X\x01\0\0\0a"]), max_size=60))
def test_any_opcodes_are_a_tree_or_refused(pieces: list[bytes]) -> None:
    with contextlib.suppress(Unreadable):
        load(b"\x80\x02" + b"".join(pieces) + b".")


@settings(max_examples=200, deadline=2000)
@given(st.data())
def test_gathering_is_what_numpy_does(data: st.DataObject) -> None:
    np = pytest.importorskip("numpy")
    itemsize = data.draw(st.sampled_from([1, 2, 3, 4, 8, 12, 16]))
    shape = data.draw(st.sampled_from([(240,), (12, 20), (4, 3, 20), (2, 6, 4, 5)]))
    base = np.frombuffer(os.urandom(itemsize * 240), f"V{itemsize}").reshape(shape)
    view = base.transpose(data.draw(st.permutations(range(base.ndim))))
    view = view[tuple(slice(data.draw(st.integers(0, 2)), None, data.draw(st.integers(1, 3))) for _ in view.shape)]
    if data.draw(st.booleans()):
        view = np.broadcast_to(view, (3, *view.shape))
    offset = (view.__array_interface__["data"][0] - base.__array_interface__["data"][0]) // itemsize
    layout = Layout(view.shape, tuple(step // itemsize for step in view.strides), itemsize, offset)
    assert b"".join(gather(memoryview(base.tobytes()), layout)) == view.tobytes()


def test_links_pipes_and_devices_are_refused_without_being_opened(tmp_path: Path) -> None:
    (tmp_path / "real.json").write_text("1")
    (tmp_path / "link.json").symlink_to("real.json")
    os.mkfifo(tmp_path / "pipe.json")
    for name, kind in (("link.json", "a link"), ("pipe.json", "a pipe"), (".", "a folder"), ("none.json", "No such file")):
        artifact = read_leaves(tmp_path / name)
        assert artifact.format == "refused" and kind in artifact.note and not artifact.leaves
    assert read_leaves(Path("/dev/zero")).format == "refused"


def test_what_was_refused_is_never_equal(tmp_path: Path) -> None:
    refused = read_leaves(tmp_path / "none.json")
    assert [item.what for item in compare_artifacts(refused, refused, "x")] == ["unread"]


def test_any_other_file_is_one_leaf(tmp_path: Path) -> None:
    for name, data in (("a.log", b"x"), ("b.log", b"y")):
        (tmp_path / name).write_bytes(data)
    a, b = read_leaves(tmp_path / "a.log"), read_leaves(tmp_path / "b.log")
    assert a.format == "opaque" and not a.note
    assert [(item.name, item.what) for item in compare_artifacts(a, b, "run.log")] == [("run.log: (file)", "value")]


def test_a_file_that_only_one_side_could_be_read_is_said(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("1")
    (tmp_path / "b.json").write_text("{")
    found = compare_artifacts(read_leaves(tmp_path / "a.json"), read_leaves(tmp_path / "b.json"), "m.json")
    assert [(item.what, item.values) for item in found] == [("format", ("json", "opaque"))]
    assert "no valid JSON" in found[0].detail
