"""Numbers that two runs printed and that differ, but for what differs between any two runs: clock
times, durations, speeds, memory, ids. Where it is not clear what a number is, nothing is said. The
text is untrusted: it has a deadline, and each regular expression is linear."""

from __future__ import annotations

import math
import re
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

MAX_LINE = 2_000  # characters of one printed line that are looked at
_LABEL = 40  # characters of a number's name
_DAYS = 3 * 86_400  # seconds

_BAR = re.compile(r"\d%\||\bit \[\d\d:\d\d|\[\d\d:\d\d<|[━█▉▊▋▌▍▎▏╸╺]{3}|\[[=>.#-]{8,}\]|\baten::")
_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
# dates, times of day, durations with colons, time stamps; then addresses, versions, ids, URLs and
# paths
_CLOCK = re.compile(
    r"""\b[IWEF]\d{4}\ \d\d:\d\d:\d\d\.\d+\s+\d+                               # glog: severity, date, time, thread
    | (?<![\d.])(?:19|20)\d\d([-_./]?)\d\d\1\d\d
      (?:[T\ _-]{0,3}\d\d[-_:.h]?\d\d(?:[-_:.m]?\d\d(?:[.,]\d+)?)?)?(?:Z|\s?[+-]\d\d:?\d\d)?(?![\d.])
    | (?<![\d.])\d{1,2}/\d{1,2}/\d{2,4}(?!\d)
    | (?:\b|(?<=_))(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*[ _.]?\d{1,2}(?!\d)
    | (?:\b\d{1,6}\ days?,\ )?(?<!\d)\d{1,3}:\d\d(?::\d\d)?(?:[.,]\d+)?(?![\d:])
    | (?<![\d.])\d\d([-_.])\d\d\2\d\d(?!\d)
    | (?<![^\W_])(?<!\.)(?P<epoch>[1-9]\d{9}(?:\.\d+|\d{3,9})?)(?![^\W_])    # seconds since 1970, and parts of seconds: of these days
    | \b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b
    | \b\w+://\S+ | \b\d+(?:\.\d+){2,}\S* | \b0x[0-9a-fA-F]+ | \blocalhost:\d+
    | (?<![^\W_])(?<![.+-])(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{7,}(?:-[0-9a-f]{4,})*(?!\w) | \btmp\w{6,}
    | (?<![\w.)\]/])(?:~|\.{1,2})?/[A-Za-z_.][^\s'",;:)\]]*
    """,  # noqa: E501
    re.VERBOSE,
)
_NUMBER = re.compile(
    r"(?:(?<![\w.+/@#-])[+-]?|(?<=\d/))(?P<digits>\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|\b(?<![-/])-?(?:nan|inf)\b",
    re.IGNORECASE,
)
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_A-Za-z]+")
_CUT = re.compile(r"[,;|{}\t\n]")
# `time (ms) | forward: 1.2 | optimizer: 0.3`
_UNIT_AHEAD = re.compile(r"\((?:us|ms|s|secs?|seconds?|[KMG]i?B)\)")
_ATTACHED = re.compile(r"[^\W\d_]*(?:/[^\W\d_]+)?")
_UNIT = re.compile(
    r"""[^\W\d_]
    | \s?(?:µs|us|ns|ms|msecs?|s|secs?|seconds?|mins|minutes?|hrs?|hours?|days?|[kKMGT]i?B|bytes|[kKMGTP]?(?:FLOP|flop)s?|[MG]Hz|W|°?C
      |fps)\b(?!\s*[:=])
    | \s?[\w.]{0,20}\s?/\s?(?:s|secs?|seconds?|ms|min|minute|hr?|hour)\b
    | \s\w{1,20}\sper\s(?:sec|second|min|minute|hour)\b
    """,  # noqa: E501
    re.VERBOSE,
)


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_VOLATILE = words(
    """time times timing timings elapsed remaining eta duration durations runtime took takes wall walltime clock dt latency overhead sec
    secs second seconds ms msec milliseconds us usec ns
    mins minute minutes hour hours days speed throughput fps ips sps wps ups tps qps rps tgs
    mfu hfu flops tflops gflops bandwidth memory mem vram ram rss alloc allocated reserved cached usage util utilization utilisation cpu
    gpu gpus disk power watts temp pid ppid process tid thread port host hostname addr address uuid timestamp date fwd bwd forward backward
    gb mb kb gib mib free comm io loading preprocess postprocess inference"""  # noqa: E501
)
# `Data 0.012`, `done in 3.4`: only right before the number
_VOLATILE_LAST = frozenset(("data", "in", "after", "s", "id"))
_POSITION = words(
    "step steps iter iters iteration iterations it epoch epochs batch batches update updates round "
    "rank"
)


