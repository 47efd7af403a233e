"""Claims about installing as the training's user, tried with a real one: what built code reaches, and who owns what it leaves."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from repro_gate.errors import Inconclusive
from repro_gate.files import remove_tree
from repro_gate.install.install import environments_root, installed
from repro_gate.sandbox.confinement import confined
from repro_gate.sandbox.identity import OWN_USER, Sandbox
from repro_gate.sandbox.start import command
from tests.support.starting import APPEND, LIST, READ, SAME, attempt, needs_own_user, python
from tests.support.wheels import archive, checkout, outer, wheel

pytestmark = needs_own_user
# A user for this process alone: whoever else tests with the usual one meanwhile would end what runs here.
OWN = Sandbox(OWN_USER, 64400 + os.getpid() % 1000, 64400 + os.getpid() % 1000)

# A build backend inside the source archive itself: it needs nothing from an index, and says what it could do while it ran.
BACKEND = """
import json, os, zipfile

def attempts():
    for name, act in {{
        "secret": lambda: open({secret!r}).read(),
        "marker": lambda: open(os.path.join({cache!r}, "planted.json"), "w").close(),
        "checkout": lambda: os.listdir({checkout!r}),
        "token": lambda: os.environ["GITHUB_TOKEN"],
        "root": lambda: os.setuid(0),
    }}.items():
        try:
            act()
            yield name
        except (OSError, KeyError):
            pass

def build_wheel(folder, config_settings=None, metadata_directory=None):
    said = {{"uid": os.getuid(), "did": sorted(attempts())}}
    files = {{
        "built.py": "SAID = %r\\n" % json.dumps(said),
        "built-1.0.dist-info/METADATA": "Metadata-Version: 2.1\\nName: built\\nVersion: 1.0\\n",
        "built-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
        "built-1.0.dist-info/RECORD": "",
    }}
    with zipfile.ZipFile(os.path.join(folder, "built-1.0-py3-none-any.whl"), "w") as made:
        for name, text in files.items():
            made.writestr(name, text)
    return "built-1.0-py3-none-any.whl"
"""
PROJECT = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n[project]\nname = "built"\nversion = "1.0"\n'


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that every user may enter (pytest closes its own to others), with a secret that only the gate may read and a `python` that
    every user may start."""
    folder = Path(tempfile.mkdtemp(prefix="repro-gate-test-")).resolve()
    folder.chmod(0o755)
    (folder / "bin").mkdir()
    (folder / "bin/python").symlink_to(python())
    (folder / "secret").write_text("s")
    (folder / "secret").chmod(0o600)
    yield folder
    remove_tree(folder)


def environment(place: Path) -> dict[str, str]:
    (place / "index").mkdir(exist_ok=True)
    given = outer(place / "index", os.pathsep.join([str(place / "bin"), os.defpath]))
    return {**given, "GITHUB_TOKEN": "ghs_x", "GITHUB_WORKSPACE": str(place / "c")}


def test_built_code_is_neither_the_gate_nor_the_training_and_no_training_writes_to_what_it_made(place: Path) -> None:
    cache = place / "cache"
    backend = BACKEND.format(secret=str(place / "secret"), cache=str(cache / "environments"), checkout=str(place / "c"))
    given = environment(place)
    lock = archive(place / "index", "built", "1.0", {"pyproject.toml": PROJECT, "backend.py": backend})
    spec = checkout(place / "c", lock + wheel(place / "index", "tiny", "1.0"))
    root = environments_root(given, cache, OWN)
    with (
        confined(OWN, given, place / "c", within_reach=[root]),
        installed(spec, place / "c", given, OWN, cache_root=cache) as made,
    ):
        folder = Path(made["VIRTUAL_ENV"])
        said = json.loads(_run(made, "import built, tiny; print(built.SAID)"))
        assert said["did"] == [] and said["uid"] not in (os.geteuid(), OWN.uid)
        module = next(folder.rglob("tiny.py"))
        assert attempt(OWN, READ, module) == "1"
        assert attempt(OWN, APPEND, module).startswith("PermissionError")
        assert attempt(OWN, APPEND, module.with_name("new.py")).startswith("PermissionError")
        assert attempt(OWN, LIST, root / "uv").startswith("PermissionError")  # what later gate runs start from


def test_wheels_alone_go_through_a_cache_that_no_training_can_enter(place: Path) -> None:
    given, cache = environment(place), place / "cache"
    spec = checkout(place / "c", wheel(place / "index", "tiny", "1.0"))
    root = environments_root(given, cache, OWN)
    for _ in range(2):
        with (
            confined(OWN, given, place / "c", within_reach=[root]),
            installed(spec, place / "c", given, OWN, cache_root=cache) as made,
        ):
            assert _run(made, "import tiny; print(tiny.VERSION)") == "1.0"
            module = next(Path(made["VIRTUAL_ENV"]).rglob("tiny.py"))
            assert module.stat().st_nlink > 1  # the cache's own file
            assert attempt(OWN, READ, module) == "1"
            assert attempt(OWN, APPEND, module).startswith("PermissionError")
            assert attempt(OWN, APPEND, module.with_name("new.py")).startswith("PermissionError")
            assert attempt(OWN, LIST, root / "uv").startswith("PermissionError")


def test_a_link_in_the_cache_folder_keeps_the_mode_of_what_it_leads_to(place: Path) -> None:
    (place / "private").mkdir(mode=0o700)
    (place / "cache").mkdir()
    (place / "cache/environments").symlink_to(place / "private")
    with pytest.raises(Inconclusive, match="cache folder cannot be used"):
        environments_root(environment(place), place / "cache", OWN)
    assert (place / "private").stat().st_mode & 0o777 == 0o700


def test_the_same_code_with_the_gates_own_user_shows_what_is_kept_from_it(place: Path) -> None:
    cache, given = place / "cache", environment(place)
    backend = BACKEND.format(secret=str(place / "secret"), cache=str(cache / "environments"), checkout=str(place / "c"))
    lock = archive(place / "index", "built", "1.0", {"pyproject.toml": PROJECT, "backend.py": backend})
    with installed(checkout(place / "c", lock), place / "c", given, SAME, cache_root=cache) as made:
        code = [shutil.which("python", path=made["PATH"]) or "", "-c", "import built; print(built.SAID)"]
        said = json.loads(subprocess.run(code, check=True, capture_output=True, text=True).stdout)
    assert said == {"uid": os.geteuid(), "did": ["checkout", "marker", "root", "secret"]}  # the token is in no environment of pip's


def test_a_password_in_an_index_address_never_meets_built_code(place: Path) -> None:
    given = {**environment(place), "PIP_EXTRA_INDEX_URL": "https://user:secret@pypi.example.org/simple"}
    backend = BACKEND.format(secret="", cache="", checkout="")
    lock = archive(place / "index", "built", "1.0", {"pyproject.toml": PROJECT, "backend.py": backend})
    spec = checkout(place / "c", lock)
    with pytest.raises(Inconclusive) as caught, installed(spec, place / "c", given, OWN, cache_root=place / "cache"):
        pass
    assert caught.value.reason_id == "install/not-found"  # the source archive does not count


def _run(made: Mapping[str, str], code: str) -> str:
    """What `code` prints in the environment, as the training's user."""
    argv, variables = command(OWN, [shutil.which("python", path=made["PATH"]) or "", "-c", code], {"PATH": made["PATH"]})
    return subprocess.run(argv, env=variables, cwd="/", check=True, capture_output=True, text=True).stdout.strip()
