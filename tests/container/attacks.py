"""What a hostile training tries: every attempt of this file is made inside a real run of the gate,
in the real image, by `train.py`.

Committed into the checkout that `test_sandbox` gates, and started again as root in a container of
its own, where each must succeed: an attempt that could not would prove nothing. Standard library
only. What came of each goes, as one line of JSON, to the file named on the command line. No attempt
may do harm where it succeeds: files are opened and not changed, what is made is removed at once.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

TOKEN = "ghs_ThisIsTheTokenThatMustNotBeRead000000"
FILE_COMMANDS = ("set_output", "step_summary", "set_env", "add_path", "save_state")
# the runner's file commands end in one; here the attacker even knows it
SUFFIX = "5f1c8a52-3b1e-4f52-9d07-6d0f6e1d4a77"
GITHUB = Path("/github")
WORKSPACE, TEMPORARY = GITHUB / "workspace", GITHUB / "runner_temp"
TEMPORARY_EVENT = TEMPORARY / "_github_workflow/event.json"
GATE, PACKAGES = Path("/opt/repro-gate"), "lib/python3.11/site-packages"
CREDENTIALS = TEMPORARY / f"git-credentials-{SUFFIX}.config"
SOCKET = "/var/run/docker.sock"
_LEFT_BEHIND = "left-behind-by-an-earlier-run"
_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000
_PTRACE_SEIZE, _PTRACE_DETACH = 0x4206, 17
_NO_SUCH_KIND = b"no-such-kind"
NOTHING_THERE = "there is nothing of the kind"


class Denied(Exception):
    """The attempt came to nothing; the kernel's own refusals are OSErrors."""


def attempts() -> dict[str, Callable[[], str]]:
    """Every attempt by its name. Each returns what it got hold of, or raises Denied or OSError."""
    found: dict[str, Callable[[], str]] = {
        "read the token in its own environment": own_environment,
        "read the token in another process's environment": lambda: first(
            others(), lambda pid: contains(f"/proc/{pid}/environ", TOKEN)
        ),
        "read the gate's environment": lambda: read("/proc/1/environ"),
        "read the gate's memory": lambda: opened("/proc/1/mem", os.O_RDONLY),
        "write the gate's memory": lambda: opened("/proc/1/mem", os.O_RDWR),
        "see the gate's open files": lambda: listed("/proc/1/fd"),
        "reach the file system through the gate": lambda: listed("/proc/1/root"),
        "trace the gate": lambda: trace(1),
        "signal the gate": lambda: signalled(1),
        "signal any other user's process": lambda: first(others(), signalled),
        "connect to the Docker socket": lambda: connected(SOCKET),
        "read the event": lambda: read(GITHUB / "workflow/event.json"),
        "read the event in the runner's temporary folder": lambda: read(TEMPORARY_EVENT),
        "list the runner's file commands": lambda: listed(GITHUB / "file_commands"),
        "list the runner's temporary folder": lambda: listed(TEMPORARY),
        "list the runner's home": lambda: listed(GITHUB / "home"),
        "leave a file in the runner's home": lambda: made_in(GITHUB / "home"),
        "read the credential of the checkout": lambda: contains(
            WORKSPACE / ".git/config", "AUTHORIZATION"
        ),
        "read the credential kept apart": lambda: contains(CREDENTIALS, "AUTHORIZATION"),
        "list the workspace": lambda: listed(WORKSPACE),
        "change the code in the workspace": lambda: appended(WORKSPACE / "train.py"),
        "leave a file in the workspace": lambda: made_in(WORKSPACE),
        "leave a hook in the repository": lambda: made_in(WORKSPACE / ".git/hooks"),
        "change the gate": lambda: first(package(), appended),
        "put a module beside the gate's": lambda: made_in(GATE / PACKAGES),
        "put a module beside torch": lambda: made_in(beside_torch()),
        "change what the gate's interpreter goes by": lambda: appended(GATE / "pyvenv.cfg"),
        "change the list of users": lambda: appended("/etc/passwd"),
        "read the passwords": lambda: read("/etc/shadow"),
        "put a program on the gate's PATH": lambda: made_in(Path("/usr/local/bin")),
        "become root": lambda: called(os.setuid, 0),
        "become root's group": lambda: called(os.setgid, 0),
        "join root's groups": lambda: called(os.setgroups, [0]),
        "become root with su": lambda: as_root(["su", "-s", "/bin/sh", "-c", "id -u", "root"]),
        "mount a file system": mounted,
        "have mounts of its own": lambda: called(libc_call, "unshare", _CLONE_NEWNS),
        "reach what is root's as root in a namespace of its own": namespaced,
        "hold a capability": capability,
        "gain privileges by starting a program": no_new_privileges,
        "change what an earlier run recorded": lambda: first(recorded(), appended),
        "change what the probe goes by": lambda: appended(probe_configuration()),
        "put a shim before the gate's": lambda: made_in(probe_configuration().parent / "bin"),
        "read the snapshot of the checkout": lambda: listed(gates_folder() / "snapshot"),
        "list the gate's temporary folder": lambda: listed(gates_folder()),
        "leave a process behind": left_behind,
    }
    for name in FILE_COMMANDS:
        for folder in (GITHUB / "file_commands", TEMPORARY / "_runner_file_commands"):
            path = folder / f"{name}_{SUFFIX}"
            found[f"write the runner's command {path}"] = partial(appended, path)
            found[f"read the runner's command {path}"] = partial(opened, path, os.O_RDONLY)
    return found


