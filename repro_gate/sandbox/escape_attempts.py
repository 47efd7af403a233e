"""What a hostile training would try, tried: a program that `self_test` starts as the training is
started, before any training is.

Reads what to try as JSON on standard input and prints as JSON what succeeded, and what should have
been within reach and is not. Each attempt is made through the kernel, nothing is computed from
modes. Standard library only, any Python from 3.9 on. No attempt may do harm where it succeeds, run
as root on somebody's machine included: it changes this process alone, or what it makes it takes
back at once.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

_REFUSED = ("EACCES", "EPERM", "ENOENT", "ENOTDIR", "ESRCH", "EROFS")
_CLONE_NEWNS = 0x00020000
_PTRACE_SEIZE = 0x4206
_NO_FILE_SYSTEM = b"repro-gate-none"
_PROCESS = ("environ", "mem", "maps", "fd", "cwd", "root", "io", "auxv", "syscall")
_CAPABILITIES = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")


# what the kernel did not refuse, and what must not be so and is
_succeeded: list[str] = []


def _attempt(name: str, attempt: Callable[..., object], *arguments: object) -> None:
    """Make one attempt. It has failed where the kernel refuses it, or where there is nothing of the
    kind; anything else counts as a success."""
    try:
        attempt(*arguments)
    except OSError as error:
        if errno.errorcode.get(error.errno or 0) not in _REFUSED:
            _succeeded.append(f"{name} ({error})")
    else:
        _succeeded.append(name)


def main() -> None:
    """Make every attempt."""
    question: dict[str, Any] = json.load(sys.stdin)
    _succeeded.extend(_identity(question))
    # Of a kind that no kernel knows: whether one may mount is asked first (EPERM), so that even
    # where one may (ENODEV) nothing is mounted. Not tried is a user namespace, which a bare host's
    # kernel grants to anyone: only processes inside it see what is mounted there.
    nothing = (b"none", b"/", _NO_FILE_SYSTEM, 0, None)
    _attempt("mount a file system", _call, "mount", *nothing)
    _attempt("have mounts of its own as this user", _call, "unshare", _CLONE_NEWNS)
    _attempt("choose its groups", os.setgroups, [0])
    _attempt("become group 0", os.setgid, 0)
    _attempt("become root by setuid", os.setuid, 0)
    _attempt("become root by seteuid", os.seteuid, 0)
    _other_processes(question)
    for path in question["unreadable"]:
        _attempt(f"read {path}", _read, path)
    for path in [*question["unreadable"], *question["unwritable"]]:
        _attempt(f"write to {path}", _write, path)
    for path in question["sockets"]:
        _attempt(f"connect to {path}", _connect, path)
    answer = {"succeeded": _succeeded[:100], "missing": [*_missing(question)]}
    sys.stdout.write(json.dumps(answer))


def _identity(question: dict[str, Any]) -> Iterator[str]:
    """Yield what this process is and must not be, by the kernel's own account, and what it was
    given at its start."""
    fields = _status(os.getpid())
    for name in ("uid", "gid"):
        ids = fields[name.title()]
        if ids != [str(question["uid"])] * 4:
            yield f"be {name} {', '.join(ids)}"
    if fields["Groups"]:
        yield f"be in the groups {' '.join(fields['Groups'])}"
    for name in _CAPABILITIES:
        if int(fields[name][0], 16):
            yield f"hold {name}={fields[name][0]}"
    if fields.get("NoNewPrivs") != ["1"]:
        yield "gain privileges through a set-user-id program"
    for name in filter(os.environ.__contains__, question["forbidden"]):
        yield f"read the variable {name}"
    for name in os.listdir("/proc/self/fd"):
        # behind the standard ones; the listing's own is closed by now
        if int(name) > 2 and os.path.lexists(f"/proc/self/fd/{name}"):
            yield f"use an inherited descriptor: {os.readlink(f'/proc/self/fd/{name}')}"


def _other_processes(question: dict[str, Any]) -> None:
    """Look into, and signal, every process that is another user's: the gate, its ancestors, the
    first of the container."""
    # What is traced is let go when this process ends.
    gate = question["gate"]
    _attempt("trace the gate", _call, "ptrace", _PTRACE_SEIZE, gate, None, None)
    _attempt("signal the gate", os.kill, gate, 0)
    names = filter(str.isdecimal, os.listdir("/proc"))
    for pid in map(int, names):
        if not _is_of_another_user(pid, question["uid"]):
            continue
        before = len(_succeeded)
        for name in _PROCESS:
            _attempt(f"read /proc/{pid}/{name}", _read, f"/proc/{pid}/{name}")
        _attempt(f"signal process {pid}", os.kill, pid, 0)
        # The kernel lets everybody open `maps` of a process that is ending: there is nothing in it.
        if not _is_of_another_user(pid, question["uid"]):
            del _succeeded[before:]


def _is_of_another_user(pid: int, uid: int) -> bool:
    """Return whether a process with memory (no thread of the kernel's, nor one that has ended) is
    another user's."""
    try:
        fields = _status(pid)
    except OSError:
        return False
    return str(uid) not in fields["Uid"] and "VmSize" in fields


def _status(pid: int) -> dict[str, list[str]]:
    fields: dict[str, list[str]] = {}
    with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
        for line in file:
            key, _, value = line.partition(":")
            fields[key] = value.split()
    return fields


def _read(path: str) -> None:
    """Look into a file, a folder or a link of /proc's."""
    if os.path.isdir(path):
        os.listdir(path)
        return
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        os.read(handle, 1)
    except OSError as error:
        # /proc/PID/mem at address 0: it was opened all the same
        if error.errno not in (errno.EIO, errno.EINVAL, errno.EISDIR):
            raise
    finally:
        os.close(handle)


def _write(path: str) -> None:
    """Open a file for writing without changing it; make, and remove again, a file in a folder."""
    if os.path.isdir(path):
        made = os.path.join(path, f".repro-gate-attempt-{os.getpid()}")
        new = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        os.close(os.open(made, new, 0o600))
        os.unlink(made)
    else:
        unchanged = os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK
        os.close(os.open(path, unchanged))


def _connect(path: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as made:
        made.settimeout(5)
        made.connect(path)


def _call(name: str, *arguments: object) -> None:
    """Call a function of the C library; numbers are as long as a register."""
    function = ctypes.CDLL(None, use_errno=True)[name]
    wide = (
        ctypes.c_long(item) if isinstance(item, int) else item for item in arguments
    )
    if function(*wide) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _missing(question: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the path of what the training needs and cannot use, and why."""
    programs = question["start"]
    for path in [*question["reach"], *question["data"], *programs]:
        use = _start if path in programs else _read
        try:
            use(path)
        except (OSError, subprocess.SubprocessError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            yield path, reason


def _start(path: str) -> None:
    subprocess.run(
        [path, "-I", "-S", "-c", "pass"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=True,
    )


if __name__ == "__main__":
    main()
