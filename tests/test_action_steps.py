"""The scripts of the composite actions, run as the runner runs them: what the gate is given and kept from, and what outlives it.

`native` makes its real environment; the gate in it is one that writes down what it was given. `docker` is a program that does the same.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from tests.support.composite import Job, load, steps

SYSTEM = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GITHUB_EVENT_NAME": "push"}
TOKEN = "a-token-that-nobody-may-see"
# What the code knows of to keep it from the training, or looks for where there is no container: none of it is for the gate's container.
NEVER = {"GITHUB_TOKEN", "GITHUB_ENV", "GITHUB_PATH", "GITHUB_STATE", "RUNNER_TEMP"}
# Writes down its arguments and its environment, and does what a hostile training of the same user can do.
GATE = """
import json, os, sys
os.makedirs("seen", exist_ok=True)
given = {"flags": [sys.flags.isolated, sys.path], "argv": sys.argv[1:], "environment": dict(os.environ)}
with open(f"seen/{sys.argv[1]}.json", "w") as file:
    json.dump(given, file)
if sys.argv[1] == "gate":
    for name in ("GITHUB_ENV", "GITHUB_PATH", "GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY"):
        with open(os.environ[name], "a") as file:
            file.write("LD_PRELOAD=/tmp/mine.so\\n")
    if "PLANT" in os.environ:
        if os.path.lexists(os.environ["PLANT"]):
            os.unlink(os.environ["PLANT"])
        with open(os.environ["PLANT"], "w") as file:
            file.write(os.environ["PLANTED"])
sys.exit(int(os.environ.get("EXIT", "0")))
"""
DOCKER = """#!{python}
import json, os, sys
known = [name for name in os.environ if name.startswith(("INPUT_", "GITHUB_", "RUNNER_", "REPRO_", "NVIDIA_"))]
with open({log!r}, "a") as file:
    json.dump({{"argv": sys.argv[1:], "environment": {{name: os.environ[name] for name in known}}}}, file)
    file.write("\\n")
if sys.argv[1:2] == ["build"]:
    with open(sys.argv[sys.argv.index("--iidfile") + 1], "w") as file:
        file.write("sha256:" + "1" * 64)
