"""The action around the training, in the real image: container's start to the first run, last run's
end to the comment, in seconds.

The image is built and started as tests/container does it; the API is the tests' own server, whose
clock says when the comment came. Goal: at most 3 s of the gate's own time around and between the
runs, from the start of the container to the comment.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.figure import ROOT, Figure
from tests.container.attacks import TOKEN
from tests.container.engine import Engine, engine
from tests.container.image import built
from tests.container.runner import PULL, REPOSITORY, lay_out, start
from tests.support.github.server import BOT, GitHub

GOAL = 3.0


@dataclass(frozen=True)
class Settings:
    """Rounds, each a whole step of the action on the quickstart."""

    rounds: int = 3


QUICK = Settings(rounds=1)


@dataclass
class _Clock:
    """When things happened, in seconds of this machine's clock. `runs`: start and end of each group
    of the log."""

    started: float = 0.0
    comment: float = 0.0
    runs: list[tuple[float, str]] = field(default_factory=list)

    def wrote(self, _: dict[str, Any]) -> None:
        """The comment came."""
        self.comment = self.comment or time.time()


def measure(settings: Settings) -> list[Figure]:
    """Four figures in seconds, and image and build. Raises RuntimeError where there is no engine,
    or the quickstart does not pass."""
    found = engine()
    if isinstance(found, str):
        raise RuntimeError(found)
    image = built(found)
    size = (
        int(found.ask("image", "inspect", "--format", "{{.Size}}", image.name)) / 2**20
    )
    rounds = [_round(found, image.name) for _ in range(settings.rounds)]
    names = (
        "container's start to the first run",
        "between runs",
        "last run's end to the comment",
    )
    parts = [Figure(name, "s", tuple(item[name] for item in rounds)) for name in names]
    whole = Figure(
        "the action's own time",
        "s",
        tuple(sum(item[name] for name in names) for item in rounds),
        GOAL,
    )
    over = Figure(
        "the action's own time over its runs",
        "ratio",
        tuple(sum(item[n] for n in names) / item["runs"] for item in rounds),
    )
    seconds = (
        ()
        if image.seconds is None
        else (Figure("build of the image", "s", (image.seconds,)),)
    )
    return [
        *parts,
        whole,
        over,
        Figure("image, torch for the CPU", "MiB", (size,)),
        *seconds,
    ]


def _round(found: Engine, image: str) -> dict[str, float]:
    """Seconds by name: what one step of the action took, and its runs."""
    clock = _Clock()
    with (
        tempfile.TemporaryDirectory() as folder,
        GitHub(REPOSITORY, on_write=clock.wrote) as github,
    ):
        os.chmod(folder, 0o755)  # noqa: S103  the runner's user enters it
        layout = lay_out(Path(folder) / "job", {".": ROOT / "examples/quickstart"})
        github.token(BOT, value=TOKEN)
        github.add_pull(PULL, layout.head)
        following: list[threading.Thread] = []

        def follow(name: str) -> None:
            clock.started = time.time()
            following.append(
                threading.Thread(target=_follow, args=(found, name, clock), daemon=True)
            )
            following[0].start()

        ended = start(
            found, image, layout, network="host", api_url=github.url, meanwhile=follow
        )
        following[0].join(timeout=10)
    if ended.exit_code != 0 or len(clock.runs) < 4 or len(clock.runs) % 2:
        raise RuntimeError(
            f"the action ended with {ended.exit_code} and {len(clock.runs)} "
            f"marks:\n{ended.log[-4000:]}"
        )
    times = [moment for moment, _ in clock.runs]
    return {
        "container's start to the first run": times[0] - clock.started,
        "between runs": sum(
            later - earlier
            for earlier, later in zip(times[1:-1:2], times[2::2], strict=True)
        ),
        "last run's end to the comment": clock.comment - times[-1],
        "runs": sum(
            end - begin for begin, end in zip(times[::2], times[1::2], strict=True)
        ),
    }


def _follow(found: Engine, name: str, clock: _Clock) -> None:
    """Read the container's log as it comes, each line with the engine's own time, and note where
    runs begin and end."""
    deadline = time.time() + 60
    while time.time() < deadline and not clock.runs:
        command = [*found.client, "logs", "--follow", "--timestamps", name]
        with subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                stamp, _, text = line.rstrip("\n").partition(" ")
                if text.startswith(("::group::run", "::endgroup::")):
                    clock.runs.append((_moment(stamp), text))
        time.sleep(0.05)


def _moment(stamp: str) -> float:
    """RFC 3339 with nanoseconds, which Python reads to six digits."""
    head, _, rest = stamp.partition(".")
    digits = rest[
        : next(
            (index for index, char in enumerate(rest) if not char.isdigit()), len(rest)
        )
    ]
    zone = rest[len(digits) :] or "+00:00"
    return datetime.fromisoformat(
        f"{head}.{digits[:6]:0<6}{zone.replace('Z', '+00:00')}"
    ).timestamp()