def main(out: str, marker: str) -> None:
    """Make every attempt, each in a process of its own, and write {attempt: what came of it} as a
    line of `out`."""
    results = {"": marker, **{name: apart(attempt) for name, attempt in attempts().items()}}
    with open(out, "a", encoding="utf-8") as file:
        file.write(json.dumps(results) + "\n")
    stay_behind()


def apart(attempt: Callable[[], str]) -> str:
    """`denied: …` or `SUCCEEDED: …`: in a child, so that one attempt's success changes nothing for
    the next."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        said = "denied: the attempt ended without a word"
        try:
            said = f"SUCCEEDED: {attempt()}"
        except (OSError, Denied) as error:
            said = f"denied: {error}"
        except BaseException as error:  # noqa: BLE001  a mistake of this file's must not look like a refusal
            said = f"BROKEN: {error!r}"
        finally:
            os.write(writing, said[:400].encode("utf-8", "replace"))
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read().decode("utf-8", "replace")
    os.waitpid(child, 0)
    return said or "denied: the attempt was killed"


def first(items: Iterator[int] | Iterator[Path], attempt: Callable[..., str]) -> str:
    """The first of `items` with which the attempt succeeds. Raises Denied where it does with
    none."""
    why = NOTHING_THERE
    for item in items:
        try:
            return f"{item}: {attempt(item)}"
        except (OSError, Denied) as error:
            why = str(error)
    raise Denied(why)


def others() -> Iterator[int]:
    """Processes that are not this one's descendants or itself: another user's, or, for root, the
    first of all."""
    for name in sorted(os.listdir("/proc")):
        if (
            name.isdecimal()
            and int(name) != os.getpid()
            and (os.stat(f"/proc/{name}").st_uid != os.getuid() or name == "1")
        ):
            yield int(name)


def own_environment() -> str:
    found = [
        name
        for name, value in os.environ.items()
        if TOKEN in value or name.startswith(("INPUT_", "GITHUB_", "RUNNER_", "ACTIONS_"))
    ]
    if not found:
        raise Denied("nothing of the runner's is in it")
    return ", ".join(found)


def read(path: str | Path) -> str:
    with open(path, "rb") as file:
        return f"{len(file.read(100))} bytes"


def contains(path: str | Path, text: str) -> str:
    with open(path, "rb") as file:
        if text.encode() not in file.read():
            raise Denied("it does not hold that")
    return text


def opened(path: str | Path, flags: int) -> str:
    os.close(os.open(path, flags))
    return "opened"


def appended(path: str | Path) -> str:
    return opened(path, os.O_WRONLY | os.O_APPEND)


def listed(path: str | Path) -> str:
    return f"{len(os.listdir(path))} entries"


def made_in(folder: Path) -> str:
    path = folder / f"attack-{os.getpid()}"
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    path.unlink()
    return "made a file"


def signalled(pid: int) -> str:
    os.kill(pid, 0)
    return "it may be signalled"


def connected(path: str) -> str:
    with socket.socket(socket.AF_UNIX) as made:
        made.connect(path)
    return "connected"


def called(function: Callable[..., object], *arguments: object) -> str:
    function(*arguments)
    return "done"


def libc_call(name: str, *arguments: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def mounted() -> str:
    """Of a kind that no kernel knows: that one may is found out first (EPERM), and where one may
    (ENODEV) nothing is mounted."""
    try:
        libc_call("mount", b"none", b"/mnt", _NO_SUCH_KIND, 0, None)
    except OSError as error:
        if error.errno != 19:  # ENODEV
            raise
    return "it may mount"


def namespaced() -> str:
    """Docker's default profile refuses a user namespace, podman's does not; root in it must be
    nobody to what was there before."""
    user, group = os.getuid(), os.getgid()
    libc_call("unshare", _CLONE_NEWUSER | _CLONE_NEWNS)
    for name, content in (
        ("setgroups", "deny"),
        ("uid_map", f"0 {user} 1"),
        ("gid_map", f"0 {group} 1"),
    ):
        Path("/proc/self", name).write_text(content, encoding="ascii")
    wanted: tuple[Callable[[], str], ...] = (
        lambda: read(GITHUB / "workflow/event.json"),
        lambda: appended(TEMPORARY / f"_runner_file_commands/set_env_{SUFFIX}"),
        lambda: read("/proc/1/environ"),
        lambda: connected(SOCKET),
        lambda: appended(GATE / "pyvenv.cfg"),
        lambda: signalled(1),
    )
    why = []
    for attempt in wanted:
        try:
            return attempt()
        except OSError as error:
            why.append(str(error))
    raise Denied("; ".join(why))


def trace(pid: int) -> str:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    if libc.ptrace(_PTRACE_SEIZE, pid, None, None) == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    libc.ptrace(_PTRACE_DETACH, pid, None, None)
    return "it may be traced"


def as_root(command: list[str]) -> str:
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30, check=False
    )
    if done.stdout.strip() != "0":
        raise Denied(f"{command[0]}: {done.stderr.strip() or done.returncode}")
    return "user 0"


def status(name: str) -> str:
    with open("/proc/self/status", encoding="utf-8") as file:
        return next(line.split()[1] for line in file if line.startswith(f"{name}:"))


def capability() -> str:
    held = [
        name for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb") if int(status(name), 16)
    ]
    if not held:
        raise Denied("there is none in any set")
    return ", ".join(held)


def no_new_privileges() -> str:
    if status("NoNewPrivs") == "1":
        raise Denied("no-new-privileges is set")
    return "no-new-privileges is not set"


def package() -> Iterator[Path]:
    """The gate's own files, as it finds them."""
    yield from (GATE / PACKAGES / "repro_gate").rglob("*.py")


