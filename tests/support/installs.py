"""Virtual environments into which the real pip installs a checkout's package."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import repro_gate
from tests.support.repositories import commit, git

BACKENDS = {"setuptools": "setuptools.build_meta", "hatchling": "hatchling.build"}


def environment_of_its_own(folder: Path) -> Path:
    """A virtual environment that also sees what the tests' own has (torch, pip, the build backends,
    repro_gate); its `bin`."""
    make = [sys.executable, "-m", "venv", "--without-pip", folder]
    subprocess.run(make, check=True, capture_output=True)
    seen = [sysconfig.get_paths()["purelib"], str(Path(repro_gate.__file__).parents[1])]
    for name in BACKENDS:
        found = importlib.util.find_spec(name)
        seen += [str(Path(found.origin).parents[1])] if found is not None and found.origin else []
    [site] = folder.glob("lib/python*/site-packages")
    (site / "00-of-the-tests.pth").write_text("".join(f"{path}\n" for path in dict.fromkeys(seen)))
    return folder / "bin"


def project(
    folder: Path,
    layout: str = "flat",
    backend: str = "setuptools",
    more: str = "",
    name: str = "odepack",
) -> Path:
    """A committed checkout with the package `odepack`, whose RATE is 0.5, and room for scripts
    in `scripts/`."""
    base = folder / "src" if layout == "src" else folder
    (base / name / "deep").mkdir(parents=True)
    top = f"from {name}.deep.inner import HERE\nRATE = 0.5\n"
    (base / name / "__init__.py").write_text(top)
    # `deep` is a namespace: it has no __init__.py
    (base / name / "deep" / "inner.py").write_text("HERE = __file__\n")
    text = f'[build-system]\nrequires = ["{backend}"]\nbuild-backend = "{BACKENDS[backend]}"\n'
    text += f'[project]\nname = "{name}"\nversion = "1.0"\n'
    if backend == "setuptools":
        where = f'where = ["{base.relative_to(folder)}"]\ninclude = ["{name}*"]\n'
        text += f"[tool.setuptools.packages.find]\n{where}"
    (folder / "pyproject.toml").write_text(text + more)
    (folder / ".gitignore").write_text("build/\n*.egg-info/\n__pycache__/\n*.so\n_version.py\n")
    git(folder, "init", "-q")
    commit(folder)
    return folder


def pip_install(binaries: Path, *arguments: str | Path) -> None:
    """`pip install ARGUMENTS` without a network, by the interpreter of an environment."""
    if importlib.util.find_spec("pip") is None:
        pytest.skip("the tests' environment has no pip")
    offline = ("--no-index", "--no-deps", "--no-build-isolation")
    command = [binaries / "python", "-m", "pip", "install", "-q", *offline, *arguments]
    environment = {**os.environ, "PIP_CONFIG_FILE": os.devnull}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
