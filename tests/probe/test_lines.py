"""Claims about `probe.lines`: two runs of a script differ first at the line whose values differ;
reading values calls none of its code."""

from __future__ import annotations

from pathlib import Path

from repro_gate.diagnosis.suspects import first_difference
from repro_gate.trace.model import Used
from tests.support.tracing import trace_script

SCRIPT = """
import os
import random
from dataclasses import dataclass


class Item:
    def __init__(self, value):
        self.value = value

    def __repr__(self):
        raise AssertionError("the training's code was called")

    __eq__ = __hash__ = None
    __hash__ = object.__hash__


class Holder:
    @property
    def value(self):
        raise AssertionError("the training's code was called")

    def __getattr__(self, name):
        raise AssertionError("the training's code was called")


def total(items):
    found = 0
    for item in items:
        found = 3 * found + item.value
    return found


holder = Holder()
random.SystemRandom().sample(list(map(Item, range(2000))), 2000)  # freed in any order: the next items lie anywhere
items = [Item(value) for value in range(40)]
address = {ADDRESS}
order = {ORDER}
print(total(order))
result = os.environ["HOME"]
"""


def lines(tmp_path: Path, source: str, name: str) -> tuple[list[Used], tuple[str, ...]]:
    run = trace_script(tmp_path, source, name=name, probe={"lines": 0, "factors": {}})
    assert run.ended.exit_code == 0, run.ended.tail
    return [*run.traces[0].uses], run.ended.tail


def test_the_first_line_whose_values_differ_is_the_one_that_read_an_order_by_address(
    tmp_path: Path,
) -> None:
    source = SCRIPT.replace("{ORDER}", "list(set(items))").replace("{ADDRESS}", "0")
    found = first_difference(lines(tmp_path, source, "a")[0], lines(tmp_path, source, "b")[0])
    assert found is not None
    assert found.call == "order = list(set(items))"


def test_an_address_in_a_number_is_seen_where_it_becomes_one(tmp_path: Path) -> None:
    source = SCRIPT.replace("{ORDER}", "items").replace("{ADDRESS}", "id(items)")
    found = first_difference(lines(tmp_path, source, "a")[0], lines(tmp_path, source, "b")[0])
    assert found is not None
    assert found.call == "address = id(items)"


def test_objects_that_differ_by_address_alone_are_the_same(tmp_path: Path) -> None:
    source = SCRIPT.replace("{ORDER}", "sorted(set(items), key=lambda item: item.value)").replace(
        "{ADDRESS}", "0"
    )
    first, printed = lines(tmp_path, source, "a")
    second, again = lines(tmp_path, source, "b")
    assert first_difference(first, second) is None
    assert len(first) > 100
    assert printed == again
