"""What a file holds is told apart to the last bit, and what untrusted code wrote runs nothing."""

from __future__ import annotations

import argparse
import enum
import json
import math
import os
import pickle
import struct
import warnings
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from repro_gate.compare.artifacts import Artifact
from tests.support.artifacts import differences, distances, read_files, what

torch = pytest.importorskip("torch")


def float_of(bits: int) -> float:
    return float(struct.unpack("<d", struct.pack("<Q", bits))[0])


def checkpoint() -> dict[str, Any]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 2))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    return {
        "state_dict": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "history": [{"loss": 0.5}, {"loss": 0.25}],
        "epoch": 3,
    }


BASE = torch.arange(120).reshape(10, 12)
VIEWS = (
    ("transposed", BASE.to(torch.bfloat16).t()),
    ("strided", BASE.to(torch.complex64)[::2, 1::3]),
    ("expanded", BASE.to(torch.float8_e4m3fn)[0].expand(5, -1)),
    ("channels-last", BASE.float().reshape(2, 5, 3, 4).to(memory_format=torch.channels_last)),
    ("empty", BASE[:0].t()),
    ("element", BASE.bool()[2, 3]),
)
Files = dict[str, Artifact]
Pairs = dict[str, tuple[Artifact, Artifact]]
# name -> two values, and what tells them apart; no `what`: they are the same
VALUES: dict[str, tuple[Any, Any, str]] = {
    "zero": (torch.tensor([0.0]), torch.tensor([-0.0]), "value"),
    "shape": (torch.zeros(2, 3), torch.zeros(3, 2), "shape"),
    "dtype": (torch.zeros(2), torch.zeros(2, dtype=torch.int32), "dtype"),
    "int and float": (1, 1.0, "dtype"),
    "truth": (True, 1, "dtype"),
    "text": ("1", 1, "kind"),
    "nothing": (None, "None", "dtype"),
    "ulp": (0.1, math.nextafter(0.1, 1), "value"),
    "payload": (float_of(0x7FF8000000000000), float_of(0x7FF8000000000001), "value"),
    "name": ({"x": 1}, {"y": 1}, "missing"),
    "list and tuple": ([1], (1,), "structure"),
    "key types": ({0: 1}, {"0": 1}, "structure"),
    "nesting": ({"a": {"b": 1}}, {"a.b": 1}, "structure"),
    "torch dtypes": (torch.float32, torch.float64, "value"),
    "parameter": (torch.nn.Parameter(torch.ones(1)), torch.ones(1), "structure"),
    "sparse": (torch.eye(2).to_sparse(), torch.diag(torch.tensor([1.0, 2.0])).to_sparse(), "value"),
    "numpy array": (np.arange(6.0).reshape(2, 3), np.arange(6.0).reshape(3, 2), "shape"),
    "ordered dict": (OrderedDict(a=1), {"a": 1}, "structure"),
    "order of keys": ({"a": 1, "b": 2}, {"b": 2, "a": 1}, ""),
    "order of a set": ({1, 2, 9}, {9, 2, 1}, ""),
    **{name: (view, view.clone(memory_format=torch.contiguous_format), "") for name, view in VIEWS},
}


@pytest.fixture(scope="module")
def values(tmp_path_factory: pytest.TempPathFactory) -> Pairs:
    """Every pair of `VALUES` saved and read, all in one start."""
    folder = tmp_path_factory.mktemp("values")
    for number, (a, b, _) in enumerate(VALUES.values()):
        torch.save({"v": a}, folder / f"{number}a.pt")
        torch.save({"v": b}, folder / f"{number}b.pt")
    found = read_files(
        *(folder / f"{number}{side}.pt" for number in range(len(VALUES)) for side in "ab")
    )
    return {name: (found[2 * number], found[2 * number + 1]) for number, name in enumerate(VALUES)}


@pytest.mark.parametrize("name", VALUES)
def test_what_differs_is_seen(values: Pairs, name: str) -> None:
    a, b = values[name]
    assert a.format == b.format == "torch", a.note
    found = differences(a, b)
    assert {what(item) for item in found} == ({VALUES[name][2]} if VALUES[name][2] else set())
    if name == "payload":
        assert [*map(str, found[0].values or ())][1] == "nan (0x7ff8000000000001)"


