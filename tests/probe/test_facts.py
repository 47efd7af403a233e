"""Claims about `probe.facts`: what a training ran on, in the same words before and during it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import types
from pathlib import Path
from typing import Any

import pytest

from repro_gate.probe import facts
from repro_gate.probe.shared import PROCESS
from repro_gate.runs import arms
from repro_gate.runs.environment import EXTENSION, training_environment
from repro_gate.trace.format import CONFIG_VARIABLE
from repro_gate.trace.model import Trace
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


def fake_torch(initialized: bool, allocated: int = 3) -> Any:
    """What `facts` asks of a torch that is built for CUDA, after so many allocations on its second
    GPU."""
    space, queued = types.SimpleNamespace, list[Any]()
    shape = {"multi_processor_count": 132, "total_memory": 150_000_000_000, "major": 9, "minor": 0}
    properties = space(name="NVIDIA H200", uuid="0-1", **shape)
    cudnn = space(version=lambda: 91002, is_available=lambda: True)
    cuda = space(
        nccl=space(version=lambda: (2, 27, 5)),
        is_available=lambda: True,
        is_initialized=lambda: initialized,
        device_count=lambda: 2,
        current_device=lambda: 1,
        memory_stats_as_nested_dict=lambda index: {
            "allocation": {"all": {"allocated": index * allocated}},
            "allocated_bytes": {"all": {"peak": index * allocated * 512}},
        },
        get_device_name=lambda: properties.name,
        get_device_properties=lambda index: properties if index == 1 else None,
        _lazy_call=queued.append,
        queued=queued,
    )
    return space(
        __version__="2.13.0+cu128",
        version=space(cuda="12.8", hip=None),
        get_num_threads=lambda: 8,
        backends=space(cudnn=cudnn, cpu=space(get_cpu_capability=lambda: "AVX512")),
        _C=space(_nccl_version=None),
        cuda=cuda,
    )


def facts_of(torch: Any, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The facts of a process that has this torch."""
    monkeypatch.setattr(PROCESS, "torch", torch)
    found = facts.read(facts.facts())
    return {name: found[name] for name in found.keys() - facts.BASIC.keys() | {"device"}}


def test_facts_of_a_gpu_are_said_where_something_was_put_on_it_and_only_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "version").write_text("NVRM version: NVIDIA UNIX x86_64 Module  535.104.05  Sat\n")
    monkeypatch.setattr(facts, "_DRIVER", str(tmp_path / "version"))
    said, idle = (facts_of(fake_torch(initialized=on), monkeypatch) for on in (True, False))
    always = {"torch": "2.13.0+cu128", "cuda": "12.8", "cudnn": "91002", "nccl": "2.27.5"}
    always |= {"gpus": "2", "threads": "8", "processors": said["processors"], "cpu-isa": "AVX512"}
    assert idle == {**always, "device": "cpu: AVX512"}
    # an optimizer of newer torch starts CUDA for a step on the CPU
    assert facts_of(fake_torch(initialized=True, allocated=0), monkeypatch) == idle
    assert facts.peak_bytes() == facts.resident_peak()
    of_gpu = {"gpu-model": "NVIDIA H200", "gpu-sm-count": "132", "gpu-capability": "9.0"}
    of_gpu |= {"gpu-memory-bytes": "150000000000"}
    of_gpu |= {"gpu-uuid": "GPU-0-1", "driver": "535.104.05"}
    assert said == {**always, **of_gpu, "device": "cuda: NVIDIA H200"}
    monkeypatch.setattr(PROCESS, "torch", fake_torch(initialized=True))
    assert facts.peak_bytes() == 1536
    torch = fake_torch(initialized=True)
    torch.cuda.get_device_properties(1).uuid = None  # as before torch 2.6
    monkeypatch.setattr(facts, "_DRIVER", str(tmp_path / "none"))
    assert said.keys() - facts_of(torch, monkeypatch).keys() == {"gpu-uuid", "driver"}


def test_the_cublas_workspace_is_that_of_the_moment_when_cuda_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(facts, "_AT_START", [])
    torch, name = fake_torch(initialized=False), "CUBLAS_WORKSPACE_CONFIG"
    facts.watch_cuda_start(torch)
    [started] = torch.cuda.queued
    torch.version.cuda = None  # a torch without CUDA has nothing queued
    facts.watch_cuda_start(torch)
    assert torch.cuda.queued == [started]
    monkeypatch.setenv(name, ":4096:8")
    started()
    monkeypatch.setenv(name, ":16:8")  # too late
    found = facts_of(fake_torch(initialized=True), monkeypatch)
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
