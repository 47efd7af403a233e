"""Keeps the probe in the processes that this one starts, also where they are given an environment
of their own.

Python's `subprocess` and `multiprocessing` hand the environment to `_posixsubprocess.fork_exec` as
a list of bytes; `os.exec*` and `posix_spawn` take a mapping. In both, our folder goes back to the
front of PYTHONPATH and the configuration's path back in. A Python that ignores them (`-I`, `-E`,
`-S`), or that a shell starts by its path in a cleared environment, cannot be reached from here: the
gate sees such a process from outside, and names the line that started it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from ..trace.format import CONFIG_VARIABLE
from . import factors, session, source_line
from .patch import wrap


def pass_on(inject: str) -> None:
    config = os.environ[CONFIG_VARIABLE]

    def restore(
        environment: Mapping[Any, Any], command: Sequence[Any]
    ) -> tuple[dict[str, str], Sequence[Any]]:
        restored = {}
        for name, value in environment.items():
            restored[os.fsdecode(name)] = os.fsdecode(value)
        entries = restored.get("PYTHONPATH", "").split(os.pathsep)
        others = [entry for entry in entries if entry not in ("", inject)]
        path = os.pathsep.join([inject, *others])
        more, command = factors.for_child(restored, command)
        own = {"PYTHONPATH": path, CONFIG_VARIABLE: config}
        return {**restored, **more, **own}, command

    def fork_exec(original: Any, argv: Any, *args: Any) -> Any:
        """Pass on what it is called with. The sixth argument of all, the environment, is None
        (inherit: this process may have changed its own) or a list of b"NAME=value"."""
        pairs: Any = os.environb
        if args[4] is not None:
            pairs = dict(item.partition(b"=")[::2] for item in args[4])
        restored, command = restore(pairs, argv)
        encoded = [os.fsencode(f"{name}={value}") for name, value in restored.items()]
        return _spawned(original(command, *args[:4], encoded, *args[5:]))

    def with_mapping(
        original: Any,
        path: Any,
        argv: Any,
        env: Any,
        **options: Any,
    ) -> Any:
        """Pass on what they are called with; `env` None: inherit, from Python 3.13 on."""
        restored, command = restore(os.environ if env is None else env, argv)
        return _spawned(original(path, command, restored, **options))

    def system(original: Any, command: Any) -> Any:
        _spawned(os.getpid())
        return original(command)

    wrapper = wrap(sys.modules.get("_posixsubprocess"), "fork_exec", fork_exec)
    # Python 3.11 and newer keep a reference of their own
    if hasattr(subprocess, "_fork_exec"):
        subprocess._fork_exec = wrapper
    wrap(os, "system", system)
    wrap(os, "execve", _close_before)
    for name in ("posix_spawn", "posix_spawnp"):
        wrap(os, name, with_mapping)
    execve = wrap(os, "execve", with_mapping)
    # it may have changed its own
    os.execv = lambda path, args: execve(path, args, os.environ)


def _spawned(pid: int) -> int:
    """Note the line of the workspace that started a process, and return the pid as it came."""
    try:
        file, line = source_line.nearest(sys._getframe(1))
    except Exception:
        return pid  # the training gets its child all the same
    if file:
        session.current().notice("spawned", pid=pid, file=file, line=line)
    return pid


def _close_before(original: Any, path: Any, *args: Any, **kwargs: Any) -> Any:
    """Close the trace before another program takes this process's place, which writes one of its
    own; go on with it if nothing took its place."""
    # `execvp` tries each folder on PATH
    if not isinstance(path, int) and not os.access(path, os.X_OK):
        return original(path, *args, **kwargs)
    session.close_session()
    try:
        return original(path, *args, **kwargs)
    finally:
        session.current().reopen()
