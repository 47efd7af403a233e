"""Claims about `probe.digest`: it sees every bit, the dtype, the shape and the order of elements, and it touches nothing."""

from __future__ import annotations

import hashlib
import itertools
import random
import warnings
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from repro_gate.probe import digest
from repro_gate.probe.digest import ROW, SMALL

DTYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.complex64,
    torch.complex128,
    torch.int8,
    torch.uint8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint16,
    torch.bool,
]
SIZES = [
    1,
    3,
    4,
    5,
    7,
    SMALL - 1,
    SMALL,
    SMALL + 1,
    SMALL + 3,
    SMALL + 4,
    SMALL + 5,
    3 * ROW - 1,
    3 * ROW,
    3 * ROW + 4,
    3 * ROW + 5,
    35 * ROW + 17,
]


def of(*tensors: torch.Tensor) -> bytes:
    return digest.digest_all(torch, tensors)


def of_device(*tensors: torch.Tensor) -> bytes:
    """What the path for devices makes of tensors of the CPU."""
    out = [b""] * len(tensors)
    digest._device_digests(
        torch,
        [(index, digest._plain(tensor)) for index, tensor in enumerate(tensors)],
        out,
    )
    return b"".join(out)


def noise(size: int, seed: int = 0) -> torch.Tensor:
    """`size` random bytes."""
    return torch.frombuffer(bytearray(random.Random(seed).randbytes(size + 1)), dtype=torch.uint8)[:size]


