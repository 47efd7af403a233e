"""Why a varied run is not the same as the first: which of what was varied decides, and which line
was told of it.

An experiment is one run that is varied in some of it, cut off where the varied run had diverged,
and compared with the first run's traces. It starts none itself. What lines of the training were
told otherwise before that is tried first, what nobody asked for last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from repro_gate.diagnosis.model import Diagnosis, Exhausted, use_of
from repro_gate.diagnosis.suspects import remoteness
from repro_gate.escape import listed
from repro_gate.factors import BY_NAME, Cause
from repro_gate.trace.model import Used
from repro_gate.trace.notebook import place


@dataclass(frozen=True)
class Surrounding:
    """What is varied by one name: the cause that it is, what a line "depends on", what to write
    instead."""

    cause: Cause
    what: str
    remedy: str


_RELATIVE = "use paths relative to the checkout, and make no number of one"
_ARGUMENT = "take what has to matter from the command line or a file of the checkout"
_HASHES = (
    "sort what comes out of the set; or make the seed part of the recipe: `train.env: "
    '{PYTHONHASHSEED: "0"}`'
)
_THREADS = "set it: OMP_NUM_THREADS under train.env"
_TIMES = "make no number of a file's time; use its content"
_UMASK = "make no number of a file's permissions"
_VARIABLES = "ask for variables by their names"
# What decides most often first, where lines asked for several in the same way.
SURROUNDINGS = {
    "listing": Surrounding(
        "file-order",
        "the order in which a directory is listed",
        BY_NAME["listing"].remedy,
    ),
    "hash-seed": Surrounding(
        "hash-order", "the order of a set, which PYTHONHASHSEED decides", _HASHES
    ),
    "path": Surrounding("process-identity", "the path of the checkout", _RELATIVE),
    "hostname": Surrounding(
        "process-identity", "the host's name", BY_NAME["identity"].remedy
    ),
    "clock": Surrounding(
        "wall-clock", "the time of day and durations", BY_NAME["clock"].remedy
    ),
    "file-times": Surrounding("wall-clock", "the times of files", _TIMES),
    "tmpdir": Surrounding(
        "process-identity", "the path of the folder for temporary files", _RELATIVE
    ),
    "home": Surrounding("process-identity", "the path of HOME", _RELATIVE),
    "threads": Surrounding("thread-race", "the number of threads", _THREADS),
    "memory": Surrounding(
        "uninitialized-memory",
        "what memory holds before it is written",
        BY_NAME["memory"].remedy,
    ),
    "timezone": Surrounding("wall-clock", "the time zone", "read times in UTC"),
    "locale": Surrounding("external-input", "the locale", _ARGUMENT),
    "umask": Surrounding("process-identity", "the umask", _UMASK),
    "environment": Surrounding(
        "external-input", "the order of the environment", _VARIABLES
    ),
}
# What the uses of a name are called in a trace; none are seen of a hash seed.
_CALLED = {"hostname": "identity", "hash-seed": ""}
# no call need ask for them: `__file__`, the order of a set
_UNWATCHED = ("hash-seed", "path", "threads", "memory")
_HALVINGS = 4  # runs, at most, between all that was varied and what decides
_HOST = ("os.uname", "socket.gethostname", "socket.getfqdn", "platform.node")
_NAMED = 3  # names that a message holds
_USED_UP = "the runs or the time of the search were used up before it was known which"
_VARY_LESS = (
    "vary less under `robustness.vary` to find out, or "
    "let `repro-gate diagnose` take its time"
)


@dataclass(frozen=True)
class Outcome:
    """What one experiment showed: whether the run was another than the first, and what its lines
    were told, in order of execution."""

    differs: bool
    uses: tuple[Used, ...] = ()


def called(name: str) -> str:
    """Return what the uses of a varied name are called in a trace; empty if none are seen."""
    return _CALLED.get(name, name)


def diagnose(
    names: Sequence[str],
    until: int,
    where: str,
    run: Callable[[frozenset[str]], Outcome],
) -> Diagnosis | None:
    """Return by which of `names` the varied run diverged, up to step `until`; None where it was
    chance: varied in all of them again, a run is the same. `where` says where it did; `run` does
    one experiment, and raises Exhausted where no more may be done."""
    known: dict[frozenset[str], Outcome] = {}

    def outcome(varied: frozenset[str]) -> Outcome:
        if varied not in known:
            known[varied] = run(varied)
        return known[varied]

    try:
        unvaried = outcome(frozenset())
        if unvaried.differs:
            return _unknown(
                "a run that is varied in nothing is another one too: the training is not repeatable"
            )
        everything = outcome(frozenset(names))
        if not everything.differs:
            return None
        asked = {
            name: min(
                map(
                    remoteness,
                    differing(unvaried.uses, everything.uses, called(name), until),
                ),
                default=1 if name in _UNWATCHED else 3,
            )
            for name in names
        }
        # first what a call of the training itself asked for, then a library on its behalf, or what
        # needs no call; what nobody asked for comes last
        likeliest = sorted(
            names, key=lambda name: (asked[name], [*SURROUNDINGS].index(name))
        )
        found, shown = _halved(likeliest, lambda some: outcome(frozenset(some)).differs)
    except Exhausted:
        return _unknown(_USED_UP)
    varied = known.get(frozenset(found), everything)
    told = [
        _dependence(name, unvaried.uses, varied.uses, until, where) for name in found
    ]
    return told[0] if shown else _one_of(told)


def _halved(
    names: Sequence[str], differs: Callable[[Sequence[str]], bool]
) -> tuple[Sequence[str], bool]:
    """Return the one of `names` that a run differs by, or those of which it is one or several, and
    whether a run with it alone has shown it. The likeliest stands in front, and is tried alone
    before halves are."""
    left, size, found = names, 1, False
    among = False  # whether a run has shown that it is among those that are left
    with suppress(Exhausted):
        for _ in range(_HALVINGS):
            half = left[: max(size, 1)]
            found = differs(half)
            left, among = half if found else left[len(half) :], among or found
            if not left or (found and len(left) == 1):
                break
            size = len(left) // 2
    return (left, found and len(left) == 1) if among and left else (names, False)


def _one_of(left: Sequence[Diagnosis]) -> Diagnosis:
    """Return what is known where the search ended before: one of these, the likeliest first, or
    several of them."""
    lines = tuple(map(use_of, left))
    names = listed(
        [
            f"{item.factor} ({item.call} in {place(item.file, item.line)})"
            if item.file
            else item.factor
            for item in lines
        ],
        _NAMED,
    )
    first = left[0] if left[0].file else replace(_unknown(_USED_UP), remedy="")
    which = (
        f"it is one of these {len(left)}, or several of them, likeliest first: {names} ({_USED_UP})"
        if len(left) > 1
        else f"it is likely {names}, which was not varied alone"
    )
    message = f"repeatable, but not robust: {which}"
    remedy = "; or ".join(text for text in (first.remedy, _VARY_LESS) if text)
    return replace(
        first,
        message=message,
        confirmed=False,
        evidence=(),
        one_of=lines,
        remedy=remedy,
    )


def at_line(cause: Diagnosis, name: str, line: Used | None) -> Diagnosis:
    """Return what was found with the first line whose values differ when `name` is varied; as it
    was if there is none."""
    if line is None:
        return cause
    call, (file, number) = line.call or line.source, line.site
    depends = f"{call} in {place(file, number)} depends on {SURROUNDINGS[name].what}"
    message = f"repeatable, but not robust: {depends}"
    return replace(cause, call=call, file=file, line=number, message=message)


def _dependence(
    name: str, unvaried: Sequence[Used], varied: Sequence[Used], until: int, where: str
) -> Diagnosis:
    """Return that a run depends on what is varied by a name, at the first line that was told
    something else."""
    said = SURROUNDINGS[name]
    found = Diagnosis(
        cause=said.cause,
        factor=name,
        confirmed=True,
        message=f"repeatable, but not robust: the training depends on {said.what}",
        evidence=(
            f"confirmed: varied in {name} alone, a run diverges from the first {where}",
        ),
        remedy=said.remedy,
    )
    return at_line(
        found, name, next(iter(differing(unvaried, varied, called(name), until)), None)
    )


def differing(
    unvaried: Sequence[Used], varied: Sequence[Used], factor: str, until: int
) -> list[Used]:
    """Return the uses of a factor that were told something else in the varied run, in order of
    execution. Lines of the training that asked themselves come first, of those the ones that asked
    another number of times: a loop that waits for a time."""
    known = {_place(use): use for use in unvaried}
    told = [
        use
        for use in varied
        if use.factor == factor and use.step <= until and use.site[0]
    ]
    # a process number is another one in each run
    told = [use for use in told if factor != "identity" or use.source in _HOST]

    def last(use: Used) -> tuple[int, bool, int]:
        twin = known.get(_place(use))
        return remoteness(use), twin is None or twin.count == use.count, use.step

    return sorted(
        (
            use
            for use in told
            if getattr(known.get(_place(use)), "digest", "") != use.digest
        ),
        key=last,
    )


def _place(use: Used) -> tuple[object, ...]:
    return use.process, use.factor, use.source, use.site, use.step


def _unknown(why: str) -> Diagnosis:
    return Diagnosis(
        cause="unknown", message=f"repeatable, but not robust: {why}", remedy=_VARY_LESS
    )
