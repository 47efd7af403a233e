"""Claims about checkpoints: what `torch.save` writes is told apart to the last bit, and what a stranger wrote runs nothing."""

from __future__ import annotations

import argparse
import io
import math
import os
import pickle
import resource
import struct
import tracemalloc
import zipfile
from collections import OrderedDict, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from repro_gate.compare.artifacts import compare_artifacts
from repro_gate.trace.artifacts.interface import Artifact
from repro_gate.trace.artifacts.read import read_leaves

torch = pytest.importorskip("torch")


def saved(path: Path, value: Any, **options: Any) -> Artifact:
    torch.save(value, path, **options)
    return read_leaves(path)


def forged(path: Path, pickled: bytes, **entries: bytes) -> Artifact:
    """A file like `torch.save`'s, with a pickle of the test's choosing."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickled)
        for name, data in entries.items():
            archive.writestr(f"archive/{name.replace('__', '/')}", data)
    return read_leaves(path)


def float_of(bits: int) -> float:
    return float(struct.unpack("<d", struct.pack("<Q", bits))[0])


def checkpoint() -> dict[str, Any]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 2))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    return {"state_dict": model.state_dict(), "optimizer": optimizer.state_dict(), "history": [{"loss": 0.5}, {"loss": 0.25}], "epoch": 3}


def names(differences: Any) -> list[str]:
    return [difference.name for difference in differences]


def test_leaves_carry_the_names_a_person_knows(tmp_path: Path) -> None:
    artifact = saved(tmp_path / "a.pt", checkpoint())
    assert artifact.format == "torch" and not artifact.note
    assert {"state_dict.0.weight", "optimizer.state.0.exp_avg", "history.1.loss", "epoch"} <= artifact.leaves.keys()
    weight = artifact.leaves["state_dict.0.weight"]
    assert (weight.kind, weight.dtype, weight.shape) == ("tensor", "float32", (3, 4))
    assert artifact.leaves["history.1.loss"].value == "0.25"
    assert artifact.leaves["optimizer.state.0.step"].value == "1.0"


def test_the_same_content_under_another_name_is_equal(tmp_path: Path) -> None:
    a, b = saved(tmp_path / "first.pt", checkpoint()), saved(tmp_path / "second_name.ckpt", checkpoint())
    assert a.digest != b.digest
    assert compare_artifacts(a, b, "x") == ()
    assert a.structure == b.structure


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_every_pickle_protocol_gives_the_same_leaves(tmp_path: Path, protocol: int) -> None:
    value = {**checkpoint(), "scalar": np.float64(0.1), "array": np.arange(6.0).reshape(2, 3), "bytes": b"\x00\xff", "set": {"b", "a"}}
    a, b = saved(tmp_path / "a.pt", value), saved(tmp_path / "b.pt", value, pickle_protocol=protocol)
    assert compare_artifacts(a, b, "x") == ()
    assert b.leaves["scalar"].value == "0.1" and b.leaves["array"].shape == (2, 3)


def test_one_ulp_in_one_weight_is_named(tmp_path: Path) -> None:
    a, value = saved(tmp_path / "a.pt", checkpoint()), checkpoint()
    weight = value["state_dict"]["1.bias"]
    weight[0] = torch.nextafter(weight[0], torch.tensor(math.inf))
    found = compare_artifacts(a, saved(tmp_path / "b.pt", value), "out/a.pt")
    assert names(found) == ["out/a.pt: state_dict.1.bias"]
    assert (found[0].what, found[0].dtype, found[0].shape, found[0].detail) == ("value", "float32", (2,), "")


@pytest.mark.parametrize(
    ("a", "b", "what"),
    [
        (torch.tensor([0.0]), torch.tensor([-0.0]), "value"),
        (torch.tensor(float_of(0x7FF8000000000000)), torch.tensor([0x7FC00001], dtype=torch.int32).view(torch.float32)[0], "value"),
        (torch.tensor([1.0, 2.0]), torch.tensor([2.0, 1.0]), "value"),
        (torch.zeros(2, 3), torch.zeros(3, 2), "shape"),
        (torch.zeros(2), torch.zeros(2, dtype=torch.int32), "dtype"),
        (torch.zeros(2, dtype=torch.float16), torch.zeros(2, dtype=torch.bfloat16), "dtype"),
        (1, 1.0, "dtype"),
        (0.0, -0.0, "value"),
        (True, 1, "dtype"),
        ("1", 1, "kind"),
        (None, "None", "dtype"),
        (b"x", "x", "kind"),
        (0.1, math.nextafter(0.1, 1), "value"),
        (float_of(0x7FF8000000000000), float_of(0x7FF8000000000001), "value"),
        ({"x": 1}, {"y": 1}, "missing"),
        ([1], (1,), "structure"),
        ({0: 1}, {"0": 1}, "structure"),
        ({"a": {"b": 1}}, {"a.b": 1}, "structure"),
        (2**5000, 2**5000 + 1, "value"),
        (torch.float32, torch.float64, "value"),
        (torch.nn.Parameter(torch.ones(1)), torch.ones(1), "structure"),
    ],
)
def test_what_differs_is_seen(tmp_path: Path, a: Any, b: Any, what: str) -> None:
    left, right = saved(tmp_path / "a.pt", {"v": a}), saved(tmp_path / "b.pt", {"v": b})
    assert left.format == right.format == "torch"
    assert what in {difference.what for difference in compare_artifacts(left, right, "x")}
    assert compare_artifacts(left, saved(tmp_path / "c.pt", {"v": a}), "x") == ()


def test_the_order_of_keys_does_not_count(tmp_path: Path) -> None:
    a, b = saved(tmp_path / "a.pt", {"a": 1, "b": 2}), saved(tmp_path / "b.pt", {"b": 2, "a": 1})
    assert compare_artifacts(a, b, "x") == ()


@pytest.mark.parametrize(
    "view",
    [
        lambda t: t.t(),
        lambda t: t[::2, 1::3],
        lambda t: t[:, 0],
        lambda t: t[3:, 2:],
        lambda t: t[0].expand(5, -1),
        lambda t: t.reshape(2, 5, 3, 4).permute(3, 1, 0, 2),
        lambda t: t.reshape(2, 5, 3, 4).to(memory_format=torch.channels_last),
        lambda t: t[:0].t(),
        lambda t: t[2, 3],
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "uint8", "complex128", "int64"])
def test_a_view_is_read_in_logical_order(tmp_path: Path, view: Any, dtype: str) -> None:
    strided = view(torch.arange(120).reshape(10, 12).to(getattr(torch, dtype)))
    dense = strided.clone(memory_format=torch.contiguous_format)
    a, b = saved(tmp_path / "a.pt", {"v": strided}), saved(tmp_path / "b.pt", {"v": dense})
    assert compare_artifacts(a, b, "x") == () and a.format == "torch"


def test_a_large_transposed_tensor_is_read_in_blocks(tmp_path: Path) -> None:
    big = torch.arange(1500 * 1700, dtype=torch.int32).reshape(1500, 1700)
    a, b = saved(tmp_path / "a.pt", {"v": big.t()}), saved(tmp_path / "b.pt", {"v": big.t().contiguous()})
    assert compare_artifacts(a, b, "x") == () and len(a.leaves) == 1


def test_a_big_endian_file_holds_the_same_numbers(tmp_path: Path) -> None:
    value = torch.tensor([1.5, -2.25, 3e10])
    a = saved(tmp_path / "a.pt", {"v": value})
    with zipfile.ZipFile(tmp_path / "a.pt") as source:
        pickled = source.read("a/data.pkl")
    b = forged(tmp_path / "b.pt", pickled, byteorder=b"big", data__0=value.numpy().astype(">f4").tobytes())
    assert b.format == "torch" and compare_artifacts(a, b, "x") == ()


def test_unusual_tensors_are_read(tmp_path: Path) -> None:
    value = {
        "f8": torch.ones(2).to(torch.float8_e4m3fn),
        "c": torch.ones(2, dtype=torch.complex64),
        "conj": torch.ones(2, dtype=torch.complex64).conj(),
        "u16": torch.ones(2).to(torch.uint16),
        "sparse": torch.eye(2).to_sparse(),
        "meta": torch.ones(2, device="meta"),
        "storage": torch.ones(3).untyped_storage(),
        "empty": torch.empty(0, 3),
        "bool": torch.tensor(True),
    }
    artifact = saved(tmp_path / "a.pt", value)
    assert artifact.format == "torch", artifact.note
    assert [artifact.leaves[name].dtype for name in ("f8", "c", "conj", "u16", "storage")] == [
        "float8_e4m3fn",
        "complex64",
        "complex64 (conj)",
        "uint16",
        "uint8",
    ]
    assert artifact.leaves["bool"].value == "True" and artifact.leaves["empty"].shape == (0, 3)


def test_objects_are_shown_by_class_and_state_without_being_made(tmp_path: Path) -> None:
    value = {
        "args": argparse.Namespace(lr=0.1),
        "module": torch.nn.Linear(2, 2),
        "counts": defaultdict(int, a=1),
        "path": Path("x/y"),
        "order": OrderedDict(a=1),
        "device": torch.device("cpu"),
        "size": torch.Size([2, 3]),
        "class": torch.optim.Adam,
    }
    leaves = saved(tmp_path / "a.pt", value).leaves
    assert leaves["args"].value == "argparse.Namespace" and leaves["args.lr"].value == "0.1"
    assert leaves["module._parameters.weight"].shape == (2, 2)
    assert leaves["counts.a"].value == leaves["order.a"].value == "1"
    assert leaves["device"].value == "cpu" and leaves["size.1"].value == "3"
    assert leaves["class"].value == "torch.optim.adam.Adam"


def test_tied_and_cyclic_values_are_read(tmp_path: Path) -> None:
    shared = torch.ones(3)
    loop: list[Any] = [1]
    loop.append(loop)
    leaves = saved(tmp_path / "a.pt", {"a": shared, "b": shared, "loop": loop}).leaves
    assert leaves["a"] == leaves["b"]
    assert leaves["loop.1"].value == "loop"


class Malicious:
    def __reduce__(self) -> Any:
        return os.system, ("touch ran",)


class MaliciousState:
    def __setstate__(self, state: Any) -> None:
        os.system("touch ran")

    def __getstate__(self) -> Any:
        return {"x": 1}


def test_a_pickle_that_would_run_a_command_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    artifact = saved(tmp_path / "a.pt", {"v": Malicious(), "w": MaliciousState()})
    assert artifact.format == "torch" and artifact.leaves["v"].value in ("posix.system", "nt.system")
    assert artifact.leaves["v.args.0"].value == "touch ran"
    for pickled in (
        b"cos\nsystem\n(S'touch ran'\ntR.",
        b"(S'touch ran'\nios\nsystem\n.",
        b"(cos\nsystem\nS'touch ran'\no.",
        b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x09touch ran\x85R.",
        b'c__builtin__\neval\n(S\'open("ran","w")\'\ntR.',
    ):
        assert forged(tmp_path / "b.pt", pickled).format == "torch"
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "pickled",
    [
        b"\x80\x04\x8e" + struct.pack("<Q", 1 << 60) + b"x.",  # BINBYTES8 of an exabyte
        b"\x80\x02X" + struct.pack("<I", 0xFFFFFFF0) + b"x.",
        b"\x80\x02\x8b" + struct.pack("<i", 0x7FFFFFFF) + b"x.",  # LONG4
        b"\x80\x02" + b"]" * 100_000 + b"a" * 99_999 + b".",
        b"\x80\x02K\x01" + b"\x85" * 100_000 + b"}" + b"\x86" + b".",
        b"\x80\x02}" + b"(" * 500_000 + b"R.",
        b"L" + b"9" * 1_000_000 + b"L\n.",
        b"\x80\x02\x82\x01.",
        b"\x80\x02N",
        b"",
        b".",
        b"R.",
        b"\x80\x02]K\x01b.",
        b"\x80\x02}K\x01a.",
        b"\x80\x02Nh\x07.",
        b"\x80\x02]q\x00"
        + b"".join(b"]q" + bytes([n]) + b"h" + bytes([n - 1]) + b"ah" + bytes([n - 1]) + b"a" for n in range(1, 60))
        + b".",
    ],
)
def test_pickle_bombs_end_soon_as_one_opaque_leaf(tmp_path: Path, pickled: bytes) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    artifact = forged(tmp_path / "a.pt", pickled)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300 * 1024  # KiB
    assert artifact.format == "opaque" and artifact.note.startswith("compared as a whole: ")
    assert list(artifact.leaves) == ["(file)"]


def test_a_huge_memo_index_costs_nothing(tmp_path: Path) -> None:
    artifact = forged(tmp_path / "a.pt", b"\x80\x02K\x05r" + struct.pack("<I", 0xFFFFFFFF) + b".")
    assert artifact.format == "torch" and artifact.leaves["(root)"].value == "5"


def tensor_pickle(shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0, storage: str = "FloatStorage") -> bytes:
    """A pickle of one tensor with a layout of the test's choosing, over storage 0."""
    stand_in = object()

    class Pickler(pickle.Pickler):
        def persistent_id(self, obj: Any) -> Any:
            return ("storage", getattr(torch, storage), "0", "cpu", 4) if obj is stand_in else None

    class Tensor:
        def __reduce__(self) -> Any:
            return torch._utils._rebuild_tensor_v2, (stand_in, offset, shape, strides, False, OrderedDict())

    out = io.BytesIO()
    Pickler(out, protocol=2).dump({"v": Tensor()})
    return out.getvalue()


