"""Claims about the digest's kernel as PTX, run by the interpreter of `tests.support.ptx`; and about
that interpreter: it computes as a GPU does, and raises where a GPU need not do what was meant."""

from __future__ import annotations

import ctypes
import os
import random
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from repro_gate.probe import device_digest, device_launch
from repro_gate.probe.device_digest import CHUNK, TILE
from tests.support import ptx
from tests.support.ptx import assembler

CPU = torch.device("cpu")
THREADS = 64
SIZES = [0, 1, 3, 4, 5, 7, 100, 4 * TILE - 1, 4 * TILE, 4 * TILE + 5]
LARGE = [4 * CHUNK - 4, 4 * CHUNK, 4 * CHUNK + 3, 9 * CHUNK + 4 * TILE + 18]


@pytest.fixture(scope="module")
def kernel() -> str:
    return device_launch.PTX.read_text(encoding="ascii")


class Interpreted:
    """Stands for `device_launch.launch`, on tensors of the CPU."""

    def __init__(self, text: str, order: Callable[[int], Any] = range) -> None:
        self.text = text
        self.order = order

    def launch(self, name: str, programs: int, arguments: list[Any], options: Any = None) -> None:
        memory = {item.data_ptr(): item.numel() * item.element_size() for item in arguments}
        if name == "sums":
            addresses, sizes, _, reads = (item.tolist() for item in arguments[:4])
            for program in reads:
                number = program >> 32
                first = 4 * CHUNK * min(item % 2**32 for item in reads if item // 2**32 == number)
                memory[addresses[number] + first] = sizes[number] - first
        buffers = {
            at: (ctypes.c_uint8 * size).from_address(at) for at, size in memory.items() if size
        }
        params = [item.data_ptr() for item in arguments]
        entry = self.text.partition(f".entry {name}(")[2].partition(")")[0]
        params += [0] * (entry.count(".param") - len(params))
        order = self.order(programs)
        ptx.run(self.text, name, programs, 128, params, buffers, shared=1024, order=order)


def tensors(sizes: list[int], shift: int) -> list[torch.Tensor]:
    """Return uint8 tensors, each in a storage of its own that it begins behind `shift` bytes."""
    made = []
    for size in sizes:
        content = bytearray(random.Random(size).randbytes(shift + size + 1))
        made.append(torch.frombuffer(content, dtype=torch.uint8)[shift : shift + size])
    return made


def agree(stand_in: Interpreted, items: list[torch.Tensor]) -> bool:
    """Return whether the PTX gives the digests of the eager form."""
    found = []
    for usable in (True, False):
        batch = device_digest.Batch(CPU)
        for number, item in enumerate(items):
            header = bytes([number] * 16)
            if item.is_contiguous() and item.data_ptr() % 4 == 0:
                batch.add([header], [item.data_ptr()], [item.nbytes], [item])
            else:
                batch.copy(header, item)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(device_digest, "_usable", lambda device, usable=usable: usable)
            patch.setattr(device_launch, "launch", stand_in.launch)
            found.append(batch.digests(0, len(items)))
    return found[0] == found[1]


@pytest.mark.parametrize("shift", [0, 4, 8, 12, 1, 2])
def test_the_ptx_gives_the_sums_of_the_eager_form(kernel: str, shift: int) -> None:
    assert agree(Interpreted(kernel), tensors(SIZES, shift))


@pytest.mark.parametrize("size", LARGE)
def test_the_ptx_gives_the_sums_of_large_tensors(kernel: str, size: int) -> None:
    assert agree(Interpreted(kernel), tensors([size, 3, size + 1], 4))


def test_what_is_copied_in_pieces_is_read_by_the_ptx_too(
    kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_digest, "_PIECE", 4 * CHUNK)
    square = tensors([4 * 700 * 500], 0)[0].view(torch.int32).view(700, 500)
    assert agree(Interpreted(kernel), [square.t(), square[:, 3:], square])


def test_the_order_of_the_programs_does_not_matter(kernel: str) -> None:
    backwards = Interpreted(kernel, lambda programs: reversed(range(programs)))
    assert agree(backwards, tensors([9 * CHUNK, 5], 0))


def test_a_mistake_in_the_ptx_is_found(kernel: str) -> None:
    items = tensors([4 * TILE + 5, 7], 0)
    wrong = kernel.replace("mad.wide.u32", "mad.wide.s32")
    assert not agree(Interpreted(wrong), items)
    with pytest.raises(ptx.Illegal, match="no barrier between"):
        agree(Interpreted(kernel.replace("bar.sync", "bar.warp.sync -1; //")), items)
    with pytest.raises(ptx.Illegal, match="no allocation"):
        agree(Interpreted(re.sub(r"(@%p\d+) (ld.global.b32)", r"\2", kernel)), items)


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"])
def test_the_ptx_assembles_without_spills(kernel: str, arch: str) -> None:
    if assembler.tool("ptxas") is None or arch not in assembler.architectures():
        pytest.skip(f"no ptxas that knows {arch}")
    made = assembler.assemble(kernel, arch)
    assert made.usage
    for usage in made.usage.values():
        assert usage.spilled <= 64 and usage.stack <= 64  # a few, outside of the loop
        assert 0 < usage.registers <= 255
    wide = [line for line in assembler.sass(made.cubin) if "LDG.E.128" in line]
    assert len(wide) == 2 * device_launch.ROWS
    assert made.usage["sums"].registers <= 128


def test_the_committed_ptx_is_what_triton_makes(kernel: str, tmp_path: Path) -> None:
    """By the version of Triton that its head names; another one may emit other instructions."""
    triton = pytest.importorskip("triton", reason="makes the PTX")
    if not triton.__version__.startswith("3.9."):
        pytest.skip("the PTX was made with Triton 3.9")
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path), "TRITON_DISABLE_LINE_INFO": "1"}
    code = "from repro_gate.probe.device_kernel import made; print(made(), end='')"
    command = [sys.executable, "-W", "ignore", "-c", code]
    made = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert made.stdout == kernel


