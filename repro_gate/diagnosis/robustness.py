"""Finds why a varied run differs from the first: which varied thing decides, and which line read
it.

An experiment is one run that varies some of the names, is cut off where the varied run diverged,
and is compared with the first run's traces. This module starts no run itself. Names that gave lines
of the training different answers are tried first, names that nobody read last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

from repro_gate.diagnosis.experiments import Exhausted, smallest
from repro_gate.diagnosis.model import Diagnosis, use_of
from repro_gate.diagnosis.suspects import remoteness
from repro_gate.escape import listed, quoted
from repro_gate.factors import BY_NAME, Cause
from repro_gate.trace.model import Used
from repro_gate.trace.notebook import place


@dataclass(frozen=True)
class Surrounding:
    """What one name of `robustness.vary` varies: its cause, the words after "depends on", and the
    remedy. `condition` is what must stay the same, if it differs between two shells of one user; it
    is empty if it differs only between users or machines."""

    cause: Cause
    what: str
    remedy: str
    condition: str = ""


_RELATIVE = "use paths relative to the checkout, and make no number of one"
# The most frequent cause first: this order decides if lines read several names equally directly.
SURROUNDINGS = {
    "listing": Surrounding(
        "file-order",
        "the order in which a directory is listed",
        BY_NAME["listing"].remedy,
        "the same order of listings",
    ),
    "hash-seed": Surrounding(
        "hash-order",
        "the order of a set, which PYTHONHASHSEED decides",
        "sort what comes out of the set; or make the seed part of the recipe: `train.env: "
        '{PYTHONHASHSEED: "0"}`',
        "PYTHONHASHSEED={message}",
    ),
    "path": Surrounding(
        "process-identity",
        "the path of the checkout",
        _RELATIVE,
        "the same path of the checkout",
    ),
    "hostname": Surrounding(
        "process-identity", "the host's name", BY_NAME["identity"].remedy
    ),
    "clock": Surrounding(
        "wall-clock",
        "the time of day and durations",
        BY_NAME["clock"].remedy,
        "the same time of day and durations",
    ),
    "file-times": Surrounding(
        "wall-clock",
        "the times of files",
        "make no number of a file's time; use its content",
        "the same times of files",
    ),
    "tmpdir": Surrounding(
        "process-identity", "the path of the folder for temporary files", _RELATIVE
    ),
    "home": Surrounding("process-identity", "the path of HOME", _RELATIVE),
    "threads": Surrounding(
        "thread-race",
        "the number of threads",
        "set it: OMP_NUM_THREADS under train.env",
    ),
    "memory": Surrounding(
        "uninitialized-memory",
        "what memory holds before it is written",
        BY_NAME["memory"].remedy,
        "the same bytes in memory that nothing has written",
    ),
    "timezone": Surrounding("wall-clock", "the time zone", "read times in UTC"),
    "locale": Surrounding(
        "external-input",
        "the locale",
        "take what has to matter from the command line or a file of the checkout",
    ),
    "umask": Surrounding(
        "process-identity", "the umask", "make no number of a file's permissions"
    ),
    "environment": Surrounding(
        "external-input",
        "the order of the environment",
        "ask for variables by their names",
    ),
}
_ORDER = [*SURROUNDINGS]
# What the uses of a name are called in a trace; none are seen of a hash seed.
_CALLED = {"hostname": "identity", "hash-seed": ""}
# no call need ask for them: `__file__`, the order of a set
_UNWATCHED = ("hash-seed", "path", "threads", "memory")
_NOT_ROBUST = "repeatable, but not robust:"
_HOST = ("os.uname", "socket.gethostname", "platform.node")
_PLACE = attrgetter("process", "factor", "source", "site", "step")
_NAMED = 3  # names that a message holds
_USED_UP = "the search used up its runs or its time before it knew which"
_VARY_LESS = (
    "vary less under `robustness.vary` to find out, or "
    "let `repro-gate run --only diagnosis` take its time"
)


@dataclass(frozen=True)
class Outcome:
    """The result of one experiment: whether the run differs from the first, and its uses in order
    of execution."""

    differs: bool
    uses: tuple[Used, ...] = ()


def called(name: str) -> str:
    """Return the name in a trace of the uses of a varied name; empty if its uses cannot be
    watched."""
    return _CALLED.get(name, name)


def conditions_of(dependence: Diagnosis) -> list[str]:
    """Return what must stay the same for two runs to agree; empty if two shells of one user do not
    differ in all of it. If the search ended early, any of it may be enough."""
    proven = (dependence, *dependence.also)
    names = [item.factor or "" for item in dependence.one_of or proven]
    words = [SURROUNDINGS[name].condition for name in names if name in SURROUNDINGS]
    is_needed = dependence.one_of or all(words)
    return [*filter(None, words)] if is_needed else []


def diagnose(
    names: Sequence[str],
    until: int,
    where: str,
    outcome: Callable[[frozenset[str]], Outcome],
) -> Diagnosis | None:
    """Return which of `names` made the varied run diverge, up to step `until`. None if it was
    chance: a run that varies nothing differs too, or another that varies all of them does not.
    `where` is the place of the divergence. `outcome` does an experiment once; it raises Exhausted
    if no more may be done, but never in the first two."""
    unvaried = outcome(frozenset())
    if unvaried.differs:
        return None
    all_varied = outcome(frozenset(names))
    if not all_varied.differs:
        return None

    def readers(name: str, varied: Outcome) -> list[Used]:
        return differing(unvaried.uses, varied.uses, called(name), until)

    def rank(name: str) -> tuple[int, int]:
        """Return a rank: names that the training's own calls read come first, then those that a
        library read or that need no call, last those that nobody read."""
        uses = readers(name, all_varied)
        nobody = 1 if name in _UNWATCHED else 3
        return min(map(remoteness, uses), default=nobody), _ORDER.index(name)

    likeliest = sorted(names, key=rank)
    try:
        found, is_smallest = smallest(likeliest, lambda some: outcome(some).differs)
    except Exhausted:
        found = tuple(likeliest)
        is_smallest = False
    both = " and ".join(found)
    proof = f"confirmed: with only {both} varied, a run diverges from the first {where}"
    varied = outcome(frozenset(found))
    causes = []
    for name in found:
        surrounding = SURROUNDINGS[name]
        cause = Diagnosis(
            cause=surrounding.cause,
            factor=name,
            confirmed=True,
            message=f"{_NOT_ROBUST} the training depends on {surrounding.what}",
            evidence=(proof,),
            remedy=surrounding.remedy,
        )
        causes.append(at_line(cause, next(iter(readers(name, varied)), None)))
    if not is_smallest:
        return _one_of(causes)
    others = "".join(f", and on {SURROUNDINGS[name].what}" for name in found[1:])
    first = causes[0]
    return replace(first, message=first.message + others, also=tuple(causes[1:]))


def _one_of(causes: Sequence[Diagnosis]) -> Diagnosis:
    """Return the diagnosis of a search that ended too early: one of these or several of them,
    likeliest first."""
    lines = tuple(map(use_of, causes))
    names = []
    for item in lines:
        at = (
            f" ({quoted(item.call)} in {place(item.file, item.line)})"
            if item.file
            else ""
        )
        names.append(item.factor + at)
    first = causes[0] if causes[0].file else Diagnosis(cause="unknown")
    return replace(
        first,
        message=f"{_NOT_ROBUST} it is one of these {len(lines)}, or several of them, likeliest "
        f"first: {listed(names, _NAMED)} ({_USED_UP})",
        confirmed=False,
        evidence=(),
        one_of=lines,
        remedy="; or ".join(filter(None, (first.remedy, _VARY_LESS))),
    )


def at_line(cause: Diagnosis, line: Used | None) -> Diagnosis:
    """Return the cause at `line`, the first line whose values differ when its factor is varied;
    unchanged if there is no line."""
    if line is None:
        return cause
    call = line.call or line.source
    file, number = line.site
    what = SURROUNDINGS[cause.factor or ""].what
    message = f"{_NOT_ROBUST} {quoted(call)} in {place(file, number)} depends on {what}"
    return replace(cause, call=call, file=file, line=number, message=message)


def differing(
    unvaried: Sequence[Used], varied: Sequence[Used], factor: str, until: int
) -> list[Used]:
    """Return the uses of a factor whose answers differ in the varied run. Direct uses by lines of
    the training come first, among these the ones that were called a different number of times (a
    loop that waits for a time); then in order of execution."""
    twins = {_PLACE(use): use for use in unvaried}
    found = []
    for use in varied:
        twin = twins.get(_PLACE(use))
        if use.factor != factor or use.step > until or not use.site[0]:
            continue
        # A process number differs in every run.
        if factor == "identity" and use.source not in _HOST:
            continue
        if twin is None or twin.digest != use.digest:
            found.append(use)

    def rank(use: Used) -> tuple[object, ...]:
        return remoteness(use), twins.get(_PLACE(use), use).count == use.count, use.step

    return sorted(found, key=rank)
