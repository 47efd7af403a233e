"""`env.install` with the real uv, which finds wheels made here."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from repro_gate.checks.env import installed as env_installed
from repro_gate.errors import Inconclusive, UsageError
from repro_gate.install import install
from repro_gate.install.install import installable, installed
from repro_gate.runs.launch import Recording
from repro_gate.sandbox.identity import Sandbox
from repro_gate.spec.model import Env, Spec
from tests.support.built_traces import evidence
from tests.support.gates import LOOP
from tests.support.lockfiles import ALL, PROJECT
from tests.support.starting import ran
from tests.support.tracing import trace_script
from tests.support.wheels import SYSTEM, archive, builds, checkout, outer, wheel

SAME = Sandbox()
CODE = "import tiny; print(tiny.VERSION)"
HASH = f"--hash=sha256:{'0' * 64}"
MINE = """\
[project]
name = "mine"
version = "0.1"
requires-python = ">=3.10"
dependencies = ["tiny; python_version > '3'"]
"""


def python(environment: Mapping[str, str], code: str, name: str = "python") -> str:
    return ran([name, "-c", code] if code else [name], environment, check=True).stdout.strip()


def seen(spec: Spec, environment: Mapping[str, str], cache: Path, code: str) -> str:
    """What `code` prints in the environment of `spec`."""
    with installed(spec, spec.path.parent, environment, SAME, cache_root=cache) as made:
        return python(made, code)


def failure(spec: Spec, environment: Mapping[str, str], cache: Path) -> Inconclusive:
    with pytest.raises(Inconclusive) as caught:
        seen(spec, environment, cache, "")
    assert caught.value.reason_id == "install/failed" and caught.value.remedy
    return caught.value


def test_without_the_key_nothing_changes_and_a_hidden_lock_is_refused(tmp_path: Path) -> None:
    spec, given = checkout(tmp_path / "c", ""), outer(tmp_path)
    without = replace(spec, env=Env("requirements.lock"))
    with installed(without, tmp_path, given, SAME, cache_root=tmp_path / "cache") as made:
        assert made == given
    spec = replace(spec, train=replace(spec.train, env={"PATH": "/usr/bin"}))
    with pytest.raises(UsageError, match=r"train\.env\.PATH"):
        seen(spec, given, tmp_path / "cache", "")
    assert not (tmp_path / "cache").exists()


def test_what_the_lock_pins_lies_on_top_and_is_gone_afterwards(tmp_path: Path) -> None:
    spec = checkout(tmp_path / "c", wheel(tmp_path / "index", "tiny", "1.0") + "# a word\n")
    told: list[str] = []
    given, cache = outer(tmp_path / "index"), tmp_path / "cache"
    with installed(spec, tmp_path / "c", given, SAME, cache_root=cache, tell=told.append) as made:
        first = made["VIRTUAL_ENV"]
        code = "import tiny, sys, importlib.util as u; print(tiny.VERSION, sys.prefix, bool(u.find_spec('torch')))"
        assert python(made, code) == f"1.0 {first} True"
        assert made["PATH"].startswith(f"{first}/bin{os.pathsep}")
        with installed(spec, tmp_path / "c", given, SAME, cache_root=cache) as beside:
            assert beside["VIRTUAL_ENV"] != first and python(beside, CODE) == "1.0"
        paths = [Path(first), *Path(first).rglob("*")]
        assert any(path.name == "tiny.py" for path in paths)
        assert not [path for path in paths if not path.is_symlink() and path.stat().st_mode & 0o222]
    assert told == ["installing what requirements.lock pins (1)"] and not Path(first).exists()
    # each gate run alone trains at the same path
    assert seen(spec, given, cache, "import sys; print(sys.prefix)") == first


def served_lock(name: str, address: str, line: str) -> str:
    """A lock of `tiny` and the checkout's own package, in each format."""
    digest = line.strip().rpartition(":")[2]
    url = f"{address}/tiny/tiny-1.0-py3-none-any.whl"
    return {
        "requirements.txt": line,
        "pylock.toml": f"""\
lock-version = "1.0"
created-by = "a test"
[[packages]]
name = "tiny"
version = "1.0"
marker = "python_version > '3'"
wheels = [{{ url = "{url}", hashes = {{ sha256 = "{digest}" }} }}]
[[packages]]
name = "mine"
directory = {{ path = "." }}
""",
        "uv.lock": f"""\
version = 1
requires-python = ">=3.10"
[[package]]
name = "mine"
version = "0.1"
source = {{ virtual = "." }}
dependencies = [{{ name = "tiny", marker = "python_version > '3'" }}]
[package.metadata]
requires-dist = [{{ name = "tiny", marker = "python_version > '3'" }}]
[[package]]
name = "tiny"
version = "1.0"
source = {{ registry = "{address}" }}
wheels = [{{ url = "{url}", hash = "sha256:{digest}" }}]
""",
    }[name]


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """An index over HTTP, whose pages may be kept, with what lies in `folder`; its address."""

    class Handler(SimpleHTTPRequestHandler):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments, directory=str(folder))

        def log_message(self, *arguments: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("name", ALL)
def test_each_format_is_installed_and_the_cache_needs_no_index(name: str, tmp_path: Path) -> None:
    line = wheel(tmp_path / "index/tiny", "tiny", "1.0")
    with served(tmp_path / "index") as address:
        given = {"PATH": SYSTEM, "UV_DEFAULT_INDEX": address, "UV_HTTP_RETRIES": "0"}
        spec = checkout(tmp_path / "c", served_lock(name, address, line), name)
        if name == "uv.lock":
            with pytest.raises(UsageError, match=r"pyproject.toml"):
                installable(spec, tmp_path / "c")
        (tmp_path / "c/pyproject.toml").write_text(MINE)
        assert seen(spec, given, tmp_path / "cache", CODE) == "1.0"
        checkout(tmp_path / "c", served_lock(name, address, f"tiny==1.0 {HASH}"), name)
        assert "Hash mismatch" in failure(spec, given, tmp_path / "other cache").message
    checkout(tmp_path / "c", served_lock(name, address, line), name)
    assert seen(spec, given, tmp_path / "cache", CODE) == "1.0"  # nobody serves it any more
    assert "UV_INDEX" in failure(spec, given, tmp_path / "other cache").remedy


def test_a_source_archive_is_built_without_the_token_and_not_kept(tmp_path: Path) -> None:
    index, cache = tmp_path / "index", tmp_path / "cache"
    build = builds("said.update(names=sorted(os.environ))")
    spec = checkout(tmp_path / "c", archive(index, "built", "1.0", build))
    given = {**outer(index), "GITHUB_TOKEN": "x", "PYTHONPATH": "/x", "INPUT_TOKEN": "x"}
    names = seen(spec, given, cache, "import built; print(built.SAID)")
    assert '"UV_FIND_LINKS"' in names and "TOKEN" not in names and "PYTHONPATH" not in names
    assert not list(cache.rglob("built.py"))
    password = {**given, "UV_INDEX": "https://me:secret@pypi.example.org/simple"}
    message = failure(spec, password, cache).message  # a build could read it
    assert "built==1.0" in message and "secret" not in message
    broken = {**builds(), "backend.py": "raise SystemExit('no such compiler \\x1b[2J')\n"}
    spec = checkout(tmp_path / "c", archive(index, "built", "1.0", broken))
    message = failure(spec, given, tmp_path / "new").message
    assert "no such compiler" in message and message.isprintable()


def test_what_cannot_be_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec, cache = checkout(tmp_path / "c", f"nowhere==1.0 {HASH}\n"), tmp_path / "cache"
    assert "nowhere" in failure(spec, outer(tmp_path), cache).message
    assert not [path for path in (cache / "environments").iterdir() if path.name != "uv-2"]
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python").write_text("#!/bin/sh\necho 'no such interpreter here'; exit 3\n")
    (tmp_path / "bin/python").chmod(0o755)
    given = outer(tmp_path, os.pathsep.join([str(tmp_path / "bin"), os.defpath]))
    assert "no such interpreter here" in failure(spec, given, cache).message

    def missing() -> str:
        raise FileNotFoundError("no uv")

    monkeypatch.setattr(install, "find_uv_bin", missing)
    assert "pip install uv" in failure(spec, outer(tmp_path), cache).message


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment as an image has it: itself a virtual environment, with two distributions, a
    command of each, and pip from further below."""
    folder = tmp_path_factory.mktemp("base") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    site = next((folder / "lib").glob("python*/site-packages"))
    below = next(path for path in sys.path if path.endswith("site-packages"))
    (site / "below.pth").write_text(f"import site; site.addsitedir({below!r})\n")
    for name in ("kept", "older"):
        (site / f"{name}.py").write_text(
            "import sys\nVERSION = 'of the base'\n"
            "def main():\n    import older\n    print(older.VERSION, sys.prefix)\n"
        )
        info = site / f"{name}-1.0+cpu.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0+cpu\n")
        (info / "entry_points.txt").write_text(f"[console_scripts]\n{name}-launch = {name}:main\n")
        (folder / "bin" / f"{name}-launch").write_text(f"#!{folder}/bin/python\nraise SystemExit\n")
        (folder / "bin" / f"{name}-launch").chmod(0o755)
    return folder


def test_the_base_keeps_what_is_locked_and_else_the_lock_wins(tmp_path: Path, base: Path) -> None:
    environment = outer(tmp_path, os.pathsep.join([str(base / "bin"), os.defpath]))
    spec = checkout(tmp_path / "c", f"kept==1.0 {HASH}\n" + wheel(tmp_path, "older", "2.0"))
    with installed(spec, tmp_path / "c", environment, SAME, cache_root=tmp_path / "cache") as made:
        code = "import kept, older; print(kept.VERSION, older.VERSION)"
        assert python(made, code) == "of the base 2.0"
        assert python(made, "", "kept-launch") == f"2.0 {made['VIRTUAL_ENV']}"
        assert not Path(made["VIRTUAL_ENV"], "bin/older-launch").exists()
    for version in ("1.1", "1.0+cu128"):
        spec = checkout(tmp_path / "c", f"kept=={version} {HASH}\n")
        assert "kept" in failure(spec, environment, tmp_path / "cache").message


def test_a_traced_training_sees_the_lock_and_the_check_compares_it(tmp_path: Path) -> None:
    spec = checkout(tmp_path / "c", wheel(tmp_path, "tiny", "1.0"))
    given, cache, script = outer(tmp_path), tmp_path / "cache", f"import tiny, yaml\n{LOOP}"
    with installed(spec, tmp_path / "c", given, SAME, cache_root=cache) as made:
        run = trace_script(
            tmp_path, script, env={"PATH": made["PATH"]}, recording=Recording(distributions=True)
        )
    assert run.good, (run.problem, run.ended.tail)
    (trace,) = run.traces
    assert trace.distributions is not None and trace.distributions["tiny"] == "1.0"
    # what is installed is no undeclared file
    assert not [item for item in trace.opened or () if "tiny" in str(item)]
    found = env_installed(evidence(spec=spec, runs=(run,)))
    lines = " ".join(map(str, found.evidence)).lower()
    assert found.status == "fail" and "yaml" in lines and "tiny" not in lines
    (tmp_path / "c/requirements.lock").write_text(f"tiny==1.1 {HASH}\n")
    assert "tiny 1.0" in " ".join(
        map(str, env_installed(evidence(spec=spec, runs=(run,))).evidence)
    )


GOOD = f"six==1.17.0 {HASH}\n"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("six==1.17.0\n", "requirements.lock:1: six: no hash"),
        (f"{GOOD}-e .\n", "requirements.lock:2: "),
        (f"{GOOD}--index-url https://example.org/simple\n", "requirements.lock:2: "),
        (f"{GOOD}./six.whl {HASH}\n", "requirements.lock:2: "),
        (f"{GOOD}six @ git+https://example.org/six@{'0' * 40}\n", "requirements.lock:2: six: "),
        (f"{GOOD}six @ https://example.org/${{UV_INDEX}}/six.whl {HASH}\n", "requirements.lock: "),
        (f"{GOOD}six==${{V}} {HASH}\n", "requirements.lock:2: "),
    ],
)
def test_what_has_no_version_and_hash_is_refused(text: str, place: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        installable(checkout(tmp_path, text), tmp_path)
    assert caught.value.reason_id == "install/lockfile" and "uv pip compile" in caught.value.remedy
    assert caught.value.message.startswith(f"env.install: {place}")


@pytest.mark.parametrize("name", ["uv.lock", "pylock.toml"])
def test_repositories_and_other_places_are_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    with pytest.raises(UsageError, match=f"{name}: six: "):
        installable(checkout(tmp_path, ALL[name], name), tmp_path)
    # an index that the lock names is not used
    text = served_lock(name, "https://example.org/${UV_INDEX}", GOOD)
    spec = checkout(tmp_path / "c", text, name)
    (tmp_path / "c/pyproject.toml").write_text(MINE)
    assert "$" not in installable(spec, tmp_path / "c")[1]["requirements.txt"]
    (tmp_path / "outside.txt").write_text(GOOD)
    for other, message in (("../outside.txt", "outside"), ("gone.lock", "is not there")):
        with pytest.raises(UsageError, match=message):
            installable(replace(spec, env=Env(other, install=True)), tmp_path / "c")
