"""Claims about `diagnosis.suspects`: what differed between two runs, in which order it is tried,
and the first line that did."""

from __future__ import annotations

from repro_gate.diagnosis.model import Unit
from repro_gate.diagnosis.suspects import (
    differing_lines,
    line_uses,
    started,
    suspects,
)
from repro_gate.trace.format import ANY_ORDER, ASKED, HANDED, SET_OF_TENSORS, SHARED
from repro_gate.trace.model import Used
from tests.support.uses import use


def tried(first: list[Used], second: list[Used], until: int = 0) -> list[Unit]:
    return [item.unit for item in suspects(first, second, until)]


def line(at: int, digest: str = "s", process: str = "main") -> Used:
    return use("line", at, digest, process=process)


def test_other_answers_counts_and_missing_calls_are_suspects_and_shown_first() -> None:
    first = [use("clock", 1), use("clock", 2, "a"), use("clock", 3, count=2), use("clock", 4)]
    second = [use("clock", 1), use("clock", 2, "b"), use("clock", 3, count=5), use("entropy", 5)]
    assert {item.unit.site for item in suspects(first, second, 0) if item.unit.site} == {
        ("train.py", at) for at in (2, 3, 4, 5)
    }
    clock, same = use("clock", 7, "a", count=3), use("listing", 2, "same")
    first = [clock, use("clock", 7, "b", step=1), use("entropy", 9, "x"), same]
    second = [clock, use("clock", 7, "c", step=1), same, use("identity", 4)]
    found = [
        (item.factor, item.line, item.count, item.differs) for item in line_uses(first, second)
    ]
    differed = {("clock", 7, 4, True), ("entropy", 9, 1, True), ("identity", 4, 0, True)}
    assert found[-1] == ("listing", 2, 1, False) and set(found[:-1]) == differed
    assert line_uses(first, first)[0].differs is False


def test_a_set_of_tensors_and_threads_whose_results_are_taken_stand_for_what_made_them() -> None:
    first, second = (
        [use("addresses", line, digest, source=SET_OF_TENSORS) for line in (4, 9)]
        for digest in "ab"
    )
    (found,) = suspects(first, second, 0)
    assert (found.unit, found.use.site) == (Unit("addresses"), ("train.py", 4))
    first, second = (
        [use("threads", 3, digest), use("threads", 5, digest, source="as_completed" + HANDED)]
        for digest in "ab"
    )
    assert [item.use.site for item in suspects(first, second, 0)] == [("train.py", 5)]
    assert [item.site[1] for item in started(first, "threads")] == [5, 3]


def test_the_first_line_with_other_values_or_the_one_before_two_ways_is_told() -> None:
    one, other = ([line(at) for at in (1, 2, last)] for last in (3, 7))
    assert [*differing_lines(one, other)] == [one[1]]
    assert [*differing_lines(one, one)] == []
    one, other = ([line(1, digest, process="Worker-1"), line(9, digest)] for digest in "xy")
    assert [*differing_lines(one, other)] == [one[1], one[0]]
    # all of them, in order
    one, other = ([line(1, digest), line(2), line(4), line(5, digest)] for digest in "xy")
    assert [*differing_lines(one, other)] == [one[0], one[3]]


def test_who_only_reads_what_is_shared_starts_no_race() -> None:
    start, read = use("threads", 3), use("threads", 9, step=2, source="Value" + SHARED)
    assert started([start, read], "threads") == [start]
    [found] = suspects(
        [start, read], [start, use("threads", 9, "b", step=2, source="Value" + SHARED)], 2
    )
    assert (found.unit, found.use) == (Unit("threads"), read)


def test_a_call_of_a_library_comes_before_an_import_and_a_lines_own_call_before_both() -> None:
    calls = ["import gym", "from gym import (", "env.reset()", "os.urandom(4)"]
    first, second = (
        [
            use("entropy", line, digest, call=call, direct=call.startswith("os."))
            for line, call in enumerate(calls, 1)
        ]
        for digest in "ab"
    )
    first, second = (
        [*uses, use("entropy", 0, digest), use("clock", 9, digest), use("clock", 8, digest, step=3)]
        for uses, digest in ((first, "a"), (second, "b"))
    )
    # by factor, then what has no line; one after the divergence is none
    assert [item.use.site[1] for item in suspects(first, second, 0)] == [4, 9, 3, 1, 2, 0]


def test_a_line_that_asks_gives_way_to_one_that_reads() -> None:
    asks, other = (use("leftovers", 1, digest, source="/x" + ASKED) for digest in "ac")
    reads = use("leftovers", 2, "b", source="/x")
    assert tried([asks], [other, reads]) == [Unit("leftovers", ("train.py", 2))]
    assert tried([asks], [other]) == [Unit("leftovers", ("train.py", 1))]

    def printed(ordered: str, lines: str) -> list[Used]:
        said = ((ordered, "xargs"), (lines, "xargs" + ANY_ORDER))
        return [use("commands", 3, digest, source=source) for digest, source in said]

    parallel, commands = (Unit(name, ("train.py", 3)) for name in ("parallel", "commands"))
    assert tried(printed("a", "same"), printed("b", "same")) == [parallel]
    assert tried(printed("a", "x"), printed("b", "y")) == [commands]


def test_a_file_comes_before_the_process_and_that_before_what_the_machine_says_of_itself() -> None:
    order = [("files", "/srv/rows.csv"), ("process", "/proc/self/stat"), ("files", "/proc/stat")]
    first, second = (
        [
            use(factor, at + 1, digest, source=source, outside=True, step=at - 1)
            for at, (factor, source) in enumerate(reversed(order))
        ]
        for digest in "ab"
    )
    found = [(item.use.factor, item.use.source) for item in suspects(first, second, 9)]
    assert found == order