# -- the interpreter -------------------------------------------------------------------------------

HEAD = """
.version 7.4
.target sm_80
.address_size 64
.extern .shared .align 16 .b8 dynamic[];
.visible .entry k(.param .u64 k_param_0, .param .u64 .ptr .global .align 8 k_param_1, .param .u32 n)
.reqntid %d
{
    .reg .pred %%p<9>;
    .reg .b16 %%h<9>;
    .reg .b32 %%r<9>;
    .reg .b64 %%d<9>;
    ld.param.u64 %%d0, [k_param_0];
    ld.param.u64 %%d1, [k_param_1];
    mov.u32 %%r0, %%tid.x;
    mul.wide.u32 %%d2, %%r0, 32;
    add.s64 %%d2, %%d0, %%d2;  // four numbers of 8 bytes for each thread
    mul.wide.u32 %%d3, %%r0, 8;
    add.s64 %%d3, %%d1, %%d3;  // one number, the answer
"""
IN, OUT = 0x7F0000000000, 0x7F0000100000
EDGES = [0, 1, 2, 31, 32, 33, 63, 64, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF]
EDGES += [1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, 0x8123456789ABCDEF]


def program(body: str) -> str:
    """Return a kernel of this body; %d2 is where a thread reads and %d3 where it writes."""
    text = HEAD % THREADS + re.sub(r"(?<=[;:])\s+", "\n    ", body) + "\n    ret;\n}\n"
    if assembler.tool("ptxas") is not None:  # what the tests claim is PTX
        assembler.assemble(text, "sm_80")
    return text


def numbers() -> np.ndarray[Any, Any]:
    chosen = random.Random(7)
    rows = [
        [chosen.choice([*EDGES, chosen.getrandbits(64)]) for _ in range(4)] for _ in range(THREADS)
    ]
    return np.array(rows, np.uint64)


def answers(text: str, given: np.ndarray[Any, Any], **more: Any) -> list[int]:
    out = np.zeros(THREADS, np.uint64)
    ptx.run(text, "k", 1, THREADS, [IN, OUT, 5], {IN: given, OUT: out}, **more)
    return out.tolist()


def signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (value >> bits - 1 << bits)


def low(value: int) -> int:
    return value & 0xFFFFFFFF


