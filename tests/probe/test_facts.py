"""Claims about `probe.facts`: what a training ran on, in the same words before and during it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from repro_gate.probe import facts
from repro_gate.probe.patch import Held
from repro_gate.probe.shared import PROCESS
from repro_gate.runs import arms
from repro_gate.runs.environment import EXTENSION, training_environment
from repro_gate.trace.format import CONFIG_VARIABLE
from repro_gate.trace.model import Trace
from tests.support.cuda import Cuda, Stream, in_torch
from tests.support.tracing import PATH, trace_script, trained

ASK = (str(Path(facts.__file__).parent), "facts")
TRAIN = """
import os
import torch
from repro_gate import record, step
os.environ["TORCH_SET_IN_TIME"] = "1"
for _ in range(2):
    record("loss", torch.ones(()))
    step()
    os.environ["TORCH_SET_LATE"] = "1"
"""


ENV = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
ENV |= {"TORCH_MINE": "x", "NCCL_DEBUG": "INFO", "EDITOR": "vi", "CUDA_AUTH_TOKEN": "s3cret"}
ENV["TORCH_HUB_URL"] = "https://me:s3cret@host/"


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    return trained(trace_script(tmp_path_factory.mktemp("facts"), TRAIN, env=ENV))


def ask(environment: dict[str, str], *options: str) -> tuple[dict[str, str], str]:
    """What is said before a training, and on the error stream."""
    with tempfile.TemporaryDirectory() as folder:
        request, answer = Path(folder, "request.json"), Path(folder, "answer.jsonl")
        request.write_text(json.dumps({"answer": str(answer), "extension": EXTENSION}))
        command = [sys.executable, *options, *ASK, str(request)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return json.loads(answer.read_text()), done.stderr


def test_what_ask_says_before_is_what_the_trace_says(traced: Trace, tmp_path: Path) -> None:
    outer, arm = {"PATH": PATH, "LANG": "C.UTF-8"}, arms.deterministic(42, frozenset(), None)
    environment = training_environment(outer, arm, ENV, tmp_path / "place")
    for name in ("PYTHONPATH", CONFIG_VARIABLE):
        del environment[name]
    said, _ = ask(environment)
    assert said == {name: value for name, value in traced.facts.items() if name != "process"}
    assert said["threads"] == "1" and said["nccl"] == "none" and said["cpu-isa"].isupper()
    assert said["python"] == ".".join(map(str, sys.version_info[:3]))
    assert said["device"].startswith("cpu: ") and said["host"] == os.uname().nodename
    for name, host in (("NODE_NAME", "gke-1"), ("SLURMD_NODENAME", "gpu1")):
        environment[name] = host  # Slurm's own wins
        assert ask(environment, "-S")[0]["host"] == host
    assert not [name for name in said if name.startswith(("gpu-", "cuda-", "cublas"))]


def test_without_torch_the_rest_is_said_and_why_it_is_broken(tmp_path: Path) -> None:
    without = ["device", "digest", "host", "interpreter", "python"]
    path = {"PATH": os.environ["PATH"]}
    assert sorted(ask(path, "-S", "-E")[0]) == without
    (tmp_path / "torch.py").write_text("raise OSError('libcudart.so is missing')")
    said, error = ask({**path, "PYTHONPATH": str(tmp_path)})
    assert sorted(said) == without and "OSError: libcudart.so is missing" in error


def used(device: int | None, started: bool = True) -> Any:
    """A torch that has put something on this GPU of two."""
    cuda = Cuda(started=started)
    if device is not None:
        cuda.allocate(device, 1536)
    return in_torch(cuda)


def facts_of(
    torch: Any, monkeypatch: pytest.MonkeyPatch, devices: Sequence[int] = ()
) -> dict[str, str]:
    """The facts of a process that has this torch."""
    monkeypatch.setattr(PROCESS, "torch", torch)
    monkeypatch.setattr(facts, "_IN_USE", [])
    found = facts.read(facts.facts(devices))
    return {name: found[name] for name in found.keys() - facts.BASIC.keys() | {"device"}}


def test_facts_of_a_gpu_are_said_where_something_was_put_on_it_and_only_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "version").write_text("NVRM version: NVIDIA UNIX x86_64 Module  535.104.05  Sat\n")
    monkeypatch.setattr(facts, "_DRIVER", str(tmp_path / "version"))
    said, idle = facts_of(used(1), monkeypatch), facts_of(used(None, False), monkeypatch)
    always = {"torch": "2.13.0+cu128", "cuda": "12.8", "cudnn": "91002", "nccl": "2.27.5"}
    always |= {"gpus": "2", "threads": "8", "processors": said["processors"], "cpu-isa": "AVX512"}
    assert idle == {**always, "device": "cpu: AVX512"}
    # an optimizer of newer torch starts CUDA for a step on the CPU
    assert facts_of(used(None), monkeypatch) == idle and not facts.used()
    of_gpu = {"gpu-model": "GPU 1", "gpu-sm-count": "132", "gpu-capability": "9.0"}
    of_gpu |= {"gpu-memory-bytes": "150000000000"}
    of_gpu |= {"gpu-uuid": "GPU-0-1", "driver": "535.104.05"}
    assert said == {**always, **of_gpu, "device": "cuda: GPU 1"}
    torch = used(1)
    torch.cuda.properties[1].uuid = None  # as before torch 2.6
    monkeypatch.setattr(facts, "_DRIVER", str(tmp_path / "none"))
    assert said.keys() - facts_of(torch, monkeypatch).keys() == {"gpu-uuid", "driver"}
    assert torch.cuda.contexts == {1}


def test_the_gpu_that_is_told_is_that_of_the_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = used(1)
    torch.cuda.allocate(0, 10)  # a library that looks at every GPU
    assert facts_of(torch, monkeypatch)["gpu-uuid"] == "GPU-0-0"
    said = facts_of(torch, monkeypatch, [1])
    assert (said["device"], said["gpu-model"]) == ("cuda: GPU 1", "GPU 1")
    assert (said["gpu-uuid"], facts.in_use()) == ("GPU-0-1", [0, 1])


def test_peaks_are_those_of_the_given_gpus_and_the_training_sees_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The training's twin without a probe reads 900, 900, 300 and 400 bytes."""
    cuda = Cuda()
    torch = in_torch(cuda)
    for name in ("PEAKS", "IN_USE"):
        monkeypatch.setattr(facts, f"_{name}", type(getattr(facts, f"_{name}"))())
    monkeypatch.setattr(PROCESS, "torch", Held(torch))
    vars(PROCESS.torch)["_C"] = Held(torch._C)
    vars(PROCESS.torch._C).update(vars(torch._C))
    facts.keep_peaks(torch)

    def seen() -> int:
        stats = torch._C._cuda_memoryStats(1)
        assert stats["num_ooms"] == 0
        return int(stats["allocated_bytes"]["all"]["peak"])

    assert facts.peak_bytes([]) == facts.resident_peak() and not cuda.asked
    cuda.allocate(1, 900)
    cuda.allocate(1, -700)
    assert facts.peak_bytes([0, 1]) == seen() == 900
    cuda.allocate(1, 5_000)  # digests
    cuda.allocate(1, -5_000)
    facts.reset_peak([0, 1])
    cuda.allocate(1, 100)
    assert facts.peak_bytes([1]) == 300 and seen() == 900
    facts.reset_peak([1])
    torch._C._cuda_resetPeakMemoryStats(1)  # the training's own
    assert seen() == 300
    cuda.allocate(1, 100)
    facts.peak_bytes([1])
    facts.reset_peak([1])
    cuda.allocate(1, -400)
    assert facts.peak_bytes([1]) == seen() == 400
    with cuda.stream(Stream(cuda, 0)):
        cuda.current_stream().capturing = True
        assert facts.peak_bytes([1]) == facts.resident_peak()
        facts.reset_peak([1])
        facts.synchronize()
    assert facts.capturing() is False  # not on the current stream of this thread
    monkeypatch.setattr(PROCESS, "captures", [object()])
    assert facts.capturing() and not cuda.synchronized


