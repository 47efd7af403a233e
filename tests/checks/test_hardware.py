"""Category `hardware`: did the training run on what the spec requires, every run on the same, and
is it known what that was?"""

from __future__ import annotations

from repro_gate.checks.hardware import alone, device, recorded, same_for_all
from repro_gate.runs.launch import RunResult
from repro_gate.spec.model import Hardware
from tests.checks.conftest import outcome, statuses
from tests.support.built_traces import FACTS, evidence, run, spec, training

H100 = {**FACTS, "device": "cuda: NVIDIA H100 80GB HBM3", "gpus": "1"}
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


def ran(*facts: dict[str, str], name: str = "deterministic-1") -> tuple[RunResult]:
    """Return one run whose processes have these facts."""
    traces = (training(key=f"rank{rank}", facts=item) for rank, item in enumerate(facts))
    return (run(name, *traces),)


CPU, GPU = ran(FACTS), ran(H100)


def test_training_must_use_the_device_that_is_required() -> None:
    for required, cpu, gpu in (
        (Hardware(), "pass", "pass"),
        (Hardware("cpu"), "pass", "fail"),
        (Hardware("cuda"), "fail", "pass"),
        (Hardware(gpus=2), "fail", "fail"),
        (Hardware(gpu_model="h100"), "fail", "pass"),
        (Hardware(gpu_model="A100"), "fail", "fail"),
    ):
        for runs, status in ((CPU, cpu), (GPU, gpu), ((), "skip")):
            assert device(evidence(spec=spec(hardware=required), runs=runs)).status == status
    for gpus, status in (("1", "fail"), ("2", "pass"), ("3", "fail")):
        facts = evidence(spec=spec(hardware=Hardware("cuda", 2)), runs=ran({**H100, "gpus": gpus}))
        assert device(facts).status == status
        both = device(evidence(spec=spec(hardware=Hardware("cuda", 2, "A100")), runs=GPU)).evidence
        assert ["A100" in line.text for line in both] == [True, False]


def test_a_gpu_that_the_container_was_given_and_training_did_not_see_is_no_pass() -> None:
    blind = ran({**FACTS, "gpus": "0"})
    for given, required, status in (
        ("nvidia: --gpus all", Hardware(), "fail"),
        ("amd: --device /dev/kfd", Hardware(), "fail"),
        ("nvidia: --gpus all", Hardware("cpu"), "pass"),
        ("none: no GPU was found on this host", Hardware(), "pass"),
        ("", Hardware(), "pass"),
    ):
        asked = evidence(spec=spec(hardware=required), runs=blind, given_gpus=given)
        assert device(asked).status == status, (given, required)
    seen = ran({**FACTS, "gpus": "1"})  # a training of its own choice that stays on the CPU
    assert device(evidence(runs=seen, given_gpus="nvidia: --gpus all")).status == "pass"


def test_another_accelerator_is_not_supported_and_one_sentence_says_what_is() -> None:
    for kind in ("mps", "xpu", "hpu", "xla", "cudax"):
        other = {**FACTS, "device": f"{kind}: arm64"}
        for required in (Hardware(), Hardware("cpu")):
            for runs in (ran(other), ran(FACTS, other), GPU + ran(other, name="default-1")):
                found = device(evidence(spec=spec(hardware=required), runs=runs))
                assert found.status == "fail" and f"{kind}: arm64" in found.message
                assert "supports the CPU, CUDA, and ROCm through torch.cuda" in found.message
    amd = {**H100, "device": "cuda: AMD Instinct MI300X", "hip": "6.4.43482"}
    assert device(evidence(runs=ran(amd))).status == "pass"


GPUS = ("device", "gpus", "gpu-model", "gpu-sm-count", "gpu-capability")


def test_every_process_must_have_the_same_hardware_alone() -> None:
    for fact in (*GPUS, "driver", "cpu-isa", "threads", "processors"):
        first, other = ({**FULL, fact: value} for value in "89")
        for runs in (ran(first) + ran(other, name="default-1"), ran(first, other)):
            status, lines = outcome(same_for_all, evidence(runs=runs))
            assert (status, len(lines)) == ("fail", 1)
            assert lines[0].startswith(f"{fact}: 8 in deterministic-1: rank0 (1), 9 in ")
        assert same_for_all(evidence(runs=ran(first, first))).status == "pass"
    nodes = [{**FULL, "host": f"gpu{n}", "driver": f"570.{n}", "gpu-uuid": f"{n}"} for n in (1, 2)]
    found = same_for_all(evidence(runs=ran(*nodes)))
    assert found.message.startswith("nodes (gpu1, gpu2) ran on different hardware")
    [line] = found.evidence
    place = "deterministic-1: rank{} (1) on gpu{}"
    first, second = place.format(0, 1), place.format(1, 2)
    assert line.text == f"driver: 570.1 in {first}, 570.2 in {second}"
    nodes = [{**item, "driver": "570"} for item in nodes]
    assert same_for_all(evidence(runs=ran(*nodes))).status == "pass"
    other = {**FULL, "gpu-memory-bytes": "84000000000"}
    assert same_for_all(evidence(runs=ran(FULL, other))).status == "pass"
    assert same_for_all(evidence()).status == recorded(evidence()).status == "skip"
    for runs, others, status in (
        (GPU, ("4711 python (3000 MiB)",), "warn"),
        (GPU, (), "pass"),
        (GPU, None, "skip"),
        (CPU, ("4711 python (3000 MiB)",), "skip"),
        ((), (), "skip"),
    ):
        lines = others if status == "warn" else ()
        facts = evidence(runs=runs, gpu_processes=others)
        assert outcome(alone, facts) == (status, lines)


def test_the_cpu_is_recorded_as_torch_used_it_and_what_is_not_known_of_a_gpu_is_named() -> None:
    machine, lines = {"cpu-model": "AMD EPYC 9654"}, ("cpu-isa AVX512", "threads 2")
    torch = evidence(runs=ran({**FACTS, "cpu-isa": "AVX512"}), machine=machine)
    assert outcome(recorded, torch) == ("pass", (*lines, "cpu-model AMD EPYC 9654"))
    assert outcome(recorded, evidence(runs=CPU)) == ("warn", lines[1:])
    # training without torch needs the CPU's model alone
    bare = ran({"python": "3.12.7", "device": "cpu: x86_64"})
    assert recorded(evidence(runs=bare, machine=machine)).status == "pass"
    for unknown in ("", *GAPS, "gpu.0.mig", "gpu.0.ecc"):
        known, machine = (
            {key: value for key, value in facts.items() if key != unknown}
            for facts in (FULL, MACHINE)
        )
        facts = evidence(runs=ran(known), machine=machine)
        is_gap = unknown in GAPS
        assert statuses(recorded, facts) == (("warn", "fail") if is_gap else ("pass", "pass"))
        assert unknown in recorded(facts).message or not is_gap
        assert ("driver 570.86.15" in outcome(recorded, facts)[1]) is (unknown != "driver")


GAPS = ("gpu-model", "gpu-sm-count", "gpu-memory-bytes", "gpu-capability", "driver")