def prmt(a: int, b: int, c: int) -> int:
    both = (low(a) | low(b) << 32).to_bytes(8, "little")
    made = []
    for place in range(4):
        which = c >> 4 * place & 15
        byte = both[which & 7]
        made.append((255 if byte & 128 else 0) if which & 8 else byte)
    return int.from_bytes(made, "little")


def field(a: int, b: int, c: int) -> int:
    return low(a) >> (b & 255) & (1 << (c & 255)) - 1


# instructions of the wide %d4, %d5, %d6 or their low halves %r4, %r5, %r6, into %d7 or %r7
COMPUTED: dict[str, Callable[[int, int, int], int]] = {
    "add.s64 %d7, %d4, %d5": lambda a, b, c: a + b,
    "add.s32 %r7, %r4, -1": lambda a, b, c: low(a - 1),
    "sub.s64 %d7, %d4, %d5": lambda a, b, c: a - b,
    "neg.s64 %d7, %d4": lambda a, b, c: -a,
    "abs.s64 %d7, %d4": lambda a, b, c: abs(signed(a, 64)),
    "mul.lo.s64 %d7, %d4, -7046029254386353131": lambda a, b, c: a * -7046029254386353131,
    "mul.hi.u32 %r7, %r4, %r5": lambda a, b, c: low(a) * low(b) >> 32,
    "mul.hi.s64 %d7, %d4, %d5": lambda a, b, c: signed(a, 64) * signed(b, 64) >> 64,
    "mul.hi.u64 %d7, %d4, %d5": lambda a, b, c: a * b >> 64,
    "mul.wide.u32 %d7, %r4, %r5": lambda a, b, c: low(a) * low(b),
    "mul.wide.s32 %d7, %r4, %r5": lambda a, b, c: signed(a, 32) * signed(b, 32),
    "mad.lo.s64 %d7, %d4, %d5, %d6": lambda a, b, c: a * b + c,
    "mad.lo.s32 %r7, %r4, %r5, %r6": lambda a, b, c: low(a * b + c),
    "mad.wide.u32 %d7, %r4, %r5, %d6": lambda a, b, c: low(a) * low(b) + c,
    "mad.wide.s32 %d7, %r4, 12, %d6": lambda a, b, c: signed(a, 32) * 12 + c,
    "and.b64 %d7, %d4, 4294967295": lambda a, b, c: low(a),
    "or.b32 %r7, %r4, 0x380": lambda a, b, c: low(a) | 0x380,
    "xor.b64 %d7, %d4, %d5": lambda a, b, c: a ^ b,
    "not.b32 %r7, %r4": lambda a, b, c: low(~a),
    "shl.b64 %d7, %d4, %r5": lambda a, b, c: a << low(b) if low(b) < 64 else 0,
    "shl.b32 %r7, %r4, %r5": lambda a, b, c: low(low(a) << min(low(b), 32)),
    "shr.u64 %d7, %d4, %r5": lambda a, b, c: a >> min(low(b), 64),
    "shr.s64 %d7, %d4, %r5": lambda a, b, c: signed(a, 64) >> min(low(b), 64),
    "shr.u32 %r7, %r4, 5": lambda a, b, c: low(a) >> 5,
    "min.s64 %d7, %d4, 8": lambda a, b, c: min(signed(a, 64), 8),
    "max.u32 %r7, %r4, %r5": lambda a, b, c: max(low(a), low(b)),
    "bfe.u32 %r7, %r4, 5, 2": lambda a, b, c: low(a) >> 5 & 3,
    "bfe.u32 %r7, %r4, %r5, %r6": field,
    "bfe.u64 %d7, %d4, 30, 34": lambda a, b, c: a >> 30,
    "bfi.b32 %r7, %r4, %r5, 8, 12": lambda a, b, c: low(b) & ~0xFFF00 | (a & 0xFFF) << 8,
    "shf.l.wrap.b32 %r7, %r4, %r5, %r6": lambda a, b, c: low((low(b) << 32 | low(a)) << (c & 31) >> 32),
    "shf.r.wrap.b32 %r7, %r4, %r5, %r6": lambda a, b, c: low((low(b) << 32 | low(a)) >> (c & 31)),
    "prmt.b32 %r7, %r4, %r5, %r6": prmt,
    "prmt.b32 %r7, %r4, 0, 0x4440": lambda a, b, c: a & 255,
    "lop3.b32 %r7, %r4, %r5, %r6, 0x96": lambda a, b, c: low(a ^ b ^ c),
    "lop3.b32 %r7, %r4, %r5, %r6, 0xca": lambda a, b, c: low(a & b | ~a & c),
    "cvt.u64.u32 %d7, %r4": lambda a, b, c: low(a),
    "cvt.s64.s32 %d7, %r4": lambda a, b, c: signed(a, 32),
    "cvt.u32.u64 %r7, %d4": lambda a, b, c: low(a),
    "cvt.u16.u32 %h7, %r4; cvt.u32.u16 %r7, %h7": lambda a, b, c: a & 65535,
    "cvt.s32.s8 %r7, %r4": lambda a, b, c: low(signed(a, 8)),
    "cvta.to.global.u64 %d7, %d4": lambda a, b, c: a,
    "mov.b64 {_, %r7}, %d4": lambda a, b, c: a >> 32,
    "mov.b64 %d7, {%r5, %r4}": lambda a, b, c: low(b) | low(a) << 32,
    "setp.lt.s64 %p1, %d4, %d5; selp.b64 %d7, %d4, %d5, %p1": lambda a, b, c: min((signed(a, 64), a), (signed(b, 64), b))[1],
    "setp.lo.u32 %p1, %r4, %r5; not.pred %p2, %p1; selp.u32 %r7, 1, 0, %p2": lambda a, b, c: int(low(a) >= low(b)),
    "setp.eq.b32 %p1, %r4, 31; setp.ne.s32 %p2, %r5, 31; and.pred %p3, %p1, %p2; mov.pred %p4, -1; xor.pred %p3, %p3, %p4; selp.b32 %r7, 3, 4, %p3": lambda a, b, c: 4 if low(a) == 31 != low(b) else 3,
    "setp.ge.u64 %p1, %d4, %d5; mov.b32 %r7, 0; @!%p1 mov.u32 %r7, 0x9": lambda a, b, c: 0 if a >= b else 9,
}  # fmt: skip


