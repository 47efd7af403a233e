"""conda-lock.yml (version 1): a list of packages, one for each platform, conda's and pip's."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from repro_gate.files import Unreadable, read_text
from repro_gate.install.lockfiles.model import MAX_BYTES, Lock, LockfileError, Package, build_lock, strong
from repro_gate.install.yaml_scalars import YamlFault, scalars

# Packages that conda names otherwise than Python does, as far as training imports them.
_DISTRIBUTIONS = {
    "pytorch": "torch",
    "pytorch-cpu": "torch",
    "pytorch-gpu": "torch",
    "py-opencv": "opencv-python",
    "matplotlib-base": "matplotlib",
    "msgpack-python": "msgpack",
    "tensorflow-base": "tensorflow",
    "python-flatbuffers": "flatbuffers",
}


def read(path: Path, root: Path) -> Lock:
    """Every package of every platform. Raises LockfileError."""
    shown = os.path.relpath(path, root)
    try:
        text = read_text(path, root, MAX_BYTES)
        packages = list(_packages(text, shown))
    except Unreadable as error:
        raise LockfileError(f"{shown}: {error}") from None
    except YamlFault as error:
        raise LockfileError(f"{shown}:{error.line}: is no YAML: {error}") from None
    return build_lock("conda-lock", packages, [shown], path.parent, root, conda=True)


def _packages(text: str, shown: str) -> Iterator[Package]:
    index, line = -1, 1
    entry: dict[str, str] = {}
    for item in scalars(text):
        match item.path:
            case ("version",) if item.value != "1":
                raise LockfileError(f"{shown}:{item.line}: its version is {item.value[:20]}, the gate reads version 1")
            case ("package", int(number), *keys):
                if number != index:
                    if entry:
                        yield _package(entry, f"{shown}:{line}")
                    index, line, entry = number, item.line, {}
                entry["/".join(str(key) for key in keys)] = item.value
    if entry:
        yield _package(entry, f"{shown}:{line}")


def _package(entry: dict[str, str], place: str) -> Package:
    name, version = entry.get("name"), entry.get("version")
    if not name:
        return Package("", None, place, fault="a package without a name")
    digests = [f"{algorithm}:{entry[f'hash/{algorithm}']}" for algorithm in ("sha256", "md5") if f"hash/{algorithm}" in entry]
    best = next((digest for digest in digests if strong(digest)), next(iter(digests), None))
    known = name if entry.get("manager") == "pip" else _DISTRIBUTIONS.get(name, name)
    return Package(known, version or None, place, () if best is None else (best,))