def test_the_cublas_workspace_is_that_of_the_moment_when_cuda_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(facts, "_AT_START", [])
    torch, name = used(None, False), "CUBLAS_WORKSPACE_CONFIG"
    facts.watch_cuda_start(torch)
    [started] = torch.cuda.queued
    torch.version.cuda = None  # a torch without CUDA has nothing queued
    facts.watch_cuda_start(torch)
    assert torch.cuda.queued == [started]
    monkeypatch.setenv(name, ":4096:8")
    started()
    monkeypatch.setenv(name, ":16:8")  # too late
    found = facts_of(used(0), monkeypatch)
    assert found["cublas-workspace-at-cuda-start"] == ":4096:8"


def test_variables_are_the_libraries_as_training_begins(traced: Trace) -> None:
    found = traced.variables
    wanted = {"TORCH_MINE": "x", "NCCL_DEBUG": "INFO", "TORCH_SET_IN_TIME": "1"}
    wanted |= {"PYTHONHASHSEED": "42", "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    assert wanted.items() <= found.items() and list(found) == sorted(found)
    left_out = {"EDITOR", "CUDA_AUTH_TOKEN", "TORCH_HUB_URL", "TORCH_SET_LATE", "HOME", "PATH"}
    assert not left_out & set(found)


def test_a_value_that_is_no_text_can_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "TORCH_BYTES", os.fsdecode(b"\xff"))
    assert facts.library_variables()["TORCH_BYTES"] == "\\udcff"
