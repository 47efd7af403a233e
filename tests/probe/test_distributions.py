"""Claims about `probe.distributions`: what was imported is named by the distribution that installed
its file, and nothing else is."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path

import pytest

from repro_gate.probe import distributions
from tests.support.tracing import trace_script, trained

TRAIN = """
import torch
net = torch.nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
net(torch.randn(4, 3)).sum().backward()
opt.step()
"""


class Site:
    """A site folder that distributions can be installed into; it is first on the path of this
    process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(
        self,
        name: str,
        version: str,
        *files: str,
        top_level: str | None = None,
        record: bool = True,
        kind: str = "dist-info",
    ) -> None:
        """Install `files` (empty modules) as one distribution."""
        for file in files:
            (self.folder / file).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / file).touch()
        metadata = self.folder / f"{name.replace('-', '_')}-{version}.{kind}"
        metadata.mkdir()
        header = (
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\nVersion: of the text\n"
        )
        (metadata / ("METADATA" if kind == "dist-info" else "PKG-INFO")).write_text(header)
        if top_level is not None:
            (metadata / "top_level.txt").write_text(top_level)
        if record:
            (metadata / "RECORD").write_text(
                "".join(f"{file},sha256=x,1\n" for file in files) + f"../../bin/{name},,\n"
            )


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    return Site(tmp_path)


def mine() -> dict[str, str]:
    """What is imported of the folder's own; the tests' environment has other names."""
    return {
        name: version
        for name, version in distributions.imported()[0].items()
        if name.startswith("rg-")
    }


def test_a_package_and_a_module_are_named_canonically_with_their_version(site: Site) -> None:
    site.add("RG_Pack.Age", "1.0", "rg_pack/__init__.py", "rg_pack/part.py")
    site.add("rg-single", "2.0rc1", "rg_single.py", top_level="rg_single\n")
    site.add("rg-unused", "3.0", "rg_unused.py")
    assert mine() == {}
    __import__("rg_pack.part")
    __import__("rg_single")
    assert mine() == {"rg-pack-age": "1.0", "rg-single": "2.0rc1"}


def test_a_namespace_is_decided_by_its_files(site: Site) -> None:
    site.add("rg-ns-one", "1", "rg_ns/one/__init__.py", top_level="rg_ns\n")
    site.add("rg-ns-two", "2", "rg_ns/two/__init__.py")
    site.add(
        "rg-ns-alone", "3", "rg_alone/deep/other.py", "rg_alone/deep/mod.py", top_level="rg_alone\n"
    )
    __import__("rg_ns.two")
    assert mine() == {"rg-ns-two": "2"}
    __import__("rg_alone.deep.mod")
    __import__("rg_ns.one")
    assert mine() == {"rg-ns-alone": "3", "rg-ns-one": "1", "rg-ns-two": "2"}


def test_two_that_install_one_name_are_told_apart_by_their_files(site: Site) -> None:
    site.add("rg-first", "1", "rg_shared/__init__.py", "rg_first.py")
    site.add("rg-second", "2", "rg_shared/extra.py", "rg_second.py")
    __import__("rg_shared")
    assert mine() == {"rg-first": "1"}
    __import__("rg_shared.extra")
    assert mine() == {"rg-first": "1", "rg-second": "2"}


def test_a_module_from_elsewhere(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.add("rg-hidden", "1", "rg_hidden.py")
    own = tmp_path / "workspace"
    own.mkdir()
    (own / "rg_hidden.py").touch()
    monkeypatch.syspath_prepend(str(own))
    __import__("rg_hidden")
    assert mine() == {}


def test_egg_info_and_editable(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site.add(
        "rg-egg", "1.5", "rg_egg/__init__.py", top_level="rg_egg\n", record=False, kind="egg-info"
    )
    __import__("rg_egg")
    source = tmp_path / "checkout" / "src"
    source.mkdir(parents=True)
    (source / "rg_edit.py").touch()
    site.add("rg-edit", "0.1", "__editable__.rg_edit.pth")
    monkeypatch.syspath_prepend(str(source))
    __import__("rg_edit")
    assert mine() == {"rg-egg": "1.5"}


def test_broken_metadata_is_passed_over(site: Site) -> None:
    site.add("rg-good", "1", "rg_good.py")
    (site.folder / "rg_empty-1.dist-info").mkdir()
    (site.folder / "rg_file-1.egg-info").write_bytes(b"\xff\xfe\0")
    (site.folder / "rg_binary-1.dist-info").mkdir()
    (site.folder / "rg_binary-1.dist-info" / "RECORD").write_bytes(b'\xff\n,\n"\n\nrg_good.py')
    __import__("rg_good")
    before = set(sys.modules)
    assert mine() == {"rg-good": "1"}
    assert set(sys.modules) == before, "nothing is imported for it"


@pytest.mark.slow
def test_a_training_that_is_asked_names_torch_and_its_needs(short_path: Path) -> None:
    child = "subprocess.run([sys.executable, '-c', 'import numpy'], check=True)\n"
    script = f"{TRAIN}import subprocess, sys\n{child}"
    run = trace_script(short_path, script, observe=True)
    # the child did not train
    assert [trace.distributions is not None for trace in run.traces] == [True, False]
    found = trained(run).distributions
    assert found is not None and list(found) == sorted(found)
    for name in ("torch", "numpy"):
        assert found[name] == importlib.metadata.version(name)
    assert "pytest" not in found and "hypothesis" not in found
