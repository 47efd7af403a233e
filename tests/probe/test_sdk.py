"""`record` and `step`: any training can be compared; without the gate they do nothing."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from repro_gate.probe import digest, sdk
from repro_gate.probe.names import leaves
from tests.support.tracing import blocks, names, trace_script, trained

NUMPY_ONLY = """
import sys
import numpy
from repro_gate import record, step
weights = {"w": numpy.zeros(3, dtype=numpy.float32), "b": 0.0}
record("start", weights)
for _ in range(3):
    gradient = numpy.random.rand(3).astype("float32")
    record("g", gradient, kind="gradient")
    weights["w"] -= gradient
    record("mse", float(weights["w"] @ weights["w"]))
    record("model", weights)
    step()
assert "torch" not in sys.modules
"""


def test_a_training_without_torch_is_traced_and_its_losses_are_exact(tmp_path: Path) -> None:
    run = trace_script(tmp_path, NUMPY_ONLY)
    assert run.outcome == "finished", (run.problem, run.ended.tail)
    trace = trained(run)
    assert (len(trace.steps), trace.end) == (3, "exit")
    kinds = [block.kind for block in trace.blocks if block.step == 1]
    assert kinds == ["gradient", "loss", "parameter", "rng"]
    rows = (("model.w", "float32", (3,)), ("model.b", "float", ()))
    assert blocks(trace, "parameter", 1)[0].rows == rows
    generator = np.random.RandomState(42)
    weights = np.zeros(3, dtype=np.float32)
    for at in range(3):
        weights -= generator.rand(3).astype("float32")
        assert blocks(trace, "loss", at)[0].values == (float(weights @ weights).hex(),)


def test_steps_end_the_training_also_without_the_package(tmp_path: Path) -> None:
    without = f"{sys._base_executable} -s train.py"  # type: ignore[attr-defined]
    source = "import repro_gate\nfor _ in range(3):\n"
    source += "    repro_gate.record('x', 1.0)\n    repro_gate.step()\nprint('not reached')\n"
    run = trace_script(tmp_path, source, command=without, steps=2)
    assert (run.outcome, run.steps, run.ended.tail) == ("stopped", 2, ())


def test_a_wrong_kind_is_an_error_and_without_the_gate_nothing(tmp_path: Path) -> None:
    script = """
    from repro_gate import record, step
    import sys
    try:
        record('x', object(), kind='weights')
    except ValueError as error:
        print("refused")
    if len(sys.argv) == 1:
        step()
        print(sorted(name for name in sys.modules if 'repro_gate' in name))
    """
    run = trace_script(tmp_path, script, command="python train.py x")
    assert (run.ended.tail, run.reason_id) == (("refused",), "run/nothing-recorded")
    command = [sys.executable, "-c", textwrap.dedent(script)]
    place = Path(__file__).parents[2]
    printed = subprocess.run(command, cwd=place, capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "['repro_gate', 'repro_gate._version']"


def digests(value: object) -> bytes:
    return sdk.digest_leaves(list(leaves(value, "x")))[1].result()


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (1, 1.0),
        (1, True),
        (0.0, -0.0),
        ("a", b"a"),
        ([1, 2], [2, 1]),
        (np.float32(1), np.float64(1)),
        (np.zeros((2, 3)), np.zeros((3, 2))),
        (np.array([0.0]), np.array([-0.0])),
        (np.array([1, 2]), torch.tensor([1, 2])),
        (np.array(["a", None], dtype=object), np.array(["b", None], dtype=object)),
        (float("nan"), 0.0),
        (1e-300, 2e-300),
    ],
)
def test_values_of_other_type_shape_or_bits_are_told_apart(a: object, b: object) -> None:
    assert digests(a) == digests(a) != digests(b)


class Column:
    """As a column of pandas looks: a dtype, an array behind it, and a text that leaves the middle
    out."""

    __module__ = "pandas.core.series"
    dtype = "float64"

    def __init__(self, values: list[float]) -> None:
        self.values = values

    def __array__(self) -> np.ndarray:
        return np.array(self.values)

    def __repr__(self) -> str:
        return "0 1.0 … 99 1.0"


def test_a_column_is_digested_whole_and_objects_by_what_they_hold() -> None:
    ones, twos = [1.0] * 50, [2.0] * 50
    assert digests(Column(ones * 2)) == digests(Column(ones * 2)) != digests(Column(ones + twos))
    first, second = ([f"sample {index + zero}" for index in range(3)] for zero in (0, 0))
    assert first[0] is not second[0]  # addresses are no part of it
    assert digests(np.array(first, dtype=object)) == digests(np.array(second, dtype=object))


class Odd:
    """Whose methods all raise."""

    def _no(self, *_: object) -> Any:
        raise RuntimeError("not to be called")

    __str__ = __repr__ = __eq__ = __len__ = __iter__ = __bool__ = __getitem__ = _no
    __array__ = tobytes = _no
    __class__ = dtype = shape = __dict__ = property(_no)

    def __hash__(self) -> int:
        return 1


class Number(float):
    __repr__ = __str__ = __float__ = Odd._no


def test_an_object_whose_methods_raise_is_told_by_its_type_and_hides_nothing() -> None:
    def batch(number: float) -> dict[Any, Any]:
        beside = {"x": torch.tensor(number), "n": Number(number), "set": {Odd()}}
        return {**beside, "odd": Odd(), Odd(): number}

    digest.UNREAD.clear()
    assert digests(batch(1.0)) == digests(batch(1.0)) != digests(batch(2.0))
    assert [*digest.UNREAD] == [f"objects of type {__name__}.Odd"]
    for key, other in (("n", Number(2.0)), ("odd", None), ("set", {Number(1.0)})):
        assert digests(batch(1.0)) != digests({**batch(1.0), key: other})


@pytest.mark.slow
def test_a_module_and_a_set_are_recorded_and_what_cannot_be_is_an_error(tmp_path: Path) -> None:
    source = """
    import torch
    from repro_gate import record, step
    record("model", torch.nn.Linear(2, 3))
    record("names", {"b", "a"})
    try:
        record("nothing", iter(()))
    except TypeError:
        record("refused", 1.0, "parameter")
    step()
    """
    trace = trained(trace_script(tmp_path, source))
    assert names(trace, "parameter", 0) == ["model.weight", "model.bias", "names", "refused"]
