"""Finds files that only this checkout has: git ignores them, so no workspace and no clone has them.

A log that names a file that was not found proves that the training needs it. But a training may
only have asked whether a folder exists, which nothing records, so the end of its log and its code
are also searched for paths. All of this is untrusted: it is read within limits, and only shown.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from repro_gate.checkout.inspection import ignored_files
from repro_gate.checks.interface import Evidence
from repro_gate.checks.opened import SOURCE, declared_paths, is_source, opened, sought
from repro_gate.files import Unreadable, is_below, is_inside, read_text, walk
from repro_gate.runs.ending import NO_DETERMINISTIC, NOTHING_RECORDED
from repro_gate.runs.launch import RunResult
from repro_gate.runs.variation import FIRST, SECOND
from repro_gate.trace.fields import Location

_Places = dict[str, Location | None]
_MOST = 50  # paths that are named
MOST_COUNTED = 10_000  # files of a folder that are counted
# the most files of the training's code that are read
_FILES = 50
_BYTES = 256 * 1024  # of each
_WORDS = 20_000  # of the log, the command and these files together
_READ = (*SOURCE, ".json")
_WORD = re.compile(r"[\"']([^\"'\n]{1,300})[\"']|([^\s\"'`()\[\]{},:;=<>|]{1,300})")
_NO_DATA = re.compile(
    r"(?:^|/)(?:\.[^/]*|__pycache__|node_modules|venv|wandb|mlruns|lightning_logs|tb_logs"
    r"|[^/]*\.(?:pyc|egg-info|log))(?:/|$)"
)
# a line of code that names what the training writes
_OUTPUT = r"(?:out(?:puts?)?|results?|logs?|runs|checkpoints?|ckpts?|save\w*)"
_WRITES = re.compile(
    rf"{_OUTPUT}[_-]?(?:dir|path|file|folder|root)|[\"'](?:--|\.?/)*{_OUTPUT}[\"'/]"
    r"|\b(?:save\w*|make_?dirs?|mkdir|write\w*|to_csv|dump)\(|, *[\"'][wax]b?[\"']",
    re.IGNORECASE,
)
# exceptions that no data raises
_OF_CODE = ("ModuleNotFoundError", "ImportError", "SyntaxError", "NameError")
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
    """Return path from the checkout's root -> the crashed run that did not find it, for source that
    git does not track, that was not copied and that no data declares. Empty without git, since
    then everything was copied.

    A log is free text, so only whole lines of a traceback, of the interpreter or of the dynamic
    loader count."""
    absent = dict[str, str]()
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
                and is_source(path)
                and is_inside(root / path, root)
                and (root / path).is_file()
            ):
                absent.setdefault(path, run.name)
    return absent


@dataclass(frozen=True)
class Undeclared:
    """A git-ignored file that no data declares, or a folder with this number of them. `path` is
    relative to the spec's folder, a folder's ends in a slash; `place` is the line that names it."""

    path: str
    files: int = 1
    size: int = 0  # bytes
    place: Location | None = None


def undeclared_data(evidence: Evidence) -> tuple[Undeclared, ...]:
    """Return the data that git ignores and the runs lacked. If all runs crashed: what the log, the
    command or the code names. In any case: what the training looked for in vain, and what lies in
    a folder that it listed or read from. A folder is named whole unless code or declared data lies
    in it too."""
    good = any(run.good for run in evidence.runs)
    wanted = good or any(_wants_data(run) for run in evidence.runs)
    if evidence.tracked is None or not wanted or files_of_this_machine(evidence):
        return ()
    ignored = _ignored(evidence.root)
    if not ignored:
        return ()
    root = evidence.root
    code = _code(evidence)
    literals = _Places()
    for path, place in islice(_paths(evidence, code, with_log=not good), _WORDS):
        literals.setdefault(path, place)
    lacking = {} if good else dict(literals)
    kept = _code_places(evidence, code)
    for folder, place in _folders(evidence).items():
        has_code = _holds(folder, kept)
        for name in _entries(root, folder, ignored):
            if name in literals or not has_code:
                lacking.setdefault(name, place)
    for path, place in sought(evidence).items():
        lacking.setdefault(path, place)
    return _wholes(evidence, lacking, ignored, code)


def data_of_code(
    evidence: Evidence, modules: Sequence[str]
) -> tuple[tuple[Undeclared, ...], tuple[Undeclared, ...]]:
    """Return, before any run, the git-ignored data that the command and the code of these files
    name, and what else git ignores beside what a training writes."""
    ignored = _ignored(evidence.root) if evidence.tracked is not None else []
    if not ignored:
        return (), ()
    code = [*dict.fromkeys((*_code(evidence), *modules))]
    named = _Places()
    words = set()
    for path, place in islice(_paths(evidence, code, with_log=False), _WORDS):
        named.setdefault(path, place)
        words |= {*path.split("/")}
    for name in ignored:
        # such as `os.path.join("data", dataset)`, each part a word of its own
        if (folder := os.path.dirname(name)) and words.issuperset(folder.split("/")):
            named.setdefault(name, None)
    found = _wholes(evidence, named, ignored, code)
    others = (name for name in ignored if not _WRITES.search(f"'{name}'"))
    rest = _wholes(evidence, dict.fromkeys(others), ignored, code)
    paths = [item.path.rstrip("/") for item in found]
    return found, tuple(
        item for item in rest if not is_below(item.path.rstrip("/"), paths)
    )


def _ignored(root: Path) -> list[str]:
    """Return the paths that git ignores and that may be data; a folder may stand for all in it."""
    names = (name.rstrip("/") for name in ignored_files(root, ("",)))
    return [name for name in names if not (_NO_DATA.search(name) or is_source(name))]


def _code_places(evidence: Evidence, code: Iterable[str]) -> list[str]:
    """Return what no link to data may replace: source, the spec's folder and where it starts."""
    own = map(os.path.realpath, (evidence.folder, evidence.working_directory))
    return [
        *filter(is_source, code),
        *(os.path.relpath(it, evidence.root) for it in own),
    ]


