"""Declared items that stand for others: `.dvc` files, turned into the items that these declare.

They come from an untrusted checkout: limits on size, depth and count, no path out of the checkout,
every fault a problem with its line.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from repro_gate.data.declared import data_path
from repro_gate.data.formats import DataProblem, Found, quoted, read_dvc
from repro_gate.files import Unreadable, leads_out, read_text
from repro_gate.spec.errors import escaped
from repro_gate.spec.model import DataItem

MAX_DVC = 1 << 20  # bytes
DVC = ".dvc"  # how the names of declaration files end


@dataclass
class _Expansion:
    """The items and problems so far; `spec_dir` and `root` (of the checkout) are absolute."""

    spec_dir: Path
    root: Path
    items: list[DataItem] = field(default_factory=list)
    problems: list[DataProblem] = field(default_factory=list)

    def refuse(self, where: str, message: str, remedy: str, kind: str = "declaration") -> None:
        self.problems.append(DataProblem(where, message, remedy, kind))


def expand_items(
    items: Sequence[DataItem], spec_dir: Path, root: Path | None = None
) -> tuple[tuple[DataItem, ...], tuple[DataProblem, ...]]:
    """The items with every `.dvc` file replaced by what it declares, and what is wrong with the
    declarations.

    An item without a digest takes it from the `.dvc` file beside it. A sha256 that the spec states
    for a declaration file is compared with that file's own bytes. `root` is the checkout's; by
    default the nearest folder above the spec that holds `.git`, or the spec's own. Raises
    UsageError for an item whose path is none.
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
    found: Found | None = None
    if path.name.endswith(DVC) and path.name != DVC and not path.is_dir():
        found = _dvc(item.path, path, expansion)
    elif item.sha256 is None and item.md5 is None and os.path.isfile(f"{path}{DVC}"):
        _adopt(item, path, expansion)
    else:
        expansion.items.append(item)
    if found is not None:
        own = hashlib.sha256(path.read_bytes()).hexdigest() if item.sha256 is not None else None
        if item.sha256 != own:
            message = f"sha256 expected {item.sha256}, found {own}"
            expansion.refuse(
                escaped(item.path), message, "restore the file, or state its new sha256 in the spec"
            )
        expansion.problems += found.problems
        located = [_located(one, item.path, path, expansion) for one in found.items]
        expansion.items += [one for one in located if one is not None]


def _adopt(item: DataItem, path: Path, expansion: _Expansion) -> None:
    """Take an item's digest from the `.dvc` file beside it."""
    name, file = item.path.rstrip("/") + DVC, path.with_name(path.name + DVC)
    found = _dvc(name, file, expansion)
    if found is None:
        expansion.items.append(item)
        return
    expansion.problems += found.problems
    own = next(
        (one for one in found.items if os.path.normpath(file.parent / one.path) == os.fspath(path)),
        None,
    )
    declared = _located(own, name, file, expansion) if own is not None else None
    if not found.problems and declared is None:
        message = f"does not declare {quoted(item.path)}, which it lies beside"
        expansion.refuse(
            found.where(1), message, "`dvc add` the data, or state its sha256 in the spec"
        )
    expansion.items.append(item if declared is None else replace(declared, path=item.path))


def _located(item: DataItem, name: str, file: Path, expansion: _Expansion) -> DataItem | None:
    """An item of a declaration file (at `file`, called `name` by the spec), relative to the spec;
    None where its path is refused."""
    if "\0" in item.path or any("\ud800" <= character <= "\udfff" for character in item.path):
        expansion.refuse(item.source, f"{quoted(item.path)} is not a path", "mend the path")
        return None
    absolute = Path(os.path.normpath(file.parent / item.path))
    bounds = expansion.root if file.is_relative_to(expansion.root) else file.parent
    if os.path.isabs(item.path) or not absolute.is_relative_to(bounds):
        message = (
            f"{quoted(item.path)} leads out of "
            f"{'the checkout' if bounds == expansion.root else quoted(bounds)}"
        )
        expansion.refuse(
            item.source,
            message,
            "declare data outside the checkout in the spec, by its absolute path",
        )
        return None
    return replace(item, path=os.path.normpath(os.path.join(os.path.dirname(name), item.path)))


def _dvc(name: str, path: Path, expansion: _Expansion) -> Found | None:
    """What a `.dvc` file states; None, and a problem, where it cannot be read.

    Messages quote what is wrong with a file, so a link is not followed to a file that is not the
    checkout's; where the spec names one elsewhere, not to what is no `.dvc` file.
    """
    try:
        within = _within(path, expansion)
        why = leads_out(path, within) or (
            "" if os.path.realpath(path).endswith(DVC) else "is no `.dvc` file"
        )
        if why:
            raise Unreadable(f"is a link to a file that {why}: it is not read")
        return read_dvc(read_text(path, within, MAX_DVC), name)
    except Unreadable as error:
        expansion.refuse(escaped(name), str(error), "restore the file, or take it out of the spec")
        return None


def _within(path: Path, expansion: _Expansion) -> Path:
    return expansion.root if path.is_relative_to(expansion.root) else Path("/")


def _checkout_root(folder: Path) -> Path:
    return next(
        (above for above in (folder, *folder.parents) if os.path.lexists(above / ".git")), folder
    )
