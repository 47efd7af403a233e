"""What was imported against what a lock pins: when two versions are the same, and what a marker or
a project file may hold."""

from __future__ import annotations

import pytest

from repro_gate.checks.env import compare_with_lock
from repro_gate.install.lockfiles import Lock, Pin, same_version


@pytest.mark.parametrize(
    ("locked", "installed", "same"),
    [
        ("3.10", "3.10.0", True),
        ("1.0rc1", "1.0.rc1", True),
        ("2.13.0", "2.13.0+cpu", True),  # a label does not count where none is locked
        ("2.13.0+cpu", "2.13.0", False),
        ("2.13.0+cu128", "2.13.0+cu128", True),
        ("2.13.0+cu128", "2.13.0+cu130", False),
        ("2.13.0", "2.13.1", False),
        ("2.13.0", "2.13.0.post1", False),
        ("2024-special", "2024-SPECIAL", True),
        ("2024-special", "2024", False),
    ],
)
def test_versions_compare_as_pep_440_has_it(locked: str, installed: str, same: bool) -> None:
    assert same_version(locked, installed) is same
    assert "+" in locked + installed or same_version(installed, locked) is same


def test_one_of_several_pins_is_enough_and_several_versions_and_tools_are_each_judged() -> None:
    def held(name: str, *versions: str) -> tuple[list[str], list[str]]:
        pins = [("numpy", "1.26", 3), ("numpy", "2.4.6", 9), ("setuptools", "80.0", 12)]
        lock = Lock(
            "uv", "uv.lock", tuple(Pin(name=n, version=v, place=f"uv.lock:{p}") for n, v, p in pins)
        )
        found = compare_with_lock({name: frozenset(versions)}, lock, frozenset(), "3.12.7")
        return found.equal, found.wrong

    assert held("NumPy", "2.4.6") == (["NumPy 2.4.6"], [])
    wrong = ["numpy 2.0: 1.26, 2.4.6 at uv.lock:3, imported"]
    assert held("numpy", "1.26", "2.0") == (["numpy 1.26"], wrong)
    assert held("setuptools", "79.0")[1], "a tool that the lock pins"
    assert held("pip", "23.2.1") == ([], []), "and one that it does not"
