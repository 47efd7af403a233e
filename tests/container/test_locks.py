"""What the Dockerfile and the locks promise, read in them: needs no engine."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.container.image import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LOCKS = sorted((ROOT / "requirements").glob("*.lock"))


def locked(path: Path) -> dict[str, list[tuple[Requirement, int]]]:
    """{name: [(requirement, number of hashes)]}; a name may be there for several Pythons."""
    found: dict[str, list[tuple[Requirement, int]]] = {}
    for line in path.read_text(encoding="utf-8").replace("\\\n", " ").splitlines():
        if line and not line.lstrip().startswith("#"):
            requirement = Requirement(line.partition("--hash")[0])
            found.setdefault(canonicalize_name(requirement.name), []).append(
                (requirement, line.count("--hash=sha256:"))
            )
    return found


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.name)
def test_everything_is_locked_to_one_version_and_its_hashes(path: Path) -> None:
    packages = [item for items in locked(path).values() for item in items]
    assert packages
    for requirement, hashes in packages:
        assert re.fullmatch(r"==[^,*]+", str(requirement.specifier)), requirement
        assert hashes > 0, requirement


def test_each_lock_holds_what_its_source_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    _holds(locked(ROOT / "requirements/gate.lock"), project["project"]["dependencies"])
    _holds(locked(ROOT / "requirements/build.lock"), project["build-system"]["requires"])
    for kind in ("cpu", "cuda"):
        source = (ROOT / f"requirements/image-{kind}.in").read_text(encoding="utf-8").splitlines()
        wanted = [line for line in source if not line.startswith("#")]
        _holds(locked(ROOT / f"requirements/image-{kind}.lock"), wanted)


def test_both_images_train_with_the_same_torch() -> None:
    cpu, cuda = (locked(ROOT / f"requirements/image-{kind}.lock") for kind in ("cpu", "cuda"))
    plain = {name: str(items[0][0].specifier).removesuffix("+cpu") for name, items in cpu.items()}
    assert (
        plain.items() <= {name: str(items[0][0].specifier) for name, items in cuda.items()}.items()
    )


def test_pip_installs_nothing_without_its_hash() -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    installs = [
        line for line in re.split(r"\n|&&|;", text) if re.search(r"\bpip\b.* install ", line)
    ]
    assert len(installs) == 5
    for line in installs:
        assert (
            "--require-hashes --only-binary :all:" in line
            or "--no-deps --no-index dist/*.whl" in line
        ), line


def _holds(lock: dict[str, list[tuple[Requirement, int]]], wanted: list[str]) -> None:
    for requirement in map(Requirement, wanted):
        found = lock.get(canonicalize_name(requirement.name), [])
        assert found, f"{requirement.name} is not locked"
        for item, _ in found:
            version = str(item.specifier).removeprefix("==")
            assert requirement.specifier.contains(version, prereleases=True), (
                f"{requirement} does not allow {version}: make the lock anew"
            )
