"""`entrypoint`, the steps of action.yml, on hosts that do not exist here: with GPUs, without a
container engine, with a registry that refuses.

`docker` is a program that writes down what it is asked and answers as the host says; `container/`
has the real engine.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.composite import ROOT, Job, load

TOKEN = "a-token-that-nobody-may-see"
# What the code knows of to keep it from the training, or looks for where there is no container:
# none of it is for the gate's container.
NEVER = {"GITHUB_TOKEN", "GITHUB_ENV", "GITHUB_PATH", "GITHUB_STATE", "RUNNER_TEMP"}
IMAGES = {"GATE_IMAGE": "gate@sha256:1", "CPU_IMAGE": "cpu@sha256:2", "CUDA_IMAGE": "cuda@sha256:3"}
HOST = """#!{python}
import json, os, sys
asked = sys.argv[1:]
host = json.load(open({host!r}))
with open({log!r}, "a") as file:
    file.write(json.dumps(asked) + "\\n")
if asked[0] in host["refuses"]:
    sys.stderr.write("some words\\n" + host["refuses"][asked[0]] + "\\n")
    sys.exit(1)
if asked[0] == "info":
    print(json.dumps(host["info"]))
if asked[0] == "image":
    if asked[-1] in host["absent"]:
        sys.exit(1)
    if "Architecture" in " ".join(asked):
        print(host["architectures"].get(asked[-1], "amd64"))
    if "RepoDigests" in " ".join(asked):
        print(host["digest"])
if asked[0] == "build":
    with open(asked[asked.index("--iidfile") + 1], "w") as file:
        file.write("sha256:" + asked[asked.index("--target") + 1])
if asked[0] == "run" and asked[-1] == "gate":
    open({log!r} + ".image", "w").write(os.environ["REPRO_GATE_IMAGE"])
if asked[0] == "run" and asked[-1] in host["outputs"]:
    (mount,) = [item for item in asked if item.endswith("target=/github/file_commands/output")]
    with open(mount.split("source=")[1].split(",")[0], "a") as file:
        for name, value in host["outputs"][asked[-1]].items():
            file.write(f"{{name}}<<end\\n{{value}}\\nend\\n")
"""


@dataclass
class Host:
    """A runner's machine: what its `docker` answers, and a job on it."""

    folder: Path
    facts: dict[str, object] = field(
        default_factory=lambda: {
            "refuses": {},
            "info": {},
            "absent": [],
            "architectures": {},
            "digest": "",
            "outputs": {"plan": {"run": "true", "install": "false", "device": ""}},
        }
    )

    def __post_init__(self) -> None:
        self.bin = self.folder / "bin"
        self.bin.mkdir(parents=True)
        github = {"GITHUB_REPOSITORY": "o/r", "GITHUB_EVENT_NAME": "push"}
        github |= {"GITHUB_TOKEN": TOKEN, "ACTIONS_RUNTIME_TOKEN": TOKEN, "UV_INDEX": "https://i"}
        path = f"{self.bin}:{os.environ['PATH']}"
        self.job = Job(self.folder, {"PATH": path, **github, **IMAGES}, ROOT)
        for name in ("docker", "podman"):
            self.program(name, "")

    def program(self, name: str, text: str) -> None:
        """Put a program on PATH; `docker` is the one that writes down what it is asked."""
        if name in ("docker", "podman"):
            log, host = str(self.folder / "docker.log"), str(self.folder / "host.json")
            text = HOST.format(python=sys.executable, log=log, host=host)
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    def run(self, step: str, inputs: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        """Run one step, `gate`, `publish` or `#3`."""
        (self.folder / "host.json").write_text(json.dumps(self.facts))
        (self.folder / "docker.log").write_text("")
        return self.job.run("container", step, {"token": TOKEN, **inputs}, **IMAGES)

    def asked(self, *first: str) -> list[list[str]]:
        """What `docker` was asked in the last step, by its first words."""
        lines = (self.folder / "docker.log").read_text().splitlines()
        found = [list(map(str, json.loads(line))) for line in lines]
        return [call for call in found if call[: len(first)] == list(first)]

    def container(self, phase: str) -> list[str]:
        """The arguments of the one container of that phase."""
        (found,) = [call for call in self.asked("run") if call[-1] == phase]
        return found


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def values(argv: list[str], option: str) -> list[str]:
    apart = [after for before, after in itertools.pairwise(argv) if before == option]
    return apart + [item.partition("=")[2] for item in argv if item.startswith(f"{option}=")]


def names(argv: list[str]) -> set[str]:
    return {text.partition("=")[0] for text in values(argv, "--env")}


def refused(host: Host, code: int, **inputs: str) -> str:
    """The one sentence with which the action ends, and nothing is left."""
    done = host.run("gate", inputs)
    assert done.returncode == code, done.stdout + done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("::error ")]
    assert not [call for call in host.asked("run") if call[-1] in ("install", "gate")]
    return line.removeprefix("::error title=Repro Gate::")


