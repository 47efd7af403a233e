"""Prints what a program sees in the image, as one line of JSON: started there by `test_image` with
the gate's own interpreter.

Standard library only. Its argument is the number of the training's user; `/hostile` is a checkout
that would like to be imported.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

GATE = ("/opt/repro-gate/bin/python", "-I")
BUILDERS = "gcc cc g++ make ld as dpkg-buildpackage pip pip3 curl wget uv patchelf".split()  # noqa: SIM905
NEEDED = ("git", "python", "python3")
_TOP = ("boot", "etc", "home", "opt", "root", "srv", "tmp", "usr", "var")
_LISTS = ("/var/lib/apt/lists/", "/var/cache/apt/archives/")
_MODULES = (
    "import importlib.util as u; print(*[name for name in ('pip', 'setuptools', 'torch', 'numpy') "
    "if u.find_spec(name)])"
)
_VERSION = "import repro_gate._version as found; print(found.__version__)"
_COMPILED = "import os, repro_gate.gate.run as found; print(os.path.exists(found.__cached__))"
_TRAINING = """
import os, sys, numpy, torch
print(torch.__version__, torch.version.cuda or "none", numpy.__version__, sys.prefix, os.path.exists(torch.__cached__))
"""


def main(user: int) -> None:
    """Gather and print."""
    files = list(_files())
    known = pwd.getpwuid(user)
    home = {**os.environ, "HOME": "/tmp"}
    hostile = {**os.environ, "PYTHONPATH": "/hostile"}
    facts = {
        "environment": dict(os.environ),
        "user": os.getuid(),
        "training": [known.pw_name, known.pw_gid, known.pw_dir, known.pw_shell],
        "builders": [name for name in BUILDERS if shutil.which(name)],
        "missing": [name for name in NEEDED if shutil.which(name) is None],
        "python": shutil.which("python"),
        "raised": [path for path, mode in files if mode & (stat.S_ISUID | stat.S_ISGID)],
        "writable": [
            path for path, mode in files if mode & stat.S_IWOTH and not mode & stat.S_ISVTX
        ],
        "caches": [path for path, _ in files if "/.cache/" in path or path.startswith(_LISTS)],
        "gate_modules": said(*GATE, "-c", _MODULES),
        "gate_version": said(*GATE, "-c", _VERSION),
        "gate_compiled": said(*GATE, "-c", _COMPILED),
        "training_modules": said("python", "-c", _TRAINING, env=home),
        "hostile": said(*GATE, "-m", "repro_gate", "--help", cwd="/hostile", env=hostile),
        "environment_on_top": said("python", "-m", "venv", "--system-site-packages", "/tmp/venv"),
        "release": Path("/etc/os-release").read_text(encoding="utf-8"),
    }
    print(json.dumps(facts))


def said(*command: str, cwd: str = "/", env: dict[str, str] | None = None) -> str:
    """What a program prints; what went wrong where it fails."""
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=cwd, env=env, timeout=240, check=False
    )
    return done.stdout.strip() if done.returncode == 0 else f"error: {done.stderr.strip()}"


def _files() -> Iterator[tuple[str, int]]:
    """(path, mode) of everything on the image's own file system but links, whose mode means
    nothing."""
    for top in _TOP:
        for folder, folders, names in os.walk(f"/{top}"):
            for name in (*folders, *names):
                path = os.path.join(folder, name)
                mode = os.lstat(path).st_mode
                if not stat.S_ISLNK(mode):
                    yield path, mode


if __name__ == "__main__":
    main(int(sys.argv[1]))
