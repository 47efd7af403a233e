"""Claims about docs/config-hash.md."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from repro_gate.baseline.config_hash import InputValue, hash_inputs
from repro_gate.baseline.inputs import code_digest, platform_inputs, recipe_inputs
from repro_gate.report.document import render
from repro_gate.spec.model import Spec
from tests.support.reports import PASS
from tests.support.repositories import write

PAGE = (Path(__file__).resolve().parents[2] / "docs/config-hash.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert found
    return found.group(1)


def test_the_page_names_every_input_and_its_programs_give_the_hashes(tmp_path: Path) -> None:
    inputs: dict[str, InputValue] = {"code": "sha256:ab", "seeds": [42, 2**60]}
    inputs |= {"x": {"\U0001f600": 1.5, "\ufb33": None}, "data/\udcff\\": True}
    made = hash_inputs(inputs, {"python": "3.11.9"})
    (tmp_path / "report.json").write_text(render(replace(PASS, config_hash=made)))
    (tmp_path / "recompute.py").write_text(block("python"))
    command = [sys.executable, "recompute.py", "report.json"]
    printed = subprocess.check_output(command, cwd=tmp_path, text=True)
    assert printed.strip() == made.config_hash
    write(tmp_path, train_dot_py="print(1)", pkg__model_dot_py="x = 1", run_dot_sh="#!/bin/sh")
    (tmp_path / "run.sh").chmod(0o755)
    (tmp_path / "link").symlink_to("pkg")
    printed = subprocess.check_output(["bash", "-c", block("bash")], cwd=tmp_path, text=True)
    assert code_digest(tmp_path, ()) == f"sha256:{printed.split()[0]}"
    names = {*recipe_inputs(Spec(path=Path("/repro.yml")), "", (), None)}
    for device in ("cpu", "cuda"):
        names |= {*platform_inputs({"device": device}, {}, None)}
    flags = {name for name in names if name.startswith("flag/")}
    assert [name for name in names - flags if f"`{name}`" not in PAGE] == []