class Malicious:
    """Makes a file `ran` in a folder as it is unpickled, wherever that happens."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.folder}/ran",)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """Checkpoints as torch, numpy and their friends write them, and hostile ones, read in one
    start, by name."""
    folder = tmp_path_factory.mktemp("files")
    hostile = Malicious(folder)
    shared, loop, nudged = torch.ones(3), list[Any]([1]), checkpoint()
    loop.append(loop)
    bias = nudged["state_dict"]["1.bias"]
    bias[0] = torch.nextafter(bias[0], torch.tensor(math.inf))
    for name, value, options in (
        ("plain.pt", checkpoint(), {}),
        ("same.ckpt", checkpoint(), {}),
        ("nudged.bin", nudged, {}),
        ("legacy.pth", checkpoint(), {"_use_new_zipfile_serialization": False}),
        ("tied.pt", {"a": shared, "b": shared, "e": {}}, {}),
        ("loop.pt", loop, {}),
        ("module.pt", {"args": argparse.Namespace(lr=0.1)}, {}),
        ("malicious.pt", {"v": hostile}, {}),
        ("malicious-legacy.pt", {"v": hostile}, {"_use_new_zipfile_serialization": False}),
        ("surrogate.pt", {"w\udcff": 1}, {}),
        ("expanded.pt", {f"v{n}": torch.ones(1).expand(2**24 - n) for n in range(3)}, {}),
        ("vast.pt", {"v": torch.ones(1).expand(2**40)}, {}),
    ):
        torch.save(value, folder / name, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), folder / "script.pt")
    (folder / "empty.pt").write_bytes(b"")
    (folder / "pickle.pt").write_bytes(pickle.dumps(hostile))
    (folder / "cut.pt").write_bytes((folder / "plain.pt").read_bytes()[:700])
    (folder / "bomb.pt").write_bytes(pickle.dumps("x")[:2] + b"]" * 100_000 + b"a" * 99_999 + b".")
    deep: Any = 1
    for _ in range(150):
        deep = [deep]
    torch.save(deep, folder / "deep.pt")
    zeros, others = np.zeros((2, 3), np.float32), {"o": np.array([{}], object)}
    np.savez(folder / "a.npz", w=zeros, step=np.int64(7), **others)
    np.savez_compressed(folder / "b.npz", w=np.asfortranarray(zeros), step=np.int64(7), **others)
    np.savez(folder / "c.npz", w=-zeros, step=np.int32(7), **others)
    np.save(folder / "big-endian.npy", np.arange(3, dtype=">i4"))
    np.save(folder / "record.npy", np.zeros(2, [("a", "f4"), ("b", "i8")]))
    np.save(folder / "object.npy", np.array([hostile], object), allow_pickle=True)
    (folder / "wrong.npy").write_bytes(b"\x93NUMPY\x01\x00\x10\x00__import__('os')")
    # a header that asks for forty gigabytes, and a tensor that is one number ten million times
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (10000000000,), }"
    head = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little")
    (folder / "asks.npy").write_bytes(head + header)
    torch.save({"v": torch.ones(1).expand(10**7, 1)}, folder / "asks-little.pt")
    with (
        zipfile.ZipFile(folder / "bomb.npz", "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("v.npy", "w") as entry,
    ):
        for _ in range(80):
            entry.write(bytes(2**20))
    with zipfile.ZipFile(folder / "twice.npz", "w") as archive:
        archive.writestr("v.npy", (folder / "record.npy").read_bytes())
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("v.npy", (folder / "record.npy").read_bytes())
    for name in ("nameless.npz", "nameless.pt"):
        with zipfile.ZipFile(folder / name, "w") as archive:
            archive.writestr(zipfile.ZipInfo(""), b"x")
    paths = sorted(folder.iterdir())
    found = dict(zip((path.name for path in paths), read_files(*paths), strict=True))
    assert not (folder / "ran").exists()
    return found


def test_leaves_have_known_names_and_an_ulp_is_named(files: Files) -> None:
    plain, leaves = files["plain.pt"], files["plain.pt"].leaves
    assert plain.format == "torch" and not plain.note
    assert {"optimizer.state.0.exp_avg", "epoch"} <= leaves.keys()
    weight = leaves["state_dict.0.weight"]
    assert (weight.kind, weight.dtype, weight.shape) == ("tensor", "float32", (3, 4))
    assert leaves["history.1.loss"].value == "0.25"
    assert leaves["optimizer.state.0.step"].value == "1.0"
    for other in ("same.ckpt", "legacy.pth"):
        assert files[other].digest != plain.digest and differences(plain, files[other]) == (), other
    (found,) = differences(plain, files["nudged.bin"])
    assert (found.name, what(found)) == ("state_dict.1.bias", "value")
    assert (found.dtype, found.shape, found.detail) == ("float32", (2,), "")
    leaves = files["tied.pt"].leaves
    assert leaves["a"] == leaves["b"]
    # some torch versions refuse such a name
    assert [*files["surrogate.pt"].leaves] in (["w\\udcff"], ["(file)"])


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("malicious.pt", "without executing it (it names posix.system)"),
        ("malicious-legacy.pt", "without executing it"),
        ("module.pt", "argparse.Namespace"),
        ("script.pt", "TorchScript"),
        ("deep.pt", "nested deeper than 100"),
        ("loop.pt", "nested deeper than 100"),
        ("vast.pt", "far larger"),
        ("expanded.pt", "far larger"),
        ("bomb.npz", "far larger"),
        ("twice.npz", "two of its entries have the same name"),
        *((name, "") for name in ("pickle.pt", "object.npy", "empty.pt", "cut.pt")),
        *((name, "") for name in ("bomb.pt", "wrong.npy", "nameless.pt", "asks.npy")),
    ],
)
def test_what_is_refused_runs_nothing(files: Files, name: str, why: str) -> None:
    artifact = files[name]
    assert artifact.format == "opaque" and list(artifact.leaves) == ["(file)"]
    assert artifact.leaves["(file)"].digest == artifact.digest
    assert artifact.note.startswith("compared as a whole: ") and why in artifact.note


def test_arrays_are_compared_one_by_one(files: Files) -> None:
    a, b, c = (files[f"{name}.npz"] for name in "abc")
    assert (a.leaves["w"].dtype, a.leaves["w"].shape) == ("float32", (2, 3))
    assert a.leaves["step"].value == "7" and a.leaves["o.npy"].kind == "bytes"
    assert differences(a, b) == ()
    found = [(item.name, what(item)) for item in differences(a, c)]
    assert found == [("w", "value"), ("step", "dtype")]
    assert files["big-endian.npy"].leaves["array"].dtype == ">i4"
    assert files["record.npy"].format == "npy" and files["asks-little.pt"].format == "torch"
    assert [*files["nameless.npz"].leaves] == ["(root)"]


def test_safetensors_are_read_by_their_library(tmp_path: Path) -> None:
    save_file = pytest.importorskip("safetensors.torch").save_file
    a = {"w": torch.ones(2, 3, dtype=torch.bfloat16), "b": torch.zeros(1)}
    save_file(a, tmp_path / "a.safetensors", metadata={"format": "pt"})
    save_file({**a, "b": -a["b"]}, tmp_path / "b.safetensors", metadata={"format": "np"})
    (tmp_path / "c.safetensors").write_bytes(struct.pack("<Q", 2**60) + b"{")
    shards = {f"w{number}": f"model-{number}.safetensors" for number in (1, 2)}
    for name, file in shards.items():
        save_file({name: torch.ones(1)}, tmp_path / file)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": shards}))
    paths = (tmp_path / f"{name}.safetensors" for name in "abc")
    found, other, wrong, *parts = read_files(*paths, index)
    dtypes = {name: leaf.dtype for name, leaf in found.leaves.items()}
    assert dtypes == {"__metadata__.format": "str", "b": "float32", "w": "bfloat16"}
    assert [item.name for item in differences(found, other)] == ["__metadata__.format", "b"]
    assert wrong.format == "opaque" and wrong.note
    named = [part.leaves for part in parts if part.format == "safetensors"]
    assert sorted(name for part in named for name in part) == ["w1", "w2"]


def _by_getattr(self: enum.Enum, _: int) -> tuple[object, ...]:
    return getattr, (type(self), self.name)


@pytest.mark.filterwarnings("ignore")
def test_a_distributed_index_runs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save = pytest.importorskip("torch.distributed.checkpoint").save
    for name, bias in (("a", 0.0), ("b", 0.0), ("c", 1.0), ("hostile", 0.0)):
        model = {"w": torch.ones(3, 2), "b": torch.full((4,), bias)}
        with monkeypatch.context() as patch:
            if name == "b":  # as Python 3.11.2 writes it
                patch.setattr(enum.Enum, "__reduce_ex__", _by_getattr)
            save({"model": model, "step": 3}, checkpoint_id=tmp_path / name)
    (tmp_path / "hostile/.metadata").write_bytes(pickle.dumps(Malicious(tmp_path)))
    a, b, c, hostile = read_files(*(tmp_path / name for name in ("a", "b", "c", "hostile")))
    assert a.format == "distributed", a.note
    assert a.leaves["model.w"].shape == (3, 2) and a.leaves["step"].value == "3"
    assert a.digest != b.digest and differences(a, b) == ()
    assert [item.name for item in differences(a, c)] == ["model.b"]
    assert hostile.format == "opaque" and "posix.system" in hostile.note
    assert {".metadata", "__0_0.distcp"} == hostile.leaves.keys()
    assert not (tmp_path / "ran").exists()


def test_the_distance_of_what_differs_is_measured(tmp_path: Path) -> None:
    a, b = torch.ones(3), torch.ones(3)
    b[1] = 1.5
    torch.save({"w": a, "same": a, "n": torch.tensor([math.nan])}, tmp_path / "a.pt")
    torch.save({"w": b, "same": a, "n": torch.tensor([1.0])}, tmp_path / "b.pt")
    found = distances(tmp_path / "a.pt", tmp_path / "b.pt")
    assert found.keys() == {"w", "n"}
    assert (found["w"].max_abs, found["w"].max_ulp, found["w"].l2) == (0.5, 2**22, 0.5)
    assert found["n"].max_abs is None


JSON = {  # two texts, and what tells them apart
    "float": ("1", "1.0", "dtype"),
    "nan": ("NaN", "Infinity", "value"),
    "surrogates": ('{"\\ud800": "\\udfff"}', '{"\\ud800": "\\udffe"}', "value"),
    "same spelling": ("0.1", "1e-1", ""),
    "same order": ('{"a": 1, "b": 2}', '{"b":2,\n"a":1}', ""),
    "same mark": ('\ufeff{"a":1}', '{"a":1}', ""),
}
BAD = {
    "empty.json": b"",
    "utf-16.json": b"\xff\xfe{",
    "deep.json": b"[" * 50_000,
    "many.json": b"[" + b"[]," * 2_100_000 + b"[]]",
    "name.json": b'{"' + b"k" * 5000 + b'": 1}',
    "open.csv": b'a,"b',
    "wide.csv": b"a," * 300_000,
    "long.csv": b"\n" * 300_000,
    "cell.csv": b"x" * 200_000,
}


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = tmp_path_factory.mktemp("texts")
    tables = {
        "a.jsonl": b'{"loss": 1.0}\n\n{"loss": 0.5, "e": {}}\n',
        "a.csv": b"step,loss\n0,1.5\n1,0.5\n",
        "b.csv": b'"step",loss\r\n0,1.5\r\n1,0.25\r\n',
        "c.tsv": b"1\t2\n3\t4\n",
        "d.csv": b"a,a\n1,2,3\n",
    }
    both = {f"{name} {'ab'[n]}.json": JSON[name][n].encode() for name in JSON for n in (0, 1)}
    for name, content in {**BAD, **tables, **both}.items():
        (folder / name).write_bytes(content)
    paths = sorted(folder.iterdir())
    return {path.name: artifact for path, artifact in zip(paths, read_files(*paths), strict=True)}


@pytest.mark.parametrize("name", JSON)
def test_json_is_compared_value_by_value(texts: Files, name: str) -> None:
    expected = JSON[name][2]
    found = {what(item) for item in differences(texts[f"{name} a.json"], texts[f"{name} b.json"])}
    assert expected in found if expected else not found


def test_json_lines_and_cells_are_named(texts: Files) -> None:
    found = {name: leaf.value for name, leaf in texts["a.jsonl"].leaves.items()}
    assert found == {"line 1.loss": "1.0", "line 3.loss": "0.5", "line 3.e": "{}"}
    [cell] = differences(texts["a.csv"], texts["b.csv"])
    assert (cell.name, cell.values) == ("row 3, column loss", ("0.5", "0.25"))
    assert [*texts["c.tsv"].leaves][-1] == "row 2, column 2", texts["c.tsv"].note
    cells = [name for name in texts["d.csv"].leaves if name.startswith("row 2")]
    assert cells == ["row 2, column a", "row 2, column a (4)", "row 2, column 3"]


@pytest.mark.parametrize("name", BAD)
def test_a_malformed_text_is_compared_by_its_bytes(texts: Files, name: str) -> None:
    assert texts[name].format == "opaque" and texts[name].note.startswith("compared as a whole: ")


def test_a_python_without_torch_compares_bytes_and_says_so(tmp_path: Path) -> None:
    for name in ("torch", "numpy", "safetensors"):
        (tmp_path / f"{name}.py").write_text(f"raise ModuleNotFoundError('{name}')")
    torch.save({"a": 1}, tmp_path / "a.pt")
    np.save(tmp_path / "a.npy", np.zeros(1))
    (tmp_path / "a.json").write_text("[1]")
    a, b, c = read_files(
        tmp_path / "a.pt", tmp_path / "a.npy", tmp_path / "a.json", PYTHONPATH=str(tmp_path)
    )
    assert (a.format, b.format, c.format) == ("opaque", "opaque", "json")
    assert "has no torch" in a.note and "has no numpy" in b.note
