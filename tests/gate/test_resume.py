"""Claims about `gate.resume`: which leg comes next, and what the legs amount to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from repro_gate.compare.model import Leg, NotRestored
from repro_gate.errors import Inconclusive, UsageError
from repro_gate.gate import resume as module
from repro_gate.gate.resume import Resumed, failures, next_leg, resumed, unanswered
from repro_gate.runs.launch import RunResult
from repro_gate.runs.legs import LegEnd
from repro_gate.runs.progress import Watch
from repro_gate.runs.results import Results
from repro_gate.spec.model import Resume
from tests.support.built_traces import results, run, spec, training

COMMAND = "python train.py {seed} {checkpoint}"


def series(**wanted: Any) -> Results:
    resume = Resume(**{"after": 2, "checkpoint": "out/*", "run": COMMAND, **wanted})
    found = results(spec=spec(resume=resume))
    for number in (1, 2):
        found.add(run(f"deterministic-{number}", training(4)))
    return found


def leg(number: int, begins: int, *, identical: bool = True) -> Leg:
    return Leg(number=number, begins=begins, ends=begins + 2, identical=identical)


def following(legs: list[Leg], last: RunResult | None) -> Any:
    found = series()
    return next_leg(found, found.by_name["deterministic-1"], legs, last)


SAVED = LegEnd(checkpoint="out/a b.pt")
STOPPED = replace(run("leg-1", outcome="preempted"), leg=SAVED)


def test_three_legs_each_from_the_checkpoint_of_the_one_before() -> None:
    first = following([], None)
    assert (first.name, first.command, first.leg.checkpoint) == ("leg-1", "", "")
    second = following([leg(1, 0)], STOPPED)
    assert (second.name, second.leg.checkpoint) == ("leg-2", "out/a b.pt")
    assert second.command == "python train.py 42 'out/a b.pt'"
    third = following([leg(1, 0), leg(2, 1)], STOPPED)
    assert third.name == "leg-3" and "preempt" in second.probe and "preempt" not in third.probe
    assert following([leg(1, 0), leg(2, 1), leg(3, 2)], STOPPED) is None


@pytest.mark.parametrize(
    ("legs", "last"),
    [
        ([leg(1, 0)], replace(STOPPED, outcome="finished")),  # it went to its end
        ([leg(1, 0)], replace(STOPPED, leg=LegEnd())),
        ([leg(1, 0), leg(2, 1, identical=False)], STOPPED),
    ],
)
def test_nothing_follows_a_leg_that_ended_or_is_another_training(
    legs: list[Leg], last: RunResult
) -> None:
    assert following(legs, last) is None


def test_training_that_ends_before_it_could_be_stopped_is_refused() -> None:
    with pytest.raises(UsageError, match=r"resume.after is 4, but the training takes 4 steps"):
        resumed(series(after=4), Watch())


def test_it_is_looked_at_only_where_the_spec_asks_and_the_runs_are_the_same() -> None:
    plain = results()
    plain.add(run("deterministic-1", training(4)))
    assert resumed(plain, Watch()) is None
    first, other = run("deterministic-1", training(4)), run("deterministic-2", training(4, seed=1))
    for second in (other, replace(other, outcome="crashed", problem="it exited")):
        found = results(spec=series().spec)
        found.add(first)
        found.add(replace(second, request=replace(second.request, second_of="deterministic-1")))
        assert resumed(found, Watch()) is None


@pytest.mark.parametrize(
    ("legs", "reasons"),
    [
        ([leg(1, 0), leg(2, 1), leg(3, 2)], []),
        ([leg(1, 0), leg(2, 1), leg(3, 1)], ["resume/no-progress"]),
        (
            [leg(1, 0), leg(2, 1), leg(3, 1, identical=False)],
            ["resume/no-progress", "resume/diverged"],
        ),
        ([leg(1, 0), leg(2, 1, identical=False)], ["resume/diverged"]),
        ([leg(1, 0, identical=False)], ["resume/first-leg"]),
    ],
)
def test_why_it_is_another_training(legs: list[Leg], reasons: list[str]) -> None:
    assert [item.id for item in failures(Resumed(tuple(legs)))] == reasons


@pytest.mark.parametrize(
    ("lost", "reason"),
    [
        ((NotRestored("parameters", "none"),), "resume/half-written"),
        ((NotRestored("scheduler", "rate"),), "resume/diverged"),
        ((), "resume/diverged"),  # it diverges later, and lacks nothing
    ],
)
def test_a_checkpoint_is_torn_only_where_its_state_is_that_of_no_step(
    lost: tuple[NotRestored, ...], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    legs = iter([leg(1, 0), msgspec.structs.replace(leg(2, 1, identical=False), not_restored=lost)])
    torn = replace(SAVED, half_written=True)
    monkeypatch.setattr(module, "run", lambda *_: replace(STOPPED, leg=torn))
    monkeypatch.setattr(module, "_judged", lambda *_: next(legs))
    assert [item.id for item in failures(resumed(series(), Watch()))] == [reason]


def test_a_checkpoint_that_was_gone_for_a_while_is_told_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    legs = iter([leg(1, 0), leg(2, 1), leg(3, 2)])
    slow = LegEnd(resumed_from="out/a.pt", checkpoint="out/b.pt", in_place=True, cut_off=True)
    monkeypatch.setattr(module, "run", lambda *_: replace(STOPPED, leg=slow))
    monkeypatch.setattr(module, "_judged", lambda *_: next(legs))
    wanted = series()
    (only,) = failures(resumed(wanted, Watch()))
    assert only.id == "resume/in-place" and "out/a.pt" in only.message
    assert not [note for note in wanted.notes if "in place" in note]


@pytest.mark.parametrize("before", [0, 2])
@pytest.mark.parametrize(
    "error", [OSError(28, "No space left"), Inconclusive("other digests"), KeyboardInterrupt()]
)
def test_a_leg_that_could_not_be_run_is_no_pass(
    before: int, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = iter([STOPPED] * before)

    def ends(*_: object) -> RunResult:
        for stopped in runs:
            return stopped
        raise error

    legs = iter([leg(1, 0), leg(2, 1)])
    monkeypatch.setattr(module, "run", ends)
    monkeypatch.setattr(module, "_judged", lambda *_: next(legs))
    found = resumed(series(), Watch())
    assert found is not None and len(found.legs) == before
    assert found.problem and found.resumption() is None
    (only,) = unanswered(found, "out/*.pt")
    assert only.id == "resume/crashed" and found.problem in only.message


def test_a_checkpoint_s_name_is_made_safe_for_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    watch = Watch()
    monkeypatch.setattr(watch, "said", told.append, raising=False)
    saved = LegEnd(checkpoint="out/\x1b]0;x.pt")
    stopped = replace(STOPPED, leg=saved, traces=(training(2),))
    monkeypatch.setattr(module, "run", lambda *_: stopped)
    resumed(series(), watch)
    assert len(told) > 1 and not [line for line in told if "\x1b" in line]


def test_what_could_not_be_seen_is_a_reason() -> None:
    crashed = run("leg-2", outcome="crashed", problem="it exited", tail=["KeyError: 'step'"])
    for found, reason in (
        (Resumed((leg(1, 0),), crashed), "resume/crashed"),
        (Resumed((leg(1, 0),)), "resume/no-checkpoint"),
    ):
        (only,) = unanswered(found, "out/*.pt")
        assert only.id == reason and only.remedy
