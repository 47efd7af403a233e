"""Claims about `probe.checkout_imports`: a package of the checkout comes from the run's workspace
however it is installed, others are left alone, and what came from elsewhere all the same is
noted."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from repro_gate.checkout.inspection import inspect_checkout
from repro_gate.runs.gate_folder import original_of
from repro_gate.runs.launch import Original, Run
from repro_gate.spec.model import Spec, Train
from repro_gate.trace.fields import Imported
from tests.support.gates import tiered
from tests.support.installs import commit, environment_of_its_own, pip_install, project
from tests.support.tracing import trace_script

SHOW = "import odepack\nprint(odepack.__file__, odepack.HERE, odepack.RATE)\n"
LAYOUTS = {
    "setuptools' finder": ("flat", "setuptools", "", ()),
    "setuptools' path": ("src", "setuptools", "", ()),
    "setuptools as it was": (
        "flat",
        "setuptools",
        "",
        ("--config-settings", "editable_mode=compat"),
    ),
    "hatchling's path": ("src", "hatchling", "", ()),
    "hatchling's finder": ("flat", "hatchling", "[tool.hatch.build]\ndev-mode-exact = true\n", ()),
}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The temporary folder, its environment in `venv`."""
    environment_of_its_own(tmp_path / "venv")
    return tmp_path


def traced(
    place: Path,
    code: Path,
    source: str = SHOW,
    *,
    train: str = "train.py",
    name: str = "run",
    observe: bool = False,
) -> Run:
    """One run of a script in a workspace that is a copy of what git tracks, with another RATE in
    it, by the environment's interpreter."""
    workspace = place / "place" / "workspace"
    shutil.rmtree(workspace, ignore_errors=True)
    subprocess.run(["git", "clone", "-q", code, workspace], check=True)
    for init in workspace.glob("**/odepack/__init__.py"):
        init.write_text(init.read_text().replace("RATE = 0.5", "RATE = 0.25"))
    original = original_of(
        Spec(path=code / "repro.yml", train=Train(run="x")), inspect_checkout(code)
    )
    command = f"{place / 'venv' / 'bin' / 'python'} {train}"
    return trace_script(
        place, {train: source}, command=command, name=name, original=original, observe=observe
    )


def imports(run: Run) -> list[Imported]:
    assert run.ended.exit_code == 0, run.ended.tail
    return [item for trace in run.traces for item in trace.imports]


@pytest.mark.parametrize("layout", tiered(LAYOUTS, ("setuptools' finder",)))
def test_an_editable_package_comes_from_the_workspace(layout: str, place: Path) -> None:
    kind, backend, more, options = LAYOUTS[layout]
    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"needs {backend}")
    code = project(place / "code", kind, backend, more)
    pip_install(place / "venv" / "bin", *options, "-e", code)
    run = traced(place, code, train="scripts/train.py")
    base = place / "place" / "workspace" / ("src" if kind == "src" else "") / "odepack"
    assert run.ended.tail == (f"{base}/__init__.py {base}/deep/inner.py 0.25",)
    assert imports(run) == []


def test_a_namespace_comes_from_the_workspace_too(place: Path) -> None:
    code = project(place / "code", "flat")
    (code / "space" / "own").mkdir(parents=True)
    (code / "space" / "own" / "__init__.py").write_text("import odepack\n")
    settings = code / "pyproject.toml"
    settings.write_text(settings.read_text().replace('"odepack*"', '"odepack*", "space*"'))
    commit(code, "a namespace")
    pip_install(place / "venv" / "bin", "-e", code)
    source = "import space.own\nprint(space.own.__file__, space.own.odepack.RATE)\n"
    run = traced(place, code, source, train="scripts/train.py")
    own = place / "place" / "workspace" / "space" / "own" / "__init__.py"
    assert run.ended.tail == (f"{own} 0.25",) and imports(run) == []


def test_the_metadata_of_an_old_link_is_found_beside_the_code(place: Path) -> None:
    code = project(place / "code", "src")
    [site] = (place / "venv").glob("lib/python*/site-packages")
    (site / "easy-install.pth").write_text(f"{code / 'src'}\n")
    (code / "src" / "odepack.egg-info").mkdir()
    (code / "src" / "odepack.egg-info" / "PKG-INFO").write_text("Name: odepack\nVersion: 1.0\n")
    source = (
        "import odepack\nfrom importlib.metadata import version\nprint(odepack.RATE, "
        "version('odepack'))\n"
    )
    assert traced(place, code, source, train="scripts/train.py").ended.tail == ("0.25 1.0",)


@pytest.mark.slow
def test_a_tree_of_links_is_left_as_it_is_and_what_comes_from_it_is_named(place: Path) -> None:
    code = project(place / "code", "src")
    pip_install(place / "venv" / "bin", "--config-settings", "editable_mode=strict", "-e", code)
    run = traced(place, code, train="scripts/train.py")
    assert {item.module for item in imports(run)} == {"odepack", "odepack.deep.inner"}


@pytest.mark.slow
def test_children_import_from_the_workspace_too(place: Path) -> None:
    code = project(place / "code", "src")
    pip_install(place / "venv" / "bin", "-e", code)
    source = """
    import multiprocessing, subprocess, sys
    def show():
        import odepack
        print(odepack.RATE, flush=True)
    if __name__ == "__main__":
        worker = multiprocessing.get_context("spawn").Process(target=show)
        worker.start()
        worker.join()
        subprocess.run([sys.executable, "-c", "import odepack; print(odepack.RATE)"], check=True, env={})
    """
    assert traced(place, code, source, train="scripts/train.py").ended.tail == ("0.25", "0.25")


