"""Wheels, source archives and locks made in a test: what the tests of `env.install` install from, with no network."""

from __future__ import annotations

import base64
import hashlib
import io
import os
import sys
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

from repro_gate.spec.model import Env, Spec, Train

SYSTEM = os.pathsep.join([os.path.dirname(sys.executable), os.defpath])


def wheel(folder: Path, name: str, version: str, files: Mapping[str, str] | None = None, scripts: Mapping[str, str] | None = None) -> str:
    """A wheel of one module that says its version; its line for a lock. `scripts` are console scripts: name -> `module:function`."""
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    content = {
        f"{name}.py": f"VERSION = {version!r}\n",
        **(files or {}),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        **({f"{info}/entry_points.txt": entries(scripts)} if scripts else {}),
    }
    rows = [f"{path},sha256={_digest(text)},{len(text.encode())}" for path, text in content.items()]
    file = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(file, "w") as archive:
        for path, text in content.items():
            archive.writestr(path, text)
        archive.writestr(f"{info}/RECORD", "\n".join([*rows, f"{info}/RECORD,,"]) + "\n")
    return line(name, version, file)


def archive(folder: Path, name: str, version: str, files: Mapping[str, str]) -> str:
    """A source archive of these files; its line for a lock."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}-{version}.tar.gz"
    info = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    with tarfile.open(file, "w:gz") as made:
        for path, text in {**files, "PKG-INFO": info}.items():
            member = tarfile.TarInfo(f"{name}-{version}/{path}")
            member.size = len(text.encode())
            made.addfile(member, io.BytesIO(text.encode()))
    return line(name, version, file)


def entries(scripts: Mapping[str, str]) -> str:
    return "[console_scripts]\n" + "".join(f"{name} = {target}\n" for name, target in scripts.items())


def line(name: str, version: str, file: Path) -> str:
    return f"{name}=={version} --hash=sha256:{hashlib.sha256(file.read_bytes()).hexdigest()}\n"


def checkout(folder: Path, lock: str, name: str = "requirements.lock", run: str = "python train.py") -> Spec:
    """A checkout with that lock, and its spec."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(lock)
    return Spec(path=folder / "repro.yml", train=Train(run=run), env=Env(name, install=True))


def outer(index: Path, path: str = SYSTEM) -> dict[str, str]:
    """The gate's environment: pip finds the wheels in `index` and nothing else."""
    return {"PATH": path, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(index), "PIP_CONFIG_FILE": os.devnull, "HOME": "/nonexistent"}


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
