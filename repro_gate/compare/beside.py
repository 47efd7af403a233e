"""What lies beside a training that repeats: numbers that both runs printed, and files that both runs wrote and nobody declared. Pure
but for the clock: what is compared was written by untrusted code, so it has one deadline, and each regular expression is linear.

Clock times, durations, speeds, memory, paths, process ids and the like differ between any two runs and are left out; where it is not clear
what a number is, nothing is said. A difference found here is a notice, never a failure.
"""

from __future__ import annotations

import math
import os
import re
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from repro_gate.spec.errors import escaped, shortened

MAX_LINE = 2_000  # characters of one printed line that are looked at
MAX_TEXT = 64 * 1024  # bytes of a text file that are kept for a look inside; of a longer log its end
_SECONDS = 20.0  # for all notices together
_SHOWN = 3  # printed numbers in a notice
_NAMED = 4  # files or folders in a notice
_LABEL = 40  # characters of a number's name

_BAR = re.compile(r"\d%\||\bit \[\d\d:\d\d|\[\d\d:\d\d<|[━█▉▊▋▌▍▎▏╸╺]{3}|\[[=>.#-]{8,}\]|\baten::")
_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_CLOCK = re.compile(  # dates, times of day, durations with colons, time stamps; then addresses, versions, ids, URLs and paths
    r"""\b[IWEF]\d{4}\ \d\d:\d\d:\d\d\.\d+\s+\d+                               # glog: severity, date, time, thread
    | (?<![\d.])(?:19|20)\d\d([-_./]?)\d\d\1\d\d
      (?:[T\ _-]{0,3}\d\d[-_:.h]?\d\d(?:[-_:.m]?\d\d(?:[.,]\d+)?)?)?(?:Z|\s?[+-]\d\d:?\d\d)?(?![\d.])
    | (?<![\d.])\d{1,2}/\d{1,2}/\d{2,4}(?!\d)
    | (?:\b|(?<=_))(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*[ _.]?\d{1,2}(?!\d)
    | (?:\b\d{1,6}\ days?,\ )?(?<!\d)\d{1,3}:\d\d(?::\d\d)?(?:[.,]\d+)?(?![\d:])
    | (?<![\d.])\d\d([-_.])\d\d\2\d\d(?!\d)
    | (?<![^\W_])(?<!\.)1[5-9]\d{8}(?:\.\d+|\d{3,9})?(?![^\W_])
    | \b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b
    | \b\w+://\S+ | \b\d+(?:\.\d+){2,}\S* | \b0x[0-9a-fA-F]+ | \blocalhost:\d+
    | (?<![^\W_])(?<![.+-])(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{7,}(?:-[0-9a-f]{4,})*(?!\w) | \btmp\w{6,}
    | (?<![\w.)\]/])(?:~|\.{1,2})?/[A-Za-z_.][^\s'",;:)\]]*
    """,
    re.VERBOSE,
)
_NUMBER = re.compile(
    r"(?:(?<![\w.+/@#-])[+-]?|(?<=\d/))(?P<digits>\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|\b(?<![-/])-?(?:nan|inf)\b",
    re.IGNORECASE,
)
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_A-Za-z]+")
_CUT = re.compile(r"[,;|{}\t\n]")
_UNIT_AHEAD = re.compile(r"\((?:us|ms|s|secs?|seconds?|[KMG]i?B)\)")  # `time (ms) | forward: 1.2 | optimizer: 0.3`
_ATTACHED = re.compile(r"[^\W\d_]*(?:/[^\W\d_]+)?")
_UNIT = re.compile(
    r"""[^\W\d_]
    | \s?(?:µs|us|ns|ms|msecs?|s|secs?|seconds?|mins|minutes?|hrs?|hours?|days?|[kKMGT]i?B|bytes|[kKMGTP]?(?:FLOP|flop)s?|[MG]Hz|W|°?C
      |fps)\b(?!\s*[:=])
    | \s?[\w.]{0,20}\s?/\s?(?:s|secs?|seconds?|ms|min|minute|hr?|hour)\b
    | \s\w{1,20}\sper\s(?:sec|second|min|minute|hour)\b
    """,
    re.VERBOSE,
)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_VOLATILE = _words(
    """time times timing timings elapsed remaining eta duration durations runtime took takes wall walltime clock dt latency overhead sec
    secs second seconds ms msec milliseconds us usec ns
    mins minute minutes hour hours days speed throughput fps ips sps wps ups tps qps rps tgs
    mfu hfu flops tflops gflops bandwidth memory mem vram ram rss alloc allocated reserved cached usage util utilization utilisation cpu
    gpu gpus disk power watts temp pid ppid process tid thread port host hostname addr address uuid timestamp date fwd bwd forward backward
    gb mb kb gib mib free comm io loading preprocess postprocess inference"""
)
_VOLATILE_LAST = frozenset(("data", "in", "after", "s", "id"))  # `Data 0.012`, `done in 3.4`: only right before the number
_POSITION = _words("step steps iter iters iteration iterations it epoch epochs batch batches update updates round rank")
_TABLES = {".csv": ",", ".tsv": "\t"}
LOGS = frozenset((".log", ".out", ".err"))
TEXTS = LOGS | _TABLES.keys() | _words(".json .jsonl .ndjson .txt .yaml .yml .toml .ini .md .html .xml .svg")
_IGNORED_FOLDERS = _words(
    "__pycache__ .git .cache .triton .ipynb_checkpoints .pytest_cache .mypy_cache .ruff_cache wandb mlruns mlartifacts .aim .neptune .comet"
)
_IGNORED_FILE = re.compile(r".*\.(?:pyc|pyo|lock|pid|nbi|nbc|trace\.json(?:\.gz)?)|events\.out\.tfevents\..*|\.nfs.*|_repro_gate_.*")