@pytest.mark.parametrize(
    ("shape", "strides", "offset"),
    [
        ((5,), (1,), 0),
        ((2,), (1,), 3),
        ((2, 2), (3, 1), 0),
        ((1 << 62,), (1 << 62,), 0),
        ((1 << 40,), (0,), 0),
        ((2,) * 30, (0,) * 30, 0),
        ((4,), (1, 1), 0),
        ((-1,), (1,), 0),
        ((2,), (-1,), 1),
        ((1,) * 65, (1,) * 65, 0),
    ],
)
def test_a_tensor_beyond_its_storage_or_far_larger_than_the_file_is_opaque(
    tmp_path: Path, shape: tuple[int, ...], strides: tuple[int, ...], offset: int
) -> None:
    assert forged(tmp_path / "ok.pt", tensor_pickle((2, 2), (1, 2)), data__0=bytes(16)).format == "torch"
    assert forged(tmp_path / "a.pt", tensor_pickle(shape, strides, offset), data__0=bytes(16)).format == "opaque"


def test_a_type_of_tomorrow_is_compared_by_its_storage(tmp_path: Path) -> None:
    pickled = tensor_pickle((2, 2), (2, 1)).replace(b"FloatStorage", b"Float3Storage")
    a, b = forged(tmp_path / "a.pt", pickled, data__0=bytes(6)), forged(tmp_path / "b.pt", pickled, data__0=bytes(5) + b"\x01")
    assert a.format == "torch" and a.leaves["v"].dtype == "Float3Storage"
    assert names(compare_artifacts(a, b, "")) == ["v"]


