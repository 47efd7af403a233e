"""What training imported, compared with what the lockfile pins.

Versions are equal as PEP 440's `==` has it: a local label (`2.13.0+cpu`) counts only where the lock names one, since indexes serve the
same release under several labels and the lock's hash says which of them it was.
"""

from __future__ import annotations

import ast
import configparser
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.markers import InvalidMarker, Marker, UndefinedComparison, UndefinedEnvironmentName
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from repro_gate.files import Unreadable, parse_toml, read_text
from repro_gate.install.lockfiles.model import Lock, Pin

# What sets an environment up is often outside its lock, and the gate's own package may be imported for `record` and `step`.
_TOOLS = frozenset({"pip", "setuptools", "wheel", "pkg-resources", "repro-gate"})
_CHOSEN = re.compile(r"\b(?:extra|extras|dependency_groups)\b")  # markers that a person's choice decides, not the machine
_MAX_BYTES = 1024 * 1024


@dataclass(frozen=True)
class Held:
    """Imported distributions against a lock, as lines of evidence. `open` are those that the lock names without pinning them, `unnamed`
    those that a conda lock does not hold under this name."""

    equal: tuple[str, ...]
    differing: tuple[str, ...]
    absent: tuple[str, ...]
    open: tuple[str, ...]
    unnamed: tuple[str, ...]


def hold(imported: Mapping[str, frozenset[str]], lock: Lock, own: frozenset[str], python: str | None) -> Held:
    """Each imported distribution (name -> versions seen) against the lock's pins for this machine and this Python."""
    pins: dict[str, list[Pin]] = {}
    for pin in lock.pins:
        pins.setdefault(pin.name, []).append(pin)
    equal, differing, absent, loose, unnamed = list[str](), list[str](), list[str](), list[str](), list[str]()
    for given, versions in sorted(imported.items()):
        name = str(canonicalize_name(given))
        here = [pin for pin in pins.get(name, ()) if applies(pin.marker, python)]
        if not here and (name in _TOOLS or name in own or name in lock.own):
            continue
        for version in sorted(versions):
            if not here:
                elsewhere = " (for other machines alone)" if name in pins else ""
                (unnamed if lock.conda else absent).append(f"{given} {version}{elsewhere}")
            elif match := next((pin for pin in here if pin.version is not None and same_version(pin.version, version)), None):
                equal.append(f"{given} {version}" + (f" ({match.version} in the lock)" if match.version != version else ""))
            elif bare := next((pin for pin in here if pin.version is None), None):
                (loose if bare.open else equal).append(f"{given} {version}: {bare.place} names no version")
            else:
                differing.append(f"{given} {version}: {', '.join(sorted({str(pin.version) for pin in here}))} at {here[0].place}")
    return Held(tuple(equal), tuple(differing), tuple(absent), tuple(loose), tuple(unnamed))


def same_version(locked: str, installed: str) -> bool:
    """Whether two versions are the same release; the local label of the installed one counts where the locked one has a label."""
    try:
        wanted, found = Version(locked), Version(installed)
    except InvalidVersion:
        return locked.strip().lower() == installed.strip().lower()
    return wanted == found if wanted.local else wanted == Version(found.public)


def applies(marker: str, python: str | None) -> bool:
    """Whether a lock's marker holds on this machine under the training's Python (`3.12.7`). What cannot be judged holds."""
    if not marker or _CHOSEN.search(marker):
        return True
    environment = {} if python is None else {"python_full_version": python, "python_version": ".".join(python.split(".")[:2])}
    try:
        return Marker(marker).evaluate(environment)
    except (InvalidMarker, UndefinedComparison, UndefinedEnvironmentName, ValueError, RecursionError):
        return True


def own_names(*folders: Path, root: Path) -> frozenset[str]:
    """Names under which the checkout's own code may be installed, from pyproject.toml, setup.cfg and setup.py in these folders."""
    return frozenset(str(canonicalize_name(name)) for folder in folders for name in _declared_names(folder, root) if name)


def _declared_names(folder: Path, root: Path) -> Iterator[str]:
    for file, names in (("pyproject.toml", _from_pyproject), ("setup.cfg", _from_setup_cfg), ("setup.py", _from_setup_py)):
        try:
            yield from names(read_text(folder / file, root, _MAX_BYTES))
        except (Unreadable, configparser.Error, SyntaxError, ValueError, RecursionError, MemoryError):
            continue


def _from_pyproject(text: str) -> Iterator[str]:
    document = parse_toml(text)
    tool = document.get("tool")
    for table in (document.get("project"), tool.get("poetry") if isinstance(tool, dict) else None):
        if isinstance(table, dict) and isinstance(table.get("name"), str):
            yield table["name"]


def _from_setup_cfg(text: str) -> Iterator[str]:
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_string(text)
    yield parser.get("metadata", "name", fallback="")


def _from_setup_py(text: str) -> Iterator[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an odd escape in somebody's setup.py is not ours to report
        tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            for keyword in node.keywords:
                if keyword.arg == "name" and isinstance(keyword.value, ast.Constant) and isinstance(keyword.value.value, str):
                    yield keyword.value.value
