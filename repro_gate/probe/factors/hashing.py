"""The hash seed of strings in Python children that drop `PYTHONHASHSEED`, or are told to ignore it
(`python -I`, `-E`, `-R`).

Pinned, the variable goes back into their environment and these options are taken out of their
command; a child that a shell started without it starts itself again. Varying the seed of the
training and of what inherits it is the gate's, by the environment of the run.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from ...trace.format import RANDOM_HASHES
from .. import session, source_line
from .use import ask, is_pinned, note, random_marker, wants

NAME = "hashing"
_VARIABLE = "PYTHONHASHSEED"
_LACKING = "its environment lacks PYTHONHASHSEED"
_TRACKER = "from multiprocessing.resource_tracker import"  # a child that keeps names to clean up
_OPTIONS = re.compile("-[bBdEhiIOqRsSuvxP]+[cm]?")
_Child = tuple[dict[str, str], Sequence[Any]]


def install() -> None:
    """Note a process whose own hashes are random, at the first line of its script; pinned, start it
    again with the seed."""
    inherits = not sys.flags.ignore_environment and not _lacking(os.environ)
    argv = getattr(sys, "orig_argv", [])
    scripts = [item for item in argv[1:4] if item.endswith(".py")]
    if not sys.flags.hash_randomization or inherits or not scripts:
        return
    file = source_line.inside(scripts[0])
    if not file:
        return
    site = file, 1
    note(NAME, RANDOM_HASHES, random_marker(), site=site, direct=True)
    if is_pinned(NAME, site):
        environment = {**os.environ, **_seed()}
        os.execve(sys.executable, heeding(argv), environment)


def of_child(environment: Mapping[str, str], command: Sequence[Any]) -> _Child:
    """Note a child whose hashes are random. Return, if the factor is pinned at the line that starts
    it, the seed for its environment and its command without the options that ignore it."""
    heeds = list(command)
    if is_python(command):
        heeds = heeding(command)
    seed = _seed() if _lacking(environment) else {}
    tracks = any(_TRACKER in os.fsdecode(item) for item in command)
    if not wants(NAME) or tracks or not (seed or heeds != list(command)):
        return {}, command
    child: _Child = ask(
        NAME,
        _LACKING if seed else "python -I, -E or -R",
        lambda: ({}, command),
        lambda *_: (seed, heeds),
        content=lambda _: random_marker(),
    )
    return child


def is_python(command: Sequence[Any]) -> bool:
    """Return whether a command starts a Python interpreter, by its name."""
    if not command:
        return False
    name = os.path.basename(os.fsdecode(command[0]))
    return name.startswith(("python", "pypy"))


def heeding(command: Sequence[Any]) -> list[Any]:
    """Return a command of Python without `-E`, `-I` and `-R`; what else `-I` stands for stays."""
    new = [command[0]]
    rest = list(command[1:])
    safe = "sP" if sys.version_info >= (3, 11) else "s"
    while rest:
        text = os.fsdecode(rest[0])
        if not _OPTIONS.fullmatch(text):
            break
        del rest[0]
        option = re.sub("[ER]", "", text).replace("I", safe)
        if option != "-":
            new.append(option)
        if text[-1] in "cm":
            break
    return new + rest


def _seed() -> dict[str, str]:
    seed = session.current().config["seed"] % 2**32
    return {_VARIABLE: str(seed)}


def _lacking(environment: Mapping[str, str]) -> bool:
    return environment.get(_VARIABLE, "random") in ("random", "")
