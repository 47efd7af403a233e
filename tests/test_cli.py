"""The command line: what it prints, how it exits, and that it starts without what only a gate run
needs."""

from __future__ import annotations

import importlib
import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from repro_gate import __version__, cli
from repro_gate.cli import main
from repro_gate.commands.arguments import FORMATS, Format

HEAVY = ["torch", "numpy", "yaml", "jsonschema", "rich", "jinja2", "requests", "psutil"]
HEAVY += ["subprocess", "asyncio"]


def test_help_imports_nothing_that_only_a_gate_run_needs_and_no_command_imports_torch(
    tmp_path: Path,
) -> None:
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


@pytest.mark.parametrize(
    ("line", "code", "printed"),
    [
        ("--version", 0, f"repro-gate {__version__}\n"),
        ("", 2, "usage: repro-gate"),
        ("rnu", 2, "usage: repro-gate"),
        ("run --sead 1", 2, "usage: repro-gate"),
        ("run --seed x", 2, "usage: repro-gate"),
        ("compare one", 2, "usage: repro-gate"),
        ("run --base ''", 2, "argument --base: is empty"),
        ("run --json ''", 2, "argument --json: is empty"),
        ("run --keep-traces ''", 2, "argument --keep-traces: is empty"),
    ],
)
def test_the_version_is_the_packages_and_bad_or_empty_arguments_are_a_usage_error(
    line: str, code: int, printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main(shlex.split(line))
    assert left.value.code == code and printed in "".join(capsys.readouterr())


def test_a_bad_spec_is_said_by_line_and_column_all_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "repro.yml").write_text(
        "version: 1\ntrain:\n  run: python train.py\n  stpes: 10\n  warmup: many\ncolour: red\n"
    )
    assert main(["run", str(tmp_path / "repro.yml")]) == 2
    said = capsys.readouterr().err
    for place in ("repro.yml:4:3:", "repro.yml:5:11:", "repro.yml:6:1:", "did you mean `steps`?"):
        assert place in said


@pytest.mark.parametrize("form", FORMATS, ids=[form.option for form in FORMATS])
def test_an_older_report_is_gone_before_anything_can_go_wrong(
    form: Format, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    older, other = tmp_path / "older", tmp_path / "other"
    for path in (older, other):
        path.write_text("of another run")
    assert main(["run", str(tmp_path), f"--{form.option}", str(older)]) == 2
    assert "repro.yml" in capsys.readouterr().err and not older.exists() and other.exists()


def test_a_report_that_cannot_be_written_is_said_before_the_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    older = tmp_path / "older"
    older.write_text("of another run")
    assert main(["run", str(tmp_path), "--json", str(older), "--junit", str(older)]) == 2
    assert f"--junit {older}: is the file of --json too" in capsys.readouterr().err
    assert older.exists()
    assert main(["run", str(tmp_path), "--json", str(tmp_path / "no" / "report.json")]) == 2
    assert "its folder does not exist" in capsys.readouterr().err


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="this machine has a GPU")
def test_a_required_gpu_that_is_missing_is_inconclusive(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "repro.yml").write_text(
        "version: 1\ntrain: {run: python train.py}\nhardware: {device: cuda}\n"
    )
    assert main(["run", str(tmp_path)]) == 3
    assert "shows no GPU" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["schema"], ["schema", "--report"], ["schema", "--ops"]])
def test_schema_prints_json(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["$schema"] == "https://json-schema.org/draft/2020-12/schema"


@pytest.mark.parametrize(
    ("known", "typo"), [("wall-clock", "wall-clok"), ("run/crashed", "run/crashd")]
)
def test_explain_prints_the_page_of_a_cause_or_a_reason_and_guesses_what_was_meant(
    known: str, typo: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", known]) == 0 and capsys.readouterr().out.startswith(f"# {known}\n")
    assert main(["explain", typo]) == 2 and f"`{known}`" in capsys.readouterr().err


def test_a_module_that_was_never_installed_is_one_clear_error_and_one_of_ours_is_our_mistake(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(name: str) -> tuple[int, str]:
        monkeypatch.setitem(cli._COMMANDS, "run", lambda _: importlib.import_module(name))
        return main(["run"]), capsys.readouterr().err

    code, error = missing("no_such_module")
    assert code == 2 and f"{sys.executable} has no module no_such_module" in error
    assert "pip install" in error and "Traceback" not in error
    code, error = missing("repro_gate.no_such_module")
    assert code == 3 and "an error inside the gate" in error and "Traceback" in error
