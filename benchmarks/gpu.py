"""`make gpu`: everything that needs CUDA, in one call of less than ten minutes.

1. Each part is a process with a time limit of its own. One that fails, hangs or lacks something
   stops no other.
2. What the parts print comes into gpu.txt at once, what they measure into gpu.json after each part,
   however that ended. Both lie in the folder $OUT, or in benchmarks/results; two files, since a
   machine that is lent may hand back only a few.
3. The exit code is 1 where something is broken, 2 where nothing could be measured, else 0: a goal
   that is missed is told, and no fault.

`python -m benchmarks.gpu steps soak` runs these parts alone.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.figure import (
    ROOT,
    Figure,
    describe_machine,
    from_json,
    show,
    to_json,
    write_results,
)

RESULTS = ROOT / "benchmarks" / "results"
LACKS = 77  # a part's exit status
BROKEN = {"failed", "timed out"}
MEASURED = {"ok", *BROKEN}
LONGEST = 570.0  # seconds, of all parts together
SHOWN = 30  # lines of a part that failed
KIB, MIB = 2**10, 2**20
SIZES = (64 * KIB, MIB, 16 * MIB, 256 * MIB, 4096 * MIB)
CLOCKS = "pstate,clocks.sm,clocks.mem,temperature.gpu,power.draw,clocks_throttle_reasons.active"
DIGEST_TESTS = ("tests/gpu/test_digest.py",)
TRAINING_TESTS = (
    "tests/gpu/test_training.py",
    "tests/gpu/test_operators.py",
    "tests/gpu/test_ranks.py",
)
Found = Iterable[Figure | Mapping[str, object]]  # a mapping: facts about the machine


class Lacks(Exception):
    """A part cannot run here. The message names what is missing."""


@dataclass(frozen=True)
class Part:
    """A command, and the seconds that it may take. It gets a file for what it found as its last
    argument, a line of JSON for each: `machine`, `figure`, `lacks`."""

    name: str
    limit: float
    command: tuple[str, ...]


def machine() -> Found:
    """Clocks and versions."""
    found = {**describe_machine(), **_describe_gpu()}
    yield found
    print("\n".join(f"{name}: {value}" for name, value in found.items()))
    print(_nvidia_smi("-q", "-d", "CLOCK,PERFORMANCE,TEMPERATURE,POWER"))


def digests() -> Found:
    """The tests of digests: out of memory, layouts, subclasses, capture."""
    return _tests(*DIGEST_TESTS)


def training() -> Found:
    """The tests of trainings, operators and two ranks on one device, six at a time."""
    return _tests(*TRAINING_TESTS)


def gate() -> Found:
    """The tests of the gate and of facts, and every other test that needs CUDA."""
    others = (f"--ignore={path}" for path in (*DIGEST_TESTS, *TRAINING_TESTS))
    return _tests("tests/gpu", *others)


def variants() -> Found:
    """The kernel of the digests and its variants by events, against `sum`."""
    from benchmarks.digest_speed import Settings, measure_by_events

    return measure_by_events(Settings(SIZES, 20, batch=256 * MIB, device="cuda"))


def small() -> Found:
    """Digests of many small tensors with their result, and a profile of 20 steps."""
    from benchmarks import digest_speed, step_overhead

    yield digest_speed.small(digest_speed.Settings(rounds=50, device="cuda"))
    settings = step_overhead.Settings(arguments="--device cuda", steps=30)
    print(step_overhead.profile(settings, "transformer"))


def steps() -> Found:
    """Steps with and without the probe, three rounds."""
    yield from _steps("transformer", rounds=3, goal=1.05)
    yield from _steps("gpt-124m", rounds=3)


def large() -> Found:
    """The same, of a GPT of a billion parameters."""
    return _steps("gpt-1b", rounds=1)


def soak() -> Found:
    """Trainings with side streams, over and over."""
    from benchmarks import soak

    for figure in soak.measure(soak.Settings()):
        yield figure
        if not figure.met:
            raise RuntimeError(f"equal trainings differ: {figure.beside}")


PARTS: dict[Callable[[], Found], float] = {  # seconds of each
    machine: 15,
    digests: 55,
    training: 105,
    gate: 90,
    variants: 40,
    small: 35,
    steps: 130,
    large: 50,
    soak: 35,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all parts, or those that are named; `--part NAME FILE`: be one of them."""
    names = sys.argv[1:] if arguments is None else arguments
    works = {work.__name__: work for work in PARTS}
    if names[:1] == ["--part"]:
        return _run(works[names[1]], Path(names[2]))
    if unknown := {*names} - {*works}:
        print(f"no part: {', '.join(unknown)}; there are {', '.join(works)}")
        return 1
    command = (sys.executable, "-m", "benchmarks.gpu", "--part")
    parts = [
        Part(name, PARTS[work], (*command, name))
        for name, work in works.items()
        if name in (names or works)
    ]
    return run_parts(parts, Path(os.environ.get("OUT") or RESULTS))


