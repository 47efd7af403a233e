"""`.dvc` files: entries of `data:` that stand for the files that they declare, as DVC 3 writes them
(dvc/schema.py and dvc/output.py of DVC). Of each, path and md5 are read.

They come from an untrusted checkout: limits on size, depth and count, no path out of the checkout,
every fault a problem with its line.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from repro_gate.data.declared import data_path
from repro_gate.escape import for_terminal
from repro_gate.files import Unreadable, leads_out, read_whole
from repro_gate.spec.document import Document, compose, document_of
from repro_gate.spec.errors import KeyPath, Refused
from repro_gate.spec.loader import checkout_of
from repro_gate.spec.model import DataItem
from repro_gate.spec.schema import quoted
from repro_gate.trace.fields import Location

DVC = ".dvc"  # how the names of these files end
MAX_DVC = 1 << 20  # bytes
_MD5 = re.compile(r"[0-9a-fA-F]{32}(?:\.dir)?")
_AGAIN = "`dvc add` the data anew, or, if DVC 2 wrote this, run `dvc cache migrate --dvc-files`"


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
    these files. `root` is the checkout's; by default the nearest folder above the spec that holds
    `.git`, or the spec's own."""
    folder = spec_dir
    top = root or checkout_of(folder / "-")
    if not folder.is_relative_to(top):  # one of them went through a link
        folder = folder.resolve()
        top = top.resolve()
    expanded = list[DataItem]()
    problems = list[DataProblem]()
    for item in items:
        path = data_path(item, folder)
        if path.suffix != DVC or path.is_dir():
            expanded.append(item)
            continue
        line = 0
        try:
            expanded += _declared(path, item.path, top)
            continue
        except Unreadable as error:
            message = str(error)
            remedy = "restore the file, or take it out of the spec"
        except Refused as error:
            message = str(error)
            remedy = _AGAIN
            line = error.problem.line or 1
        location = Location(for_terminal(item.path), line)
        problems.append(DataProblem(location, message, remedy))
    return tuple(expanded), tuple(problems)


def _declared(path: Path, name: str, top: Path) -> list[DataItem]:
    """Return what a `.dvc` file declares, relative to the spec, which calls it `name`. Raise
    Unreadable or Refused, with the first mistake.

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
    return list(_outs(document, path, name, top if is_inside else path.parent))


def _outs(
    document: Document, path: Path, name: str, bounds: Path
) -> Iterator[DataItem]:
    """Yield the outs of the `.dvc` file at `path`, which must lie within `bounds`. Scalars are
    taken by their text: an md5 of digits alone is no number."""
    outs = [at for at in document.values if at[:1] == ("outs",) and len(at) == 2]
    if not outs:
        raise _refused(document, ("outs",), "names no outs, so it declares no data")
    for at in outs:
        out = document.text((*at, "path"))
        md5 = document.text((*at, "md5"))
        if not out:
            raise _refused(document, at, "an out without a path")
        # DVC 2, which wrote no `hash`, changed line ends before it took an md5.
        is_known = _MD5.fullmatch(md5) and document.text((*at, "hash")) == "md5"
        if (*at, "md5") in document.values and not is_known:
            message = f"{quoted(md5)} is no md5 as DVC 3 takes it"
            raise _refused(document, (*at, "md5"), message)
        out = os.path.join(document.text(("wdir",)), out)
        target = Path(os.path.normpath(path.parent / out))
        if os.path.isabs(out) or not target.is_relative_to(bounds):
            message = f"{quoted(out)} leads out of the checkout"
            raise _refused(document, (*at, "path"), message)
        stated: KeyPath = (*at, "md5" if md5 else "path")
        line = document.values[stated].start_mark.line + 1
        yield DataItem(
            os.path.normpath(os.path.join(os.path.dirname(name), out)),
            md5=md5.lower() or None,
            source=(for_terminal(name), line),
        )


def _refused(document: Document, at: KeyPath, message: str) -> Refused:
    return Refused(document.problem(at, message))
