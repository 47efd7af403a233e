"""`repro-gate init` as it is called: what it writes, asks and refuses, and which lockfile it
believes."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from repro_gate.cli import main
from repro_gate.commands.init import command as drafting
from repro_gate.spec.loader import load_spec

TRAINING = "import torch\nfor x in loader:\n    loss.backward()\n    optimizer.step()\n"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in ("train.py", "b/train_b.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(TRAINING)
    return tmp_path


def run_of(checkout: Path) -> str | None:
    return load_spec(checkout).train.run


def test_the_script_can_be_named_inside_the_checkout_alone(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder, name in ((checkout / "b", "../train.py"), (checkout, "none.py")):
        assert main(["init", str(folder), "--script", name]) == 2
        assert "is not a Python file or a notebook in" in capsys.readouterr().err
    assert main(["init", str(checkout), "--script", "b/train_b.py"]) == 0
    assert run_of(checkout) == "python b/train_b.py"
    monkeypatch.chdir(checkout / "b")
    assert main(["init", str(checkout), "--force", "--script", "train_b.py"]) == 0
    assert run_of(checkout) == "python b/train_b.py"


def test_a_spec_is_written_anew_only_by_force_and_the_next_command_is_said(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (checkout / "repro.yml").write_text("mine")
    assert main(["init", str(checkout)]) == 2 and "--force" in capsys.readouterr().err
    assert (
        main(["init", str(checkout), "--stdout"]) == 0
        and "python train.py" in capsys.readouterr().out
    )
    assert (checkout / "repro.yml").read_text() == "mine"
    assert main(["init", str(checkout), "--force"]) == 0
    printed = capsys.readouterr().out
    assert (
        f"next: repro-gate run {checkout}" in printed
        and "for train.py (imports torch, calls `.backward(`" in printed
    )
    assert run_of(checkout) == "python train.py"
    assert main(["init", str(checkout / "none")]) == 2


def test_what_has_to_be_filled_in_is_said_before_the_next_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    line = int(printed.split("next: fill in `train.run` at line ")[1].split(",")[0])
    assert (tmp_path / "repro.yml").read_text().splitlines()[line - 1].strip().startswith("run:")


@pytest.mark.parametrize(
    ("answer", "run"), [("x\n9\n2\n", "python b/train_b.py"), ("\n", "python train.py")]
)
def test_a_person_on_a_terminal_is_asked(answer: str, run: str, checkout: Path) -> None:
    own, its = pty.openpty()
    command = [sys.executable, "-m", "repro_gate", "init", str(checkout)]
    with subprocess.Popen(command, stdin=its, stdout=its, stderr=its) as process:
        os.write(own, answer.encode())
        assert process.wait(60) == 0
    shown = os.read(own, 65_536).decode()
    os.close(its)
    os.close(own)
    assert "1  train.py" in shown and "2  b/train_b.py" in shown
    assert run_of(checkout) == run


def test_a_lockfile_of_another_environment_or_that_cannot_be_read_is_left_out(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(
        "PATH", os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    )
    drafting._installed.cache_clear()
    installed = drafting._installed()
    assert installed is not None
    lock, version = checkout / "requirements.lock", installed[1]["rich"]
    lock.write_text(f"rich=={version}.999 --hash=sha256:{'a' * 64}\n")
    (checkout / "uv.lock").write_text("no = [toml")
    (checkout / "requirements-dev.lock").write_text('x @ "\x1b]0;a\x07\r\x85version: 2')
    assert main(["init", str(checkout)]) == 0
    assert load_spec(checkout).env.lockfile is None
    text = (checkout / "repro.yml").read_text()
    assert (
        "requirements.lock is left out: `python` here was not set up from it (installed rich "
        f"{version}" in text
    )
    assert (
        "uv.lock is left out: it cannot be read" in text
        and "requirements-dev.lock is left out" in text
    )
    lock.write_text(
        "".join(
            f"{name}=={number} --hash=sha256:{'a' * 64}\n" for name, number in installed[1].items()
        )
    )
    assert main(["init", str(checkout), "--force"]) == 0
    assert load_spec(checkout).env.lockfile == "requirements.lock"