sys.exit(int(os.environ.get("EXIT", "0")) if sys.argv[1] == "run" else 0)
"""


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """A job in which `setup` of the native action has run, in a copy of the repository that holds a gate of ours and needs no packages."""
    root = tmp_path_factory.mktemp("action")
    (root / "native").mkdir()
    (root / "requirements").mkdir()
    (root / "requirements/gate.lock").write_text("# nothing\n")
    package = root / "repro_gate/github"
    package.mkdir(parents=True)
    for folder in (package.parent, package):
        (folder / "__init__.py").write_text("")
    (package / "__main__.py").write_text(GATE)
    (root / "docs/checks").mkdir(parents=True)
    for page in ("checks/a.md", "reasons.md"):
        (root / "docs" / page).write_text("a page\n")
    job = Job(tmp_path_factory.mktemp("job"), SYSTEM, root / "native")
    # What an untrusted checkout may hold: it is the current folder of each step.
    for name in ("venv", "pip", "sysconfig", "repro_gate"):
        (job.folder / f"workspace/{name}.py").write_text("raise SystemExit('the checkout was imported')\n")
    for step in ("token", "setup"):
        ended = job.run("native", step, {"python": sys.executable})
        assert ended.returncode == 0, ended.stdout + ended.stderr
    return job


def seen(job: Job, phase: str) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = json.loads((job.folder / f"workspace/seen/{phase}.json").read_text())
    return found


def test_the_gate_is_given_the_inputs_and_not_the_token(native: Job) -> None:
    ended = native.run("native", "gate", {"spec": "a.yml", "set": "train.steps=2\ncost.measure=false", "token": TOKEN})
    assert ended.returncode == 0, ended.stderr
    given = seen(native, "gate")["environment"]
    assert given["INPUT_SPEC"] == "a.yml"
    assert given["INPUT_SET"] == "train.steps=2\ncost.measure=false"
    assert {f"INPUT_{name.upper()}" for name in load("container")["inputs"]} - set(given) == {"INPUT_TOKEN"}
    assert TOKEN not in json.dumps(given)


def test_whoever_publishes_is_given_the_token(native: Job) -> None:
    assert native.run("native", "token", {}).returncode == 0
    ended = native.run("native", "publish", {"token": TOKEN}, EXIT="1")
    assert ended.returncode == 1
    assert seen(native, "publish")["environment"]["INPUT_TOKEN"] == TOKEN


@pytest.mark.parametrize(
    ("event", "inputs", "sandbox", "given"),
    [
        ("pull_request", {}, "", False),
        ("merge_group", {}, "same-user", False),
        ("pull_request", {"token_on_pull_requests": "true"}, "", True),
        ("pull_request", {}, "own-user", True),
        ("workflow_run", {"command": "comment"}, "", True),
        ("schedule", {}, "", True),
    ],
)
def test_on_a_pull_request_there_is_a_token_only_where_somebody_says_so(
    event: str, inputs: dict[str, str], sandbox: str, given: bool, native: Job
) -> None:
    ended = native.run("native", "token", inputs, GITHUB_EVENT_NAME=event, REPRO_GATE_SANDBOX=sandbox)
    assert ended.returncode == 0 and ("token_on_pull_requests" in ended.stdout) is not given, ended.stdout
    native.run("native", "publish", {"token": TOKEN, **inputs})
    assert seen(native, "publish")["environment"]["INPUT_TOKEN"] == (TOKEN if given else "")


PLANT = "import os; os.path.exists({mark!r}) or open({mark!r}, 'w').write(os.environ.get('INPUT_TOKEN', 'ran'))\n"


@pytest.mark.parametrize("where", ["a .pth file", "the package", "the package's copy", "the interpreter", "a new module"])
def test_what_the_training_changed_is_refused_before_anything_has_the_token(where: str, native: Job, tmp_path: Path) -> None:
    place = Path(native.outputs["setup"]["place"])
    site = Path(native.outputs["setup"]["site"])
    planted = {
        "a .pth file": site / "planted.pth",
        "the package": native.action_path.parent / "repro_gate/__init__.py",
        "the package's copy": place / "venv/copy/repro_gate/__init__.py",
        "the interpreter": place / "venv/bin/python",
        "a new module": site / "yaml.py",
    }[where]
    twin = native.run("native", "verify", {})
    assert twin.returncode == 0, twin.stdout  # what the gate itself leaves is no change
    before = planted.readlink() if planted.is_symlink() else planted.read_text() if planted.exists() else None
    try:
        native.run("native", "gate", {}, PLANT=str(planted), PLANTED=PLANT.format(mark=str(tmp_path / "mark")))
        assert planted.is_file() and not planted.is_symlink()
        ended = native.run("native", "verify", {})
        assert ended.returncode == 2
        assert "::error title=Repro Gate::" in ended.stdout and "was changed" in ended.stdout and not (tmp_path / "mark").exists()
    finally:
        planted.unlink()
        if isinstance(before, Path):
            planted.symlink_to(before)
        elif before is not None:
            planted.write_text(before)
    assert native.run("native", "verify", {}).returncode == 0
    assert steps("native")["publish"]["if"] == "${{ always() && steps.verify.outcome == 'success' }}"
    assert "oken" not in str(steps("native")["verify"]["env"])


def test_the_step_with_the_token_obeys_no_pth_file_and_reads_no_compiled_copy(native: Job, tmp_path: Path) -> None:
    """Should anything slip past the digest, in the moment after it: no `site`, no `__pycache__`."""
    planted = Path(native.outputs["setup"]["site"]) / "planted.pth"
    planted.write_text(PLANT.format(mark=str(tmp_path / "mark")))
    native.run("native", "token", {})
    try:
        native.run("native", "publish", {"token": TOKEN})
    finally:
        planted.unlink()
    assert not (tmp_path / "mark").exists() and seen(native, "publish")["environment"]["INPUT_TOKEN"] == TOKEN


def test_what_is_planted_beside_the_package_is_not_imported_where_the_token_is(native: Job, tmp_path: Path) -> None:
    """The action's checkout is not on the path there; the package and its pages are a copy in the environment that `verify` digests."""
    site, copy = (Path(native.outputs["setup"][name]) for name in ("site", "copy"))
    planted = native.action_path.parent / "json.py"
    planted.write_text(PLANT.format(mark=str(tmp_path / "mark")) + "raise SystemExit('planted')\n")
    native.run("native", "token", {})
    try:
        program = f"import sys; sys.path[:0] = [{str(planted.parent)!r}, {str(site)!r}]; import repro_gate.github.__main__"
        twin = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=False)
        assert "planted" in twin.stderr and (tmp_path / "mark").read_text() == "ran"  # with the checkout on the path it is imported
        (tmp_path / "mark").unlink()
        assert native.run("native", "verify", {}).returncode == 0  # it is not part of what runs
        assert native.run("native", "publish", {"token": TOKEN}).returncode == 0
    finally:
        planted.unlink()
    assert not (tmp_path / "mark").exists() and seen(native, "publish")["environment"]["INPUT_TOKEN"] == TOKEN
    _, path = seen(native, "publish")["flags"]
    assert str(planted.parent) not in path and list(path[-2:]) == [str(copy), str(site)]
    pages = copy / "repro_gate/checks/pages"
    assert (
        copy.is_relative_to(Path(native.outputs["setup"]["place"]) / "venv")
        and (pages / "a.md").is_file()
        and (pages / "reasons.md").is_file()
    )