@dataclass(frozen=True)
class Written:
    """One file that a run made or changed: a digest of its bytes, and the bytes themselves where it is a short text or the end of a log."""

    digest: str
    text: bytes | None = None


@dataclass(frozen=True)
class Beside:
    """What one run left beside its training: files by their path in the workspace, and the end of what it printed.

    `cut` says why not every file was looked at, where that is so.
    """

    files: Mapping[str, Written] = field(default_factory=dict)
    cut: str = ""
    printed: Sequence[str] = ()


class _Late(Exception):
    """The deadline of the notices has passed."""


def notices(a: Beside, b: Beside, seconds: float = _SECONDS) -> dict[str, tuple[str, str]]:
    """Id of a notice -> (message, remedy), at most one for files and one for the log. What takes longer than `seconds` is cut, and told."""
    found: dict[str, tuple[str, str]] = {}
    until = time.monotonic() + seconds
    late = f"what {seconds:g} s were enough for"
    numbers, log_cut = list[tuple[str, str, str]](), False
    try:
        numbers = differing_numbers(a.printed, b.printed, until)
    except _Late:
        log_cut = True
    names, files_cut = list[str](), a.cut or b.cut
    try:
        for name in _differing_files(a, b, until):
            names.append(name)
    except _Late:
        files_cut = late
    names = sorted(set(names))
    if names:
        many = (
            "1 file that the runs wrote differs and is" if len(names) == 1 else f"{len(names):,} files that the runs wrote differ and are"
        )
        cut = f" (looked at: {files_cut})" if files_cut else ""
        found["beside/files"] = (f"{many} not declared: {_folded(names)}{cut}", "declare under capture.artifacts what has to repeat")
    elif files_cut:
        found["beside/files"] = (f"not every file that the runs wrote was compared: {files_cut}", "")
    if numbers:
        shown = ", ".join(f"`{escaped(name)} {shortened(left)}` against `{shortened(right)}`" for name, left, right in numbers[:_SHOWN])
        more = f" and {len(numbers) - _SHOWN} more" if len(numbers) > _SHOWN else ""
        what = "a printed number differs" if len(numbers) == 1 else "printed numbers differ"
        message = f"{what} between the two deterministic runs: {shown}{more}"
        found["beside/log"] = (message, "evaluate with a seeded sampler, or call repro_gate.record to compare it")
    elif log_cut:
        found["beside/log"] = (f"not every printed number was compared: {late}", "")
    return found


