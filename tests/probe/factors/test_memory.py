"""Claims about `factors.memory`: what is made empty is told; pinned, it holds a number."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.probe.factors.runs import once, pinned, uses_of, watched_twice

pytestmark = pytest.mark.slow

NUMPY = """
import numpy as np
for size in (8, 4096):
    held = np.frombuffer(np.random.default_rng().bytes(8 * size)).copy()  # other bytes in each run, and the next array lies there
    del held
    print(np.empty(size).tobytes().hex()[:600])
    print(np.empty_like(np.zeros(size, np.int64)).sum())
print(np.empty(3, bool).tolist(), np.empty(0).tolist(), np.empty(2, object).tolist(), np.empty((2, 2), "S3").shape)
print(np.zeros(3).tolist(), np.full(2, 7).tolist())
"""


def test_numpys_empty_arrays_are_told_and_pinned(tmp_path: Path) -> None:
    both = watched_twice(tmp_path, NUMPY)
    first, second = (
        {(use.line, use.count, use.digest) for use in uses_of(run, "memory") if use.line == 6}
        for run in both
    )
    assert first and first != second
    assert {use.source for use in uses_of(both[0], "memory")} == {"numpy.empty", "numpy.empty_like"}
    same = pinned(tmp_path, NUMPY, "memory")
    varied = once(tmp_path, NUMPY, {"vary": ["memory"]}).ended.tail
    assert (same[0], same[3]) == ("000000000000e03f" * 8, "4096")
    assert (varied[0], varied[3]) == ("000000000000f8bf" * 8, "8192")
    assert varied[5] == same[5] == both[0].ended.tail[5]


LARGE = """
import numpy as np
for _ in range(3):
    held = np.zeros(1 << 20)
    held[-1] = np.random.default_rng().random()
    del held
print(np.empty(1 << 20).shape)
"""


def test_the_end_of_a_large_array_counts_too(tmp_path: Path) -> None:
    first, second = (
        {use.digest for use in uses_of(run, "memory") if use.source == "numpy.empty"}
        for run in watched_twice(tmp_path, LARGE)
    )
    assert first and first != second


TORCH = """
import torch
def shown(tensor):
    return tensor.reshape(-1)[:2].tolist()
print(shown(torch.empty(64, 4)), shown(torch.empty_like(torch.zeros(9))), shown(torch.empty_strided((2, 3), (3, 1))))
print(shown(torch.zeros(2).new_empty(6)), shown(torch.empty(5, dtype=torch.int64)), shown(torch.empty(5, dtype=torch.bool)))
with torch.device("meta"):
    print(torch.empty(3).device, torch.zeros(3).device)
@torch.jit.script
def scripted(count: int):
    return torch.empty(count).zero_()
print(scripted(3).tolist(), torch.empty(0).tolist())
torch.manual_seed(3)
print(torch.nn.Linear(4, 4).weight.sum().item(), torch.rand(1).item())
"""


def test_torchs_empty_tensors_hold_a_number_where_pinned(tmp_path: Path) -> None:
    watched = once(tmp_path, TORCH, {"watch": True})
    others = (
        {"pin": {"memory": None}},
        {"vary": ["memory"]},
        {"pin": {"memory": [["train.py", 6]]}},
    )
    plain = watched.ended.tail
    whole, varied, by_line = (once(tmp_path, TORCH, factors).ended.tail for factors in others)
    assert plain[0] == "[nan, nan] [nan, nan] [nan, nan]"
    halves = "[0.5, 0.5] [0.5, 0.5] [0.5, 0.5]"
    assert whole == (halves, "[0.5, 0.5] [1, 1] [True, True]", *plain[2:])
    # the flag has filled it: a run that is only varied keeps torch's functions as they are
    assert varied == plain
    assert plain[2:4] == ("meta meta", "[0.0, 0.0, 0.0] []")
    assert {use.line for use in uses_of(watched, "memory") if use.direct} >= {5, 6}
    assert by_line[:2] == (plain[0], whole[1])


COMPILED = """
import torch
@torch.compile(fullgraph=True, backend="eager")
def compiled(x):
    return x + torch.empty(x.shape).zero_()
print(compiled(torch.ones(2)).tolist())
"""


def test_a_whole_graph_is_compiled_with_a_pinned_empty_tensor(tmp_path: Path) -> None:
    assert once(tmp_path, COMPILED, {"pin": {"memory": None}}).ended.tail == ("[1.0, 1.0]",)
