"""Claims about `probe.lines`: two runs differ first at a line; reading values calls no code."""

from __future__ import annotations

from pathlib import Path

import pytest

from repro_gate.diagnosis.suspects import differing_lines
from repro_gate.probe.source_line import code_of
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


BY_ADDRESS = "sorted(set(items), key=lambda item: item.value)"


@pytest.mark.parametrize(
    ("order", "address", "line"),
    [
        ("list(set(items))", "0", "order = list(set(items))"),  # read by address
        ("items", "id(items)", "address = id(items)"),  # seen where it becomes a number
        (BY_ADDRESS, "0", ""),  # they differ by address alone
    ],
)
def test_the_first_line_whose_values_differ_is_named_and_addresses_alone_are_none(
    order: str, address: str, line: str, tmp_path: Path
) -> None:
    source = SCRIPT.replace("{ORDER}", order).replace("{ADDRESS}", address)
    (first, printed), (second, again) = (lines(tmp_path, source, name) for name in "ab")
    found = next(differing_lines(first, second), None)
    assert (found.call if found else "") == line
    assert line or (len(first) > 100 and printed == again)


KILLED = """
import os
if os.fork() == 0:
    for number in range(99):
        square = number * number
    os.kill(os.getpid(), 9)
os.wait()
"""


def test_lines_of_a_worker_that_is_killed_are_there(tmp_path: Path) -> None:
    run = trace_script(tmp_path, KILLED, probe={"lines": 0, "factors": {}})
    found = [use.line for trace in run.traces for use in trace.uses]
    assert found.count(5) > 50


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (
            "    classes_dict = {c: np.identity(len(classes))[i, :] for i, c in  # rows\n",
            "i, c in…",
        ),
        ("total = first + \\\n", "total = first +…"),
        ('text = """one\n', 'text = """one…'),
        ("    x = f('a  # b')  # c\n", "x = f('a  # b')"),
        ("for name in names:\n", "for name in names:"),
        (f"x = {'y' * 300}\n", "yyy…"),
    ],
)
def test_a_line_of_code_is_told_without_its_comment_and_says_where_it_goes_on(
    line: str, code: str
) -> None:
    found = code_of(line)
    assert found.endswith(code) and len(found) <= 200
    assert line.strip().startswith(found.rstrip("…"))