def run_parts(parts: Sequence[Part], out: Path) -> int:
    """Run each part in its turn; write what it printed and found into `out`; return the exit
    code."""
    from repro_gate.errors import end_cleanly
    from repro_gate.runs.process import supervise
    from repro_gate.sandbox.identity import Sandbox

    end_cleanly()
    out.mkdir(parents=True, exist_ok=True)
    text = out / "gpu.txt"
    text.write_bytes(b"")
    began = time.monotonic()
    facts: dict[str, object] = {}
    figures: dict[str, list[Figure]] = {}
    states: dict[str, dict[str, object]] = {}
    for part in parts:
        before = text.stat().st_size
        with tempfile.TemporaryDirectory() as folder:
            told = Path(folder) / "told"
            told.touch()
            into = ["sh", "-c", 'exec "$@" >>"$0" 2>&1', str(text)]
            ended = supervise(
                [*into, *part.command, str(told)],
                cwd=ROOT,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
                timeout=min(part.limit, LONGEST - (time.monotonic() - began)),
                sandbox=Sandbox(),
            )
            found = _read(told)
        state = "ok" if ended.exit_code == 0 else "failed"
        if ended.timed_out:
            state = "timed out"
        elif ended.exit_code == LACKS:
            state = f"lacks {found[-1]['lacks']}"
        facts.update(*(item["machine"] for item in found if "machine" in item))
        figures[part.name] = [
            from_json(item["figure"]) for item in found if "figure" in item
        ]
        states[part.name] = {"state": state, "seconds": round(ended.seconds, 1)}
        line = f"{part.name}: {state}"
        printed = text.read_bytes()[before:].decode("utf-8", "replace")
        with text.open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")
        if state in BROKEN:
            print("\n".join(printed.splitlines()[-SHOWN:]))
        print(*map(show, figures[part.name]), line, sep="\n", flush=True)
        if any(item["state"] in MEASURED for item in states.values()):
            write_results(out / "gpu.json", False, facts, figures, parts=states)
    return _verdict([str(item["state"]) for item in states.values()], figures)


def _verdict(states: Sequence[str], figures: Mapping[str, Sequence[Figure]]) -> int:
    found = [figure for of_part in figures.values() for figure in of_part]
    if missed := [figure.name for figure in found if figure.met is False]:
        print(f"goals missed: {', '.join(missed)}")
    if lacks := sorted({*states} - MEASURED):
        what = "not all" if MEASURED & {*states} else "nothing"
        print(f"make gpu: {what} could be measured: this machine {', '.join(lacks)}")
    return 1 if BROKEN & {*states} else 2 if lacks else 0


def _read(told: Path) -> list[dict[str, Any]]:
    """What a part wrote down; of one that was killed, the last line may be cut."""
    lines = told.read_text(encoding="utf-8").split("\n")[:-1]
    return [json.loads(line) for line in lines]


def _run(work: Callable[[], Found], told: Path) -> int:
    """Be one part: write down what it finds as it finds it."""
    print(f"\n=== {work.__name__}: {work.__doc__}")
    with told.open("a", encoding="utf-8", buffering=1) as file:
        try:
            if work is not machine:
                _need_cuda()
            _show_clocks()
            for found in work():
                if isinstance(found, Figure):
                    print(show(found))
                    item: dict[str, object] = {"figure": to_json(found)}
                else:
                    item = {"machine": found}
                file.write(json.dumps(item) + "\n")
            _need_cuda()
            _show_clocks()
        except (Lacks, ModuleNotFoundError) as lack:
            what = getattr(lack, "name", "CUDA")
            print(f"lacks {what}: {lack}")
            file.write(json.dumps({"lacks": what}) + "\n")
            return LACKS
    return 0


def _need_cuda() -> None:
    """Raise Lacks where torch sees no device."""
    import torch

    if not torch.cuda.is_available():
        built = f"torch {torch.__version__}, built for CUDA {torch.version.cuda}"
        raise Lacks(f"{built}, sees no device")


def _tests(*arguments: str) -> Found:
    """Run tests in this process and six more. Raises SystemExit where one fails."""
    import pytest

    code = pytest.main(["-v", "-n", "6", "--durations=10", *arguments])
    if code:
        raise SystemExit(int(code))
    return iter(())


def _steps(model: str, **settings: Any) -> list[Figure]:
    from benchmarks import step_overhead

    asked = step_overhead.Settings(
        models=(model,), peers_of=(), arguments="--device cuda", steps=20
    )
    return step_overhead.measure(replace(asked, **settings))


def _describe_gpu() -> dict[str, object]:
    """Model, memory, compute capability and multiprocessors of device 0; driver, CUDA, cuDNN and
    Triton; what could compile a kernel's launcher."""
    import torch

    header = Path(sysconfig.get_path("include"), "Python.h")
    found: dict[str, object] = {
        "c_compiler": shutil.which("gcc") or shutil.which("cc") or "none",
        "python_header": header.exists(),
        "triton": importlib.metadata.version("triton") if _has("triton") else "none",
    }
    if not torch.cuda.is_available():
        return {**found, "gpu": "none"}
    device = torch.cuda.get_device_properties(0)
    driver = _nvidia_smi("--query-gpu=driver_version", "--format=csv,noheader")
    return {
        **found,
        "gpu": device.name,
        "gpus": torch.cuda.device_count(),
        "gpu_memory_gib": round(device.total_memory / 2**30, 1),
        "compute_capability": f"{device.major}.{device.minor}",
        "multiprocessors": device.multi_processor_count,
        "driver": driver.strip().partition("\n")[0] or "unknown",
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
    }


def _has(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def _show_clocks() -> None:
    print(_nvidia_smi(f"--query-gpu={CLOCKS}", "--format=csv"))


def _nvidia_smi(*arguments: str) -> str:
    command = ["nvidia-smi", *arguments]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"nvidia-smi: {error}"
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
