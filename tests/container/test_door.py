"""The action in images that know nothing of the gate: training that looks for a way out, packages
that are installed without a cache, and everything that cannot work. Nothing is ever left.
"""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.container.attacks import TOKEN
from tests.container.door import Door
from tests.container.image import Image, of_a_lab
from tests.container.runner import PULL, REPOSITORY, Ended, lay_out
from tests.support.gates import LOOP
from tests.support.github.server import BOT, GitHub
from tests.support.wheels import archive, builds, index_of, wheel

ATTACKS = Path(__file__).with_name("attacks.py")
PYTHON = {"prefix": "/opt/conda/envs/train/bin/python", "system": "", "ours": ""}
# Every attack that is about what is there in this container; the rest is not, which `attacks` tells
# by itself. What an earlier run left is found from the second run on.
TRAINING = """\
import getpass, os, socket, sys, torch
from repro_gate import record, step
import attacks
assert os.getuid() == 64180, os.getuid()
assert getpass.getuser() == "training"  # torch.compile asks
assert sys.executable.startswith(PYTHON or "/usr/bin"), sys.executable
assert not os.path.exists("/var/run/docker.sock")
for address in (("127.0.0.1", PORT), ("192.0.2.1", 80)):
    try:
        socket.create_connection(address, timeout=2)
    except OSError:
        pass
    else:
        raise SystemExit(f"the training reached {address}")
for name, attempt in attacks.attempts().items():
    said = attacks.apart(attempt)
    assert said.startswith("denied"), (name, said)
attacks.stay_behind()
with open("DATA/numbers") as file:
    numbers = [float(line) for line in file]
try:
    open("DATA/numbers", "a")
except OSError:
    pass
else:
    raise SystemExit("the data can be written to")
for number in numbers:
    record("loss", number)
    step()
"""
SPEC = "version: 1\ntrain: {run: python train.py, timeout: 2m}\ncost: {measure: false}\n"


@pytest.fixture(scope="module")
def labs(door: Door) -> dict[str, str]:
    """The images of a lab's own, and ours (the input is empty)."""
    kinds = ("system", "prefix")
    return {"ours": "", **{kind: of_a_lab(door.engine, door.image, kind) for kind in kinds}}


@pytest.mark.parametrize("kind", ["system", "prefix"])
def test_training_in_a_labs_own_image_passes_and_finds_no_way_out(
    kind: str, door: Door, labs: Mapping[str, str], tmp_path: Path
) -> None:
    tmp_path.chmod(0o755)
    data = tmp_path / "data"
    data.mkdir()
    (data / "numbers").write_text("1\n2\n3\n")
    with GitHub(REPOSITORY) as github:
        text = TRAINING.replace("PORT", str(github.port)).replace("DATA", str(data))
        text = text.replace("PYTHON", repr(PYTHON[kind]))
        spec = SPEC + f"data: [{{path: {data}/numbers}}]\n"
        project: dict[str, str | Path] = {"train.py": text, "repro.yml": spec}
        layout = lay_out(tmp_path / "job", {**project, "attacks.py": ATTACKS})
        github.token(BOT, value=TOKEN)
        github.add_pull(PULL, layout.head)
        inputs = {"image": labs[kind], "python": PYTHON[kind], "volumes": str(data)}
        ended = door.start(layout, {**inputs, "comment": "always"}, api_url=github.url)
        assert ended.exit_code == 0, ended.log
        report = ended.report
        assert (report["verdict"], report["subject"]["sandbox"]) == ("pass", "own-user")
        assert report["fingerprint"]["digest"] == "xxh3-128"
        assert report["subject"]["gpus"].startswith("none: no GPU was found")
        (comment,) = github.comments(PULL)
        assert ended.outputs["comment_url"] == comment["html_url"]
        assert github.faults == []
    owners = {path.lstat().st_uid for path in layout.workspace.rglob("*")}
    assert owners == {layout.workspace.stat().st_uid}
    assert door.left() == ""


# what has to be built runs code where there is a network
BUILD = """
try:
    said["workspace"] = open("/github/workspace/.git/config").read()
except OSError:
    said["workspace"] = "denied"
"""
NEEDS = """\
import built, importlib.util, os, random, tiny
from repro_gate import record, step
assert importlib.util.find_spec("torch")
assert tiny.VERSION == "1.0" and os.environ["VIRTUAL_ENV"] in tiny.__file__
assert '"workspace": "denied"' in built.SAID, built.SAID
try:
    open(tiny.__file__, "a")
except OSError:
    pass
else:
    raise SystemExit("a training can write to what later trainings import")
for number in range(3):
    record("loss", random.random())
    step()
"""


