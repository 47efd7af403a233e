"""Claims about the search for what a training depends on that must not matter. No run is started:
each test says what a run would show."""

from __future__ import annotations

from msgspec.structs import replace

from repro_gate.diagnosis.model import Exhausted
from repro_gate.diagnosis.robustness import (
    SURROUNDINGS,
    Outcome,
    at_line,
    called,
    diagnose,
    differing,
)
from repro_gate.spec.model import THREADS, VARIED
from repro_gate.trace.model import Used

WHERE = "at step 3 (loss)"


def use(
    factor: str, line: int, digest: str = "1", step: int = 0, call: str = "f()", direct: bool = True
) -> Used:
    source = "platform.node" if factor == "identity" else factor
    return Used(
        process="main",
        step=step,
        factor=factor,
        source=source,
        file="train.py",
        line=line,
        call=call,
        count=1,
        digest=digest,
        direct=direct,
    )


class Training:
    """A training that is another one where all of `needs` is varied together, and whose lines use
    what `uses` says."""

    def __init__(
        self,
        *needs: str,
        uses: dict[str, int] | None = None,
        most: int = 99,
        racy: bool = False,
        by: dict[str, str] | None = None,
    ) -> None:
        self.needs, self.uses, self.most, self.racy, self.by = (
            set(needs),
            uses or {},
            most,
            racy,
            by or {},
        )
        self.runs: list[frozenset[str]] = []

    def __call__(self, varied: frozenset[str]) -> Outcome:
        if len(self.runs) >= self.most:
            raise Exhausted
        self.runs.append(varied)
        asked = {
            name: {"call": self.by[name], "direct": False} if name in self.by else {}
            for name in self.uses
        }
        told = tuple(
            use(called(name), line, "2" if name in varied else "1", **asked[name])
            for name, line in self.uses.items()
        )  # type: ignore[arg-type]
        return Outcome(self.racy or self.needs <= varied, told)


def test_what_a_line_uses_is_tried_first_and_the_line_is_named() -> None:
    training = Training("locale", uses={"locale": 7})
    found = diagnose(VARIED, 3, WHERE, training)
    assert found is not None
    assert (found.cause, found.factor, found.file, found.line, found.confirmed) == (
        "external-input",
        "locale",
        "train.py",
        7,
        True,
    )
    assert training.runs == [frozenset(), frozenset(VARIED), frozenset({"locale"})]
    assert (
        found.message == "repeatable, but not robust: f() in train.py:7 depends on the locale"
        and WHERE in found.evidence[0]
    )


def test_what_lines_ask_for_is_tried_before_what_needs_no_call_and_what_nobody_asked_for_last() -> (
    None
):
    asked = {"path": 1, "environment": 2, "home": 3}
    training = Training(
        "hash-seed", uses=asked, by={"environment": "wandb.init()", "home": "import torch"}
    )
    assert diagnose(VARIED, 3, WHERE, training) is not None
    assert training.runs[2] == {"path"} and "hash-seed" in training.runs[3]
    assert "environment" in training.runs[3] and "umask" not in training.runs[3]


def test_what_is_left_where_the_search_ends_is_named_with_its_lines_and_not_confirmed() -> None:
    found = diagnose(VARIED, 3, WHERE, Training("umask", uses={"clock": 7, "listing": 9}, most=2))
    assert found is not None
    assert (found.cause, found.file, found.line, found.confirmed) == (
        "file-order",
        "train.py",
        9,
        False,
    )
    assert [item.factor for item in found.one_of[:3]] == ["listing", "clock", "hash-seed"] and len(
        found.one_of
    ) == len(VARIED)
    assert (
        f"one of these {len(VARIED)}, or several of them, likeliest first: listing (f() in "
        "train.py:9), clock (f() in" in found.message
    )
    unseen = diagnose(VARIED, 3, WHERE, Training("umask", most=2))
    assert unseen is not None and (unseen.cause, unseen.confirmed, len(unseen.one_of)) == (
        "unknown",
        False,
        len(VARIED),
    )


def test_a_process_number_is_no_host_name() -> None:
    plain, varied = (replace(use("identity", 3, digest), source="os.getpid") for digest in "12")
    assert differing([plain], [varied], "identity", 3) == []


def test_what_no_line_uses_is_found_by_halves_and_no_line_is_named() -> None:
    for name in VARIED:
        training = Training(name)
        found = diagnose(VARIED, 3, WHERE, training)
        assert found is not None and found.file == "" and len(training.runs) <= 6, name
        left = [item.factor for item in found.one_of] or [found.factor]
        assert name in left and found.confirmed == (left == [found.factor])


def test_two_that_decide_only_together_are_among_those_that_are_named() -> None:
    training = Training("path", "clock", uses={"path": 2, "clock": 5})
    found = diagnose(VARIED, 3, WHERE, training)
    assert found is not None and (found.factor, found.line, found.confirmed) == ("path", 2, False)
    assert {("path", 2), ("clock", 5)} <= {(item.factor, item.line) for item in found.one_of}
    assert len(training.runs) <= 6


def test_a_racy_training_a_rare_divergence_and_an_exhausted_search_name_nothing() -> None:
    assert diagnose(VARIED, 3, WHERE, Training("nothing that is varied")) is None  # it was chance
    for training in (Training(racy=True), Training("path", most=1)):
        found = diagnose(VARIED, 3, WHERE, training)
        assert found is not None
        assert (found.cause, found.factor, found.confirmed) == ("unknown", None, False)


def test_the_line_is_the_first_that_was_told_something_else_before_the_divergence() -> None:
    plain = [use("path", 1), use("path", 2), use("path", 3)]
    told = [
        use("path", 1),
        use("path", 3, "2", step=1),
        use("path", 2, "2"),
        use("home", 4, "2"),
        use("path", 5, "2", step=9),
    ]
    assert [item.site[1] for item in differing(plain, told, "path", 3)] == [2, 3]
    imported = [
        use("listing", 1, "2", call="import torch"),
        use("listing", 9, "2", step=2, call="os.listdir(top)"),
    ]
    assert [item.site[1] for item in differing([], imported, "listing", 3)] == [9, 1]


def test_of_the_lines_that_read_a_clock_the_one_that_read_it_more_often_comes_first() -> None:
    plain = [use("clock", 1), replace(use("clock", 2), count=9), use("clock", 3)]
    told = [use("clock", 1, "2"), replace(use("clock", 2, "2"), count=4), use("clock", 3, "2")]
    assert [item.site[1] for item in differing(plain, told, "clock", 3)] == [2, 1, 3]


def test_a_line_that_was_seen_to_depend_on_the_hash_seed_is_named_and_none_changes_nothing() -> (
    None
):
    found = diagnose(VARIED, 3, WHERE, Training("hash-seed"))
    assert found is not None and (found.factor, found.file) == ("hash-seed", "")
    assert at_line(found, "hash-seed", None) == found
    told = at_line(
        found, "hash-seed", replace(use("line", 7, call="classes = set(labels)"), file="utils.py")
    )
    assert (told.file, told.line, told.call) == ("utils.py", 7, "classes = set(labels)")
    assert (
        told.message
        == "repeatable, but not robust: classes = set(labels) in utils.py:7 depends on the order "
        "of a set, which PYTHONHASHSEED decides"
    )


def test_every_name_of_the_spec_has_a_cause_and_a_remedy() -> None:
    assert set(SURROUNDINGS) == {*VARIED, THREADS}
    assert all(said.cause and said.what and said.remedy for said in SURROUNDINGS.values())
