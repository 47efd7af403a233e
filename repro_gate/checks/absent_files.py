"""Files that a crashed run did not find in its workspace and that lie in the checkout all the same, for only this machine has them.
 The end of a log is free text, so it is read narrowly: the last line of a traceback, or of
the dynamic loader, that says which file or module is not there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from repro_gate.checks.interface import Evidence
from repro_gate.checks.opened import declared_paths, in_workspace
from repro_gate.files import is_inside

_QUOTED = r"(?:'(?P<single>[^'\n]{1,1000})'|\"(?P<double>[^\"\n]{1,1000})\")"
_RANK = r"(?:\[rank\d{1,6}\]: )?"
_FILE = (  # each of a whole line
    re.compile(rf"{_RANK}[\w.]{{0,200}}(?:Error|Exception): (?:.{{0,200}}?)No such file or directory: {_QUOTED}(?: -> .*)?"),
    re.compile(rf"\S{{1,200}}: can't open file {_QUOTED}: \[Errno 2\] No such file or directory"),
    re.compile(rf"{_RANK}(?:OSError|ImportError): (?P<bare>\S{{1,1000}}): cannot open shared object file: No such file or directory"),
)
_MODULE = re.compile(rf"{_RANK}ModuleNotFoundError: No module named {_QUOTED}(?:; .*)?")
_FRAME = re.compile(r' {2}File "([^"\n]{1,1000})", line \d{1,9}')
_PARTS = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*){0,19}")
_LISTED = 2_000  # entries of a folder that are looked through for a compiled module


def files_of_this_machine(evidence: Evidence) -> dict[str, str]:
    """Path from the checkout's root -> the run that did not find it, of files that git neither tracks nor would copy, and no data declares.

    Empty without git: then everything was copied.
    """
    if evidence.checkout is None or evidence.tracked is None:
        return {}
    root = evidence.checkout.root
    known = (*declared_paths(evidence), *evidence.uncommitted, ".git")
    found: dict[str, str] = {}
    for run in evidence.runs:
        for path in _asked_for(run.ended.tail, evidence) if run.outcome == "crashed" else ():
            copied = path in evidence.tracked or any(path == item or path.startswith(item.rstrip("/") + "/") for item in known)
            if not copied and is_inside(root / path, root) and (root / path).is_file():
                found.setdefault(path, run.plan.name)
    return found


def _asked_for(tail: Sequence[str], evidence: Evidence) -> Iterator[str]:
    """Paths below the checkout's root that the lines name, whether they are there or not."""
    root = Path(os.path.realpath(evidence.checkout.root)) if evidence.checkout else Path()
    folder = Path(os.path.realpath(evidence.spec.path.parent)) / evidence.spec.train.working_directory
    places = dict.fromkeys((folder, *(root / os.path.dirname(path) for path in _own_frames(tail))))
    for line in tail:
        names = [_first(found) for pattern in _FILE if (found := pattern.fullmatch(line.strip()))]
        named = _MODULE.fullmatch(line.strip())
        paths = [root / own if (own := in_workspace(name)) != name else folder / name for name in names]
        paths += [path for place in places for path in _of_module(place, _first(named))] if named else []
        for path in paths:
            inside = os.path.relpath(os.path.normpath(path), root)
            if "\0" not in inside and inside != ".." and not inside.startswith("../"):
                yield inside


def _first(found: re.Match[str]) -> str:
    return next(value for value in found.groupdict().values() if value is not None)


def _own_frames(tail: Sequence[str]) -> Iterator[str]:
    """The workspace's files in the tracebacks, from its root: Python looks for modules beside the script."""
    for line in tail:
        found = _FRAME.match(line)
        if found and (own := in_workspace(found[1])) != found[1]:
            yield own


def _of_module(place: Path, name: str) -> Iterator[Path]:
    """Where a module would lie below a folder of `sys.path`: its source, its package, or compiled under any of its tags."""
    if not _PARTS.fullmatch(name):
        return
    *folders, last = name.split(".")
    folder = place.joinpath(*folders)
    yield folder / f"{last}.py"
    yield folder / last / "__init__.py"
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for _, entry in zip(range(_LISTED), entries, strict=False)]
    except OSError:
        return
    yield from (folder / item for item in sorted(names) if item.startswith(f"{last}.") and item.endswith(".so"))
