"""Starts one command in its own process group, watches it, and leaves no process running, however
it ends.

Descendants that leave the group (torchrun's workers start their own sessions) are found through the
process tree: the gate makes itself the reaper of orphans (Linux), so that none escapes to init. If
the training has its own user, all other processes of that user are ended too. The end of the output
is saved, the rest is read and discarded.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

import psutil

from repro_gate.errors import held, is_waiting, obeyed
from repro_gate.machine import descendants
from repro_gate.runs.scheduler import Slurm
from repro_gate.sandbox.identity import Sandbox
from repro_gate.sandbox.reexec import hide_memory
from repro_gate.sandbox.start import command as started_as
from repro_gate.sandbox.start import end_all

# It gets the descendants; a text that it returns ends the command.
Look: TypeAlias = Callable[[list[psutil.Process]], str | None]
TICK = 0.2  # seconds between two looks at a run
SCAN_EVERY = 3  # ticks between two walks through the process tree
# Seconds in which a finished run's helpers (resource trackers, loader workers) may end by
# themselves.
GRACE = 3.0
TAIL_LINES = 200
TAIL_BYTES = 64 * 1024
_SAYS = re.compile(r"(?!\S*/\S*$)(?=.*[^\W\d_])")  # no path, and with a letter
_PR_SET_CHILD_SUBREAPER = 36  # prctl(2)
# How shells, torchrun, subprocess and the DataLoader report that one of their processes was killed.
_CHILD_KILLED = re.compile(
    r"\bexit ?(?:code|status)\s{0,4}[:=]?\s{0,4}(?:137|-9)\b|\bsignal[ "
    r":]{1,2}9\b|\bSIGKILL\b|\bkilled\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a command ended. `stopped` is the watcher's reason for ending it, else empty."""

    exit_code: int | None = None
    timed_out: bool = False
    stopped: str = ""
    seconds: float = 0.0
    tail: tuple[str, ...] = ()
    # descendants that had to be killed after the command itself had ended
    left_running: int = 0
    # the command, or by its log one of its processes, was killed, and the kernel's count of
    # out-of-memory kills has grown
    out_of_memory: bool = False

    @property
    def signal(self) -> int | None:
        """Return the signal that ended it, if any. A shell reports its child's as 128 + N."""
        code = self.exit_code or 0
        return -code if code < 0 else code - 128 if 128 < code < 160 else None

    @property
    def last_line(self) -> str:
        """Return the last line that the command printed, cut short; empty if there is none. A path
        alone, where a launcher left its log, is none, nor is a line without a letter."""
        lines = (line.strip()[:300] for line in reversed(self.tail))
        return next((line for line in lines if _SAYS.match(line)), "")


