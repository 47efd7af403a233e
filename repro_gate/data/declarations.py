"""Declared items that stand for others: `.dvc` files and Croissant metadata, turned into the items that these declare.
 Declaration files come from a
stranger's checkout: limits on size, depth and count, no path out of the checkout, every fault a problem with its line.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from repro_gate.data.croissant import read_croissant
from repro_gate.data.declared import LEGACY, data_path
from repro_gate.data.dvc import read_dvc
from repro_gate.data.stated import Fault, Stated, quoted, wrong_digest
from repro_gate.files import NotRegular, leads_out, read_start
from repro_gate.spec.errors import escaped
from repro_gate.spec.model import DataItem

MAX_DVC = 1 << 20  # bytes
MAX_CROISSANT = 8 << 20

_DVC = ".dvc"
_JSON = (".json", ".jsonld", ".json-ld")
DECLARING = (_DVC, *_JSON)  # how the names of declaration files end
_SNIFFED = 64 * 1024  # bytes at the start of a larger JSON file that are looked at for `@context`
_STATE_SHA = "state the sha256 that `sha256sum` prints"


@dataclass(frozen=True)
class DataProblem:
    """What is wrong with a declaration. `where` is `path:line`, or the item's path where there is no line.

    `kind`: `digest` (it cannot be one: its length, its characters or its algorithm) or `declaration`.
    """

    where: str
    message: str
    remedy: str
    kind: str = "declaration"


@dataclass
class _Expansion:
    """The items and problems so far; `spec_dir` and `root` (of the checkout) are absolute."""

    spec_dir: Path
    root: Path
    items: list[DataItem] = field(default_factory=list)
    problems: list[DataProblem] = field(default_factory=list)


class _Unreadable(Exception):
    """A declaration file that cannot be read. The message says why."""


def expand_items(
    items: Sequence[DataItem], spec_dir: Path, root: Path | None = None
) -> tuple[tuple[DataItem, ...], tuple[DataProblem, ...]]:
    """The items with every `.dvc` file and Croissant metadata replaced by what it declares, and what is wrong with the declarations.

    An item without a digest takes it from the `.dvc` file beside it. A sha256 that the spec states for a declaration file is compared with
    that file's own bytes. `root` is the checkout's; by default the nearest folder above the spec that holds `.git`, or the spec's own.
    Raises UsageError for an item whose path is none.
    """
    folder = Path(os.path.abspath(spec_dir))
    top = _checkout_root(folder) if root is None else Path(os.path.abspath(root))
    if not folder.is_relative_to(top):  # one of them went through a link
        folder, top = Path(os.path.realpath(folder)), Path(os.path.realpath(top))
    expansion = _Expansion(folder, top)
    for item in items:
        _expand(item, expansion)
    return tuple(expansion.items), tuple(expansion.problems)


def _expand(item: DataItem, expansion: _Expansion) -> None:
    path = data_path(item, expansion.spec_dir)
    if path.name.endswith(_DVC) and path.name != _DVC and not path.is_dir():
        raw = _dvc(item.path, path, expansion)
        if raw is not None:
            _replace(item, path, raw, read_dvc(raw.decode("utf-8-sig", "replace")), expansion)
    elif path.name.lower().endswith(_JSON) and (found := _croissant(item, path, expansion)) is not None:
        _replace(item, path, *found, expansion)
    elif item.sha256 is None and item.md5 is None and os.path.isfile(f"{path}{_DVC}"):
        _adopt(item, path, expansion)
    else:
        _keep(item, expansion)


def _replace(item: DataItem, path: Path, raw: bytes, read: tuple[list[Stated], list[Fault]], expansion: _Expansion) -> None:
    """Put in the items that a declaration file stands for."""
    stated, faults = read
    found = hashlib.sha256(raw).hexdigest()
    if item.sha256 not in (None, found):
        message = f"sha256 expected {item.sha256}, found {found}"
        expansion.problems.append(DataProblem(escaped(item.path), message, "restore the file, or state its new sha256 in the spec"))
    expansion.problems += [_problem(item.path, fault) for fault in faults]
    for one in stated:
        declared = _item(one, item.path, path, expansion)
        expansion.items += [declared] if declared is not None else []


def _adopt(item: DataItem, path: Path, expansion: _Expansion) -> None:
    """Take an item's digest from the `.dvc` file beside it."""
    name, file = item.path.rstrip("/") + _DVC, path.with_name(path.name + _DVC)
    raw = _dvc(name, file, expansion)
    stated, faults = read_dvc(raw.decode("utf-8-sig", "replace")) if raw is not None else ([], [])
    expansion.problems += [_problem(name, fault) for fault in faults]
    own = next((one for one in stated if os.path.normpath(file.parent / one.path) == os.fspath(path)), None)
    declared = _item(own, name, file, expansion) if own is not None else None
    if raw is not None and not faults and declared is None:
        message = f"does not declare {quoted(item.path)}, which it lies beside"
        expansion.problems.append(DataProblem(f"{escaped(name)}:1", message, "`dvc add` the data, or state its sha256 in the spec"))
    expansion.items.append(item if declared is None else replace(declared, path=item.path))


