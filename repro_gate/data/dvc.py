"""`.dvc` files as declarations of data: the paths, md5 and sizes of their `outs`.
 The format is DVC's own (dvc/schema.py, dvc/output.py); an md5 without `hash: md5` beside it is one that DVC
took before its version 3, of text with its line ends turned into LF. YAML is read by the spec's reader, with its limits. No I/O.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from repro_gate.data.stated import MAX_ITEMS, Fault, Stated, is_digest_name, quoted, wrong_digest
from repro_gate.data.tree import dvc_listing_md5
from repro_gate.spec.document import Document, parse
from repro_gate.spec.errors import KeyPath, Refused

_AGAIN = "let DVC write it again: `dvc add` the data, or `dvc commit`"


@dataclass
class _Reading:
    """One `.dvc` file under way."""

    document: Document
    faults: list[Fault] = field(default_factory=list)

    def fault(self, at: KeyPath, message: str, remedy: str = _AGAIN, kind: str = "declaration") -> None:
        self.faults.append(Fault(self.line(at), message, remedy, kind))

    def line(self, at: KeyPath) -> int:
        place = self.document.keys.get(at) or self.document.values.get(at)
        return (place.line if place is not None else None) or 1

    def text(self, at: KeyPath) -> str:
        """The literal text of a scalar: an md5 of digits alone is not a number. Empty where there is none."""
        return self.document.literals.get(at, "")


def read_dvc(text: str) -> tuple[list[Stated], list[Fault]]:
    """What a `.dvc` file states about each of its outs, and what is wrong with it."""
    try:
        reading = _Reading(parse(text))
    except Refused as refused:
        return [], [Fault(refused.problem.line or 1, f"cannot be read: {_plain(refused.problem.message)}", _AGAIN)]
    reading.faults += [
        Fault(problem.line or 1, f"{problem.key}: {_plain(problem.message)}", _AGAIN) for problem in reading.document.problems
    ]
    data = reading.document.data
    outs = data.get("outs") if isinstance(data, dict) else None
    if not isinstance(outs, list) or not outs:
        reading.fault(("outs",), "names no outs, so it declares no data")
        return [], reading.faults
    if len(outs) > MAX_ITEMS:
        reading.fault(("outs",), f"has more than {MAX_ITEMS:,} outs", "declare the folder that holds them")
        return [], reading.faults
    folder = reading.text(("wdir",)) or "."
    return list(_outs(outs, folder, reading)), reading.faults


def _outs(outs: list[Any], folder: str, reading: _Reading) -> Iterator[Stated]:
    for number, out in enumerate(outs):
        at: KeyPath = ("outs", number)
        path = reading.text((*at, "path"))
        if not isinstance(out, dict) or not path:
            reading.fault(at, "an out without a path")
        elif re.match(r"[a-zA-Z][a-zA-Z0-9+.-]*://", path):
            reading.fault(
                (*at, "path"), f"{quoted(path)} is not on this machine, so it cannot be verified", "fetch it and declare the copy"
            )
        else:
            yield _out(out, at, os.path.join(folder, path), reading)


def _out(out: dict[str, Any], at: KeyPath, path: str, reading: _Reading) -> Stated:
    line = reading.line((*at, "md5")) if "md5" in out else reading.line((*at, "path"))
    hash_name = reading.text((*at, "hash")) if "hash" in out else None
    if hash_name not in (None, "md5"):
        reading.fault((*at, "hash"), f"`hash: {quoted(hash_name)}` is unknown here, wanted `md5`", kind="digest")
        return Stated(path, line, size=_size(out))
    md5 = _md5(reading, (*at, "md5"), folders=True) if "md5" in out else _listed(out, at, reading)
    if md5 is None and "md5" not in out:
        for name in out:
            if name != "hash" and is_digest_name(name):
                message = f"{quoted(path)} has only `{quoted(name)}`, which its store made and nobody can recompute"
                reading.fault((*at, name), message, "state its sha256 in the spec")
    return Stated(path, line, md5=md5, legacy=hash_name is None, size=_size(out))


def _md5(reading: _Reading, at: KeyPath, *, folders: bool) -> str | None:
    text = reading.text(at).lower()
    digits = text.removesuffix(".dir") if folders else text
    wrong = wrong_digest("md5", digits)
    if wrong:
        reading.fault(at, wrong, kind="digest")
    return None if wrong else text


def _listed(out: dict[str, Any], at: KeyPath, reading: _Reading) -> str | None:
    """The md5 of a folder whose files are listed one by one (`files:`, as a store with versions has it): that of the same listing."""
    files = out.get("files")
    if not isinstance(files, list):
        return None
    listed: dict[str, str] = {}
    for number, entry in enumerate(files):
        here = (*at, "files", number)
        name = reading.text((*here, "relpath"))
        if not isinstance(entry, dict) or not name or "md5" not in entry:
            reading.fault(here, "a file of a listing without `relpath` and `md5`")
            return None
        md5 = _md5(reading, (*here, "md5"), folders=False)
        if md5 is None:
            return None
        listed[name] = md5
    return dvc_listing_md5(sorted(listed.items()))


def _size(out: dict[str, Any]) -> tuple[int, int] | None:
    size = out.get("size")
    return (size, size) if isinstance(size, int) and not isinstance(size, bool) and size >= 0 else None


def _plain(message: str) -> str:
    """The reader's sentence without what it says about specs."""
    return message.partition(", a spec is")[0]
