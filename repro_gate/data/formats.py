"""Declared items that stand for others: `.dvc` files, turned into the items that they declare, with
paths, digests and sizes (dvc/schema.py and dvc/output.py of DVC).

They come from an untrusted checkout: limits on size, depth and count, no path out of the checkout,
every fault a problem with its line.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from repro_gate.data.declared import data_path
from repro_gate.escape import for_terminal
from repro_gate.files import Unreadable, leads_out, read_whole
from repro_gate.spec.document import Document, compose, document_of
from repro_gate.spec.errors import KeyPath, Refused
from repro_gate.spec.loader import checkout_of
from repro_gate.spec.model import DataItem
from repro_gate.spec.schema import quoted
from repro_gate.trace.fields import Location

_MD5 = re.compile(r"[0-9a-fA-F]{32}(?:\.dir)?")
_AGAIN = "`dvc add` the data anew, or, if DVC 2 wrote this, run `dvc cache migrate --dvc-files`"


MAX_DVC = 1 << 20  # bytes
DVC = ".dvc"  # how the names of declaration files end


@dataclass(frozen=True)
class DataProblem:
    """What is wrong with a declaration."""

    location: Location
    message: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.location}: {self.message}"


def expand_items(
    items: Sequence[DataItem], spec_dir: Path, root: Path | None = None
) -> tuple[tuple[DataItem, ...], tuple[DataProblem, ...]]:
    """Return the items with every `.dvc` file replaced by what it declares, and what is wrong with
    the declarations.

    An item without a digest takes it from the `.dvc` file beside it. `root` is the checkout's; by
    default the nearest folder above the spec that holds `.git`, or the spec's own."""
    folder = spec_dir
    top = root or checkout_of(folder / "-")
    if not folder.is_relative_to(top):  # one of them went through a link
        folder = folder.resolve()
        top = top.resolve()
    expanded = list[DataItem]()
    problems = list[DataProblem]()
    for item in items:
        path = data_path(item, folder)
        name = item.path
        is_dvc = path.suffix == DVC and not path.is_dir()
        if not is_dvc:
            path = path.with_name(path.name + DVC)
            name = item.path.rstrip("/") + DVC
        if item.sha256 or item.md5 or not (is_dvc or path.is_file()):
            expanded.append(item)
            continue
        declared: list[DataItem] = []
        try:
            declared = _declared(path, name, top)
        except Unreadable as error:
            remedy = "restore the file, or take it out of the spec"
            location = Location(for_terminal(name), 0)
            problems.append(DataProblem(location, str(error), remedy))
        except Refused as error:
            location = Location(for_terminal(name), error.problem.line or 1)
            problems.append(DataProblem(location, str(error), _AGAIN))
        if not is_dvc:
            here = data_path(item, folder)
            own = [one for one in declared if data_path(one, folder) == here]
            found = next(iter(own), item)
            declared = [replace(found, path=item.path)]
        expanded += declared
    return tuple(expanded), tuple(problems)


def _declared(
    path: Path,
    name: str,
    top: Path,
) -> list[DataItem]:
    """Return what a `.dvc` file declares, relative to the spec, which calls it `name`. Raise
    Unreadable or Refused, with the first mistake, such as a path that leads out of the checkout.

    Messages quote what is wrong with a file, so a link is not followed to a file that is not the
    checkout's; where the spec names one elsewhere, not to what is no `.dvc` file."""
    is_inside = path.is_relative_to(top)
    why = leads_out(path, top if is_inside else Path("/"))
    if not why and not os.path.realpath(path).endswith(DVC):
        why = "is no `.dvc` file"
    if why:
        raise Unreadable(f"is a link to a file that {why}: it is not read")
    document = document_of(compose(read_whole(path, MAX_DVC), what="a .dvc file"))
    if document.problems:
        raise Refused(document.problems[0])
    outs = None
    if isinstance(document.data, dict):
        outs = document.data.get("outs")
    if not isinstance(outs, list) or not outs:
        raise _refused(document, ("outs",), "names no outs, so it declares no data")
    bounds = top if is_inside else path.parent
    items = []
    for number, out in enumerate(outs):
        at = ("outs", number)
        keys = out if isinstance(out, dict) else {}
        item = _out(document, keys, at, name)
        inside = Path(os.path.normpath(path.parent / item.path))
        if os.path.isabs(item.path) or not inside.is_relative_to(bounds):
            message = f"{quoted(item.path)} leads out of the checkout"
            raise _refused(document, (*at, "path"), message)
        there = os.path.join(os.path.dirname(name), item.path)
        items.append(replace(item, path=os.path.normpath(there)))
    return items


def _out(
    document: Document,
    out: dict[str, Any],
    at: KeyPath,
    name: str,
) -> DataItem:
    """Return what one out of a `.dvc` file declares. Scalars are taken by their text: an md5 of
    digits alone is no number."""
    path = document.text((*at, "path"))
    md5 = document.text((*at, "md5"))
    if not path:
        raise _refused(document, at, "an out without a path")
    # DVC 2, which wrote no `hash`, changed line ends before it took an md5.
    is_known = _MD5.fullmatch(md5) and out.get("hash") == "md5"
    if "md5" in out and not is_known:
        message = f"{quoted(md5)} is no md5 as DVC 3 takes it"
        raise _refused(document, (*at, "md5"), message)
    size = out.get("size")
    stated_at: KeyPath = (*at, "md5" if md5 else "path")
    stands = document.values[stated_at].start_mark
    return DataItem(
        os.path.join(document.text(("wdir",)), path),
        md5=md5.lower() or None,
        size=size if type(size) is int and size >= 0 else None,
        source=(for_terminal(name), stands.line + 1),
    )


def _refused(
    document: Document,
    at: KeyPath,
    message: str,
) -> Refused:
    return Refused(document.problem(at, message))
