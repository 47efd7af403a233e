"""Each attack of `attacks.py`, made from inside training in the real image, fails; the same attack
as root in a container succeeds.

What is attacked is a whole action as the runner starts it, with a token, an event, file commands,
credentials, and a Docker socket that is open to everybody. What came of each attack leaves the
container through `/results`, a folder that no action has: the attacker's letter box.
"""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from repro_gate.sandbox.identity import UID
from tests.container.attacks import NOTHING_THERE, TOKEN, attempts
from tests.container.engine import Engine
from tests.container.image import Image
from tests.container.runner import Ended, lay_out, mounts, start

ATTACKS = Path(__file__).with_name("attacks.py")
NAMES = sorted(attempts())
_SPEC = """
version: 1
train: {run: python train.py, steps: 3, warmup: 1, timeout: 5m}
"""
_TRAIN = """
import attacks
attacks.main("/results/attacks.jsonl", "a run")

from repro_gate import record, step

for number in range(3):
    record("loss", 1.0)
    step()
"""
# What is there in a run of the gate's, made by hand for root: a folder of an earlier run's traces,
# and the probe's configuration.
_STAND_IN = """
set -eu
mkdir -p /tmp/place/traces/deterministic-1 /tmp/place/traces/deterministic-2 /tmp/place/snapshot /tmp/place/run/bin
echo trace >/tmp/place/traces/deterministic-1/rank0
echo '{"traces": "/tmp/place/traces/deterministic-2"}' >/tmp/place/run/probe.json
export REPRO_GATE_PROBE=/tmp/place/run/probe.json
/opt/venv/bin/python /attacks.py /results/attacks.jsonl first
/opt/venv/bin/python /attacks.py /results/attacks.jsonl second
"""


@dataclass(frozen=True)
class Attacked:
    """An action whose training attacks: how it ended, and what came of each attempt in each of its
    runs."""

    ended: Ended
    runs: tuple[dict[str, str], ...]


@pytest.fixture(scope="module")
def attacked(
    engine: Engine, image: Image, docker_socket: Path, tmp_path_factory: pytest.TempPathFactory
) -> Attacked:
    """One action in which every attempt is made in every run."""
    root = tmp_path_factory.mktemp("attacked")
    layout = lay_out(root, {"repro.yml": _SPEC, "train.py": _TRAIN, "attacks.py": ATTACKS})
    box = _letter_box(root)
    more, inputs = ("-v", f"{box}:/results"), {"comment": "never"}
    ended = start(engine, image.name, layout, inputs, socket=docker_socket, more=more)
    assert (box / "attacks.jsonl").exists(), ended.log
    return Attacked(ended, _letters(box))


@pytest.fixture(scope="module")
def unconfined(
    engine: Engine, image: Image, docker_socket: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """The same attempts by root, beside a first process that has the token in its environment,
    where nothing is in the way.

    Docker's default capabilities and system calls deny mounting even to root, so this container is
    given more.
    """
    root = tmp_path_factory.mktemp("unconfined")
    layout = lay_out(root, {"train.py": _TRAIN})
    box = _letter_box(root)
    options = ["--rm", "--network=none", "--cap-add=SYS_ADMIN,SYS_PTRACE"]
    options += ["--security-opt=seccomp=unconfined", "--entrypoint=/bin/sh"]
    for source, target in mounts(layout, docker_socket):
        options += ["-v", f"{source}:{target}"]
    options += ["-v", f"{box}:/results", "-v", f"{ATTACKS}:/attacks.py:ro"]
    options += ["-e", f"INPUT_TOKEN={TOKEN}"]
    done = subprocess.run(
        [*engine.run, *options, image.name, "-c", _STAND_IN],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return _letters(box)[-1]


@pytest.mark.parametrize("name", NAMES)
def test_training_cannot(name: str, attacked: Attacked) -> None:
    assert len(attacked.runs) > 1
    for number, results in enumerate(attacked.runs, 1):
        assert results[name].startswith("denied"), f"run {number}: {results[name]}"


def test_each_attack_met_what_it_attacks(attacked: Attacked) -> None:
    later = attacked.runs[1:]  # the first run finds no earlier one's traces
    assert later and all(later)
    for results in later:
        for name, result in results.items():
            assert "No such file" not in result and NOTHING_THERE not in result, f"{name}: {result}"


@pytest.mark.parametrize("name", NAMES)
def test_nothing_but_the_sandbox_is_in_the_way(name: str, unconfined: dict[str, str]) -> None:
    assert unconfined[name].startswith("SUCCEEDED"), unconfined[name]


def test_the_attacker_was_gated_like_anybody(attacked: Attacked) -> None:
    assert attacked.ended.exit_code == 0, attacked.ended.log
    assert attacked.ended.outputs["verdict"] == "pass"
    assert len(attacked.runs) >= 4  # two deterministic runs, two default ones
    assert attacked.ended.report["subject"]["sandbox"] == "own-user"
    ended, layout = attacked.ended, attacked.ended.layout
    files = [*(layout.workspace / "repro-gate-report").iterdir(), layout.command_file("set_output")]
    left = [ended.summary, *(path.read_text(encoding="utf-8") for path in files)]
    assert len(files) > 1 and not [text for text in left if TOKEN in text]
    told = [line for line in ended.log.splitlines() if TOKEN in line]
    assert [line for line in told if not line.startswith("::add-mask::")] == []


def _letter_box(root: Path) -> Path:
    """A folder of the training's own user: what it leaves in one that is everybody's, the gate
    would remove before the next run."""
    box = root / "results"
    box.mkdir(mode=0o700)
    os.chown(box, UID, UID)
    return box


def _letters(box: Path) -> tuple[dict[str, str], ...]:
    text = (box / "attacks.jsonl").read_text(encoding="utf-8")
    return tuple(json.loads(line) for line in text.splitlines())
