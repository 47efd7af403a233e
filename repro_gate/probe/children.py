"""Keeps the probe in children that are started with an environment of their own.

Python's `subprocess` and `multiprocessing` hand the environment to `_posixsubprocess.fork_exec` as a list of bytes; `os.exec*` and
`posix_spawn` take a mapping. In both, our folder goes back to the front of PYTHONPATH and the configuration's path back in. A child that
runs `python -I` or clears its environment from a shell cannot be reached from here: the gate sees such a process from outside.
"""

from __future__ import annotations

import os
import subprocess
from typing import Any, Callable, List, MutableMapping, Optional

from ..trace.format import CONFIG_VARIABLE
from . import session


def pass_on(inject: str) -> None:
    """Patch the ways in which this process can start another."""
    config = os.environ[CONFIG_VARIABLE]

    def restore(environment: MutableMapping[Any, Any]) -> MutableMapping[Any, Any]:
        restored = {os.fsdecode(name): os.fsdecode(value) for name, value in environment.items()}
        entries = [entry for entry in restored.get("PYTHONPATH", "").split(os.pathsep) if entry and entry != inject]
        restored["PYTHONPATH"] = os.pathsep.join([inject, *entries])
        restored[CONFIG_VARIABLE] = config
        return restored

    _patch_fork_exec(restore)
    _patch_mapping("execve", 2, restore)
    _close_before_exec()
    os.execv = lambda path, args: os.execve(path, args, os.environ)  # it may have changed its own
    for name in ("posix_spawn", "posix_spawnp"):
        if hasattr(os, name):
            _patch_mapping(name, 2, restore)


def _patch_fork_exec(restore: Callable[[MutableMapping[Any, Any]], MutableMapping[Any, Any]]) -> None:
    """`fork_exec(args, executables, close_fds, fds, cwd, env, …)`: `env` is None (inherit, and this process may have changed its own) or a
    list of b"NAME=value"."""
    try:
        import _posixsubprocess
    except ImportError:  # Windows
        return
    original = _posixsubprocess.fork_exec

    def fork_exec(*args: Any) -> Any:
        if len(args) > 5:
            listed: Optional[List[bytes]] = args[5]
            pairs = os.environb if listed is None else dict(item.partition(b"=")[::2] for item in listed)
            changed = [os.fsencode("%s=%s" % pair) for pair in restore(pairs).items()]
            args = args[:5] + (changed,) + args[6:]
        return original(*args)

    _posixsubprocess.fork_exec = fork_exec
    if hasattr(subprocess, "_fork_exec"):  # Python 3.11 and newer keep a reference of their own
        subprocess._fork_exec = fork_exec


def _close_before_exec() -> None:
    """What takes this process's place writes a trace of its own: ours is closed before, and goes on where nothing took its place."""
    original = os.execve

    def execve(path: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(path, int) and not os.access(path, os.X_OK):  # `execvp` tries each folder on PATH
            return original(path, *args, **kwargs)
        session.close_session()
        try:
            return original(path, *args, **kwargs)
        finally:
            session.current().reopen()

    os.execve = execve


def _patch_mapping(name: str, position: int, restore: Callable[[MutableMapping[Any, Any]], MutableMapping[Any, Any]]) -> None:
    original = getattr(os, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        if len(args) > position and args[position] is not None:
            args = args[:position] + (restore(args[position]),) + args[position + 1 :]
        elif kwargs.get("env") is not None:
            kwargs["env"] = restore(kwargs["env"])
        return original(*args, **kwargs)

    setattr(os, name, call)
