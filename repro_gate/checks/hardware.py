"""Checks of category `hardware`: did the training use the required hardware, did all runs use the
same, and is it recorded?"""

from __future__ import annotations

import re

from repro_gate.checks.interface import (
    TRACED,
    Evidence,
    Finding,
    by_process,
    check,
    differences,
    failed,
    missing,
    noticed,
    on_gpu,
    passed,
    skipped,
)
from repro_gate.compare.traces import hosts
from repro_gate.escape import counted, listed
from repro_gate.spec.model import THREADS

SAME = (
    "device",
    "gpus",
    "gpu-model",
    "gpu-sm-count",
    "gpu-capability",
    "driver",
    "cpu-isa",
    "threads",
    "processors",
)
# what a rerun needs to know
_GPU_FACTS = (
    "gpu-model",
    "gpu-sm-count",
    "gpu-memory-bytes",
    "gpu-capability",
    "driver",
)
_SUPPORTED = ("cpu:", "cuda:")
_TORCH_FACTS = ("cpu-isa", "threads")
_GPU_STATE = re.compile(r"gpu\.\d{1,4}\.(?:mig|ecc)")


@check(
    "hardware/device",
    "Training used the kind of device and the GPU model that the spec requires, and saw exactly "
    "that many GPUs.",
)
def device(evidence: Evidence) -> Finding:
    """Compare the used hardware with `hardware:`. More GPUs than `gpus` are a fault too, since
    DataParallel splits a batch over all visible GPUs."""
    required = evidence.spec.hardware
    devices = set[str]()
    gpus = set[str]()
    for _, trace in evidence.trained:
        name = trace.facts.get("device", "")
        model = trace.facts.get("gpu-model", "")
        # torch's own name, and `gpu-model` in brackets if that adds something
        more = f" ({model})" if on_gpu(trace) and model not in name else ""
        if name:
            devices.add(name + more)
            gpus.add(trace.facts.get("gpus", "0"))
    if not devices:
        return skipped("no run recorded its device")
    used = sorted(devices)
    if not all(name.startswith(_SUPPORTED) for name in used):
        return failed(
            f"training used {', '.join(used)}; the gate supports the CPU, CUDA, and ROCm through "
            "torch.cuda, and compares nothing reliably on another accelerator",
            used,
            "train on the CPU, or on a GPU that torch.cuda reaches",
        )
    counts = sorted(gpus)
    wrong = [
        f"{name} is required, but training used {', '.join(used)}"
        for name in filter(None, (required.device, required.gpu_model))
        if any(name.lower() not in item.lower() for item in used)
    ]
    if required.gpus is not None and counts != [str(required.gpus)]:
        wrong.append(
            f"exactly {required.gpus} GPUs are required, but training saw {', '.join(counts)}"
        )
    is_given = evidence.given_gpus.startswith(("nvidia", "amd"))
    if is_given and required.device != "cpu" and counts == ["0"]:
        return failed(
            f"the host has GPUs ({evidence.given_gpus}), and training saw none",
            used,
            "train in an image whose torch is built for them; to train on the CPU, set "
            "`hardware.device: cpu` in the spec, or `gpus: none` in the workflow",
        )
    if wrong:
        return failed(
            wrong[0],
            wrong,
            "run on the hardware that the spec names (CUDA_VISIBLE_DEVICES in train.env hides "
            "GPUs), or correct `hardware:`",
        )
    return passed(f"training used {', '.join(used)}", used)


@check(
    "hardware/same",
    "Device, GPU model, SM count, GPU count, driver and thread count were the same in every "
    "process of every run.",
)
def same_for_all(evidence: Evidence) -> Finding:
    """Compare the facts of every process; the evidence names each fact that differs, with a process
    for each value."""
    trained = [
        (run, trace)
        for run, trace in evidence.trained
        if THREADS not in run.request.varied
    ]
    known = [item for item in by_process(trained, SAME) if item[1]]
    if not known:
        return skipped("no run was traced")
    lines = differences(known)
    if lines:
        nodes = hosts(trace for _, trace in trained)
        who = f"nodes ({listed(nodes, 4)})" if len(nodes) > 1 else "processes"
        return failed(
            f"{who} ran on different hardware, whose rounding differs",
            lines,
            "give every rank and every run the same GPU model and driver, and pin the thread count "
            "(OMP_NUM_THREADS under train.env)",
        )
    return passed(
        f"{counted(len(known), 'process')} had the same device and threads",
        [f"{key} {value}" for key, value in known[0][1].items()],
    )


@check(
    "hardware/recorded",
    "The report names the hardware that a rerun needs: the GPU with its driver and modes, or the "
    "CPU as torch used it.",
    TRACED,
)
def recorded(evidence: Evidence) -> Finding:
    """Check the facts of the training's processes and of the machine. A MIG or ECC mode that a GPU
    does not report is not missing."""
    known = dict[str, str]()
    states = [key for key in evidence.machine if _GPU_STATE.fullmatch(key)]
    for _, trace in evidence.trained:
        facts = {**trace.facts, **evidence.machine}
        by_torch = _TORCH_FACTS if "torch" in facts else ()
        keys = (*_GPU_FACTS, *states) if on_gpu(trace) else (*by_torch, "cpu-model")
        known |= {f"{key} {facts.get(key, '')}".rstrip(): key for key in keys}
    gaps = [text for text, key in known.items() if text == key]
    lines = [text for text in known if text not in gaps]
    if gaps:
        return missing(
            f"unknown facts of the hardware: {', '.join(gaps)}",
            lines,
            "make this readable for the gate: nvidia-smi on PATH (a container needs --gpus all), "
            "a torch that reports it, a readable /proc",
        )
    return passed("the hardware that training used is recorded", lines)


@check(
    "hardware/alone",
    "No other process computed on the GPUs before and after the timed runs.",
)
def alone(evidence: Evidence) -> Finding:
    """Check what `nvidia-smi` lists before and after each run, when none of our processes uses a
    GPU. In a container it may not list all."""
    others = evidence.gpu_processes
    if not any(on_gpu(trace) for _, trace in evidence.trained):
        return skipped("training used no GPU")
    if others is None:
        return skipped(
            "nvidia-smi is absent or does not answer, so it is unknown who uses the GPUs"
        )
    if others:
        return noticed(
            f"{counted(len(others), 'other process')} computed on the GPUs before or after the "
            "timed runs and may have slowed them down",
            others,
            "end them, or give the job its own GPU; they do not affect the bits, only "
            "determinism_cost_pct",
        )
    return passed(
        "no other process computed on the GPUs before and after the timed runs"
    )
