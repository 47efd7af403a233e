"""Wheels, source archives and locks made in a test, to install from with no network."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import http.server
import io
import os
import sys
import tarfile
import textwrap
import threading
import zipfile
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from repro_gate.spec.model import Env, Spec, Train

# A build backend inside the source archive itself: it needs nothing from an index.
_BACKEND = """
import json, os, zipfile

def build_wheel(folder, config_settings=None, metadata_directory=None):
    said = {{}}
    {before}
    files = {{
        "built.py": "SAID = %r\\n" % json.dumps(said),
        "built-1.0.dist-info/METADATA": "Metadata-Version: 2.1\\nName: built\\nVersion: 1.0\\n",
        "built-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
        "built-1.0.dist-info/RECORD": "",
    }}
    with zipfile.ZipFile(os.path.join(folder, "built-1.0-py3-none-any.whl"), "w") as made:
        for name, text in files.items():
            made.writestr(name, text)
    return "built-1.0-py3-none-any.whl"
"""
SYSTEM = os.pathsep.join([os.path.dirname(sys.executable), os.defpath])


def wheel(folder: Path, name: str, version: str, files: Mapping[str, str] | None = None) -> str:
    """A wheel of one module that says its version, and of `files`; its line for a lock."""
    info = f"{name}-{version}.dist-info"
    content = {
        **(files or {}),
        f"{name}.py": f"VERSION = {version!r}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = [f"{path},sha256={_digest(text)},{len(text.encode())}" for path, text in content.items()]
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}-{version}-py3-none-any.whl"
    content[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,"]) + "\n"
    with zipfile.ZipFile(file, "w") as archive:
        for path, text in content.items():
            archive.writestr(path, text)
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


def builds(before: str = "pass") -> dict[str, str]:
    """The files of a source archive of `built` 1.0. Its build runs `before`, which may write down
    in `said` what it could do."""
    system = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    project = '[project]\nname = "built"\nversion = "1.0"\n'
    code = textwrap.indent(textwrap.dedent(before), "    ").strip()
    return {"pyproject.toml": system + project, "backend.py": _BACKEND.format(before=code)}


def line(name: str, version: str, file: Path) -> str:
    return f"{name}=={version} --hash=sha256:{hashlib.sha256(file.read_bytes()).hexdigest()}\n"


def checkout(folder: Path, lock: str, name: str = "requirements.lock") -> Spec:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(lock)
    train = Train(run="python train.py")
    return Spec(path=folder / "repro.yml", train=train, env=Env(name, install=True))


def outer(index: Path, path: str = SYSTEM) -> dict[str, str]:
    """The gate's environment: uv finds the wheels in `index` and nothing else."""
    return {"PATH": path, "UV_OFFLINE": "1", "UV_FIND_LINKS": str(index), "HOME": "/nonexistent"}


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


@contextlib.contextmanager
def index_of(folder: Path) -> Iterator[str]:
    """A package index of a folder's files, on this machine's loopback."""
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
