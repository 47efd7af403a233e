"""Claims about `record` and `step`: they let a training without a torch optimizer be compared, and
do nothing outside the gate."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from repro_gate.probe import sdk
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
    assert [block.kind for block in trace.blocks if block.step == 1] == [
        "gradient",
        "loss",
        "parameter",
        "rng",
    ]
    assert blocks(trace, "parameter", 1)[0].rows == (
        ("model.w", "float32", (3,)),
        ("model.b", "float", ()),
    )
    generator = np.random.RandomState(42)
    weights = np.zeros(3, dtype=np.float32)
    for at in range(3):
        weights -= generator.rand(3).astype("float32")
        assert blocks(trace, "loss", at)[0].values == (float(weights @ weights).hex(),)


def test_steps_of_the_sdk_are_counted_and_end_the_training(tmp_path: Path) -> None:
    run = trace_script(tmp_path, NUMPY_ONLY + "print('not reached')\n", steps=2)
    assert (run.outcome, run.steps, run.ended.tail) == ("stopped", 2, ())


def test_an_interpreter_without_the_package_still_imports_it_inside_the_gate(
    tmp_path: Path,
) -> None:
    script = (
        "import repro_gate\nprint(repro_gate.__file__)\nrepro_gate.record('x', "
        "1.0)\nrepro_gate.step()\n"
    )
    run = trace_script(tmp_path, script, command=f"{sys._base_executable} -s train.py")  # type: ignore[attr-defined]
    assert run.outcome == "finished", (run.problem, run.ended.tail)
    assert len(trained(run).steps) == 1


def test_a_kind_that_does_not_exist_is_the_callers_mistake(tmp_path: Path) -> None:
    script = (
        "from repro_gate import record\ntry:\n    record('x', 1.0, kind='weights')\nexcept "
        "ValueError as error:\n    print(error)\n"
    )
    run = trace_script(tmp_path, script)
    assert run.ended.tail == (
        (
            "repro_gate.record: kind 'weights' is none of rng, batch, buffer, loss, gradient, "
            "parameter, optimizer"
        ),
    )
    assert run.reason_id == "run/nothing-recorded"


def test_outside_the_gate_both_do_nothing() -> None:
    calls = (
        "from repro_gate import record, step\nrecord('x', object())\nrecord('x', 1, "
        "kind='nonsense')\nstep()\n"
    )
    code = calls + "import sys\nprint(sorted(name for name in sys.modules if 'repro_gate' in name))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "['repro_gate', 'repro_gate._version']"


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
def test_values_that_differ_in_type_shape_order_or_bits_are_told_apart(
    a: object, b: object
) -> None:
    assert digests(a) == digests(a) != digests(b)


def test_an_array_of_objects_is_digested_by_what_it_holds_and_not_by_addresses() -> None:
    def made() -> np.ndarray:
        return np.array(
            [f"sample {index + random.randint(0, 0)}" for index in range(3)], dtype=object
        )

    assert digests(made()) == digests(made())
    assert digests(made()) == digests(np.array(["sample 0", "sample 1", "sample 2"], dtype=object))


class Column:
    """As a column of pandas looks: a dtype, an array behind it, and a text that leaves the middle
    out."""

    dtype = "float64"

    def __init__(self, values: list[float]) -> None:
        self.values = values

    def __array__(self) -> np.ndarray:
        return np.array(self.values)

    def __repr__(self) -> str:
        return "0 1.0 … 99 1.0"


def test_a_column_is_digested_whole() -> None:
    assert (
        digests(Column([1.0] * 100))
        == digests(Column([1.0] * 100))
        != digests(Column([1.0] * 50 + [2.0] * 50))
    )


@pytest.mark.slow
def test_a_module_and_a_set_are_recorded_and_what_cannot_be_is_an_error(tmp_path: Path) -> None:
    source = """
    import torch
    from repro_gate import record, step
    record("model", torch.nn.Linear(2, 3))
    record("names", {"b", "a"})
    try:
        record("nothing", iter(()))
    except TypeError as error:
        assert "can be compared" in str(error)
    else:
        raise SystemExit(9)
    step()
    """
    trace = trained(trace_script(tmp_path, source))
    assert names(trace, "parameter", 0) == ["model.weight", "model.bias", "names"]
