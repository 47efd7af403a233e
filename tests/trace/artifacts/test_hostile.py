"""Claims about files that are made to break the reading or to make it last: always an artifact, within the time."""

from __future__ import annotations

import io
import os
import pickle
import struct
import time
import zipfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from repro_gate.compare.artifacts import compare_artifacts
from repro_gate.runs.artifacts import collect
from repro_gate.trace.artifacts.interface import Artifact
from repro_gate.trace.artifacts.read import read_leaves

MANY = 200_000


def zipped(path: Path, **entries: bytes) -> Artifact:
    """A zip file; `__` in a name stands for a slash, `EMPTY` for no name at all."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in entries.items():
            archive.writestr(zipfile.ZipInfo("" if name == "EMPTY" else name.replace("__", "/")), data)
    return read_leaves(path)


def checkpoint(path: Path, pickled: bytes) -> Artifact:
    return zipped(path, **{"archive__data.pkl": pickled})


def npy(shape: tuple[int, ...], descr: str = "<f4") -> bytes:
    header = repr({"descr": descr, "fortran_order": False, "shape": shape}).encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header


def references(prefix: bytes, count: int) -> bytes:
    """A pickled list of `count` references to what `prefix` leaves on the stack."""
    return b"\x80\x02" + prefix + b"q\x000](" + b"h\x00" * count + b"e."


@pytest.mark.parametrize("suffix", [".npz", ".pt"])
def test_an_entry_without_a_name_is_an_artifact(tmp_path: Path, suffix: str) -> None:
    found = zipped(tmp_path / f"a{suffix}", EMPTY=b"x", archive__w=b"y")
    assert found.format in ("npz", "opaque") and found.digest
    assert compare_artifacts(found, found, "x") == ()


def test_lone_surrogates_in_names_become_printable(tmp_path: Path) -> None:
    text = "w\udcff".encode("utf-8", "surrogatepass")
    pickled = b"\x80\x02}X" + struct.pack("<I", len(text)) + text + b"K\x01s."
    found = checkpoint(tmp_path / "a.pt", pickled)
    assert [name.encode() for name in found.leaves] == [b"w\\udcff"]
    header = b'{"w\\udcff":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
    (tmp_path / "a.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + b"\0\0\0\0")
    assert [name.encode() for name in read_leaves(tmp_path / "a.safetensors").leaves] == [b"w\\udcff"]


def test_a_file_name_that_is_no_utf_8_becomes_printable(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"\xff.bin")).write_bytes(b"1")
    found, _ = collect(tmp_path, ["*.bin"], tmp_path / "copies")
    assert [item.name.encode() for item in found] == [b"\\udcff.bin"] and found[0].path.read_bytes() == b"1"


def test_a_shape_above_2_to_the_53_is_read_as_bytes(tmp_path: Path) -> None:
    for shape in ((2**53, 0), (0, 2**60)):
        (tmp_path / "a.npy").write_bytes(npy(shape))
        assert read_leaves(tmp_path / "a.npy").format == "opaque"
        header = b'{"w":{"dtype":"F32","shape":%b,"data_offsets":[0,0]}}' % repr(list(shape)).encode()
        (tmp_path / "a.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
        assert read_leaves(tmp_path / "a.safetensors").format == "opaque"
        made = b"cnumpy.core.multiarray\n_reconstruct\nN\x85R(K\x01" + pickle.dumps(shape, 2)[2:-1]
        made += b"cnumpy\ndtype\nX\x02\0\0\0f4\x85R(K\x03X\x01\0\0\0<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb\x89B\0\0\0\0tb"
        leaves = checkpoint(tmp_path / "a.pt", b"\x80\x03" + made + b".").leaves
        assert all(max(leaf.shape or (0,)) < 2**53 for leaf in leaves.values())


@pytest.mark.parametrize(
    "shared",
    [
        b"X" + struct.pack("<I", 2**20) + b"a" * 2**20,
        b"B" + struct.pack("<I", 2**20) + b"a" * 2**20,
        b"\x8b" + struct.pack("<I", 2**17) + b"\x01" * 2**17,
        b"c_codecs\nencode\nX" + struct.pack("<I", 2**20) + b"a" * 2**20 + b"X\x06\0\0\0latin1\x86R",
    ],
    ids=["text", "bytes", "integer", "encoded"],
)
def test_many_references_to_one_value_take_as_long_as_one(tmp_path: Path, shared: bytes) -> None:
    begun = time.monotonic()
    found = checkpoint(tmp_path / "a.pt", references(shared, MANY))
    assert found.format == "torch" and len(found.leaves) >= MANY
    assert time.monotonic() - begun < 30
    begun = time.monotonic()
    as_set = b"\x80\x04(" + shared + b"\x940" + b"h\x00" * MANY + b"\x91."
    assert checkpoint(tmp_path / "b.pt", as_set).digest and time.monotonic() - begun < 30


def test_past_the_deadline_a_file_is_compared_by_its_bytes_and_says_so(tmp_path: Path) -> None:
    data = [b"a" * 2**18] * 3000  # values of their own each: nothing to remember
    pickled = b"\x80\x02](" + b"".join(b"B" + struct.pack("<I", 2**14) + bytes([n % 256]) * 2**14 for n in range(3000)) + b"e."
    path = tmp_path / "a.pt"
    assert checkpoint(path, pickled).format == "torch" and data
    late = read_leaves(path, 0.0)
    assert late.format == "opaque" and "time" in late.note and late.digest
    assert compare_artifacts(late, read_leaves(path), "x") == ()
    for name, content in (("a.json", b"[1, 2]"), ("a.csv", b"a,b\n1,2\n"), ("a.npy", npy((1,)) + b"\0\0\0\0")):
        (tmp_path / name).write_bytes(content)
        assert "time" in read_leaves(tmp_path / name, 0.0).note and not read_leaves(tmp_path / name).note, name


@pytest.mark.parametrize("seconds", [0.3, 1.0])
def test_the_deadline_holds_whatever_the_file_is_made_of(tmp_path: Path, seconds: float) -> None:
    texts = b"".join(b"X" + struct.pack("<I", 2**18) + bytes([65 + n]) * 2**18 + b"q" + bytes([n]) + b"0" for n in range(20))
    nested = (
        b"](" + b"h\x00h\x01" * 50 + b"eq\x20" + b"".join(b"](" + bytes([104, 31 + n]) * 50 + b"eq" + bytes([32 + n]) for n in range(1, 20))
    )
    keys = b"}(" + b"".join(b"h" + bytes([n % 20]) + b"K\x01" for n in range(MANY)) + b"u"
    arrays = b"](" + b"cnumpy.core.numeric\n_frombuffer\n(h\x00X\x02\0\0\0u1J\x00\x00\x04\x00\x85X\x01\0\0\0CtR" * 50_000 + b"e"
    for number, body in enumerate((nested, keys, arrays, b"](" + b"(h\x00h\x01h\x02t" * 100_000 + b"e")):
        begun = time.monotonic()
        path = tmp_path / f"{number}.pt"
        checkpoint(path, b"\x80\x02" + texts + body + b".")
        begun = time.monotonic()
        assert read_leaves(path, seconds).digest
        assert time.monotonic() - begun < seconds + 5, number


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_zip_of_anything_is_an_artifact(tmp_path: Path, data: st.DataObject) -> None:
    names = st.text(st.characters(), max_size=8) | st.sampled_from(
        ["", "/", "archive/data.pkl", "a.npy", "archive/byteorder", "archive/data/0"]
    )
    contents = st.binary(max_size=80) | st.sampled_from(
        [npy((2**60,)), npy((1, 0), "O"), b"\x80\x02}.", b"\x80\x02N.", b"\x80\x02]q\x00h\x00a."]
    )
    entries = data.draw(st.dictionaries(names, contents, max_size=4))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in entries.items():
            entry = zipfile.ZipInfo(name)  # which cuts a name at its first NUL
            if entry.filename in archive.namelist():
                continue
            try:
                archive.writestr(entry, content)
            except (UnicodeEncodeError, ValueError):
                return
    for suffix in (".npz", ".pt"):
        path = tmp_path / f"a{suffix}"
        path.write_bytes(buffer.getvalue())
        begun = time.monotonic()
        artifact = read_leaves(path)
        assert artifact.format != "refused" and artifact.digest
        for name, leaf in artifact.leaves.items():
            name.encode()
            (leaf.dtype or "").encode()
            assert all(size < 2**53 for size in leaf.shape or ())
        assert time.monotonic() - begun < 5
