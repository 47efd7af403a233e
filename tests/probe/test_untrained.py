"""Of what no optimizer moves, an odd module costs its own rows, and a note says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.tracing import trace_cases

ODD = """
import torch
from torch import nn
net = nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
class Average(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("kept", torch.ones(3))
        self.count = 7
class Raises(Average):
    def parameters(self, recurse=True):
        if trained:
            raise RuntimeError("not here")
        return super().parameters(recurse)
class Failing(nn.Module):
    @property
    def named_modules(self):
        if trained:
            raise ZeroDivisionError
        return super().named_modules
class Guarded(nn.Module):
    def __getattribute__(self, name):
        if trained:
            raise LookupError(name)
        return super().__getattribute__(name)
trained = False
odd = [Raises(), Failing(), Guarded(), nn.LazyLinear(2)]
kept = Average()
for step in range(2):
    opt.zero_grad()
    net(torch.ones(2, 3)).sum().backward()
    opt.step()
trained = True
"""


@pytest.mark.slow
def test_an_odd_module_hides_no_other_and_is_counted_in_a_note(tmp_path: Path) -> None:
    without = "".join(line for line in ODD.splitlines(True) if not line.startswith("odd = "))
    found = trace_cases(tmp_path, {"odd": ODD, "clean": without})
    odd, clean = found["odd"].trace, found["clean"].trace
    rows, among = ({(what, name) for what, name, _ in item.unmoved} for item in (clean, odd))
    assert {("module", "Average"), ("attribute", "Average.count")} <= rows <= among
    assert not clean.notes and [name for name, _ in odd.notes] == ["modules-not-read"]
