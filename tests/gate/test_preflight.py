"""Claims about the preflight: pure judgement over facts of machines of all kinds, and one look at a
made-up root and at this machine."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from repro_gate.errors import Inconclusive
from repro_gate.gate import preflight as rooms
from repro_gate.gate.preflight import (
    MIB,
    OLDEST_DRIVER,
    Facts,
    Problem,
    explains,
    look,
    notes,
    preflight,
    require,
)
from repro_gate.spec.model import Env, Hardware, Spec, Train

CUDA = Spec(
    path=Path("/c/repro.yml"), train=Train(run="python t.py"), hardware=Hardware(device="cuda")
)
CPU = replace(CUDA, hardware=Hardware(device="cpu"))
ANY = replace(CUDA, hardware=Hardware())
LAPTOP = Facts(shm_total=8192 * MIB, shm_free=8000 * MIB)
GPU = replace(LAPTOP, devices=("nvidia0", "nvidia1"), driver="580.95.05")
# as Docker starts one without options
DOCKER = Facts(container="docker", shm_total=64 * MIB, shm_free=64 * MIB)
IMAGE = {"NVIDIA_VISIBLE_DEVICES": "all", "REPRO_GATE_CUDA": "13.0"}


def finding(name: str, spec: Spec, environment: dict[str, str], facts: Facts) -> Problem | None:
    return next(
        (item for item in preflight(spec, environment, facts) if item.id == f"preflight/{name}"),
        None,
    )


def remedy(name: str, environment: dict[str, str], facts: Facts) -> str:
    found = finding(name, CUDA, environment, facts)
    assert found is not None
    return found.remedy


def ended(spec: Spec, environment: dict[str, str], facts: Facts) -> Inconclusive:
    with pytest.raises(Inconclusive) as caught:
        require(preflight(spec, environment, facts))
    return caught.value


@pytest.mark.parametrize("spec", [CPU, ANY])
@pytest.mark.parametrize(("environment", "facts"), [({}, LAPTOP), (IMAGE, DOCKER), ({}, Facts())])
def test_without_a_gpu_and_without_a_wish_for_one_nothing_is_said(
    spec: Spec, environment: dict[str, str], facts: Facts
) -> None:
    found = preflight(spec, environment, facts)
    require(found)
    assert notes(found) == ()


def test_a_machine_with_all_that_is_needed_passes_in_silence() -> None:
    assert preflight(CUDA, IMAGE, replace(GPU, container="docker")) == ()


def test_a_required_gpu_on_a_machine_without_one_ends_the_gate_run() -> None:
    error = ended(CUDA, {}, LAPTOP)
    assert (error.exit_code, error.reason_id) == (3, "preflight/device")
    assert "shows no GPU" in error.message and "runs-on" in error.remedy


def test_an_image_that_asks_for_gpus_and_got_none_names_the_default_runtime() -> None:
    error = ended(CUDA, IMAGE, DOCKER)
    assert error.reason_id == "preflight/runtime"
    assert (
        "sudo nvidia-ctk runtime configure --runtime=docker --set-as-default && sudo systemctl "
        "restart docker" in error.remedy
    )
    for piece in ('"default-runtime": "nvidia"', "docker-run/action.yml", "options: --gpus all"):
        assert piece in error.remedy


def test_a_pod_and_podman_are_told_their_own_line() -> None:
    assert "nvidia.com/gpu: 1" in ended(CUDA, IMAGE, replace(DOCKER, container="kubernetes")).remedy
    assert (
        "--device nvidia.com/gpu=all"
        in ended(CUDA, IMAGE, replace(DOCKER, container="podman")).remedy
    )


def test_a_container_that_was_started_without_gpus_is_told_so() -> None:
    error = ended(CUDA, {}, DOCKER)
    assert error.reason_id == "preflight/device" and "--gpus all" in error.remedy


@pytest.mark.parametrize("value", ["void", "none", "", "VOID"])
def test_an_image_that_asks_for_no_gpus_is_not_blamed_on_the_runtime(value: str) -> None:
    error = ended(CUDA, {"NVIDIA_VISIBLE_DEVICES": value}, DOCKER)
    assert error.reason_id == "preflight/device" and "NVIDIA_VISIBLE_DEVICES: all" in error.remedy


@pytest.mark.parametrize("value", ["", "-1", "-1,0", "NoDevFiles"])
def test_hidden_gpus_end_the_gate_run_wherever_they_are_hidden(value: str) -> None:
    for spec, environment in (
        (CUDA, {"CUDA_VISIBLE_DEVICES": value}),
        (
            replace(CUDA, train=replace(CUDA.train, env={"CUDA_VISIBLE_DEVICES": value})),
            {"CUDA_VISIBLE_DEVICES": "0"},
        ),
    ):
        error = ended(spec, environment, GPU)
        assert error.reason_id == "preflight/device" and "CUDA_VISIBLE_DEVICES" in error.message


def test_what_hides_a_gpu_is_no_news_where_none_is_required() -> None:
    found = preflight(CPU, {"CUDA_VISIBLE_DEVICES": ""}, GPU)
    require(found)
    assert notes(found) == ()


def test_a_spec_that_trains_on_the_cpu_by_hiding_the_gpus_is_not_told_so_and_a_machine_that_hides_them_is() -> (
    None
):
    hides = replace(ANY, train=replace(ANY.train, env={"CUDA_VISIBLE_DEVICES": ""}))
    assert notes(preflight(hides, {}, GPU)) == ()
    assert [item.id for item in notes(preflight(ANY, {"CUDA_VISIBLE_DEVICES": ""}, GPU))] == [
        "preflight/device"
    ]


@pytest.mark.parametrize(
    ("listed", "enough"),
    [(None, True), ("0,1", True), ("0", False), ("0,-1,1", False), ("GPU-1,GPU-2", True)],
)
def test_fewer_gpus_than_required_end_the_gate_run(listed: str | None, enough: bool) -> None:
    spec = replace(CUDA, hardware=Hardware(device="cuda", gpus=2))
    environment = {} if listed is None else {"CUDA_VISIBLE_DEVICES": listed}
    assert (finding("device", spec, environment, GPU) is None) is enough
    # nothing there to count
    assert finding("device", spec, {}, replace(GPU, devices=("dxg",))) is None


def test_a_driver_that_was_updated_under_a_loaded_module_ends_the_gate_run() -> None:
    error = ended(
        CUDA,
        {},
        replace(GPU, complaint="Failed to initialize NVML: Driver/library version mismatch"),
    )
    assert error.reason_id == "preflight/device" and "restart the host" in error.remedy


def test_an_nvidia_smi_that_fails_otherwise_is_a_note() -> None:
    found = preflight(
        CUDA, {}, replace(GPU, complaint="Unable to determine\x1b[31m the device handle")
    )
    require(found)
    (note,) = notes(found)
    assert note.id == "preflight/device" and "\x1b" not in note.message


@pytest.mark.parametrize(
    ("cuda", "driver"),
    [("13.0", "570.86.15"), ("12.8", "525.60.11"), ("11.8", "450.80.1"), ("13", "580.65.05")],
)
def test_a_driver_older_than_nvidia_documents_ends_the_gate_run(cuda: str, driver: str) -> None:
    error = ended(CUDA, {"REPRO_GATE_CUDA": cuda}, replace(GPU, driver=driver))
    oldest = ".".join(f"{part:02d}" for part in OLDEST_DRIVER[int(cuda.partition(".")[0])])
    assert (
        error.reason_id == "preflight/driver" and oldest in error.message and oldest in error.remedy
    )


@pytest.mark.parametrize(
    ("cuda", "driver"),
    [("13.0", "580.65.06"), ("12.8", "525.60.13"), ("11.8", "450.80.02"), ("12.1", "610.1")],
)
def test_the_oldest_documented_driver_passes(cuda: str, driver: str) -> None:
    assert finding("driver", CUDA, {"REPRO_GATE_CUDA": cuda}, replace(GPU, driver=driver)) is None


def test_an_old_driver_is_told_which_image_would_do() -> None:
    assert "built for CUDA 12" in remedy("driver", IMAGE, replace(GPU, driver="550.54.15"))
    assert "image" not in remedy("driver", IMAGE, replace(GPU, driver="390.48"))


def test_a_driver_cannot_be_judged_without_a_known_cuda_or_with_libraries_that_make_up_for_it() -> (
    None
):
    old = replace(GPU, driver="470.57.02")
    for environment in (
        {},
        {"REPRO_GATE_CUDA": "cpu"},
        {"REPRO_GATE_CUDA": "14.0"},
        {"REPRO_GATE_CUDA": "13\n0"},
    ):
        assert finding("driver", CUDA, environment, old) is None
    assert finding("driver", CUDA, IMAGE, replace(old, compatible=True)) is None
    assert finding("driver", CUDA, IMAGE, replace(old, driver="")) is None


def test_an_old_driver_is_a_note_where_the_baseline_brings_its_own_torch_or_no_gpu_is_required() -> (
    None
):
    old = replace(GPU, driver="550.54.15")
    for spec in (replace(CUDA, env=Env("requirements.lock", install=True)), ANY):
        found = preflight(spec, IMAGE, old)
        require(found)
        assert [note.id for note in notes(found)] == ["preflight/driver"]


@pytest.mark.parametrize(
    ("container", "piece"),
    [
        ("docker", '"default-shm-size": "2G"'),
        ("docker", "shm_size: 2g"),
        ("docker", "--shm-size=2g"),
        ("podman", "--shm-size=2g"),
        ("kubernetes", "medium: Memory"),
        ("", "mount -o remount,size=2G /dev/shm"),
    ],
)
def test_small_shared_memory_is_a_note_with_the_line_for_each_way_in(
    container: str, piece: str
) -> None:
    found = preflight(
        CUDA, {}, replace(GPU, container=container, shm_total=64 * MIB, shm_free=64 * MIB)
    )
    require(found)
    (note,) = notes(found)
    assert (
        note.id == "preflight/shared-memory" and "64 MiB" in note.message and piece in note.remedy
    )


def test_full_shared_memory_is_another_note_than_a_small_one() -> None:
    assert "ls -l /dev/shm" in remedy("shared-memory", {}, replace(GPU, shm_free=1 * MIB))


@pytest.mark.parametrize(
    "line",
    [
        (
            "RuntimeError: DataLoader worker (pid 71) is killed by signal: Bus error. It is "
            "possible that dataloader's workers are out of ..."
        ),
        "RuntimeError: unable to write to file </torch_71_1_0>: No space left on device (28)",
        (
            "ncclSystemError: Error while creating shared memory segment /dev/shm/nccl-x (size "
            "9637888)"
        ),
    ],
)
def test_a_crash_for_want_of_shared_memory_is_explained_even_without_a_gpu(line: str) -> None:
    found = explains(["epoch 1", line], DOCKER)
    assert found is not None and found.id == "preflight/shared-memory" and found.remedy
    assert explains(["epoch 1", line], LAPTOP) is None
    assert explains(["ZeroDivisionError: division by zero"], DOCKER) is None


def test_a_look_reads_devices_container_and_shared_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("dev/shm", "run", "usr/local/cuda-13.0/compat"):
        (tmp_path / name).mkdir(parents=True)
    for name in (
        "dev/nvidia0",
        "dev/nvidiactl",
        "dev/null",
        "usr/local/cuda-13.0/compat/libcuda.so.1",
        ".dockerenv",
    ):
        (tmp_path / name).touch()
    monkeypatch.setattr(rooms, "driver_version", lambda: "580.65.06")
    monkeypatch.setattr(rooms, "driver_complaint", lambda: "")
    seen = look({}, tmp_path)
    assert (seen.devices, seen.container, seen.driver, seen.compatible) == (
        ("nvidia0",),
        "docker",
        "580.65.06",
        True,
    )
    assert (
        seen.shm_total is not None
        and seen.shm_free is not None
        and seen.shm_total >= seen.shm_free > 0
    )
    assert look({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, tmp_path).container == "kubernetes"


def test_a_look_at_this_machine_raises_nothing() -> None:
    seen = look(os.environ)
    assert all(
        name.startswith(("nvidia", "nvhost", "nvgpu", "kfd", "dxg")) for name in seen.devices
    )
