"""Claims about `gate.equivalence`: which run comes next, and what the other ways amount to."""

from __future__ import annotations

from dataclasses import replace

import pytest

from repro_gate.compare.change import KINDS
from repro_gate.errors import UsageError
from repro_gate.gate import equivalence as module
from repro_gate.gate.equivalence import (
    KEEPING,
    PERTURBED,
    Equivalences,
    equivalences_of,
    failures,
    next_way,
)
from repro_gate.gate.prepare import narrowed
from repro_gate.runs.launch import RunRequest, RunResult
from repro_gate.runs.progress import Watch
from repro_gate.runs.results import Results
from repro_gate.spec.model import Equivalent, OperatorsBudget, Resume
from tests.support.built_traces import changed, flip, place_of, results, run, spec, training

WORKERS = Equivalent("workers", "python train.py {seed} 4")
PARTS = Equivalent("parts", "python parts.py", "rounding")
ORDER = [KEEPING, PERTURBED, "equivalent-workers", "equivalent-parts"]


def series(*ways: Equivalent, alike: bool = True) -> Results:
    found = results(spec=spec(equivalent=ways))
    found.add(run("deterministic-1", training(4)))
    second = run("deterministic-2", training(4, seed=42 if alike else 1))
    request = replace(second.request, second_of="deterministic-1")
    found.add(replace(second, request=request))
    return found


def requests(found: Results, **ended: str) -> list[RunRequest]:
    """What is asked for, one after another, where each run ends as `ended` says."""
    done: dict[str, RunResult] = {}
    asked = []
    reference = found.by_name["deterministic-1"]
    while request := next_way(found, reference, done):
        asked.append(request)
        outcome = ended.get(request.name.replace("-", "_"), "finished")
        done[request.name] = run(request.name, training(4), outcome=outcome)
    return asked


def test_two_runs_measure_rounding_before_each_other_way() -> None:
    keeping, perturbed, workers, parts = requests(series(WORKERS, PARTS))
    assert [it.name for it in (keeping, perturbed, workers, parts)] == ORDER
    keep = {"final": False, "steps": (0, 1, 2, 3), "kinds": KINDS}
    assert keeping.probe == {"keep": keep} and keeping.command == ""
    assert perturbed.probe["perturb"] == 0
    assert parts.probe["keep"] == perturbed.probe["keep"] == {**keep, "reference": {"": "1-main", "main": "1-main"}}  # fmt: skip
    assert (workers.command, workers.probe) == ("python train.py 42 4", {})


def test_without_rounding_each_way_is_one_run() -> None:
    assert [item.name for item in requests(series(WORKERS))] == ["equivalent-workers"]


@pytest.mark.parametrize("name", ["rounding_1", "rounding_2"])
def test_where_rounding_cannot_be_measured_only_bits_are_compared(name: str) -> None:
    names = [item.name for item in requests(series(PARTS, WORKERS), **{name: "crashed"})]
    assert "equivalent-workers" in names and "equivalent-parts" not in names


def judged(monkeypatch: pytest.MonkeyPatch, other: RunResult, way: Equivalent) -> Equivalences:
    """What the gate says where each run is the reference, but for the other way."""

    def instead(_: object, __: object, request: RunRequest) -> RunResult:
        if request.name.startswith("equivalent-"):
            return replace(other, request=request)
        return run(request.name, training(4))

    monkeypatch.setattr(module, "run", instead)
    return equivalences_of(series(way), Watch())


def test_other_bits_fail_and_equal_ones_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    found = judged(monkeypatch, run("other", training(4)), WORKERS)
    assert [item.equivalent for item in found.found] == [True]
    assert not [*failures(found), *found.unanswered]
    trace = training(4)
    trace = changed(trace, place_of(trace, 2, "parameter"), flip(0))
    found = judged(monkeypatch, run("other", trace), WORKERS)
    (reason,) = failures(found)
    assert reason.id == "equivalent/differs" and "at step 2" in reason.message


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (run("other", outcome="crashed", problem="it exited"), "equivalent/crashed"),
        (run("other", replace(training(4), tables=[])), "equivalent/not-compared"),
    ],
)
def test_a_way_that_was_not_compared_is_no_pass(
    other: RunResult, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = [("parameter", (("fc.weight", "float32", (2, 2)),))]
    found = series(WORKERS)
    first = found.by_name["deterministic-1"]
    traces = (replace(first.traces[0], tables=table),)
    monkeypatch.setattr(Results, "reference", replace(first, traces=traces))
    monkeypatch.setattr(module, "run", lambda *_: other)
    said = equivalences_of(found, Watch())
    assert not said.found and [item.id for item in said.unanswered] == [reason]


def test_where_nothing_was_measured_it_is_no_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = training(4)
    blocks = [item for item in trace.blocks if item.kind != "loss"]
    said = judged(monkeypatch, run("other", replace(trace, blocks=blocks)), PARTS)
    assert not said.found and [it.id for it in said.unanswered] == ["equivalent/not-compared"]


def test_interrupted_or_without_room_it_is_no_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    for error in (OSError(28, "No space left"), KeyboardInterrupt()):

        def fails(*_: object, error: BaseException = error) -> RunResult:
            raise error

        monkeypatch.setattr(module, "run", fails)
        found = series(PARTS, WORKERS)
        said = equivalences_of(found, Watch())
        assert [item.id for item in said.unanswered] == ["equivalent/crashed"] * 2
        # after Ctrl-C nothing more is run
        assert bool(found.interrupted) == isinstance(error, KeyboardInterrupt)


def test_only_a_section_that_the_spec_has_is_looked_at() -> None:
    whole = spec(
        equivalent=(WORKERS,),
        resume=Resume(after=1, checkpoint="out/*"),
        operators=OperatorsBudget(),
    )
    only = narrowed(whole, "equivalent")
    assert only.equivalent == (WORKERS,) and only.resume is None and not only.cost.measure
    assert only.operators is None
    assert narrowed(whole, "resume").equivalent == ()
    with pytest.raises(UsageError, match="has no section `resume`"):
        narrowed(only, "resume")


def test_nothing_is_run_where_two_runs_differ_as_they_stand() -> None:
    assert equivalences_of(series(WORKERS, alike=False), Watch()) == Equivalences()
    assert equivalences_of(series(), Watch()) == Equivalences()
