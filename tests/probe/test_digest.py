"""Claims about `probe.digest`: it sees every bit, the dtype, the shape and the order of elements,
and it touches nothing."""

from __future__ import annotations

import hashlib
import itertools
import random
import struct
import subprocess
import sys
import threading
import time
import warnings
import weakref
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from repro_gate.probe import device_digest, digest
from repro_gate.probe.device_digest import CHUNK, TILE
from repro_gate.runs.environment import EXTENSION

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


@pytest.fixture(autouse=True)
def _as_in_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digest, "EXTENSION", [EXTENSION])


SIZES = [
    1,
    3,
    4,
    5,
    7,
    240,
    241,
    4 * TILE - 1,
    4 * TILE,
    4 * TILE + 5,
    4 * CHUNK,
    4 * CHUNK + 3,
    8 * CHUNK + 4 * TILE + 17,
]


def of(*tensors: torch.Tensor) -> bytes:
    return digest.digest_all(torch, tensors)


def of_device(*tensors: torch.Tensor) -> bytes:
    """What the path for devices makes of tensors of the CPU."""
    out = [b""] * len(tensors)
    for sums in device_digest.begin(
        torch, [(index, digest._plain(tensor)) for index, tensor in enumerate(tensors)]
    ):
        for index, found in sums.digests():
            out[index] = found
    return b"".join(out)


def noise(size: int, seed: int = 0) -> torch.Tensor:
    """`size` random bytes."""
    return torch.frombuffer(bytearray(random.Random(seed).randbytes(size + 1)), dtype=torch.uint8)[
        :size
    ]


def header(tensor: torch.Tensor) -> bytes:
    return f"repro-gate/digest/v2|{tensor.dtype}|{tuple(tensor.shape)}|".encode()


def as_described(tensor: torch.Tensor) -> bytes:
    """The digest as its docstring defines it, by the package's own `xxhash`: for contiguous
    tensors."""
    seed = int.from_bytes(hashlib.sha256(header(tensor)).digest()[:8], "little")
    return xxhash.xxh3_128_digest(bytes(tensor.reshape(-1).view(torch.uint8).tolist()), seed)


def splitmix64(counter: int) -> int:
    value = counter * 0x9E3779B97F4A7C15 % 2**64
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    value = (value ^ value >> 27) * 0x94D049BB133111EB % 2**64
    return value ^ value >> 31