def test_everything_in_the_zip_is_compared(tmp_path: Path) -> None:
    a = forged(tmp_path / "a.pt", b"\x80\x02K\x01.", code__model_py=b"x = 1", data__7=b"abcd")
    b = forged(tmp_path / "b.pt", b"\x80\x02K\x01.", code__model_py=b"x = 2", data__7=b"abcd", version=b"3")
    assert names(compare_artifacts(a, b, "")) == ["zip entry code/model_py"]


def test_duplicate_entries_and_compressed_entries_are_opaque(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.pt", "w") as archive:
        archive.writestr("a/data.pkl", b"\x80\x02K\x01.")
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("a/data.pkl", b"\x80\x02K\x02.")
    with zipfile.ZipFile(tmp_path / "b.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/data.pkl", b"\x80\x02K\x01.")
        archive.writestr("a/data/0", bytes(10_000_000))
    assert "same name" in read_leaves(tmp_path / "a.pt").note
    assert "compressed" in read_leaves(tmp_path / "b.pt").note


def test_a_legacy_torch_file_is_opaque_and_says_so(tmp_path: Path) -> None:
    artifact = saved(tmp_path / "a.pt", {"v": 1}, _use_new_zipfile_serialization=False)
    assert artifact.format == "opaque" and "legacy" in artifact.note


@pytest.mark.parametrize("cut", [1, 30, 200, 700])
def test_a_truncated_checkpoint_is_opaque(tmp_path: Path, cut: int) -> None:
    saved(tmp_path / "a.pt", checkpoint())
    data = (tmp_path / "a.pt").read_bytes()
    (tmp_path / "b.pt").write_bytes(data[:-cut])
    assert read_leaves(tmp_path / "b.pt").format == "opaque"


def test_a_large_checkpoint_takes_flat_memory(tmp_path: Path) -> None:
    torch.save({"v": torch.zeros(64 * 2**20 // 4), "w": torch.zeros(4096, 4096).t()}, tmp_path / "a.pt")
    tracemalloc.start()
    artifact = read_leaves(tmp_path / "a.pt")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert artifact.format == "torch" and peak < 24 * 2**20
