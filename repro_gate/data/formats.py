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
from repro_gate.files import Unreadable, leads_out, read_text
from repro_gate.spec.document import Document, compose, document_of
from repro_gate.spec.errors import KeyPath, Refused
from repro_gate.spec.loader import checkout_of
from repro_gate.spec.model import DataItem
from repro_gate.spec.schema import quoted
from repro_gate.trace.fields import Location

_MD5 = re.compile(r"[0-9a-f]{32}(?:\.dir)?")
_AGAIN = "`dvc add` the data anew, or, if DVC 2 wrote this, run `dvc cache migrate --dvc-files`"


@dataclass(frozen=True)
class DataProblem:
    """What is wrong with a declaration."""

    location: Location
    message: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.location}: {self.message}"


def _read_dvc(text: str, name: str, folder: Path, bounds: Path) -> list[DataItem]:
    """Return what a `.dvc` file in `folder`, called `name` in messages, declares: paths as the spec
    would name them. Raise Refused with the first mistake, such as a path that leads out of
    `bounds`."""
    document = document_of(compose(text.encode(), what="a .dvc file"))
    if document.problems:
        raise Refused(document.problems[0])
    outs = document.data.get("outs") if isinstance(document.data, dict) else None
    if not isinstance(outs, list) or not outs:
        raise _refused(document, ("outs",), "names no outs, so it declares no data")
    found = []
    for number, out in enumerate(outs):
        item = _out(document, out, ("outs", number), name)
        path = os.path.normpath(folder / item.path)
        if os.path.isabs(item.path) or not Path(path).is_relative_to(bounds):
            message = f"{quoted(item.path)} leads out of the checkout"
            raise _refused(document, ("outs", number, "path"), message)
        found.append(item)
    return found


def _out(document: Document, out: Any, at: KeyPath, name: str) -> DataItem:
    """Return what one out of a `.dvc` file declares. Scalars are taken by their text: an md5 of
    digits alone is no number."""
    keys = out if isinstance(out, dict) else {}
    stated = {key: document.text((*at, key)) for key in keys}
    path = stated.get("path", "")
    md5 = stated.get("md5", "").lower()
    if not path:
        raise _refused(document, at, "an out without a path")
    if "md5" in stated and not (_MD5.fullmatch(md5) and stated.get("hash") == "md5"):
        # DVC 2, which wrote no `hash`, changed line ends before it took an md5
        raise _refused(
            document, (*at, "md5"), f"{quoted(md5)} is no md5 as DVC 3 takes it"
        )
    stated_at: KeyPath = (*at, "md5" if md5 else "path")
    line = document.values[stated_at].start_mark.line + 1
    size = keys.get("size")
    return DataItem(
        os.path.join(document.text(("wdir",)), path),
        md5=md5 or None,
        size=size if type(size) is int and size >= 0 else None,
        source=(for_terminal(name), line),
    )


def _refused(document: Document, at: KeyPath, message: str) -> Refused:
    return Refused(document.problem(at, message), remedy=_AGAIN)


MAX_DVC = 1 << 20  # bytes
DVC = ".dvc"  # how the names of declaration files end


def expand_items(
    items: Sequence[DataItem], spec_dir: Path, root: Path | None = None
) -> tuple[tuple[DataItem, ...], tuple[DataProblem, ...]]:
    """Return the items with every `.dvc` file replaced by what it declares, and what is wrong with
    the declarations.

    An item without a digest takes it from the `.dvc` file beside it. `root` is the checkout's; by
    default the nearest folder above the spec that holds `.git`, or the spec's own. Raises
    UsageError for an item whose path is none."""
    folder = Path(os.path.abspath(spec_dir))
    top = Path(os.path.abspath(root or checkout_of(folder / "-")))
    if not folder.is_relative_to(top):  # one of them went through a link
        folder = Path(os.path.realpath(folder))
        top = Path(os.path.realpath(top))
    found = list[DataItem]()
    problems = list[DataProblem]()
    for item in items:
        path = data_path(item, folder)
        name = item.path
        stands_for_others = (
            path.name.endswith(DVC) and path.name != DVC and not path.is_dir()
        )
        if not stands_for_others:
            path = path.with_name(path.name + DVC)
            name = item.path.rstrip("/") + DVC
        if item.sha256 or item.md5 or not (stands_for_others or path.is_file()):
            found.append(item)
            continue
        declared: list[DataItem] = []
        try:
            declared = _declared(path, name, top)
        except (Unreadable, Refused) as error:
            line = 0
            remedy = "restore the file, or take it out of the spec"
            if isinstance(error, Refused):
                line = error.problem.line or 1
                remedy = error.remedy or _AGAIN
            location = Location(for_terminal(name), line)
            problems.append(DataProblem(location, str(error), remedy))
        if not stands_for_others:
            here = data_path(item, folder)
            own = (one for one in declared if data_path(one, folder) == here)
            declared = [replace(next(own, item), path=item.path)]
        found += declared
    return tuple(found), tuple(problems)


def _declared(path: Path, name: str, top: Path) -> list[DataItem]:
    """Return what a `.dvc` file declares, relative to the spec, which calls it `name`. Raise
    Unreadable or Refused.

    Messages quote what is wrong with a file, so a link is not followed to a file that is not the
    checkout's; where the spec names one elsewhere, not to what is no `.dvc` file."""
    is_inside = path.is_relative_to(top)
    within = top if is_inside else Path("/")
    why = leads_out(path, within)
    if not why and not os.path.realpath(path).endswith(DVC):
        why = "is no `.dvc` file"
    if why:
        raise Unreadable(f"is a link to a file that {why}: it is not read")
    text = read_text(path, within, MAX_DVC)
    above = os.path.dirname(name)
    return [
        replace(item, path=os.path.normpath(os.path.join(above, item.path)))
        for item in _read_dvc(
            text, name, path.parent, top if is_inside else path.parent
        )
    ]
