"""Claims about the search for what a training depends on that must not matter. No run is started:
each test says what a run would show."""

from __future__ import annotations

from collections.abc import Sequence

from repro_gate.diagnosis.experiments import Experiments
from repro_gate.diagnosis.model import Diagnosis
from repro_gate.diagnosis.robustness import (
    SURROUNDINGS,
    Outcome,
    at_line,
    called,
    conditions_of,
    diagnose,
    differing,
)
from repro_gate.spec.model import THREADS, VARIED, DiagnosisBounds
from repro_gate.trace.model import Used
from tests.support.uses import use

WHERE = "at step 3 (loss)"


class Training:
    """A training that is another one where all of `needs` is varied together, and whose lines use
    what `uses` says."""

    def __init__(self, *needs: str, uses=(), most: int = 99, racy: bool = False, by=()) -> None:
        self.needs, self.uses, self.by = set(needs), dict(uses), dict(by)
        self.experiments, self.racy = Experiments(self.run, most), racy
        self.runs: list[frozenset[str]] = []

    def run(self, varied: frozenset[str]) -> Outcome:
        self.runs.append(varied)
        told = []
        for name, line in self.uses.items():
            asked = {"call": self.by[name], "direct": False} if name in self.by else {}
            told.append(use(called(name), line, "2" if name in varied else "1", **asked))
        return Outcome(self.racy or self.needs <= varied, tuple(told))

    def dependence(self, names: Sequence[str] = VARIED) -> Diagnosis | None:
        return diagnose(names, 3, WHERE, self.experiments.result)

    def found(self, names: Sequence[str] = VARIED) -> Diagnosis:
        found = self.dependence(names)
        assert found is not None
        return found


def told(found: Diagnosis) -> tuple[str, str, int, bool]:
    return found.cause, found.file, found.line, found.confirmed


def test_what_lines_ask_for_is_tried_first_and_what_nobody_asked_for_last() -> None:
    training = Training("locale", uses={"locale": 7})
    found = training.found()
    assert told(found) == ("external-input", "train.py", 7, True) and found.factor == "locale"
    assert training.runs == [frozenset(), frozenset(VARIED), frozenset({"locale"})]
    assert found.message.endswith("`f()` in train.py:7 depends on the locale")
    assert WHERE in found.evidence[0]
    asked = {"path": 1, "environment": 2, "home": 3}
    by = {"environment": "wandb.init()", "home": "import torch"}
    training = Training("hash-seed", uses=asked, by=by)
    training.found()
    assert training.runs[2] == {"path"} and training.runs[3] == {"hash-seed"}
    training = Training("umask", uses=asked, by=by)
    training.found()
    assert {"path", "hash-seed", "environment"} <= training.runs[4]
    assert "umask" not in training.runs[4]


def test_what_is_left_is_named_but_not_of_a_racy_training() -> None:
    found = Training("umask", uses={"clock": 7, "listing": 9}, most=2).found()
    assert told(found) == ("file-order", "train.py", 9, False)
    assert [item.factor for item in found.one_of[:3]] == ["listing", "clock", "hash-seed"]
    assert len(found.one_of) == len(VARIED)
    unseen = Training("umask", most=2).found()
    assert told(unseen) == ("unknown", "", 0, False) and len(unseen.one_of) == len(VARIED)
    for training in (Training("nothing that is varied"), Training(racy=True)):
        assert training.dependence() is None, "it was chance"


def test_what_differs_between_two_shells_is_told_from_what_differs_between_users() -> None:
    shell = {"hash-seed", "clock", "listing", "path", "file-times", "memory"}
    names = (*VARIED, THREADS)
    assert {name for name in names if conditions_of(Training(name).found(names))} == shell
    # of several that decide only together, all must differ
    assert conditions_of(Training("listing", "hash-seed").found()) == [
        "PYTHONHASHSEED={message}",
        "the same order of listings",
    ]
    assert conditions_of(Training("listing", "home").found()) == []
    # where the search ended, one of them may be enough
    assert conditions_of(Training("home", most=2).found())
    assert conditions_of(Training("home", most=2).found(("home", "umask"))) == []


def test_what_no_line_uses_is_found_by_halves_and_no_line_is_named() -> None:
    for name in VARIED:
        training = Training(name)
        found = training.found()
        assert (found.factor, found.file, found.confirmed) == (name, "", True)
        assert len(training.runs) <= DiagnosisBounds().runs
    # what is left over where the runs end was not varied alone
    for name in VARIED[:6]:
        training = Training(name, most=5)
        found = training.found(VARIED[:6])
        assert {name} in training.runs or not found.confirmed
        assert name in [item.factor for item in found.one_of] or found.factor == name
    # two that decide only together are both named
    training = Training("path", "clock", uses={"path": 2, "clock": 5})
    found = training.found()
    assert (found.factor, found.line, found.confirmed) == ("path", 2, True)
    assert [(item.factor, item.line) for item in found.also] == [("clock", 5)]
    assert "depends on the path of the checkout, and on the time of day" in found.message
    assert "with only path and clock varied" in found.evidence[0] and not found.one_of
    assert len(training.runs) <= 8


def test_the_line_is_the_first_that_was_told_something_else_before_the_divergence() -> None:
    def lines(plain: list[Used], varied: list[Used], name: str) -> list[int]:
        return [item.site[1] for item in differing(plain, varied, name, 3)]

    plain = [use("path", 1), use("path", 2), use("path", 3)]
    said = [use("path", 1), use("path", 3, "2", step=1), use("path", 2, "2")]
    said += [use("home", 4, "2"), use("path", 5, "2", step=9)]
    assert lines(plain, said, "path") == [2, 3]
    imported, asked = use("listing", 1, "2", call="import torch"), use("listing", 9, "2", step=2)
    assert lines([], [imported, asked], "listing") == [9, 1]
    # a process number is no host name
    for source, told_by in (("os.getpid", []), ("platform.node", [3])):
        names = [[use("identity", 3, digest, source=source)] for digest in "12"]
        assert lines(*names, "identity") == told_by
    # the one that read a clock more often comes first
    plain = [use("clock", 1), use("clock", 2, count=9), use("clock", 3)]
    said = [use("clock", 1, "2"), use("clock", 2, "2", count=4), use("clock", 3, "2")]
    assert lines(plain, said, "clock") == [2, 1, 3]


def test_the_line_that_depends_on_the_hash_seed_is_named_and_every_name_has_a_remedy() -> None:
    found = Training("hash-seed").found()
    assert (found.factor, found.file) == ("hash-seed", "")
    assert at_line(found, None) == found
    call = "classes = set(labels)"
    named = at_line(found, use("line", 7, call=call, file="utils.py"))
    assert (named.file, named.line, named.call) == ("utils.py", 7, call)
    assert f"`{call}` in utils.py:7 depends" in named.message
    assert named.message.endswith("the order of a set, which PYTHONHASHSEED decides")
    assert set(SURROUNDINGS) == {*VARIED, THREADS}
    assert all(said.cause and said.what and said.remedy for said in SURROUNDINGS.values())
