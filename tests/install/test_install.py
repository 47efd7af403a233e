"""Claims about `env.install`, with the real uv that finds wheels made here: what is imported, kept,
shared, and refused."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from repro_gate.checks.env import installed as env_installed
from repro_gate.errors import Inconclusive, UsageError
from repro_gate.install.install import _SOURCES, installed, wanted
from repro_gate.sandbox.identity import Sandbox
from repro_gate.spec.model import Env, Spec
from tests.support.built_traces import evidence
from tests.support.gates import LOOP
from tests.support.tracing import trace_script
from tests.support.wheels import archive, builds, checkout, outer, wheel

SAME = Sandbox()
CODE = "import tiny; print(tiny.VERSION)"
HASH = f"--hash=sha256:{'0' * 64}"


def python(environment: Mapping[str, str], code: str) -> str:
    return subprocess.run(
        ["python", "-c", code],
        env=dict(environment),
        check=True,
        capture_output=True,
        text=True,
        cwd="/",
    ).stdout.strip()


def seen(spec: Spec, environment: Mapping[str, str], cache: Path, code: str) -> str:
    """What `code` prints in the environment of `spec`."""
    with installed(spec, spec.path.parent, environment, SAME, cache_root=cache) as made:
        return python(made, code)


def failure(spec: Spec, environment: Mapping[str, str], cache: Path) -> Inconclusive:
    with (
        pytest.raises(Inconclusive) as caught,
        installed(spec, spec.path.parent, environment, SAME, cache_root=cache),
    ):
        pass
    return caught.value


def test_without_the_key_nothing_changes_and_a_path_that_would_hide_the_lock_is_refused(
    tmp_path: Path,
) -> None:
    spec, given = checkout(tmp_path / "c", ""), outer(tmp_path)
    with installed(
        replace(spec, env=Env("requirements.lock")),
        tmp_path / "c",
        given,
        SAME,
        cache_root=tmp_path / "cache",
    ) as made:
        assert made == given
    spec = replace(spec, train=replace(spec.train, env={"PATH": "/usr/bin"}))
    with (
        pytest.raises(UsageError, match=r"train\.env\.PATH"),
        installed(spec, tmp_path / "c", given, SAME, cache_root=tmp_path / "cache"),
    ):
        pass
    assert not (tmp_path / "cache").exists()


def test_what_the_lock_pins_is_imported_on_top_of_what_is_there_and_is_gone_afterwards(
    tmp_path: Path,
) -> None:
    spec = checkout(tmp_path / "c", wheel(tmp_path / "index", "tiny", "1.0") + "# a word\n")
    told: list[str] = []
    given = outer(tmp_path / "index")
    with installed(
        spec, tmp_path / "c", given, SAME, cache_root=tmp_path / "cache", tell=told.append
    ) as made:
        assert (
            python(made, "import tiny, sys; print(tiny.VERSION, sys.prefix)")
            == f"1.0 {made['VIRTUAL_ENV']}"
        )
        assert made["PATH"].startswith(made["VIRTUAL_ENV"] + "/bin" + os.pathsep)
        # the base's
        assert (
            python(made, "import importlib.util as u; print(bool(u.find_spec('torch')))") == "True"
        )
        with installed(spec, tmp_path / "c", given, SAME, cache_root=tmp_path / "cache") as beside:
            assert beside["VIRTUAL_ENV"] != made["VIRTUAL_ENV"]
            assert python(beside, CODE) == "1.0"
        first = made["VIRTUAL_ENV"]
    assert told == ["installing what requirements.lock pins (1)"] and not Path(first).exists()
    with installed(spec, tmp_path / "c", given, SAME, cache_root=tmp_path / "cache") as made:
        assert made["VIRTUAL_ENV"] == first  # each gate run alone trains at the same path


def test_another_lock_is_another_environment_and_an_include_is_installed_too(
    tmp_path: Path,
) -> None:
    one, two = wheel(tmp_path, "tiny", "1.0"), wheel(tmp_path, "tiny", "2.0")
    assert seen(checkout(tmp_path / "c", one), outer(tmp_path), tmp_path / "cache", CODE) == "1.0"
    (tmp_path / "c/more").mkdir()
    (tmp_path / "c/more/other.txt").write_text(wheel(tmp_path, "small", "3.0"))
    spec = checkout(tmp_path / "c", f"-r more/other.txt\n{two}")
    assert (
        seen(
            spec,
            outer(tmp_path),
            tmp_path / "cache",
            "import tiny, small; print(tiny.VERSION, small.VERSION)",
        )
        == "2.0 3.0"
    )


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


def test_what_the_cache_holds_needs_no_index_again(tmp_path: Path) -> None:
    lock = wheel(tmp_path / "index/tiny", "tiny", "1.0")
    spec = checkout(tmp_path / "c", lock)
    with served(tmp_path / "index") as address:
        given = {
            "PATH": outer(tmp_path)["PATH"],
            "PIP_INDEX_URL": address,
            "PIP_RETRIES": "0",
            "PIP_CONFIG_FILE": os.devnull,
        }
        assert seen(spec, given, tmp_path / "cache", CODE) == "1.0"
    assert seen(spec, given, tmp_path / "cache", CODE) == "1.0"  # nobody serves it any more
    error = failure(spec, given, tmp_path / "other cache")
    assert error.reason_id == "install/network" and "PIP_FIND_LINKS" in error.remedy


def test_what_a_killed_gate_run_left_is_cleared_away_and_no_file_of_the_environment_can_be_written(
    tmp_path: Path,
) -> None:
    spec = checkout(tmp_path / "c", wheel(tmp_path, "tiny", "1.0"))
    left = tmp_path / "cache/environments/0"
    (left / "venv/lib").mkdir(parents=True)
    (left / "venv/lib/half.py").write_text("")
    left.chmod(0o500)
    with installed(
        spec, tmp_path / "c", outer(tmp_path), SAME, cache_root=tmp_path / "cache"
    ) as made:
        assert (
            made["VIRTUAL_ENV"] == str(left / "venv") and not (left / "venv/lib/half.py").exists()
        )
        paths = [left / "venv", *(left / "venv").rglob("*")]
        assert any(path.name == "tiny.py" for path in paths)
        assert not [path for path in paths if not path.is_symlink() and path.stat().st_mode & 0o222]


def test_a_source_archive_is_built_and_its_wheel_is_kept_for_nobody(tmp_path: Path) -> None:
    index, spec = (
        tmp_path / "index",
        checkout(tmp_path / "c", archive(tmp_path / "index", "built", "1.0", builds())),
    )
    assert seen(spec, outer(index), tmp_path / "cache", "import built; print(built.SAID)") == "{}"
    assert not list((tmp_path / "cache").rglob("built.py"))
    broken = {**builds(), "backend.py": "raise SystemExit('no such compiler')\n"}
    error = failure(
        checkout(tmp_path / "c", archive(index, "built", "1.0", broken)),
        outer(index),
        tmp_path / "new",
    )
    assert error.reason_id == "install/build" and "no such compiler" in error.message


def test_a_folder_of_wheels_that_the_lock_names_is_found_beside_it(tmp_path: Path) -> None:
    spec = checkout(
        tmp_path / "c",
        "--no-index\n--find-links ./wheels\n" + wheel(tmp_path / "c/wheels", "tiny", "1.0"),
    )
    given = {"PATH": outer(tmp_path)["PATH"], "PIP_CONFIG_FILE": os.devnull}
    assert seen(spec, given, tmp_path / "cache", CODE) == "1.0"


def test_blank_lines_of_a_lock_cost_no_time(tmp_path: Path) -> None:
    lock = "\n" * 40_000 + f"  --find-links wheels\ntiny==1.0 {HASH}\n"
    began = time.process_time()
    _, texts = wanted(checkout(tmp_path / "c", lock), tmp_path / "c")
    [text] = texts.values()
    assert not _SOURCES.search(text)
    assert time.process_time() - began < 2
    assert f"\n  --find-links {tmp_path}/c/wheels\n" in text
    assert all(
        _SOURCES.search(f"\n{line}\n")
        for line in ("--no-binary=:all:", "  --no-binary tiny", "--no-binary")
    )


def test_a_file_that_is_not_the_locked_one_or_that_no_index_has_is_named_and_nothing_is_kept(
    tmp_path: Path,
) -> None:
    wheel(tmp_path, "tiny", "1.0")
    for name, reason in (("tiny", "install/hash"), ("nowhere", "install/not-found")):
        error = failure(
            checkout(tmp_path / "c", f"{name}==1.0 {HASH}\n"), outer(tmp_path), tmp_path / "cache"
        )
        assert error.reason_id == reason and name in error.message
    assert not (tmp_path / "cache/environments/0").exists() and not list(
        (tmp_path / "cache").rglob("tiny.py")
    )


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment as an image has it: itself a virtual environment, with two distributions, a
    command, and pip from further below."""
    folder = tmp_path_factory.mktemp("base") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    site = next((folder / "lib").glob("python*/site-packages"))
    below = next(path for path in sys.path if path.endswith("site-packages"))
    (site / "below.pth").write_text(f"import site; site.addsitedir({below!r})\n")
    for name in ("kept", "older"):
        (site / f"{name}.py").write_text("VERSION = 'of the base'\n")
        (site / f"{name}-1.0.dist-info").mkdir()
        (site / f"{name}-1.0.dist-info/METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
        )
    for name, first in (
        ("launch", f"#!{folder}/bin/python\n"),
        ("elsewhere", "#!/usr/bin/env python3\n"),
    ):
        (folder / "bin" / name).write_text(
            first + "import sys, older\nprint(older.VERSION, sys.prefix)\n"
        )
        (folder / "bin" / name).chmod(0o755)
    return folder


