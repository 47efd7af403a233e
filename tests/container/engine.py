"""The container engine of this machine: Docker where its daemon answers, else podman and buildah,
started so that they work inside another container too. Called by `image`, which builds with it, and
by `runner`, which starts the action with it.

Podman keeps everything in a storage of its own below the user's cache folder, so that no image of
the person's is touched or seen.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

STORE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "repro-gate-container"
UNIFIED = Path("/sys/fs/cgroup/unified")
# What Docker grants a container by default and podman does not: the action gets what it would get
# on GitHub, no less and no more.
_AS_DOCKER = ("--cap-add", "AUDIT_WRITE,MKNOD,NET_RAW")


@dataclass(frozen=True)
class Engine:
    """How to call one engine. `build` takes options and a context, `client` any other command,
    `run` what follows `run`."""

    name: str
    build: tuple[str, ...]
    client: tuple[str, ...]
    run: tuple[str, ...]

    def ask(self, *arguments: str) -> str:
        """What the client prints. Raises CalledProcessError."""
        return subprocess.run(
            [*self.client, *arguments], check=True, capture_output=True, text=True, timeout=300
        ).stdout.strip()

    def has(self, image: str) -> bool:
        """Whether an image of that name is there."""
        command = [*self.client, "image", "inspect", image]
        done = subprocess.run(command, capture_output=True, timeout=60, check=False)
        return done.returncode == 0


@cache
def engine() -> Engine | str:
    """The engine, or the reason why there is none."""
    if shutil.which("docker") and _answers(["docker", "info"]):
        return Engine("docker", ("docker", "build"), ("docker",), ("docker", "run"))
    missing = [
        name for name in ("podman", "buildah", "crun", "debootstrap") if shutil.which(name) is None
    ]
    if missing:
        return (
            f"neither a Docker daemon answers here, nor is there {', '.join(missing)}: `.ci/system "
            "container` installs it"
        )
    if os.geteuid() != 0:
        return (
            "podman is used as root only (the runner's files belong to another user than the "
            "action's): sudo, or start a Docker daemon"
        )
    STORE.mkdir(parents=True, exist_ok=True)
    place = (f"--root={STORE}/storage", f"--runroot={STORE}/run", f"--storage-driver={_driver()}")
    limits = ("--ulimit", "nofile=1024:1024")
    client = (*_own_mounts(), "podman", *place)
    build = ("buildah", *place, "bud", "--layers", "--isolation=chroot", "--network=host", *limits)
    run = (
        *client,
        "run",
        *limits,
        "--ulimit",
        "nproc=1024:1024",
        "--cgroups=disabled",
        *_AS_DOCKER,
    )
    return Engine("podman", build, client, run)


def _answers(command: Sequence[str]) -> bool:
    try:
        return subprocess.run(command, capture_output=True, timeout=30, check=False).returncode == 0
    except (OSError, subprocess.SubprocessError):
        return False


def _driver() -> str:
    """`overlay` starts a container in a tenth of a second; where folders cannot be laid over each
    other, `vfs` copies the whole image."""
    trial = STORE / "trial"
    parts = {name: trial / name for name in ("lower", "upper", "work", "merged")}
    for path in parts.values():
        path.mkdir(parents=True, exist_ok=True)
    options = f"lowerdir={parts['lower']},upperdir={parts['upper']},workdir={parts['work']}"
    try:
        # in a mount namespace of its own: nothing of it is left behind
        mount = ["mount", "-t", "overlay", "overlay", "-o", options, str(parts["merged"])]
        works = _answers(["unshare", "--mount", *mount])
    finally:
        shutil.rmtree(trial)
    return "overlay" if works else "vfs"


def _own_mounts() -> tuple[str, ...]:
    """crun refuses a machine on which version 2 of the control groups has controllers beside
    version 1, `--cgroups=disabled` or not.

    So podman is started where version 2 is not to be seen, in a mount namespace of its own; the
    machine's mounts stay as they are.
    """
    controllers = UNIFIED / "cgroup.controllers"
    if not controllers.exists() or not controllers.read_text(encoding="ascii").strip():
        return ()
    without = ("sh", "-c", f'umount {UNIFIED} && exec "$@"', "sh")
    return ("unshare", "--mount", "--propagation", "private", *without)
