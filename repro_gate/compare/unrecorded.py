"""What differs between two runs though nothing recorded does: printed numbers, files that nobody
declared, modules that no optimizer updates. A difference found here is a notice, never a failure.
Pure. What was printed and written is untrusted: each regular expression is linear in it.

One grammar (`_PAIR`) finds numbers with a name, in printed lines and in files; a name with a word
for a time, a speed, memory or an id is left out. `tests/compare/test_unrecorded.py` has the cases.
"""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import translate

from repro_gate.compare.distances import Traces
from repro_gate.compare.traces import processes
from repro_gate.escape import counted, for_terminal, listed
from repro_gate.spec.errors import few, shortened
from repro_gate.trace.model import Trace

_PAIRS = 3  # printed numbers in a notice
_FILES = 4  # files in a notice
# bytes of a text file that are kept for a look inside
MAX_TEXT = 64 * 1024
_TABLES = {".csv": ",", ".tsv": "\t"}
TEXTS = {*_TABLES, ".json", ".jsonl", ".ndjson", ".txt", ".yaml", ".yml", ".toml"}
TEXTS |= {".ini", ".md", ".html", ".xml", ".svg"}
# files and folders (`/`) that cannot matter, or differ by nature
_IGNORED = """
    __pycache__/ .git/ .cache/ .triton/ .ipynb_checkpoints/ .pytest_cache/ .mypy_cache/ .ruff_cache/
    torchinductor_*/ wandb/ mlruns/ mlartifacts/ .aim/ .neptune/ .comet/ _repro_gate_* .nfs*
    events.out.tfevents.* *.trace.json *.trace.json.gz *.pyc *.pyo *.nbi *.nbc *.lock *.pid *.log
    *.out *.err
"""
_IGNORE = re.compile("|".join(map(translate, _IGNORED.split())))
# In a file's name: digits, hexadecimal ones too, and what stands between them in dates, times, ids.
_MOVING_NAME = re.compile(r"[\dA-Fa-f_.:T-]{6,}|\btmp\w{6,}")
# In a text: dates, times of day, UUIDs, addresses and absolute paths.
_MOVING_TEXT = re.compile(
    r"\b\d{2,4}[-/]\d\d[-/]\d{2,4}T?|\b\d{1,3}:\d\d(?::\d\d)?(?:[.,]\d+)?"
    r"|\b[\da-f]{8}(?:-[\da-f]{4}){3}-[\da-f]{12}\b|\b0x[\da-f]+|(?<![\w.)\]/~])/[A-Za-z_.][^\s'\",;:)\]]*"
)
# a log line's beginning, up to the time of day
_STAMP = re.compile(r"\A.*\d:\d\d\S*(?: \d{4}\b)?")
_FRACTION = re.compile(r"\b\d+\.\d+(?:e[+-]?\d+)?")
# The grammar of a named number: `name: 0.5`, `name=0.5`, `name 0.5`, `"name": tensor(0.5)`.
_PAIR = re.compile(
    r"""(?<!\w)(?P<quote>["'])?(?P<name>[^\W\d](?:[\w.@/-]|(?(quote)\ |(?!))){0,39})
    (?(quote)(?P=quote)\s?:\s{0,9}|(?:\s?[:=]\s{0,9}|(?P<bare>\s{1,9})))["']?
    (?P<in>[\w.]{1,20}\()?
    (?P<number>[+-]?(?:(?:\d+(?:\.\d*)?|\.\d+)(?:e[+-]?\d+)?|(?:nan|inf(?:inity)?)\b))
    (?(in)[^()]{0,60}\))(?P<unit>[a-zµ/]{1,9})?%?["']?(?![\w.])""",
    re.IGNORECASE | re.VERBOSE,
)
_BETWEEN = " \t,;|"  # two pairs of a line
# words before a number that are no name of it
_NO_NAME = re.compile(
    r"a|after|and|are|at|by|for|from|in|is|of|on|or|than|the|to|took|until|was|with",
    re.IGNORECASE,
)
_COUNTER = re.compile(
    r"(?:^|[_/ ])(?:step|epoch|iter(?:ation)?|batch)s?\Z", re.IGNORECASE
)
_MOVING = re.compile(
    r"""(?<![^\W_])(?:time|timestamp|date|created|clock|dt|elapsed|remaining|eta|duration|runtime
    |wall|latency|s|secs?|seconds?|ms|us|ns|mins?|minutes?|hours?|speed|throughput|[fst]ps|mfu
    |t?flops|bandwidth|memory|mem|v?ram|rss|allocated|reserved|utilization|[cg]pu|[gm]i?b|pid|port
    |process|thread|host|hostname|address|uuid|id)(?![^\W_])""",
    re.IGNORECASE | re.VERBOSE,
)
_MAX_LINE = 2_000  # characters of one printed line, from its end


