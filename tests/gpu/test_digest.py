"""Claims about digests on a device: what they are does not depend on how they are made there, and
making them leaves nothing behind."""

from __future__ import annotations

import random
from typing import Any

import pytest

from repro_gate.probe import device_digest
from repro_gate.probe.device_digest import CHUNK, TILE
from repro_gate.probe.digest import begin, digest_all, header
from repro_gate.probe.distance import sketch

torch = pytest.importorskip("torch", reason="tests/gpu needs torch")
pytestmark = pytest.mark.gpu

DTYPES = ["float32", "float64", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"]
DTYPES += ["complex64", "complex128", "int8", "uint8", "int16", "int32", "int64", "bool"]
SIZES = [0, 1, 3, 4, 7, 4 * TILE - 1, 4 * TILE, 4 * TILE + 5, 4 * CHUNK, 4 * CHUNK + 3]
SIZES += [35 * CHUNK + 17, 300 * CHUNK]


def by_hand(*tensors: Any) -> bytes:
    """The digests of a device, made of tensors of the CPU by the eager form, which
    `tests/probe/test_digest.py` holds against Python's own integers."""
    out = [b""] * len(tensors)
    plain = [tensor.resolve_conj().resolve_neg().contiguous() for tensor in tensors]
    remote = [(index, header(tensor), tensor) for index, tensor in enumerate(plain)]
    for sums in device_digest.begin(remote):
        for index, found in sums.digests():
            out[index] = found
    return b"".join(out)


def noise(size: int, dtype: str) -> torch.Tensor:
    """A CPU tensor of about `size` random bytes: every bit pattern of its dtype may occur, NaN
    payloads and subnormals too."""
    kind = getattr(torch, dtype)
    count = size // kind.itemsize
    drawn = random.Random(size).randbytes(count * kind.itemsize)
    content = torch.frombuffer(bytearray(drawn + b"\0"), dtype=torch.uint8)[:-1].clone()
    return (content & 1).view(kind) if dtype == "bool" else content.view(kind)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_kernel_and_the_eager_form_give_the_same_digest(dtype: str) -> None:
    for size in SIZES:
        tensor = noise(size, dtype)
        assert digest_all([tensor.cuda()]) == by_hand(tensor), (dtype, size)


def test_triton_is_used_where_it_is_there() -> None:
    pytest.importorskip("triton")
    tensors = [torch.ones(5, device="cuda")]
    assert device_digest._kernel_sums(torch.device("cuda", 0), tensors) is not None


def test_without_triton_the_eager_form_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = [noise(size, "float32").cuda() for size in SIZES]
    fused = digest_all(tensors)
    monkeypatch.setattr(device_digest, "_kernel_sums", lambda *_: None)
    assert digest_all(tensors) == fused


@pytest.mark.filterwarnings("default")  # the profiler's
def test_any_number_of_tensors_takes_few_launches() -> None:
    tensors = [noise(20_000, "float32").cuda() for _ in range(200)]
    digest_all(tensors)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        digest_all(tensors)
    on_device = torch.autograd.DeviceType.CUDA
    kernels = [event.name for event in profile.events() if event.device_type == on_device]
    kernels = [name for name in kernels if "emcpy" not in name]
    assert len(kernels) <= 2, kernels  # zeros, and the sums


@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
def test_nothing_waits_for_the_device_until_the_result_is_asked_for() -> None:
    tensors = [noise(size, "float32").cuda() for size in SIZES]
    expected = digest_all(tensors)
    try:
        torch.cuda.set_sync_debug_mode("error")
        digests = begin(tensors)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert digests.result() == expected and digests.ready()


def test_many_tensors_in_one_call_keep_their_order() -> None:
    tensors = [noise(size, dtype) for size in SIZES[:-1] for dtype in ("float32", "uint8", "int64")]
    mixed, each = [], []
    for index, tensor in enumerate(tensors):
        mixed.append(tensor.cuda() if index % 3 else tensor)
        each.append(by_hand(tensor) if index % 3 else digest_all([tensor]))
    assert digest_all(mixed) == b"".join(each)


def test_layout_and_alignment_do_not_show() -> None:
    whole = noise(4 * 1024 * 1024, "float32").view(1024, 1024)
    for cut in (
        lambda x: x.t(),
        lambda x: x[:, ::2],
        lambda x: x.reshape(-1)[1:],
        lambda x: x.reshape(-1).view(torch.uint8)[3:],
        lambda x: x.view(2, 512, 32, 32).to(memory_format=torch.channels_last),
    ):
        assert digest_all([cut(whole.cuda())]) == by_hand(cut(whole))


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta state")
def test_conjugates_negatives_and_sparse_tensors_are_read_as_they_are() -> None:
    dense = torch.randn(300, 300, generator=torch.Generator().manual_seed(0))
    for tensor in (torch.complex(dense, dense.t()).conj(), torch.complex(dense, dense).conj().imag):
        assert digest_all([tensor.cuda()]) == by_hand(tensor)
    few, fewer = dense * (dense > 2), dense * (dense > 2.1)
    for made in (torch.Tensor.to_sparse, torch.Tensor.to_sparse_csr):
        coo = made is torch.Tensor.to_sparse
        tensors = [made(few).coalesce() if coo else made(few) for _ in range(2)]
        same = {digest_all([tensor.cuda()]) for tensor in tensors}
        assert len(same) == 1 and digest_all([made(fewer).cuda()]) not in same


def test_the_device_is_left_as_it_was() -> None:
    tensors = [noise(16 * 1024 * 1024, "float32").cuda() for _ in range(4)]
    digest_all(tensors)  # the keys stay, 64 KiB, and the plan of which program reads what
    allocated, state = torch.cuda.memory_allocated(), torch.cuda.get_rng_state()
    digest_all(tensors)
    assert torch.cuda.memory_allocated() == allocated
    assert torch.equal(torch.cuda.get_rng_state(), state)


def test_a_digest_takes_no_room_on_the_device_to_speak_of() -> None:
    tensor = torch.zeros(1024 * 1024 * 1024, dtype=torch.uint8, device="cuda")
    digest_all([tensor[:100_000]])
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    digest_all([tensor])
    assert torch.cuda.max_memory_allocated() - before < 4 * 1024 * 1024


def test_without_a_c_compiler_the_driver_launches_the_kernel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernel = pytest.importorskip("repro_gate.probe.device_kernel", reason="needs Triton")

    def refuse(*_: object) -> None:
        raise RuntimeError("Failed to find C compiler")

    monkeypatch.setattr(type(kernel._sums), "__getitem__", refuse)
    for size in SIZES:
        tensor = noise(size, "uint8")
        assert digest_all([tensor.cuda()]) == by_hand(tensor), size
    assert kernel._LOADED and not device_digest.WITHOUT_TRITON
    kernel._LOADED.clear()


def test_a_kernel_that_gives_other_sums_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    monkeypatch.setattr(device_digest, "_TRIED", [])
    monkeypatch.setattr(device_digest, "WITHOUT_TRITON", [])

    def ones(_: Any, device: Any, tensors: Any) -> torch.Tensor:
        return torch.ones(len(tensors), 4, dtype=torch.int64, device=device)

    monkeypatch.setattr(device_digest, "sums_by", ones)
    tensor = noise(4 * CHUNK + 3, "uint8")
    assert digest_all([tensor.cuda()]) == by_hand(tensor)
    assert device_digest.WITHOUT_TRITON == ["ValueError: the sums of a sample were wrong"]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_a_sketch_is_that_of_the_cpu_and_takes_little_memory(dtype: str) -> None:
    tensor = torch.randn(1000, 700, generator=torch.Generator().manual_seed(0)).to(
        getattr(torch, dtype)
    )
    on_device = tensor.cuda()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    for same, other in ((on_device, tensor), (on_device.t(), tensor.t())):
        torch.use_deterministic_algorithms(True)
        found = sketch(same)
        torch.use_deterministic_algorithms(False)
        assert found == pytest.approx(sketch(other), rel=1e-9, abs=1e-9)
    assert torch.cuda.max_memory_allocated() - before < 64 << 20