@pytest.mark.parametrize("instruction", COMPUTED)
def test_an_instruction_computes_what_ptx_says(instruction: str) -> None:
    given = numbers()
    read = "ld.global.v2.b64 {%d4, %d5}, [%d2]; ld.global.b64 {%d6}, [ %d2 + 16 ];"
    read += "".join(f"cvt.u32.u64 %r{place}, %d{place};" for place in (4, 5, 6))
    made = re.findall(r"%[dr]7", instruction)[-1]
    store = "st.global.b64 [%d3], %d7;" if made == "%d7" else "st.global.b32 [%d3+0], %r7;"
    found = answers(program(f"{read} {instruction}; {store}"), given)
    expected = [COMPUTED[instruction](*row[:3]) & (1 << 64) - 1 for row in given.tolist()]
    assert found == expected


def shuffled(way: str, by: str, bound: str, given: np.ndarray[Any, Any]) -> list[int]:
    text = f"ld.global.b32 %r4, [%d2]; shfl.sync.{way}.b32 %r5|%p1, %r4, {by}, {bound}, -1;"
    text += "cvt.u64.u32 %d7, %r5; @%p1 add.s64 %d7, %d7, 4294967296; st.global.b64 [%d3], %d7;"
    return answers(program(text), given)


def test_a_shuffle_hands_values_through_a_warp() -> None:
    given = numbers()
    value = [low(row[0]) for row in given.tolist()]
    inside = 1 << 32
    assert shuffled("bfly", "16", "31", given) == [value[at ^ 16] + inside for at in range(THREADS)]
    assert shuffled("idx", "3", "31", given) == [
        value[at & 32 | 3] + inside for at in range(THREADS)
    ]
    assert shuffled("up", "1", "0", given) == [
        value[at - 1] + inside if at % 32 else value[at] for at in range(THREADS)
    ]
    assert shuffled("down", "1", "31", given) == [
        value[at + 1] + inside if at % 32 < 31 else value[at] for at in range(THREADS)
    ]


