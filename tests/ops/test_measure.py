"""A row tells what repeats from what differs, what draws, what is uninitialised, what the flag
refuses, and what does not run; results are compared by their bits."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from repro_gate.ops.worker import bits  # noqa: E402
from repro_gate.ops.worker.cases import Case, Sample  # noqa: E402
from repro_gate.ops.worker.measure import Measurement, Settings  # noqa: E402

Row = dict[str, Any]
pytestmark = pytest.mark.usefixtures("flags_off")
ALONE = Settings()


def row(
    function: Any, direction: str = "forward", settings: Settings = ALONE, source: str = "kernel"
) -> Row:
    """Measure a function of one vector of 1,000 numbers."""
    numbers = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    case = Case(f"{source}/tried", lambda _: Sample(function, [numbers.clone()]))
    return Measurement("cpu", case, "float32", direction, settings).measure()


def outcomes(found: Row) -> tuple[str, str]:
    return found["off"]["outcome"], found["on"]["outcome"]


def at(execution: int, act: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function that acts on its result in one execution without the flags."""
    count = itertools.count()

    def late(x: Any) -> Any:
        y = x.exp()
        if not torch.are_deterministic_algorithms_enabled() and next(count) == execution:
            act(y)
        return y

    return late


def fails(error: Exception) -> Callable[[Any], Any]:
    def act(x: Any) -> Any:
        raise error

    return act


def test_a_function_that_repeats_is_priced_by_its_executions_alone() -> None:
    found = row(lambda x: x.sin(), settings=Settings(seconds=9.0), source="user")
    for arm in (found["off"], found["on"]):
        assert (arm["outcome"], arm["runs"], arm["differing"]) == ("repeats", 8, 0)
    assert len(found["off_ms"]) == len(found["on_ms"]) == 4
    assert found["off"]["digests"] == found["on"]["digests"] and len(found["off"]["digests"]) == 1


def test_a_function_that_differs_by_one_bit_in_one_execution() -> None:
    found = row(at(5, lambda y: y.view(torch.int32)[7:8].add_(1)))
    off = found["off"]
    assert (off["outcome"], off["max_ulp"], off["differing"]) == ("differs", 1, 1)
    assert found["on"]["outcome"] == "repeats"


INDEX = torch.arange(1000)


@pytest.mark.parametrize(
    ("function", "off", "on"),
    [
        (torch.rand_like, "repeats", "repeats"),  # with its seed
        (lambda x: x + time.monotonic_ns() % 1_000_003, "differs", "differs"),
        # memory that is not written, and memory that is
        (lambda x: x.new_empty(500), "uninitialised", "repeats"),
        (lambda x: x.new_empty(500).fill_(3), "repeats", "repeats"),
        (lambda x: x.clone().resize_(2000), "uninitialised", "repeats"),
        (lambda x: x.clone().resize_(200), "repeats", "repeats"),
        (lambda x: x.add_(1), "repeats", "repeats"),  # it is given copies
        (lambda x: x.put(INDEX, x), "repeats", "raises"),
    ],
)
def test_each_kind_of_function_has_its_outcome(function: Any, off: str, on: str) -> None:
    assert outcomes(row(function)) == (off, on)


def test_the_kernel_is_the_operator_that_works_with_what_chooses_its_algorithm() -> None:
    for function, direction, kernel, form in (
        (lambda x: x.sin(), "forward", "aten.sin.default", ""),
        (lambda x: x.sin(), "backward", "aten.cos.default", ""),
        (lambda x: x.put(INDEX, x), "forward", "aten.put.default", ""),
        (lambda x: x.put(INDEX, x, accumulate=True), "forward", "aten.put.default", "accumulate=True"),
        (lambda x: x.scatter_reduce(0, INDEX, x, "amax"), "forward", "aten.scatter_reduce.two", "reduce=amax"),
    ):  # fmt: skip
        found = row(function, direction)
        assert (found["kernel"], found["form"]) == (kernel, form)


def test_what_does_not_run_has_no_kernel_and_says_why() -> None:
    found = row(fails(NotImplementedError("not for " + "this " * 100)))
    for arm in (found["off"], found["on"]):
        assert arm["outcome"] == "no-kernel" and arm["message"].startswith("not for this")
        assert len(arm["message"]) == 300


