"""Claims about what a varied run differs in, and about what must not come of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from repro_gate.runs import variation
from repro_gate.runs.variation import (
    FIRST,
    NOT_VARIED,
    PROBE,
    SECOND,
    as_first,
    environment,
    left_alike,
    places,
)
from repro_gate.spec.model import THREADS, VARIED


def test_the_folders_of_both_runs_have_names_of_one_length_and_differ() -> None:
    """A limit on paths (of a socket, say) must not tell them apart."""
    pairs = zip(FIRST, SECOND, strict=True)
    assert all(len(one) == len(two) and one != two for one, two in pairs)
    assert places(VARIED) == SECOND and places(()) == FIRST
    assert places({"home"}) == variation.Places(FIRST.workspace, SECOND.home, FIRST.tmp)
    text = "saved /tmp/g/run/{}/out.pt, /tmp/g/run/{}"
    assert as_first(text.format("clone-two", "tm2")) == text.format("workspace", "tmp")
    assert as_first("/run/users /run/clone-two.py") == "/run/users /run/clone-two.py"


def said(program: str, env: dict[str, str]) -> str:
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=env, capture_output=True, check=True)
    assert not done.stderr
    return done.stdout.decode().lower().strip()


@pytest.mark.parametrize("zone", ["UTC", "EST5EDT"])
def test_the_time_zone_is_another_one(zone: str) -> None:
    """As the C library reads it, with and without tzdata."""
    program, outer = "import time; print(time.localtime(1_700_000_000).tm_hour)", {"TZ": zone}
    assert said(program, outer) != said(program, environment({"timezone"}, outer, {}))


@pytest.mark.parametrize(
    "outer",
    [{}, {"LANG": "C.UTF-8"}, {"LANG": "C.utf8"}, {"LANG": "en_US.UTF-8", "LC_ALL": "C"}],
)
def test_the_locale_has_another_name_and_text_stays_utf_8(outer: dict[str, str]) -> None:
    found = environment({"locale"}, outer, {})
    assert found and found.keys() == (outer.keys() or {"LANG"})
    assert all(found[name] != outer.get(name) for name in found)
    program = (
        "import locale, sys; locale.setlocale(locale.LC_ALL, ''); print('\\u00fc', "
        "sys.getfilesystemencoding(), locale.getpreferredencoding(False), "
        "locale.nl_langinfo(locale.CODESET))"  # the last: for what is not Python
    )
    assert said(program, found) == "\u00fc utf-8 utf-8 utf-8"


def test_threads_where_asked_for_alone_and_hash_seed_where_the_arm_has_one() -> None:
    eight, seed = {"OMP_NUM_THREADS": "8"}, {"PYTHONHASHSEED": "42"}
    assert "OMP_NUM_THREADS" not in environment(VARIED, eight, {})
    four = {"OMP_NUM_THREADS": "4", "MKL_NUM_THREADS": "4"}
    assert environment({THREADS}, eight, {}) == four
    assert environment({THREADS}, {"OMP_NUM_THREADS": "1"}, {})["OMP_NUM_THREADS"] == "2"
    most = {"PYTHONHASHSEED": str(2**32 - 1)}
    assert environment({"hash-seed"}, {}, seed) == {"PYTHONHASHSEED": "43"}
    assert environment({"hash-seed"}, {}, most) == {"PYTHONHASHSEED": "0"}
    assert environment({"hash-seed"}, seed, {}) == environment({"home"}, {}, seed) == {}


def test_the_umask_is_another_one_and_the_gates_own_stays() -> None:
    before = os.umask(0o022)
    try:
        assert variation.umask(VARIED) == 0o077 and variation.umask(()) == -1
        os.umask(0o077)
        assert variation.umask(VARIED) == 0o022
        assert os.umask(0o077) == 0o077
    finally:
        os.umask(before)


def test_files_folders_and_links_become_a_day_older_and_keep_their_order(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "file").write_text("1")
    (tmp_path / "b").symlink_to("nowhere")
    items = [tmp_path, tmp_path / "a", tmp_path / "a" / "file", tmp_path / "b"]
    before = [item.lstat().st_mtime_ns for item in items]
    variation.shift_times(tmp_path)
    assert [item.lstat().st_mtime_ns for item in items] == [time - variation.DAY for time in before]


def test_every_name_is_known_and_what_is_not_varied_is_said() -> None:
    assert set(PROBE) | set(NOT_VARIED) <= set(VARIED)
    assert left_alike(VARIED) == tuple(NOT_VARIED.values())
    assert left_alike({"home"}) == tuple(name for name in VARIED if name != "home")