def notices(a: Left, b: Left) -> dict[str, tuple[str, str]]:
    """Return id of a notice -> (message, remedy), at most one for files and one for the log."""
    notes = {}
    cut = a.cut or b.cut
    names = differing_files(a, b)
    if names:
        message = (
            f"{counted(len(names), 'undeclared file', 'differ')} between the runs: "
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


def differing_modules(a: Traces, b: Traces) -> tuple[str, ...]:
    """Return the modules without an optimizer, and the attributes of modules, that differ. Of what
    goes by one name, as many must be there in both runs: what one has more of may be garbage that
    is not yet collected."""
    second = processes(b)
    differing = dict[str, None]()
    for label, trace in processes(a).items():
        theirs = _by_name(second.get(label))
        for name, digests in _by_name(trace).items():
            others = theirs[name]
            if len(others) == len(digests) and others != digests:
                differing[name] = None
    return tuple(differing)


def _by_name(trace: Trace | None) -> defaultdict[str, list[str]]:
    digests = defaultdict(list)
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
    *folders, file = name.split("/")
    return any(map(_IGNORE.match, [file, *(f"{folder}/" for folder in folders)]))


def differing_files(a: Left, b: Left) -> list[str]:
    """Return the names of the files that differ, sorted. Times and ids in names do not count; of a
    search that was cut, only files of both runs do."""
    left = _by_masked_name(a)
    right = _by_masked_name(b)
    differing = set()
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
    grouped = defaultdict[str, dict[str, str]](dict)
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
        return _PAIR.sub(lambda pair: pair["name" if moves(pair["name"]) else 0], text)
    rows = [line.split(separator) for line in text.splitlines()]
    moving = {at for at, cell in enumerate(rows[0] if rows else ()) if moves(cell)}
    return repr([[c for at, c in enumerate(row) if at not in moving] for row in rows])


def moves(name: str) -> bool:
    """Return whether a number of this name differs between any two runs."""
    return _MOVING.search(name) is not None


def differing_numbers(a: Iterable[str], b: Iterable[str]) -> list[tuple[str, str, str]]:
    """Return (name, first run's number, second run's) of what differs, each name once.

    Numbers belong together if their lines are the same but for named numbers (counters such as
    `step` stay), fractions, and times and the like. Their order does not count, and numbers that
    only one run printed do not: logs are cut at their beginning, and some log by the clock.
    """
    left = _numbers(a)
    right = _numbers(b)
    differing = dict[str, tuple[str, str, str]]()
    for place, numbers in left.items():
        ours = numbers - right[place]
        theirs = right[place] - numbers
        if ours and theirs:
            name = place[1]
            differing.setdefault(name, (name, next(iter(ours)), next(iter(theirs))))
    return list(differing.values())


def named_numbers(line: str) -> list[tuple[str, str]]:
    """Return (name, number) of each number that a printed line names, in their order.

    The entries of a dictionary or of a JSON object: `{'loss': 0.41, "epoch": 1.0}`. And at the
    line's end pairs beside each other: `name: number`, `name=number`, `name number` as `print`
    writes it; before the last pair, a number without `:` or `=` has a fraction. A number may be
    wrapped, `tensor(0.5)`, and a percentage; one with another unit is none.
    """
    return [(pair["name"], pair["number"]) for pair in _pairs(line) if not pair["unit"]]


def _pairs(line: str) -> list[re.Match[str]]:
    """Return where a line names its numbers, those with a unit too."""
    pairs = list[re.Match[str]]()
    end = len(line)
    for pair in reversed([*_PAIR.finditer(line)]):
        is_last = not line[pair.end() : end].strip(_BETWEEN)
        bare = pair["bare"] and (
            _NO_NAME.fullmatch(pair["name"]) or (pairs and pair["number"].isdigit())
        )
        if pair["quote"] or (is_last and not bare):
            pairs.append(pair)
            end = pair.start()
    return pairs[::-1]


def _numbers(lines: Iterable[str]) -> defaultdict[tuple[str, str], Counter[str]]:
    """Return how often each number is printed, by what its line is without it, and its name.
    Counters, such as `step`, are a part of the line."""
    counts = defaultdict[tuple[str, str], Counter[str]](Counter)
    for line in lines:
        text = place = line.strip()[-_MAX_LINE:]
        named = _pairs(text)
        pairs = [item for item in named if not _COUNTER.search(item["name"])]
        for pair in reversed(pairs):
            place = place[: pair.start("number")] + place[pair.end("number") :]
        head = named[0].start() if named else 0
        place = _STAMP.sub("", place[:head]) + place[head:]
        place = _FRACTION.sub("", _MOVING_TEXT.sub("", place))
        for pair in pairs:
            if not pair["unit"] and not moves(pair["name"]):
                counts[place, pair["name"]][pair["number"]] += 1
    return counts