def in_plain_python(tensor: torch.Tensor) -> bytes:
    """The digest as its docstring defines it, in Python's own integers: for contiguous tensors."""
    content = bytes(tensor.reshape(-1).view(torch.uint8).tolist())
    state = hashlib.sha256(f"repro-gate/digest/v1|{tensor.dtype}|{tuple(tensor.shape)}|".encode())
    if len(content) > SMALL:
        keys = hashlib.shake_128(b"repro-gate/digest/v1").digest(4 * ROW)
        rows = (len(content) - 4) // ROW
        for index in range(4):
            for row in range(rows):
                start, total = row * ROW + 4 * (index // 2), 0
                for lane in range(0, ROW, 8):
                    key = int.from_bytes(keys[index * ROW + lane : index * ROW + lane + 8], "little")
                    total += key * int.from_bytes(content[start + lane : start + lane + 8], "little")
                state.update((total % 2**64).to_bytes(8, "little"))
        content = content[rows * ROW :]
    state.update(content)
    return state.digest()[:16]


@pytest.mark.parametrize("size", [0, 1, SMALL, SMALL + 1, 2 * ROW + 3, 2 * ROW + 4, 3 * ROW + 5])
def test_a_digest_is_what_its_docstring_says_in_plain_python(size: int) -> None:
    tensor = noise(size)
    assert of(tensor) == in_plain_python(tensor)


@pytest.mark.parametrize("size", SIZES)
def test_one_flipped_bit_anywhere_is_seen_on_both_paths(size: int) -> None:
    tensor = noise(size)
    seen = {of(tensor)}
    near = {place for border in (0, SMALL, *range(0, size + 1, ROW), size) for place in range(border - 9, border + 9) if 0 <= place < size}
    places = [*sorted(near)[:: max(1, len(near) // 150)], size - 1]
    for place, bit in zip(places, itertools.cycle(range(8)), strict=False):
        changed = tensor.clone()
        changed[place] ^= 1 << bit
        assert of(changed) == of_device(changed)
        seen.add(of(changed))
    assert len(seen) == len({(place, bit) for place, bit in zip(places, itertools.cycle(range(8)), strict=False)}) + 1


@settings(max_examples=40, deadline=None)
@given(
    size=st.integers(SMALL - 64, 4 * ROW), changes=st.dictionaries(st.integers(0, SMALL - 65), st.integers(1, 255), min_size=1, max_size=6)
)
def test_any_few_changed_bytes_are_seen(size: int, changes: dict[int, int]) -> None:
    tensor = torch.zeros(size, dtype=torch.uint8)
    changed = tensor.clone()
    for place, mask in changes.items():
        changed[place] ^= mask
    assert of(tensor) != of(changed)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_two_sign_bits_flipped_together_are_seen(dtype: torch.dtype) -> None:
    tensor = torch.randn(200_000, generator=torch.Generator().manual_seed(1)).to(dtype)
    seen = {of(tensor)}
    pairs = [(0, 1), (0, 2), (4, 4100), (8191, 8192), (1, 199_999), (50_000, 50_001)]
    for pair in pairs:
        changed = tensor.clone()
        changed[list(pair)] *= -1
        seen.add(of(changed))
    assert len(seen) == len(pairs) + 1


@pytest.mark.parametrize("size", [4, 100, 100_000])
def test_dtype_shape_order_zero_signs_and_nan_payloads_are_seen(size: int) -> None:
    zeros = torch.zeros(size)
    nan = torch.full((size,), float("nan"))
    payload = nan.clone()
    payload.view(torch.int32)[0] |= 1
    ordered = torch.arange(size, dtype=torch.float32)
    versions = [
        zeros,
        -zeros,
        zeros.double(),
        zeros.int(),
        zeros.reshape(2, -1),
        zeros.reshape(-1, 1),
        zeros.half(),
        zeros.bfloat16(),
        zeros.bool(),
        torch.zeros(size - 1),
        nan,
        payload,
        ordered,
        ordered.flip(0),
        ordered.roll(1),
    ]
    assert len({of(version) for version in versions}) == len(versions)


def test_a_zero_among_many_that_changes_its_sign_is_seen() -> None:
    zeros = torch.zeros(1_000_000)
    signed = zeros.clone()
    signed[777_777] = -0.0
    assert of(zeros) != of(signed)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("elements", [0, 1, 40, 40_000])
def test_both_paths_give_the_same_bytes_for_every_dtype(dtype: torch.dtype, elements: int) -> None:
    width = torch.empty(0, dtype=dtype).element_size()
    content = noise(elements * width, seed=3)
    tensor = (content % 2).bool() if dtype is torch.bool else content.view(dtype) if elements else torch.empty(0, dtype=dtype)
    assert of(tensor) == of_device(tensor)
    assert of(tensor) == in_plain_python(tensor) or elements * width > SMALL  # the slow reference only where it is quick


def layouts(tensor: torch.Tensor) -> dict[str, torch.Tensor]:
    """The same [4, 6, 50, 60] elements in memory in several ways."""
    padded = torch.zeros(4, 6, 50, 61)
    padded[..., :60] = tensor
    shifted = torch.zeros(tensor.numel() + 1)
    shifted[1:] = tensor.reshape(-1)
    return {
        "contiguous": tensor,
        "channels last": tensor.contiguous(memory_format=torch.channels_last),
        "padded": padded[..., :60],
        "transposed": tensor.transpose(0, 3).contiguous().transpose(0, 3),
        "shifted": shifted[1:].view(tensor.shape),
        "negated twice": torch._neg_view(-tensor),
    }


def test_how_elements_lie_in_memory_does_not_matter() -> None:
    same = layouts(torch.randn(4, 6, 50, 60, generator=torch.Generator().manual_seed(0)))
    assert {of(tensor) for tensor in same.values()} == {of(same["contiguous"])}
    assert {of_device(tensor) for tensor in same.values()} == {of(same["contiguous"])}


@pytest.mark.parametrize("elements", [10, 20_000])
def test_a_lazy_conjugate_is_its_values(elements: int) -> None:
    tensor = torch.view_as_complex(torch.randn(elements, 2, generator=torch.Generator().manual_seed(0)))
    assert of(tensor.conj()) == of(tensor.conj().resolve_conj()) == of_device(tensor.conj())
    assert of(tensor.conj()) != of(tensor)


def test_a_bool_that_flips_is_seen() -> None:
    mask = torch.zeros(100_000, dtype=torch.bool)
    flipped = mask.clone()
    flipped[99_999] = True
    assert of(mask) != of(flipped)


@pytest.mark.filterwarnings("ignore:.*quantized tensor creation functions")
def test_quantized_tensors_differ_by_their_elements() -> None:
    one = torch.quantize_per_tensor(torch.tensor([0.0, 1.0, 2.0]), 0.1, 0, torch.quint8)
    other = torch.quantize_per_tensor(torch.tensor([0.0, 1.0, 2.1]), 0.1, 0, torch.quint8)
    assert of(one) == of(one.clone()) != of(other)


@pytest.mark.filterwarnings("ignore:Sparse .* support is in beta")
@pytest.mark.parametrize("kind", ["coo", "csr", "csc", "bsr", "bsc"])
def test_sparse_tensors_differ_by_places_and_by_values(kind: str) -> None:
    def sparse(place: int, value: float) -> torch.Tensor:
        dense = torch.zeros(8, 8)
        dense[place, 2] = value
        block = {"blocksize": (2, 2)} if kind.startswith("bs") else {}
        return dense.to_sparse(layout=getattr(torch, f"sparse_{kind}"), **block)

    assert of(sparse(0, 1.0)) == of(sparse(0, 1.0))
    assert len({of(sparse(0, 1.0)), of(sparse(4, 1.0)), of(sparse(0, -1.0))}) == 3


def test_empty_and_scalar_tensors_are_told_apart() -> None:
    tensors = [torch.zeros(0), torch.zeros(0, 3), torch.zeros(3, 0), torch.tensor(0.0), torch.zeros(1), torch.tensor(0)]
    assert len({of(tensor) for tensor in tensors}) == len(tensors)
    assert of(*tensors) == b"".join(of(tensor) for tensor in tensors) == of_device(*tensors)


def test_generators_autograd_and_the_tensors_stay_as_they_were() -> None:
    torch.manual_seed(5)
    state = torch.get_rng_state()
    leaf = torch.randn(300, 300, requires_grad=True, generator=torch.Generator().manual_seed(0))
    out = (leaf * leaf).exp()
    version, copy = out._version, out.detach().clone()
    of(leaf, out)
    assert torch.equal(torch.get_rng_state(), state)
    assert out._version == version and torch.equal(out.detach(), copy) and torch.is_grad_enabled()
    out.sum().backward()
    assert leaf.grad is not None


@pytest.mark.parametrize("threads", [1, 2])
def test_the_number_of_threads_does_not_matter(threads: int) -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        assert of(noise(9 * ROW + 11)) == in_plain_python(noise(9 * ROW + 11))
    finally:
        torch.set_num_threads(before)


def around(name: str) -> Any:
    modes = {
        "default device": torch.device("meta"),
        "inference mode": torch.inference_mode(),
        "autocast": torch.autocast("cpu", torch.bfloat16),
    }
    return modes[name]


@pytest.mark.parametrize("name", ["default device", "inference mode", "autocast"])
def test_the_training_s_modes_do_not_matter(name: str) -> None:
    tensor = noise(4 * ROW)
    plain = of(tensor)
    digest._KEYS.clear()
    with around(name):
        assert of(tensor) == plain == of_device(tensor)


def test_a_quantized_tensors_scale_and_a_sparse_tensors_shape_are_seen() -> None:
    values = torch.randint(0, 10, (6,), dtype=torch.uint8).float()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch deprecates quantized and sparse types by warnings of its own
        one, other = (torch.quantize_per_tensor(values, scale, 0, torch.quint8) for scale in (1.0, 1.0))
        scaled = torch._make_per_tensor_quantized_tensor(one.int_repr(), 0.5, 0)
        sparse = [torch.sparse_coo_tensor([[0, 1]], [1.0, 2.0], (size,)) for size in (4, 5)]
        found = [digest.digest_all(torch, [tensor]) for tensor in (one, other, scaled, *sparse)]
    assert found[0] == found[1] != found[2] and found[3] != found[4]


def test_a_tensor_without_memory_is_never_read() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        fake = torch.ones(3)
    seen: list[bytes] = []
    torch.func.grad(lambda x: seen.append(digest.digest_all(torch, [x, x.detach()])) or x.sum())(torch.ones(70_000))
    found = digest.digest_all(torch, [fake, torch.empty(3, device="meta"), torch.empty(0), torch.ones(3).expand(2, 3)])
    assert len(found) == 4 * 16 and len(seen[0]) == 2 * 16
    assert not any(digest.in_memory(torch, item) for item in (fake, torch.empty(3, device="meta")))
