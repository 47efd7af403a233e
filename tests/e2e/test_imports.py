"""A package of the checkout that is installed: each run trains the code of its own workspace, or the gate fails and says what to do."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.e2e.gating import Gated, gate, training
from tests.installs import commit, environment_of_its_own, pip_install, project

TRAIN = """
import torch, odepack
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    loss = odepack.RATE * model(torch.randn(8, 4)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def package(folder: Path) -> Path:
    """A checkout whose training, in a folder of its own, imports its package; HEAD~1 has twice HEAD's RATE."""
    code = project(folder, value="0.5")
    training(code, "", files={"scripts/train.py": TRAIN}, run="python scripts/train.py")
    (code / "odepack" / "__init__.py").write_text("from odepack.deep.inner import HERE\nRATE = 1.0\n")
    commit(code, "twice the rate")
    (code / "odepack" / "__init__.py").write_text("from odepack.deep.inner import HERE\nRATE = 0.5\n")
    commit(code, "the rate")
    return code


@pytest.fixture(scope="module")
def editable(tmp_path_factory: pytest.TempPathFactory) -> Gated:
    """The gate on that checkout, installed editable by setuptools' finder, against HEAD~1."""
    folder = tmp_path_factory.mktemp("editable")
    binaries, code = environment_of_its_own(folder / "venv"), package(folder / "code")
    pip_install(binaries, "-e", code)
    return gate(code, "--against", "HEAD~1", out=folder, PATH=f"{binaries}:{os.environ['PATH']}")


def test_against_a_ref_an_editable_package_is_the_refs_own(editable: Gated) -> None:
    assert editable.exit_code == 0, editable.stdout + editable.stderr
    against = editable.report["against"]
    assert against["status"] == "changed", against
    assert against["first_divergence"]["kind"] == "loss" and against["first_divergence"]["step"] == 0
    ours, theirs = (float.fromhex(text) if "x" in text else float(text) for text in map(str, against["first_divergence"]["values"]))
    assert theirs == pytest.approx(2 * ours) or ours == pytest.approx(2 * theirs)


def test_an_editable_package_is_no_finding(editable: Gated) -> None:
    assert editable.check("code/imports-checkout")["status"] == "pass"
    assert editable.check("code/opened-files")["status"] == "pass", editable.check("code/opened-files")


def test_a_copy_of_the_package_fails_and_decides_nothing(tmp_path: Path) -> None:
    binaries, code = environment_of_its_own(tmp_path / "venv"), package(tmp_path / "code")
    pip_install(binaries, code)
    gated = gate(code, "--against", "HEAD~1", out=tmp_path, PATH=f"{binaries}:{os.environ['PATH']}")
    found = gated.check("code/imports-checkout")
    assert gated.exit_code == 1 and "code/imports-checkout" in gated.reason_ids, gated.stdout + gated.stderr
    assert found["status"] == "fail" and "pip install -e" in found["remedy"]
    assert re.search(r"odepack: .*/site-packages/odepack/__init__\.py, a copy that .*installed", "\n".join(found["evidence"])), found
    assert gated.report["against"]["status"] == "inconclusive" and "odepack" in gated.report["against"]["message"]
