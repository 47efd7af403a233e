"""How a signal ends the gate: as KeyboardInterrupt, once, so that what is running is stopped and what was made is removed. Called by `cli`
and `github.__main__` before anything else."""

from __future__ import annotations

import signal
from typing import NoReturn

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def end_cleanly() -> None:
    """Take SIGINT, SIGTERM and SIGHUP."""
    for number in ENDING:
        signal.signal(number, _ended)


def _ended(number: int, frame: object) -> NoReturn:
    """The first signal ends the run and cleans up; later ones must not end the cleaning."""
    for other in ENDING:
        signal.signal(other, signal.SIG_IGN)
    raise KeyboardInterrupt
