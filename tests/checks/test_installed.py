"""What was imported against what a lock pins: when two versions are the same, and what a marker or
a project file may hold."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from repro_gate.checks.env import compare_with_lock
from repro_gate.install.lockfiles import Lock, Pin, same_version

VERSIONS = st.from_regex(
    r"[0-9]{1,2}(\.[0-9]{1,2}){0,3}((a|b|rc)[0-9])?(\.post[0-9])?(\.dev[0-9])?", fullmatch=True
)


@given(VERSIONS, VERSIONS)
def test_versions_are_the_same_both_ways_and_a_label_does_not_count_where_none_is_locked(
    one: str, other: str
) -> None:
    assert (
        same_version(one, one)
        and same_version(one, f"{one}+cpu")
        and not same_version(f"{one}+cpu", one)
    )
    assert (
        same_version(one, other) == same_version(other, one) == same_version(one, f"{other}+cu128")
    )


@pytest.mark.parametrize(
    ("locked", "installed", "same"),
    [
        ("3.10", "3.10.0", True),
        ("1.0rc1", "1.0.rc1", True),
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


def test_one_of_several_pins_is_enough_and_several_versions_are_each_judged() -> None:
    versions = (("1.26", "uv.lock:3"), ("2.4.6", "uv.lock:9"))
    pins = (Pin(name="numpy", version=version, place=place) for version, place in versions)
    lock = Lock("uv", "uv.lock", tuple(pins))
    held = compare_with_lock({"NumPy": frozenset({"2.4.6"})}, lock, frozenset(), "3.12.7")
    assert held.equal == ["NumPy 2.4.6"] and not held.wrong
    held = compare_with_lock({"numpy": frozenset({"1.26", "2.0"})}, lock, frozenset(), "3.12.7")
    assert held.equal == ["numpy 1.26"]
    assert held.wrong == ["numpy 2.0: 1.26, 2.4.6 at uv.lock:3, imported"]


def test_a_tool_that_the_lock_pins_is_compared_with_it() -> None:
    pin = Pin(name="setuptools", version="80.0", place="uv.lock:3")
    lock = Lock("uv", "uv.lock", (pin,))
    assert compare_with_lock({"setuptools": frozenset({"79.0"})}, lock, frozenset(), None).wrong
    assert compare_with_lock(
        {"pip": frozenset({"23.2.1"})}, lock, frozenset(), None
    ) == compare_with_lock({}, lock, frozenset(), None)
