"""A row tells what repeats from what differs, what draws, what is uninitialised, what the flag
refuses, and what does not run."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from operator import itemgetter
from typing import Any

import pytest

from repro_gate.ops.worker.case import Case, Sample
from repro_gate.ops.worker.cases import catalog
from repro_gate.ops.worker.measure import Load, Measurement, Settings

Row = dict[str, Any]
Measured = Callable[..., Row]


@pytest.fixture
def row(torch: Any) -> Measured:
    """Measure a function of one vector of 1,000 numbers."""
    load = Load(torch, "cpu")
    numbers = torch.randn(1000, generator=torch.Generator().manual_seed(0))

    def made(
        function: Any, direction: str = "forward", settings: Settings | None = None, **kwargs: Any
    ) -> Row:
        case = Case("kernel/tried", lambda _: Sample(function, [numbers.clone()]), **kwargs)
        found = Measurement(torch, load, case, "float32", direction)
        return found.measure(settings or Settings(price=0))

    return made


def test_both_controls_come_out_right(torch: Any) -> None:
    load = Load(torch, "cpu")
    races, repeats = catalog(torch, "cpu", {"user": ["none:none"]})[0][:2]
    assert (races.name, repeats.name) == ("control/races", "control/repeats")
    came = [
        Measurement(torch, load, case, "float32", "forward").measure(Settings())["off"]
        for case in (races, repeats)
    ]
    assert [arm["outcome"] for arm in came] == ["differs", "repeats"]
    assert came[0]["differing"] > 0 < came[0]["max_ulp"] and came[1]["runs"] >= 4


def test_a_function_that_repeats_is_priced_by_executions_of_its_own(row: Measured) -> None:
    found = row(lambda x: x.sin(), sizes=1, settings=Settings(price=5, dear=True))
    for arm in (found["off"], found["on"]):
        assert (arm["outcome"], arm["runs"], arm["differing"]) == ("repeats", 13, 0)
    assert found["kernel"] == "aten.sin.default"
    assert len(found["off_ms"]) == len(found["on_ms"]) == 5
    assert found["off"]["digests"] == found["on"]["digests"] and len(found["off"]["digests"]) == 1


def test_a_function_that_differs_by_one_bit_in_one_execution(row: Measured, torch: Any) -> None:
    count = itertools.count()

    def late(x: Any) -> Any:
        y = x.exp()
        if next(count) == 5:
            y.view(torch.int32)[7] += 1
        return y

    found = row(late)
    off = found["off"]
    assert (off["outcome"], off["max_ulp"], off["differing"]) == ("differs", 1, 1)
    assert found["on"]["outcome"] == "repeats"


def _fresh(torch: Any) -> Any:
    generator = torch.Generator()
    generator.seed()
    return generator


def test_each_kind_of_function_has_its_outcome(row: Measured, torch: Any) -> None:
    index = torch.arange(1000)
    for function, off, on in (
        (torch.rand_like, "repeats", "repeats"),  # with its seed
        (lambda x: torch.rand(8, generator=_fresh(torch)), "differs", "differs"),
        # memory that is not written, and memory that is
        (lambda x: x.new_empty(500), "uninitialised", "repeats"),
        (lambda x: x.new_empty(500).fill_(3), "repeats", "repeats"),
        (lambda x: x.clone().resize_(2000), "uninitialised", "repeats"),
        (lambda x: x.clone().resize_(200), "repeats", "repeats"),
        (lambda x: x.add_(1), "repeats", "repeats"),  # it is given copies
        (lambda x: x.put(index, x), "repeats", "raises"),
    ):
        found = row(function)
        assert (found["off"]["outcome"], found["on"]["outcome"]) == (off, on), found
    assert "deterministic implementation" in found["on"]["message"]
    assert (found["kernel"], found["form"]) == ("aten.put.default", "")
    # the form is what chooses its algorithm
    assert row(lambda x: x.put(index, x, accumulate=True))["form"] == "accumulate=True"
    assert row(lambda x: x.scatter_reduce(0, index, x, "amax"))["form"] == "reduce=amax"


def test_what_does_not_run_has_no_kernel_and_says_why(row: Measured) -> None:
    def refuse(x: Any) -> Any:
        raise NotImplementedError("not for " + "this " * 100)

    for arm in itemgetter("off", "on")(row(refuse)):
        assert arm["outcome"] == "no-kernel" and arm["message"].startswith("not for this")
        assert len(arm["message"]) == 300


def test_what_fails_later_differs_unless_memory_is_short(row: Measured, torch: Any) -> None:
    def fails(message: str) -> Any:
        count = itertools.count()

        def late(x: Any) -> Any:
            if not torch.are_deterministic_algorithms_enabled() and next(count) == 4:
                raise RuntimeError(message)
            return x + 1

        return late

    found = row(fails("no workspace left"))["off"]
    assert (found["outcome"], found["differing"]) == ("differs", 1)
    assert found["message"] == "the first execution ran, a later one did not: no workspace left"
    short = row(fails("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"))
    for off in (short["off"], row(lambda x: x.new_empty(1 << 50))["off"]):
        assert off["outcome"] == "crash" and "memory" in off["message"]
    # no later call of CUDA in this process would work
    with pytest.raises(RuntimeError, match="misaligned"):
        row(fails("CUDA error: misaligned address"))


def test_the_backward_of_a_refused_forward_is_measured(row: Measured, torch: Any) -> None:
    def refused(x: Any) -> Any:
        if torch.are_deterministic_algorithms_enabled():
            raise RuntimeError("it does not have a deterministic implementation")
        return x.sin()

    found = row(refused, "backward")["on"]
    assert found["outcome"] == "repeats" and "ran without them" in found["message"]
    assert row(refused, "forward")["on"]["outcome"] == "raises"


def test_a_backward_is_measured_by_itself(row: Measured, torch: Any) -> None:
    found = row(lambda x: x.sin(), "backward")
    assert found["off"]["outcome"] == "repeats" and found["kernel"] == "aten.cos.default"
    count = itertools.count()

    class Racing(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(context: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(context: Any, gradient: Any) -> Any:
            return gradient * (2 + next(count) % 2)

    assert row(Racing.apply, "backward")["off"]["outcome"] == "differs"
    assert row(Racing.apply, "forward")["off"]["outcome"] == "repeats"


def test_the_first_operator_that_differs_is_named(row: Measured, torch: Any) -> None:
    # each thread works for longer than a turn on the processor, so that they race on a busy machine
    # too
    size, seeded = 1 << 21, torch.Generator().manual_seed(0)
    index = torch.randint(0, 4, (size,), generator=seeded)
    source = torch.randn(size, generator=seeded)
    if torch.get_num_threads() < 2:
        pytest.skip("one thread adds in one order")
    found = row(
        lambda x: (x.exp().index_put((index,), source, accumulate=True) * 2).cos(),
        settings=Settings(repeats=20, seconds=8.0, price=0),
    )
    assert found["off"]["outcome"] == "differs" and found["on"]["outcome"] == "repeats"
    assert found["kernel"] in ("aten.index_put.default", "aten.index_put_.default")
