"""Installing as the training's user, a real one: what built code reaches, who owns the rest."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from repro_gate.errors import Inconclusive
from repro_gate.install.install import environments_root, installed
from repro_gate.sandbox.confinement import confined
from repro_gate.sandbox.identity import Sandbox
from repro_gate.sandbox.start import command
from tests.support import starting
from tests.support.starting import OTHER, SAME, attempt, needs_own_user, open_folder, python, ran
from tests.support.wheels import archive, builds, checkout, outer, wheel

pytestmark = needs_own_user
# What code that is built could do, tried while it is built.
ATTEMPTS = """
said.update(uid=os.getuid(), did=[])
for name, act in {{
    "secret": lambda: open({secret!r}).read(),
    "marker": lambda: open(os.path.join({cache!r}, "planted.json"), "w").close(),
    "checkout": lambda: os.listdir({checkout!r}),
    "token": lambda: os.environ["GITHUB_TOKEN"],
    "root": lambda: os.setuid(0),
}}.items():
    try:
        act()
        said["did"].append(name)
    except (OSError, KeyError):
        pass
"""


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that every user may enter, with a secret that only the gate may read and a `python`
    that every user may start."""
    with open_folder() as folder:
        (folder / "bin").mkdir()
        (folder / "bin/python").symlink_to(python())
        (folder / "secret").write_text("s")
        (folder / "secret").chmod(0o600)
        yield folder


def environment(place: Path) -> dict[str, str]:
    (place / "index").mkdir(exist_ok=True)
    given = outer(place / "index", os.pathsep.join([str(place / "bin"), os.defpath]))
    return {**given, "GITHUB_TOKEN": "ghs_x", "GITHUB_WORKSPACE": str(place / "c")}


def source(place: Path) -> str:
    """A lock of a source archive whose build tries what it must not be able to."""
    names = {"secret": "secret", "cache": "cache/environments", "checkout": "c"}
    before = ATTEMPTS.format(**{name: str(place / path) for name, path in names.items()})
    return archive(place / "index", "built", "1.0", builds(before))


@contextlib.contextmanager
def trained(place: Path, lock: str) -> Iterator[Mapping[str, str]]:
    """The environment of a training with a user of its own, who reads what is installed and can
    write to none of it."""
    given, cache, spec = environment(place), place / "cache", checkout(place / "c", lock)
    root = environments_root(given, cache, OTHER)
    with (
        confined(OTHER, given, place / "c", within_reach=[root]),
        installed(spec, place / "c", given, OTHER, cache_root=cache) as made,
    ):
        module = next(Path(made["VIRTUAL_ENV"]).rglob("tiny.py"))
        assert attempt(OTHER, starting.READ, module) == "1"
        # what later gate runs start from
        new = module.with_name("new.py")
        for act, path in (
            (starting.APPEND, module),
            (starting.APPEND, new),
            (starting.LIST, root / "uv-2"),
        ):
            assert attempt(OTHER, act, path).startswith("PermissionError")
        yield made


def test_built_code_is_neither_the_gate_nor_the_training(place: Path) -> None:
    lock = source(place) + wheel(place / "index", "tiny", "1.0")
    with trained(place, lock) as made:
        said = json.loads(_run(made, "import built, tiny; print(built.SAID)"))
        assert said["did"] == [] and said["uid"] not in (os.geteuid(), OTHER.uid)


def test_wheels_alone_go_through_a_cache_that_no_training_can_enter(place: Path) -> None:
    lock = wheel(place / "index", "tiny", "1.0")
    for _ in range(2):
        with trained(place, lock) as made:
            assert _run(made, "import tiny; print(tiny.VERSION)") == "1.0"
            # the cache's own file
            assert next(Path(made["VIRTUAL_ENV"]).rglob("tiny.py")).stat().st_nlink > 1


