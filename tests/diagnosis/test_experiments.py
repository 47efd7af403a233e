"""Claims about `diagnosis.experiments`: what is done once, and where a search ends."""

from __future__ import annotations

import pytest

from repro_gate.diagnosis.experiments import Exhausted, Experiments, smallest


def test_an_experiment_is_done_once_unless_it_is_asked_for_again() -> None:
    asked = list[str]()

    def number(name: str) -> int:
        asked.append(name)
        return len(asked)

    experiments = Experiments(number, 3)
    assert [experiments.result(name) for name in "aba"] == [1, 2, 1]
    assert experiments.result("a", again=True) == experiments.result("a") == 3
    with pytest.raises(Exhausted):
        experiments.result("c")
    assert experiments.result("b") == 2, "what is known can still be asked for"
    assert (asked, experiments.done) == (["a", "b", "a"], 3)


def test_no_experiment_begins_after_its_time_but_the_first_that_are_always_done() -> None:
    for always in (0, 2):
        late = Experiments(len, 9, seconds=-1.0, always=always)
        few = Experiments(len, 0, always=always)
        for experiments in (late, few):
            for _ in range(always):
                experiments.spend()
            with pytest.raises(Exhausted):
                experiments.spend()
            assert experiments.done == always


def test_the_smallest_sufficient_set_is_found_or_said_not_to_be_the_smallest() -> None:
    units = "abcdefgh"
    for needed in ("a", "b", "h", "cf", "ah", units):
        asked = list[str]()

        def holds(some: frozenset[str], needed: str = needed, asked: list[str] = asked) -> bool:
            asked.append("".join(sorted(some)))
            return {*needed} <= some

        assert smallest(units, holds) == (tuple(needed), True)
        assert asked[0] == "a" and (needed == "a" or asked[1:3] == [units, "b"])
        with_bound = Experiments(holds, 3)
        found, is_smallest = smallest(units, with_bound.result)
        assert {*needed} <= {*found} and is_smallest is (needed in ("a", "b"))

    def never(some: frozenset[str]) -> bool:
        return not some

    assert smallest(units, never) == smallest("", never) == ((), True)
    with pytest.raises(Exhausted):
        smallest(units, Experiments(never, 1).result)
