"""Category `env`: can the software be set up again, and was it what trained?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from repro_gate.checkout.inspection import Checkout
from repro_gate.checks.env import (
    cublas_workspace,
    image_digest,
    installed,
    lockfile,
    variables,
    versions,
)
from repro_gate.checks.interface import RECORDED, Evidence
from repro_gate.runs.launch import Run
from repro_gate.spec.model import AllowedFlag, Checklist, Determinism, Env
from repro_gate.trace.model import Trace
from tests.checks.conftest import lines_of
from tests.support.built_traces import FACTS, evidence, run, spec, training
from tests.support.lockfiles import ALL, REQUIREMENTS, UV

A = f"sha256:{'a' * 64}"
GPU = {
    **FACTS,
    "device": "cuda: NVIDIA H200",
    "cuda": "12.8",
    "cudnn": "91002",
    "nccl": "2.27.5",
    "cublas-workspace-at-cuda-start": ":4096:8",
}
TOOLS = {"pip": "23.2.1", "setuptools": "80", "repro_gate": "0.1.0"}
IMAGE, OTHER = f"ghcr.io/org/train@sha256:{'a' * 64}", f"ghcr.io/org/train@sha256:{'b' * 64}"
SHOUTED = IMAGE.replace("a" * 64, "A" * 64)


def locked(
    folder: Path, name: str = "requirements.txt", text: str = REQUIREMENTS, **changes: Any
) -> Evidence:
    (folder / name).write_text(text)
    return replace(evidence(spec=spec(folder, env=Env(name))), **changes)


@pytest.mark.parametrize(("profile", "status"), [("basic", "skip"), ("strict", "fail")])
def test_no_lockfile_is_missing_and_one_that_is_there_is_named(
    profile: str, status: str, tmp_path: Path
) -> None:
    bare = lockfile(evidence(spec=spec(tmp_path, profile=profile)))
    assert (bare.status, len(lines_of(bare))) == (status, 1)
    (tmp_path / "yarn.lock").write_text('"@babel/core@^7.0.0":\n  version "7.1.0"\n')
    (tmp_path / "uv.lock").write_text(UV)
    found = lockfile(evidence(spec=spec(tmp_path, profile=profile)))
    assert (found.status, lines_of(found)) == (status, ("uv.lock",))
    assert "{lockfile: uv.lock}" in found.remedy
    (tmp_path / "requirements.lock").write_text(REQUIREMENTS)
    (tmp_path / "exp").mkdir()
    inside = evidence(
        spec=spec(tmp_path / "exp", profile=profile), checkout=Checkout(root=tmp_path)
    )
    assert lines_of(lockfile(inside)) == ("../requirements.lock", "../uv.lock")


@pytest.mark.parametrize("name", ALL)
def test_a_lock_of_every_kind_passes(name: str, tmp_path: Path) -> None:
    found = lockfile(locked(tmp_path, name, ALL[name]))
    assert found.status == "pass" and "by version and hash" in found.message


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("requirements.lock", ""),
        ("requirements.lock", "import torch\n"),
        ("poetry.lock", "[[package]]\n"),
        ("conda-lock.yml", "version: 1\n"),
        ("requirements.lock", "-r more.txt\n"),
        ("uv.lock", "["),
        ("../uv.lock", UV),
        ("requirements.lock.gone", None),
        (".", None),
    ],
)
def test_a_declared_lockfile_must_be_there_and_be_a_lock(
    name: str, text: str | None, tmp_path: Path
) -> None:
    (tmp_path / "repo").mkdir()
    if text is not None:
        (tmp_path / "repo" / name).write_text(text)
    assert lockfile(evidence(spec=spec(tmp_path / "repo", env=Env(name)))).status == "fail"


@pytest.mark.parametrize(("profile", "status"), [("basic", "warn"), ("strict", "fail")])
def test_what_is_not_pinned_by_hash_or_not_tracked_is_missing_and_named(
    profile: str, status: str, tmp_path: Path
) -> None:
    loose = locked(tmp_path, "loose.txt", REQUIREMENTS + "torch>=2\nnumpy==2.4.6\n")
    judged = Checklist(profile)
    result = lockfile(replace(loose, spec=replace(loose.spec, checklist=judged)))
    assert result.status == status and "--generate-hashes" in result.remedy
    assert lines_of(result) == (
        "loose.txt:17: torch: `>=2` is no one version",
        "loose.txt:18: numpy: no hash",
    )
    untracked = locked(tmp_path, tracked=frozenset())
    result = lockfile(replace(untracked, spec=replace(untracked.spec, checklist=judged)))
    assert (result.status, lines_of(result)) == (status, ("requirements.txt",))
    assert lockfile(locked(tmp_path, tracked=frozenset({"requirements.txt"}))).status == "pass"


def importing(python: str = "3.12.7", **distributions: str) -> dict[str, Any]:
    named = {name.replace("__", "-"): version for name, version in distributions.items()}
    trace = replace(training(facts={"python": python}), distributions=named)
    return {"runs": (run("deterministic-1", training(), trace),)}


@pytest.mark.parametrize(
    ("distributions", "status", "line"),
    [
        ({"idna": "3.10", "six": "1.17.0"}, "pass", "idna 3.10"),
        ({"IDNA": "3.10.0"}, "pass", "IDNA 3.10.0 (3.10 in the lock)"),
        ({"idna": "3.10+local"}, "pass", "idna 3.10+local (3.10 in the lock)"),
        ({"idna": "3.10", **TOOLS}, "pass", "idna 3.10"),
        ({"idna": "3.11"}, "fail", "idna 3.11: 3.10 at requirements.txt:9, imported"),
        ({"idna": "3.10", "torch": "2.13.0"}, "fail", "torch 2.13.0 is not in the lock"),
        ({"idna": "odd"}, "fail", "idna odd: 3.10 at requirements.txt:9, imported"),
    ],
)
def test_what_was_imported_is_compared_with_the_lock(
    distributions: dict[str, str], status: str, line: str, tmp_path: Path
) -> None:
    found = installed(locked(tmp_path, **importing(**distributions)))
    assert (found.status, lines_of(found)[0]) == (status, line)


@pytest.mark.parametrize(
    ("text", "python", "imported", "status"),
    [
        # a local label counts where the lock names one
        ("torch==2.13.0+cpu", "3.12.7", {"torch": "2.13.0+cpu"}, "pass"),
        ("torch==2.13.0+cpu", "3.12.7", {"torch": "2.13.0"}, "fail"),
        ("torch==2.13.0+cpu", "3.12.7", {"torch": "2.13.0+cu128"}, "fail"),
        # markers are judged for the Python that trained
        ("idna==3.10 ; python_full_version >= '3.10.0'", "3.12.7", {"idna": "3.10"}, "pass"),
        ("idna==3.10 ; python_full_version >= '3.10.0'", "3.9.1", {"idna": "3.10"}, "fail"),
        ("idna==3.9 ; python_version < '3.10'", "3.9.1", {"idna": "3.9"}, "pass"),
        ("idna==3.10 ; sys_platform == 'win32'", "3.12.7", {"idna": "3.10"}, "fail"),
        ("idna==3.10 ; extra == 'gpu'", "3.12.7", {"idna": "3.10"}, "pass"),
        # named without a version
        ("torch>=2", "3.12.7", {"torch": "2.13.0"}, "warn"),
    ],
)
def test_what_a_line_of_the_lock_asks_for(
    text: str, python: str, imported: dict[str, str], status: str, tmp_path: Path
) -> None:
    line = f"six==1.17.0 --hash={A}\n{text} --hash={A}\n".replace(f">=2 --hash={A}", ">=2")
    assert installed(locked(tmp_path, text=line, **importing(python, **imported))).status == status


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("pyproject.toml", '[project]\nname = "Small_Training"\n'),
        ("pyproject.toml", '[tool.poetry]\nname = "small.training"\n'),
        ("setup.cfg", "[metadata]\nname = small-training\n"),
        ("setup.py", "from setuptools import setup\nsetup(name='small-training', x=['\\d'])\n"),
        ("setup.py", "\0" + "(" * 5000 + " name = 'small-training'"),
    ],
)
def test_the_project_itself_needs_no_entry(file: str, text: str, tmp_path: Path) -> None:
    found = locked(tmp_path, **importing(idna="3.10", small__training="0.1.0"))
    assert installed(found).status == "fail"
    (tmp_path / file).write_text(text)
    assert installed(found).status == "pass"


def test_without_lock_imports_or_runs_there_is_nothing_to_hold(tmp_path: Path) -> None:
    idna = importing(idna="3.10")
    assert installed(evidence(spec=spec(tmp_path), **idna)).status == "skip"
    assert installed(locked(tmp_path)).status == "skip"
    assert installed(locked(tmp_path, runs=(run("deterministic-1", training()),))).status == "skip"
    assert installed(locked(tmp_path, "uv.lock", "[", **idna)).status == "skip"
    own = importing(idna="3.10", small__training="0.1.0")  # the lock's own folder needs no entry
    assert installed(locked(tmp_path, "uv.lock", UV, **own)).status == "pass"


MIRROR = IMAGE.replace("org/train", "mirror/train:v1")
TAG, CUT = "ghcr.io/org/train:v1", "ghcr.io/org/train@sha256:abc"


@pytest.mark.parametrize(
    ("declared", "running", "basic", "strict"),
    [
        (IMAGE, IMAGE, "pass", "pass"),
        (IMAGE, MIRROR, "pass", "pass"),
        (SHOUTED, IMAGE, "pass", "pass"),
        (IMAGE, OTHER, "fail", "fail"),
        (IMAGE, None, "warn", "fail"),
        (IMAGE, TAG, "warn", "fail"),
        (TAG, IMAGE, "warn", "fail"),
        (CUT, IMAGE, "fail", "fail"),
        (None, IMAGE, "skip", "fail"),
        (None, None, "skip", "fail"),
    ],
)
def test_an_image_counts_by_its_digest_and_where_it_runs(
    declared: str | None, running: str | None, basic: str, strict: str
) -> None:
    for profile, status in (("basic", basic), ("strict", strict)):
        judged = spec(profile=profile, env=Env(None, declared))
        found = image_digest(evidence(spec=judged, running_image=running))
        assert found.status == status and bool(found.remedy) is (status != "pass")


@pytest.mark.parametrize("fact", ["python", "torch", "cuda", "interpreter"])
def test_versions_must_be_the_same_in_every_process(fact: str) -> None:
    other = training(key="rank1", facts={**FACTS, fact: "0"})
    first = run("deterministic-1", training())
    for runs in ((run("deterministic-1", training(), other),), (first, run("default-1", other))):
        found = versions(evidence(runs=runs))
        assert found.status == "fail" and lines_of(found)[0].startswith(f"{fact}: 0, ")
    same = (run("deterministic-1", training(), training(key="rank1")),)
    assert versions(evidence(runs=same)).status == "pass"
    assert versions(evidence()).status == "skip"


@pytest.mark.parametrize("fact", ["", "python", "torch", "cuda", "cudnn", "nccl", "driver"])
def test_on_a_gpu_every_version_must_be_recorded(fact: str) -> None:
    facts, machine = dict(GPU), {"driver": "570.1"}
    facts.pop(fact, None)
    machine.pop(fact, None)
    found = versions(evidence(runs=(run("run", training(facts=facts)),), machine=machine))
    assert found.status == ("warn" if fact else "pass")
    assert not fact or f"the version of {fact} " in found.message
    assert ("driver 570.1" in lines_of(found)) is (fact != "driver")


@pytest.mark.parametrize(
    ("at_start", "status", "line"),
    [
        (":4096:8", "pass", ":4096:8"),
        (":16:8", "pass", ":16:8"),
        ("", "fail", "deterministic-1, process main: not set"),
        (":4096:2:16:8", "fail", "deterministic-1, process main: :4096:2:16:8"),
        (None, "warn", "deterministic-1, process main"),
    ],
)
def test_cublas_must_find_its_workspace_when_cuda_starts(
    at_start: str | None, status: str, line: str
) -> None:
    facts = {name: value for name, value in GPU.items() if not name.startswith("cublas")}
    facts |= {} if at_start is None else {"cublas-workspace-at-cuda-start": at_start}
    found = cublas_workspace(evidence(runs=(run("deterministic-1", training(facts=facts)),)))
    assert (found.status, lines_of(found)) == (status, (line,))


def test_cublas_is_judged_in_deterministic_runs_on_cuda_alone() -> None:
    unset = training(facts={**GPU, "cublas-workspace-at-cuda-start": ""})
    assert cublas_workspace(evidence(runs=(run("default-1", unset),))).status == "skip"
    assert cublas_workspace(evidence(runs=(run("deterministic-1", training()),))).status == "skip"
    allowed = Determinism(allow=(AllowedFlag("CUBLAS_WORKSPACE_CONFIG", "costs 20 %"),))
    off = evidence(spec=spec(determinism=allowed), runs=(run("deterministic-1", unset),))
    assert cublas_workspace(off).status == "warn"


def seeing(**values: str) -> Trace:
    return replace(training(), variables=values)


def compared(first: dict[str, str], second: dict[str, str]) -> tuple[str, tuple[str, ...]]:
    """What `variables` says of two runs that saw these: its status, and its lines."""
    found = variables(evidence(pair=(run("a-1", seeing(**first)), run("a-2", seeing(**second)))))
    return found.status, lines_of(found)


def test_variables_must_be_the_same_in_both_runs() -> None:
    first = {"OMP_NUM_THREADS": "2", "MKL_CBWR": "AUTO"}
    assert compared(first, first) == ("pass", ("MKL_CBWR=AUTO", "OMP_NUM_THREADS=2"))
    lines = ("main: MKL_CBWR AUTO and not set", "main: OMP_NUM_THREADS 2 and 3")
    assert compared(first, {"OMP_NUM_THREADS": "3"}) == ("fail", lines)
    assert compared({}, {})[0] == variables(evidence()).status == "skip"


@pytest.mark.parametrize(
    "name",
    ["RANK", "LOCAL_RANK", "GROUP_RANK", "MASTER_PORT", "MASTER_ADDR", "TORCHELASTIC_ERROR_FILE"],
)
def test_variables_that_belong_to_one_process_may_differ(name: str) -> None:
    first, second = ({name: number, "OMP_NUM_THREADS": "2"} for number in "12")
    assert compared(first, second)[0] == "pass"


def test_ranks_are_compared_with_each_other() -> None:
    def ranks(*threads: str) -> Run:
        traces = [
            replace(training(key=f"rank{rank}"), variables={"OMP_NUM_THREADS": count})
            for rank, count in enumerate(threads)
        ]
        return run("deterministic-1", *traces)

    assert variables(evidence(pair=(ranks("2", "4"), ranks("2", "4")))).status == "pass"
    found = variables(evidence(pair=(ranks("2", "4"), ranks("4", "4"))))
    assert lines_of(found) == ("rank0: OMP_NUM_THREADS 2 and 4",)


def test_long_values_are_cut_and_control_characters_written_out() -> None:
    hostile = {"LD_PRELOAD": "/x" * 1000 + "\x1b"}, {"LD_PRELOAD": "\x1b[2J"}
    (line,) = compared(*hostile)[1]
    assert len(line) < 600 and "…" in line and "\\x1b[2J" in line
    path = ":".join(f"/opt/lib{number}" for number in range(20))
    named = {"LD_LIBRARY_PATH": path}
    assert compared(named, named)[1] == (f"LD_LIBRARY_PATH={path}",)


def test_every_variable_is_recorded_up_to_what_untrusted_code_may_fill_the_report_with() -> None:
    for count in (120, RECORDED + 2):
        many = {f"NCCL_{number:04}": "1" for number in range(count)}
        kept = RECORDED - 1 if count > RECORDED else count
        lines = [f"{name}=1" for name in many][:kept]
        more = ["… and 3 more"] if count > RECORDED else []
        assert compared(many, many) == ("pass", (*lines, *more))
