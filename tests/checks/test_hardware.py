"""Category `hardware`: did the training run on what the spec requires, and every run on the same?"""

from __future__ import annotations

import pytest

from repro_gate.checks.hardware import device, same_for_all
from repro_gate.spec.model import Hardware
from tests.analysis.builders import FACTS, evidence, run, spec, training

CPU = (run("deterministic-1", training()),)
H100 = {**FACTS, "device": "cuda: NVIDIA H100 80GB HBM3", "gpus": "1"}
GPU = (run("deterministic-1", training(facts=H100)),)


@pytest.mark.parametrize(
    ("wanted", "cpu", "gpu"),
    [
        (Hardware(), "pass", "pass"),
        (Hardware("cpu"), "pass", "fail"),
        (Hardware("cuda"), "fail", "pass"),
        (Hardware(gpus=1), "fail", "pass"),
        (Hardware(gpus=2), "fail", "fail"),
        (Hardware(gpu_model="h100"), "fail", "pass"),
        (Hardware(gpu_model="A100"), "fail", "fail"),
    ],
)
def test_training_must_use_the_device_that_is_required(wanted: Hardware, cpu: str, gpu: str) -> None:
    assert device(evidence(spec=spec(hardware=wanted), runs=CPU)).status == cpu
    assert device(evidence(spec=spec(hardware=wanted), runs=GPU)).status == gpu
    assert device(evidence(spec=spec(hardware=wanted))).status == "skip"


@pytest.mark.parametrize("fact", ["device", "gpus", "threads", "processors"])
def test_every_process_must_have_the_same_hardware(fact: str) -> None:
    other = run("default-1", training(facts={**FACTS, fact: "9"}))
    assert same_for_all(evidence(runs=(*CPU, other))).status == "fail"
    assert same_for_all(evidence(runs=(*CPU, *CPU))).status == "pass"
    assert same_for_all(evidence()).status == "skip"
