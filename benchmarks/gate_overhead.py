"""Gate wall time over the bare wall time of the same runs of examples/quickstart, process starts
included. Goal: at most 1.05.

The gate: `repro-gate run` as a person starts it, in a fresh git checkout that holds the example
alone. Bare: deterministic, default, default, deterministic and the reseeded control of two steps,
one after the other, with the same commands and the same environment.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.arms import OUTER, Place, RunFailed, open_place, run_bare
from benchmarks.figure import ROOT, Figure
from repro_gate.runs import arms
from repro_gate.runs.arms import Arm

GOAL = 1.05
SEED = 42
CONTROL_STEPS = 2
# What the probe does to a deterministic run but for probing: the flags of the process, and the end
# after the control's steps.
WITH_FLAGS = """\
import runpy, sys, torch
from torch.optim.optimizer import register_optimizer_step_post_hook
torch.use_deterministic_algorithms(True)
torch.utils.deterministic.fill_uninitialized_memory = True
torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
torch.backends.mkldnn.deterministic = True
left = [int(sys.argv[1])]
def stop(*_):
    left[0] -= 1
    if not left[0]:
        sys.exit(0)
register_optimizer_step_post_hook(stop)
sys.argv = sys.argv[2:]
sys.path.insert(0, ".")
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@dataclass(frozen=True)
class Settings:
    """`epochs` of the example (one is one step), whether the default runs are among them, rounds of
    one gate and one bare series each, and how the gate is started."""

    epochs: int = 50
    defaults: bool = True
    rounds: int = 3
    gate: Sequence[str] = (sys.executable, "-m", "repro_gate")


QUICK = Settings(epochs=3, defaults=False, rounds=1)


def measure(settings: Settings) -> list[Figure]:
    """One ratio for each round; the two arms take turns in going first."""
    with open_place(ROOT / "examples" / "quickstart") as place:
        spec = _checkout(place, settings)
        gates, bares, inside = [], [], []
        for number in range(settings.rounds):
            if number % 2:
                bares.append(_bare_series(place, settings))
            seconds, runs = _gate(place, spec, settings.gate)
            gates.append(seconds)
            inside.append(sum(runs))
            if not number % 2:
                bares.append(_bare_series(place, settings))
    ratios = tuple(gate / bare for gate, bare in zip(gates, bares, strict=True))
    beside = {
        "steps": settings.epochs,
        "gate_s": [round(item, 3) for item in gates],
        "bare_s": [round(item, 3) for item in bares],
        "gate_outside_its_runs_s": [
            round(gate - run, 3) for gate, run in zip(gates, inside, strict=True)
        ],
    }
    return [
        Figure(
            f"gate over the same {'five' if settings.defaults else 'three'} bare runs, "
            f"{settings.epochs} steps",
            "ratio",
            ratios,
            GOAL,
            beside,
        ),
        _command_time(settings, "--help", ("--help",), 0.1),
        _command_time(
            settings,
            "check of this repository",
            ("check", str(ROOT / "examples" / "quickstart")),
            0.6,
        ),
    ]


def _command_time(
    settings: Settings, label: str, arguments: Sequence[str], goal: float
) -> Figure:
    """Seconds from start to end of a command that trains nothing, after one that is not counted."""
    taken = []
    for number in range(2 * settings.rounds + 1):
        began = time.perf_counter()
        subprocess.run(
            [*settings.gate, *arguments],
            cwd=ROOT,
            env=OUTER,
            capture_output=True,
            check=False,
        )
        if number:
            taken.append(time.perf_counter() - began)
    return Figure(f"repro-gate {label}", "s", tuple(taken), goal)


def _checkout(place: Place, settings: Settings) -> Path:
    """A git checkout of the workspace with a spec that runs the example to its end."""
    spec = place.workspace / "repro.yml"
    measured = str(settings.defaults).lower()
    text = (
        f"version: 1\ntrain:\n  run: {_command(settings.epochs, '{seed}')}\n"
        # no timed step, and so no alternating run
        f"  warmup: {settings.epochs}\nrandom-state:\n  seed: {SEED}\n"
        f"cost: {{measure: {measured}}}\n"
    )
    spec.write_text(text, encoding="utf-8")
    (place.workspace / ".gitignore").write_text(
        "out/\n__pycache__/\n", encoding="utf-8"
    )
    somebody = ["-c", "user.name=bench", "-c", "user.email=bench@localhost"]
    for command in (
        ["init", "--quiet"],
        ["add", "--all"],
        [*somebody, "commit", "--quiet", "-m", "bench"],
    ):
        subprocess.run(["git", *command], cwd=place.workspace, check=True)
    return spec


def _command(epochs: int, seed: str) -> str:
    return f"python3 train.py --seed {seed} --epochs {epochs}"


def _gate(place: Place, spec: Path, gate: Sequence[str]) -> tuple[float, list[float]]:
    """Wall time of one gate run in seconds, and what the gate says that its runs took. Raises
    RunFailed where the verdict is not `pass`."""
    report = place.root / "report.json"
    command = [*gate, "run", str(spec), "--quiet", "--json", str(report)]
    began = time.perf_counter()
    done = subprocess.run(
        command, cwd=ROOT, env=OUTER, capture_output=True, text=True, check=False
    )
    seconds = time.perf_counter() - began
    if done.returncode:
        raise RunFailed(
            "the gate ended with status "
            f"{done.returncode}\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
        )
    return seconds, [
        run["seconds"] for run in json.loads(report.read_text(encoding="utf-8"))["runs"]
    ]


def _bare_series(place: Place, settings: Settings) -> float:
    """Wall time of the same runs without the gate, in seconds."""
    everything: frozenset[str] = frozenset()
    on, off = arms.deterministic(SEED, everything, None), arms.default(SEED, None)
    control = arms.reseeded(SEED, everything, CONTROL_STEPS)
    began = time.perf_counter()
    for condition in (
        (on, off, off, on, control) if settings.defaults else (on, on, control)
    ):
        run_bare(place, _bare_command(place, condition, settings.epochs), condition)
    return time.perf_counter() - began


def _bare_command(place: Place, condition: Arm, epochs: int) -> str:
    command = _command(epochs, str(condition.seed))
    if not condition.flags:
        return command
    wrapper = place.root / "with_flags.py"
    wrapper.write_text(WITH_FLAGS, encoding="utf-8")
    return command.replace(
        "python3 train.py", f"python3 {wrapper} {condition.steps or -1} train.py", 1
    )
