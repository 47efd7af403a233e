"""Claims about `env.install`, with a real venv and a real pip that find wheels made here: what is imported, kept, shared, and refused."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from repro_gate.checks.env import installed as env_installed
from repro_gate.errors import Inconclusive, UsageError
from repro_gate.install.install import installed
from repro_gate.sandbox.identity import Isolation
from repro_gate.spec.model import Env, Spec
from tests.support.built_traces import evidence
from tests.support.tracing import trace_script
from tests.support.wheels import checkout, outer, wheel

SAME = Isolation()


def python(environment: Mapping[str, str], code: str) -> str:
    return subprocess.run(["python", "-c", code], env=dict(environment), check=True, capture_output=True, text=True, cwd="/").stdout.strip()


def seen(spec: Spec, environment: Mapping[str, str], cache: Path, code: str) -> str:
    """What `code` prints in the environment of `spec`."""
    with installed(spec, spec.path.parent, environment, SAME, cache_root=cache) as made:
        return python(made, code)


def failure(spec: Spec, environment: Mapping[str, str], cache: Path) -> Inconclusive:
    with pytest.raises(Inconclusive) as caught, installed(spec, spec.path.parent, environment, SAME, cache_root=cache):
        pass
    return caught.value


def test_without_the_key_nothing_changes(tmp_path: Path) -> None:
    spec = replace(checkout(tmp_path / "c", ""), env=Env("requirements.lock"))
    with installed(spec, tmp_path / "c", given := outer(tmp_path), SAME, cache_root=tmp_path / "cache") as made:
        assert made == given
    assert not (tmp_path / "cache").exists()


def test_what_the_lock_pins_is_imported_and_kept_for_the_next_gating(tmp_path: Path) -> None:
    index = tmp_path / "index"
    spec = checkout(tmp_path / "c", wheel(index, "tiny", "1.0") + "# a word\n")
    told: list[str] = []
    for _ in range(2):
        with installed(spec, tmp_path / "c", outer(index), SAME, cache_root=tmp_path / "cache", tell=told.append) as made:
            assert python(made, "import tiny, sys; print(tiny.VERSION, sys.prefix)") == f"1.0 {made['VIRTUAL_ENV']}"
            assert made["PATH"].startswith(made["VIRTUAL_ENV"] + "/bin" + os.pathsep)
            assert python(made, "import importlib.util as u; print(bool(u.find_spec('torch')))") == "True"  # the base's
        (index / "tiny-1.0-py3-none-any.whl").unlink(missing_ok=True)  # the second time nothing is left to install from
    assert len(told) == 1 and "requirements.lock" in told[0]
    assert not list((tmp_path / "cache/environments").glob("*.work"))


def test_another_lock_is_another_environment(tmp_path: Path) -> None:
    one, two = wheel(tmp_path, "tiny", "1.0"), wheel(tmp_path, "tiny", "2.0")
    code = "import tiny; print(tiny.VERSION)"
    assert seen(checkout(tmp_path / "c", one), outer(tmp_path), tmp_path / "cache", code) == "1.0"
    assert seen(checkout(tmp_path / "c", two), outer(tmp_path), tmp_path / "cache", code) == "2.0"
    assert seen(checkout(tmp_path / "c", one), {**outer(tmp_path), "PIP_FIND_LINKS": "/none"}, tmp_path / "cache", code) == "1.0"


def test_an_include_of_the_lock_is_installed_too(tmp_path: Path) -> None:
    spec = checkout(tmp_path / "c", f"-r more/other.txt\n{wheel(tmp_path, 'tiny', '1.0')}")
    (tmp_path / "c/more").mkdir()
    (tmp_path / "c/more/other.txt").write_text(wheel(tmp_path, "small", "3.0"))
    assert seen(spec, outer(tmp_path), tmp_path / "cache", "import tiny, small; print(small.VERSION)") == "3.0"


def test_an_environment_that_was_never_finished_is_made_anew(tmp_path: Path) -> None:
    spec = checkout(tmp_path / "c", wheel(tmp_path, "tiny", "1.0"))
    cache = tmp_path / "cache"
    with installed(spec, tmp_path / "c", outer(tmp_path), SAME, cache_root=cache) as made:
        folder = Path(made["VIRTUAL_ENV"])
    folder.with_name(folder.name + ".json").unlink()  # as a kill between two steps leaves it
    module = next(folder.rglob("tiny.py"))
    module.chmod(0o644)
    module.write_text("VERSION = 'half'\n")
    assert seen(spec, outer(tmp_path), cache, "import tiny; print(tiny.VERSION)") == "1.0"


def test_no_file_of_a_kept_environment_can_be_written(tmp_path: Path) -> None:
    spec = checkout(tmp_path / "c", wheel(tmp_path, "tiny", "1.0"))
    with installed(spec, tmp_path / "c", outer(tmp_path), SAME, cache_root=tmp_path / "cache") as made:
        paths = [Path(made["VIRTUAL_ENV"]), *Path(made["VIRTUAL_ENV"]).rglob("*")]
        assert any(path.name == "tiny.py" for path in paths)
        assert not [path for path in paths if not path.is_symlink() and path.stat().st_mode & 0o222]


def test_a_kept_environment_in_a_folder_that_was_named_can_be_removed_once_nobody_uses_it(tmp_path: Path) -> None:
    """The runner's next checkout removes the workspace, and with it the action's `cache`, as the runner's user."""
    spec, cache = checkout(tmp_path / "c", wheel(tmp_path / "index", "tiny", "1.0")), tmp_path / "cache"

    def closed(folder: Path) -> list[Path]:
        return [
            path for path in (folder, *folder.rglob("*")) if path.is_dir() and not path.is_symlink() and not path.stat().st_mode & 0o200
        ]

    with installed(spec, tmp_path / "c", outer(tmp_path / "index"), SAME, cache_root=cache) as first:
        with installed(spec, tmp_path / "c", outer(tmp_path / "index"), SAME, cache_root=cache) as second:
            assert first == second
        assert closed(cache)  # the first gate still uses it
    assert not closed(cache)
    with installed(spec, tmp_path / "c", outer(tmp_path / "index"), SAME, cache_root=cache):
        assert closed(cache)


