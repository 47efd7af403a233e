"""Taking artifacts out of a workspace, and the bounds on what reads them and on what it says."""

from __future__ import annotations

import errno
import json
import os
import stat
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from repro_gate.compare.artifacts import Artifact
from repro_gate.errors import Inconclusive
from repro_gate.escape import clip
from repro_gate.files import remove_tree
from repro_gate.runs import artifacts, interpreter, reading
from repro_gate.runs.artifacts import Collected, collect
from tests.support.artifacts import differences, read_files, what


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "work"
    put(root, "out/a.pt", "out/b.pt", "out/metrics.json", "out/deep/er/c.pt", "top.json")
    put(root, "out/.hidden.pt")
    return root


def put(root: Path, *names: str) -> None:
    """Files that hold their names."""
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)


def found(root: Path, *globs: str) -> list[str]:
    return [item.name for item in collect(root, globs, root.parent / "kept")[0]]


def by_name(root: Path, kept: str, *globs: str) -> dict[str, Collected]:
    return {item.name: item for item in collect(root, globs, root.parent / kept)[0]}


def test_files_are_copied_once_and_outlive_the_workspace(root: Path, tmp_path: Path) -> None:
    globs = ["out/*.pt", "**/a.pt", "out/metrics.json", "none/*.pt"]
    taken, unmatched = collect(root, globs, tmp_path / "kept")
    assert [item.name for item in taken] == ["out/a.pt", "out/b.pt", "out/metrics.json"]
    assert unmatched == ("none/*.pt",)
    (root / "out/a.pt").write_text("changed")
    assert taken[0].path.read_text() == "out/a.pt" and taken[0].path.suffix == ".pt"


GLOBS = [
    ("**/*.pt", "out/a.pt out/b.pt out/deep/er/c.pt"),
    ("out/**", "out/a.pt out/b.pt out/deep/er/c.pt out/metrics.json"),
    ("out/[ab].p?", "out/a.pt out/b.pt"),
    ("*/.hid*", "out/.hidden.pt"),
    ("./top.json", "top.json"),
    *((glob, "") for glob in ("out", "out/a.pt/x", "OUT/*.pt", "[*", "*a" * 500, "a/" * 2000)),
    ("**/" * 2000 + "a.pt", "out/a.pt"),
    ("**/*/" * 1000 + "*.pt", ""),
    ("**/*/" * 3 + "*.pt", "out/deep/er/c.pt"),
    ("**/o*/**/c.pt", "out/deep/er/c.pt"),
]


@pytest.mark.parametrize(("glob", "names"), GLOBS)
def test_globs_of_any_length_match_as_documented(root: Path, glob: str, names: str) -> None:
    assert found(root, glob) == names.split()


def test_folders_as_deep_as_the_glob_end_in_no_recursion(tmp_path: Path) -> None:
    for depth in range(1, 1101):
        tmp_path.joinpath("d/" * depth).mkdir()
    tmp_path.joinpath("d/" * 1100, "x.pt").touch()
    try:
        for glob in ("*/" * 1100 + "x.pt", "d/" * 1100 + "*", "**/x.pt"):
            assert len(found(tmp_path, glob)) == 1
    finally:
        remove_tree(tmp_path / "d")


def test_links_inside_count_and_links_outside_are_never_read(root: Path, tmp_path: Path) -> None:
    put(tmp_path, "secret.pt", "work-2/x.pt")
    links = {"out/last.pt": "a.pt", "out/leak.pt": "../../secret.pt", "away": "..", "run": "out"}
    for name, target in {**links, "out/near.pt": "../../work-2/x.pt"}.items():
        (root / name).symlink_to(target)
    taken = by_name(root, "kept", "out/*.pt", "away/*.pt", "run/a.pt")
    assert taken["out/last.pt"].path.read_text() == "out/a.pt" and "run/a.pt" in taken
    assert "run/a.pt" not in found(root, "**/a.pt"), "`**` enters no linked folder"
    outside = {name: item for name, item in taken.items() if not item.readable}
    assert [*outside] == ["out/leak.pt", "out/near.pt"]
    assert not any(name.startswith("away") for name in taken)
    assert all(_OUT in it.kind and not it.path.exists() for it in outside.values())


def _link(target: str, leads: str, said: str = "") -> tuple[Callable[[Path], object], str]:
    return lambda path: path.symlink_to(target), f"link to {said or target} {leads}"