def device_in_plain_python(tensor: torch.Tensor) -> bytes:
    """The digest of a device as its docstring defines it, in Python's own integers: for contiguous
    tensors."""
    content = bytes(tensor.reshape(-1).view(torch.uint8).tolist())
    keys = hashlib.shake_128(b"repro-gate/digest/v2").digest(
        4 * 2 * 4 * 512 * 4 + 4 * 2 * 8 * 8 + 4 * 8 + 4 * 8
    )
    nh = struct.unpack_from("<16384I", keys)
    tiles, starts, tails = (
        struct.unpack_from(f"<{count}Q", keys, at)
        for count, at in ((64, 65536), (4, 66048), (4, 66080))
    )
    words = struct.unpack_from(f"<{len(content) // 4}I", content)
    sums = []
    for lane in range(4):
        columns: dict[int, int] = {}
        for tile in range(-(-len(words) // 4096)):
            part = [*words[4096 * tile : 4096 * (tile + 1)]]
            part += [0] * (4096 - len(part))
            for column in range(512):
                total = 0
                for row in range(4):
                    left, right = (part[1024 * row + 512 * half + column] for half in (0, 1))
                    k, m = (nh[4096 * lane + 2048 * half + 512 * row + column] for half in (0, 1))
                    total += ((left + k) % 2**32) * ((right + m) % 2**32)
                total %= 2**64
                m, n = (tiles[16 * lane + 8 * half + tile % 8] for half in (0, 1))
                place = 512 * (tile // 8) + column
                columns[place] = columns.get(place, 0) + m * (total % 2**32) + n * (total >> 32)
        found = 0
        for place, total in columns.items():
            counter = 2 * place + starts[lane]
            found += splitmix64(counter) * (total % 2**32) + splitmix64(counter + 1) * (
                total % 2**64 >> 32
            )
        tail = int.from_bytes(content[4 * len(words) :], "little")
        sums.append((found + tails[lane] * tail) % 2**64)
    return hashlib.sha256(header(tensor) + struct.pack("<4Q", *sums)).digest()[:16]


@pytest.mark.parametrize("size", [0, *SIZES])
def test_a_digest_is_what_its_docstring_says(size: int) -> None:
    assert of(noise(size)) == as_described(noise(size))


@pytest.mark.parametrize("size", [0, 1, 3, 4, 4 * TILE + 7, 4 * CHUNK + 5])
def test_a_digest_of_a_device_is_what_its_docstring_says_in_plain_python(size: int) -> None:
    assert of_device(noise(size)) == device_in_plain_python(noise(size))


@pytest.mark.parametrize(
    ("path", "size"), [*((of, size) for size in SIZES), *((of_device, size) for size in SIZES[:10])]
)
def test_one_flipped_bit_anywhere_is_seen(size: int, path: Callable[..., bytes]) -> None:
    tensor = noise(size)
    borders = (0, *range(0, size, 4 * TILE), size)
    near = {
        place for border in borders for place in range(border - 9, border + 9) if 0 <= place < size
    }
    places = [*sorted(near)[:: max(1, len(near) // 20)], size - 1]
    flips = set(zip(places, itertools.cycle(range(8)), strict=False))
    seen = {path(tensor)}
    for place, bit in flips:
        changed = tensor.clone()
        changed[place] ^= 1 << bit
        seen.add(path(changed))
    assert len(seen) == len(flips) + 1


@pytest.mark.parametrize("path", [of, of_device])
def test_two_parts_that_change_places_are_seen(path: Callable[..., bytes]) -> None:
    tensor = noise(8 * CHUNK + 100)
    seen = {path(tensor)}
    # a byte, a word, a pair's halves, rows, tiles, chunks
    lengths = [1, 4, 8, 2048, 4096, 4 * TILE, 4 * CHUNK]
    for length in lengths:
        changed = tensor.clone()
        changed[:length], changed[length : 2 * length] = (
            tensor[length : 2 * length],
            tensor[:length],
        )
        seen.add(path(changed))
    assert len(seen) == len(lengths) + 1


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


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("elements", [0, 1, 40, 40_000])
def test_both_paths_read_every_dtype(dtype: torch.dtype, elements: int) -> None:
    width = torch.empty(0, dtype=dtype).element_size()
    content = noise(elements * width, seed=3)
    tensor = (
        (content % 2).bool()
        if dtype is torch.bool
        else content.view(dtype)
        if elements
        else torch.empty(0, dtype=dtype)
    )
    assert of(tensor) == as_described(tensor)
    # the slow reference only where it is quick
    assert of_device(tensor) == device_in_plain_python(tensor) or elements > 1000


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
    assert {of_device(tensor) for tensor in same.values()} == {of_device(same["contiguous"])}


@pytest.mark.parametrize("elements", [10, 20_000])
def test_a_lazy_conjugate_is_its_values(elements: int) -> None:
    tensor = torch.view_as_complex(
        torch.randn(elements, 2, generator=torch.Generator().manual_seed(0))
    )
    assert of(tensor.conj()) == of(tensor.conj().resolve_conj())
    assert of_device(tensor.conj()) == of_device(tensor.conj().resolve_conj())
    assert of(tensor.conj()) != of(tensor)


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
    tensors = [
        torch.zeros(0),
        torch.zeros(0, 3),
        torch.zeros(3, 0),
        torch.tensor(0.0),
        torch.zeros(1),
        torch.tensor(0),
    ]
    assert len({of(tensor) for tensor in tensors}) == len(tensors)
    assert of(*tensors) == b"".join(of(tensor) for tensor in tensors)
    assert of_device(*tensors) == b"".join(of_device(tensor) for tensor in tensors)


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
    """Slots shorten the way to a tensor that lies where it lay; whatever happened to it since shows
    all the same."""
    tensor, slots = torch.randn(6, 6), digest.Slots(1)

    def now() -> bytes:
        found = digest.begin(torch, [tensor], slots=slots).result()
        assert found == of(tensor)
        return found

    seen = {now(), now()}
    assert len(seen) == 1
    tensor.add_(1)
    seen.add(now())
    tensor.t_()
    seen.add(now())
    tensor.t_()
    tensor.resize_(3, 12)
    seen.add(now())
    tensor.resize_(2, 2)
    seen.add(now())
    tensor.data = torch.ones(2, 2)
    seen.add(now())
    tensor.set_(torch.ones(5, 5)[1:3, 1:3])
    assert now() in seen and len(seen) == 6
    tensor = torch.zeros(2, 2)
    assert now() not in seen
    seen.add(now())
    tensor.data = tensor.data.view(torch.int32)  # the same memory and shape
    assert now() not in seen


def test_slots_keep_no_tensor_alive() -> None:
    tensor, slots = torch.randn(6, 6), digest.Slots(1)
    for _ in range(2):
        digest.begin(torch, [tensor], slots=slots)
    reference = weakref.ref(tensor)
    del tensor
    assert slots[0][1] and reference() is None


@pytest.mark.parametrize("threads", [1, 2])
def test_the_number_of_threads_does_not_matter(threads: int) -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        assert of(noise(300_011)) == as_described(noise(300_011))
        assert of_device(noise(70_011)) == device_in_plain_python(noise(70_011))
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
    tensor = noise(300_000)
    plain = of(tensor), of_device(tensor)
    device_digest._TABLES.clear()
    with around(name):
        assert (of(tensor), of_device(tensor)) == plain


def test_a_quantized_tensors_scale_and_a_sparse_tensors_shape_are_seen() -> None:
    values = torch.randint(0, 10, (6,), dtype=torch.uint8).float()
    with warnings.catch_warnings():
        # torch deprecates quantized and sparse types by warnings of its own
        warnings.simplefilter("ignore")
        one, other = (
            torch.quantize_per_tensor(values, scale, 0, torch.quint8) for scale in (1.0, 1.0)
        )
        scaled = torch._make_per_tensor_quantized_tensor(one.int_repr(), 0.5, 0)
        sparse = [torch.sparse_coo_tensor([[0, 1]], [1.0, 2.0], (size,)) for size in (4, 5)]
        found = [digest.digest_all(torch, [tensor]) for tensor in (one, other, scaled, *sparse)]
    assert found[0] == found[1] != found[2] and found[3] != found[4]


def test_a_tensor_without_memory_is_never_read() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        fake = torch.ones(3)
    seen: list[bytes] = []
    torch.func.grad(lambda x: seen.append(digest.digest_all(torch, [x, x.detach()])) or x.sum())(
        torch.ones(70_000)
    )
    found = digest.digest_all(
        torch, [fake, torch.empty(3, device="meta"), torch.empty(0), torch.ones(3).expand(2, 3)]
    )
    assert len(found) == 4 * 16 and len(seen[0]) == 2 * 16
    cut = torch.ones(3)
    cut.untyped_storage().resize_(8)  # of 12 bytes
    assert not any(
        digest.in_memory(torch, item) for item in (fake, torch.empty(3, device="meta"), cut)
    )


def collisions(found: bytes, bits: int) -> int:
    """Pairs of digests of 16 bytes whose first `bits` bits are the same."""
    mask = (1 << bits) - 1
    counts = Counter(
        int.from_bytes(found[at : at + 16], "little") & mask for at in range(0, len(found), 16)
    )
    return sum(count * (count - 1) // 2 for count in counts.values())


@pytest.mark.parametrize(
    ("path", "count", "bits"),
    [pytest.param(of, 1_000_000, 24, marks=pytest.mark.slow), (of_device, 2_000, 16)],
)
@pytest.mark.parametrize("what", ["random", "counting"])
def test_digests_collide_as_often_as_chance_and_not_at_all_with_128_bits(
    path: Callable[..., bytes], count: int, bits: int, what: str
) -> None:
    """Of n digests of b bits, n (n - 1) / 2**(b + 1) pairs collide by chance, give or take the
    square root of that."""
    if what == "random":
        rows = torch.randint(
            -(2**62), 2**62, (count, 4), generator=torch.Generator().manual_seed(0)
        )
    else:
        rows = torch.zeros(count, 4, dtype=torch.int64)
        rows[:, 2] = torch.arange(count)
    found = path(*rows.unbind())
    expected = count * (count - 1) / 2 ** (bits + 1)
    assert abs(collisions(found, bits) - expected) < 5 * expected**0.5
    assert collisions(found, 128) == 0


@pytest.fixture
def no_choice(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A process that has not chosen its digest yet and has no xxhash of its own."""
    monkeypatch.setattr(digest, "_CHOSEN", [])
    monkeypatch.setattr(sys, "path", [])
    return monkeypatch


def test_the_gates_own_extension_is_loaded_under_no_name(no_choice: pytest.MonkeyPatch) -> None:
    before = set(sys.modules)
    assert digest.chosen().name == "xxh3-128"
    assert set(sys.modules) == before


def test_an_extension_of_another_abi_is_left_alone_and_the_training_s_own_is_taken(
    no_choice: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert EXTENSION is not None
    other = tmp_path / "_xxhash.cpython-27-vax.so"
    other.write_bytes(b"never loaded")
    no_choice.setattr(digest, "EXTENSION", [str(other)])
    assert digest.chosen().name == "sha256-128"
    no_choice.setattr(digest, "_CHOSEN", [])
    no_choice.setattr(sys, "path", ["relative", str(Path(EXTENSION).parents[1])])
    assert digest.chosen().name == "xxh3-128"


@pytest.mark.parametrize("content", [b"", b"no library at all"])
def test_a_broken_extension_is_no_reason_to_fail(
    no_choice: pytest.MonkeyPatch, tmp_path: Path, content: bytes
) -> None:
    assert EXTENSION is not None
    broken = tmp_path / Path(EXTENSION).name
    broken.write_bytes(content)
    no_choice.setattr(digest, "EXTENSION", [str(broken)])
    assert digest.chosen().name == "sha256-128"


def test_without_xxhash_the_digest_is_sha_256(no_choice: pytest.MonkeyPatch) -> None:
    no_choice.setattr(digest, "EXTENSION", [None])
    for size in (0, 1, 300_000):
        tensor = noise(size)
        content = bytes(tensor.tolist())
        assert of(tensor) == hashlib.sha256(header(tensor) + content).digest()[:16]


def test_another_thread_runs_while_a_large_tensor_is_read() -> None:
    tensor, turns, done = torch.zeros(2**26), [0], threading.Event()

    def count() -> None:
        while not done.is_set():
            turns[0] += 1
            # it asks for the interpreter anew each time, and gets it only where it is let go
            time.sleep(0.0005)

    thread = threading.Thread(target=count)
    thread.start()
    before = sys.getswitchinterval()
    try:
        sys.setswitchinterval(60)  # no thread has to hand over
        began = turns[0]
        digest.chosen().digest(memoryview(tensor.numpy()).cast("B"), 0)
        during = turns[0] - began
    finally:
        sys.setswitchinterval(before)
        done.set()
        thread.join()
    assert during > 0


KERNEL = """
import random, torch
from repro_gate.probe import device_digest, device_kernel
for sizes in ([0, 1, 3, 4, 5, 100, 4095, 16384, 16389, 131072, 131075, 300001], [7], [0]):
    whole = [torch.frombuffer(bytearray(random.Random(size).randbytes(size + 9)), dtype=torch.uint8) for size in sizes]
    for shift in (0, 4, 1):  # a storage offset that no 32-bit read may begin at, too
        tensors = [item[shift : shift + size] for item, size in zip(whole, sizes)]
        fused = device_digest.sums_by(torch, device_kernel, torch.device("cpu"), tensors)
        assert torch.equal(fused, device_digest.eager_sums(torch, torch.device("cpu"), tensors)), (sizes, shift)
"""


def test_the_fused_kernel_and_the_eager_form_give_the_same_sums() -> None:
    pytest.importorskip("triton", reason="Triton's interpreter runs the kernel on the CPU")
    environment = {"TRITON_INTERPRET": "1", "PATH": "/usr/bin:/bin", "HOME": "/tmp"}
    done = subprocess.run(
        [sys.executable, "-c", KERNEL], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]


COMPILED = """
from repro_gate.probe.device_digest import KERNEL_SHAPE
from repro_gate.probe.device_kernel import compiled
for capability in (80, 90):
    made = compiled(capability, KERNEL_SHAPE)
    assert made.asm["cubin"] and made.metadata.shared <= 16384, made.metadata
    parameters = [line for line in made.asm["ptx"].split(")")[0].splitlines() if ".param" in line]
    assert 9 <= len(parameters) <= 11, parameters  # those that the driver is handed, and what newer Tritons add
"""


def test_the_fused_kernel_compiles_for_gpus_that_are_not_here(tmp_path: Path) -> None:
    pytest.importorskip("triton", reason="its compiler needs no GPU")
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", COMPILED],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