def ignored(name: str) -> bool:
    """Whether a file in the workspace cannot matter, or differs by nature: byte code, caches, what experiment trackers write."""
    *folders, last = name.split("/")
    return any(part in _IGNORED_FOLDERS or part.startswith("torchinductor_") for part in folders) or bool(_IGNORED_FILE.fullmatch(last))


def differing_files(a: Beside, b: Beside) -> list[str]:
    """Names of the files that differ, sorted. Times and ids in names do not count; of a search that was cut, only files of both runs do."""
    return sorted(set(_differing_files(a, b, math.inf)))


def _differing_files(a: Beside, b: Beside, until: float) -> Iterator[str]:
    left, right = _by_masked_name(a.files, until), _by_masked_name(b.files, until)
    cut = bool(a.cut or b.cut)
    for key in left.keys() | right.keys():
        ours, theirs = left.get(key, {}), right.get(key, {})
        if cut and not (ours and theirs):
            continue
        if Counter(item.digest for item in ours.values()) == Counter(item.digest for item in theirs.values()):
            continue
        logs = [item.text for side in (ours, theirs) for name, item in side.items() if item.text is not None and _suffix(name) in LOGS]
        if len(ours) == len(theirs) == 1 and len(logs) == 2 and not differing_numbers(_rows(logs[0]), _rows(logs[1]), until):
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


def _in_time(until: float) -> None:
    if time.monotonic() >= until:
        raise _Late


def _by_masked_name(files: Mapping[str, Written], until: float) -> dict[str, dict[str, Written]]:
    grouped: dict[str, dict[str, Written]] = defaultdict(dict)
    for name, item in files.items():
        _in_time(until)
        if not ignored(name):
            grouped["/".join(_CLOCK.sub("§", part) for part in name.split("/"))][name] = item
    return grouped


def _contents(files: Mapping[str, Written], until: float) -> dict[str, object]:
    """What is compared of each file: the steady part of a text, else the digest."""
    found: dict[str, object] = {}
    for name, item in files.items():
        _in_time(until)
        found[name] = item.digest if item.text is None else steady(name, item.text)
    return found


def steady(name: str, data: bytes) -> object:
    """What is left of a text file's content when times, durations, speeds and the like are taken out."""
    text, suffix = data.decode("utf-8", "backslashreplace"), _suffix(name)
    if suffix in LOGS:
        return tuple(filter(None, map(_line, _rows(data))))
    if suffix in _TABLES:
        rows = [line.split(_TABLES[suffix]) for line in text.splitlines()]
        dropped = {place for place, cell in enumerate(rows[0] if rows else ()) if _kind(cell, True) == "volatile"}
        return tuple(tuple(_CLOCK.sub("§", cell) for place, cell in enumerate(row) if place not in dropped) for row in rows)
    masked = _CLOCK.sub("§", text)
    pieces, end = list[str](), 0
    for start, stop, kind, _ in _numbers(masked):
        pieces += [masked[end:start], "§" if kind == "volatile" else masked[start:stop]]
        end = stop
    return "".join(pieces) + masked[end:]


def _suffix(name: str) -> str:
    return os.path.splitext(name)[1].lower()


def _rows(data: bytes) -> list[str]:
    return data.decode("utf-8", "backslashreplace").replace("\r", "\n").splitlines()


def differing_numbers(a: Iterable[str], b: Iterable[str], until: float = math.inf) -> list[tuple[str, str, str]]:
    """(name, first run's, second run's) of printed numbers that differ, in the order of the first run, each name once.

    Lines are compared as two bags, so their order does not count; two lines belong together where they are the same but for numbers, and
    say the same step and epoch. A line that only one run printed is left out: logs are cut at their beginning, and some log by the clock.
    """
    left, right = _lines(a, until), _lines(b, until)
    only_left, only_right = Counter(left) - Counter(right), Counter(right) - Counter(left)
    waiting: dict[object, list[_Line]] = defaultdict(list)
    for line in right:
        if only_right[line] > 0:
            only_right[line] -= 1
            waiting[line.place].append(line)
    matched: list[tuple[_Line, _Line]] = []
    for line in reversed(left):  # from the end, where both logs are whole
        if only_left[line] > 0 and waiting[line.place]:
            only_left[line] -= 1
            matched.append((line, waiting[line.place].pop()))
    found: dict[str, tuple[str, str, str]] = {}
    for line, other in reversed(matched):
        for (name, ours), (_, theirs) in zip(line.values, other.values, strict=True):
            if ours != theirs:
                found.setdefault(name, (name, ours, theirs))
    return list(found.values())


