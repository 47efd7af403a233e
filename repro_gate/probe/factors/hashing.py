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
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from .. import session, source_line
from .use import USES, Site, site_of, unknowable

NAME = "hashing"
_VARIABLE = "PYTHONHASHSEED"
_OPTIONS = re.compile("-[bBdEhiIOqRsSuvxP]+[cm]?")
_SETS = ("set", "frozenset", "hash")


def install() -> None:
    """Where this process's own hashes are random: note it, at the first line of its script that
    makes a set or asks for a hash; pinned, start again with the seed."""
    heard_of_it = not sys.flags.ignore_environment and not _lacking(os.environ)
    if not sys.flags.hash_randomization or heard_of_it:
        return
    site = _script()
    if site is None:
        return
    USES.note(NAME, "a Python without " + _VARIABLE, unknowable(), None, site, direct=True)
    if USES.pinned(NAME, site):
        command = heard(sys.orig_argv)
        os.execve(sys.executable, list(command), {**os.environ, _VARIABLE: _seed()})


def of_child(
    environment: Mapping[str, str], command: Sequence[Any]
) -> Tuple[Dict[str, str], Sequence[Any]]:
    """Note a child whose hashes are random. Return, if the factor is pinned at the line that starts
    it, the seed for its environment and its command without the options that ignore it."""
    lacks, heeding = _lacking(environment), heard(command) if is_python(command) else list(command)
    if not USES.wants(NAME) or not (lacks or heeding != list(command)):
        return {}, command
    frame = sys._getframe(1)
    site = site_of(frame)
    source = "its environment lacks " + _VARIABLE if lacks else "python -I, -E or -R"
    USES.note(NAME, source, unknowable(), frame, site)
    if not USES.pinned(NAME, site):
        return {}, command
    return {_VARIABLE: _seed()} if lacks else {}, heeding


def is_python(command: Sequence[Any]) -> bool:
    """Return whether a command starts a Python interpreter, by its name."""
    name = os.path.basename(os.fsdecode(command[0])) if command else ""
    return name.startswith(("python", "pypy"))


def heard(command: Sequence[Any]) -> List[Any]:
    """Return a command of Python without `-E`, `-I` and `-R`; what else `-I` stands for stays."""
    new, rest = [command[0]], list(command[1:])
    safe = "sP" if sys.version_info >= (3, 11) else "s"
    while rest and _OPTIONS.fullmatch(os.fsdecode(rest[0])):
        text = os.fsdecode(rest.pop(0))
        kept = re.sub("[ER]", "", text).replace("I", safe)
        new += [kept] if kept != "-" else []
        if text[-1] in "cm":
            break
    return new + rest


def _seed() -> str:
    return str(session.current().config["seed"] % 2**32)


def _lacking(environment: Mapping[str, str]) -> bool:
    return environment.get(_VARIABLE, "random") in ("random", "")


def _script() -> Optional[Site]:
    """The script of this process and its line; None where it lies outside the workspace."""
    for item in getattr(sys, "orig_argv", [])[1:4]:
        file = source_line.inside(item) if item.endswith(".py") else ""
        if file:
            with open(item, encoding="utf-8", errors="replace") as script:
                return file, _line(script.read(1_000_000))
    return None


def _line(source: str) -> int:
    import ast  # takes milliseconds, which most processes need not spend

    def makes(node: ast.AST) -> bool:
        called = getattr(getattr(node, "func", None), "id", "")
        return called in _SETS or isinstance(node, (ast.Set, ast.SetComp))

    try:
        nodes = filter(makes, ast.walk(ast.parse(source)))
    except (SyntaxError, ValueError, RecursionError):
        return 1
    return min((node.lineno for node in nodes), default=1)  # type: ignore[attr-defined]