def test_what_git_ignores_comes_from_the_checkout_and_is_named(place: Path) -> None:
    code = project(place / "code", "src")
    (code / "src" / "odepack" / "_version.py").write_text("version = '1.1'\n")
    import markupsafe._speedups as extension

    suffix = os.path.basename(str(extension.__file__)).partition(".")[2]
    shutil.copy(str(extension.__file__), code / "src" / "odepack" / f"_speedups.{suffix}")
    pip_install(place / "venv" / "bin", "-e", code)
    source = (
        "import odepack._version, odepack._speedups\nprint(odepack._version.version, "
        "odepack.RATE)\n"
    )
    run = traced(place, code, source, train="scripts/train.py")
    assert run.ended.tail == ("1.1 0.25",)
    assert sorted(imports(run), key=lambda item: item.module) == [
        Imported("odepack._speedups", str(code / "src" / "odepack" / f"_speedups.{suffix}")),
        Imported("odepack._version", str(code / "src" / "odepack" / "_version.py")),
    ]


@pytest.mark.slow
def test_a_module_of_another_commit_is_not_taken_from_the_checkout(place: Path) -> None:
    code = project(place / "code", "src")
    pip_install(place / "venv" / "bin", "-e", code)
    (code / "src" / "odepack" / "new.py").write_text("")  # neither in the workspace nor ignored
    source = "try:\n    import odepack.new\nexcept ImportError as error:\n    print(error)\n"
    assert (
        traced(place, code, source, train="scripts/train.py")
        .ended.tail[0]
        .startswith("No module named 'odepack.new'")
    )
    (code / "src" / "odepack" / "new.py").unlink()
    source = "import importlib.metadata\nprint(importlib.metadata.version('odepack'))\n"
    assert traced(place, code, source, name="again").ended.tail == ("1.0",)


@pytest.mark.slow
def test_an_absolute_path_into_the_checkout_is_named(place: Path) -> None:
    code = project(place / "code", "src")
    source = f"import sys\nsys.path.insert(0, {str(code / 'src')!r})\nimport odepack\n"
    found = {item.module: item.path for item in imports(traced(place, code, source))}
    assert found == {
        "odepack": str(code / "src" / "odepack" / "__init__.py"),
        "odepack.deep.inner": str(code / "src" / "odepack" / "deep" / "inner.py"),
    }


@pytest.mark.slow
def test_an_environment_in_the_checkout_is_left_alone(tmp_path: Path) -> None:
    code = project(tmp_path / "code", "flat")
    environment_of_its_own(code / ".venv")
    [site] = (code / ".venv").glob("lib/python*/site-packages")
    (site / "third.py").write_text("RATE = 1\n")
    (tmp_path / "venv").symlink_to(code / ".venv")
    run = traced(tmp_path, code, "import sys, third\nprint(third.__file__)\n")
    assert [os.path.realpath(path) for path in run.ended.tail] == [
        str(site / "third.py")
    ] and imports(run) == []


COPY = """
import odepack
from _repro_gate.probe.sdk import record, step  # the environment need not hold the package
record("loss", 1.0)
step()
"""


@pytest.mark.parametrize("kind", tiered(("flat", "src"), ("src",)))
def test_a_copy_is_named_by_where_pip_took_it_from(kind: str, place: Path) -> None:
    code = project(place / "code", kind)
    pip_install(place / "venv" / "bin", code)
    [site] = (place / "venv").glob("lib/python*/site-packages")
    wanted = [Imported("odepack", str(site / "odepack" / "__init__.py"), "odepack")]
    assert imports(traced(place, code, COPY, train="scripts/train.py", observe=True)) == wanted
    next(
        site.glob("odepack-*.dist-info/direct_url.json")
    ).unlink()  # as `setup.py install` leaves it, or an image that was built elsewhere
    assert (
        imports(traced(place, code, COPY, train="scripts/train.py", name="named", observe=True))
        == wanted
    )


@pytest.mark.slow
def test_a_package_that_is_only_called_like_a_folder_of_the_checkout_is_no_copy(
    place: Path,
) -> None:
    other = project(place / "other", "flat")
    pip_install(place / "venv" / "bin", other)
    code = project(place / "code", "flat", name="trainer")
    (code / "odepack").mkdir()
    (code / "odepack" / "__init__.py").write_text("RATE = 2\n")
    commit(code, "a folder")
    assert imports(traced(place, code, COPY, train="scripts/train.py", observe=True)) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["trainer", "odepack"])
def test_a_link_to_another_clone_is_named_where_it_is_the_same_project(
    name: str, place: Path
) -> None:
    other = project(place / "other", "src")
    pip_install(place / "venv" / "bin", "-e", other)
    code = project(place / "code", "src", name=name)
    found = sorted(
        imports(traced(place, code, train="scripts/train.py")), key=lambda item: item.module
    )
    assert found == (
        []
        if name == "trainer"
        else [
            Imported("odepack", str(other / "src" / "odepack" / "__init__.py"), "odepack"),
            Imported(
                "odepack.deep.inner",
                str(other / "src" / "odepack" / "deep" / "inner.py"),
                "odepack",
            ),
        ]
    )


def test_without_an_installed_package_nothing_is_touched(tmp_path: Path) -> None:
    source = (
        "import sys\nprint([type(item).__name__ for item in sys.meta_path if 'checkout_imports' in "
        "str(getattr(item, '__module__', ''))])\n"
    )
    run = trace_script(tmp_path, source, original=Original(tmp_path / "elsewhere"))
    assert run.ended.tail == ("[]",)
