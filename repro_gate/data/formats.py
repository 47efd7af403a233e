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
from repro_gate.escape import and_more
from repro_gate.files import Unreadable, leads_out, read_text
from repro_gate.spec.document import Document, compose, document_of
from repro_gate.spec.errors import KeyPath, Refused, escaped
from repro_gate.spec.loader import checkout_of
from repro_gate.spec.model import DataItem
from repro_gate.spec.schema import quoted
from repro_gate.trace.fields import Location

MAX_SAID = 10  # of what is wrong in one file; the rest is counted

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


def read_dvc(text: str, name: str, folder: Path, bounds: Path) -> list[DataItem]:
    """What a `.dvc` file in `folder`, called `name` in messages, declares: paths as the spec would
    name them. Raises Refused with all that is wrong, also for a path that leads out of
    `bounds`."""
    document = document_of(compose(text.encode(), what="a .dvc file"))
    problems = list(document.problems)
    outs = document.data.get("outs") if isinstance(document.data, dict) else None
    if not isinstance(outs, list) or not outs:
        outs = []
        message = "names no outs, so it declares no data"
        problems.append(document.problem(("outs",), message))
    found = []
    for number, out in enumerate(outs):
        try:
            item = _out(document, out, ("outs", number), name)
            if os.path.isabs(item.path) or not _inside(folder / item.path, bounds):
                at = ("outs", number, "path")
                raise _refused(document, at, f"{quoted(item.path)} leads out of the checkout")
            found.append(item)
        except Refused as refused:
            problems.append(refused.problem)
    if problems:
        said = [f"line {one.line}: {one.message}" for one in problems[1:MAX_SAID]]
        said += [and_more(len(problems) - MAX_SAID)] if len(problems) > MAX_SAID else []
        message = "; ".join([problems[0].message, *said])
        raise Refused(replace(problems[0], message=message), remedy=_AGAIN)
    return found


def _out(document: Document, out: Any, at: KeyPath, name: str) -> DataItem:
    """One out of a `.dvc` file. Scalars are taken by their text: an md5 of digits alone is no
    number."""
    keys = out if isinstance(out, dict) else {}
    stated = {key: document.text((*at, key)) for key in keys}
    path, md5 = stated.get("path", ""), stated.get("md5", "").lower()
    if not path:
        raise _refused(document, at, "an out without a path")
    stated_at: KeyPath = (*at, "md5" if md5 else "path")
    line = document.values[stated_at].start_mark.line + 1
    if "md5" in stated and not (_MD5.fullmatch(md5) and stated.get("hash") == "md5"):
        # DVC 2, which wrote no `hash`, changed line ends before it took an md5
        raise _refused(document, (*at, "md5"), f"{quoted(md5)} is no md5 as DVC 3 takes it")
    whole = os.path.join(document.text(("wdir",)), path)
    size = keys.get("size")
    return DataItem(
        whole,
        md5=md5 or None,
        size=size if type(size) is int and size >= 0 else None,
        source=(escaped(name), line),
    )


def _inside(path: Path, bounds: Path) -> bool:
    return Path(os.path.normpath(path)).is_relative_to(bounds)


def _refused(document: Document, at: KeyPath, message: str) -> Refused:
    return Refused(document.problem(at, message))


MAX_DVC = 1 << 20  # bytes
DVC = ".dvc"  # how the names of declaration files end


def expand_items(
    items: Sequence[DataItem], spec_dir: Path, root: Path | None = None
) -> tuple[tuple[DataItem, ...], tuple[DataProblem, ...]]:
    """The items with every `.dvc` file replaced by what it declares, and what is wrong with the
    declarations.

    An item without a digest takes it from the `.dvc` file beside it. `root` is the checkout's; by
    default the nearest folder above the spec that holds `.git`, or the spec's own. Raises
    UsageError for an item whose path is none.
    """
    folder = Path(os.path.abspath(spec_dir))
    top = Path(os.path.abspath(root or checkout_of(folder / "-")))
    if not folder.is_relative_to(top):  # one of them went through a link
        folder, top = Path(os.path.realpath(folder)), Path(os.path.realpath(top))
    found, problems = list[DataItem](), list[DataProblem]()
    for item in items:
        path, name = data_path(item, folder), item.path
        stands_for_others = path.name.endswith(DVC) and path.name != DVC and not path.is_dir()
        if not stands_for_others:
            path, name = path.with_name(path.name + DVC), item.path.rstrip("/") + DVC
        if item.sha256 or item.md5 or not (stands_for_others or path.is_file()):
            found.append(item)
            continue
        try:
            declared = _declared(path, name, top)
        except (Unreadable, Refused) as error:
            line = (error.problem.line or 1) if isinstance(error, Refused) else 0
            remedy = "restore the file, or take it out of the spec"
            remedy = error.remedy or remedy if isinstance(error, Refused) else remedy
            problems.append(DataProblem(Location(escaped(name), line), str(error), remedy))
            declared = []
        own = [one for one in declared if data_path(one, folder) == data_path(item, folder)]
        if stands_for_others:
            found += declared
        else:
            found.append(replace(own[0], path=item.path) if own else item)
    return tuple(found), tuple(problems)


def _declared(path: Path, name: str, top: Path) -> list[DataItem]:
    """What a `.dvc` file declares, relative to the spec, which calls it `name`. Raises Unreadable
    or Refused.

    Messages quote what is wrong with a file, so a link is not followed to a file that is not the
    checkout's; where the spec names one elsewhere, not to what is no `.dvc` file.
    """
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
        for item in read_dvc(text, name, path.parent, top if is_inside else path.parent)
    ]
