"""Claims about sketches: two runs of which one is gone are as far apart as the sums say that the
probe wrote of their tensors, and training notices nothing of it."""

from __future__ import annotations

import math
import weakref
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from repro_gate.probe import distance
from repro_gate.probe.distance import SUMS, sketch
from repro_gate.trace.fields import Sketched
from tests.support.tracing import Case, blocks, trace_cases

INF, NAN = math.inf, math.nan


def drawn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    source = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=source, dtype=torch.float64).to(dtype)


def sums(tensor: Any) -> list[float]:
    found = sketch(tensor)
    assert found is not None and len(found) == SUMS
    return found


def apart(a: list[float], b: list[float] | tuple[float, ...]) -> float:
    return math.sqrt(math.fsum((x - y) ** 2 for x, y in zip(a, b, strict=True)) / SUMS)


def signs(count: int) -> torch.Tensor:
    """A row for each element, a column for each sum."""
    return torch.tensor([sums(row) for row in torch.eye(count)])


def test_sketches_subtract_and_scale_as_tensors_do() -> None:
    a, b = drawn(1000, dtype=torch.float64), drawn(1000, seed=1, dtype=torch.float64)
    expected = [2 * x - y for x, y in zip(sums(a), sums(b), strict=True)]
    assert sums(2 * a - b) == pytest.approx(expected, rel=1e-12, abs=1e-11)
    assert sums(torch.zeros(1000)) == [0.0] * SUMS


def test_each_sum_has_signs_of_its_own_as_many_of_one_kind_as_of_the_other() -> None:
    found = signs(2048).double()
    assert found.abs().eq(1).all()
    # five standard deviations of what fair and independent coins give
    near = 5 / math.sqrt(len(found))
    assert found.mean(0).abs().max() < near
    assert (found.T @ found / len(found) - torch.eye(SUMS)).abs().max() < near
    for lag in (1, 2, 3, 64, 1000):
        assert (found[lag:] * found[:-lag]).mean() < near / math.sqrt(SUMS)


@pytest.mark.parametrize("shape", [(1,), (3,), (70_001,), (300, 500), (2, 3, 4, 5)])
def test_the_distance_is_that_of_the_sums(shape: tuple[int, ...]) -> None:
    a = drawn(*shape)
    b = a + 1e-4 * drawn(*shape, seed=1)
    true = float((a.double() - b.double()).norm())
    assert apart(sums(a), sums(b)) == pytest.approx(true, rel=0.25 if a.numel() > 3 else 0.5)
    spike = a.clone()
    spike.view(-1)[-1] += 3
    true = float(spike.view(-1)[-1].double() - a.view(-1)[-1].double())
    assert apart(sums(spike), sums(a)) == pytest.approx(true, rel=1e-6)


def test_pieces_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    a = drawn(10, 100)
    whole = sums(a)
    for size in (1, 7, 999, 1000, 1001):
        monkeypatch.setattr(distance, "_SKETCH_PIECE", size)
        assert sums(a) == pytest.approx(whole, rel=1e-12, abs=1e-12)
        assert sums(a.t()) == pytest.approx(sums(a.t().contiguous()), abs=1e-12)


TYPES = ("float16", "bfloat16", "float64", "float8_e4m3fn", "int8", "uint16", "bool", "complex64")


@pytest.mark.parametrize("name", TYPES)
def test_every_dtype_is_summed_as_the_numbers_that_it_holds(name: str) -> None:
    a = (10 * drawn(40, 50)).abs().to(getattr(torch, name))
    wide = torch.view_as_real(a) if a.is_complex() else a
    assert sums(a) == sums(wide.to(torch.float64))
    # of another layout, in logical order
    assert sums(a.t()) == sums(a.t().contiguous())


def test_views_are_sketched_as_what_they_show() -> None:
    a = drawn(2, 3, 8, 8)
    rows = torch.arange(6.0).expand(4, 6)
    lazy = torch.complex(a, -a).conj()
    for view in (a.to(memory_format=torch.channels_last), a[:, ::2, 1:], rows, lazy):
        assert sums(view) == sums(view.clone(memory_format=torch.contiguous_format))
    assert sums(torch.complex(a, -a).imag) == sums(-a)
    assert sums(torch.nn.Parameter(a)) == sums(a)


def test_nothing_is_zero_and_what_is_not_finite_has_no_sketch() -> None:
    assert sums(torch.empty(0, 4)) == [0.0] * SUMS
    assert sums(torch.tensor(-2.5))[0] in (-2.5, 2.5)
    for value in (NAN, INF, -INF):
        assert sketch(torch.tensor([1.0, value, 2.0])) is None
    most = torch.finfo(torch.float64).max
    assert sketch(torch.tensor([most] * 9, dtype=torch.float64)) is None  # the sums overflow
    assert sketch(torch.empty(3, device="meta")) is None  # an error ends no recording


class Memory(TorchDispatchMode):
    """Adds up what is alive of the storages that operators made, but for that of `given`."""

    def __init__(self, given: torch.Tensor) -> None:
        super().__init__()
        self.given = given.untyped_storage().data_ptr()
        self.alive: dict[int, tuple[Any, int]] = {}
        self.peak = 0

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor) and result.untyped_storage().data_ptr() != self.given:
            storage = result.untyped_storage()
            self.alive.setdefault(storage.data_ptr(), (weakref.ref(result), storage.nbytes()))
        self.alive = {at: item for at, item in self.alive.items() if item[0]() is not None}
        self.peak = max(self.peak, sum(size for _, size in self.alive.values()))
        return result


