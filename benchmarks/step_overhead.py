"""Step time with the probe over step time without it, for models of several shapes; and what the
hand-made ways to record a step cost.

The training script times its own steps; bare and probed processes take turns. Three ratios: the
whole step, the probe's digests and lines included; the same from within one process, where the
machine's other load touches both sides alike: the step and what the probe took of it, over the step
without that; and the training time that the probe reports, its own taken out, which is what the
determinism cost is computed from.

A peer is what people do by hand: hashes of every operator by torch's DebugMode, SHA-256 of weights,
gradients and optimizer state, safetensors and SHA-256 of the file, `torch.hash_tensor`, and
`clone`, the least that anything that looks at each tensor can do. Its figure is how many times the
probe's own time a step its own is, in the same round; DebugMode's is its step's time over a bare
step's.

The note of the operators is taken in one step of the control, which no figure of a report counts:
that step over the median of its run.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.arms import WORKLOADS, Place, open_place, run_bare, run_probed
from benchmarks.figure import ROOT, Figure
from repro_gate.runs import arms
from repro_gate.trace.model import StepMark

GOAL, REPORTED_GOAL = 1.03, 1.05
FEWEST_OF_DEBUG_MODE = 20.0  # times the probe's overhead
MODELS = {  # gpt-10m: nanoGPT's character model, with the batch that its README names for a CPU
    "quickstart": "--model quickstart",
    "transformer": "--model transformer",
    "convnet": "--model convnet --batch 32",
    "gpt-10m": "--model transformer --width 384 --depth 6 --batch 12",
    "tiny": "--model many --count 2000",
    "gpt-124m": "--model transformer --width 768 --depth 12 --batch 16 --length 512 --vocabulary "
    "25000",
    "gpt-1b": "--model transformer --width 2048 --depth 18 --batch 8 --length 512 --vocabulary "
    "25000",
}
PEERS = ("debug-mode", "sha256", "safetensors", "hash_tensor", "clone")


@dataclass(frozen=True)
class Settings:
    """Models and the workload's further arguments; the models whose peers are measured; steps of
    each process, how many of them are left out at the start, rounds of one bare and one probed
    process; the largest ratio of a step that is good enough."""

    models: tuple[str, ...] = (
        "quickstart",
        "transformer",
        "convnet",
        "gpt-10m",
        "tiny",
    )
    peers_of: tuple[str, ...] = ("transformer",)
    arguments: str = "--device cpu"
    steps: int = 24
    warmup: int = 6
    rounds: int = 3
    goal: float = GOAL


QUICK = Settings(models=("transformer",), peers_of=(), steps=4, warmup=1, rounds=1)


@dataclass(frozen=True)
class Round:
    """Medians over the steps of one round, in milliseconds."""

    bare: float
    whole: float
    reported: float
    probe: float
    tensors: int
    device_mib: float  # peak memory on the device, probed minus bare; 0 on a CPU
    peers: Mapping[str, float]  # of each, what it took of a step


def measure(settings: Settings) -> list[Figure]:
    """Two figures for each model, and one for each peer."""
    figures = []
    with open_place(WORKLOADS) as place:
        (place.workspace / "quickstart.py").write_bytes(
            (ROOT / "examples" / "quickstart" / "train.py").read_bytes()
        )
        for model in settings.models:
            rounds = [
                _round(place, settings, model, number)
                for number in range(settings.rounds)
            ]
            label = f"{model}, {rounds[0].tensors} tensors"
            beside: dict[str, object] = {
                "steps": settings.steps,
                "bare_ms": _rounded(item.bare for item in rounds),
                "probe_ms": _rounded(item.probe for item in rounds),
            }
            if any(item.device_mib for item in rounds):
                beside["device_peak_probed_minus_bare_mib"] = _rounded(
                    item.device_mib for item in rounds
                )
            figures += [
                Figure(
                    f"whole step, {label}",
                    "ratio",
                    tuple(item.whole / item.bare for item in rounds),
                    settings.goal,
                    beside,
                ),
                Figure(
                    f"step and probe, {label}",
                    "ratio",
                    tuple(1 + item.probe / item.reported for item in rounds),
                    settings.goal,
                    beside,
                ),
                Figure(
                    f"training time as reported, {label}",
                    "ratio",
                    tuple(item.reported / item.bare for item in rounds),
                    REPORTED_GOAL,
                ),
            ]
            if model in settings.peers_of:
                figures.append(_note(place, settings, model, label))
            for peer, taken in rounds[0].peers.items():
                over, goal = (
                    (taken / rounds[0].probe,),
                    FEWEST_OF_DEBUG_MODE if peer == "debug-mode" else None,
                )
                figures.append(
                    Figure(
                        f"{peer} over the probe, {label}",
                        "ratio",
                        over,
                        goal,
                        {"ms": round(taken, 3)},
                        at_least=True,
                    )
                )
    return figures


def _round(place: Place, settings: Settings, model: str, number: int) -> Round:
    """One bare and one probed process, and in the first round one for each peer; where it begins
    moves on with each round."""
    told: dict[str, dict[str, Any]] = {}
    marks: Sequence[StepMark] = ()
    order = [
        "bare",
        "probed",
        *(PEERS if model in settings.peers_of and number == 0 else ()),
    ]
    for arm in order[number % len(order) :] + order[: number % len(order)]:
        out = place.root / f"{model}-{arm}-{number}.json"
        asked = f"--peer {arm}" if arm in PEERS else ""
        command = (
            f"python3 train.py {MODELS[model]} {asked} {settings.arguments} --steps "
            f"{settings.steps} --out {out}"
        )
        condition = arms.default(42, None)
        if arm == "probed":
            run = run_probed(place, command, condition, f"{model}-{number}")
            marks = next(trace.steps for trace in run.traces if trace.trained)[
                settings.warmup :
            ]
        else:
            run_bare(place, command, condition)
        told[arm] = json.loads(out.read_text(encoding="utf-8"))
    steps = {
        arm: statistics.median(item["ms"][settings.warmup :])
        for arm, item in told.items()
    }
    device = (
        told["probed"]["device_peak_bytes"] - told["bare"]["device_peak_bytes"]
    ) / 2**20
    reported, probe = (
        statistics.median(mark.ms for mark in marks),
        statistics.median(mark.probe_ms for mark in marks),
    )
    peers = {
        peer: statistics.median(told[peer]["peer_ms"][settings.warmup :])
        for peer in PEERS
        if peer in told
    }
    if "debug-mode" in peers:
        peers["debug-mode"] = steps["debug-mode"] - steps["bare"]
    return Round(
        steps["bare"],
        steps["probed"],
        reported,
        probe,
        told["bare"]["tensors"],
        device,
        peers,
    )


def _note(place: Place, settings: Settings, model: str, label: str) -> Figure:
    """The step whose operators are noted over the median of the others of its run, in as many runs
    as there are rounds."""
    ratios, kinds, noted = [], 0, settings.warmup + 1
    for number in range(settings.rounds):
        out = place.root / f"{model}-noted-{number}.json"
        command = (
            f"python3 train.py {MODELS[model]} {settings.arguments} --steps {settings.steps} --out "
            f"{out}"
        )
        run = run_probed(
            place,
            command,
            arms.default(42, None),
            f"{model}-noted-{number}",
            probe={"calls": noted},
        )
        trace = next(trace for trace in run.traces if trace.trained)
        others = statistics.median(
            mark.ms for mark in trace.steps[settings.warmup :] if mark.step != noted
        )
        ratios.append(trace.steps[noted].ms / others)
        kinds = len(trace.calls)
    return Figure(
        f"step whose operators are noted, {label}",
        "ratio",
        tuple(ratios),
        None,
        {"distinct calls of operators": kinds},
    )


def profile(settings: Settings, model: str) -> str:
    """What the last steps of a probed run consist of: operators and kernels by the time that they
    take on the device and on the host, as torch's profiler tells it."""
    with open_place(WORKLOADS) as place:
        told = place.root / "profile.txt"
        command = (
            f"python3 train.py {MODELS[model]} {settings.arguments} --steps {settings.steps} "
            f"--profile {told} --out {place.root / 'profile.json'}"
        )
        run_probed(place, command, arms.default(42, None), "profile")
        return told.read_text(encoding="utf-8")


def _rounded(values: Iterable[float]) -> list[float]:
    return [round(value, 3) for value in values]
