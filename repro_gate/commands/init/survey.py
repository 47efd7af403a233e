"""What lies in a checkout, for the draft of a `repro.yml`: a walk with limits, and the lockfiles
and data that it meets. Runs nothing."""

from __future__ import annotations

import hashlib
import os
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from repro_gate.files import read_start

MAX_FILES = 20_000
MAX_DEPTH = 8
MAX_WALK_SECONDS = 5.0
MAX_HASHED_BYTES = 256 * 1024 * 1024  # of all data together
MAX_LISTED = 50  # data files that get an entry of their own

_LOCKFILES = (
    "requirements*.lock",
    "uv.lock",
    "pylock.toml",
    "pylock.*.toml",
)
_NOT_ENTERED = frozenset(
    {
        "node_modules",
        "__pycache__",
        "site-packages",
        "build",
        "dist",
        "venv",
        "env",
        "virtualenv",
        "conda-meta",
    }
)
_TESTS = frozenset({"test", "tests", "testing", "docs", "doc"})
_NO_DATA_IN = _TESTS | {
    "artifacts",
    "checkpoint",
    "checkpoints",
    "ckpt",
    "ckpts",
    "lightning_logs",
    "logs",
    "log",
    "mlruns",
    "out",
    "output",
    "outputs",
    "results",
    "runs",
    "wandb",
}
_DATA_FOLDERS = frozenset({"data", "dataset", "datasets"})
_DATA_SUFFIXES = (
    ".bin",
    ".npy",
    ".npz",
    ".csv",
    ".tsv",
    ".parquet",
    ".arrow",
    ".feather",
    ".jsonl",
    ".h5",
    ".hdf5",
    ".tfrecord",
    ".lmdb",
    ".safetensors",
    ".csv.gz",
    ".jsonl.gz",
    ".txt.gz",
    "-ubyte",
    "-ubyte.gz",
)
_NOT_DATA = (
    ".py",
    ".pyi",
    ".ipynb",
    ".onnx",
    ".md",
    ".rst",
    ".sh",
    ".yml",
    ".yaml",
    ".toml",
    ".cfg",
    ".ini",
    ".html",
    ".lock",
)


@dataclass(frozen=True)
class FoundFile:
    """A regular file (or a link to one): its path below the checkout, its size in bytes, and of
    data that was read its checksum."""

    path: str
    size: int
    sha256: str | None = None


@dataclass(frozen=True)
class Tree:
    """The files of a checkout, nearest to the root first; `complete` is False where a limit cut the
    walk short."""

    files: tuple[FoundFile, ...]
    complete: bool


def walk(root: Path) -> Tree:
    """The files below `root`, in a fixed order. Hidden folders, environments and caches are not
    entered, links to folders not followed."""
    until = time.monotonic() + MAX_WALK_SECONDS
    files: list[FoundFile] = []
    folders: deque[tuple[str, int]] = deque([("", 0)])
    complete = True
    while folders:
        folder, depth = folders.popleft()
        inner, here = _entries(root, folder)
        files.extend(here[: MAX_FILES - len(files)])
        if len(files) >= MAX_FILES or time.monotonic() > until:
            return Tree(tuple(files), False)
        if depth < MAX_DEPTH:
            folders.extend((name, depth + 1) for name in inner)
        complete = complete and (depth < MAX_DEPTH or not inner)
    return Tree(tuple(files), complete)


def _entries(root: Path, folder: str) -> tuple[list[str], list[FoundFile]]:
    """The folders to enter and the files of one folder, sorted by name. What cannot be read, or
    named in a YAML file, is passed over."""
    inner: list[str] = []
    files: list[FoundFile] = []
    try:
        with os.scandir(root / folder) as scan:
            entries = sorted(
                (entry for entry in scan if entry.name.isprintable()), key=lambda entry: entry.name
            )
        if folder and any(entry.name in ("pyvenv.cfg", "conda-meta") for entry in entries):
            return [], []
        for entry in entries:
            path = f"{folder}/{entry.name}" if folder else entry.name
            if entry.is_dir(follow_symlinks=False):
                inner += (
                    []
                    if entry.name.startswith(".")
                    or entry.name in _NOT_ENTERED
                    or entry.name.endswith(".egg-info")
                    else [path]
                )
            elif entry.is_file():
                files.append(FoundFile(path, entry.stat().st_size))
    except OSError:
        pass
    return inner, files


