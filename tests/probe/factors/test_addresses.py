"""`factors.addresses`: `id`, `hash` and `data_ptr` are told; pinned they count objects."""

from __future__ import annotations

from pathlib import Path

import pytest

from repro_gate.trace.format import SET_OF_TENSORS
from tests.probe.factors.runs import apart, once, pinned, told, watched_twice

SCRIPT = """
class Thing:
    pass
class Equal:
    def __hash__(self):
        return 7
things = [Thing() for _ in range(3)]
print(id(things[0]))
print(hash(things[0]))
print(hash(Thing))
print(hash("text") == hash("te" + "xt"), hash(Equal()), hash(3), hash((1, 2)) == hash((1, 2)))
known = {id(thing): number for number, thing in enumerate(things)}
print([known[id(thing)] for thing in things], len({hash(thing) for thing in things}))
try:
    hash([])
except TypeError as error:
    print(error)
"""


def test_addresses_are_told_and_pinned_and_other_hashes_stay(tmp_path: Path) -> None:
    both = watched_twice(tmp_path, SCRIPT)
    assert apart(both) == [True] * 3 + [False] * 3
    assert {use.line for use in told(both[0], "addresses")} == {8, 9, 10, 12, 13}
    whole = pinned(tmp_path, SCRIPT, "addresses")
    assert whole[3:] == both[0].ended.tail[3:]
    by_line = once(tmp_path, SCRIPT, {"pin": {"addresses": [["train.py", 8]]}}).ended.tail
    assert by_line[0] == whole[0] and by_line[1] != whole[1]


TORCH = """
import torch
weight = torch.nn.Parameter(torch.zeros(3))
print(weight.data_ptr() > 0, {weight: 1}[weight], hash(weight) == id(weight))
print(weight.data_ptr())
"""


@pytest.mark.slow
def test_the_address_of_a_tensor_is_pinned_where_its_line_is_named_only(tmp_path: Path) -> None:
    by_line = {"pin": {"addresses": [["train.py", 5]]}}
    named, again = (once(tmp_path, TORCH, by_line).ended.tail for _ in range(2))
    whole = once(tmp_path, TORCH, {"watch": True, "pin": {"addresses": None}})
    assert named == again and whole.ended.tail[1] != named[1]
    assert whole.ended.tail[0] == named[0] == "True 1 True"
    uses = {(use.source, use.line) for use in told(whole, "addresses")}
    assert uses == {("torch.Tensor.data_ptr", 4), ("torch.Tensor.data_ptr", 5), ("builtins.id", 4)}


SETS = """
import os, torch
junk = [bytearray(64 * os.urandom(1)[0] + 1) for _ in range(500)]
tensors = [torch.tensor(number) for number in range(40)]
places = {tensor: number for number, tensor in enumerate(tensors)}
print([int(tensor) for tensor in set(tensors)])
print([int(tensor) for tensor in {tensors[0], tensors[1], tensors[2]}], [places[tensor] for tensor in tensors] == list(range(40)))
torch.optim.SGD(tensors[:1], lr=0.1).state[tensors[0]]
print({hash(tensor) == id(tensor) for tensor in tensors}, tensors[0] in places)
"""


def test_a_line_that_makes_a_set_of_tensors_is_told_and_pinned(tmp_path: Path) -> None:
    both = watched_twice(tmp_path, SETS)
    uses = [use for use in told(both[0], "addresses") if use.source == SET_OF_TENSORS]
    assert {use.line for use in uses} == {6, 7}
    assert apart(both)[0] and not apart(both)[2]
    whole = pinned(tmp_path, SETS, "addresses")
    by_line = once(tmp_path, SETS, {"pin": {"addresses": [["train.py", 6]]}}).ended.tail
    free = both[0].ended.tail
    assert free[2] == whole[2] == by_line[2] == "{True} True" and whole[1].endswith("True")
    assert by_line[0] not in (whole[0], free[0])