@pytest.mark.parametrize(("operation", "reduce"), [("add.s32", sum), ("max.u32", max)])
def test_a_warp_reduces_a_value(operation: str, reduce: Callable[[list[int]], int]) -> None:
    given = numbers()
    text = (
        f"ld.global.b32 %r4, [%d2]; redux.sync.{operation} %r5, %r4, -1; st.global.b32 [%d3], %r5;"
    )
    value = [low(row[0]) for row in given.tolist()]
    expected = [low(reduce(value[at & 32 : (at & 32) + 32])) for at in range(THREADS)]
    assert answers(program(text), given) == expected


BRANCHES = """mov.u64 %d7, 0; setp.lt.u32 %p1, %r0, 5; @%p1 bra $L_few; setp.lt.u32 %p2, %r0, 40;
@%p2 bra $L_loop; bra.uni $L_end;
$L_few: add.s64 %d7, %d7, 100;
$L_loop: add.s64 %d7, %d7, 1; cvt.u32.u64 %r1, %d7; setp.lt.u32 %p3, %r1, %r0; @%p3 bra $L_loop;
$L_end: bar.sync 0; shfl.sync.idx.b32 %r2, %r0, 7, 31, -1; cvt.u64.u32 %d4, %r2;
add.s64 %d7, %d7, %d4; st.global.b64 [%d3], %d7;"""


def test_threads_that_part_meet_again() -> None:
    expected = [101 if at < 5 else at if at < 40 else 0 for at in range(THREADS)]
    found = answers(program(BRANCHES), numbers())
    assert found == [value + (at & 32) + 7 for at, value in enumerate(expected)]


EXCHANGE = """mov.b32 %r1, dynamic; shl.b32 %r2, %r0, 3; add.s32 %r3, %r1, %r2;
ld.global.b64 %d4, [%d2]; st.shared.b64 [%r3], %d4; bar.sync 0; xor.b32 %r2, %r2, 256;
add.s32 %r3, %r1, %r2; ld.shared.b64 %d5, [ %r3 + 0 ]; st.global.b64 [%d3], %d5;"""


def test_warps_exchange_through_shared_memory() -> None:
    given = numbers()
    found = answers(program(EXCHANGE), given, shared=8 * THREADS)
    assert found == [given.tolist()[at ^ 32][0] for at in range(THREADS)]


def test_atomics_add_up_over_all_programs() -> None:
    add = "ld.global.b64 %d4, [%d2]; atom.global.gpu.acq_rel.add.u64 %d5, [ %d1 + 0 ], %d4;"
    add += "red.global.gpu.relaxed.add.u64 [%d1+8], 1; fence.acq_rel.gpu;"
    given, out = numbers(), np.zeros(2, np.uint64)
    memory = {IN: given, OUT: out}
    counts = ptx.run(program(add), "k", 3, THREADS, [IN, OUT, 0], memory, order=[2, 0, 1])
    assert out.tolist() == [3 * sum(row[0] for row in given.tolist()) & (1 << 64) - 1, 3 * THREADS]
    assert counts["red.global.gpu.relaxed.add.u64"] == 3


def test_vectors_and_narrow_values_are_loaded_as_they_lie() -> None:
    text = "ld.global.nc.L1::no_allocate.v4.b32 {%r1, %r2, %r3, %r4}, [%d2+16]; ld.global.b8 {%h1}, [%d2];"
    text += "ld.global.s16 %r5, [%d2+6]; cvt.u64.u32 %d4, %r4; cvt.u64.u16 %d5, %h1; cvt.u64.u32 %d6, %r5;"
    text += "add.s64 %d7, %d4, %d5; add.s64 %d7, %d7, %d6; st.global.b64 [%d3], %d7;"
    given = numbers()
    assert answers(program(text), given) == [
        (row[3] >> 32) + (row[0] & 255) + low(signed(row[0] >> 48, 16)) for row in given.tolist()
    ]


def test_a_load_with_a_hint_for_the_cache_is_a_load() -> None:
    text = "createpolicy.fractional.L2::evict_first.b64 %d8, 1.0;"
    text += (
        "ld.global.L1::evict_first.L2::cache_hint.b64 {%d7}, [%d2], %d8; st.global.b64 [%d3], %d7;"
    )
    given = numbers()
    assert answers(program(text), given) == [row[0] for row in given.tolist()]


