"""Which files that two runs wrote and nobody declared differ by more than times, ids and the like.
What they hold is untrusted."""

from __future__ import annotations

import math
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from repro_gate.compare.printed import (
    differing_numbers,
    in_time,
    kind_of,
    line_of,
    without_times,
    without_volatile,
    words,
)

# bytes of a text file that are kept for a look inside; of a longer log its end
MAX_TEXT = 64 * 1024
_TABLES = {".csv": ",", ".tsv": "\t"}
LOGS = frozenset((".log", ".out", ".err"))
TEXTS = (
    LOGS
    | _TABLES.keys()
    | words(".json .jsonl .ndjson .txt .yaml .yml .toml .ini .md .html .xml .svg")
)
_IGNORED_FOLDERS = words(
    "__pycache__ .git .cache .triton .ipynb_checkpoints .pytest_cache .mypy_cache .ruff_cache "
    "wandb mlruns mlartifacts .aim .neptune .comet"
)
_IGNORED_FILE = re.compile(
    r".*\.(?:pyc|pyo|lock|pid|nbi|nbc|trace\.json(?:\.gz)?)|events\.out\.tfevents\..*|\.nfs.*|_repro_gate_.*"
)


@dataclass(frozen=True)
class Written:
    """One file that a run made or changed: a digest of its bytes, and the bytes themselves where it
    is a short text or the end of a log."""

    digest: str
    text: bytes | None = None


@dataclass(frozen=True)
class Left:
    """What one run left that nothing compares: files by their path in the workspace, and the end of
    what it printed.

    `cut` says why not every file was looked at, where that is so.
    """

    files: Mapping[str, Written] = field(default_factory=dict)
    cut: str = ""
    printed: Sequence[str] = ()


def ignored(name: str) -> bool:
    """Whether a file in the workspace cannot matter, or differs by nature: byte code, caches, what
    experiment trackers write."""
    *folders, last = name.split("/")
    return any(
        part in _IGNORED_FOLDERS or part.startswith("torchinductor_") for part in folders
    ) or bool(_IGNORED_FILE.fullmatch(last))


def differing_files(a: Left, b: Left, until: float = math.inf) -> Iterator[str]:
    """Names of the files that differ. Times and ids in names do not count; of a search that was
    cut, only files of both runs do."""
    left, right = _by_masked_name(a.files, until), _by_masked_name(b.files, until)
    cut = bool(a.cut or b.cut)
    for key in left.keys() | right.keys():
        ours, theirs = left.get(key, {}), right.get(key, {})
        if cut and not (ours and theirs):
            continue
        if Counter(item.digest for item in ours.values()) == Counter(
            item.digest for item in theirs.values()
        ):
            continue
        logs = [
            item.text
            for side in (ours, theirs)
            for name, item in side.items()
            if item.text is not None and _suffix(name) in LOGS
        ]
        if (
            len(ours) == len(theirs) == 1
            and len(logs) == 2
            and not differing_numbers(_rows(logs[0]), _rows(logs[1]), until)
        ):
            continue
        first, second = _contents(ours, until), _contents(theirs, until)
        if Counter(first.values()) != Counter(second.values()):
            common = Counter(second.values())
            for name, content in first.items():
                if common[content]:
                    common[content] -= 1
                else:
                    yield name
            if len(first) < len(second):
                yield from sorted(set(second) - set(first))[: len(second) - len(first)]


def _by_masked_name(files: Mapping[str, Written], until: float) -> dict[str, dict[str, Written]]:
    grouped: dict[str, dict[str, Written]] = defaultdict(dict)
    for name, item in files.items():
        in_time(until)
        if not ignored(name):
            grouped["/".join(without_times(part) for part in name.split("/"))][name] = item
    return grouped


def _contents(files: Mapping[str, Written], until: float) -> dict[str, object]:
    """What is compared of each file: the steady part of a text, else the digest."""
    found: dict[str, object] = {}
    for name, item in files.items():
        in_time(until)
        found[name] = item.digest if item.text is None else steady(name, item.text)
    return found


def steady(name: str, data: bytes) -> object:
    """What is left of a text file's content when times, durations, speeds and the like are taken
    out."""
    text, suffix = data.decode("utf-8", "backslashreplace"), _suffix(name)
    if suffix in LOGS:
        return tuple(filter(None, map(line_of, _rows(data))))
    if suffix in _TABLES:
        rows = [line.split(_TABLES[suffix]) for line in text.splitlines()]
        dropped = {
            place
            for place, cell in enumerate(rows[0] if rows else ())
            if kind_of(cell, True) == "volatile"
        }
        return tuple(
            tuple(without_times(cell) for place, cell in enumerate(row) if place not in dropped)
            for row in rows
        )
    return without_volatile(text)


def _suffix(name: str) -> str:
    return os.path.splitext(name)[1].lower()


def _rows(data: bytes) -> list[str]:
    return data.decode("utf-8", "backslashreplace").replace("\r", "\n").splitlines()
