"""Claims about `probe.digest`: it sees every bit, dtype, shape and order, and touches nothing."""

from __future__ import annotations

import hashlib
import random
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from repro_gate.probe import device_digest, digest
from repro_gate.probe.device_digest import CHUNK, TILE
from repro_gate.runs.environment import EXTENSION

WIDE = "float64 complex64 complex128 int64"
DTYPES = (
    f"{WIDE} float32 float16 bfloat16 float8_e4m3fn float8_e5m2 int8 uint8 int16 int32 uint16 bool"
)


@pytest.fixture(autouse=True)
def _as_in_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digest, "EXTENSION", [EXTENSION])


SIZES = [1, 3, 4, 5, 7, 240, 241, 4 * TILE - 1, 4 * TILE, 4 * TILE + 5]
LARGE = [4 * CHUNK, 4 * CHUNK + 3, 8 * CHUNK + 4 * TILE + 17]


def of(*tensors: torch.Tensor) -> bytes:
    return digest.digest_all(tensors)


def of_device(*tensors: torch.Tensor) -> bytes:
    """What the path for devices makes of tensors of the CPU."""
    batch = device_digest.Batch(torch.device("cpu"))
    for tensor in tensors:
        name = hashlib.sha256(digest.header(tensor)).digest()[:16]
        batch.copy(name, tensor)
    return batch.digests(0, len(tensors))


def noise(size: int, seed: int = 0) -> torch.Tensor:
    """`size` random bytes."""
    content = bytearray(random.Random(seed).randbytes(size + 1))
    return torch.frombuffer(content, dtype=torch.uint8)[:size]


def header(tensor: torch.Tensor) -> bytes:
    return f"repro-gate/digest/v2|{tensor.dtype}|{tuple(tensor.shape)}|".encode()


def as_described(tensor: torch.Tensor) -> bytes:
    """The digest as its docstring defines it, by the package's own `xxhash`: for contiguous
    tensors."""
    seed = int.from_bytes(hashlib.sha256(header(tensor)).digest()[:8], "little")
    return xxhash.xxh3_128_digest(bytes(tensor.reshape(-1).view(torch.uint8).tolist()), seed)


