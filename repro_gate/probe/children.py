"""Keeps the probe in the processes that this one starts, also where they are given an environment of their own.

Python's `subprocess` and `multiprocessing` hand the environment to `_posixsubprocess.fork_exec` as a list of bytes; `os.exec*` and
`posix_spawn` take a mapping. In both, our folder goes back to the front of PYTHONPATH and the configuration's path back in. A child that
runs `python -I` or clears its environment from a shell cannot be reached from here: the gate sees such a process from outside.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any, Mapping, Sequence

from ..trace.format import CONFIG_VARIABLE
from . import factors, session
from .patch import wrap


def pass_on(inject: str) -> None:
    config = os.environ[CONFIG_VARIABLE]

    def restore(environment: Mapping[Any, Any], command: Sequence[Any]) -> Mapping[str, str]:
        restored = {os.fsdecode(name): os.fsdecode(value) for name, value in environment.items()}
        entries = [entry for entry in restored.get("PYTHONPATH", "").split(os.pathsep) if entry and entry != inject]
        return {
            **restored,
            **factors.for_child(restored, command),
            "PYTHONPATH": os.pathsep.join([inject, *entries]),
            CONFIG_VARIABLE: config,
        }

    def fork_exec(original: Any, *args: Any) -> Any:
        """`fork_exec(args, executables, close_fds, fds, cwd, env, …)`: `env` is None (inherit: this process may have changed its own) or a
        list of b"NAME=value"."""
        if len(args) > 5:
            pairs = os.environb if args[5] is None else dict(item.partition(b"=")[::2] for item in args[5])
            restored = [os.fsencode("%s=%s" % pair) for pair in restore(pairs, args[0]).items()]
            args = (factors.child_command(args[0]), *args[1:5], restored, *args[6:])
        return original(*args)

    def with_mapping(original: Any, *args: Any, **kwargs: Any) -> Any:
        if len(args) > 2:  # None: inherit, from Python 3.13 on
            environment = os.environ if args[2] is None else args[2]
            args = (args[0], factors.child_command(args[1]), restore(environment, args[1]), *args[3:])
        elif kwargs.get("env") is not None:
            kwargs["env"] = restore(kwargs["env"], args[1] if len(args) > 1 else ())
        return original(*args, **kwargs)

    wrapper = wrap(sys.modules.get("_posixsubprocess"), "fork_exec", fork_exec)
    if hasattr(subprocess, "_fork_exec"):  # Python 3.11 and newer keep a reference of their own
        subprocess._fork_exec = wrapper
    wrap(os, "execve", _close_before)
    for name in ("execve", "posix_spawn", "posix_spawnp"):
        wrap(os, name, with_mapping)
    os.execv = lambda path, args: os.execve(path, args, os.environ)  # it may have changed its own


def _close_before(original: Any, path: Any, *args: Any, **kwargs: Any) -> Any:
    """What takes this process's place writes a trace of its own: ours is closed before, and goes on where nothing took its place."""
    if not isinstance(path, int) and not os.access(path, os.X_OK):  # `execvp` tries each folder on PATH
        return original(path, *args, **kwargs)
    session.close_session()
    try:
        return original(path, *args, **kwargs)
    finally:
        session.current().reopen()
