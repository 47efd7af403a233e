"""Claims about the facts outside the config hash: what could explain drift is there, what belongs to one run is not."""

from __future__ import annotations

from dataclasses import replace

from repro_gate.baseline.record import outside_facts
from tests.support.built_traces import FACTS, run, training

MACHINE = {"kernel": "Linux 6.8", "libc": "glibc 2.39", "os": "Ubuntu 24.04", "cpu-model": "EPYC", "gpu.0.uuid": "GPU-1", "driver": "560"}


def test_imported_distributions_and_the_machine_are_facts() -> None:
    trace = replace(training(), distributions={"numpy": "2.1.0", "torch": "2.13.0"})
    assert outside_facts(run("deterministic-1", trace), MACHINE) == {
        "distribution/numpy": "2.1.0",
        "distribution/torch": "2.13.0",
        "kernel": "Linux 6.8",
        "libc": "glibc 2.39",
        "os": "Ubuntu 24.04",
    }


def test_on_a_gpu_the_cpu_lies_outside_the_inputs() -> None:
    trace = training(facts={**FACTS, "device": "cuda: NVIDIA H100"})
    found = outside_facts(run("deterministic-1", trace), {**MACHINE, "gpu.0.model": "NVIDIA H100", "gpu.0.ecc": "Enabled"})
    assert (found["cpu-model"], found["gpu.0.uuid"], found["gpu.0.ecc"]) == ("EPYC", "GPU-1", "Enabled")
    assert not {"driver", "gpu.0.model"} & found.keys()
    assert not {"driver", "gpu.0.uuid", "cpu-model"} & outside_facts(run("deterministic-1", training()), MACHINE).keys()


def test_variables_are_facts_but_flags_and_what_is_of_one_run_are_not() -> None:
    variables = {
        "CUDA_MODULE_LOADING": "LAZY",
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        "PYTHONHASHSEED": "42",
        "OMP_NUM_THREADS": "2",
        "MASTER_PORT": "29500",
        "TORCHINDUCTOR_CACHE_DIR": "/tmp/repro-gate-a1b2c3d4/run/tmp/cache",
        "TRITON_CACHE_DIR": "/cache/repro-gate-project/x",
    }
    found = outside_facts(run("deterministic-1", replace(training(), variables=variables)), {})
    assert found == {"variable/CUDA_MODULE_LOADING": "LAZY", "variable/TRITON_CACHE_DIR": "/cache/repro-gate-project/x"}


def test_a_fact_on_which_processes_differ_is_left_out() -> None:
    ranks = [replace(training(key=f"rank{rank}"), variables={"NCCL_DEBUG": "WARN", "CUDA_VISIBLE_DEVICES": str(rank)}) for rank in (0, 1)]
    assert outside_facts(run("deterministic-1", *ranks), {}) == {"variable/NCCL_DEBUG": "WARN"}


def test_a_run_that_was_not_asked_has_no_distributions() -> None:
    assert outside_facts(run("deterministic-1", training()), {}) == {}