def finalized(value: Any) -> Any:
    value = (value ^ value >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ value >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return value ^ value >> np.uint64(31)


def device_in_plain_numpy(tensor: torch.Tensor) -> bytes:
    """The digest of a device as its docstring defines it, in NumPy's integers modulo 2**64: for
    contiguous tensors."""
    content = bytes(tensor.reshape(-1).view(torch.uint8).tolist())
    keys = hashlib.shake_128(b"repro-gate/digest/v3").digest(22 * 4 + (128 + 4 + 4) * 8)
    nh = np.frombuffer(keys, "<u4", 22)
    tiles, starts, tails = np.split(np.frombuffer(keys, "<u8", offset=88), (128, 132))
    whole = len(content) // 4 * 4
    tail = int.from_bytes(content[whole:], "little")
    used = -(-whole // 32768)
    words = np.zeros(used * 8192, "<u4")
    words[: whole // 4] = np.frombuffer(content[:whole], "<u4")
    rows, low = words.reshape(used, 8, 2, 512), np.uint64(2**32 - 1)
    sums = []
    for lane in range(4):
        total, chunks = tail * int(tails[lane]), {}
        for tile in range(used):
            column = np.zeros(512, "u8")
            for row in range(8):
                x, y = ((rows[tile, row, half] + nh[2 * (row + lane) + half]) for half in (0, 1))
                column += x.astype("u8") * y.astype("u8")
            m, n = tiles.reshape(4, 2, 16)[lane, :, tile % 16]
            part = m * (column & low) + n * (column >> np.uint64(32))
            chunks[tile // 16] = chunks.get(tile // 16, np.uint64(0)) + part
        for chunk, column in chunks.items():
            place = 2 * (chunk * 512 + np.arange(512, dtype="u8")) + starts[lane]
            golden = np.uint64(0x9E3779B97F4A7C15)
            term = finalized(place * golden) * (column & low)
            term += finalized((place + np.uint64(1)) * golden) * (column >> np.uint64(32))
            total += int(term.sum(dtype="u8"))
        sums.append(np.array([total % 2**64], "u8"))
    name = np.frombuffer(hashlib.sha256(header(tensor)).digest()[:16], "<u8")
    return b"".join(
        finalized(finalized(name[half] + sums[2 * half]) + sums[2 * half + 1]).tobytes()
        for half in (0, 1)
    )


@pytest.mark.parametrize("size", [0, *SIZES, *LARGE])
def test_a_digest_is_what_its_docstring_says(size: int) -> None:
    assert of(noise(size)) == as_described(noise(size))


@pytest.mark.parametrize("size", [0, 1, 3, 4, 4 * TILE + 7, 4 * CHUNK + 5])
def test_a_digest_of_a_device_is_what_its_docstring_says_in_plain_numpy(size: int) -> None:
    assert of_device(noise(size)) == device_in_plain_numpy(noise(size))


@pytest.mark.parametrize("path", [of, of_device])
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_any_few_changed_bytes_are_seen(path: Callable[..., bytes], data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 4 * CHUNK + 4 * TILE))
    changes = data.draw(
        st.dictionaries(st.integers(0, size - 1), st.integers(1, 255), min_size=1, max_size=6)
    )
    tensor = torch.zeros(size, dtype=torch.uint8)
    changed = tensor.clone()
    for place, mask in changes.items():
        changed[place] ^= mask
    assert path(tensor) != path(changed)


@pytest.mark.parametrize("name", DTYPES.split())
def test_both_paths_read_every_dtype(name: str) -> None:
    dtype = getattr(torch, name)
    content = noise(40 * torch.empty(0, dtype=dtype).element_size(), seed=3)
    tensor = (content % 2).bool() if dtype is torch.bool else content.view(dtype)
    for item in (tensor, tensor[:1], tensor[:0]):
        assert of(item) == as_described(item)
        assert of_device(item) == device_in_plain_numpy(item)
    assert of(tensor.repeat(1000)) == as_described(tensor.repeat(1000))


def test_dtype_shape_order_zero_signs_and_nan_payloads_are_seen() -> None:
    zeros, ordered = torch.zeros(100), torch.arange(100, dtype=torch.float32)
    nan = torch.full((100,), float("nan"))
    payload = nan.clone()
    payload.view(torch.int32)[0] |= 1
    kinds = (torch.float64, torch.int32, torch.float16, torch.bfloat16, torch.bool)
    versions = [zeros, -zeros, *(zeros.to(kind) for kind in kinds), torch.zeros(99), nan, payload]
    versions += [zeros.reshape(2, -1), zeros.reshape(-1, 1), ordered, ordered.flip(0)]
    versions += [torch.zeros(shape) for shape in ((0,), (0, 3), (3, 0), (), (1,))]
    for path in (of, of_device):
        assert len({path(version) for version in versions}) == len(versions)
        assert path(*versions) == b"".join(path(version) for version in versions)


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


def test_what_was_read_before_is_read_as_it_is_now() -> None:
    """A plan shortens the way to tensors of the same forms; whatever happened to them since shows
    all the same."""
    tensor, plan = torch.randn(6, 6), digest.Plan()

    def now() -> bytes:
        found = digest.begin([tensor], plan=plan).result()
        assert found == of(tensor)
        return found

    changes = (
        lambda: tensor.add_(1),
        lambda: tensor.transpose_(0, 1),
        lambda: tensor.t_().resize_(3, 12),
        lambda: tensor.resize_(2, 2),
        lambda: setattr(tensor, "data", torch.zeros(2, 2)),
        # the same memory and shape
        lambda: setattr(tensor, "data", tensor.data.view(torch.int32)),
    )
    seen = {now(), now()}
    for change in changes:
        change()
        seen.add(now())
    tensor.set_(torch.zeros(5, 5, dtype=torch.int32)[1:3, 1:3])
    assert now() in seen and len(seen) == 1 + len(changes)
    reference = weakref.ref(tensor)
    tensor = torch.zeros(1)
    assert plan.count == 1 and reference() is None  # kept alive by nobody
    negated = torch.tensor([1 + 2j]).conj().imag
    cut = torch.ones(7)
    cut.untyped_storage().resize_(8)
    one = torch.ones(7)
    anew = digest.Plan()
    for gradient in (one, one + 1, torch.ones(9)[2:], cut.new_ones(7)):
        assert digest.begin([gradient], plan=anew, made_anew=True).result() == of(gradient)
    for other in (one, one + 1, one.to_sparse(), cut, one, -negated, negated):
        assert digest.begin([other], plan=plan).result() == of(other)


def test_a_tensor_without_memory_is_never_read() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        fake = torch.ones(3)
    seen: list[bytes] = []
    torch.func.grad(lambda x: seen.append(digest.digest_all([x, x.detach()])) or x.sum())(
        torch.ones(70_000)
    )
    found = digest.digest_all(
        [fake, torch.empty(3, device="meta"), torch.empty(0), torch.ones(3).expand(2, 3)]
    )
    assert len(found) == 4 * 16 and len(seen[0]) == 2 * 16
    cut = torch.ones(3)
    cut.untyped_storage().resize_(8)  # of 12 bytes
    assert not any(digest.in_memory(item) for item in (fake, torch.empty(3, device="meta"), cut))
    digest.UNREAD.clear()
    for item in (torch.ones(3), cut):  # what is remembered of the first does not serve the second
        digest.digest_all([item])
    assert [*digest.UNREAD] == ["tensors of type torch.Tensor"]


@pytest.fixture
def no_choice(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """A process that has not chosen its digest yet and has no xxhash of its own."""
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setattr(digest, "_HEADERS", {})
    digest.chosen.cache_clear()
    yield monkeypatch
    digest.chosen.cache_clear()


def test_without_xxhash_the_digest_is_sha_256(no_choice: pytest.MonkeyPatch) -> None:
    no_choice.setattr(digest, "EXTENSION", [None])
    for size in (0, 1, 300_000):
        tensor = noise(size)
        content = bytes(tensor.tolist())
        assert of(tensor) == hashlib.sha256(header(tensor) + content).digest()[:16]


def test_how_elements_lie_in_memory_does_not_matter_and_a_lazy_conjugate_is_its_values() -> None:
    tensor = torch.randn(4, 6, 50, 60, generator=torch.Generator().manual_seed(0))
    padded, shifted = torch.zeros(4, 6, 50, 61), torch.zeros(tensor.numel() + 1)
    padded[..., :60], shifted[1:] = tensor, tensor.reshape(-1)
    pairs = [
        (tensor.contiguous(memory_format=torch.channels_last), tensor),
        (padded[..., :60], tensor),
        (tensor.transpose(0, 3).contiguous().transpose(0, 3), tensor),
        (shifted[1:].view(tensor.shape), tensor),
        (torch._neg_view(-tensor), tensor),
    ]
    for elements in (10, 20_000):
        lazy = torch.view_as_complex(tensor.reshape(-1)[: 2 * elements].view(elements, 2)).conj()
        pairs.append((lazy, lazy.resolve_conj()))
        assert of(lazy) != of(lazy.conj())
    for one, same in pairs:
        assert of(one) == of(same) and of_device(one) == of_device(same)


@pytest.mark.filterwarnings("ignore:.*quantized tensor creation functions", "ignore::UserWarning")
def test_elements_and_scale_of_quantized_tensors_are_seen() -> None:
    one, other = (
        torch.quantize_per_tensor(torch.tensor([0.0, 1.0, last]), 0.1, 0, torch.quint8)
        for last in (2.0, 2.1)
    )
    scaled = torch._make_per_tensor_quantized_tensor(one.int_repr(), 0.5, 0)
    assert of(one) == of(one.clone()) and len({of(one), of(other), of(scaled)}) == 3


@pytest.mark.filterwarnings("ignore:Sparse .* support is in beta")
@pytest.mark.parametrize("kind", ["coo", "csr", "csc", "bsr", "bsc"])
def test_places_values_and_shape_of_sparse_tensors_are_seen(kind: str) -> None:
    def sparse(place: int, value: float, size: int = 8) -> torch.Tensor:
        dense = torch.zeros(size, 8)
        dense[place, 2] = value
        block = {"blocksize": (2, 2)} if kind.startswith("bs") else {}
        return dense.to_sparse(layout=getattr(torch, f"sparse_{kind}"), **block)

    assert of(sparse(0, 1.0)) == of(sparse(0, 1.0))
    others = [sparse(0, 1.0), sparse(4, 1.0), sparse(0, -1.0), sparse(0, 1.0, 10)]
    assert len({of(item) for item in others}) == 4


def test_neither_threads_nor_the_training_s_modes_matter() -> None:
    before, plain = torch.get_num_threads(), (of(noise(300_000)), of_device(noise(70_000)))
    modes = (torch.device("meta"), torch.inference_mode(), torch.autocast("cpu", torch.bfloat16))
    tensors = noise(300_000), noise(70_000)
    for mode in modes:
        device_digest._tables.cache_clear()
        device_digest._table.cache_clear()
        with mode:
            assert (of(tensors[0]), of_device(tensors[1])) == plain
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            assert (of(tensors[0]), of_device(tensors[1])) == plain
    finally:
        torch.set_num_threads(before)


def test_a_broken_extension_is_passed_over(no_choice: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert EXTENSION is not None
    before = set(sys.modules)
    assert digest.chosen().name == "xxh3-128"
    assert set(sys.modules) == before  # it is loaded under no name
    wrong = {
        "_xxhash.cpython-27-vax.so": b"never loaded",
        Path(EXTENSION).name: b"no library at all",
        f"empty/{Path(EXTENSION).name}": b"",
    }
    for name, content in wrong.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
        no_choice.setattr(digest, "EXTENSION", [str(tmp_path / name)])
        digest.chosen.cache_clear()
        assert digest.chosen().name == "sha256-128", name
    digest.chosen.cache_clear()
    no_choice.setattr(sys, "path", ["relative", str(Path(EXTENSION).parents[1])])
    assert digest.chosen().name == "xxh3-128"  # the training's own


KERNEL = """
import hashlib, random, torch
from repro_gate.probe import device_digest, digest
cpu = torch.device("cpu")
def of(tensors, by_kernel):
    device_digest._usable = lambda device: by_kernel
    batch = device_digest.Batch(cpu)
    for tensor in tensors:
        name = hashlib.sha256(digest.header(tensor)).digest()[:16]
        if tensor.is_contiguous() and tensor.data_ptr() % 4 == 0:
            batch.add([name], [tensor.data_ptr()], [tensor.nbytes], [tensor])
        else:
            batch.copy(name, tensor)
    return batch.digests(0, len(tensors))
for sizes in ([0, 1, 3, 4, 5, 100, 4095, 32768, 32773, 524288, 524291, 1100001], [7], [0]):
    whole = [torch.frombuffer(bytearray(random.Random(size).randbytes(size + 9)), dtype=torch.uint8) for size in sizes]
    for shift in (0, 4, 1):  # a storage offset that no 32-bit read may begin at, too
        tensors = [item[shift : shift + size] for item, size in zip(whole, sizes)]
        assert of(tensors, True) == of(tensors, False), (sizes, shift)
device_digest._PIECE = 4 * device_digest.CHUNK
square = torch.frombuffer(bytearray(random.Random(1).randbytes(4 * 600 * 500)), dtype=torch.int32).view(600, 500)
assert of([square.t(), square[:, 3:]], True) == of([square.t().contiguous(), square[:, 3:].contiguous()], False)
"""


def test_the_fused_kernel_gives_the_sums_of_the_eager_form(tmp_path: Path) -> None:
    pytest.importorskip("triton", reason="its interpreter needs no GPU")
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "TRITON_INTERPRET": "1"}
    command = [sys.executable, "-c", KERNEL]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
