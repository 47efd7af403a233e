"""The hash seed of strings in Python children that drop `PYTHONHASHSEED`, or are told to ignore it
(`python -I`, `-E`, `-R`).

Pinned, the variable goes back into their environment and these options are taken out of their
command; a child that a shell started without it starts itself again. Varying the seed of the
training and of what inherits it is the gate's, by the environment of the run.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from .. import session, source_line
from .use import NOWHERE, USES, Site, random_marker

NAME = "hashing"
_VARIABLE = "PYTHONHASHSEED"
_OPTIONS = re.compile("-[bBdEhiIOqRsSuvxP]+[cm]?")


def install() -> None:
    """Note a process whose own hashes are random, at the first line of its script; pinned, start it
    again with the seed."""
    inherits = not sys.flags.ignore_environment and not _lacking(os.environ)
    site = _script()
    if not sys.flags.hash_randomization or inherits or site is None:
        return
    source = "a Python without " + _VARIABLE
    USES.note(NAME, source, random_marker(), site=site, direct=True)
    if USES.pinned(NAME, site):
        command = heeding(sys.orig_argv)
        os.execve(sys.executable, list(command), {**os.environ, _VARIABLE: _seed()})


def of_child(
    environment: Mapping[str, str], command: Sequence[Any]
) -> tuple[dict[str, str], Sequence[Any]]:
    """Note a child whose hashes are random. Return, if the factor is pinned at the line that starts
    it, the seed for its environment and its command without the options that ignore it."""
    lacks = _lacking(environment)
    heeds = heeding(command) if is_python(command) else list(command)
    if not USES.wants(NAME) or not (lacks or heeds != list(command)):
        return {}, command
    site = NOWHERE
    with contextlib.suppress(Exception):
        site = source_line.nearest(sys._getframe(1))
    source = "its environment lacks " + _VARIABLE if lacks else "python -I, -E or -R"
    USES.note(NAME, source, random_marker())
    if not USES.pinned(NAME, site):
        return {}, command
    return {_VARIABLE: _seed()} if lacks else {}, heeds


def is_python(command: Sequence[Any]) -> bool:
    """Return whether a command starts a Python interpreter, by its name."""
    name = os.path.basename(os.fsdecode(command[0])) if command else ""
    return name.startswith(("python", "pypy"))


def heeding(command: Sequence[Any]) -> list[Any]:
    """Return a command of Python without `-E`, `-I` and `-R`; what else `-I` stands for stays."""
    new = [command[0]]
    rest = list(command[1:])
    safe = "sP" if sys.version_info >= (3, 11) else "s"
    while rest and _OPTIONS.fullmatch(os.fsdecode(rest[0])):
        text = os.fsdecode(rest.pop(0))
        option = re.sub("[ER]", "", text).replace("I", safe)
        if option != "-":
            new.append(option)
        if text[-1] in "cm":
            break
    return new + rest


def _seed() -> str:
    return str(session.current().config["seed"] % 2**32)


def _lacking(environment: Mapping[str, str]) -> bool:
    return environment.get(_VARIABLE, "random") in ("random", "")


def _script() -> Site | None:
    """Return the script of this process and its first line; None if it lies outside the
    workspace."""
    for item in getattr(sys, "orig_argv", [])[1:4]:
        file = source_line.inside(item) if item.endswith(".py") else ""
        if file:
            return file, 1
    return None
