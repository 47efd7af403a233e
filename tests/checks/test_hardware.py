"""Category `hardware`: did the training run on what the spec requires, every run on the same, and
is it known what that was?"""

from __future__ import annotations

import pytest

from repro_gate.checks.hardware import alone, device, recorded, same_for_all
from repro_gate.spec.model import Hardware
from tests.checks.conftest import lines_of
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
SHARED = ["device", "gpus", "threads", "processors"]
SHARED += ["gpu-model", "gpu-sm-count", "gpu-capability", "cpu-isa"]
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


def test_a_device_other_than_the_required_one_is_named_and_more_gpus_are_another_too() -> None:
    found = device(evidence(spec=spec(hardware=Hardware("cuda", 2, "A100")), runs=GPU))
    assert lines_of(found) == (
        "GPU model A100 is required, training used cuda: NVIDIA H100 80GB HBM3",
        "exactly 2 GPUs are required, training saw 1",
    )
    for seen, status in (("8", "fail"), ("2", "pass"), ("many", "fail"), ("1", "fail")):
        runs = (run("deterministic-1", training(facts={**H100, "gpus": seen})),)
        assert device(evidence(spec=spec(hardware=Hardware("cuda", 2)), runs=runs)).status == status


@pytest.mark.parametrize("fact", SHARED)
def test_every_process_must_have_the_same_hardware(fact: str) -> None:
    first = training(facts={**FULL, fact: "8"})
    other = training(facts={**FULL, fact: "9"}, key="rank1")
    for runs in (
        (run("deterministic-1", first), run("default-1", other)),
        (run("deterministic-1", first, other),),
    ):
        found = same_for_all(evidence(runs=runs))
        assert (found.status, len(lines_of(found))) == ("fail", 1)
        assert lines_of(found)[0].startswith(f"{fact}: 8 in deterministic-1: main (1), 9 in ")
    assert same_for_all(evidence(runs=(run("deterministic-1", first, first),))).status == "pass"
    assert same_for_all(evidence()).status == "skip"


def test_memory_that_differs_by_a_little_is_the_same_hardware() -> None:
    other = training(facts={**FULL, "gpu-memory-bytes": "84000000000"})
    runs = (run("deterministic-1", training(facts=FULL), other),)
    assert same_for_all(evidence(runs=runs)).status == "pass"


def test_the_cpu_is_recorded_as_torch_used_it() -> None:
    machine, lines = {"cpu-model": "AMD EPYC 9654"}, ("cpu-isa AVX512", "threads 2")
    runs = (run("deterministic-1", training(facts={**FACTS, "cpu-isa": "AVX512"})),)
    good = recorded(evidence(runs=runs, machine=machine))
    assert (good.status, lines_of(good)) == ("pass", (*lines, "cpu-model AMD EPYC 9654"))
    found = recorded(evidence(runs=CPU))
    assert (found.status, lines_of(found)) == ("warn", lines[1:])
    assert recorded(evidence()).status == "skip"
    # training without torch needs the CPU's model alone
    bare = (run("deterministic-1", training(facts={"python": "3.12.7", "device": "cpu: x86_64"})),)
    assert recorded(evidence(runs=bare, machine=machine)).status == "pass"


@pytest.mark.parametrize(
    ("unknown", "gap"),
    [
        ("", ""),
        ("gpu-model", "GPU model"),
        ("gpu-sm-count", "number of SMs"),
        ("gpu-memory-bytes", "GPU memory"),
        ("gpu-capability", "compute capability"),
        ("driver", "driver version"),
        ("gpu.0.mig", ""),
        ("gpu.0.ecc", ""),
    ],
)
def test_what_is_not_known_of_a_gpu_is_named(unknown: str, gap: str) -> None:
    facts, machine = (
        {key: value for key, value in known.items() if key != unknown} for known in (FULL, MACHINE)
    )
    runs = (run("deterministic-1", training(facts=facts)),)
    for profile, status in (("basic", "warn"), ("strict", "fail")):
        found = recorded(evidence(spec=spec(profile=profile), runs=runs, machine=machine))
        assert found.status == (status if gap else "pass") and gap in found.message
    if not unknown:
        assert {"gpu-sm-count 132", "driver 570.86.15", "gpu.0.mig Disabled"} < set(lines_of(found))


def test_others_on_the_gpu_are_listed_and_training_on_the_cpu_shares_none() -> None:
    others = ("4711 python (3000 MiB)",)
    found = alone(evidence(runs=GPU, gpu_processes=others))
    assert (found.status, lines_of(found)) == ("warn", others)
    assert alone(evidence(runs=GPU, gpu_processes=())).status == "pass"
    assert alone(evidence(runs=GPU)).status == "skip"
    for seen in ((), others, None):
        assert alone(evidence(runs=CPU, gpu_processes=seen)).status == "skip"
    assert alone(evidence(gpu_processes=())).status == "skip"
    assert alone(evidence(runs=(*CPU, *GPU), gpu_processes=())).status == "pass"
