"""How the second deterministic run is varied: in everything around the training that must not
matter, and in nothing that disturbs timing.

The gate varies paths, environment and permissions before the process starts; `PROBE` lists what the
probe varies inside it. The values exist on every machine, so that they break no training.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
import time
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from repro_gate.files import walk
from repro_gate.runs.environment import Variables, usable_processors
from repro_gate.runs.flags import HASH_SEED
from repro_gate.spec.model import THREADS, VARIED

DAY = 86_400 * 10**9  # ns
# Name in the spec -> the factor's name in the probe.
PROBE = {
    "hostname": "identity",
    "environment": "environment",
    "clock": "clock",
    "listing": "listing",
    "memory": "memory",
}
# What a name cannot vary.
NOT_VARIED = {
    "path": "files of the checkout that are opened outside it",
    "hostname": "the host name as C code asks for it",
    "clock": "the time as C code asks for it, and durations that libraries measure",
    "listing": "the order of listings that C code reads",
    "memory": "memory that C code reads before it is written",
    "file-times": "the times of declared data, which is linked in",
}
# POSIX has their rules in the name itself, and tzdata knows the names too
_ZONES = ("EST5EDT", "PST8PDT")
# one locale in two spellings: text stays UTF-8 for Python and for what it starts
_LOCALES = ("C.utf8", "C.UTF-8", "POSIX")
_LC_ALL_MASK = 0x1FBF if sys.platform == "linux" else 0x3F  # locale.h


class Places(NamedTuple):
    """The names of a run's own folders below the run folder. Both sets have names of the same
    length, so that limits on path lengths affect both equally."""

    workspace: str = "workspace"
    home: str = "home"
    tmp: str = "tmp"


FIRST = Places()
SECOND = Places("clone-two", "user", "tm2")
_AS_FIRST = dict(zip(SECOND, FIRST, strict=True))
_OF_SECOND = re.compile(f"(/run/)({'|'.join(_AS_FIRST)})(?![^/])")


def places(varied: Collection[str]) -> Places:
    """Return the folders of a run that differs in these names."""
    names = zip(FIRST, SECOND, ("path", "home", "tmpdir"), strict=True)
    return Places(
        *(second if name in varied else first for first, second, name in names)
    )


def environment(
    varied: Collection[str], outer: Variables, arm: Variables
) -> dict[str, str]:
    """Return the varied variables, computed from the gate's own environment and the arm's
    variables."""
    variables = {}
    if "hash-seed" in varied and HASH_SEED in arm:
        variables[HASH_SEED] = str((int(arm[HASH_SEED]) + 1) % 2**32)
    if "timezone" in varied:
        variables["TZ"] = _ZONES[
            outer.get("TZ") == _ZONES[0] or time.timezone == 5 * 3600
        ]
    if "locale" in varied:
        now = outer.get("LC_ALL") or outer.get("LANG") or ""
        others = (name for name in _LOCALES if name != now and _installed(name))
        if other := next(others, ""):
            names = {name for name in outer if name.startswith("LC_") and outer[name]}
            variables |= dict.fromkeys(("LANG", *names), other)
    if THREADS in varied:
        threads = outer.get("OMP_NUM_THREADS", "")
        count = int(threads) if threads.isdecimal() else usable_processors()
        variables |= dict.fromkeys(
            ("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(count // 2 or 2)
        )
    return variables


def umask(varied: Collection[str]) -> int:
    """Return the umask of a run; -1: the gate's own."""
    if "umask" not in varied:
        return -1
    now = os.umask(0o077)
    os.umask(now)
    return 0o022 if now == 0o077 else 0o077


def shift_times(root: Path) -> None:
    """Make every file and folder below `root` a day older, as in a different checkout."""
    for name in ("", *walk(root)):
        path = root / name
        state = path.lstat()
        times = (state.st_atime_ns, state.st_mtime_ns - DAY)
        os.utime(path, ns=times, follow_symlinks=False)


def as_first(text: str) -> str:
    """Return the text with a varied run's folders replaced by those of the first run."""
    return _OF_SECOND.sub(lambda match: match[1] + _AS_FIRST[match[2]], text)


def left_alike(varied: Collection[str]) -> tuple[str, ...]:
    """Return descriptions of what is not varied: names that the spec leaves out, and what the other
    names cannot vary."""
    out = [name for name in VARIED if name not in varied]
    return (*out, *(text for name, text in NOT_VARIED.items() if name in varied))


def _installed(name: str) -> bool:
    """Return whether the C library has a locale of that name, without changing this process's
    locale."""
    newlocale = ctypes.CDLL(None).newlocale
    newlocale.restype = ctypes.c_void_p
    # What it loads stays: a few KiB.
    return bool(newlocale(_LC_ALL_MASK, name.encode(), None))
