"""Claims about the search for what a training depends on that must not matter. No run is started: each test says what a run would show."""

from __future__ import annotations

from repro_gate.diagnosis.model import Use
from repro_gate.diagnosis.robustness import SURROUNDINGS, Outcome, diagnose, differing
from repro_gate.diagnosis.search import Exhausted
from repro_gate.spec.model import THREADS, VARIED

WHERE = "at step 3 (loss)"


def use(factor: str, line: int, digest: str = "1", step: int = 0, call: str = "f()") -> Use:
    return Use(process="main", step=step, factor=factor, source=factor, site=("train.py", line), call=call, count=1, digest=digest)


class Training:
    """A training that is another one where all of `needs` is varied together, and whose lines use what `uses` says."""

    def __init__(self, *needs: str, uses: dict[str, int] | None = None, most: int = 99, racy: bool = False) -> None:
        self.needs, self.uses, self.most, self.racy = set(needs), uses or {}, most, racy
        self.runs: list[frozenset[str]] = []

    def __call__(self, varied: frozenset[str]) -> Outcome:
        if len(self.runs) >= self.most:
            raise Exhausted
        self.runs.append(varied)
        told = tuple(use(SURROUNDINGS[name].uses, line, "2" if name in varied else "1") for name, line in self.uses.items())
        return Outcome(self.racy or self.needs <= varied, told)


def test_what_a_line_uses_is_tried_first_and_the_line_is_named() -> None:
    training = Training("locale", uses={"locale": 7})
    found = diagnose(VARIED, 3, WHERE, training)
    assert found is not None
    assert (found.cause, found.factor, found.file, found.line, found.confirmed) == ("external-input", "locale", "train.py", 7, True)
    assert training.runs == [frozenset(), frozenset(VARIED), frozenset({"locale"})]
    assert found.message == "repeatable, but not robust: f() in train.py:7 depends on the locale" and WHERE in found.evidence[0]


def test_what_no_line_uses_is_found_by_halves_and_no_line_is_named() -> None:
    for name in VARIED:
        training = Training(name)
        found = diagnose(VARIED, 3, WHERE, training)
        assert found is not None
        assert (found.factor, found.file, found.confirmed) == (name, "", True)
        assert len(training.runs) <= 12, name


def test_two_that_decide_together_are_both_named() -> None:
    found = diagnose(VARIED, 3, WHERE, Training("path", "clock", uses={"path": 2, "clock": 5}))
    assert found is not None
    assert {(item.factor, item.line) for item in (found, *found.also)} == {("path", 2), ("clock", 5)}


def test_a_racy_training_a_rare_divergence_and_an_exhausted_search_name_nothing() -> None:
    assert diagnose(VARIED, 3, WHERE, Training("nothing that is varied")) is None  # it was chance
    for training in (Training(racy=True), Training("path", most=1)):
        found = diagnose(VARIED, 3, WHERE, training)
        assert found is not None
        assert (found.cause, found.factor, found.confirmed) == ("unknown", None, False)


def test_the_line_is_the_first_that_was_told_something_else_before_the_divergence() -> None:
    plain = [use("path", 1), use("path", 2), use("path", 3)]
    told = [use("path", 1), use("path", 3, "2", step=1), use("path", 2, "2"), use("home", 4, "2"), use("path", 5, "2", step=9)]
    assert [item.site[1] for item in differing(plain, told, "path", 3)] == [2, 3]
    imported = [use("listing", 1, "2", call="import torch"), use("listing", 9, "2", step=2, call="os.listdir(top)")]
    assert [item.site[1] for item in differing([], imported, "listing", 3)] == [9, 1]


def test_every_name_of_the_spec_has_a_cause_and_a_remedy() -> None:
    assert list(SURROUNDINGS) == [*VARIED, THREADS]
    assert all(said.cause and said.what and said.remedy for said in SURROUNDINGS.values())
