"""Compare the numbers that two runs printed: `name: number` or `name=number` at a line's end. A
name with a word for a time, a speed, memory or an id is left out. The text is untrusted: each
regular expression is linear in it."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable

NAMED = r"""([^\W\d][\w.@/-]{0,39})["']?\s?[:=]\s{0,9}["']?([+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:e[+-]?\d+)?|[+-]?(?:nan|inf)\b)"""  # noqa: E501
_AT_THE_END = re.compile(rf"(?<!\w){NAMED}%?\Z", re.IGNORECASE)
_MAX_LINE = 2_000  # characters of one printed line, from its end
_STAMP = re.compile(r".*\d:\d\d\S*(?: \d{4}\b)?")  # a log line's beginning, up to the time of day
_FRACTION = re.compile(r"\b\d+\.\d+")
_MOVING = re.compile(
    r"""(?<![^\W_])(?:time|timestamp|date|created|clock|dt|elapsed|remaining|eta|duration|runtime
    |wall|latency|s|secs?|seconds?|ms|us|ns|mins?|minutes?|hours?|speed|throughput|[fst]ps|mfu
    |t?flops|bandwidth|memory|mem|v?ram|rss|allocated|reserved|utilization|[cg]pu|[gm]i?b|pid|port
    |host|hostname|address|uuid|id)(?![^\W_])""",
    re.IGNORECASE | re.VERBOSE,
)


def moves(name: str) -> bool:
    """Return whether a number of this name differs between any two runs."""
    return _MOVING.search(name) is not None


def differing_numbers(a: Iterable[str], b: Iterable[str]) -> list[tuple[str, str, str]]:
    """Return (name, first run's number, second run's) of what differs, each name once.

    Numbers belong together if their lines are the same up to the name, but for a time stamp at the
    beginning and fractions. Their order does not count, and numbers that only one run printed do
    not: logs are cut at their beginning, and some log by the clock.
    """
    left, right = _numbers(a), _numbers(b)
    found: dict[str, tuple[str, str, str]] = {}
    for place, numbers in left.items():
        ours, theirs = numbers - right[place], right[place] - numbers
        if ours and theirs:
            name = place[1]
            found.setdefault(name, (name, next(iter(ours)), next(iter(theirs))))
    return list(found.values())


def _numbers(lines: Iterable[str]) -> defaultdict[tuple[str, str], Counter[str]]:
    """Return how often each number stands behind (what its line begins with, its name)."""
    found: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for line in lines:
        text = line.strip()[-_MAX_LINE:]
        last = _AT_THE_END.search(text)
        if last and not moves(last[1]):
            before = text[: last.start()]
            stamp = _STAMP.match(before)
            place = _FRACTION.sub("", before[stamp.end() if stamp else 0 :])
            found[place, last[1]][last[2]] += 1
    return found
