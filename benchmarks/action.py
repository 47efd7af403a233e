"""The action around the training, with the real engine: from the step's start to the gate, which is
ours and the start of the training's image apart, and the whole of it beside the runs, in seconds.

The images are built and the steps started as tests/container does it, on the quickstart; the API is
the tests' own server. Goals: at most 2 s of our own before the gate, and the sizes that issue and
docs name.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from benchmarks.figure import ROOT, Figure
from tests.container.attacks import TOKEN
from tests.container.door import Door
from tests.container.engine import engine
from tests.container.image import built, of_a_lab
from tests.container.runner import PULL, REPOSITORY, lay_out
from tests.support.github.server import BOT, GitHub

OURS_BEFORE = "step's start to the gate, without the image's start"


@dataclass(frozen=True)
class Settings:
    """Rounds, each a whole step of the action on the quickstart, in our image and in a lab's."""

    rounds: int = 3
    sizes: bool = True


QUICK = Settings(rounds=1, sizes=False)


def measure(settings: Settings) -> list[Figure]:
    """Return figures in seconds for both images, and the sizes of ours. Raises RuntimeError where
    there is no engine, or the quickstart does not pass."""
    found = engine()
    if isinstance(found, str):
        raise RuntimeError(found)
    door = Door(found, built(found))
    figures = []
    images = {"our image": "", "a lab's image": of_a_lab(found, door.image, "system")}
    for whose, image in images.items():
        rounds = [_round(door, image) for _ in range(settings.rounds)]
        goals = {OURS_BEFORE: 2.0}
        figures += [
            Figure(
                f"{whose}: {name}",
                "s",
                tuple(item[name] for item in rounds),
                goals.get(name),
            )
            for name in rounds[0]
        ]
    for name, image, goal in (
        ("image without torch, unpacked", door.image.gate, 120.0),
        ("image with torch for the CPU, unpacked", door.image.name, None),
    ):
        size = int(found.ask("image", "inspect", "--format", "{{.Size}}", image)) / 1e6
        figures.append(Figure(name, "MB", (size,), goal))
        if settings.sizes:
            most = goal or 700.0
            packed = f"{name.partition(',')[0]}, as a registry keeps it (gzip)"
            figures.append(Figure(packed, "MB", (_packed(door, image),), most))
    return figures


def _packed(door: Door, image: str) -> float:
    save = subprocess.Popen(
        [*door.engine.client, "save", image], stdout=subprocess.PIPE
    )
    done = subprocess.run(
        ["sh", "-c", "gzip -6 | wc -c"],
        stdin=save.stdout,
        capture_output=True,
        check=True,
    )
    save.wait()
    return int(done.stdout) / 1e6


def _round(door: Door, image: str) -> dict[str, float]:
    """Return seconds by name of one step of the action."""
    before = time.monotonic()
    name = image or door.image.name
    command = [
        *door.engine.run,
        "--rm",
        "--network=none",
        "--entrypoint",
        "/bin/true",
        name,
    ]
    subprocess.run(command, check=True, capture_output=True)
    start = time.monotonic() - before
    with tempfile.TemporaryDirectory() as folder, GitHub(REPOSITORY) as github:
        os.chmod(folder, 0o755)  # noqa: S103  the runner's user enters it
        layout = lay_out(Path(folder) / "job", {".": ROOT / "examples/quickstart"})
        github.token(BOT, value=TOKEN)
        github.add_pull(PULL, layout.head)
        began = time.time()
        inputs = {"image": image, "comment": "always", "set": "train.steps=20"}
        ended = door.start(layout, inputs, api_url=github.url)
        if ended.exit_code != 0:
            raise RuntimeError(
                f"the action ended with {ended.exit_code}:\n{ended.log[-4000:]}"
            )
        report = ended.report
    to_gate = datetime.fromisoformat(report["started"]).timestamp() - began
    runs = sum(run["seconds"] for run in report["runs"])
    return {
        "the image's start": start,
        OURS_BEFORE: to_gate - start,
        "the gate around its runs": report["seconds"] - runs,
        "the gate's end to the step's end": ended.seconds - to_gate - report["seconds"],
    }
