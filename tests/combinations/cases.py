"""Trainings by options, all pairs: each training with how it goes wrong, each option with its
values, and the verdict that is due.

The verdict is worked out here from the documents (`docs/reasons.md`, `docs/repro-yml.md`), not from
the gate's code.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, make_dataclass
from typing import Any

from allpairspy import AllPairs

FIRST, SECOND, THIRD = "deterministic-1", "deterministic-2", "deterministic-3"
RANKS = (
    "RANK=1 python train.py {seed} & other=$!; RANK=0 python train.py {seed}; own=$?; wait $other "
    "|| exit $?; exit $own"
)
# a tolerance is about losses, final weights and artifacts
_WITHIN_TOLERANCE = ("buffer", "noise@varied")
_ENDINGS = {
    "raises": "fail",
    "exits": "fail",
    "aborts": "fail",
    "killed": "inconclusive",
    "hangs": "inconclusive",
    "nothing": "inconclusive",
}


@dataclass(frozen=True, kw_only=True)
class Training:
    """A training as TORCH_HOW names it. `verdict` is due where the fault shows; `run` names the run
    in which it does, `varied` for any that is varied, empty for one that always does (or never)."""

    name: str
    verdict: str = "pass"
    run: str = ""
    command: str = "python train.py {seed}"


def trainings() -> Sequence[Training]:
    """Return every training, those that need torch last."""
    plain = ("passes", "execs", "prints", "bytes", "hostile", "unreadable", "drifts")
    artifacts = ("number", "text", "key", "type", "cell", "kind", "link")
    apart = ("tensor", "buffer", "last-step", "shorter", *(f"artifact-{how}" for how in artifacts))
    found = [Training(name=name) for name in plain]
    found += [Training(name=name, verdict="fail", run=SECOND) for name in apart]
    found += [Training(name=name, verdict="fail") for name in ("unseeded", "nan")]
    found += [
        Training(name="seed", verdict="fail", run="seed7-deterministic-2"),
        Training(name="path", run="varied"),
    ]
    for how, verdict in _ENDINGS.items():
        found += [
            Training(name=f"{how}@{run}", verdict=verdict, run=run)
            for run in (FIRST, SECOND, THIRD)
        ]
        found.append(Training(name=f"{how}@varied", run="varied"))
    found += [
        Training(name="path+raises@deterministic-2", verdict="fail", run=SECOND),
        Training(name="path+killed@deterministic-2", verdict="inconclusive", run=SECOND),
        Training(name="raises@reseeded", verdict="inconclusive"),
        Training(name="nan@deterministic-2", verdict="fail", run=SECOND),
        Training(name="noise", verdict="fail"),
        Training(name="unwritten@varied", run="varied"),
        Training(name="ranks", command=RANKS),
        Training(name="rank", verdict="fail", run=SECOND, command=RANKS),
    ]
    torch = "python torch_train.py {seed}"
    sound = ("two-optimizers", "no-optimizer", "workers")
    found += [Training(name=name, command=torch) for name in sound]
    for name in ("two-optimizers-apart", "crash-workers", "leaves"):
        found.append(Training(name=name, verdict="fail", run=SECOND, command=torch))
    found.append(Training(name="noise@varied", verdict="fail", command=torch))
    return found


OPTIONS: OrderedDict[str, Sequence[Any]] = OrderedDict(  # the first of each is that of a plain case
    seeds=("one", "two"),
    compare=("bitwise", "tolerance"),
    repeat=(2, 3),
    allow=("none", "one"),
    every=(1, 2, 100),
    steps=(None, 3, 50),  # of six that the training takes
    warmup=(1, 100),
    vary=("all", "list", "off"),
    cost=("off", "on", "limited"),
    profile=("basic", "strict", "waived"),
    baseline=("none", "notice", "fail"),
    against=("none", "HEAD"),
    policy=("none", "head", "base"),
    fail_fast=(False, True),
    verbose=(False, True),  # and every trace kept
)
Options: Any = make_dataclass("Options", OPTIONS, frozen=True)


@dataclass(frozen=True)
class Case:
    """A training under options."""

    training: Training
    options: Any

    @property
    def name(self) -> str:
        """Return the training's name with every option that is not its first value."""
        given = vars(self.options).items()
        unusual = [f"{name}={value}" for name, value in given if value != OPTIONS[name][0]]
        return " ".join([self.training.name, *unusual])


def cases() -> list[Case]:
    """Return each training under the first value of each option, and as few cases more as hold each
    pair of values of a training and an option, and of two options. They are the same each time."""
    usual = Options(**{name: values[0] for name, values in OPTIONS.items()})
    table = OrderedDict([("training", list(trainings())), *OPTIONS.items()])
    paired = (
        Case(row.training, Options(**{name: getattr(row, name) for name in OPTIONS}))
        for row in AllPairs(table)
    )
    return list(dict.fromkeys([*(Case(training, usual) for training in trainings()), *paired]))


def shows(case: Case) -> bool:
    """Return whether the training's fault shows in any run of this gate run."""
    training, options = case.training, case.options
    if training.name in ("last-step", "shorter"):
        return options.steps != 3
    if training.name == "seed":
        return options.seeds == "two"
    if training.run == THIRD:
        return options.repeat == 3
    if training.run == "varied":
        return options.vary != "off"
    return True


def ends_early(case: Case) -> bool:
    """Return whether the fault is that a run ends before its last step, which the report then says
    before anything else."""
    how = case.training.name.partition("+")[2] or case.training.name
    early = ("raises", "exits", "aborts", "shorter", "crash-workers", "leaves")
    return shows(case) and how.partition("@")[0] in early


def expected(case: Case) -> str:
    """Return the verdict that is due."""
    training, options = case.training, case.options
    verdict = training.verdict if shows(case) else "pass"
    within = training.name in _WITHIN_TOLERANCE or (
        training.name == "noise" and options.repeat == 2
    )
    if within and options.compare == "tolerance":
        # neither can be answered without equal bits
        asked = options.baseline == "fail" or options.against != "none"
        verdict = "inconclusive" if asked else "pass"
    if training.name == "drifts" and options.baseline != "none":
        verdict = "fail"  # the inputs are those of the baseline, the results are not
    if options.profile == "strict":
        return "fail"  # what is missing fails: a lockfile, an image
    measured = options.cost != "off" and options.warmup == 1 and options.steps != 3
    if verdict == "pass" and options.cost == "limited" and not measured:
        return "inconclusive"
    return verdict