def test_a_sketch_takes_little_memory_and_no_random_number() -> None:
    large = torch.ones(3000, 6000)
    before = torch.get_rng_state()
    for tensor in (large, large.t()):
        with Memory(large) as memory:
            assert sketch(tensor) is not None
        assert 8 << 20 < memory.peak < 64 << 20 < large.nbytes
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(large, torch.ones(3000, 6000))


SCRIPT = """
import random, sys, torch
random.seed(0)  # a fork has another state
torch.manual_seed(int(sys.argv[1]))
net = torch.nn.Sequential(torch.nn.Linear(30, 20), torch.nn.BatchNorm1d(20), torch.nn.Linear(20, 1))
net.idle = torch.nn.Parameter(torch.full((3,), float("nan")))
opt = torch.optim.Adam(net.parameters(), lr=0.1)
torch.manual_seed(0)
for step in range(3):
    opt.zero_grad()
    net(torch.randn(16, 30)).square().mean().backward()
    if step == 0:
        gradients = {name: item.grad.clone() for name, item in net.named_parameters() if item.grad is not None}
    opt.step()
torch.save([gradients, net.state_dict()], sys.argv[1] + ".pt")
"""
KEEP = {"final": True, "steps": [0], "kinds": ["gradient", "parameter"], "sketch": True}


def saved(case: Case, seed: int) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    path = case.run.folder.parent.parent / "workspace" / f"{seed}.pt"
    gradients, state = torch.load(path, weights_only=True)
    return gradients, state


def of(rows: list[Sketched]) -> dict[tuple[str, str], Sketched]:
    found = {(row.kind, row.name): row for row in rows}
    assert len(found) == len(rows)
    return found


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Case]:
    """Two runs that sketch, with unlike seeds, and one that does not."""
    cases = {"one": (SCRIPT, "1"), "two": (SCRIPT, "2")}
    place = tmp_path_factory.mktemp("sketch")
    found = trace_cases(place, cases, probe={"keep": KEEP})
    assert found["one"].run.outcome == "finished", found["one"].run.problem
    [plain] = trace_cases(tmp_path_factory.mktemp("plain"), {"one": (SCRIPT, "1")}).values()
    return {**found, "plain": plain}


def test_a_run_writes_sketches_of_its_first_gradients_and_last_parameters(
    runs: Mapping[str, Case],
) -> None:
    trace = runs["one"].trace
    found = of(trace.sketches)
    for kind, tensors in zip(("gradient", "parameter"), saved(runs["one"], 1), strict=True):
        wanted = {name: item for name, item in tensors.items() if "running" not in name}
        wanted.pop("1.num_batches_tracked", None)
        assert {name for own, name in found if own == kind} == set(wanted)
        for name, tensor in wanted.items():
            row = found[kind, name]
            assert (row.dtype, row.shape) == ("float32", tuple(tensor.shape))
            assert row.sums == (None if name == "idle" else pytest.approx(sums(tensor), rel=1e-9))
    assert found["parameter", "idle"].sums is None
    assert trace.notes == []


def test_two_runs_are_as_far_apart_as_their_sketches(runs: Mapping[str, Case]) -> None:
    one, two = (of(runs[name].trace.sketches) for name in ("one", "two"))
    assert one.keys() == two.keys()
    weights = [saved(runs[name], seed)[1]["0.weight"] for name, seed in (("one", 1), ("two", 2))]
    rows = [found["parameter", "0.weight"].sums for found in (one, two)]
    assert rows[0] and rows[1]
    true = float((weights[0].double() - weights[1].double()).norm())
    assert apart(list(rows[0]), rows[1]) == pytest.approx(true, rel=0.25)


def test_a_run_that_is_not_asked_writes_none_and_has_the_same_bits(
    runs: Mapping[str, Case],
) -> None:
    plain, one = runs["plain"], runs["one"]
    assert plain.trace.sketches == []
    for kind in ("rng", "gradient", "parameter", "optimizer"):
        for step in range(-1, 3):
            ours, theirs = (blocks(case.trace, kind, step) for case in (plain, one))
            assert ours or step < 0
            assert [item.digests for item in ours] == [item.digests for item in theirs]


def test_only_the_largest_tensors_are_sketched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distance, "MOST_SKETCHED", 2)
    written: list[Any] = []

    session: Any = SimpleNamespace(
        config={"keep": {"sketch": True, "reference": {}}},
        kept_files={},
        step=0,
        key=lambda: "",
        event=lambda name, rows: written.extend((name, row[1]) for row in rows),
    )
    items = [("small", drawn(2)), ("large", drawn(9)), ("tiny", drawn(1)), ("middle", drawn(4))]
    for label, kind in (("step0", "parameter"), ("final", "optimizer"), ("step1", "gradient")):
        distance.keep(session, label, kind, items)
    assert written == []
    distance.keep(session, "step0", "gradient", items)
    assert written == [("sketches", "large"), ("sketches", "middle")]
