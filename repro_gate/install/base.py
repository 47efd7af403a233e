"""The Python environment that is installed on top of: the training's interpreter is asked where it lies and what it holds.
 The interpreter belongs to the image or to the person, but it is started as the training's user all the same, and what
it says is read within limits.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard

from repro_gate.errors import Inconclusive
from repro_gate.escape import for_terminal
from repro_gate.runs.process import supervise
from repro_gate.sandbox.identity import Isolation

ASK_SECONDS = 60.0
_MOST_SITES, _MOST_TEXT = 20, 4096

# Site folders in their order on sys.path; under -I neither the folder that it starts in nor a person's own (~/.local) is among them, and a
# training finds neither: its HOME is empty. Names of metadata folders carry name and version, so they stand for what is installed.
_ASK = """
import hashlib, importlib.util, json, os, sys, sysconfig
sites = [path for path in sys.path if os.path.basename(path) in ("site-packages", "dist-packages") and os.path.isdir(path)]
marks = (".dist-info", ".egg-info", ".egg-link", ".pth")
held = [[site, sorted(name for name in os.listdir(site) if name.endswith(marks))] for site in sites]
scheme = "venv" if "venv" in sysconfig.get_scheme_names() else "posix_prefix"
print(json.dumps({
    "executable": sys.executable,
    "version": sys.version,
    "platform": sysconfig.get_platform(),
    "sites": sites,
    "held": hashlib.sha256(json.dumps(held).encode()).hexdigest(),
    "purelib": sysconfig.get_path("purelib", scheme, vars={"base": "", "installed_base": "", "platbase": "", "installed_platbase": ""}),
    "scripts": sysconfig.get_path("scripts"),
    "pip": importlib.util.find_spec("pip") is not None,
    "ensurepip": importlib.util.find_spec("ensurepip") is not None,
    "venv": importlib.util.find_spec("venv") is not None,
}))
"""


@dataclass(frozen=True)
class Base:
    """An interpreter with what is installed for it. `purelib` is where distributions lie in a virtual environment of it, relative to it."""

    python: str  # as it is found on PATH
    executable: str
    version: str
    platform: str
    sites: tuple[str, ...]
    held: str  # digest of the distributions' metadata folders
    purelib: str
    scripts: str  # where commands of installed distributions lie
    pip: bool
    ensurepip: bool
    venv: bool

    @property
    def digest(self) -> str:
        """SHA-256 over all that an environment on top of it depends on, in hex."""
        parts = [os.path.realpath(self.executable), self.executable, self.version, self.platform, *self.sites, self.held]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def base_of(python: str, environment: Mapping[str, str], isolation: Isolation) -> Base:
    """What `python` says of itself. Raises Inconclusive where it says nothing that can be used."""
    try:
        ended = supervise(
            [python, "-I", "-c", _ASK],
            cwd=Path("/"),
            env=environment,
            timeout=ASK_SECONDS,
            tick=lambda _: None,
            isolation=isolation,
        )
    except OSError as error:
        raise _unusable(python, error.strerror or str(error)) from None
    if ended.timed_out:
        raise _unusable(python, f"it gave no answer in {ASK_SECONDS:g} s")
    base = next((found for line in reversed(ended.tail) if (found := _read(line, python)) is not None), None)
    if base is None or ended.exit_code:
        said = next((line for line in reversed(ended.tail) if line.strip()), f"it ended with status {ended.exit_code}")
        raise _unusable(python, for_terminal(said.strip(), 300))
    if not base.venv or not (base.pip or base.ensurepip):
        raise _unusable(
            python, "it has no `venv`, or neither `pip` nor `ensurepip`", "install python3-venv and python3-pip (Debian) for it"
        )
    return base


def _read(line: str, python: str) -> Base | None:
    """One line of output as a Base, None where it is none."""
    try:
        found = json.loads(line) if line.startswith("{") else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    texts = [found.get(name) for name in ("executable", "version", "platform", "held", "purelib", "scripts")]
    sites = found.get("sites")
    if not all(_is_text(item) for item in texts) or not _is_paths(sites):
        return None
    executable, version, platform, held, purelib, scripts = map(str, texts)
    flags = [found.get(name) is True for name in ("pip", "ensurepip", "venv")]
    return Base(python, executable, version, platform, tuple(sites), held, purelib.lstrip("/"), scripts, *flags)


def _is_text(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and 0 < len(value) <= _MOST_TEXT and "\0" not in value


def _is_paths(value: object) -> TypeGuard[list[str]]:
    return isinstance(value, list) and len(value) <= _MOST_SITES and all(_is_text(item) and os.path.isabs(item) for item in value)


def _unusable(
    python: str, why: str, remedy: str = "see that it starts as the training's user, or put another one first on PATH"
) -> Inconclusive:
    return Inconclusive(f"env.install: {python} cannot carry an environment: {why}", remedy=remedy, reason_id="install/interpreter")