_NOWHERE, _OUT = "that leads nowhere", "that leads out of the working directory"
# How it is made, and the kind that it is told as.
MAKERS: dict[str, tuple[Callable[[Path], object], str]] = {
    "text": (lambda path: path.write_text("a"), "file"),
    "other text": (lambda path: path.write_text("b"), "file"),
    "FIFO": (os.mkfifo, "FIFO"),
    "socket": (lambda path: os.mknod(path, stat.S_IFSOCK | 0o600), "socket"),
    "link": _link("nothing", _NOWHERE),
    "link through a file": _link("y/nothing", _NOWHERE),
    "link with a long name": _link("n" * 300, _NOWHERE, clip("n" * 300, 200)),
    "looping link": _link("x.json", _NOWHERE),
    "link out": _link("/dev/zero", _OUT),
    "link out to nothing": _link("/nowhere/at/all", _OUT),
    "link to a folder": (lambda path: path.symlink_to("."), "absent"),
    "absent": (lambda path: None, "absent"),
}


@pytest.mark.parametrize("second", MAKERS)
@pytest.mark.parametrize("first", MAKERS)
def test_each_pair_of_kinds_is_compared_or_told(first: str, second: str, tmp_path: Path) -> None:
    sides = []
    for place, kind in (("a", first), ("b", second)):
        put(tmp_path, f"{place}/y")
        MAKERS[kind][0](tmp_path / place / "x.json")
        sides.append(by_name(tmp_path / place, f"kept-{place}", "*.json"))
    found = compared(*sides)
    details = [item.detail or item.name for item in found.divergences]
    uncompared = [(item.why, item.no_file) for item in found.uncompared]
    one, other = MAKERS[first][1], MAKERS[second][1]
    two = f"a {one} in the first run, a {other} in the second"
    expected: tuple[list[str], list[tuple[str, bool]]] = ([], [])
    if "absent" in (one, other) and one != other:
        expected = ([f"written by the {'second' if one == 'absent' else 'first'} run only"], [])
    elif one == other == "file" and first != second:
        expected = (["x.json: (file)"], [])
    elif "file" in (one, other) and one != other:
        expected = ([two], [])
    elif one not in ("file", "absent"):
        why = f"in both runs it is a {one}" if one == other else f"it is {two}"
        expected = ([], [(why, True)])
    assert (details, uncompared) == expected


