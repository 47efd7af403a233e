"""The fleet check: who agrees, who differs from the others or from itself, who has no result, and what
sets it apart."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from repro_gate.compare.fleet import (
    AGREES,
    DIFFERS,
    NOTHING,
    UNSTEADY,
    Apart,
    Fleet,
    Record,
    fleet,
)
from repro_gate.compare.model import Divergence

FIRST = Divergence(step=7, kind="gradient", name="fc.weight")
OWN = Divergence(step=2, kind="loss", name="loss")


def one(node: str, bits: str = "a", **more: Any) -> Record:
    return Record(path=f"{node}-{bits}.json", node=node, bits=bits, **more)


def lost(node: str, why: str = "it crashed") -> Record:
    return one(node, "", why=why)


def answered(*records: Record, expected: int = 0) -> Fleet:
    """The answer, where every two groups first differ at FIRST."""

    def locate(others: Sequence[Record], part: Sequence[Record]) -> Divergence:
        assert others and part and others[0].bits != part[0].bits
        return FIRST

    return fleet(records, locate, expected)


def told(answer: Fleet) -> list[tuple[str, str]]:
    return [(group.kind, " ".join(group.nodes)) for group in answer.groups]


def test_equal_bits_agree_and_the_smaller_groups_differ_from_the_largest() -> None:
    answer = answered(one("a"), one("b"))
    assert told(answer) == [(AGREES, "a b")]
    assert (answer.verdict, answer.agreeing, answer.nodes) == ("pass", 2, 2)
    assert answer.groups[0].first_divergence is None and answer.groups[0].set_apart == ()
    answer = answered(one("x", "c"), one("a"), one("b"), one("y", "d"), one("z", "c"), one("e"))
    assert told(answer) == [(AGREES, "a b e"), (DIFFERS, "x z"), (DIFFERS, "y")]
    assert (answer.verdict, answer.agreeing, answer.nodes) == ("fail", 3, 6)
    assert [group.first_divergence for group in answer.groups] == [None, FIRST, FIRST]
    assert answer.groups[1].reports == ("x-c.json", "z-c.json")


def test_in_a_tie_nobody_is_to_blame() -> None:
    answer = answered(one("a"), one("b", "c"), one("d"), one("e", "c"), one("f", "g"))
    assert told(answer) == [(DIFFERS, "a d"), (DIFFERS, "b e"), (DIFFERS, "f")]
    assert (answer.verdict, answer.agreeing) == ("fail", 0)
    assert [group.first_divergence for group in answer.groups] == [None, FIRST, FIRST]


def test_who_differs_from_itself_has_no_say() -> None:
    # by the two runs of one report, whose bits are those of most
    answer = answered(one("a"), one("b"), one("d", own=OWN))
    assert told(answer) == [(AGREES, "a b"), (UNSTEADY, "d")]
    assert (answer.verdict, answer.agreeing, answer.nodes) == ("fail", 2, 3)
    assert [group.first_divergence for group in answer.groups] == [None, OWN]
    # two of them are no majority over one that is steady
    assert told(answered(one("a"), one("b", "c", own=OWN), one("d", "c", own=OWN)))[0] == (
        AGREES,
        "a",
    )
    answer = answered(one("a", own=OWN), one("b", own=OWN))
    assert told(answer) == [(UNSTEADY, "a"), (UNSTEADY, "b")] and answer.agreeing == 0
    # several reports of one node count once
    answer = answered(one("a"), one("a"), one("a"), one("b", "c"), one("d", "c"))
    assert told(answer)[0] == (AGREES, "b d") and answer.shared_names == ()


def test_a_report_that_claims_another_nodes_name_hides_neither() -> None:
    answer = answered(one("a"), one("b"), one("b", "c"), one("e"))
    assert told(answer) == [(AGREES, "a b (b-a.json) e"), (DIFFERS, "b (b-c.json)")]
    assert (answer.verdict, answer.agreeing, answer.nodes) == ("fail", 2, 3)
    assert answer.groups[1].first_divergence == FIRST
    assert answer.shared_names == ("b",)
    # also one whose own two runs differ, or that has no result
    answer = answered(one("a"), one("b"), one("b", own=OWN))
    assert told(answer) == [(AGREES, "a b (b-a.json)"), (UNSTEADY, "b (b-a.json)")]
    answer = answered(one("a"), one("b"), lost("b"))
    assert told(answer) == [(AGREES, "a b (b-a.json)"), (NOTHING, "b (b-.json)")]


def test_no_result_is_no_agreement_and_no_divergence() -> None:
    answer = answered(one("a"), one("b"), lost("c"), lost("d"), lost("e", "no GPU"))
    assert told(answer) == [(AGREES, "a b"), (NOTHING, "c d"), (NOTHING, "e")]
    assert [group.why for group in answer.groups] == ["", "it crashed", "no GPU"]
    assert (answer.verdict, answer.agreeing, answer.nodes) == ("inconclusive", 2, 5)
    assert answered(one("a"), one("b", "c"), one("d"), lost("e")).verdict == "fail"
    assert answered(lost("a"), lost("b")).verdict == "inconclusive"
    # a node with a result and a crash is not one of those that agree
    assert answered(one("a"), one("b"), lost("b")).agreeing == 1
    answer = answered(one("a"), one("b"), expected=4)
    assert answer.groups[-1].why == "2 of 4 nodes left no report" and answer.nodes == 4
    assert (answer.verdict, answer.agreeing) == ("inconclusive", 2)
    assert answered(one("a"), one("b"), expected=2).verdict == "pass"
    assert answered().verdict == "pass" and answered(expected=1).verdict == "inconclusive"


def test_what_no_node_of_the_largest_group_has_sets_apart_the_likeliest_first() -> None:
    usual = {"driver": "535", "kernel": "6.1", "gpu.0.ecc-corrected": "0", "cpu-model": "EPYC"}
    odd = {**usual, "driver": "550", "gpu.0.ecc-corrected": "3", "gpu-uuid": "GPU-x", "numa": "2"}
    facts = [{**usual, "kernel": kernel, "gpu-uuid": kernel} for kernel in ("6.1", "6.2")]
    records = [one(kernel["kernel"], facts=kernel) for kernel in facts]
    answer = answered(*records, one("x", "c", facts={**odd, "kernel": "6.2"}))
    assert answer.groups[1].set_apart == (
        Apart("gpu.0.ecc-corrected", "3", "0"),
        Apart("driver", "550", "535"),
        Apart("gpu-uuid", "GPU-x", None),
        Apart("numa", "2", None),
    )
    # also of a node without a result; and nothing is known where no node is steady
    assert answered(*records, lost("y")).groups[1].set_apart == ()
    assert answered(one("a", own=OWN, facts=odd)).groups[0].set_apart == ()


@given(
    st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from(["", "x", "y"]))), st.randoms()
)
def test_every_node_is_told_about_and_the_order_of_the_reports_decides_no_verdict(
    pairs: list[tuple[str, str]], chance: random.Random
) -> None:
    records = [one(node, bits, why="" if bits else "so") for node, bits in pairs]
    answer = answered(*records)
    labels = {node[0] for group in answer.groups for node in group.nodes}
    assert labels == {node for node, _ in pairs}
    assert sum(len(group.reports) for group in answer.groups) == len(records)
    assert answer.agreeing <= answer.nodes == len({node for node, _ in pairs})
    assert (answer.verdict == "pass") == (
        len({bits for _, bits in pairs}) < 2 and ("" not in dict(map(reversed, pairs)))
    )
    chance.shuffle(records)
    again = answered(*records)
    assert (again.verdict, again.agreeing) == (answer.verdict, answer.agreeing)
