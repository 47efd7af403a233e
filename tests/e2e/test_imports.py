"""A package of the checkout that is installed: each run trains the code of its own workspace, or
the gate fails and says what to do."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import markupsafe._speedups as extension
import pytest

from repro_gate.checks.opened import ABSOLUTE, IGNORED
from tests.support.gates import Gated, gate, training
from tests.support.installs import commit, environment_of_its_own, pip_install, project

TRAIN = """
import random, odepack
from repro_gate import record, step
for _ in range(4):
    record("loss", odepack.RATE * random.random())
    step()
"""


def package(folder: Path) -> Path:
    """A checkout whose training, in a folder of its own, imports its package; HEAD~1 has twice
    HEAD's RATE."""
    code = project(folder, value="0.5")
    training(code, "", files={"scripts/train.py": TRAIN}, run="python scripts/train.py")
    (code / "odepack" / "__init__.py").write_text(
        "from odepack.deep.inner import HERE\nRATE = 1.0\n"
    )
    commit(code, "twice the rate")
    (code / "odepack" / "__init__.py").write_text(
        "from odepack.deep.inner import HERE\nRATE = 0.5\n"
    )
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
    assert editable.exit_code == 0, editable.said
    against = editable.report["against"]
    assert against["status"] == "changed", against
    assert (
        against["first_divergence"]["kind"] == "loss" and against["first_divergence"]["step"] == 0
    )
    ours, theirs = against["first_divergence"]["values"]
    assert theirs == pytest.approx(2 * ours) or ours == pytest.approx(2 * theirs)


def test_an_editable_package_is_no_finding(editable: Gated) -> None:
    assert editable.check("code/imports-checkout")["status"] == "pass"
    assert editable.check("code/opened-files")["status"] == "pass", editable.check(
        "code/opened-files"
    )


def test_a_copy_of_the_package_fails_and_decides_nothing(tmp_path: Path) -> None:
    binaries, code = environment_of_its_own(tmp_path / "venv"), package(tmp_path / "code")
    pip_install(binaries, code)
    gated = gate(code, "--against", "HEAD~1", out=tmp_path, PATH=f"{binaries}:{os.environ['PATH']}")
    found = gated.check("code/imports-checkout")
    assert gated.exit_code == 1 and "code/imports-checkout" in gated.reason_ids, gated.said
    assert found["status"] == "fail" and "pip install -e" in found["remedy"]
    assert re.search(
        r"odepack: .*/site-packages/odepack/__init__\.py, a copy that .*installed",
        "\n".join(found["evidence"]),
    ), found
    assert (
        gated.report["against"]["status"] == "inconclusive"
        and "odepack" in gated.report["against"]["message"]
    )


@pytest.mark.slow
def test_what_git_ignores_is_named_and_each_file_has_the_remedy_that_fits(tmp_path: Path) -> None:
    binaries, code = environment_of_its_own(tmp_path / "venv"), package(tmp_path / "code")
    pip_install(binaries, "-e", code)
    source, suffix = (
        str(extension.__file__),
        os.path.basename(str(extension.__file__)).partition(".")[2],
    )
    shutil.copy(source, code / "odepack" / f"_speedups.{suffix}")
    (code / "build").mkdir(exist_ok=True)
    opening = f"""
import json, odepack._speedups
for path in ["{code}/settings.yaml", "{code}/build/local.yaml", *(f"{tmp_path}/corpus/{{n}}.json" for n in range(100))]:
    with open(path) as file:
        file.read()
"""
    (tmp_path / "corpus").mkdir()
    for path in [
        code / "settings.yaml",
        code / "build" / "local.yaml",
        *(tmp_path / "corpus" / f"{n}.json" for n in range(100)),
    ]:
        path.write_text("{}")
    (code / "scripts" / "train.py").write_text(opening + TRAIN)
    commit(code, "settings")
    (code / "README.md").write_text("another commit")
    commit(code, "readme")
    gated = gate(code, "--against", "HEAD~1", out=tmp_path, PATH=f"{binaries}:{os.environ['PATH']}")
    assert gated.exit_code == 0, gated.said
    found = {
        name: gated.check(name)
        for name in ("code/imports-checkout", "code/opened-files", "data/undeclared-reads")
    }
    assert {item["status"] for item in found.values()} == {"warn"}
    named = f"odepack._speedups: {code}/odepack/_speedups.{suffix}, in the original checkout"
    assert found["code/imports-checkout"]["evidence"] == [named]
    assert found["code/opened-files"]["evidence"] == [
        f"{code}/build/local.yaml (opened by scripts/train.py:4): {IGNORED}",
        f"{code}/settings.yaml (opened by scripts/train.py:4): {ABSOLUTE}",
    ]
    assert (
        "by relative paths; let `train.run` make what git ignores"
        in found["code/opened-files"]["remedy"]
    )
    assert found["data/undeclared-reads"]["evidence"] == [
        f"{tmp_path}/corpus/: 100 files (opened by scripts/train.py:4)"
    ]
    assert gated.report["against"]["status"] == "no-op"
    assert (
        "both ran the same odepack._speedups (1 modules that git ignores)"
        in gated.report["against"]["message"]
    )
