"""Which files that two runs wrote and nobody declared differ by more than times, ids and the like.
What they hold is untrusted: each regular expression is linear in it."""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from repro_gate.compare.printed import NAMED, moves

# bytes of a text file that are kept for a look inside
MAX_TEXT = 64 * 1024
_TABLES = {".csv": ",", ".tsv": "\t"}
TEXTS = {
    *_TABLES,
    *(".json", ".jsonl", ".ndjson", ".txt", ".yaml", ".yml", ".toml", ".ini", ".md", ".html"),
    *(".xml", ".svg"),
}
_IGNORED = re.compile(
    r"""(?:^|/)(?:
    (?:__pycache__|wandb|mlruns|mlartifacts|torchinductor_[^/]*
      |\.(?:git|cache|triton|ipynb_checkpoints|(?:pytest|mypy|ruff)_cache|aim|neptune|comet))/
    |(?:[^/]*\.(?:pyc|pyo|lock|pid|log|out|err|nbi|nbc|trace\.json(?:\.gz)?)
      |events\.out\.tfevents\.[^/]*|\.nfs[^/]*|_repro_gate_[^/]*)\Z)""",
    re.VERBOSE,
)
# In a name: digits, hexadecimal ones too, and what stands between them in dates, times and ids.
_MOVING_NAME = re.compile(r"[\dA-Fa-f_.:T-]{6,}|\btmp\w{6,}")
# In a text: dates, times of day, UUIDs, addresses and absolute paths.
_MOVING_TEXT = re.compile(
    r"\b\d{2,4}[-/]\d\d[-/]\d{2,4}T?|\b\d{1,3}:\d\d(?::\d\d)?(?:[.,]\d+)?"
    r"|\b[\da-f]{8}(?:-[\da-f]{4}){3}-[\da-f]{12}\b|\b0x[\da-f]+|(?<![\w.)\]/~])/[A-Za-z_.][^\s'\",;:)\]]*"
)
_NAMED = re.compile(NAMED, re.IGNORECASE)


@dataclass(frozen=True)
class Written:
    """One file that a run made or changed: a digest of its bytes, and the bytes themselves where it
    is a short text."""

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
    """Return whether a file in the workspace cannot matter, or differs by nature: byte code,
    caches, logs, what experiment trackers write."""
    return _IGNORED.search(name) is not None


def differing_files(a: Left, b: Left) -> list[str]:
    """Return the names of the files that differ, sorted. Times and ids in names do not count; of a
    search that was cut, only files of both runs do."""
    left, right = _by_masked_name(a.files), _by_masked_name(b.files)
    found = set[str]()
    for key in left.keys() | right.keys():
        ours, theirs = left.get(key, {}), right.get(key, {})
        if (a.cut or b.cut) and not (ours and theirs):
            continue
        contents = {name: _steady(name, item) for name, item in ours.items()}
        only_ours = Counter(contents.values()) - Counter(
            _steady(name, item) for name, item in theirs.items()
        )
        found |= {name for name, content in contents.items() if only_ours[content]}
        if len(theirs) > len(ours):
            found |= set(sorted(theirs.keys() - ours)[: len(theirs) - len(ours)])
    return sorted(found)


def _by_masked_name(files: Mapping[str, Written]) -> dict[str, dict[str, Written]]:
    grouped: dict[str, dict[str, Written]] = defaultdict(dict)
    for name, item in files.items():
        if not ignored(name):
            grouped[_MOVING_NAME.sub("§", name)][name] = item
    return grouped


def _steady(name: str, item: Written) -> object:
    """Return what is compared of a file: the digest, or of a text what is left without times and
    the like."""
    if item.text is None:
        return item.digest
    text = _MOVING_TEXT.sub("§", item.text.decode("utf-8", "backslashreplace"))
    separator = _TABLES.get(os.path.splitext(name)[1].lower())
    if separator is None:
        return _NAMED.sub(lambda named: named[1] if moves(named[1]) else named[0], text)
    rows = [line.split(separator) for line in text.splitlines()]
    moving = {place for place, cell in enumerate(rows[0] if rows else ()) if moves(cell)}
    return tuple(
        tuple(cell for place, cell in enumerate(row) if place not in moving) for row in rows
    )