def beside_torch() -> Path:
    """Where this training's packages lie."""
    spec = importlib.util.find_spec("torch")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parents[1]


def probe_configuration() -> Path:
    """Where the probe was told to look."""
    return Path(os.environ["REPRO_GATE_PROBE"])


def own_traces() -> Path:
    """This run's folder in that of all runs, which lies in the gate's."""
    return Path(json.loads(probe_configuration().read_text(encoding="utf-8"))["traces"])


def gates_folder() -> Path:
    """The gate's temporary folder."""
    return own_traces().parent.parent


def recorded() -> Iterator[Path]:
    """Files of runs before this one. Their folders' names are no secret, and later runs read the
    first one's files."""
    for name in ("deterministic-1", "default-1", "deterministic-2", "default-2", "reseeded"):
        folder = own_traces().parent / name
        if folder != own_traces() and os.path.isdir(folder):
            yield from sorted(folder.iterdir())


def stay_behind() -> None:
    """A process of its own session, with no parent left, that sleeps on after this run."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for descriptor in range(3):
                os.close(descriptor)
                os.open(os.devnull, os.O_RDWR)
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            os.execv("/bin/sh", ["sh", "-c", "sleep 600; :", _LEFT_BEHIND])
        os._exit(0)


def left_behind() -> str:
    """Whether what an earlier run left running still does."""
    for name in os.listdir("/proc"):
        if name.isdecimal() and int(name) != os.getpid():
            try:
                with open(f"/proc/{name}/cmdline", "rb") as file:
                    if _LEFT_BEHIND.encode() in file.read():
                        return f"process {name} lives"
            except OSError:
                continue
    raise Denied("nothing is left of it")


if __name__ == "__main__":
    main(*sys.argv[1:])
