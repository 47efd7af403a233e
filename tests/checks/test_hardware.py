"""Category `hardware`: did the training run on what the spec requires, every run on the same, and
is it known what that was?"""

from __future__ import annotations

from dataclasses import replace

import pytest

from repro_gate.checks.hardware import alone, device, recorded, same_for_all
from repro_gate.spec.model import Hardware
from tests.support.built_traces import FACTS, evidence, run, spec, training

CPU = (run("deterministic-1", training()),)
H100 = {**FACTS, "device": "cuda: NVIDIA H100 80GB HBM3", "gpus": "1"}
GPU = (run("deterministic-1", training(facts=H100)),)
FULL = {
    **H100,
    "gpu-model": "NVIDIA H100 80GB HBM3",
    "gpu-sm-count": "132",
    "gpu-memory-bytes": "85028896768",
    "gpu-capability": "9.0",
    "cpu-isa": "AVX512",
}
MACHINE = {
    "driver": "570.86.15",
    "gpu.0.model": "NVIDIA H100 80GB HBM3",
    "gpu.0.mig": "Disabled",
    "gpu.0.ecc": "Enabled",
    "cpu-model": "x",
}


@pytest.mark.parametrize(
    ("wanted", "cpu", "gpu"),
    [
        (Hardware(), "pass", "pass"),
        (Hardware("cpu"), "pass", "fail"),
        (Hardware("cuda"), "fail", "pass"),
        (Hardware(gpus=1), "fail", "pass"),
        (Hardware(gpus=2), "fail", "fail"),
        (Hardware(gpus=3), "fail", "fail"),
        (Hardware(gpu_model="h100"), "fail", "pass"),
        (Hardware(gpu_model="A100"), "fail", "fail"),
    ],
)
def test_training_must_use_the_device_that_is_required(
    wanted: Hardware, cpu: str, gpu: str
) -> None:
    assert device(evidence(spec=spec(hardware=wanted), runs=CPU)).status == cpu
    assert device(evidence(spec=spec(hardware=wanted), runs=GPU)).status == gpu
    assert device(evidence(spec=spec(hardware=wanted))).status == "skip"


def test_a_device_other_than_the_required_one_is_named() -> None:
    found = device(evidence(spec=spec(hardware=Hardware("cuda", 2, "A100")), runs=GPU))
    assert found.evidence == (
        "GPU model A100 is required, training used cuda: NVIDIA H100 80GB HBM3",
        "exactly 2 GPUs are required, training saw 1",
    )
    assert "run on the hardware" in found.remedy and "correct `hardware:`" in found.remedy


def test_more_gpus_than_required_change_the_numbers_too() -> None:
    eight = (run("deterministic-1", training(facts={**H100, "gpus": "8"})),)
    found = device(evidence(spec=spec(hardware=Hardware("cuda", 2)), runs=eight))
    assert (found.status, found.evidence) == (
        "fail",
        ("exactly 2 GPUs are required, training saw 8",),
    )
    assert "set CUDA_VISIBLE_DEVICES to 2 devices" in found.remedy
    assert device(evidence(spec=spec(hardware=Hardware("cuda", 8)), runs=eight)).status == "pass"
    unknown = (run("deterministic-1", training(facts={**H100, "gpus": "many"})),)
    assert (
        "CUDA_VISIBLE_DEVICES"
        not in device(evidence(spec=spec(hardware=Hardware("cuda", 2)), runs=unknown)).remedy
    )


@pytest.mark.parametrize(
    "fact",
    [
        "device",
        "gpus",
        "threads",
        "processors",
        "gpu-model",
        "gpu-sm-count",
        "gpu-capability",
        "cpu-isa",
    ],
)
def test_every_process_must_have_the_same_hardware(fact: str) -> None:
    first, other = (
        training(facts={**FULL, fact: "8"}),
        training(facts={**FULL, fact: "9"}, key="rank1"),
    )
    for runs in (
        (run("deterministic-1", first), run("default-1", other)),
        (run("deterministic-1", first, other),),
    ):
        found = same_for_all(evidence(runs=runs))
        assert (found.status, len(found.evidence)) == ("fail", 1)
        assert found.evidence[0].startswith(f"{fact}: 8 in deterministic-1: main (1), 9 in ")
        assert "OMP_NUM_THREADS" in found.remedy
    assert same_for_all(evidence(runs=(run("deterministic-1", first, first),))).status == "pass"
    assert same_for_all(evidence()).status == "skip"


MIXED = {
    "gpu.0.model": "NVIDIA H100",
    "gpu.0.uuid": "GPU-aa1",
    "gpu.1.model": "NVIDIA A2",
    "gpu.1.uuid": "GPU-bb2",
    "gpu.2.model": "NVIDIA H100",
}


