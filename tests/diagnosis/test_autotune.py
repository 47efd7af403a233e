"""The search finds a kernel whose configuration was chosen by timing, and clears one whose choice
changes nothing."""

from __future__ import annotations

from repro_gate.diagnosis.suspects import answers, suspects
from repro_gate.factors import BY_NAME
from tests.diagnosis.test_diagnose import HIDDEN, World, at, explained, told
from tests.support.uses import use

SCALE = at("autotune", "net.py", 9, kind="gradient", call="scale(BLOCK: 64)")


def test_a_kernel_whose_configuration_differs_is_the_cause_with_its_name_and_line() -> None:
    found = explained(World([SCALE]))
    assert told(found) == ("nondeterministic-op", "net.py", 9, True)
    assert found.message == "`scale(BLOCK: 64)` in net.py:9 was chosen by timing it"
    assert any(BY_NAME["autotune"].proof in item for item in found.evidence)
    backward = explained(World([at("autotune", "", 0, kind="gradient")]), pairs=20)
    assert told(backward)[0] == "nondeterministic-op" and backward.confirmed


def test_a_choice_that_changes_no_number_is_none() -> None:
    found = explained(World([HIDDEN], [SCALE]), pairs=20)
    assert (found.cause, found.confirmed) == ("unknown", False)


def test_both_configurations_are_told() -> None:
    pair = [(use("autotune", 9, digest, call=f"scale(BLOCK: {digest})"),) for digest in "ab"]
    [suspect] = suspects(*pair, until=9)
    said = "scale(BLOCK: a) was chosen in one run, scale(BLOCK: b) in the other"
    assert answers(suspect).endswith(said)
