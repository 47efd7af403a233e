"""Claims about `probe.distributions`: what was imported is named by what installed its file."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from repro_gate.probe import distributions


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A site folder that distributions can be installed into, first on the path of this process."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    return tmp_path


def install(site: Path, name: str, version: str, *files: str, top: str = "") -> None:
    """Install `files` (empty modules) as one distribution, of which `top` is the top-level name."""
    for file in files:
        (site / file).parent.mkdir(parents=True, exist_ok=True)
        (site / file).touch()
    metadata = site / f"{name.replace('-', '_')}-{version}.dist-info"
    metadata.mkdir()
    header = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\nVersion: of the text\n"
    (metadata / "METADATA").write_text(header)
    if top:
        (metadata / "top_level.txt").write_text(f"{top}\n")
    listed = "".join(f"{file},sha256=x,1\n" for file in files)
    (metadata / "RECORD").write_text(f"{listed}../../bin/{name},,\n")


def mine(*modules: str) -> dict[str, str]:
    """What is named once these are imported; the tests' environment has other names."""
    for module in modules:
        __import__(module)
    found = distributions.imported()
    return {item.name: item.version for item in found if item.name.startswith("rg-")}


def test_a_package_and_a_module_are_named_canonically_once_imported(site: Path) -> None:
    install(site, "RG_Pack.Age", "1.0", "rg_pack/__init__.py", "rg_pack/part.py")
    install(site, "rg-single", "2.0rc1", "rg_single.py", top="rg_single")
    install(site, "rg-unused", "3.0", "rg_unused.py")
    assert mine() == {}
    assert mine("rg_pack.part", "rg_single") == {"rg-pack-age": "1.0", "rg-single": "2.0rc1"}


def test_a_shared_name_is_decided_by_its_files(site: Path) -> None:
    install(site, "rg-ns-one", "1", "rg_ns/one/__init__.py", top="rg_ns")
    install(site, "rg-ns-two", "2", "rg_ns/two/__init__.py")
    install(site, "rg-ns-alone", "3", "rg_alone/deep/mod.py", top="rg_alone")
    assert mine("rg_ns.two") == {"rg-ns-two": "2"}
    both = {"rg-ns-one": "1", "rg-ns-two": "2", "rg-ns-alone": "3"}
    assert mine("rg_alone.deep.mod", "rg_ns.one") == both
    install(site, "rg-first", "1", "rg_shared/__init__.py", "rg_first.py")
    install(site, "rg-second", "2", "rg_shared/extra.py", "rg_second.py")
    assert mine("rg_shared") == {**both, "rg-first": "1"}
    assert mine("rg_shared.extra") == {**both, "rg-first": "1", "rg-second": "2"}


def test_a_module_from_elsewhere_is_no_distributions(site: Path) -> None:
    install(site, "rg-hidden", "1", "rg_hidden.py")
    install(site, "rg-edit", "0.1", "__editable__.rg_edit.pth")
    own = site / "workspace"
    own.mkdir()
    for name in ("rg_hidden.py", "rg_edit.py"):
        (own / name).touch()
    sys.path.insert(0, str(own))
    assert mine("rg_hidden", "rg_edit") == {}


def test_an_old_egg_info_counts_by_its_names_and_broken_metadata_not(site: Path) -> None:
    for folder in ("rg_egg", "rg_egg-1.5.egg-info", "rg_empty-1.dist-info", "rg_bin-1.dist-info"):
        (site / folder).mkdir()
    (site / "rg_egg" / "__init__.py").touch()
    (site / "rg_egg-1.5.egg-info" / "top_level.txt").write_text("rg_egg\n")
    (site / "rg_egg-1.5.egg-info" / "PKG-INFO").write_text("Name: rg-egg\nVersion: 1.5\n")
    (site / "rg_file-1.egg-info").write_bytes(b"\xff\xfe\0")
    (site / "rg_bin-1.dist-info" / "RECORD").write_bytes(b'\xff\n,\n"\n\nrg_good.py')
    install(site, "rg-good", "1", "rg_good.py")
    found, before = mine("rg_egg", "rg_good"), set(sys.modules)
    assert found == mine() == {"rg-egg": "1.5", "rg-good": "1"}
    assert set(sys.modules) == before, "nothing is imported for it"