@pytest.mark.parametrize(
    ("gpus", "variables", "status"),
    [
        ("3", {}, "warn"),
        ("2", {"CUDA_VISIBLE_DEVICES": "0,1"}, "pass"),  # which two of them cannot be told
        ("1", {}, "pass"),
    ],
)
def test_gpus_of_several_models_are_worth_a_notice_where_training_sees_them(
    gpus: str, variables: dict[str, str], status: str
) -> None:
    trace = replace(training(facts={**H100, "gpus": gpus}), variables=variables)
    found = same_for_all(
        evidence(spec=spec(profile="strict"), runs=(run("deterministic-1", trace),), machine=MIXED)
    )
    assert found.status == status
    if status == "warn":
        assert (
            found.evidence == ("NVIDIA A2", "NVIDIA H100")
            and "CUDA_VISIBLE_DEVICES" in found.remedy
        )
    assert same_for_all(evidence(runs=CPU, machine=MIXED)).status == "pass"


def test_memory_that_differs_by_a_little_is_the_same_hardware() -> None:
    other = training(facts={**FULL, "gpu-memory-bytes": "84000000000"})
    assert (
        same_for_all(evidence(runs=(run("deterministic-1", training(facts=FULL), other),))).status
        == "pass"
    )


def test_the_cpu_is_recorded_as_torch_used_it() -> None:
    runs = (run("deterministic-1", training(facts={**FACTS, "cpu-isa": "AVX512"})),)
    good = recorded(evidence(runs=runs, machine={"cpu-model": "AMD EPYC 9654"}))
    assert (good.status, good.evidence) == (
        "pass",
        ("cpu-isa AVX512", "threads 2", "cpu-model AMD EPYC 9654"),
    )
    found = recorded(evidence(runs=CPU))
    assert found.message == "not known of the hardware: instruction set that torch uses, CPU model"
    assert (found.status, found.evidence) == ("warn", ("threads 2",))
    assert "/proc readable" in found.remedy
    assert recorded(evidence()).status == "skip"


def test_training_without_torch_needs_the_cpu_model_alone() -> None:
    runs = (run("deterministic-1", training(facts={"python": "3.12.7", "device": "cpu: x86_64"})),)
    assert recorded(evidence(runs=runs, machine={"cpu-model": "AMD EPYC 9654"})).status == "pass"


@pytest.mark.parametrize(
    ("facts", "machine", "gap"),
    [
        ((), (), ""),
        (("gpu-model",), (), "GPU model"),
        (("gpu-sm-count",), (), "number of SMs"),
        (("gpu-memory-bytes",), (), "GPU memory"),
        (("gpu-capability",), (), "compute capability"),
        ((), ("driver",), "driver version"),
        ((), ("gpu.0.mig",), ""),
        ((), ("gpu.0.ecc",), ""),
        ((), ("gpu.0.mig", "gpu.0.ecc", "gpu.0.model"), "MIG mode, ECC mode"),
    ],
)
def test_what_is_not_known_of_a_gpu_is_named(
    facts: tuple[str, ...], machine: tuple[str, ...], gap: str
) -> None:
    trace = training(facts={key: value for key, value in FULL.items() if key not in facts})
    known = {key: value for key, value in MACHINE.items() if key not in machine}
    for profile, status in (("basic", "warn"), ("strict", "fail")):
        found = recorded(
            evidence(
                spec=spec(profile=profile), runs=(run("deterministic-1", trace),), machine=known
            )
        )
        assert found.status == (status if gap else "pass")
        assert (
            f"not known of the hardware: {gap}"
            if gap
            else "the hardware that training used is recorded"
        ) == found.message
    if machine == ("gpu.0.ecc",):
        assert "gpu.0.ecc (not reported)" in found.evidence
    elif not facts and not machine:
        assert {
            "gpu-sm-count 132",
            "driver 570.86.15",
            "gpu.0.mig Disabled",
            "gpu.0.ecc Enabled",
        } < set(found.evidence)


def test_nothing_that_was_read_of_a_large_machine_is_left_out() -> None:
    machine = {
        "driver": "570.86.15",
        **{f"gpu.{number}.model": "NVIDIA H100" for number in range(16)},
    }
    found = recorded(
        evidence(runs=(run("deterministic-1", training(facts=FULL)),), machine=machine)
    )
    assert (
        found.status == "pass"
        and found.evidence[-1] == "gpu.15.ecc (not reported)"
        and len(found.evidence) == 37
    )


def test_others_on_the_gpu_are_listed() -> None:
    found = alone(evidence(runs=GPU, gpu_processes=("4711 python (3000 MiB)",)))
    assert (found.status, found.evidence) == ("warn", ("4711 python (3000 MiB)",))
    assert (
        "before or after the timed runs" in found.message and "determinism_cost_pct" in found.remedy
    )
    assert alone(evidence(runs=GPU, gpu_processes=())).status == "pass"
    assert alone(evidence(runs=GPU)).status == "skip"


def test_training_on_the_cpu_shares_no_gpu() -> None:
    for others in ((), ("4711 python (3000 MiB)",), None):
        assert alone(evidence(runs=CPU, gpu_processes=others)).status == "skip"
    assert alone(evidence(gpu_processes=())).status == "skip"
    assert alone(evidence(runs=(*CPU, *GPU), gpu_processes=())).status == "pass"
