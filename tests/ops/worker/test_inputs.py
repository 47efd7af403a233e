"""`ops.worker.inputs`: arguments that have the form of recorded ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from repro_gate.ops.worker import inputs  # noqa: E402
from repro_gate.ops.worker.inputs import NotMade, arguments, available, operator  # noqa: E402
from repro_gate.probe.forms import described  # noqa: E402


def again(*args: Any, name: str = "aten.mul.Tensor", **kwargs: Any) -> tuple[Any, Any]:
    """Make arguments of the form of these."""
    return arguments(name, json.dumps(described((args, kwargs), elements=True)))


@pytest.mark.parametrize(
    "tensor",
    [
        torch.zeros(3, 5),
        torch.zeros(5, 3).t(),
        torch.zeros(1).expand(7),
        torch.zeros(6, 8)[::2, 1::3],
        torch.zeros(()),
        torch.zeros(0, 4),
        torch.zeros(4, dtype=torch.complex64),
        torch.zeros(4, dtype=torch.bfloat16),
        torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last),
    ],
    ids=str,
)
def test_a_tensor_has_shape_strides_and_dtype_of_the_recorded_one(tensor: Any) -> None:
    ((made,), _) = again(tensor)
    form = [(it.shape, it.stride(), it.dtype) for it in (made, tensor)]
    assert form[0] == form[1]


@pytest.mark.parametrize("high", [1, 3, 50, 2**40])
def test_indices_have_the_range_and_the_repetition_of_the_recorded_ones(high: int) -> None:
    index = torch.arange(60) % 20 * (high // 20 + 1)
    index[0] = index.max()
    ((made,), _) = again(index)
    assert (made.min(), made.max()) == (index.min(), index.max())
    assert len(made.unique()) == len(index.unique())


def test_a_label_to_ignore_stays_apart_from_those_in_bounds() -> None:
    labels = torch.tensor([-100, 0, 5, 9, -100, 3] * 10)
    ((made,), _) = again(labels)
    assert min(made.unique().tolist()) == -100 and len(made.unique()) == 5
    assert made[made != -100].min() == 0 and made.max() == 9
    loss = torch.nn.functional.nll_loss(torch.randn(60, 10), made)
    assert loss.isfinite()
    ((made,), _) = again(torch.tensor([-3, -1, -2, -1]))
    assert made.min() == -3 and made.max() <= -1


def test_unique_indices_stay_unique_and_a_mask_has_as_many_true_elements() -> None:
    (order, mask), _ = again(torch.randperm(100), torch.arange(30) < 7)
    assert len(order.unique()) == 100 and int(mask.sum()) == 7


def test_no_element_of_a_tensor_is_recorded_but_the_range_of_indices() -> None:
    form = described(([torch.full((4,), 17.25)], {}), elements=True)
    assert "17.25" not in json.dumps(form) and "elements" not in json.dumps(form)


def test_other_arguments_come_back_as_they_were() -> None:
    args, kwargs = again(
        [1, 2.5, None, True, "sum", 1j], dtype=torch.int64, memory_format=torch.channels_last
    )
    assert args == [[1, 2.5, None, True, "sum", 1j]]
    assert kwargs == {"dtype": torch.int64, "memory_format": torch.channels_last}
    device = again(device=torch.device("cpu"), layout=torch.strided)[1]
    assert device == {"device": torch.device("cpu"), "layout": torch.strided}


def test_a_matrix_is_positive_definite_and_a_probability_one_where_it_must_be() -> None:
    ((matrix,), _) = again(torch.zeros(8, 8), name="aten.linalg_cholesky_ex.default")
    torch.linalg.cholesky(matrix)
    ((chances,), _) = again(torch.zeros(1000), name="aten.bernoulli.default")
    assert chances.min() >= 0 and chances.max() <= 1


def test_the_same_form_gives_the_same_bits() -> None:
    first, second = (again(torch.zeros(100), torch.arange(9))[0] for _ in range(2))
    assert all(map(torch.equal, first, second))


def test_memory_is_charged_for_what_making_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "available", lambda: 8 * 4_000)  # 4,000 bytes are left
    again(torch.zeros(300))
    again(torch.arange(90))
    for made in (
        torch.zeros(400),
        torch.arange(110),
        torch.zeros(1).expand(2_000),
        torch.zeros(1, 3).expand(2_000, 3),
    ):
        with pytest.raises(NotMade, match="too much memory"):
            again(made)


def test_available_memory_is_that_of_the_system_within_the_control_group(tmp_path: Path) -> None:
    assert available() > 0
    assert available(str(tmp_path)) > 0  # a system without these files
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text("MemTotal: 9 kB\nMemFree: 1 kB\nMemAvailable: 5 kB\n")
    assert available(str(tmp_path)) == 5 * 1024
    (tmp_path / "proc/self/cgroup").write_text("0::/job\n")
    group = tmp_path / "sys/fs/cgroup/job"
    group.mkdir(parents=True)
    (group / "memory.max").write_text("4096\n")
    assert available(str(tmp_path)) == 4096
    (group / "memory.max").write_text("max\n")
    assert available(str(tmp_path)) == 5 * 1024


def test_what_cannot_be_made_raises_with_the_reason() -> None:
    with pytest.raises(NotMade, match=r"a Tensor of torch\.sparse_coo"):
        again(torch.zeros(3).to_sparse())
    with pytest.raises(NotMade, match="too much memory"):
        again(torch.zeros(1, device="meta").expand(1).as_strided((1 << 50,), (1,)))
    for digest in ("", "blake2b:12"):
        with pytest.raises(NotMade, match="more than 64 KiB"):
            arguments("aten.mul.Tensor", digest)
    with pytest.raises(NotMade, match=r"aten\.nothing\.default is not registered"):
        operator("aten.nothing.default")
    assert operator("aten.mul.Tensor") is torch.ops.aten.mul.Tensor
