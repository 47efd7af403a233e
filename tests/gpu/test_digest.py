"""Claims about `probe.digest` on a device: the same 16 bytes as on a CPU, whatever the dtype, size and layout, and nothing left behind."""

from __future__ import annotations

import random

import pytest

from repro_gate.probe.digest import DEVICE_ROWS, ROW, SMALL, digest_all

torch = pytest.importorskip("torch", reason="tests/gpu needs torch")
pytestmark = pytest.mark.gpu

DTYPES = [
    "float32",
    "float64",
    "float16",
    "bfloat16",
    "float8_e4m3fn",
    "float8_e5m2",
    "complex64",
    "complex128",
    "int8",
    "uint8",
    "int16",
    "int32",
    "int64",
    "bool",
]
SIZES = [0, 1, 3, 4, 7, SMALL - 1, SMALL, SMALL + 1, SMALL + 4, SMALL + 5, 3 * ROW, 3 * ROW + 5, 35 * ROW + 17, DEVICE_ROWS * ROW + 5]


def noise(size: int, dtype: str) -> torch.Tensor:
    """A CPU tensor of about `size` random bytes: every bit pattern of its dtype may occur, NaN payloads and subnormals too."""
    kind = getattr(torch, dtype)
    count = size // kind.itemsize
    content = torch.frombuffer(bytearray(random.Random(size).randbytes(count * kind.itemsize) + b"\0"), dtype=torch.uint8)[:-1].clone()
    return (content & 1).view(kind) if dtype == "bool" else content.view(kind)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_digest_on_the_device_is_the_digest_on_the_cpu(dtype: str) -> None:
    for size in SIZES:
        tensor = noise(size, dtype)
        assert digest_all(torch, [tensor.cuda()]) == digest_all(torch, [tensor]), (dtype, size)


def test_many_tensors_in_one_call_keep_their_order() -> None:
    tensors = [noise(size, dtype) for size in SIZES[:-1] for dtype in ("float32", "uint8", "int64")]
    mixed = [tensor.cuda() if index % 3 else tensor for index, tensor in enumerate(tensors)]
    assert digest_all(torch, mixed) == digest_all(torch, tensors)


def test_layout_and_alignment_do_not_show() -> None:
    whole = noise(4 * 1024 * 1024, "float32").view(1024, 1024)
    for cut in (
        lambda x: x.t(),
        lambda x: x[:, ::2],
        lambda x: x.reshape(-1)[1:],
        lambda x: x.reshape(-1).view(torch.uint8)[3:],
        lambda x: x.view(2, 512, 32, 32).to(memory_format=torch.channels_last),
    ):
        assert digest_all(torch, [cut(whole.cuda())]) == digest_all(torch, [cut(whole)])


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta state")
def test_conjugates_negatives_and_sparse_tensors_are_read_as_they_are() -> None:
    dense = torch.randn(300, 300, generator=torch.Generator().manual_seed(0))
    few = dense * (dense > 2)
    for tensor in (
        torch.complex(dense, dense.t()).conj(),
        torch.complex(dense, dense).conj().imag,
        few.to_sparse().coalesce(),
        few.to_sparse_csr(),
    ):
        assert digest_all(torch, [tensor.cuda()]) == digest_all(torch, [tensor])


def test_a_flipped_bit_and_a_swap_of_two_elements_show_on_the_device() -> None:
    tensor = noise(64 * 1024 * 1024, "float32").cuda()
    before = digest_all(torch, [tensor])
    for place in (0, 1, 8191, 8192, tensor.numel() // 2 + 1, tensor.numel() - 1):
        bits = tensor.view(torch.int32)
        bits[place] ^= -(2**31)  # +0.0 against -0.0 is this bit
        assert digest_all(torch, [tensor]) != before
        bits[place] ^= -(2**31)
    tensor[:2] = tensor[:2].flip(0)
    assert digest_all(torch, [tensor]) != before


def test_the_device_is_left_as_it_was() -> None:
    tensors = [noise(16 * 1024 * 1024, "float32").cuda() for _ in range(4)]
    digest_all(torch, tensors)  # the keys stay: 128 KiB
    allocated, state = torch.cuda.memory_allocated(), torch.cuda.get_rng_state()
    digest_all(torch, tensors)
    assert torch.cuda.memory_allocated() == allocated
    assert torch.equal(torch.cuda.get_rng_state(), state)


def test_a_digest_takes_a_bounded_piece_of_the_device_beside_the_tensor() -> None:
    """64 MiB of products, 64 MiB for the reading at an offset that has to be aligned first, and small change."""
    tensor = torch.zeros(1024 * 1024 * 1024, dtype=torch.uint8, device="cuda")
    digest_all(torch, [tensor[: 2 * SMALL]])
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    digest_all(torch, [tensor])
    assert torch.cuda.max_memory_allocated() - before < 200 * 1024 * 1024
