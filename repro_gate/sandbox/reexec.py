"""One user for gate and training: the gate takes the secrets out of its own environment by starting
itself anew without them. Which variables hold or lead to secrets is decided by their names alone.

Called first of all by `cli` and `github.__main__`. What the gate itself needs later goes through an
unnamed file that no other process has, and is read and closed at once. The process id stays;
`/proc/PID/environ` then shows what is left. Standard library only.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import stat
import sys
import tempfile
from collections.abc import Iterable, Mapping, MutableMapping

from repro_gate.trace.format import SECRET

HANDED = "REPRO_GATE_HANDED"  # the descriptor of that file, for the moment between the two starts
TAKEN_OUT = "REPRO_GATE_TAKEN_OUT"  # names only, for the report
NEEDED = ("INPUT_TOKEN", "GITHUB_TOKEN", "GH_TOKEN")
_MOST = 1 << 20
_PR_SET_DUMPABLE = 4  # prctl(2)
_PUBLIC = ("GPG_KEY",)  # in images of Python: whose signature its source has
# Not secrets by themselves, or named by the above and on every laptop: taken out where there is
# something to take out, never the reason to.
_LEADS_THERE = re.compile(
    "SSH_AUTH_SOCK|SSH_AGENT_PID|GPG_AGENT_INFO|XAUTHORITY|ICEAUTHORITY|DBUS_SESSION_BUS_ADDRESS|DOCKER_HOST|DOCKER_CONFIG|DOCKER_CERT_PATH"
    "|KUBECONFIG|NETRC|PGPASSFILE|ACTIONS_CACHE_URL|ACTIONS_RESULTS_URL|ACTIONS_RUNTIME_URL|GITHUB_ENV|GITHUB_PATH|GITHUB_STATE"
    "|GIT_ASKPASS|SSH_ASKPASS|SUDO_ASKPASS"
)
_PREFIXES = (
    "AWS_",
    "AZURE_",
    "ARM_CLIENT_",
    "GIT_CONFIG_VALUE_",
    "GIT_CONFIG_PARAMETERS",
)


def start_anew(environment: Mapping[str, str], keep: Iterable[str] = NEEDED) -> None:
    """Replace this process by a new one without the secrets of `environment`; where
    it holds none, come back at once, at no cost.

    What followed the interpreter on the command line stays (`-I -m …` included). The new process
    finds no secret any more, so there is no loop. Of what is taken out, the values of `keep` are
    handed over. To be called before any thread is started and while standard output holds nothing
    unwritten.
    """
    names = secret_names(environment)
    if not names or not sys.executable:
        return
    hide_memory()
    gone = taken_out(environment)
    values = {name: environment[name] for name in keep if name in gone}
    without = {*gone, HANDED, ""}
    rest = {name: value for name, value in environment.items() if name not in without}
    file = _unnamed(json.dumps(values).encode())
    sys.stdout.flush()
    sys.stderr.flush()
    arguments = [sys.executable, *sys.orig_argv[1:]]
    child = {**rest, HANDED: str(file), TAKEN_OUT: ",".join(names)}
    os.execve(sys.executable, arguments, child)  # noqa: S606  itself, with its own arguments


def handed_over(environment: MutableMapping[str, str] = os.environ) -> dict[str, str]:
    """Return what the process before this one handed over, by name; empty where none did. A second
    call gives nothing.

    From here on the process is not dumpable: no other process of its user reads its memory (Linux;
    root is not kept out)."""
    hide_memory()
    try:
        descriptor = int(environment.pop(HANDED, ""))
        state = os.fstat(descriptor)
        # Only a file that nobody else can name or could have made: the variable may have been set
        # by an earlier step.
        is_unnamed = stat.S_ISREG(state.st_mode) and state.st_nlink == 0
        if not is_unnamed or state.st_uid != os.geteuid() or descriptor <= 2:
            return {}
        with os.fdopen(descriptor, "rb") as file:
            return dict[str, str](json.loads(file.read(_MOST)))
    except (OSError, OverflowError, ValueError):
        return {}


def hide_memory() -> None:
    """Make this process not dumpable (Linux): /proc/PID/environ and /proc/PID/mem of the gate,
    tokens in them, become root's. Root itself is not kept out."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def _unnamed(content: bytes) -> int:
    """Return a descriptor that an exec keeps, of a file without a name: in memory where the system
    can (Linux), else unlinked."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("handed", os.MFD_CLOEXEC)
    else:
        descriptor, name = tempfile.mkstemp()
        os.unlink(name)
    with os.fdopen(descriptor, "wb", closefd=False) as file:
        file.write(content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    os.set_inheritable(descriptor, True)
    return descriptor


def secret_names(names: Iterable[str]) -> tuple[str, ...]:
    """Return those that are secrets: the reason for a gate to start itself anew without them.
    Sorted."""
    return tuple(sorted(filter(_is_taken_out, names)))


def taken_out(names: Iterable[str]) -> tuple[str, ...]:
    """Return everything that goes when a gate starts itself anew: secrets, and what only leads to
    them. Sorted."""
    leads = _LEADS_THERE.fullmatch
    return tuple(sorted(name for name in names if leads(name) or _is_taken_out(name)))


def is_secret(name: str) -> bool:
    """Return whether a variable of this name holds a secret."""
    public = name in _PUBLIC or _LEADS_THERE.fullmatch(name)
    return not public and SECRET.search(name) is not None


def _is_taken_out(name: str) -> bool:
    return name.startswith(_PREFIXES) or is_secret(name)