def test_a_link_in_the_cache_folder_keeps_the_mode_of_what_it_leads_to(place: Path) -> None:
    (place / "private").mkdir(mode=0o700)
    (place / "cache").mkdir()
    (place / "cache/environments").symlink_to(place / "private")
    with pytest.raises(Inconclusive, match="it is a link"):
        environments_root(environment(place), place / "cache", OTHER)
    assert (place / "private").stat().st_mode & 0o777 == 0o700


def test_the_same_code_with_the_gates_own_user_shows_what_is_kept_from_it(place: Path) -> None:
    given, spec = environment(place), checkout(place / "c", source(place))
    with installed(spec, place / "c", given, SAME, cache_root=place / "cache") as made:
        said = json.loads(_run(made, "import built; print(built.SAID)", SAME))
    # the token is in no environment of uv's
    assert said == {"uid": os.geteuid(), "did": ["secret", "marker", "checkout", "root"]}


def _run(made: Mapping[str, str], code: str, user: Sandbox = OTHER) -> str:
    """What `code` prints in the environment, as the training's user."""
    python = shutil.which("python", path=made["PATH"]) or ""
    started = command(user, [python, "-c", code], {"PATH": made["PATH"]})
    return ran(*started, check=True).stdout.strip()


# What a wheel of a pull request would do if its code ran while it is installed: it says as whom and
# what its environment holds, and writes another program over each honest wheel in reach.
HOSTILE = """
import os, pathlib
def work():
    with open({mark!r}, "a") as file:
        print(os.getuid(), os.environ.get("UV_INDEX"), file=file)
    for path in pathlib.Path({cache!r}).rglob("tiny.py"):
        path.unlink()
        path.write_text("VERSION = 'owned'")
try:
    work()
except OSError:
    pass
"""
# Each way in which a started interpreter runs code of a wheel.
WAYS = {
    "pth": {"evil_start.pth": "import evil_code\n"},
    "sitecustomize": {"sitecustomize.py": "import evil_code\n"},
}
# Each way for a wheel to take the interpreter's place.
SHADOWS = {
    "entry point": {
        "evil-1.0.dist-info/entry_points.txt": "[console_scripts]\npython = evil_code:work\n"
    },
    "script": {"evil-1.0.data/scripts/python": "#!python\nimport evil_code\n"},
    "data": {"evil-1.0.data/data/bin/python": "#!/bin/sh\nexec python3 -m evil_code\n"},
}


@pytest.mark.parametrize("way", WAYS)
def test_no_code_of_a_wheel_runs_while_it_is_installed(way: str, place: Path) -> None:
    cache, mark = place / "cache", place / "marks/ran"
    mark.parent.mkdir()
    mark.parent.chmod(0o777)
    code = HOSTILE.format(mark=str(mark), cache=str(cache))
    honest = wheel(place / "index", "tiny", "1.0")
    evil = wheel(place / "index", "evil", "1.0", {"evil_code.py": code, **WAYS[way]})
    with trained(place, honest):
        pass

    with trained(place, honest + evil) as made:
        assert not mark.exists(), mark.read_text()
        module = next(Path(made["VIRTUAL_ENV"]).rglob("tiny.py"))
        assert list(module.parent.glob("__pycache__/tiny.*.pyc"))
        _run(made, "import evil_code")
        # the training's user reaches neither the password nor the cache
        assert set(mark.read_text().splitlines()) == {f"{OTHER.uid} None"}

    with trained(place, honest) as made:
        assert _run(made, "import tiny; print(tiny.VERSION)") == "1.0"


@pytest.mark.parametrize("way", SHADOWS)
def test_a_wheel_that_shadows_python_is_refused(way: str, place: Path) -> None:
    mark = place / "ran"
    code = f"open({str(mark)!r}, 'w')\n"
    evil = wheel(place / "index", "evil", "1.0", {"evil_code.py": code, **SHADOWS[way]})
    with (
        pytest.raises(Inconclusive, match="reserved name `python`"),
        trained(place, wheel(place / "index", "tiny", "1.0") + evil),
    ):
        pass
    assert not mark.exists()