class Late(Exception):
    """The deadline of a comparison has passed."""


def in_time(until: float) -> None:
    """Raises Late after the deadline, in seconds of the monotonic clock."""
    if time.monotonic() >= until:
        raise Late


def differing_numbers(
    a: Iterable[str], b: Iterable[str], until: float = math.inf
) -> list[tuple[str, str, str]]:
    """(name, first run's, second run's) of printed numbers that differ, in the order of the first
    run, each name once.

    Lines are compared as two bags, so their order does not count; two lines belong together where
    they are the same but for numbers, and say the same step and epoch. A line that only one run
    printed is left out: logs are cut at their beginning, and some log by the clock.
    """
    left, right = _lines(a, until), _lines(b, until)
    only_left, only_right = Counter(left) - Counter(right), Counter(right) - Counter(left)
    waiting: dict[object, list[Line]] = defaultdict(list)
    for line in right:
        if only_right[line] > 0:
            only_right[line] -= 1
            waiting[line.key].append(line)
    matched: list[tuple[Line, Line]] = []
    for line in reversed(left):  # from the end, where both logs are whole
        if only_left[line] > 0 and waiting[line.key]:
            only_left[line] -= 1
            matched.append((line, waiting[line.key].pop()))
    found: dict[str, tuple[str, str, str]] = {}
    for line, other in reversed(matched):
        for (name, ours), (_, theirs) in zip(line.values, other.values, strict=True):
            if ours != theirs:
                found.setdefault(name, (name, ours, theirs))
    return list(found.values())


@dataclass(frozen=True)
class Line:
    """A printed line: the text without its numbers and the steps that it names (`key`), and the
    numbers that have to repeat."""

    key: tuple[str, ...]
    values: tuple[tuple[str, str], ...]


def without_volatile(text: str) -> str:
    """A text whose clock times, durations, speeds and the like are replaced by one sign."""
    masked = without_times(text)
    pieces, end = list[str](), 0
    for start, stop, kind, _ in _numbers(masked):
        pieces += [masked[end:start], "§" if kind == "volatile" else masked[start:stop]]
        end = stop
    return "".join(pieces) + masked[end:]


def without_times(text: str) -> str:
    """A text whose dates, times, addresses, ids and paths are replaced by one sign."""
    return _CLOCK.sub(
        lambda found: found[0] if found["epoch"] and not _of_these_days(found["epoch"]) else "§",
        text,
    )


def _of_these_days(digits: str) -> bool:
    """Whether a number can be a time that a run just read, also where the clock was varied; any
    other large number is a number."""
    return abs(int(digits[:10]) - time.time()) < _DAYS


def _lines(printed: Iterable[str], until: float) -> list[Line]:
    found: list[Line] = []
    for text in printed:
        in_time(until)
        line = line_of(text)
        if line is not None:
            found.append(line)
    return found


def line_of(text: str) -> Line | None:
    """One printed line; None for a progress bar and for a line without a number that counts."""
    text = _ANSI.sub("", text[:MAX_LINE].replace("\b", " "))
    if _BAR.search(text):
        return None
    masked = without_times(text)
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
    return Line((shape, *positions), tuple(values)) if values else None


def _numbers(text: str) -> Iterator[tuple[int, int, str, str]]:
    """(start, end, kind, name) of every number that stands for itself. Kinds: `volatile`,
    `position` (a step), `value`, `bare` (no name).

    A number without a word before it is of the last one's kind: `Time 0.123 (0.130)`, `[0.1, 0.2]`.
    """
    end, kind, name, unit_ahead = 0, "bare", "", False
    for found in _NUMBER.finditer(text):
        start, stop = found.span()
        *earlier, last = _CUT.split(text[end:start])
        label = next((part for part in (last, *reversed(earlier)) if _WORD.search(part)), "")
        unit_ahead = unit_ahead or any(
            part is not label and _UNIT_AHEAD.search(part) for part in earlier
        )
        whole = (found["digits"] or ".").replace(",", "").isdigit() and "e" not in found[0].lower()
        if label:
            kind, name = kind_of(label, whole), _name(label)
        elif whole and kind == "bare" and text[stop : stop + 1] == "/":
            kind = "position"
        now = (
            "volatile"
            if unit_ahead or _UNIT.match(text, stop)
            else "bare"
            if kind == "position" and not whole
            else kind
        )
        yield start, stop, now, name
        attached = _ATTACHED.match(text, stop)
        end = attached.end() if attached else stop


def kind_of(label: str, whole: bool) -> str:
    """Of what kind the number behind a label is: `bare`, `volatile`, `position` or `value`."""
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
