"""Why a varied run is not the same as the first: which of what was varied decides, and which line was told of it.

An experiment is one run that is varied in some of it, cut off where the varied run had diverged, and compared with the first run's traces.
It starts none itself. What the training uses before that is tried first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from repro_gate.diagnosis.model import Diagnosis, Unit, Use
from repro_gate.diagnosis.search import Exhausted, smallest
from repro_gate.factors import BY_NAME, Cause


@dataclass(frozen=True)
class Surrounding:
    """What is varied by one name: the cause that it is, what a line "depends on", what to write instead, and what its uses are called."""

    cause: Cause
    what: str
    remedy: str
    uses: str


_RELATIVE = "use paths relative to the checkout, and make no number of one"
_ARGUMENT = "take what has to matter from the command line or a file of the checkout"
SURROUNDINGS = {
    "path": Surrounding("process-identity", "the path of the checkout", _RELATIVE, "path"),
    "home": Surrounding("process-identity", "the path of HOME", _RELATIVE, "home"),
    "tmpdir": Surrounding("process-identity", "the path of the folder for temporary files", _RELATIVE, "tmpdir"),
    "hostname": Surrounding("process-identity", "the host's name", BY_NAME["identity"].remedy, "identity"),
    "timezone": Surrounding("wall-clock", "the time zone", "read times in UTC", "timezone"),
    "locale": Surrounding("external-input", "the locale", _ARGUMENT, "locale"),
    "umask": Surrounding("process-identity", "the umask", "make no number of a file's permissions", "umask"),
    "environment": Surrounding("external-input", "the order of the environment", "ask for variables by their names", "environment"),
    "file-times": Surrounding("wall-clock", "the times of files", "make no number of a file's time; use its content", "file-times"),
    "clock": Surrounding("wall-clock", "the time of day", BY_NAME["clock"].remedy, "clock"),
    "listing": Surrounding("file-order", "the order in which a directory is listed", BY_NAME["listing"].remedy, "listing"),
    "hash-seed": Surrounding("hash-order", "the hash seed of a program that it starts", BY_NAME["hashing"].remedy, "hashing"),
    "memory": Surrounding("uninitialized-memory", "what memory holds before it is written", BY_NAME["memory"].remedy, "memory"),
    "threads": Surrounding("thread-race", "the number of threads", "set it: OMP_NUM_THREADS under train.env", "threads"),
}
_USED_UP = "the runs or the time that a diagnosis may take were used up before it was known what decides"


@dataclass(frozen=True)
class Outcome:
    """What one experiment showed: whether the run was another than the first, and what its lines were told, in order of execution."""

    differs: bool
    uses: tuple[Use, ...] = ()


def diagnose(names: Sequence[str], until: int, where: str, run: Callable[[frozenset[str]], Outcome]) -> Diagnosis | None:
    """Which of `names` the varied run diverged by, up to step `until`; None where it was chance: varied in all of them again, a run is the
    same. `where` says where it did; `run` does one experiment, and raises Exhausted where no more may be done."""
    known: dict[frozenset[str], Outcome] = {}

    def outcome(varied: frozenset[str]) -> Outcome:
        if varied not in known:
            known[varied] = run(varied)
        return known[varied]

    try:
        plain = outcome(frozenset())
        if plain.differs:
            return _unknown("a run that is varied in nothing is another one too: the training is not repeatable")
        if not outcome(frozenset(names)).differs:
            return None
        units = [Unit(name) for name in _by_use(names, plain.uses, until)]
        found, reduced = smallest(units, lambda chosen: outcome(frozenset(unit.factor for unit in chosen)).differs)
        if not reduced:
            return _unknown(f"{_USED_UP}: {', '.join(unit.factor for unit in found)} are left")
        varied = outcome(frozenset(unit.factor for unit in found))
    except Exhausted:
        return _unknown(_USED_UP)
    if not varied.differs:
        return None
    told = [_told(unit.factor, plain.uses, varied.uses, until, where) for unit in found]
    return replace(told[0], also=tuple(told[1:]))


def _by_use(names: Sequence[str], uses: Sequence[Use], until: int) -> list[str]:
    """The names, those first that lines of the training are told of by few uses: what many lines ask for is rarely what decides."""
    lines = {name: len({use.site for use in uses if use.factor == SURROUNDINGS[name].uses and use.step <= until}) for name in names}
    return sorted(names, key=lambda name: (lines[name] == 0, lines[name]))


def _told(name: str, plain: Sequence[Use], varied: Sequence[Use], until: int, where: str) -> Diagnosis:
    said = SURROUNDINGS[name]
    use = next(iter(differing(plain, varied, said.uses, until)), None)
    file, line = use.site if use is not None else ("", 0)
    call = use.call or use.source if use is not None else ""
    asked = f"{call} in {file}:{line}" if use is not None else "the training"
    return Diagnosis(
        cause=said.cause,
        factor=name,
        call=call,
        file=file,
        line=line,
        confirmed=True,
        message=f"repeatable, but not robust: {asked} depends on {said.what}",
        evidence=(f"confirmed: varied in {name} alone, a run diverges from the first {where}; varied in nothing, it does not",),
        remedy=said.remedy,
    )


def differing(plain: Sequence[Use], varied: Sequence[Use], factor: str, until: int) -> list[Use]:
    """Uses of a factor that were told something else in the varied run, in order of execution; lines of the training that asked themselves
    come first."""
    known = {_place(use): use.digest for use in plain}
    found = [use for use in varied if use.factor == factor and use.step <= until and use.site[0] and known.get(_place(use)) != use.digest]
    return sorted(found, key=lambda use: (not use.direct or use.call.startswith(("import ", "from ")), use.step))


def _place(use: Use) -> tuple[object, ...]:
    return use.process, use.factor, use.source, use.site, use.step


def _unknown(why: str) -> Diagnosis:
    return Diagnosis(cause="unknown", message=f"repeatable, but not robust: {why}", remedy="vary less under `robustness.vary` to find out")