def test_the_gates_container_has_no_token_network_or_socket(host: Host) -> None:
    done = host.run("gate", {"image": "lab/train:1", "working_directory": "sub"})
    assert done.returncode == 0, done.stderr
    assert (
        done.stdout.splitlines()[0]
        == "repro-gate: docker; GPUs: none: no GPU was found on this host"
    )
    argv = host.container("gate")
    program = ["-I", "-m", "repro_gate.github", "gate"]
    assert argv[-5:] == ["lab/train:1", *program]
    assert values(argv, "--entrypoint") == ["/opt/repro-gate/bin/python"]
    assert (values(argv, "--network"), values(argv, "--cap-drop")) == (["none"], ["ALL"])
    assert values(argv, "--user") == ["0:0"]
    capabilities = "CHOWN DAC_OVERRIDE FOWNER KILL SETGID SETPCAP SETUID"
    assert " ".join(sorted(values(argv, "--cap-add"))) == capabilities
    assert "--privileged" not in argv and values(argv, "--security-opt") == [
        "no-new-privileges",
        "label=disable",
    ]
    mounts = {mount.split("target=")[1] for mount in values(argv, "--mount")}
    assert mounts == {"/github/workspace", "/github/workflow/event.json,readonly"}
    ours, cache = values(argv, "--volume")
    assert ours.endswith(":/opt/repro-gate:ro") and cache.endswith(":/var/cache/repro-gate")
    forbidden = {"ACTIONS_RUNTIME_TOKEN", "GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY", *NEVER}
    assert names(argv).isdisjoint(forbidden)
    fields = {"GPUS", "IMAGE", "NETWORK", "PYTHON", "SHM_SIZE", "TOKEN", "VOLUMES"}  # the script's
    inputs = {f"INPUT_{name.upper()}" for name in load("container")["inputs"]}
    assert inputs - names(argv) == {f"INPUT_{name}" for name in fields}
    assert TOKEN not in json.dumps(host.asked())


def test_whoever_publishes_is_told_what_the_code_asks_and_then_nothing_is_left(host: Host) -> None:
    host.run("gate", {"set": "a=1\ndeclare -x INPUT_REPORT=elsewhere", "report": "folder"})
    state = Path(host.job.outputs["gate"]["state"])
    assert TOKEN not in (state / "variables").read_text()
    assert host.run("publish", {}).returncode == 0
    argv = host.container("publish")
    assert argv[-5] == IMAGES["GATE_IMAGE"]
    code = "".join(path.read_text() for path in (ROOT / "repro_gate").rglob("*.py"))
    wanted = set(re.findall(r'"((?:GITHUB|RUNNER)_[A-Z_]+)"', code)) - NEVER
    # all that the code asks of the runner
    assert wanted and wanted <= names(argv)
    assert "--read-only" in argv and "--gpus" not in argv and "--network" not in argv
    assert values(argv, "--cap-add") == ["DAC_OVERRIDE"] and values(argv, "--cap-drop") == ["ALL"]
    writable = [mount for mount in values(argv, "--mount") if not mount.endswith(",readonly")]
    places = [mount.split("target=/github/file_commands/")[1] for mount in writable]
    assert places == ["output", "summary"]
    assert "INPUT_TOKEN" in values(argv, "--env") and TOKEN not in " ".join(argv)
    assert host.run("#3", {}).returncode == 0
    removed = [call[-1] for call in host.asked("volume", "rm")]
    assert removed == [f"{state.name}-gate", f"{state.name}-cache"]
    assert not state.exists()


