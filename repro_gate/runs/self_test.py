"""What one gate run has tried before its first run: which attacks, and what the training must be able to reach."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from repro_gate.files import remove_tree
from repro_gate.runs import arms
from repro_gate.runs.environment import INJECT, training_environment
from repro_gate.sandbox.confinement import PACKAGE
from repro_gate.sandbox.identity import Isolation
from repro_gate.sandbox.ownership import give
from repro_gate.sandbox.permissions import FILE_COMMANDS, runner_files, sockets, surroundings
from repro_gate.sandbox.secret_names import taken_out
from repro_gate.sandbox.self_test import Exposure, prove
from repro_gate.spec.model import Spec

_BY_NAME = re.compile(r"(?<![\w./-])python[\d.]*(?![\w-])")  # an interpreter that PATH is asked for


def tried(isolation: Isolation, spec: Spec, place: Path, checkout: Path, outer: Mapping[str, str], data: tuple[Path, ...]) -> None:
    """Try everything in the environment of a deterministic run, but for `train.env`: that is an untrusted, and could make the program lie.

    `place` is the gate run's folder, its snapshot taken. Raises Inconclusive naming what is not as it must be.
    """
    if not isolation.own_user:
        return
    scratch = place / "trial"
    scratch.mkdir(mode=0o700)
    give(isolation, scratch)
    arm = arms.deterministic(spec.random_state.seeds[0], frozenset(), spec.train.steps)
    environment = training_environment(outer, arm, {}, scratch, spec.hardware.device)
    closed = [*surroundings(outer, checkout), *runner_files(outer), checkout / ".git", checkout / ".git" / "config"]
    closed += [place, place / "snapshot", place / "traces"]
    exposure = Exposure(
        closed=tuple(dict.fromkeys(closed)),
        unwritable=_of_the_gate(),
        sockets=sockets(outer),
        forbidden=tuple(dict.fromkeys([*taken_out({**os.environ, **outer}), *FILE_COMMANDS, "GITHUB_EVENT_PATH"])),
        reach=(scratch, INJECT / "sitecustomize.py"),
        data=data,
        start=_pythons(spec, outer),
    )
    prove(isolation, exposure, environment, scratch)
    remove_tree(scratch)


def _of_the_gate() -> tuple[Path, ...]:
    """What the gate itself is made of."""
    folders = (PACKAGE.parent, PACKAGE, INJECT, Path(sys.prefix), Path(os.path.dirname(os.path.realpath(sys.executable))))
    return tuple(dict.fromkeys((*folders, INJECT / "sitecustomize.py", Path(sys.executable))))


def _pythons(spec: Spec, outer: Mapping[str, str]) -> tuple[Path, ...]:
    """The interpreters that the command asks for by name: whether that user can start them is better said now than by a status 126."""
    if "PATH" in spec.train.env:
        return ()
    wanted = ["python"] if spec.train.run is None else sorted(set(_BY_NAME.findall(spec.train.run)))
    found = [shutil.which(name, path=outer.get("PATH", os.defpath)) for name in wanted]
    return tuple(Path(os.path.abspath(path)) for path in found if path is not None)