def _item(stated: Stated, name: str, file: Path, expansion: _Expansion) -> DataItem | None:
    """The item for what a declaration file (at `file`, called `name` by the spec) states; None where its path is refused."""
    where = f"{escaped(name)}:{stated.line}"
    if "\0" in stated.path or any("\ud800" <= character <= "\udfff" for character in stated.path):
        expansion.problems.append(DataProblem(where, f"{quoted(stated.path)} is not a path", "mend the path"))
        return None
    absolute = Path(os.path.normpath(file.parent / stated.path))
    bounds = expansion.root if file.is_relative_to(expansion.root) else file.parent
    if os.path.isabs(stated.path) or not absolute.is_relative_to(bounds):
        message = f"{quoted(stated.path)} leads out of {'the checkout' if bounds == expansion.root else quoted(bounds)}"
        expansion.problems.append(DataProblem(where, message, "declare data outside the checkout in the spec, by its absolute path"))
        return None
    path = os.path.normpath(os.path.join(os.path.dirname(name), stated.path))
    md5 = f"{LEGACY}{stated.md5}" if stated.legacy and stated.md5 is not None else stated.md5
    exact = stated.size[0] if stated.size is not None and stated.size[0] == stated.size[1] else None
    if stated.size is not None and exact is None:
        _compare_size(stated, absolute, where, expansion)
    return DataItem(path, stated.sha256, md5, exact, where)


def _compare_size(stated: Stated, absolute: Path, where: str, expansion: _Expansion) -> None:
    """Hold a rounded size against the file; one that is not there is told when its digest is taken."""
    try:
        size = os.stat(absolute).st_size
    except OSError:
        return
    least, greatest = stated.size or (0, size)
    if not least <= size <= greatest:
        message = f"{quoted(stated.path)}: its contentSize means {least:,} to {greatest:,} bytes, found {size:,}"
        expansion.problems.append(DataProblem(where, message, "restore the file, or state its size in bytes"))


def _keep(item: DataItem, expansion: _Expansion) -> None:
    """A plain item, its digests looked at."""
    md5 = item.md5.removeprefix(LEGACY).removesuffix(".dir") if item.md5 is not None else None
    for algorithm, value in (("sha256", item.sha256), ("md5", md5)):
        if value is not None and (wrong := wrong_digest(algorithm, value)):
            expansion.problems.append(DataProblem(escaped(item.source or item.path), wrong, _STATE_SHA, "digest"))
    expansion.items.append(item)


def _croissant(item: DataItem, path: Path, expansion: _Expansion) -> tuple[bytes, tuple[list[Stated], list[Fault]]] | None:
    """The bytes of Croissant metadata and what they state; None for other JSON, which is data."""
    try:
        raw = _bytes(path, MAX_CROISSANT)
    except _Unreadable:
        if _mentions_context(path):
            message = f"is larger than {MAX_CROISSANT >> 20} MiB, metadata is far smaller"
            expansion.problems.append(DataProblem(escaped(item.path), message, "declare the files themselves in the spec"))
        return None
    if b'"@context"' not in raw:
        return None
    found = read_croissant(raw.decode("utf-8-sig", "replace"), path.parent)
    return None if found is None else (raw, found)


def _mentions_context(path: Path) -> bool:
    try:
        return b'"@context"' in read_start(path, _SNIFFED)
    except OSError:
        return False


def _dvc(name: str, path: Path, expansion: _Expansion) -> bytes | None:
    """The bytes of a `.dvc` file; None, and a problem, where they cannot be had.

    What is wrong with a file is told in its own words, so a link is not followed to a file that is not the checkout's; where the spec names
    one elsewhere, not to what is no `.dvc` file.
    """
    inside = path.is_relative_to(expansion.root)
    why = leads_out(path, expansion.root) if inside else "" if os.path.realpath(path).endswith(_DVC) else "is no `.dvc` file"
    try:
        if why:
            raise _Unreadable(f"is a link to a file that {why}: it is not read")
        return _bytes(path, MAX_DVC)
    except _Unreadable as error:
        expansion.problems.append(DataProblem(escaped(name), str(error), "restore the file, or take it out of the spec"))
        return None


def _bytes(path: Path, limit: int) -> bytes:
    """A regular file's bytes. Raises _Unreadable for anything else, and for more than `limit`."""
    try:
        raw = read_start(path, limit + 1)
    except FileNotFoundError:
        raise _Unreadable("does not exist") from None
    except NotRegular:
        raise _Unreadable("is not a regular file") from None
    except OSError as error:
        raise _Unreadable(f"cannot be read: {error.strerror or error}") from None
    if len(raw) > limit:
        raise _Unreadable(f"is larger than {limit >> 20} MiB, a declaration is far smaller")
    return raw


def _problem(name: str, fault: Fault) -> DataProblem:
    return DataProblem(f"{escaped(name)}:{fault.line}", fault.message, fault.remedy, fault.kind)


def _checkout_root(folder: Path) -> Path:
    return next((above for above in (folder, *folder.parents) if os.path.lexists(above / ".git")), folder)
