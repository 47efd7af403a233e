"""Where the runs' folder lies: in the one that spec or command line names, alone and removed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from repro_gate.checkout.inspection import inspect_checkout
from repro_gate.errors import UsageError
from repro_gate.runs.gate_folder import open_gate_folder
from repro_gate.sandbox.identity import Sandbox
from repro_gate.spec.loader import load_spec
from tests.support.gates import LOOP, call, gate, training
from tests.support.starting import OTHER, SAME


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    folder = tmp_path / "scratch"
    folder.mkdir()
    return folder


def opened(code: Path, scratch: Path | str, sandbox: Sandbox = SAME) -> Path:
    """The runs' folder for a spec that names a scratch folder, after it was closed."""
    spec = load_spec(training(code, LOOP), [f"scratch={json.dumps(str(scratch))}"])
    with open_gate_folder(spec, inspect_checkout(code), os.environ, sandbox) as folder:
        assert folder.path.stat().st_mode & 0o777 == 0o700
        return folder.path


def test_the_spec_names_the_folder_and_nothing_is_left_in_it(tmp_path: Path, scratch: Path) -> None:
    assert opened(tmp_path / "code", "../scratch").parent == scratch
    # the machine's name stands in it, since machines that share the folder may not share locks
    assert os.uname().nodename in opened(tmp_path / "code", scratch).name
    assert [*scratch.iterdir()] == []


def test_a_folder_that_is_not_there_or_in_the_checkout_is_refused(tmp_path: Path) -> None:
    code = tmp_path / "code"
    with pytest.raises(UsageError, match=r"scratch: \S+/none is not a folder that exists"):
        opened(code, tmp_path / "none")
    (code / "inside").mkdir()
    with pytest.raises(UsageError, match="lies in the checkout"):
        opened(code, "inside")


def test_a_training_with_its_own_user_cannot_replace_what_lies_there(
    tmp_path: Path, scratch: Path
) -> None:
    scratch.chmod(0o777)
    with pytest.raises(UsageError, match="can be written to by the training"):
        opened(tmp_path / "code", scratch, OTHER)
    assert opened(tmp_path / "code", scratch).parent == scratch


def test_the_command_line_wins_and_is_repeated_by_the_command_that_reproduces(
    tmp_path: Path, scratch: Path
) -> None:
    is_there = f"import os; assert os.getcwd().startswith({str(scratch)!r})"
    folder = training(tmp_path / "code", LOOP.replace("# here", is_there))
    with (folder / "repro.yml").open("a") as file:
        file.write("scratch: none\n")
    gated = gate(folder, "--scratch", scratch, "--set", "robustness.vary=false", out=tmp_path)
    gated.must(0)
    assert f'scratch="{scratch}"' in gated.report["reproduce"]
    assert [*scratch.iterdir()] == []
    done = call("run", folder)
    assert (done.returncode, "none is not a folder" in done.stderr) == (2, True)