def supervise(
    command: list[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    timeout: float,
    tick: Look = lambda _: None,
    sandbox: Sandbox,
    umask: int = -1,
    slurm: Slurm | None = None,
) -> Ended:
    """Run `command` to its end. `tick(descendants)` is called a few times a second; a text that it
    returns ends the run with that reason. `sandbox` decides its user; `umask`, unless negative, the
    permissions of new files. If it has its own user, no process of that user is left when this
    returns, nor a job of `slurm`, whose waiting for nodes is not counted as time.

    On any exception, KeyboardInterrupt included, the whole tree is killed before the exception is
    passed on. A signal that arrives meanwhile waits.
    """
    _adopt_orphans()
    hide_memory()
    command, env = started_as(sandbox, command, env)
    before = {child.pid for child in descendants(os.getpid())}
    kills = _memory_kills()
    began = time.monotonic()
    stopped = ""
    timed_out = False
    output = None
    with held():
        process = _start(command, cwd, env, umask)
        tree = _Tree(process, before, slurm)
        if slurm is not None:
            slurm.follow(process.pid)
        try:
            output = _Tail(process)
            with obeyed():
                stopped, timed_out = _watch(tree, began + timeout, tick)
        finally:
            seconds = time.monotonic() - began - tree.waited
            try:
                left = tree.end(
                    at_once=bool(stopped or timed_out or process.poll() is None)
                )
            finally:
                end_all(sandbox)
                # This closes the pipe, so it is needed on an exception too.
                tail = () if output is None else output.lines()
    ended = Ended(
        exit_code=process.returncode,
        timed_out=timed_out,
        stopped=stopped,
        seconds=seconds,
        tail=tail,
        left_running=left,
    )
    killed = ended.signal == signal.SIGKILL or any(map(_CHILD_KILLED.search, tail))
    out_of_memory = process.returncode and killed and not (stopped or timed_out)
    return replace(ended, out_of_memory=bool(out_of_memory) and _memory_kills() > kills)


def _start(
    command: list[str], cwd: Path, env: Mapping[str, str], umask: int
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        umask=umask,
    )


def _watch(tree: _Tree, deadline: float, tick: Look) -> tuple[str, bool]:
    """Return the watcher's reason for ending the command, if it did, and whether the timeout was
    reached, which seconds in a queue put off."""
    ticks = 0
    alive = []
    while True:
        with suppress(subprocess.TimeoutExpired):
            tree.process.wait(TICK)
            return "", False
        ticks += 1
        if ticks % SCAN_EVERY == 0:
            alive = tree.descendants()
        reason = tick(alive)
        if reason:
            return reason, False
        if tree.slurm is not None:
            tree.waited = tree.slurm.waited()
        if time.monotonic() > deadline + tree.waited:
            return "", True


@dataclass
class _Tree:
    """A command and all its descendants, and the jobs that it submits; `before` are the children
    that the gate already had."""

    process: subprocess.Popen[bytes]
    before: set[int]
    slurm: Slurm | None
    waited: float = 0.0  # seconds in a queue
    members: set[psutil.Process] = field(default_factory=set)

    def descendants(self) -> list[psutil.Process]:
        """Return every process below the gate, except those that existed before."""
        found = [
            child for child in descendants(os.getpid()) if child.pid not in self.before
        ]
        self.members.update(found)
        return found

    def alive(self) -> list[psutil.Process]:
        """Return the living processes, and reap dead orphans that the gate has inherited."""
        self.descendants()
        found = []
        for child in self.members:
            with suppress(psutil.Error, ChildProcessError):
                if child.status() != psutil.STATUS_ZOMBIE:
                    found.append(child)
                elif child.pid != self.process.pid and child.ppid() == os.getpid():
                    os.waitpid(child.pid, os.WNOHANG)
        return found

    def end(self, *, at_once: bool) -> int:
        """End the jobs, then kill the remaining processes until none is left. Return how many
        processes a finished command had left running."""
        try:
            if self.slurm is not None:
                self.slurm.end(by_itself=not at_once)
        finally:
            left = self._kill(at_once)
        return left

    def _kill(self, at_once: bool) -> int:
        deadline = time.monotonic() + (0.0 if at_once else GRACE)
        while not is_waiting() and time.monotonic() < deadline and self.alive():
            time.sleep(0.02)
        left = self.alive()
        for _ in range(200):
            alive = self.alive()
            if not alive and self.process.poll() is not None:
                break
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)
            for child in alive:
                with suppress(psutil.Error):
                    child.kill()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=0.05)
        self.process.wait()
        return 0 if at_once else len(left)


class _Tail:
    """Reads a process's output in a thread and keeps its end."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._end = b""
        assert process.stdout is not None
        self._stream = process.stdout
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with suppress(OSError, ValueError):
            while chunk := os.read(self._stream.fileno(), TAIL_BYTES):
                self._end = (self._end + chunk)[-TAIL_BYTES:]

    def lines(self) -> tuple[str, ...]:
        """Return the last lines, as text. Called when no writer is left."""
        self._thread.join(timeout=2)
        with suppress(OSError):
            self._stream.close()
        text = self._end.decode("utf-8", "replace").replace("\r", "\n")
        return tuple(text.splitlines()[-TAIL_LINES:])


def _adopt_orphans() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _memory_kills() -> int:
    """Return the kernel's count of out-of-memory kills: in the nearest control group (version 2)
    that has one, else on this machine. Inside a container the kernel's path may not exist; then the
    mounted group is the container's own."""
    group = Path("/sys/fs/cgroup")
    with suppress(OSError):
        group /= Path("/proc/self/cgroup").read_text().rpartition("::/")[2].strip()
    files = [folder / "memory.events" for folder in (group, *group.parents)]
    for path in (*files, Path("/proc/vmstat")):
        with suppress(OSError):
            counts = dict(line.split(" ", 1) for line in path.read_text().splitlines())
            return int(counts.get("oom_kill", 0))
    return 0