def test_a_file_that_is_not_the_locked_one_is_named_and_nothing_is_kept(tmp_path: Path) -> None:
    wheel(tmp_path, "tiny", "1.0")
    error = failure(checkout(tmp_path / "c", f"tiny==1.0 --hash=sha256:{'0' * 64}\n"), outer(tmp_path), tmp_path / "cache")
    assert error.reason_id == "install/hash" and "tiny==1.0" in error.message
    assert [path.suffix for path in (tmp_path / "cache/environments").iterdir()] == [".lock"]


def test_a_distribution_that_no_index_has_is_named(tmp_path: Path) -> None:
    error = failure(checkout(tmp_path / "c", f"nowhere==1.0 --hash=sha256:{'0' * 64}\n"), outer(tmp_path), tmp_path / "cache")
    assert error.reason_id == "install/not-found" and "nowhere==1.0" in error.message


def test_no_network_is_told_apart_from_a_distribution_that_is_not_there(tmp_path: Path) -> None:
    environment = {"PATH": outer(tmp_path)["PATH"], "PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "1"}
    error = failure(
        checkout(tmp_path / "c", f"tiny==1.0 --hash=sha256:{'0' * 64}\n"),
        {**environment, "PIP_CONFIG_FILE": os.devnull},
        tmp_path / "cache",
    )
    assert error.reason_id == "install/network" and "PIP_FIND_LINKS" in error.remedy


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment as an image has it: itself a virtual environment, with two distributions, a command, and pip from further below."""
    folder = tmp_path_factory.mktemp("base") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    site = next((folder / "lib").glob("python*/site-packages"))
    below = next(path for path in sys.path if path.endswith("site-packages"))
    (site / "below.pth").write_text(f"import site; site.addsitedir({below!r})\n")
    for name in ("kept", "older"):
        (site / f"{name}.py").write_text("VERSION = 'of the base'\n")
        (site / f"{name}-1.0.dist-info").mkdir()
        (site / f"{name}-1.0.dist-info/METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    for name, first in (("launch", f"#!{folder}/bin/python\n"), ("elsewhere", "#!/usr/bin/env python3\n")):
        (folder / "bin" / name).write_text(first + "import sys, older\nprint(older.VERSION, sys.prefix)\n")
        (folder / "bin" / name).chmod(0o755)
    return folder


def test_the_base_keeps_what_it_has_in_the_pinned_version_and_the_lock_goes_before_the_rest(tmp_path: Path, base: Path) -> None:
    lock = f"kept==1.0 --hash=sha256:{'0' * 64}\n" + wheel(tmp_path, "older", "2.0")
    environment = outer(tmp_path, os.pathsep.join([str(base / "bin"), os.defpath]))
    code = "import kept, older; print(kept.VERSION, older.VERSION)"
    assert seen(checkout(tmp_path / "c", lock), environment, tmp_path / "cache", code) == "of the base 2.0"


def test_a_command_of_the_base_starts_the_environment_with_the_lock(tmp_path: Path, base: Path) -> None:
    environment = outer(tmp_path, os.pathsep.join([str(base / "bin"), os.defpath]))
    spec = checkout(tmp_path / "c", wheel(tmp_path, "older", "2.0"))
    with installed(spec, tmp_path / "c", environment, SAME, cache_root=tmp_path / "cache") as made:
        said = subprocess.run(["launch"], env=dict(made), check=True, capture_output=True, text=True).stdout.strip()
        assert said == f"2.0 {made['VIRTUAL_ENV']}"
        assert not (Path(made["VIRTUAL_ENV"]) / "bin/elsewhere").exists()


def test_a_base_without_pip_is_lent_one_that_is_taken_back(tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True)
    environment = outer(tmp_path, os.pathsep.join([str(bare / "bin"), os.defpath]))
    spec = checkout(tmp_path / "c", wheel(tmp_path, "tiny", "1.0"))
    code = "import tiny, importlib.util as u; print(tiny.VERSION, u.find_spec('pip'), u.find_spec('setuptools'))"
    assert seen(spec, environment, tmp_path / "cache", code) == "1.0 None None"


def test_a_base_with_other_distributions_is_another_environment(tmp_path: Path, base: Path) -> None:
    spec = checkout(tmp_path / "c", wheel(tmp_path, "older", "2.0"))
    environment = outer(tmp_path, os.pathsep.join([str(base / "bin"), os.defpath]))
    folders = set()
    for step in range(2):
        with installed(spec, tmp_path / "c", environment, SAME, cache_root=tmp_path / "cache") as made:
            folders.add(made["VIRTUAL_ENV"])
        (next((base / "lib").glob("python*/site-packages")) / f"new-{step}.dist-info").mkdir()
    assert len(folders) == 2


def test_two_gates_at_once_make_one_environment(tmp_path: Path) -> None:
    checkout(tmp_path / "c", wheel(tmp_path, "tiny", "1.0"))
    program = f"""
import sys
from pathlib import Path
from repro_gate.install.install import installed
from repro_gate.sandbox.identity import Isolation
from tests.support.wheels import checkout, outer
there = Path({str(tmp_path)!r})
own = there / sys.argv[1]  # one checkout each, with the same lock
spec = checkout(own, (there / "c/requirements.lock").read_text())
with installed(spec, own, outer(there), Isolation(), cache_root=there / "cache", tell=print) as made:
    print(made["VIRTUAL_ENV"])
"""
    root = Path(__file__).resolve().parents[2]
    both = [subprocess.Popen([sys.executable, "-c", program, name], cwd=root, stdout=subprocess.PIPE, text=True) for name in ("one", "two")]
    said = [process.communicate(timeout=120)[0].splitlines() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sorted(len(lines) for lines in said) == [1, 2] and said[0][-1] == said[1][-1]


def test_a_path_of_the_training_that_would_hide_the_lock_is_refused(tmp_path: Path) -> None:
    spec = checkout(tmp_path / "c", wheel(tmp_path, "tiny", "1.0"))
    spec = replace(spec, train=replace(spec.train, env={"PATH": "/usr/bin"}))
    with pytest.raises(UsageError, match=r"train\.env\.PATH"), installed(spec, tmp_path / "c", outer(tmp_path), SAME):
        pass


def test_an_interpreter_that_cannot_carry_an_environment_is_named(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python").write_text("#!/bin/sh\necho 'no such interpreter here'; exit 3\n")
    (tmp_path / "bin/python").chmod(0o755)
    spec = checkout(tmp_path / "c", wheel(tmp_path, "tiny", "1.0"))
    error = failure(spec, outer(tmp_path, os.pathsep.join([str(tmp_path / "bin"), os.defpath])), tmp_path / "cache")
    assert error.reason_id == "install/interpreter" and "no such interpreter here" in error.message


def test_a_traced_training_sees_the_lock_and_the_check_holds_it_against_it(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    spec = checkout(tmp_path / "c", wheel(tmp_path, "tiny", "1.0"))
    script = """
        import tiny, torch
        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
    """
    with installed(spec, tmp_path / "c", outer(tmp_path), SAME, cache_root=tmp_path / "cache") as made:
        run = trace_script(tmp_path, script, env={"PATH": made["PATH"]}, observe=True)
    assert run.good, (run.problem, run.ended.tail)
    (trace,) = run.traces
    assert trace.distributions is not None and trace.distributions["tiny"] == "1.0" and "torch" in trace.distributions
    assert not [item for item in trace.opened or () if "tiny" in str(item)]  # what is installed is no undeclared file
    found = env_installed(evidence(spec=spec, runs=(run,)))
    assert found.status == "fail" and "torch" in " ".join(found.evidence) and "tiny" not in " ".join(found.evidence)
    (tmp_path / "c/requirements.lock").write_text(f"tiny==1.1 --hash=sha256:{'0' * 64}\n")
    assert "tiny 1.0" in " ".join(env_installed(evidence(spec=spec, runs=(run,))).evidence)
