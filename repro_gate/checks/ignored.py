"""Finds files that only this checkout has: git ignores them, so no workspace and no clone has them.
If a crashed training names one, that is the likeliest cause of the crash.

A log that names a file that was not found proves it. But a training may only have asked whether a
folder exists, which nothing records, so the end of its log and its code are also searched for
paths. All of this is untrusted: it is read within limits, and the results are only shown.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from repro_gate.checkout.inspection import ignored_files
from repro_gate.checks.interface import Evidence
from repro_gate.checks.opened import SOURCE, declared_paths, is_source, opened
from repro_gate.files import Unreadable, is_below, is_inside, read_text
from repro_gate.runs.launch import RunResult
from repro_gate.runs.variation import FIRST, SECOND

_MOST = 3  # paths that are named
# the most files of the training's code that are read
_FILES = 50
_BYTES = 256 * 1024  # of each
_WORDS = 20_000  # of the log, the command and these files together
_READ = (*SOURCE, ".json")
_WORD = re.compile(r"[\"']([^\"'\n]{1,300})[\"']|([^\s\"'`()\[\]{},:;=<>|]{1,300})")
_NO_DATA = re.compile(
    r"(?:^|/)(?:\.[^/]*|__pycache__|node_modules|venv|[^/]*\.(?:pyc|egg-info|log))(?:/|$)"
)
_QUOTED = r"(?:'([^'\n]{1,1000})'|\"([^\"\n]{1,1000})\")"
_ABSENT = re.compile(  # a whole line that names a file that was not found
    rf"(?:\[rank\d{{1,6}}\]: )?[\w.]{{0,200}}(?:Error|Exception): .{{0,200}}?No such file or "
    rf"directory: {_QUOTED}"
    rf"(?:(?: -> |; ).*)?|\S{{1,200}}: can't open file {_QUOTED}: \[Errno 2\] No such file or "
    r"directory"
    r"|(?:OSError|ImportError): (\S{1,1000}): cannot open shared object file: No such file or "
    r"directory"
)
_WORKSPACE = re.compile(  # in the temporary folder of one gate run
    rf"^/(?:.*?/)?repro-gate-[^/]+/(?:[^/]+/){{0,2}}?(?:{FIRST.workspace}|{SECOND.workspace})/"
)


def files_of_this_machine(evidence: Evidence) -> dict[str, str]:
    """Return path from the checkout's root -> the crashed run that did not find it, for files that
    git does not track, that were not copied and that no data declares. Empty without git, since
    then everything was copied.

    A log is free text, so only whole lines of a traceback, of the interpreter or of the dynamic
    loader count."""
    absent: dict[str, str] = {}
    root = evidence.root
    copied = [*(evidence.tracked or ()), *evidence.checkout.uncommitted, ".git"]
    copied += declared_paths(evidence)
    for run in evidence.runs if evidence.tracked is not None else ():
        for line in run.ended.tail if run.outcome == "crashed" else ():
            match = _ABSENT.fullmatch(line.strip())
            name = match[match.lastindex or 0] if match else ""
            path = _from_root(name, evidence.working_directory, root)
            is_copied = not path or is_below(path, copied)
            if (
                not is_copied
                and is_inside(root / path, root)
                and (root / path).is_file()
            ):
                absent.setdefault(path, run.name)
    return absent


def ignored_data(evidence: Evidence) -> dict[str, str]:
    """Return path from the spec's folder -> where a crashed run names it (`train.py:12`), for
    git-ignored paths of the checkout; paths that the log names come first. Empty if a run ended
    well, or `code/pristine-workspace` names the absent files."""
    crashed = [run for run in evidence.runs if run.outcome == "crashed"]
    others = any(run.good for run in evidence.runs) or files_of_this_machine(evidence)
    if not crashed or evidence.tracked is None or others:
        return {}
    root = evidence.root
    names = (name.rstrip("/") for name in ignored_files(root, ("",)))
    ignored = [name for name in names if not _NO_DATA.search(name)]
    known = [*declared_paths(evidence)]
    places: dict[str, str] = {}
    for path, place in islice(_paths(evidence, crashed[0]), _WORDS):
        if (
            is_below(path, ignored)
            and not is_below(path, (*known, *places))
            and not is_source(path)
            and (root / path).exists()
            and is_inside(root / path, root)
        ):
            places[path] = place
    return {
        os.path.relpath(root / path, evidence.folder): place
        for path, place in islice(places.items(), _MOST)
    }


def _paths(evidence: Evidence, crashed: RunResult) -> Iterator[tuple[str, str]]:
    """Yield each path that log, command or code name (a quoted word, or one with a slash), relative
    to the checkout's root, and the place of the name."""
    root = evidence.root
    folder = evidence.working_directory
    command = evidence.spec.train.run or ""
    log = f"the log of {crashed.name}"
    lines = [(line, folder, log) for line in crashed.ended.tail]
    lines.append((command, folder, "train.run"))
    words = [_from_root(word, folder, root) for _, word in _WORD.findall(command)]
    ours = {*(evidence.tracked or ()), *evidence.checkout.uncommitted}
    code = [name for name in dict.fromkeys((*words, *opened(evidence))) if name in ours]
    for name in [name for name in code if name.endswith(_READ)][:_FILES]:
        with contextlib.suppress(Unreadable):
            text = read_text(root / name, root, _BYTES)
            for number, line in enumerate(text.splitlines(), 1):
                place = f"{name}:{number}"
                lines += [(line, folder, place), (line, (root / name).parent, place)]
    for line, base, place in lines:
        for quoted, word in _WORD.findall(line):
            path = _from_root((quoted or word).rstrip("."), base, root)
            if path and (quoted or "/" in word):
                yield path, place


def _from_root(name: str, folder: Path, root: Path) -> str:
    """Return a path that a run named, in its workspace or relative to `folder`, as a path relative
    to the checkout's root; empty if it is not below that root."""
    own = _WORKSPACE.sub("", name)
    path = os.path.relpath((folder if own == name else root) / own, root)
    is_outside = "\0" in path or path.split("/")[0] in (".", "..")
    return "" if is_outside or not name else path
