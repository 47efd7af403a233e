"""Claims about reading a config hash out of a report that somebody else may have written."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from repro_gate.baseline.config_hash import InputValue, hash_inputs
from repro_gate.baseline.file import dump_baseline
from repro_gate.cli import main
from repro_gate.commands.hash import load_config_hash
from repro_gate.errors import GateError
from tests.support import recorded
from tests.support.recorded import GPU
from tests.support.reports import PASS, written

_RECIPE: dict[str, InputValue] = {"code": "sha256:ab", "seeds": [42], "steps": None}
_RECIPE |= {"command": "grep '\\d' \udcff", "data/\udcff": {"sha256": "ff", "bytes": 2**60}}
ADDRESS = hash_inputs(_RECIPE, {"python": "3.11.9", "threads": 2, "long": "x" * 60_000})


@pytest.fixture
def report(tmp_path: Path) -> Path:
    return written(tmp_path / "report.json", replace(PASS, config_hash=ADDRESS))


_OTHER = {"recipe": {"\x1b[31m\u202e": 1}, "platform": {}}


@pytest.mark.parametrize("fields", [{"config_hash": "sha256:" + "0" * 64}, {"inputs": _OTHER}])
def test_a_forged_report_is_refused_in_one_line(report: Path, fields: object) -> None:
    document = json.loads(report.read_text())
    document["config_hash"].update(fields)
    report.write_text(json.dumps(document))
    with pytest.raises(GateError, match=r"report\.json: config_hash") as caught:
        load_config_hash(report)
    assert caught.value.message.isprintable() and caught.value.reason_id == "config-hash/forged"


def test_what_has_no_config_hash_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    without = written(tmp_path / "without.json", replace(PASS, config_hash=None))
    with pytest.raises(GateError, match=r"without\.json") as caught:
        load_config_hash(without)
    assert caught.value.reason_id == "config-hash/none"
    path, cpu, gpu = tmp_path / "repro.baseline.yml", recorded.entry(), recorded.entry(platform=GPU)
    path.write_text(dump_baseline(recorded.baseline(cpu)))
    assert main(["hash", str(path), "--quiet"]) == 0
    assert cpu.config_hash in capsys.readouterr().out
    path.write_text(dump_baseline(recorded.baseline(cpu, gpu)))
    assert main(["hash", str(path), "--quiet"]) == 2
    assert "2 platforms" in capsys.readouterr().err
    path.unlink()
    assert main(["hash", str(path), "--quiet"]) == 2


def test_what_hash_wrote_can_be_compared_with_a_report_and_the_diff_names_what_moved(
    report: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hashed = tmp_path / "hashed.json"
    assert main(["hash", str(report), "--json", str(hashed), "--quiet"]) == 0
    assert load_config_hash(hashed) == load_config_hash(report)
    assert main(["hash", "--diff", str(report), str(hashed), "--quiet"]) == 0
    assert capsys.readouterr().out.endswith("same config hash: no input differs\n")
    document = json.loads(hashed.read_text())
    document["inputs"]["recipe"]["steps"] = 7
    hashed.write_text(json.dumps(document))
    assert main(["hash", str(hashed), "--quiet"]) == 2
    assert "hashed.json" in capsys.readouterr().err
    moved = hash_inputs({**_RECIPE, "seeds": [7]}, ADDRESS.inputs.platform)
    other = written(tmp_path / "other.json", replace(PASS, config_hash=moved))
    moves = tmp_path / "moves.json"
    assert main(["hash", "--diff", str(report), str(other), "--json", str(moves), "--quiet"]) == 1
    assert "recipe seeds: [42] -> [7]\n" in capsys.readouterr().out
    (move,) = json.loads(moves.read_text())["changed_inputs"]
    assert move == {"root": "recipe", "name": "seeds", "before": "[42]", "after": "[7]"}
