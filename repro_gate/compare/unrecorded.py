"""What differs between two runs though nothing recorded does: printed numbers, files that nobody
declared, modules that no optimizer updates. A difference found here is a notice, never a failure.
Pure. What was printed and written is untrusted: each regular expression is linear in it.

Files differ by more than times, ids and the like. Printed numbers are `name: number` or
`name=number` at a line's end; a name with a word for a time, a speed, memory or an id is left out.
"""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from repro_gate.compare.traces import processes
from repro_gate.escape import for_terminal, listed
from repro_gate.spec.errors import few, shortened
from repro_gate.trace.model import Trace

_PAIRS = 3  # printed numbers in a notice
_FILES = 4  # files in a notice
# bytes of a text file that are kept for a look inside
MAX_TEXT = 64 * 1024
_TABLES = {
    ".csv": ",",
    ".tsv": "\t",
}
TEXTS = {*_TABLES, ".json", ".jsonl", ".ndjson", ".txt", ".yaml", ".yml", ".toml"}
TEXTS |= {".ini", ".md", ".html", ".xml", ".svg"}
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
NAMED = r"""([^\W\d][\w.@/-]{0,39})["']?\s?[:=]\s{0,9}["']?([+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:e[+-]?\d+)?|[+-]?(?:nan|inf)\b)"""  # noqa: E501
_NAMED = re.compile(NAMED, re.IGNORECASE)
_AT_THE_END = re.compile(rf"(?<!\w){NAMED}%?\Z", re.IGNORECASE)
_MAX_LINE = 2_000  # characters of one printed line, from its end
# a log line's beginning, up to the time of day
_STAMP = re.compile(r".*\d:\d\d\S*(?: \d{4}\b)?")
_FRACTION = re.compile(r"\b\d+\.\d+")
_MOVING = re.compile(
    r"""(?<![^\W_])(?:time|timestamp|date|created|clock|dt|elapsed|remaining|eta|duration|runtime
    |wall|latency|s|secs?|seconds?|ms|us|ns|mins?|minutes?|hours?|speed|throughput|[fst]ps|mfu
    |t?flops|bandwidth|memory|mem|v?ram|rss|allocated|reserved|utilization|[cg]pu|[gm]i?b|pid|port
    |host|hostname|address|uuid|id)(?![^\W_])""",
    re.IGNORECASE | re.VERBOSE,
)


def notices(a: Left, b: Left) -> dict[str, tuple[str, str]]:
    """Return id of a notice -> (message, remedy), at most one for files and one for the log."""
    notes: dict[str, tuple[str, str]] = {}
    cut = a.cut or b.cut
    names = differing_files(a, b)
    if names:
        message = (
            f"{len(names):,} undeclared files that the runs wrote differ: "
            f"{few(names, _FILES)}"
        )
        message += f" (looked at: {cut})" if cut else ""
        remedy = "declare under capture.artifacts what has to repeat"
        notes["unrecorded/files"] = message, remedy
    elif cut:
        message = f"not every file that the runs wrote was compared: {cut}"
        notes["unrecorded/files"] = message, ""
    pairs = [
        f"`{for_terminal(name)} {shortened(left)}` against `{shortened(right)}`"
        for name, left, right in differing_numbers(a.printed, b.printed)
    ]
    if pairs:
        notes["unrecorded/log"] = (
            f"printed numbers differ between the two deterministic runs: {listed(pairs, _PAIRS)}",
            "evaluate with a seeded sampler, or call repro_gate.record to compare it",
        )
    return notes


def differing_modules(a: Sequence[Trace], b: Sequence[Trace]) -> tuple[str, ...]:
    """Return the modules without an optimizer, and the attributes of modules, that differ. Of what
    goes by one name, as many must be there in both runs: what one has more of may be garbage that
    is not yet collected."""
    second = processes(b)
    differing: dict[str, None] = {}
    for label, trace in processes(a).items():
        theirs = _by_name(second.get(label))
        for name, digests in _by_name(trace).items():
            others = theirs[name]
            if len(others) == len(digests) and others != digests:
                differing[name] = None
    return tuple(differing)


def _by_name(trace: Trace | None) -> defaultdict[str, list[str]]:
    digests: defaultdict[str, list[str]] = defaultdict(list)
    for what, name, digest in sorted(trace.unmoved) if trace else ():
        optimizer = " (no optimizer)" if what == "module" else ""
        digests[f"{what} {name}{optimizer}"].append(digest)
    return digests


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
    left = _by_masked_name(a)
    right = _by_masked_name(b)
    differing = set[str]()
    for key in left.keys() | right.keys():
        ours = left[key]
        theirs = right[key]
        if (a.cut or b.cut) and not (ours and theirs):
            continue
        only_ours = Counter(ours.values()) - Counter(theirs.values())
        differing |= {name for name, content in ours.items() if only_ours[content]}
        more = max(len(theirs) - len(ours), 0)
        differing |= set(sorted(theirs.keys() - ours)[:more])
    return sorted(differing)


def _by_masked_name(left: Left) -> defaultdict[str, dict[str, str]]:
    """Return what is compared of each file, by its name without what moves, and its name."""
    grouped: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for name, item in left.files.items():
        if not ignored(name):
            grouped[_MOVING_NAME.sub("§", name)][name] = _steady(name, item)
    return grouped


def _steady(name: str, item: Written) -> str:
    """Return what is compared of a file: the digest, or of a text what is left without times and
    the like."""
    if item.text is None:
        return item.digest
    text = _MOVING_TEXT.sub("§", item.text.decode("utf-8", "backslashreplace"))
    separator = _TABLES.get(os.path.splitext(name)[1].lower())
    if separator is None:
        return _NAMED.sub(lambda match: match[1] if moves(match[1]) else match[0], text)
    rows = [line.split(separator) for line in text.splitlines()]
    moving = [at for at, cell in enumerate(rows[0] if rows else ()) if moves(cell)]
    for row in rows:
        for at in reversed(moving):
            del row[at : at + 1]
    return "\n".join(map(separator.join, rows))


def moves(name: str) -> bool:
    """Return whether a number of this name differs between any two runs."""
    return _MOVING.search(name) is not None


def differing_numbers(a: Iterable[str], b: Iterable[str]) -> list[tuple[str, str, str]]:
    """Return (name, first run's number, second run's) of what differs, each name once.

    Numbers belong together if their lines are the same up to the name, but for a time stamp at the
    beginning and fractions. Their order does not count, and numbers that only one run printed do
    not: logs are cut at their beginning, and some log by the clock.
    """
    left = _numbers(a)
    right = _numbers(b)
    differing: dict[str, tuple[str, str, str]] = {}
    for place, numbers in left.items():
        ours = numbers - right[place]
        theirs = right[place] - numbers
        if ours and theirs:
            name = place[1]
            differing.setdefault(name, (name, next(iter(ours)), next(iter(theirs))))
    return list(differing.values())


def _numbers(lines: Iterable[str]) -> defaultdict[tuple[str, str], Counter[str]]:
    """Return how often each number stands behind (what its line begins with, its name)."""
    counts: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for line in lines:
        text = line.strip()[-_MAX_LINE:]
        last = _AT_THE_END.search(text)
        if last and not moves(last[1]):
            before = text[: last.start()]
            stamp = _STAMP.match(before)
            place = _FRACTION.sub("", before[stamp.end() if stamp else 0 :])
            counts[place, last[1]][last[2]] += 1
    return counts
