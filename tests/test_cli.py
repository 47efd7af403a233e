"""The command line: what it prints, how it exits, and that it starts without what only a gate run
needs."""

from __future__ import annotations

import importlib
import json
import pkgutil
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from repro_gate import __version__
from repro_gate.cli import main
from repro_gate.commands.arguments import FORMATS
from repro_gate.sandbox import reexec

HEAVY = ["torch", "numpy", "yaml", "jsonschema", "rich", "jinja2", "requests", "psutil"]
HEAVY += ["subprocess", "asyncio"]


def test_help_imports_nothing_heavy_and_no_command_torch(tmp_path: Path) -> None:
    code = f"""
import sys
sys.argv = ["repro-gate", "--help"]
try:
    from repro_gate.cli import main
    main()
except SystemExit:
    print([name for name in {HEAVY!r} if name in sys.modules])
import repro_gate.gate.run, repro_gate.report.terminal, repro_gate.report.markdown
import repro_gate.commands.compare, repro_gate.commands.init
print("torch" in sys.modules, "numpy" in sys.modules)
"""
    printed = subprocess.check_output([sys.executable, "-c", code], text=True, cwd=tmp_path)
    assert printed.splitlines()[-2:] == ["[]", "False False"]


def test_bad_or_empty_arguments_are_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    for line, code, printed in (
        ("--version", 0, f"repro-gate {__version__}\n"),
        ("", 2, "usage: repro-gate"),
        ("run --sead 1", 2, "usage: repro-gate"),
        ("run --only diagnose", 2, "invalid choice: 'diagnose'"),
        ("diagnose", 2, "invalid choice: 'diagnose'"),
        ("schema ops", 2, "invalid choice: 'ops'"),
        ("run --base ''", 2, "argument --base: is empty"),
        ("run --json ''", 2, "argument --json: is empty"),
    ):
        with pytest.raises(SystemExit) as left:
            main(shlex.split(line))
        assert left.value.code == code and printed in "".join(capsys.readouterr())
    for arguments, title in ((["schema"], "repro.yml"), (["schema", "report"], "report")):
        assert main(arguments) == 0
        assert title in json.loads(capsys.readouterr().out)["title"]


def test_what_starts_a_program_of_the_checkout_holds_no_secret(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reexec, "start_anew", lambda _: sys.exit(77))
    for line in ("run", "run --only diagnosis", "selftest", "baseline", "check --inputs", "ops"):
        monkeypatch.setattr(sys, "argv", ["repro-gate", *line.split()])
        with pytest.raises(SystemExit) as left:
            main()
        assert left.value.code == 77


def test_an_older_report_is_gone_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for option in FORMATS:
        older, other = tmp_path / "older", tmp_path / "other"
        for path in (older, other):
            path.write_text("of another run")
        assert main(["run", str(tmp_path), f"--{option}", str(older)]) == 2
        assert "repro.yml" in capsys.readouterr().err and not older.exists() and other.exists()
    older = tmp_path / "older"
    older.write_text("of another run")
    assert main(["run", str(tmp_path), "--json", str(older), "--junit", str(older)]) == 2
    assert f"--junit {older}: is the file of --json too" in capsys.readouterr().err
    assert older.exists()
    assert main(["run", str(tmp_path), "--json", str(tmp_path / "no" / "report.json")]) == 2
    assert "its folder does not exist" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "more", "code", "said"),
    [
        ("repro.yml", "hardware: {device: cuda}\n", 3, "hardware.device: cuda is required"),
        ("repro.baseline.yml", "version: 1\nentries: {}\n", 2, "repro.baseline.yml:2:"),
    ],
)
def test_a_missing_device_is_inconclusive_and_a_bad_baseline_a_usage_error(
    name: str,
    more: str,
    code: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Before anything is trained."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # where there is a GPU
    (tmp_path / "repro.yml").write_text("version: 1\ntrain: {run: python train.py}\n")
    with open(tmp_path / name, "a") as file:
        file.write(more)
    assert main(["run", str(tmp_path)]) == code
    assert said in capsys.readouterr().err


def test_a_module_that_was_never_installed_is_one_clear_error_and_one_of_ours_is_our_mistake(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(name: str) -> tuple[int, str]:
        monkeypatch.setattr(pkgutil, "resolve_name", lambda _: importlib.import_module(name))
        return main(["run"]), capsys.readouterr().err

    code, error = missing("no_such_module")
    assert code == 2 and f"{sys.executable} has no module no_such_module" in error
    assert "pip install" in error and "Traceback" not in error
    code, error = missing("repro_gate.no_such_module")
    assert code == 3 and "an error inside the gate" in error and "Traceback" in error