@pytest.mark.parametrize("kind", ["ours", "prefix"])
def test_packages_are_installed_without_a_cache_and_trained_with_without_a_network(
    kind: str, door: Door, labs: Mapping[str, str], tmp_path: Path
) -> None:
    tmp_path.chmod(0o755)
    files = tmp_path / "files"
    lock = wheel(files / "tiny", "tiny", "1.0")
    lock += archive(files / "built", "built", "1.0", builds(BUILD))
    spec = SPEC + "env: {lockfile: requirements.lock, install: true}\n"
    project = {"train.py": NEEDS, "repro.yml": spec, "requirements.lock": lock}
    layout = lay_out(tmp_path / "job", project)
    with index_of(files) as url:
        inputs = {"comment": "never", "image": labs[kind], "python": PYTHON[kind]}
        ended = door.start(layout, inputs, UV_DEFAULT_INDEX=url)
    assert ended.exit_code == 0, ended.log
    assert ended.report["determinism"]["identical"] is True
    assert "installing what requirements.lock pins (2)" in ended.log
    assert door.left() == ""


def one_sentence(ended: Ended, door: Door) -> str:
    """What the action said, once, and left nothing."""
    found = [line for line in ended.log.splitlines() if line.startswith("::error ")]
    assert len(found) == 1, ended.log
    assert "Traceback" not in ended.log
    assert door.left() == ""
    return found[0]


def test_two_jobs_at_once_on_one_host_are_kept_apart(door: Door, tmp_path: Path) -> None:
    ends: list[Ended] = []
    layouts = [
        lay_out(tmp_path / name, {"train.py": LOOP, "repro.yml": SPEC}) for name in ("one", "two")
    ]
    threads = [
        threading.Thread(target=lambda at=at: ends.append(door.start(at, {"comment": "never"})))
        for at in layouts
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [(item.exit_code, item.outputs["verdict"]) for item in ends] == [(0, "pass")] * 2
    assert door.left() == ""


def test_an_image_without_python_and_data_in_no_volume_say_what_to_do(
    door: Door, image: Image, tmp_path: Path
) -> None:
    layout = lay_out(tmp_path / "job", {"train.py": LOOP, "repro.yml": SPEC})
    ended = door.start(layout, {"comment": "never", "image": image.base})
    said = one_sentence(ended, door)
    assert ended.exit_code == 3 and "python" in said and "remedy" in said

    spec = SPEC + "data: [{path: /data/imagenet/train.bin}]\n"
    layout = lay_out(tmp_path / "data", {"train.py": LOOP, "repro.yml": spec})
    ended = door.start(layout, {"comment": "never"})
    said = one_sentence(ended, door)
    assert ended.exit_code == 2 and "under `volumes: |`: /data/imagenet" in said


@pytest.mark.parametrize(
    ("device", "exit_code"), [("cuda", 3), ("cpu", 0)], ids=["required", "not-required"]
)
def test_a_gpu_that_no_container_gets_is_never_passed_over(
    device: str, exit_code: int, door: Door, tmp_path: Path
) -> None:
    """A host whose nvidia-smi lists a GPU, and an engine without NVIDIA's toolkit."""
    spec = SPEC + f"hardware: {{device: {device}}}\n"
    layout = lay_out(tmp_path / "job", {"train.py": LOOP, "repro.yml": spec})
    job = door.job(layout)
    smi = layout.root / "bin/nvidia-smi"
    smi.write_text("#!/bin/sh\necho 'GPU 0: NVIDIA H200'\n")
    smi.chmod(0o755)
    ended = door.start(layout, {"comment": "never", "image": "localhost/not-there"}, job=job)
    if device == "cuda":
        # before the image is pulled
        said = one_sentence(ended, door)
        assert "NVIDIA Container Toolkit" in said and "pulling" not in ended.log
    else:
        ended = door.start(layout, {"comment": "never"}, job=job)
        assert ended.outputs["verdict"] == "pass"
    assert ended.exit_code == exit_code, ended.log


def test_an_image_that_cannot_be_pulled_is_quoted(door: Door, tmp_path: Path) -> None:
    layout = lay_out(tmp_path / "job", {"train.py": LOOP, "repro.yml": SPEC})
    ended = door.start(layout, {"comment": "never", "image": "localhost:1/none:latest"})
    said = one_sentence(ended, door)
    assert ended.exit_code == 3 and "refused" in said


def test_a_checkout_that_cannot_be_written_to_is_named(door: Door, tmp_path: Path) -> None:
    layout = lay_out(tmp_path / "job", {"train.py": LOOP, "repro.yml": SPEC})
    place, kept = layout.workspace, tmp_path / "kept"
    shutil.copytree(place, kept)
    try:
        mount = ["mount", "-t", "tmpfs", "none", str(place)]
        if subprocess.run(mount, capture_output=True, check=False).returncode:
            pytest.skip("nothing can be mounted here")
        shutil.copytree(kept, place, dirs_exist_ok=True)
        subprocess.run(["mount", "-o", "remount,ro", str(place)], check=True)
        ended = door.start(layout, {"comment": "never"})
    finally:
        subprocess.run(["umount", str(place)], check=False)
    said = one_sentence(ended, door)
    assert ended.exit_code == 2 and "repro-gate-report" in said and "Read-only" in said