def lockfiles(root: Path, tree: Tree) -> list[str]:
    """The lockfiles at the root or one folder below it, the likeliest first; `requirements*.txt`
    counts if it pins by hash."""
    near = [
        file.path
        for file in tree.files
        if file.path.count("/") <= 1 and not _among(file.path, _TESTS)
    ]
    locks = [
        path
        for pattern in _LOCKFILES
        for path in near
        if fnmatchcase(PurePosixPath(path).name, pattern)
    ]
    pinned = [
        path
        for path in near
        if fnmatchcase(PurePosixPath(path).name, "requirements*.txt")
        and b"--hash=" in head(root / path)
    ]
    return sorted(dict.fromkeys([*locks, *pinned]), key=lambda path: path.count("/"))


def data_files(root: Path, tree: Tree, read: Callable[[str], bool]) -> list[FoundFile]:
    """The files for which `read` holds, the small ones with their checksum, as long as all of them
    together stay within the limit."""
    budget = MAX_HASHED_BYTES
    found: list[FoundFile] = []
    for file in tree.files:
        if file.size and read(file.path):
            data = (
                head(root / file.path, file.size + 1)
                if file.size <= budget and len(found) < MAX_LISTED
                else b""
            )
            digest = hashlib.sha256(data).hexdigest() if len(data) == file.size else None
            budget -= file.size if digest else 0
            found.append(FoundFile(file.path, file.size, digest))
    return found


def training_reads(
    tree: Tree, script_folder: str | None, named: frozenset[str]
) -> Callable[[str], bool]:
    """Which files are the training's data: those that its script names, and those that look like
    data and lie in a data folder of the checkout or of the script. In a package, such as a list of
    labels, only those that are named. Without a script, all that look so."""
    packages = {
        PurePosixPath(file.path).parent for file in tree.files if file.path.endswith("/__init__.py")
    }
    homes = (".",) if script_folder is None else tuple(dict.fromkeys((script_folder, ".")))
    # A text of the source can stand for data where it has a folder or a suffix, or is the name of a
    # data folder.
    places = {
        (place, name)
        for name in named
        for place in [below(home, name) for home in homes]
        if place and place != "."
    }
    wanted = {
        place
        for place, name in places
        if "/" in name or "." in PurePosixPath(place).name or place in _DATA_FOLDERS
    }

    def read(path: str) -> bool:
        above = PurePosixPath(path).parents
        if path in wanted and not path.endswith(_NOT_DATA) and not path.startswith("."):
            return True
        if not is_data(path) or any(str(folder) in wanted for folder in above):
            return is_data(path)
        homely = script_folder is None or any(
            PurePosixPath(home, name) in above for home in homes for name in _DATA_FOLDERS
        )
        return homely and not any(parent in packages for parent in above)

    return read


def is_data(path: str) -> bool:
    """Whether a file looks like training data, by its folder and its suffix."""
    name = PurePosixPath(path).name.lower()
    if (
        name.startswith(".")
        or name.endswith(_NOT_DATA)
        or name in ("license", "readme", "readme.txt")
        or _among(path, _NO_DATA_IN)
    ):
        return False
    return _among(path, _DATA_FOLDERS) or name.endswith(_DATA_SUFFIXES)


def below(folder: str, path: str) -> str | None:
    """`path` as seen from `folder`, as a path below the checkout; None where it leads out of it."""
    joined = os.path.normpath(os.path.join(folder, path))
    return (
        None
        if os.path.isabs(joined) or joined.split("/")[0] == ".." or not path.isprintable()
        else joined
    )


def head(path: Path, size: int = 256 * 1024) -> bytes:
    """The start of a file; empty where it cannot be read."""
    try:
        return read_start(path, size)
    except OSError:
        return b""


def _among(path: str, names: frozenset[str]) -> bool:
    return any(part.lower() in names for part in PurePosixPath(path).parts[:-1])