@pytest.fixture(scope="module")
def own_interpreter(native: Job, tmp_path_factory: pytest.TempPathFactory) -> tuple[Job, Path]:
    """A job with an interpreter that a test may plant files beside, and that interpreter's folder."""
    version = f"python3.{sys.version_info.minor}"
    home = tmp_path_factory.mktemp("interpreter")
    (home / "bin").mkdir()
    shutil.copy(Path(sys._base_executable).resolve(), home / "bin/python3")  # type: ignore[attr-defined]
    shutil.copytree(
        sysconfig.get_path("stdlib"),
        home / "lib" / version,
        ignore=shutil.ignore_patterns("site-packages", "dist-packages", "test*", "config-*"),
    )
    (home / "lib" / version / "site-packages").mkdir()
    for library in Path(sys.base_prefix, "lib").glob("libpython*"):
        shutil.copy(library, home / "lib")
    given = {**SYSTEM, "LD_LIBRARY_PATH": str(home / "lib")}
    if subprocess.run([home / "bin/python3", "-I", "-c", "import ensurepip, ssl"], env=given, capture_output=True, check=False).returncode:
        pytest.skip("this Python cannot be copied elsewhere")
    job = Job(tmp_path_factory.mktemp("own"), given, native.action_path)
    for step in ("token", "setup"):
        ended = job.run("native", step, {"python": str(home / "bin/python3")})
        assert ended.returncode == 0, ended.stdout + ended.stderr
    return job, home