def test_only_what_installs_has_a_network_and_only_where_it_is_asked_for(host: Host) -> None:
    host.facts["outputs"] = {
        "plan": {"run": "true", "install": "true"},
        "install": {"installed": "true"},
    }
    assert host.run("gate", {"network": "false"}).returncode == 0
    assert values(host.container("plan"), "--network") == ["none"]
    install, gate = host.container("install"), host.container("gate")
    assert values(install, "--network") == [] and "UV_INDEX" in names(install)
    assert values(gate, "--network") == ["none"] and "UV_OFFLINE=1" in values(gate, "--env")
    host.run("gate", {"network": "true"})
    assert values(host.container("gate"), "--network") == []


@pytest.mark.parametrize("outputs", [{}, {"plan": {"run": "true", "install": "true"}}])
def test_where_planning_or_installing_fails_nothing_is_trained(
    host: Host, outputs: dict[str, dict[str, str]]
) -> None:
    host.facts["outputs"] = outputs
    done = host.run("gate", {})
    assert done.returncode == 0  # the next step says why
    phases = [call[-1] for call in host.asked("run")]
    assert phases == (["plan", "install"] if outputs else ["plan"])
    assert bool(host.asked("image", "inspect", "cpu@sha256:2")) is bool(outputs)


NVIDIA = "#!/bin/sh\necho 'GPU 0: NVIDIA H100'\n"


@pytest.mark.parametrize(
    ("gpus", "has", "info", "options", "said"),
    [
        ("auto", "", {}, [], "none: no GPU was found on this host"),
        ("", NVIDIA, {"Runtimes": {"nvidia": {}}}, ["all"], "nvidia: --gpus all"),
        ("auto", NVIDIA, {"Runtimes": {"nvidia": {}}}, ["all"], "nvidia: --gpus all"),
        (
            "auto",
            NVIDIA,
            {"DiscoveredDevices": ["nvidia.com/gpu=0"]},
            ["all"],
            "nvidia: --gpus all",
        ),
        ("auto", NVIDIA, {"Runtimes": {"runc": {}}}, [], "refused: docker cannot pass this host's"),
        ("auto", "#!/bin/sh\nexit 9\n", {}, [], "none: no GPU was found on this host"),
        ("none", NVIDIA, {"Runtimes": {"nvidia": {}}}, [], "none: the input gpus says so"),
        ("all", "", {}, ["all"], "nvidia: --gpus all"),
        ("device=0,1", "", {}, ['"device=0,1"'], "nvidia: --gpus device=0,1"),
    ],
)
def test_gpus_are_passed_where_there_are_some_and_the_first_line_says_so(
    host: Host, gpus: str, has: str, info: dict[str, object], options: list[str], said: str
) -> None:
    host.program("nvidia-smi", has or "#!/bin/sh\nexit 1\n")
    host.facts["info"] = info
    done = host.run("gate", {"gpus": gpus, "shm_size": "8g"})
    assert said in done.stdout.splitlines()[0]
    argv = host.container("gate")
    assert values(argv, "--gpus") == options and values(argv, "--shm-size") == ["8g"]
    assert ("NVIDIA_VISIBLE_DEVICES=void" in values(argv, "--env")) is not bool(options)
    # torch for CUDA where there is a GPU that it gets
    assert argv[-5] == IMAGES["CUDA_IMAGE" if options else "CPU_IMAGE"]
    assert "REPRO_GATE_GPUS" in names(argv) & names(host.container("plan"))


def test_a_cpu_spec_takes_the_small_image_beside_a_gpu(host: Host) -> None:
    host.facts["outputs"] = {"plan": {"run": "true", "install": "false", "device": "cpu"}}
    host.run("gate", {"gpus": "all"})
    assert host.container("gate")[-5] == IMAGES["CPU_IMAGE"]