FIRST_WARP = "setp.lt.u32 %p1, %r0, 32;"
BACK = "xor.b32 %r2, %r2, 256; add.s32 %r3, %r1, %r2; st.shared.b64 [%r3], %d5;"
# what is illegal, a twin that is not, and what is said
ILLEGAL: dict[str, tuple[str, str, str]] = {
    "a load outside": ("ld.global.b64 %d4, [%d2+2048];", "ld.global.b64 %d4, [%d2+24];", "no allocation"),
    "a load before": ("ld.global.b32 %r4, [%d2+-4];", "ld.global.b32 %r4, [%d2+0];", "no allocation"),
    "the end of a vector": ("ld.global.v2.b64 {%d4, %d5}, [%d1+504];", "ld.global.b64 {%d4}, [%d1+504];", "misaligned"),
    "a store outside": ("st.global.b64 [%d3+8], %d0;", "st.global.b64 [%d3], %d0;", "no allocation"),
    "a misaligned vector": ("ld.global.v4.b32 {%r1,%r2,%r3,%r4}, [%d2+8];", "ld.global.v2.b32 {%r1,%r2}, [%d2+8];", "misaligned"),
    "a misaligned word": ("ld.global.b32 %r1, [%d2+2];", "ld.global.b16 %h1, [%d2+2];", "misaligned"),
    "a misaligned sum": ("red.global.add.u64 [%d1+4], 1;", "red.global.add.u32 [%d1+4], 1;", "misaligned"),
    "a register that nobody wrote": ("add.s32 %r1, %r2, 1;", "mov.b32 %r2, 1; add.s32 %r1, %r2, 1;", "before it is written"),
    "a value of some threads only": (f"{FIRST_WARP} @%p1 mov.b64 %d4, 1; st.global.b64 [%d3], %d4;", f"{FIRST_WARP} @%p1 mov.b64 %d4, 1; @%p1 st.global.b64 [%d3], %d4;", "has no value"),
    "a computed value of some threads only": (f"{FIRST_WARP} @%p1 mov.b64 %d4, 1; add.s64 %d5, %d4, 1; red.global.add.u64 [%d1], %d5;", f"{FIRST_WARP} @%p1 mov.b64 %d4, 1; selp.b64 %d4, %d4, 5, %p1; add.s64 %d5, %d4, 1; red.global.add.u64 [%d1], %d5;", "has no value"),
    "a shuffled value of some threads only": ("setp.eq.u32 %p1, %r0, 0; @%p1 mov.b32 %r1, 1; shfl.sync.bfly.b32 %r2, %r1, 1, 31, -1; st.global.b32 [%d3], %r2;", "setp.ne.u32 %p1, %r0, 99; @%p1 mov.b32 %r1, 1; shfl.sync.bfly.b32 %r2, %r1, 1, 31, -1; st.global.b32 [%d3], %r2;", "has no value"),
    "a branch by what has no value": (f"{FIRST_WARP} @%p1 mov.pred %p2, -1; @%p2 bra $L_1; $L_1:", f"{FIRST_WARP} mov.pred %p2, -1; @%p2 bra $L_1; $L_1:", "has no value"),
    "an address that has no value": (f"{FIRST_WARP} @%p1 mov.b64 %d4, %d2; ld.global.b32 %r1, [%d4];", f"{FIRST_WARP} @%p1 mov.b64 %d4, %d2; @%p1 ld.global.b32 %r1, [%d4];", "has no value"),
    "a missing barrier": (EXCHANGE.replace("bar.sync 0;", ""), EXCHANGE, "no barrier between"),
    "a barrier of a warp": (EXCHANGE.replace("bar.sync 0;", "bar.warp.sync -1;"), EXCHANGE, "no barrier between"),
    "a missing barrier before a store": (f"{EXCHANGE} {BACK}", f"{EXCHANGE} bar.sync 0; {BACK}", "no barrier between"),
    "warps that store at one place": ("st.shared.b32 [dynamic], 7;", f"{FIRST_WARP} @%p1 st.shared.b32 [dynamic], 7;", "two warps store"),
    "threads that store what differs": (f"{FIRST_WARP} @%p1 st.shared.b32 [dynamic], %r0;", f"{FIRST_WARP} @%p1 st.shared.b32 [dynamic], 9;", "different values"),
    "threads that store what differs in global memory": ("st.global.b32 [%d1], %r0;", "st.global.b32 [%d1], 9;", "different values"),
    "shared memory that nobody wrote": ("ld.shared.b32 %r1, [dynamic];", f"{FIRST_WARP} @%p1 st.shared.b32 [dynamic], 7; bar.sync 0; ld.shared.b32 %r1, [dynamic];", "before it is written"),
    "more shared memory than there is": (f"{FIRST_WARP} @%p1 st.shared.b32 [dynamic+512], 7;", f"{FIRST_WARP} @%p1 st.shared.b32 [dynamic+508], 7;", "shared memory has no"),
    "a barrier of a warp alone": (f"{FIRST_WARP} @%p1 bra $L_1; bar.sync 0; $L_1:", f"{FIRST_WARP} @%p1 bra $L_1; $L_1: bar.sync 0;", "not all threads reach"),
    "a barrier under a guard": (f"{FIRST_WARP} @%p1 bar.sync 0;", "setp.lt.u32 %p1, %r0, 999; @%p1 bar.sync 0;", "not all threads reach"),
    "a barrier behind an early end": (f"{FIRST_WARP} @%p1 ret; bar.sync 0;", "setp.gt.u32 %p1, %r0, 99; @%p1 ret; bar.sync 0;", "not all threads reach"),
    "a shuffle of half a warp": ("setp.lt.u32 %p1, %r0, 16; @%p1 shfl.sync.idx.b32 %r1, %r0, 3, 31, -1;", f"{FIRST_WARP} @%p1 shfl.sync.idx.b32 %r1, %r0, 3, 31, -1;", "warp are missing"),
    "a shuffle from a thread that is away": ("setp.lt.u32 %p1, %r0, 16; @%p1 shfl.sync.idx.b32 %r1, %r0, 30, 31, 65535;", "setp.lt.u32 %p1, %r0, 16; @%p1 shfl.sync.idx.b32 %r1, %r0, 15, 31, 65535;", "not here"),
    "constant memory that is written": ("st.global.b64 [%d3], 1; ld.global.nc.b64 %d4, [%d3];", "st.global.b64 [%d3], 1; ld.global.b64 %d4, [%d3];", "as if it were constant"),
    "an unknown instruction": ("popc.b32 %r1, %r0;", "not.b32 %r1, %r0;", "unknown instruction popc.b32"),
    "an unknown modifier": ("add.sat.s32 %r1, %r0, 1;", "add.s32 %r1, %r0, 1;", "unknown instruction add.sat.s32"),
    "floating point": ("cvt.rn.f32.u32 %r1, %r0;", "cvt.u64.u32 %d4, %r0;", "unknown instruction cvt.rn.f32.u32"),
    "a program without an end": ("$L_1: bra $L_1;", "bra $L_1; $L_1:", "does not end"),
}  # fmt: skip


@pytest.mark.parametrize("name", ILLEGAL)
def test_what_is_illegal_raises(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ptx, "MOST_STEPS", 1000)
    illegal, legal, said = ILLEGAL[name]
    answers(program(legal), numbers(), shared=8 * THREADS)
    with pytest.raises(ptx.Illegal, match=said):
        answers(program(illegal), numbers(), shared=8 * THREADS)


def test_a_launch_must_fit_the_kernel() -> None:
    text, memory = program("mov.b32 %r1, 1;"), {IN: bytearray(8)}
    ptx.run(text, "k", 1, THREADS, [0, 0, 0], memory)
    with pytest.raises(ptx.Illegal, match="128 threads"):
        ptx.run(text, "k", 1, 128, [0, 0, 0], memory)
    with pytest.raises(ptx.Illegal, match="2 parameters"):
        ptx.run(text, "k", 1, THREADS, [0, 0], memory)
    with pytest.raises(ptx.Illegal, match="no entry other"):
        ptx.run(text, "other", 1, THREADS, [0, 0, 0], memory)
    with pytest.raises(ptx.Illegal, match="over each other"):
        ptx.run(text, "k", 1, THREADS, [0, 0, 0], {IN: bytearray(8), IN + 4: bytearray(8)})
