"""`repro-gate check --inputs`: what is printed and written of the config hash. The checks themselves
are in `tests/gate/test_evidence.py`, the inputs in `tests/baseline/test_build.py`."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from repro_gate.baseline.config_hash import ConfigHash, hash_inputs
from repro_gate.cli import main
from repro_gate.commands import check


def test_inputs_are_printed_and_written_and_nothing_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hashed = hash_inputs({"code": "ab", "train.env/\x1b[31m": "::error::x"}, {"threads": 2})
    monkeypatch.setattr(check, "config_hash_of_checkout", lambda *_, **__: hashed)
    (tmp_path / "repro.yml").write_text("version: 1\ntrain: {run: python train.py}\n")
    out = tmp_path / "inputs.json"
    assert main(["check", str(tmp_path), "--inputs", "--json", str(out), "--quiet"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"{hashed.config_hash}  config\n") and "\n    threads  2\n" in printed
    assert "train.env/\\x1b[31m" in printed and "\x1b" not in printed and "checked" not in printed
    assert msgspec.json.decode(out.read_bytes(), type=ConfigHash) == hashed