def test_the_base_keeps_what_it_has_pinned_the_lock_goes_before_the_rest_and_the_bases_commands_start_it(
    tmp_path: Path, base: Path
) -> None:
    environment = outer(tmp_path, os.pathsep.join([str(base / "bin"), os.defpath]))
    spec = checkout(tmp_path / "c", f"kept==1.0 {HASH}\n" + wheel(tmp_path, "older", "2.0"))
    with installed(spec, tmp_path / "c", environment, SAME, cache_root=tmp_path / "cache") as made:
        assert (
            python(made, "import kept, older; print(kept.VERSION, older.VERSION)")
            == "of the base 2.0"
        )
        launched = subprocess.run(
            ["launch"], env=dict(made), check=True, capture_output=True, text=True
        ).stdout.strip()
        assert launched == f"2.0 {made['VIRTUAL_ENV']}"
        assert not (Path(made["VIRTUAL_ENV"]) / "bin/elsewhere").exists()


def test_an_interpreter_that_cannot_carry_an_environment_is_named(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python").write_text("#!/bin/sh\necho 'no such interpreter here'; exit 3\n")
    (tmp_path / "bin/python").chmod(0o755)
    spec = checkout(tmp_path / "c", wheel(tmp_path, "tiny", "1.0"))
    error = failure(
        spec,
        outer(tmp_path, os.pathsep.join([str(tmp_path / "bin"), os.defpath])),
        tmp_path / "cache",
    )
    assert error.reason_id == "install/interpreter" and "no such interpreter here" in error.message


def test_a_traced_training_sees_the_lock_and_the_check_compares_it(tmp_path: Path) -> None:
    spec = checkout(tmp_path / "c", wheel(tmp_path, "tiny", "1.0"))
    with installed(
        spec, tmp_path / "c", outer(tmp_path), SAME, cache_root=tmp_path / "cache"
    ) as made:
        run = trace_script(
            tmp_path, f"import tiny, yaml\n{LOOP}", env={"PATH": made["PATH"]}, observe=True
        )
    assert run.good, (run.problem, run.ended.tail)
    (trace,) = run.traces
    assert trace.distributions is not None and trace.distributions["tiny"] == "1.0"
    # what is installed is no undeclared file
    assert not [item for item in trace.opened or () if "tiny" in str(item)]
    found = env_installed(evidence(spec=spec, runs=(run,)))
    assert (
        found.status == "fail"
        and "yaml" in " ".join(found.evidence).lower()
        and "tiny" not in " ".join(found.evidence)
    )
    (tmp_path / "c/requirements.lock").write_text(f"tiny==1.1 {HASH}\n")
    assert "tiny 1.0" in " ".join(env_installed(evidence(spec=spec, runs=(run,))).evidence)