@dataclass(frozen=True)
class _Line:
    """A printed line: the text without its numbers and the steps that it names (`place`), and the numbers that have to repeat."""

    place: tuple[str, ...]
    values: tuple[tuple[str, str], ...]


def _lines(printed: Iterable[str], until: float) -> list[_Line]:
    found: list[_Line] = []
    for text in printed:
        _in_time(until)
        line = _line(text)
        if line is not None:
            found.append(line)
    return found


def _line(text: str) -> _Line | None:
    """One printed line; None for a progress bar and for a line without a number that counts."""
    text = _ANSI.sub("", text[:MAX_LINE].replace("\b", " "))
    if _BAR.search(text):
        return None
    masked = _CLOCK.sub("§", text)
    template, positions, values, end = list[str](), list[str](), list[tuple[str, str]](), 0
    for start, stop, kind, label in _numbers(masked):
        template.append(masked[end:start])
        end = stop
        number = masked[start:stop]
        if kind == "position":
            positions.append(number)
        elif kind == "value":
            values.append((label, number))
    shape = " ".join("#".join([*template, masked[end:]]).split())
    return _Line((shape, *positions), tuple(values)) if values else None


def _numbers(text: str) -> Iterator[tuple[int, int, str, str]]:
    """(start, end, kind, name) of every number that stands for itself. Kinds: `volatile`, `position` (a step), `value`, `bare` (no name).

    A number without a word before it is of the last one's kind: `Time 0.123 (0.130)`, `[0.1, 0.2]`.
    """
    end, kind, name, unit_ahead = 0, "bare", "", False
    for found in _NUMBER.finditer(text):
        start, stop = found.span()
        *earlier, last = _CUT.split(text[end:start])
        label = next((part for part in (last, *reversed(earlier)) if _WORD.search(part)), "")
        unit_ahead = unit_ahead or any(part is not label and _UNIT_AHEAD.search(part) for part in earlier)
        whole = (found["digits"] or ".").replace(",", "").isdigit() and "e" not in found[0].lower()
        if label:
            kind, name = _kind(label, whole), _name(label)
        elif whole and kind == "bare" and text[stop : stop + 1] == "/":
            kind = "position"
        now = "volatile" if unit_ahead or _UNIT.match(text, stop) else "bare" if kind == "position" and not whole else kind
        yield start, stop, now, name
        attached = _ATTACHED.match(text, stop)
        end = attached.end() if attached else stop


def _kind(label: str, whole: bool) -> str:
    words = [word.lower() for word in _WORD.findall(label)]
    if not words:
        return "bare"
    if not _VOLATILE.isdisjoint(words) or words[-1] in _VOLATILE_LAST:
        return "volatile"
    if words[-1] in _POSITION:
        return "position" if whole else "volatile"
    return "value"


def _name(label: str) -> str:
    """The name of a number as the line spells it, without the punctuation around it."""
    return " ".join(re.sub(r"[^\w()@.-]+", " ", label).split()).strip("()[].- ")[-_LABEL:] or "?"


def _folded(names: Sequence[str]) -> str:
    """A few names; many are told as their folders with counts."""
    entries = list(names)
    if len(names) > _NAMED:
        groups: dict[str, list[str]] = defaultdict(list)
        for name in names:
            groups[name.split("/")[0] if "/" in name else name].append(name)
        entries = [
            members[0]
            if len(members) == 1
            else f"{os.path.commonpath([os.path.dirname(name) for name in members])}/ ({len(members):,} files)"
            for members in groups.values()
        ]
    more = f" and {len(entries) - _NAMED} more" if len(entries) > _NAMED else ""
    return ", ".join(shortened(escaped(entry)) for entry in entries[:_NAMED]) + more
