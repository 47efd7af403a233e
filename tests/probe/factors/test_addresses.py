"""`factors.addresses`: `id`, `hash` and `data_ptr` are told; pinned they count objects."""

from __future__ import annotations

from pathlib import Path

import pytest

from repro_gate.trace.format import SET_OF_TENSORS
from tests.probe.factors.runs import differing, once, pinned, uses_of, watched_twice

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
    assert differing(both) == [True] * 3 + [False] * 3
    assert {use.line for use in uses_of(both[0], "addresses")} == {8, 9, 10, 12, 13}
    whole = pinned(tmp_path, SCRIPT, "addresses")
    assert whole[3:] == both[0].ended.tail[3:]
    by_line = once(tmp_path, SCRIPT, {"pin": {"addresses": [["train.py", 8]]}}).ended.tail
    assert by_line[0] == whole[0] and by_line[1] != whole[1]


TORCH = """
import os, torch
weight = torch.nn.Parameter(torch.zeros(3))
print(weight.data_ptr() > 0, {weight: 1}[weight], hash(weight) == id(weight))
print(weight.data_ptr())
junk = [bytearray(64 * os.urandom(1)[0] + 1) for _ in range(500)]
tensors = [torch.tensor(number) for number in range(40)]
places = {tensor: number for number, tensor in enumerate(tensors)}
print([int(tensor) for tensor in set(tensors)])
print([int(tensor) for tensor in {tensors[0], tensors[1], tensors[2]}], [places[tensor] for tensor in tensors] == list(range(40)))
torch.optim.SGD(tensors[:1], lr=0.1).state[tensors[0]]
print({hash(tensor) == id(tensor) for tensor in tensors}, tensors[0] in places)
"""


@pytest.mark.slow
def test_of_tensors_a_set_is_pinned_as_a_whole_and_the_data_where_its_line_is_named(
    tmp_path: Path,
) -> None:
    both = watched_twice(tmp_path, TORCH)
    uses = uses_of(both[0], "addresses")
    assert {use.line for use in uses if use.source == SET_OF_TENSORS} == {9, 10}
    assert {use.line for use in uses if use.source == "torch.Tensor.data_ptr"} == {4, 5}
    pins = ({"pin": {"addresses": pin}} for pin in (None, [["train.py", 5], ["train.py", 9]]))
    whole, by_line = ((once(tmp_path, TORCH, pin), once(tmp_path, TORCH, pin)) for pin in pins)
    assert differing(both)[:3] == [False, True, True]
    # a kernel may be handed the data's address
    assert differing(whole) == [False, True, False, False, False]
    assert differing(by_line)[:3] == [False, False, True]
    for run in (both[0], whole[0], by_line[0]):
        first, _, _, fourth, last = run.ended.tail
        assert (first, fourth[-4:], last) == ("True 1 True", "True", "{True} True")
