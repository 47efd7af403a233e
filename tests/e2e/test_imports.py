"""A package of the checkout that is installed: each run trains the code of its own workspace, or
the gate fails and says what to do."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import markupsafe._speedups as extension
import pytest

from repro_gate.checks.opened import IGNORED
from tests.support.gates import gate, training
from tests.support.installs import commit, environment_of_its_own, pip_install, project

TRAIN = """
import random, odepack
from repro_gate import record, step
for _ in range(4):
    record("loss", odepack.RATE * random.random())
    step()
"""


def package(folder: Path, *how: str) -> tuple[Path, str]:
    """A checkout whose training, in a folder of its own, imports its package; HEAD~1 has twice
    HEAD's RATE. And the PATH of an environment in which pip installed it."""
    code = project(folder / "code")
    training(code, "", files={"scripts/train.py": TRAIN}, run="python scripts/train.py")
    for rate, message in (("1.0", "twice the rate"), ("0.5", "the rate")):
        text = f"from odepack.deep.inner import HERE\nRATE = {rate}\n"
        (code / "odepack" / "__init__.py").write_text(text)
        commit(code, message)
    binaries = environment_of_its_own(folder / "venv")
    pip_install(binaries, *how, code)
    return code, f"{binaries}:{os.environ['PATH']}"


@pytest.mark.parametrize("how", [("-e",), ()], ids=["editable", "a copy"])
def test_a_package_is_that_of_the_checkout_or_fails(how: tuple[str, ...], tmp_path: Path) -> None:
    """Installed by setuptools' finder."""
    code, path = package(tmp_path, *how)
    gated = gate(code, "--against", "HEAD~1", out=tmp_path, PATH=path)
    found, against = gated.check("code/imports-checkout"), gated.report["against"]
    if how:
        gated.must(0)
        assert against["status"] == "changed", against
        ours, theirs = against["first_divergence"]["values"]
        assert theirs == pytest.approx(2 * ours) or ours == pytest.approx(2 * theirs)
        assert found["status"] == gated.check("code/opened-files")["status"] == "pass"
    else:
        gated.must(1)
        assert "code/imports-checkout" in gated.reason_ids and "pip install -e" in found["remedy"]
        copy = r"odepack: .*/site-packages/odepack/__init__\.py, an installed copy"
        assert re.search(copy, "\n".join(found["evidence"])), found
        assert against["status"] == "inconclusive" and "odepack" in against["message"]


@pytest.mark.slow
def test_what_git_ignores_is_named_where_another_ref_trained_on_it_too(tmp_path: Path) -> None:
    """More of what a run reads: tests/checks."""
    code, path = package(tmp_path, "-e")
    suffix = os.path.basename(str(extension.__file__)).partition(".")[2]
    shutil.copy(str(extension.__file__), code / "odepack" / f"_speedups.{suffix}")
    (code / "scripts" / "train.py").write_text("import odepack._speedups\n" + TRAIN)
    commit(code, "extension")
    commit(code, "another commit")
    gated = gate(code, "--against", "HEAD~1", out=tmp_path, PATH=path)
    evidence = gated.must_warn("code/imports-checkout")["evidence"]
    assert evidence == [f"odepack._speedups: {code}/odepack/_speedups.{suffix}, {IGNORED}"]
    assert "odepack._speedups" in gated.report["against"]["message"]
