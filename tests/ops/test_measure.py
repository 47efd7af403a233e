"""A row tells what repeats from what differs, what draws, what is uninitialised, what the flag
refuses, and what does not run."""

from __future__ import annotations

import itertools
from collections.abc import Callable
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
        function: Any,
        direction: str = "forward",
        settings: Settings | None = None,
        **kwargs: Any,
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


def test_a_function_that_repeats(row: Measured) -> None:
    found = row(lambda x: x.sin(), sizes=1)
    for arm in ("off", "on"):
        assert (
            found[arm]["outcome"] == "repeats"
            and found[arm]["runs"] == 8
            and found[arm]["differing"] == 0
        )
    assert found["kernel"] == "aten.sin.default" and found["off_ms"] == []
    assert found["off"]["digests"] == found["on"]["digests"] and len(found["off"]["digests"]) == 1


def test_a_function_that_differs_by_one_bit_in_one_execution(row: Measured, torch: Any) -> None:
    count = itertools.count()

    def late(x: Any) -> Any:
        y = x.exp()
        if next(count) == 5:
            y.view(torch.int32)[7] += 1
        return y

    found = row(late)
    assert found["off"]["outcome"] == "differs" and found["off"]["max_ulp"] == 1
    assert found["off"]["differing"] == 1
    assert found["on"]["outcome"] == "repeats"


def test_a_random_operator_repeats_with_its_seed(row: Measured, torch: Any) -> None:
    assert row(torch.rand_like)["off"]["outcome"] == "repeats"
    own = row(lambda x: torch.rand(8, generator=_fresh(torch)))
    assert own["off"]["outcome"] == "differs"


def _fresh(torch: Any) -> Any:
    generator = torch.Generator()
    generator.seed()
    return generator


def test_uninitialised_memory_is_told_from_memory_that_is_written(row: Measured) -> None:
    found = row(lambda x: x.new_empty(500))
    assert found["off"]["outcome"] == "uninitialised" and found["on"]["outcome"] == "repeats"
    assert row(lambda x: x.new_empty(500).fill_(3))["off"]["outcome"] == "repeats"
    assert row(lambda x: x.clone().resize_(2000))["off"]["outcome"] == "uninitialised"
    assert row(lambda x: x.clone().resize_(200))["off"]["outcome"] == "repeats"


def test_what_the_flag_refuses_raises_and_names_the_operator(row: Measured, torch: Any) -> None:
    index = torch.arange(1000)
    found = row(lambda x: x.put(index, x))
    assert (
        found["on"]["outcome"] == "raises"
        and "deterministic implementation" in found["on"]["message"]
    )
    assert found["kernel"] == "aten.put.default" and found["off"]["outcome"] == "repeats"


def test_what_does_not_run_has_no_kernel_and_says_why(row: Measured) -> None:
    def refuse(x: Any) -> Any:
        raise NotImplementedError("not for " + "this " * 100)

    found = row(refuse)
    assert found["off"]["outcome"] == found["on"]["outcome"] == "no-kernel"
    assert found["on"]["message"].startswith("not for this") and len(found["on"]["message"]) == 300


def test_what_fails_only_later_differs_unless_the_memory_is_short(
    row: Measured, torch: Any
) -> None:
    def fails(error: Exception) -> Any:
        count = itertools.count()

        def late(x: Any) -> Any:
            if not torch.are_deterministic_algorithms_enabled() and next(count) == 4:
                raise error
            return x + 1

        return late

    found = row(fails(RuntimeError("no workspace left")))["off"]
    assert (found["outcome"], found["differing"]) == ("differs", 1)
    assert found["message"] == "the first execution ran, a later one did not: no workspace left"
    short = row(
        fails(
            RuntimeError(
                "DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"
            )
        )
    )["off"]
    assert short["outcome"] == "crash" and "can't allocate memory" in short["message"]
    # no later call of CUDA in this process would work
    with pytest.raises(RuntimeError, match="misaligned"):
        row(fails(RuntimeError("CUDA error: misaligned address")))
    first = row(lambda x: x.new_empty(1 << 50))["off"]
    assert first["outcome"] == "crash" and "memory" in first["message"]


def test_a_price_is_of_executions_of_its_own_and_taken_where_it_is_asked_for(row: Measured) -> None:
    found = row(lambda x: x.sin(), settings=Settings(price=5, dear=True))
    assert len(found["off_ms"]) == len(found["on_ms"]) == 5


def test_the_backward_of_a_forward_that_the_flags_refuse_is_measured_by_itself(
    row: Measured, torch: Any
) -> None:
    def refused(x: Any) -> Any:
        if torch.are_deterministic_algorithms_enabled():
            raise RuntimeError("it does not have a deterministic implementation")
        return x.sin()

    found = row(refused, "backward")["on"]
    assert (
        found["outcome"] == "repeats"
        and found["message"] == "the forward, which the flags refuse, ran without them"
    )
    assert row(refused, "forward")["on"]["outcome"] == "raises"


def test_the_form_of_an_operator_is_what_chooses_its_algorithm(row: Measured, torch: Any) -> None:
    index = torch.arange(1000)
    assert (
        row(lambda x: x.put(index, x, accumulate=True))["form"] == "accumulate=True"
        and row(lambda x: x.put(index, x))["form"] == ""
    )
    assert row(lambda x: x.scatter_reduce(0, index, x, "amax"))["form"] == "reduce=amax"


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
    size = (
        1 << 21
        # each thread works for longer than a turn on the processor, so that they race on a busy
        # machine too
    )
    index = torch.randint(0, 4, (size,), generator=torch.Generator().manual_seed(0))
    source = torch.randn(size, generator=torch.Generator().manual_seed(0))
    if torch.get_num_threads() < 2:
        pytest.skip("one thread adds in one order")
    found = row(
        lambda x: (x.exp().index_put((index,), source, accumulate=True) * 2).cos(),
        settings=Settings(repeats=20, seconds=8.0, price=0),
    )
    assert found["off"]["outcome"] == "differs" and found["on"]["outcome"] == "repeats"
    assert found["kernel"] in ("aten.index_put.default", "aten.index_put_.default")


def test_an_operator_that_writes_to_its_input_is_given_copies(row: Measured) -> None:
    assert row(lambda x: x.add_(1))["off"]["outcome"] == "repeats"