def _wholes(
    evidence: Evidence, lacking: _Places, ignored: Sequence[str], code: Iterable[str]
) -> tuple[Undeclared, ...]:
    """Return what is to be declared for these paths, each in the largest folder that may be."""
    root = evidence.root
    declared = [*declared_paths(evidence)]
    shared = (*_code_places(evidence, code), *declared)
    units = _Places()
    for path, place in lacking.items():
        is_known = is_below(path, declared) or is_source(path)
        is_there = is_inside((root / path).parent, root) and (root / path).exists()
        if is_there and not is_known and is_below(path, ignored):
            folder = path if (root / path).is_dir() else os.path.dirname(path)
            units.setdefault(path if _holds(folder, shared) else folder, place)
    found = (
        _undeclared(evidence, unit, ignored, place)
        for unit, place in units.items()
        if not is_below(os.path.dirname(unit), units)  # named by the one above it
    )
    return tuple(islice(found, _MOST))


def _wants_data(run: RunResult) -> bool:
    """Return whether a run may have ended as it did for want of data."""
    is_crash = run.outcome == "crashed" and run.reason_id != NO_DETERMINISTIC
    is_of_code = is_crash and str(run.raised).startswith(_OF_CODE)
    return (is_crash and not is_of_code) or run.reason_id == NOTHING_RECORDED


def _holds(folder: str, paths: Iterable[str]) -> bool:
    """Return whether one of the paths is a folder or lies below it; the root holds all."""
    return not folder or any(is_below(path, [folder]) for path in paths)


def _undeclared(
    evidence: Evidence, unit: str, ignored: Sequence[str], place: Location | None
) -> Undeclared:
    """Return what is to be declared, with the number of its files that git ignores."""
    whole = evidence.root / unit
    path = os.path.relpath(whole, evidence.folder)
    if not whole.is_dir():
        return Undeclared(path, 1, whole.stat().st_size, place)
    near = [
        name for name in ignored if is_below(name, [unit]) or is_below(unit, [name])
    ]
    count = size = 0
    with contextlib.suppress(OSError):
        for name in islice(walk(whole), 2 * MOST_COUNTED):
            if not name.endswith("/") and is_below(f"{unit}/{name}", near):
                count += 1
                size += os.lstat(whole / name).st_size
    return Undeclared(f"{path}/", count, size, place)


def _folders(evidence: Evidence) -> _Places:
    """Return the folders that the training listed or read data from, with the line that did."""
    root = evidence.root
    folders = {
        path: place
        for path, place in sought(evidence).items()
        if (root / path).is_dir()
    }
    data = {path: item.by for path, item in opened(evidence).items() if item.inside}
    files = (path for path in declared_paths(evidence) if (root / path).is_file())
    for path, by in (*data.items(), *((path, None) for path in files)):
        if not is_source(path):
            folders.setdefault(os.path.dirname(path), by)
    return folders


def _entries(root: Path, folder: str, ignored: Sequence[str]) -> list[str]:
    """Return what git ignores directly in a folder."""
    if not is_below(folder, ignored):
        return [name for name in ignored if os.path.dirname(name) == folder]
    with contextlib.suppress(OSError):
        names = sorted(os.listdir(root / folder))[:MOST_COUNTED]
        return [name for it in names if not _NO_DATA.search(name := f"{folder}/{it}")]
    return []


def _code(evidence: Evidence) -> list[str]:
    """Return the files of source and settings that the command names or the runs opened."""
    ours = {*(evidence.tracked or ()), *evidence.checkout.uncommitted}
    words = _WORD.findall(evidence.spec.train.run or "")
    folder = evidence.working_directory
    paths = [_from_root(word, folder, evidence.root) for _, word in words]
    names = dict.fromkeys((*paths, *opened(evidence)))
    return [name for name in names if name in ours and name.endswith(_READ)]


def _paths(
    evidence: Evidence, code: Sequence[str], *, with_log: bool
) -> Iterator[tuple[str, Location | None]]:
    """Yield each path that log, command or code name (a quoted word, or one with a slash), relative
    to the checkout's root, and the place of the name."""
    root = evidence.root
    folder = evidence.working_directory
    lines = list[tuple[str, Path, Location | None]]()
    for run in evidence.runs if with_log else ():
        lines += [(line, folder, None) for line in run.ended.tail]
    lines.append((evidence.spec.train.run or "", folder, None))
    for name in code[:_FILES]:
        with contextlib.suppress(Unreadable):
            text = read_text(root / name, root, _BYTES)
            for number, line in enumerate(text.splitlines(), 1):
                if not _WRITES.search(line):
                    at = Location(name, number)
                    lines += [
                        (line, base, at) for base in (folder, (root / name).parent)
                    ]
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
