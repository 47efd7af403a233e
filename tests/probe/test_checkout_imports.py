"""Claims about `probe.checkout_imports`: a package of the checkout comes from the run's workspace
however it is installed, others are left alone, and what came from elsewhere all the same is
noted."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import markupsafe._speedups as extension
import pytest

from repro_gate.checkout.inspection import inspect_checkout
from repro_gate.runs.gate_folder import original_of
from repro_gate.runs.launch import Recording, RunResult
from repro_gate.runs.workspaces import Original
from repro_gate.spec.model import Spec, Train
from repro_gate.trace.fields import Imported
from tests.support.gates import tiered
from tests.support.installs import commit, environment_of_its_own, pip_install, project
from tests.support.tracing import trace_script

SHOW = "import odepack\nprint(odepack.__file__, odepack.HERE, odepack.RATE)\n"
MODE = ("--config-settings",)
EXACT = "[tool.hatch.build]\ndev-mode-exact = true\n"
LAYOUTS: dict[str, tuple[str, str, str, tuple[str, ...]]] = {
    "setuptools' finder": ("flat", "setuptools", "", ()),
    "setuptools' path": ("src", "setuptools", "", ()),
    "setuptools as it was": ("flat", "setuptools", "", (*MODE, "editable_mode=compat")),
    "hatchling's path": ("src", "hatchling", "", ()),
    "hatchling's finder": ("flat", "hatchling", EXACT, ()),
}


FINDER = """
import sys
from importlib.machinery import PathFinder

class Finder:
    __slots__ = ("folder",)

    def find_spec(self, name, path=None, target=None):
        return PathFinder.find_spec(name, path or [self.folder])

finder = Finder()
finder.folder = {folder!r}
sys.meta_path.insert(0, finder)
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The temporary folder, its environment in `venv`."""
    environment_of_its_own(tmp_path / "venv")
    return tmp_path


def traced(place: Path, code: Path, source: str = SHOW, **options: Any) -> RunResult:
    """One run of a script in a workspace that is a copy of what git tracks, with another RATE in
    it, by the environment's interpreter."""
    workspace = place / "place" / "workspace"
    shutil.rmtree(workspace, ignore_errors=True)
    subprocess.run(["git", "clone", "-q", code, workspace], check=True)
    for init in workspace.glob("**/odepack/__init__.py"):
        init.write_text(init.read_text().replace("RATE = 0.5", "RATE = 0.25"))
    spec = Spec(path=code / "repro.yml", train=Train(run="x"))
    original = original_of(spec, inspect_checkout(code))
    command = f"{place / 'venv' / 'bin' / 'python'} scripts/train.py"
    run = trace_script(
        place, {"scripts/train.py": source}, command=command, original=original, **options
    )
    assert run.ended.exit_code == 0, run.ended.tail
    return run


def imports(run: RunResult) -> list[Imported]:
    found = [item for trace in run.traces for item in trace.imports]
    return sorted(found, key=lambda item: item.module)


@pytest.mark.parametrize("layout", tiered(LAYOUTS, ("setuptools' finder",)))
def test_an_editable_package_comes_from_the_workspace(layout: str, place: Path) -> None:
    kind, backend, more, options = LAYOUTS[layout]
    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"needs {backend}")
    code = project(place / "code", kind, backend, more)
    pip_install(place / "venv" / "bin", *options, "-e", code)
    run = traced(place, code)
    base = place / "place" / "workspace" / ("src" if kind == "src" else "") / "odepack"
    assert run.ended.tail == (f"{base}/__init__.py {base}/deep/inner.py 0.25",)
    assert imports(run) == []


def test_a_finder_may_be_any_object(place: Path) -> None:
    """Those of meson-python and scikit-build-core are no classes, as that of setuptools is."""
    code = project(place / "code", "src")
    [site] = (place / "venv").glob("lib/python*/site-packages")
    (site / "_odepack_editable.py").write_text(FINDER.format(folder=str(code / "src")))
    (site / "odepack.pth").write_text("import _odepack_editable\n")
    assert traced(place, code).ended.tail[0].endswith(" 0.25")


def test_a_namespace_comes_from_the_workspace_too(place: Path) -> None:
    code = project(place / "code", "flat")
    (code / "space" / "own").mkdir(parents=True)
    (code / "space" / "own" / "__init__.py").write_text("import odepack\n")
    settings = code / "pyproject.toml"
    settings.write_text(settings.read_text().replace('"odepack*"', '"odepack*", "space*"'))
    commit(code, "a namespace")
    pip_install(place / "venv" / "bin", "-e", code)
    source = "import space.own\nprint(space.own.__file__, space.own.odepack.RATE)\n"
    run = traced(place, code, source)
    own = place / "place" / "workspace" / "space" / "own" / "__init__.py"
    assert run.ended.tail == (f"{own} 0.25",) and imports(run) == []


