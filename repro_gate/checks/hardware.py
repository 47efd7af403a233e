"""Checks of category `hardware`: did the training run on what the spec requires, every run on the
same, and is it known what that was?"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from repro_gate.checks.interface import (
    Evidence,
    Finding,
    check,
    failed,
    missing,
    noticed,
    passed,
    skipped,
)
from repro_gate.spec.model import THREADS
from repro_gate.trace.model import Trace

SAME = (
    "device",
    "gpus",
    "gpu-model",
    "gpu-sm-count",
    "gpu-capability",
    "cpu-isa",
    "threads",
    "processors",
)
# what a rerun needs to know, by the name of the fact
_GPU_FACTS = {
    "gpu-model": "GPU model",
    "gpu-sm-count": "number of SMs",
    "gpu-memory-bytes": "GPU memory",
    "gpu-capability": "compute capability",
    "driver": "driver version",
}
_TORCH_FACTS = {"cpu-isa": "instruction set that torch uses", "threads": "thread count"}
_GPU_STATE = re.compile(r"gpu\.\d{1,4}\.(?:mig|ecc)")


@check(
    "hardware/device",
    "Training used the kind of device and the GPU model that the spec requires, and saw exactly "
    "that many GPUs.",
)
def device(evidence: Evidence) -> Finding:
    """What the processes used, compared with `hardware:`. More GPUs than `gpus` count too:
    DataParallel splits a batch over all it sees."""
    wanted = evidence.spec.hardware
    traces = [trace for _, trace in evidence.trained if trace.facts.get("device")]
    if not traces:
        return skipped("no run was traced on a device")
    used = sorted({_device_of(trace) for trace in traces})
    counts = {trace.facts.get("gpus", "0") for trace in traces}
    wrong = list[str]()
    remedy = (
        "run on the hardware that the spec names (CUDA_VISIBLE_DEVICES in train.env hides GPUs), "
        "or correct `hardware:`"
    )
    if wanted.device and any(not item.startswith(wanted.device) for item in used):
        wrong.append(f"device {wanted.device} is required, training used {', '.join(used)}")
    if wanted.gpu_model and any(wanted.gpu_model.lower() not in item.lower() for item in used):
        wrong.append(f"GPU model {wanted.gpu_model} is required, training used {', '.join(used)}")
    if wanted.gpus is not None and any(
        not count.isdecimal() or int(count) != wanted.gpus for count in counts
    ):
        wrong.append(
            f"exactly {wanted.gpus} GPUs are required, training saw {', '.join(sorted(counts))}"
        )
    if wrong:
        return failed(wrong[0], wrong, remedy)
    return passed(
        f"training used {', '.join(used)}" + ("" if wanted.device else " (none is required)"), used
    )


@check(
    "hardware/same",
    "Device, GPU model, SM count, GPU count and thread count were the same in every process of "
    "every run.",
)
def same_for_all(evidence: Evidence) -> Finding:
    """The facts of every process against those of the first; the evidence names each fact that
    differs, with a process for each value."""
    traced = [
        (
            f"{run.plan.name}: {trace.key} ({trace.pid})",
            {key: trace.facts[key] for key in SAME if key in trace.facts},
        )
        for run, trace in evidence.trained
        if THREADS not in run.plan.varied
    ]
    traced = [(place, facts) for place, facts in traced if facts]
    if not traced:
        return skipped("no run was traced")
    lines = list(_differences(dict(traced)))
    if lines:
        remedy = (
            "give every rank and every run the same GPU model, and pin the thread count "
            "(OMP_NUM_THREADS under train.env)"
        )
        return failed("processes ran on different hardware, whose rounding differs", lines, remedy)
    return passed(
        f"{len(traced)} processes had the same device and threads",
        [f"{key} {value}" for key, value in traced[0][1].items()],
    )


@check(
    "hardware/recorded",
    "The report names the hardware that a rerun needs: the GPU with its driver and modes, or the "
    "CPU as torch used it.",
    traced=True,
)
def recorded(evidence: Evidence) -> Finding:
    """Facts of the training's processes and of the machine; a MIG or ECC mode that a GPU does not
    report is no gap."""
    known, gaps = dict[str, None](), dict[str, None]()
    for _, trace in evidence.trained:
        facts = {**trace.facts, **evidence.machine}
        wanted = {**(_TORCH_FACTS if "torch" in facts else {}), "cpu-model": "CPU model"}
        wanted = _GPU_FACTS if _on_gpu(trace) else wanted
        states = [key for key in evidence.machine if _GPU_STATE.fullmatch(key) and _on_gpu(trace)]
        for key, title in {**wanted, **dict.fromkeys(states, "")}.items():
            if facts.get(key):
                known[f"{key} {facts[key]}"] = None
            else:
                gaps[title] = None
    if gaps:
        return missing(
            f"not known of the hardware: {', '.join(gaps)}",
            list(known),
            "run the gate where it can read this: nvidia-smi on PATH (a container needs --gpus "
            "all), a torch that tells, /proc readable",
        )
    return passed("the hardware that training used is recorded", list(known))


@check("hardware/alone", "No other process computed on the GPUs before and after the timed runs.")
def alone(evidence: Evidence) -> Finding:
    """What `nvidia-smi` listed before and after each run, when none of ours is on a GPU; a
    container may not be shown all."""
    if not any(_on_gpu(trace) for _, trace in evidence.trained):
        return skipped("training used no GPU")
    others = evidence.gpu_processes
    if others is None:
        return skipped(
            "nobody could look at who else uses the GPUs: nvidia-smi is not there or does not "
            "answer"
        )
    if others:
        message = (
            f"{len(others)} other processes computed on the GPUs before or after the timed runs, "
            "so the times may be theirs too"
        )
        remedy = (
            "end them, or give the job a GPU of its own; the bits do not depend on it, "
            "determinism_cost_pct does"
        )
        return noticed(message, others, remedy)
    return passed("no other process computed on the GPUs before and after the timed runs")


def _on_gpu(trace: Trace) -> bool:
    return trace.facts.get("device", "").startswith("cuda")


def _device_of(trace: Trace) -> str:
    """The device as torch names it; what `gpu-model` adds is shown where it says more."""
    name, model = trace.facts["device"], trace.facts.get("gpu-model", "")
    return name if not name.startswith("cuda") or model in name else f"{name} ({model})"


def _differences(processes: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """`key: value in PLACE, other value in PLACE` for each fact that is not the same everywhere."""
    for key in SAME:
        first: dict[str, str] = {}
        for place, facts in processes.items():
            first.setdefault(facts.get(key, "unknown"), place)
        if len(first) > 1:
            yield f"{key}: " + ", ".join(
                f"{value} in {place}" for value, place in list(first.items())[:4]
            )
