"""Which of the gate's runs this is: what no training should ask for, and these do to go wrong in
one run only."""

import os
import sys


def run_name():
    """Return the gate's name of this run: `deterministic-2`, `seed7-deterministic-1`,
    `robustness-42-1`."""
    probe = sys.modules.get("_repro_gate.probe.session")
    return os.path.basename(probe.current().config["traces"]) if probe else ""


def varied():
    """Return whether this run differs from the first in what must not matter."""
    names = (
        os.path.basename(os.getcwd()),
        os.path.basename(os.environ["HOME"]),
        os.path.basename(os.environ["TMPDIR"]),
    )
    return names != ("workspace", "home", "tmp")
