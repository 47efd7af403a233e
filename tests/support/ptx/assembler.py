"""NVIDIA's assembler and disassembler, from Triton's wheel or a CUDA toolkit: they need no GPU."""

from __future__ import annotations

import functools
import importlib.util
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple


class Usage(NamedTuple):
    """What one kernel takes of an SM: registers of a thread, bytes that do not fit in them, and
    bytes of shared memory (the dynamic ones are not among them)."""

    registers: int
    spilled: int
    stack: int
    shared: int


class Assembled(NamedTuple):
    """A cubin, and the usage of each kernel in it by its name."""

    cubin: bytes
    usage: dict[str, Usage]


def tool(name: str) -> str | None:
    """Return the path of `ptxas`, `nvdisasm` or `cuobjdump`; None where it is not."""
    found = importlib.util.find_spec("triton")
    for folder in (found and found.submodule_search_locations) or ():
        path = Path(folder) / "backends" / "nvidia" / "bin" / name
        if path.exists():
            return str(path)
    return shutil.which(name)


@functools.lru_cache(maxsize=1)
def architectures() -> frozenset[str]:
    """Return the architectures that ptxas knows: `sm_90`."""
    return frozenset(re.findall(r"\bsm_\d+a?\b", _said(["ptxas", "--help"])))


def assemble(ptx: str, arch: str) -> Assembled:
    """Return the code for one architecture. Raise ValueError with what ptxas says."""
    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder) / "kernel.ptx", Path(folder) / "kernel.cubin"
        source.write_text(ptx)
        said = _said(["ptxas", "-v", f"--gpu-name={arch}", str(source), "-o", str(made)])
        cubin = made.read_bytes()
    usage = {}
    pattern = r"Compiling entry function '([^']+)' for '\w+'(.*?)(?=Compiling entry|\Z)"
    for name, text in re.findall(pattern, said, re.DOTALL):
        counts = [
            sum(map(int, re.findall(rf"(\d+) {what}", text)))
            for what in ("registers", "bytes spill", "bytes stack", "bytes smem")
        ]
        usage[name] = Usage(*counts)
    return Assembled(cubin, usage)


def sass(cubin: bytes) -> list[str]:
    """Return the instructions of all kernels in a cubin, one a line, as `LDG.E.128 R4, [R2.64]`."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        said = _said(["nvdisasm", "-c", str(path)])
    return [line.strip() for line in re.findall(r"(?m)^\s*/\*[0-9a-f]{4,}\*/(.*?);", said)]


def _said(command: list[str]) -> str:
    path = tool(command[0])
    if path is None:
        raise FileNotFoundError(f"{command[0]}: in neither Triton's wheel nor a CUDA toolkit")
    done = subprocess.run([path, *command[1:]], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError((done.stdout + done.stderr).strip())
    return done.stdout + done.stderr