def test_the_metadata_of_an_old_link_is_found_beside_the_code(place: Path) -> None:
    code = project(place / "code", "src")
    [site] = (place / "venv").glob("lib/python*/site-packages")
    (site / "easy-install.pth").write_text(f"{code / 'src'}\n")
    metadata = code / "src" / "odepack.egg-info"
    metadata.mkdir()
    (metadata / "PKG-INFO").write_text("Name: odepack\nVersion: 1.0\n")
    source = (
        "import odepack, importlib.metadata as data\nprint(odepack.RATE, data.version('odepack'))"
    )
    assert traced(place, code, source).ended.tail == ("0.25 1.0",)


def test_what_git_ignores_comes_from_the_checkout_and_is_named(place: Path) -> None:
    code = project(place / "code", "src")
    pip_install(place / "venv" / "bin", "-e", code)
    folder, library = code / "src" / "odepack", Path(str(extension.__file__))
    (folder / "_version.py").write_text("version = '1.1'\n")
    shutil.copy(library, folder)
    source = "import odepack._version as own, odepack._speedups\nprint(own.version, odepack.RATE)\n"
    run = traced(place, code, source)
    assert run.ended.tail == ("1.1 0.25",)
    assert imports(run) == [
        Imported("odepack._speedups", str(folder / library.name)),
        Imported("odepack._version", str(folder / "_version.py")),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("way", ["an absolute path", "a tree of links", "a link to another clone"])
def test_what_comes_from_elsewhere_all_the_same_is_named(way: str, place: Path) -> None:
    code, source = project(place / "code", "src"), SHOW
    if way == "an absolute path":
        source = f"import sys\nsys.path.insert(0, {str(code / 'src')!r})\n" + SHOW
    elif way == "a tree of links":
        pip_install(place / "venv" / "bin", *MODE, "editable_mode=strict", "-e", code)
    else:
        pip_install(place / "venv" / "bin", "-e", project(place / "other", "src"))
    found = imports(traced(place, code, source))
    assert [item.module for item in found] == ["odepack", "odepack.deep.inner"]


@pytest.mark.slow
def test_an_environment_in_the_checkout_is_left_alone(tmp_path: Path) -> None:
    code = project(tmp_path / "code", "flat")
    environment_of_its_own(code / ".venv")
    [site] = (code / ".venv").glob("lib/python*/site-packages")
    (site / "third.py").write_text("RATE = 1\n")
    (tmp_path / "venv").symlink_to(code / ".venv")
    run = traced(tmp_path, code, "import third\nprint(third.__file__)\n")
    assert [*map(os.path.realpath, run.ended.tail)] == [str(site / "third.py")]
    assert imports(run) == []


COPY = """
import odepack
from _repro_gate.probe.sdk import record, step  # the environment need not hold the package
record("loss", 1.0)
step()
"""


def test_a_copy_is_named_by_where_pip_took_it_from(place: Path) -> None:
    code = project(place / "code", "src")
    pip_install(place / "venv" / "bin", code)
    [site] = (place / "venv").glob("lib/python*/site-packages")
    wanted = [Imported("odepack", str(site / "odepack" / "__init__.py"), "odepack")]
    assert imports(traced(place, code, COPY, recording=Recording(distributions=True))) == wanted
    # as `setup.py install` leaves it, or an image that was built elsewhere
    next(site.glob("odepack-*.dist-info/direct_url.json")).unlink()
    assert (
        imports(traced(place, code, COPY, name="named", recording=Recording(distributions=True)))
        == wanted
    )


@pytest.mark.slow
@pytest.mark.parametrize("editable", [True, False])
def test_a_package_only_called_like_a_folder_of_the_checkout_is_no_copy(
    editable: bool, place: Path
) -> None:
    other = project(place / "other", "flat")
    pip_install(place / "venv" / "bin", *(["-e"] if editable else []), other)
    code = project(place / "code", "flat", name="trainer")
    (code / "odepack").mkdir()
    (code / "odepack" / "__init__.py").write_text("RATE = 2\n")
    commit(code, "a folder")
    assert imports(traced(place, code, COPY, recording=Recording(distributions=True))) == []


def test_without_an_installed_package_nothing_is_touched(tmp_path: Path) -> None:
    ours = "'checkout_imports' in str(getattr(item, '__module__', ''))"
    source = f"import sys\nprint([item for item in sys.meta_path if {ours}])\n"
    run = trace_script(tmp_path, source, original=Original(tmp_path / "elsewhere"))
    assert run.ended.tail == ("[]",)