def test_what_fails_later_differs_unless_memory_is_short() -> None:
    found = row(at(4, fails(RuntimeError("no workspace left"))))["off"]
    assert (found["outcome"], found["differing"]) == ("differs", 1)
    assert found["message"].endswith(": no workspace left")
    short = at(4, fails(RuntimeError("DefaultCPUAllocator: can't allocate memory: 9 bytes")))
    for function in (short, lambda x: x.new_empty(1 << 50)):
        off = row(function)["off"]
        assert off["outcome"] == "crash" and "memory" in off["message"]
    # no later call of CUDA in this process would work
    with pytest.raises(RuntimeError, match="misaligned"):
        row(at(4, fails(RuntimeError("CUDA error: misaligned address"))))


def test_the_backward_of_a_refused_forward_is_measured() -> None:
    def refused(x: Any) -> Any:
        if torch.are_deterministic_algorithms_enabled():
            raise RuntimeError("it does not have a deterministic implementation")
        return x.sin()

    found = row(refused, "backward")["on"]
    assert found["outcome"] == "repeats" and "ran without them" in found["message"]
    assert row(refused)["on"]["outcome"] == "raises"


def test_a_backward_is_measured_by_itself() -> None:
    count = itertools.count()

    class Racing(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(context: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(context: Any, gradient: Any) -> Any:
            return gradient * (2 + next(count) % 2)

    assert row(Racing.apply, "backward")["off"]["outcome"] == "differs"
    assert row(Racing.apply)["off"]["outcome"] == "repeats"


@pytest.mark.skipif(torch.get_num_threads() < 2, reason="one thread adds in one order")
def test_an_operator_that_differs_is_named_if_it_can_be_no_other() -> None:
    # each thread works for longer than a turn on the processor, so that they race on a busy machine
    # too
    size, seeded = 1 << 21, torch.Generator().manual_seed(0)
    index = torch.randint(0, 4, (size,), generator=seeded)
    source = torch.randn(size, generator=seeded)

    def alone(x: Any) -> Any:
        return x.clone().index_put_((index,), source, accumulate=True)

    long = Settings(repeats=20, seconds=8.0)
    for function, kernel in ((alone, "aten.index_put_.default"), (lambda x: alone(x.exp()), "")):
        found = row(function, settings=long)
        assert outcomes(found) == ("differs", "repeats") and found["kernel"] == kernel


def test_zeros_of_two_signs_differ_and_one_nan_equals_itself() -> None:
    zero, nan = torch.zeros(3), torch.tensor([float("nan")])
    assert not bits.equal([zero], [-zero]) and bits.equal([nan], [nan.clone()])
    assert not bits.equal([zero], [zero.int()]), "the same bits, read otherwise"
    assert bits.digest([zero]) != bits.digest([-zero])


def test_a_distance_that_does_not_fit_is_cut_and_nan_on_one_side_has_none() -> None:
    number = torch.tensor([1.5, 0.0])
    after = (number.view(torch.int32) + torch.tensor([3, 1], dtype=torch.int32)).view(torch.float32)
    assert bits.largest_ulp([number], [after]) == 3
    large = torch.tensor([torch.finfo(torch.float64).max], dtype=torch.float64)
    assert bits.largest_ulp([large], [-large]) == 1 << 62
    assert bits.largest_ulp([large], [large * float("nan")]) is None
    assert bits.largest_ulp([torch.tensor([1])], [torch.tensor([2])]) is None
    assert bits.largest_ulp([number], [number.double()]) is None, "of two dtypes"


def test_every_result_has_dense_leaves() -> None:
    places, values = torch.tensor([[0, 0, 2]]), torch.ones(3)
    sparse = torch.sparse_coo_tensor(places, values, (3,), check_invariants=True)
    conjugate = torch.ones(2, dtype=torch.complex64).conj()
    found = bits.leaves([sparse, {"a": [conjugate, 1.5], "b": torch.ones(2) > 0}])
    assert [list(leaf.shape) for leaf in found[:3] + found[4:]] == [[1, 2], [2], [2, 2], [2]]
    assert bytes(found[3].tolist()).decode() == (1.5).hex()