def test_volumes_are_mounted_read_only_and_what_is_not_data_is_refused(
    host: Host, tmp_path: Path
) -> None:
    data = tmp_path / "data set"
    data.mkdir()
    (tmp_path / "link").symlink_to("/etc")
    (tmp_path / "data").symlink_to(data)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "docker.sock"))
        given = f"\n  {data}/\n# a remark\n{tmp_path}/data\n"
        assert host.run("gate", {"volumes": given}).returncode == 0
        argv = host.container("gate")
        mounted = [item for item in values(argv, "--mount") if "data" in item]
        expected = [str(data), f"{tmp_path}/data"]
        assert mounted == [f"type=bind,source={data},target={path},readonly" for path in expected]
        bad = (
            f"data relative /data:ro {tmp_path}/../x:rw /nowhere {tmp_path}/data/../.. {tmp_path},x"
        )
        for path in bad.split():
            assert refused(host, 2, volumes=path).startswith(f"volumes: `{path}`")
        own = (
            f"/ /etc /etc/ssl /proc /var/run/docker.sock /usr /run {tmp_path}/link {tmp_path}/temp"
        )
        for path in (*own.split(), f"{tmp_path}/docker.sock", str(tmp_path)):
            assert "volumes: `" in refused(host, 2, volumes=path), path


def test_an_image_is_built_or_named_and_what_is_none_is_refused(host: Host) -> None:
    host.facts["digest"] = "ghcr.io/lab/train@sha256:" + "2" * 64
    assert host.run("gate", {"image": "ghcr.io/lab/train:1"}).returncode == 0
    # what the check env/image-digest compares; in the environment, not on the command line
    assert "REPRO_GATE_IMAGE" in names(host.container("gate"))
    assert (host.folder / "docker.log.image").read_text() == host.facts["digest"]
    by_digest = "ghcr.io/lab/other@sha256:" + "3" * 64
    assert host.run("gate", {"image": by_digest}).returncode == 0
    assert (host.folder / "docker.log.image").read_text() == by_digest
    of_a_branch = dict.fromkeys(IMAGES, "")
    done = host.job.run("container", "gate", {}, **of_a_branch)
    assert done.returncode == 0, done.stderr
    assert [values(call, "--target") for call in host.asked("build")] == [["gate"], ["image"]]
    for image in ("--privileged", "a b", "x;y", "-v"):
        assert "no image is called that" in refused(host, 2, image=image)


def test_an_image_that_cannot_be_pulled_quotes_the_registry_without_its_secrets(host: Host) -> None:
    host.facts["absent"] = ["ghcr.io/lab/secret:1"]
    why = "unauthorized: token=abc123 for https://me:word@ghcr.io/v2?signature=xyz with ghp_123456"
    host.facts["refuses"] = {"pull": why}
    said = refused(host, 3, image="ghcr.io/lab/secret:1")
    assert said.startswith("image: ghcr.io/lab/secret:1 cannot be pulled: unauthorized: ")
    assert not [secret for secret in ("abc123", "word@", "xyz", "123456") if secret in said]


def test_an_image_for_another_processor_is_refused(host: Host) -> None:
    host.facts["architectures"] = {"lab/train:1": "arm64"}
    said = refused(host, 2, image="lab/train:1")
    assert said == "image: lab/train:1 is for arm64, and the gate here is for amd64"


def test_a_host_without_an_engine_and_one_that_refuses_say_so(host: Host, tmp_path: Path) -> None:
    host.facts["refuses"] = {"ps": "permission denied while trying to connect%0Ato the daemon"}
    said = refused(host, 2)
    assert said.startswith("docker: permission denied while trying to connect%250Ato the daemon; ")
    assert "native@v1" in said
    bare = tmp_path / "bare"
    bare.mkdir()
    for name in ("bash", "od", "tr", "mkdir", "rm"):
        (bare / name).symlink_to(f"/usr/bin/{name}")
    host.job.environment["PATH"] = str(bare)
    done = host.run("gate", {})
    assert done.returncode == 2 and "there is no Docker and no Podman on this runner" in done.stdout


def test_the_page_is_handed_on_and_no_link_of_the_checkout(host: Host, tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    (workspace / "out").mkdir()
    (workspace / "out/report.html").write_text("<p>")
    assert host.run("gate", {"report": "out"}).returncode == 0
    page = Path(host.job.outputs["gate"]["page"])
    assert page.name == "out.html" and page.read_text() == "<p>"
    (workspace / "link").symlink_to(workspace / "out")
    (workspace / "file").mkdir()
    (workspace / "file/report.html").symlink_to(workspace / "out/report.html")
    for report in ("link", "file", "none"):
        assert host.run("gate", {"report": report}).returncode == 0
        assert "page" not in host.job.outputs["gate"]
