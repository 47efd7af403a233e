"""What the action decides before the image is pulled, and of the Python that the image has.
`container/test_door` has the real engine."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from repro_gate.errors import GateError, Inconclusive, UsageError
from repro_gate.gate.options import Options
from repro_gate.github.preparation import plan, with_python
from repro_gate.github.settings import Inputs, Job
from tests.github.test_activity import JOB
from tests.support.composite import pairs

SPEC = "version: 1\ntrain: {run: python train.py}\n"


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    return msgspec.structs.replace(JOB, workspace=tmp_path, output_file=tmp_path / "output")


def planned(job: Job, spec: str, **environment: str) -> dict[str, str]:
    """The outputs of the step."""
    (job.workspace / "repro.yml").write_text(SPEC + spec)
    (job.workspace / "output").unlink(missing_ok=True)
    plan(Inputs(), job, environment)
    return pairs((job.workspace / "output").read_text())


def test_it_says_whether_to_install_and_on_what_it_trains(job: Job) -> None:
    assert planned(job, "") == {"run": "true", "install": "false", "device": ""}
    spec = "env: {lockfile: a.lock, install: true}\nhardware: {device: cuda}\n"
    found = planned(job, spec, REPRO_GATE_GPUS="nvidia: --gpus all")
    assert found == {"run": "true", "install": "true", "device": "cuda"}


@pytest.mark.parametrize(
    ("given", "device", "reason"),
    [
        ("refused: docker cannot pass this host's NVIDIA GPUs", "", "preflight/device"),
        ("refused: docker cannot pass this host's NVIDIA GPUs", "cuda", "preflight/device"),
        ("refused: docker cannot pass this host's NVIDIA GPUs", "cpu", None),
        ("none: no GPU was found on this host", "cuda", "preflight/device"),
        ("none: no GPU was found on this host", "", None),
        ("none: the input gpus says so", "", None),
        ("nvidia: --gpus all", "cuda", None),
        ("amd: --device /dev/kfd --device /dev/dri", "cuda", None),
    ],
)
def test_a_gpu_that_is_required_or_that_only_the_host_has_is_never_passed_over(
    given: str, device: str, reason: str | None, job: Job
) -> None:
    spec = f"hardware: {{device: {device}}}\n" if device else ""
    if reason is None:
        assert planned(job, spec, REPRO_GATE_GPUS=given)["run"] == "true"
        return
    with pytest.raises(Inconclusive) as refused:
        planned(job, spec, REPRO_GATE_GPUS=given)
    assert refused.value.reason_id == reason and "`gpus: none`" in refused.value.remedy


def test_data_must_be_in_the_workspace_or_in_a_volume(job: Job, tmp_path: Path) -> None:
    for path, volumes in (
        ("data/train.bin", ""),
        (f"{tmp_path}/data/train.bin", ""),
        ("/data/imagenet/train.bin", "/data/imagenet\n"),
        ("/data/imagenet", "/scratch\n/data\n"),
    ):
        found = planned(job, f"data: [{{path: {path}}}]\n", REPRO_GATE_VOLUMES=volumes)
        assert found["run"] == "true"
    for path, volumes in (("/data/imagenet/a", "/data/imagenet-2\n"), ("/data/../etc/a", "/data")):
        with pytest.raises(UsageError, match="in no volume") as refused:
            planned(job, f"data: [{{path: {path}}}]\n", REPRO_GATE_VOLUMES=volumes)
        named = os.path.dirname(os.path.normpath(path))
        assert f"under `volumes: |`: {named}" in refused.value.remedy


def test_a_cache_outside_the_workspace_would_be_lost(job: Job) -> None:
    (job.workspace / "repro.yml").write_text(SPEC)
    with pytest.raises(UsageError, match="outside the workspace"):
        plan(Inputs(cache="/var/cache/x"), job, {})


def python(folder: Path, says: str) -> str:
    """An interpreter that answers this."""
    folder.mkdir()
    program = folder / "python"
    program.write_text(f"#!/bin/sh\n{says}\n")
    program.chmod(0o755)
    return str(program)


@pytest.mark.parametrize(
    ("says", "why"),
    [
        ("echo 3 8 False", "is Python 3.8, and 3.9 or newer is needed"),
        ("echo 3 12 True", "was built for musl"),
        ("echo broken >&2; exit 1", "cannot be started: broken"),
        ("echo 3", "cannot be started: it said nothing"),
        ("echo 3 9 False", ""),
    ],
)
def test_an_image_needs_a_python_that_can_be_watched(says: str, why: str, tmp_path: Path) -> None:
    chosen = python(tmp_path / "env", says)
    given = {"PATH": os.defpath, "REPRO_GATE_PYTHON": chosen}
    if not why:
        found = with_python(Options(environment=given)).environment["PATH"]
        assert found == f"{tmp_path}/env:{os.defpath}"
        return
    with pytest.raises(Inconclusive) as refused:
        with_python(Options(environment=given))
    assert f"the image's {chosen} {why}" in refused.value.message
    assert refused.value.reason_id == "action/python"


def test_without_the_input_it_is_the_one_on_path(tmp_path: Path) -> None:
    python(tmp_path / "bin", "echo 3 11 False")
    given = {"PATH": str(tmp_path / "bin"), "REPRO_GATE_PYTHON": ""}
    assert with_python(Options(environment=given)).environment["PATH"] == str(tmp_path / "bin")
    with pytest.raises(GateError):
        with_python(Options(environment={**given, "PATH": str(tmp_path)}))
    named = {**given, "REPRO_GATE_PYTHON": str(tmp_path / "none/python")}
    with pytest.raises(Inconclusive, match="No such file"):
        with_python(Options(environment=named))