def test_a_link_that_may_not_be_followed_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`/proc/1/exe` for whoever is not root: `realpath` of Python before 3.13 raises."""
    original = os.path.realpath
    (tmp_path / "work").mkdir()
    (tmp_path / "work/x.pt").symlink_to("/proc/1/exe")

    def refused(path: str, **options: bool) -> str:
        if os.fspath(path).endswith("x.pt"):
            raise PermissionError(13, "Permission denied")
        return original(path, **options)

    monkeypatch.setattr(os.path, "realpath", refused)
    (item,) = collect(tmp_path / "work", ["*"], tmp_path / "kept")[0]
    assert item.kind == f"link to /proc/1/exe {_OUT}"


def test_links_into_a_varied_runs_own_folders_are_the_same(tmp_path: Path) -> None:
    sides = []
    for workspace, home in (("workspace", "home"), ("clone-two", "user")):
        root = tmp_path / "run" / workspace
        root.mkdir(parents=True)
        targets = (tmp_path / "run" / home / "x", root / "nothing", f"/{workspace}")
        for name, target in zip("xyz", targets, strict=True):
            (root / f"{name}.pt").symlink_to(target)
        sides.append(by_name(root, f"kept-{home}", "*.pt"))
    assert [item.why for item in compared(*sides).uncompared] == [
        f"in both runs it is a link to {tmp_path}/run/home/x {_OUT}",
        f"in both runs it is a link to {tmp_path}/run/workspace/nothing {_NOWHERE}",
        f"it is a link to /workspace {_OUT} in the first run, a link to /clone-two {_OUT} in the second",
    ]


def test_what_could_not_be_copied_in_one_run_is_no_difference_and_not_the_same(root: Path) -> None:
    whole = by_name(root, "kept", "top.json")
    full = "it could not be copied: No space left on device"
    cut = {name: replace(item, problem=full) for name, item in whole.items()}
    sides = {"the second run": (whole, cut), "the first run": (cut, whole), "both runs": (cut, cut)}
    for where, (a, b) in sides.items():
        found = compared(a, b)
        uncompared = [(item.why, item.no_file) for item in found.uncompared]
        assert (uncompared, found.divergences) == ([(f"in {where} {full}", False)], [])


def compared(a: Mapping[str, Collected], b: Mapping[str, Collected]) -> Any:
    """Without an interpreter: by their bytes."""
    reader: Any = SimpleNamespace(contents=lambda items: [*map(reading._opaque, items)])
    divergences, values, uncompared = reading.differences(a, b, reader, 3)
    return SimpleNamespace(divergences=divergences, values=values, uncompared=uncompared)


def test_artifacts_above_a_limit_are_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "out/sparse.bin").touch()
    os.truncate(root / "out/sparse.bin", 1 << 40)  # takes no disk; filled, it would take a TiB
    kept = root.parent / "kept"
    said = r"more than 274,877,906,944 bytes, the 1,099,511,627,776 of out/sparse.bin"
    with pytest.raises(Inconclusive, match=said) as raised:
        collect(root, ["out/sparse.bin"], kept)
    assert raised.value.reason_id == "artifact/too-many" and not [*kept.iterdir()]
    monkeypatch.setattr(artifacts, "MAX_BYTES", 16)  # of all together
    assert found(root, "out/*.pt") == ["out/a.pt", "out/b.pt"]
    with pytest.raises(Inconclusive, match=r"more than 16 bytes, the 8 of top.json included"):
        collect(root, ["out/*.pt", "top.json"], root.parent / "more")
    for number in range(1001):
        (root / f"{number}.bin").touch()
    with pytest.raises(Inconclusive, match="1,001"):
        found(root, "*.bin")


def test_holes_take_no_time_and_what_lies_between_them_is_compared(tmp_path: Path) -> None:
    """64 GiB each: read in full, one alone would take minutes."""
    numpy = pytest.importorskip("numpy")
    about = {"descr": "|u1", "fortran_order": False, "shape": (1 << 36,)}
    kept = []
    for name, at in (("a", 5), ("b", 5), ("c", 6)):
        (tmp_path / name).mkdir()
        with (tmp_path / name / "x.npy").open("w+b") as file:
            numpy.lib.format.write_array_header_1_0(file, about)
            file.truncate(file.tell() + (1 << 36))
            file.seek(at << 30)
            file.write(b"x")
        kept.append(by_name(tmp_path / name, f"kept-{name}", "*"))
    assert not compared(*kept[:2]).divergences and compared(*kept[1:]).divergences
    (first, second) = read_files(*(side["x.npy"].path for side in kept[1:]))
    assert {first.format, second.format} == {"opaque"} and "allocate" in first.note
    assert [item.name for item in differences(first, second)] == ["(file)"]


def test_nothing_is_left_on_a_full_disk(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "copy_file_range", full)
    monkeypatch.setattr(os, "pwrite", full)
    put(root, "dcp/.metadata", "dcp/a.distcp")
    found, _ = collect(root, ["top.json", "dcp"], root.parent / "kept")
    assert {item.problem for item in found} == {"it could not be copied: No space left on device"}
    assert len(found) == 2 and not any(item.path.exists() for item in found)


def test_a_file_name_that_is_no_utf_8_becomes_printable(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"\xff.bin")).touch()
    assert found(tmp_path, "*.bin") == ["\\udcff.bin"]


def test_an_index_brings_its_shards_and_a_file_its_checkpoint(root: Path) -> None:
    shards = ["m-1-of-2.safetensors", "m-2-of-2.safetensors", "m.safetensors.index.json"]
    put(root, *shards, "other.safetensors", "dcp/.metadata", "dcp/a.distcp")
    assert found(root, "*.index.json") == shards
    for glob in ("dcp", "dcp/*", "dc*", "dcp/a.distcp"):
        assert found(root, glob) == ["dcp"], glob
    ((item,), _) = collect(root, ["dcp"], root.parent / "copies")
    assert [name for name, _, _ in item.files] == [".metadata", "a.distcp"]
    assert (item.path / "a.distcp").exists()


def test_without_an_interpreter_bytes_are_compared(tmp_path: Path) -> None:
    put(tmp_path, "a.log", "b.log", "a.json")
    nowhere = "/nowhere/python"
    a, b, needed = read_files(*(tmp_path / name for name in os.listdir(tmp_path)), python=nowhere)
    found = sorted((a, b, needed), key=lambda artifact: artifact.note)
    assert {artifact.format for artifact in found} == {"opaque"}
    assert [nowhere in artifact.note for artifact in found] == [False, False, True]
    assert [(item.name, what(item)) for item in differences(*found[:2])] == [("(file)", "value")]


def answered(folder: Path, body: str, files: str = "a", seconds: float = 60) -> list[Artifact]:
    """What is read of JSON files of these names where a Python does `body` instead of reading."""
    put(folder, *(f"{name}.json" for name in files))
    python = folder / "python"
    head = "import json, os, sys, time\nanswer = json.load(open(sys.argv[-1]))['answer']"
    python.write_text(f"#!{sys.executable}\n{head}\n{body}\n")
    python.chmod(0o755)
    paths = (folder / f"{name}.json" for name in files)
    return read_files(*paths, python=str(python), seconds=seconds)


def says(lines: Sequence[str]) -> str:
    text = "\n".join([*lines, ""])
    return f"open(answer, 'w').write({text!r})"


def line(*row: object) -> str:
    return json.dumps(row)


FILE, END = line("file", 0), line("end", "torch", "b" * 64)
KEYS = ("name", "kind", "dtype", "shape", "digest", "value")
SOUND = dict(zip(KEYS, ("w", "tensor", "float32", [2], "a" * 32, None), strict=True))


def leaf(**other: object) -> str:
    return line("leaf", *{**SOUND, **other}.values())


LEAF = leaf()
MALFORMED: list[dict[str, object]] = [
    {"shape": [-1]},
    {"shape": [2**53]},
    {"shape": [1] * 65},
    {"digest": "::error::"},
    {"value": "v" * 201},
    {"name": "w" * 5000},
    {"kind": "picture"},
]
ANSWERS = [
    ["x"],
    [LEAF, END],
    [line("file", 1), END],
    *([FILE, leaf(**other), END] for other in MALFORMED),
    [FILE, LEAF, LEAF, END],
    [FILE, line("end", "pickle", "b" * 64)],
    [FILE, line("whole", "n" * 1001)],
    [FILE, "[" * 100_000],
    [FILE, LEAF],
]


@pytest.mark.parametrize("lines", ANSWERS)
def test_an_answer_that_is_none_is_not_believed(tmp_path: Path, lines: list[str]) -> None:
    (artifact,) = answered(tmp_path, says(lines))
    assert artifact.format == "opaque" and artifact.note and [*artifact.leaves] == ["(file)"]


def test_an_answer_is_taken_and_a_link_in_its_place_is_not(tmp_path: Path) -> None:
    (artifact,) = answered(tmp_path, says([FILE, LEAF, END]))
    assert artifact.format == "torch" and artifact.leaves["w"].shape == (2,)
    (tmp_path / "forged").write_text(f"{FILE}\n{LEAF}\n{END}\n")
    (artifact,) = answered(tmp_path, f"os.symlink({str(tmp_path / 'forged')!r}, answer)")
    assert artifact.format == "opaque" and artifact.note


def test_more_than_the_limit_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (reading, interpreter):
        monkeypatch.setattr(module, "MAX_ANSWER", 1_000)
    (tmp_path / "large.json").write_text(json.dumps([*range(100)]))
    assert "more than can be told" in read_files(tmp_path / "large.json")[0].note
    leaves = [leaf(name=f"w{n}") for n in range(100)]
    assert answered(tmp_path, says([FILE, *leaves, END]))[0].format == "opaque"


@pytest.mark.parametrize(
    ("then", "seconds", "why"),
    [
        ("time.sleep(600)", 3, "the time for looking inside artifacts"),
        ("os.abort()", 60, "ended before it had read b.json"),
    ],
)
def test_what_was_read_before_a_file_that_hangs_or_ends_the_reader_stays(
    then: str, seconds: float, why: str, tmp_path: Path
) -> None:
    said = says([FILE, LEAF, END, line("file", 1)])
    for limit in (seconds, 20):  # until the reader was given the time to begin
        a, b, c = answered(tmp_path, f"{said}; {then}", "abc", limit)
        if a.format == "torch":
            break
    assert (a.format, b.format, c.format) == ("torch", "opaque", "opaque") and why in b.note