def test_the_archive_that_python_looks_into_first_is_not_used_where_the_token_is(own_interpreter: tuple[Job, Path], tmp_path: Path) -> None:
    job, home = own_interpreter
    archive = home / f"lib/python3{sys.version_info.minor}.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("json.py", PLANT.format(mark=str(tmp_path / "mark")) + "raise SystemExit('planted')\n")
    try:
        twin = subprocess.run(
            [job.outputs["setup"]["python"], "-I", "-S", "-B", "-c", "import json"],
            env=job.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert "planted" in twin.stderr and (tmp_path / "mark").read_text() == "ran"
        (tmp_path / "mark").unlink()
        assert job.run("native", "publish", {"token": TOKEN}).returncode == 0  # even where nothing has verified
    finally:
        archive.unlink()
    given = seen(job, "publish")["environment"]
    assert not (tmp_path / "mark").exists() and given["INPUT_TOKEN"] == TOKEN
    assert given["LD_LIBRARY_PATH"] == str(home / "lib") and "OPENSSL_CONF" not in given  # as they were in `setup`


@pytest.mark.parametrize("where", ["lib/python3{}.zip/encodings/__init__.py", "bin/pybuilddir.txt"])
def test_what_python_reads_before_any_program_is_verified(where: str, own_interpreter: tuple[Job, Path], tmp_path: Path) -> None:
    job, home = own_interpreter
    assert job.run("native", "verify", {}).returncode == 0
    planted = home / where.format(sys.version_info.minor)
    planted.parent.mkdir(parents=True, exist_ok=True)
    planted.write_text("raise SystemExit('planted')\n")
    try:
        python = [job.outputs["setup"]["python"], "-I", "-S", "-B", "-c", "import sys; print(sys.path)"]
        twin = subprocess.run(python, env=job.environment, capture_output=True, text=True, check=False)
        assert "planted" in twin.stdout + twin.stderr or twin.returncode  # it has a say before the program does
        ended = job.run("native", "verify", {})
        assert ended.returncode == 2 and "was changed" in ended.stdout
    finally:
        planted.unlink()
        if planted.name == "__init__.py":
            shutil.rmtree(planted.parents[1])
    assert job.run("native", "verify", {}).returncode == 0


def test_the_checkout_is_not_on_the_gates_path(native: Job) -> None:
    native.run("native", "gate", {})
    isolated, path = seen(native, "gate")["flags"]
    assert isolated
    assert str(native.folder / "workspace") not in path and "" not in path
    assert str(native.action_path.parent) in path


def test_an_input_is_no_code(native: Job) -> None:
    hostile = '$(touch pwned) `touch pwned` "; touch pwned; #'
    native.run("native", "gate", {"spec": hostile})
    assert seen(native, "gate")["environment"]["INPUT_SPEC"] == hostile
    assert not (native.folder / "workspace/pwned").exists()


@pytest.mark.parametrize("code", ["0", "3"])
def test_what_training_writes_into_the_runners_files_is_thrown_away(native: Job, code: str) -> None:
    ended = native.run("native", "gate", {}, EXIT=code)
    assert ended.returncode == int(code)
    assert [native.command_file("gate", name) for name in ("ENV", "PATH", "OUTPUT", "STEP_SUMMARY")] == ["", "", "", ""]


def test_nothing_is_preloaded_where_the_token_is(native: Job) -> None:
    native.run("native", "publish", {"token": TOKEN})
    given = seen(native, "publish")["environment"]
    assert [given[name] for name in ("LD_PRELOAD", "LD_AUDIT", "BASH_ENV")] == ["", "", ""]


@pytest.mark.parametrize(("python", "said"), [("no-such-python", "no such interpreter"), ("false", "needs Python 3.10 or newer")])
def test_an_interpreter_that_will_not_do_is_named_with_what_will(tmp_path: Path, python: str, said: str) -> None:
    ended = Job(tmp_path, SYSTEM, tmp_path).run("native", "setup", {"python": python})
    assert ended.returncode == 2
    assert "::error title=Repro Gate::python:" in ended.stdout and said in ended.stdout


def test_the_gates_environment_is_removed_at_the_end(tmp_path: Path) -> None:
    job = Job(tmp_path, SYSTEM, tmp_path)
    (tmp_path / "temp/place").mkdir()
    job.outputs["setup"] = {"place": str(tmp_path / "temp/place")}
    assert job.run("native", "#5", {}).returncode == 0
    assert not (tmp_path / "temp/place").exists()


@pytest.fixture
def docker(tmp_path: Path) -> Job:
    """A job on whose PATH `docker` writes down what it is asked."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin/docker"
    program.write_text(DOCKER.format(python=sys.executable, log=str(tmp_path / "docker.log")))
    program.chmod(0o755)
    github = {"GITHUB_REPOSITORY": "o/r", "GITHUB_EVENT_NAME": "push", "GITHUB_TOKEN": TOKEN, "ACTIONS_RUNTIME_TOKEN": TOKEN}
    return Job(tmp_path, {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}", **github}, tmp_path)


def asked(job: Job, step: str, **inputs: str) -> list[str]:
    """The arguments of the one `docker run` of a step."""
    job.outputs.setdefault("image", {"image": "gate@sha256:1", "by_digest": "gate@sha256:1"})
    job.run("docker-run", step, {"token": TOKEN, **inputs})
    calls = [json.loads(line)["argv"] for line in (job.folder / "docker.log").read_text().splitlines()]
    (found,) = [call for call in calls if call[0] == "run"]
    return list(found)


def values(argv: list[str], option: str) -> list[str]:
    return [after for before, after in itertools.pairwise(argv) if before == option]


def test_the_gates_container_has_no_token_no_network_no_socket_and_few_capabilities(docker: Job) -> None:
    argv = asked(docker, "gate")
    assert argv[-2:] == ["gate@sha256:1", "gate"]
    assert values(argv, "--network") == ["none"]
    assert values(argv, "--cap-drop") == ["ALL"]
    assert set(values(argv, "--cap-add")) == {"CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETPCAP", "SETUID"}
    assert "--privileged" not in argv and values(argv, "--security-opt") == ["no-new-privileges"]
    assert {mount.split("target=")[1] for mount in values(argv, "--mount")} == {
        "/github/workspace",
        "/github/workflow/event.json,readonly",
    }
    assert TOKEN not in " ".join(argv)
    handed = {text.partition("=")[0] for text in values(argv, "--env")}
    assert handed.isdisjoint({"INPUT_TOKEN", "GITHUB_TOKEN", "ACTIONS_RUNTIME_TOKEN", "GITHUB_OUTPUT", "GITHUB_ENV", "GITHUB_PATH"})
    assert {f"INPUT_{name.upper()}" for name in load("container")["inputs"]} - handed == {"INPUT_TOKEN"}


def test_the_container_is_told_all_that_the_code_asks_of_the_runner(docker: Job) -> None:
    code = "".join(path.read_text() for path in Path(__file__).parents[1].joinpath("repro_gate").rglob("*.py"))
    wanted = set(re.findall(r'"((?:GITHUB|RUNNER)_[A-Z_]+)"', code)) - NEVER
    argv = asked(docker, "publish")
    assert wanted <= {text.partition("=")[0] for text in values(argv, "--env")}


def test_whoever_publishes_writes_two_files_and_nothing_else(docker: Job) -> None:
    argv = asked(docker, "publish")
    assert argv[-1] == "publish"
    assert "--read-only" in argv and "--gpus" not in argv and "--network" not in argv
    assert values(argv, "--cap-add") == ["DAC_OVERRIDE"] and values(argv, "--cap-drop") == ["ALL"]
    writable = [mount for mount in values(argv, "--mount") if not mount.endswith(",readonly")]
    assert [mount.split("target=")[1] for mount in writable] == ["/github/file_commands/output", "/github/file_commands/summary"]
    assert "INPUT_TOKEN" in values(argv, "--env") and TOKEN not in " ".join(argv)


@pytest.mark.parametrize(
    ("gpus", "option", "hidden"),
    [("all", ["all"], False), ("2", ["2"], False), ("device=0,1", ['"device=0,1"'], False), ("none", [], True), ("", [], True)],
)
def test_gpus_are_those_that_were_asked_for(docker: Job, gpus: str, option: list[str], hidden: bool) -> None:
    argv = asked(docker, "gate", gpus=gpus)
    assert values(argv, "--gpus") == option
    assert ("NVIDIA_VISIBLE_DEVICES=void" in values(argv, "--env")) is hidden


def test_shared_memory_is_as_large_as_was_asked_for(docker: Job) -> None:
    assert values(asked(docker, "gate", shm_size="8g"), "--shm-size") == ["8g"]


def test_a_branch_builds_its_image(docker: Job) -> None:
    assert docker.run("docker-run", "image", {"image": ""}).returncode == 0
    assert docker.outputs["image"] == {"image": "sha256:" + "1" * 64}


def test_an_image_by_digest_is_told_to_the_gate(docker: Job) -> None:
    image = "ghcr.io/o/i@sha256:" + "2" * 64
    assert docker.run("docker-run", "image", {"image": image}).returncode == 0
    assert docker.outputs["image"] == {"image": image, "by_digest": image}


@pytest.mark.parametrize("image", ["--privileged", "a b", "x;y", "\n"])
def test_what_is_no_image_is_refused(docker: Job, image: str) -> None:
    ended = docker.run("docker-run", "image", {"image": image})
    assert ended.returncode == 2 and "image: no image is called that" in ended.stdout


def test_the_gates_exit_code_is_the_steps(docker: Job) -> None:
    docker.outputs["image"] = {"image": "gate"}
    assert docker.run("docker-run", "publish", {}, EXIT="1").returncode == 1
