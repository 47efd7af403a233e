"""Category `env`: can the software be set up again, and was it what trained?"""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from repro_gate.checkout.inspection import Checkout
from repro_gate.checks import run_checks
from repro_gate.checks.env import (
    cublas_workspace,
    image_digest,
    installed,
    lockfile,
    variables,
    versions,
)
from repro_gate.checks.interface import RECORDED, Evidence
from repro_gate.spec.model import AllowedFlag, Checklist, Determinism, Env, Waiver
from repro_gate.trace.model import Trace
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
    (tmp_path / "requirements.txt").write_text("torch\n")
    found = lockfile(evidence(spec=spec(tmp_path, profile=profile)))
    assert (found.status, found.evidence) == (
        status,
        ("repro.yml: no `env.lockfile`, and no lockfile beside it",),
    )
    assert "requirements.lock" in found.remedy
    (tmp_path / "uv.lock").write_text(UV.replace("sha256:", "md5:"))
    (tmp_path / "yarn.lock").write_text('"@babel/core@^7.0.0":\n  version "7.1.0"\n')
    found = lockfile(evidence(spec=spec(tmp_path, profile=profile)))
    assert (found.status, found.evidence) == (
        status,
        ("uv.lock",),
    ) and "{lockfile: uv.lock}" in found.remedy
    (tmp_path / "requirements.lock").write_text(REQUIREMENTS)
    (tmp_path / "exp").mkdir()
    inside = evidence(
        spec=spec(tmp_path / "exp", profile=profile), checkout=Checkout(root=tmp_path)
    )
    assert lockfile(inside).evidence == ("../requirements.lock", "../uv.lock")


@pytest.mark.parametrize("name", ALL)
def test_a_lock_of_every_kind_passes(name: str, tmp_path: Path) -> None:
    found = lockfile(locked(tmp_path, name, ALL[name]))
    assert found.status == "pass" and "by version and hash" in found.message


def test_a_declared_lockfile_must_be_there_and_be_a_lock(tmp_path: Path) -> None:
    gone = evidence(spec=spec(tmp_path, env=Env("requirements.lock")))
    assert lockfile(gone).status == "fail" and "is not there" in lockfile(gone).message
    for name, text, said in (
        ("requirements.lock", "", "pins nothing"),
        (
            "requirements.lock",
            "import torch\n",
            "requirements.lock:1: `import torch` is no requirement",
        ),
        ("poetry.lock", "[[package]]\n", "is no requirements, pylock.toml or uv.lock"),
        ("conda-lock.yml", "version: 1\n", "pylock.toml or uv.lock: write it with `uv pip comp"),
        ("requirements.lock", "-r more.txt\n", "requirements.lock:1: `-r more.txt`: other files"),
        ("uv.lock", "[", "is not TOML"),
        ("../uv.lock", UV, "lies outside the checkout"),
    ):
        (tmp_path / "repo").mkdir(exist_ok=True)
        found = lockfile(locked(tmp_path / "repo", name, text))
        assert found.status == "fail" and said in found.message and "env.lockfile" in found.remedy
    assert lockfile(evidence(spec=spec(tmp_path, env=Env(".")))).status == "fail"


@pytest.mark.parametrize(("profile", "status"), [("basic", "warn"), ("strict", "fail")])
def test_what_is_not_pinned_by_hash_is_missing_and_named(
    profile: str, status: str, tmp_path: Path
) -> None:
    found = locked(tmp_path, "requirements.txt", REQUIREMENTS + "torch>=2\nnumpy==2.4.6\n")
    found = replace(found, spec=replace(found.spec, checklist=spec(profile=profile).checklist))
    result = lockfile(found)
    assert result.status == status and "--generate-hashes" in result.remedy
    assert result.evidence == (
        "requirements.txt:17: torch: `>=2` is no one version",
        "requirements.txt:18: numpy: no hash",
    )


def test_a_lockfile_must_be_tracked(tmp_path: Path) -> None:
    result = lockfile(locked(tmp_path, tracked=frozenset()))
    assert (result.status, result.evidence, result.remedy) == (
        "warn",
        ("requirements.txt",),
        "run `git add requirements.txt`",
    )
    assert lockfile(locked(tmp_path, tracked=frozenset({"requirements.txt"}))).status == "pass"


def importing(python: str = "3.12.7", **distributions: str) -> dict[str, Any]:
    named = {name.replace("__", "-"): version for name, version in distributions.items()}
    return {
        "runs": (
            run(
                "deterministic-1",
                training(),
                replace(training(facts={"python": python}), distributions=named),
            ),
        )
    }


@pytest.mark.parametrize(
    ("distributions", "status", "line"),
    [
        ({"idna": "3.10", "six": "1.17.0"}, "pass", "idna 3.10"),
        ({"IDNA": "3.10.0"}, "pass", "IDNA 3.10.0 (3.10 in the lock)"),
        ({"idna": "3.10+local"}, "pass", "idna 3.10+local (3.10 in the lock)"),
        (
            {"idna": "3.10", "pip": "23.2.1", "setuptools": "80", "repro_gate": "0.1.0"},
            "pass",
            "idna 3.10",
        ),
        ({"idna": "3.11"}, "fail", "idna 3.11: 3.10 at requirements.txt:9, imported"),
        ({"idna": "3.10", "torch": "2.13.0"}, "fail", "torch 2.13.0 is not in the lock"),
        (
            {"idna": "not a version"},
            "fail",
            "idna not a version: 3.10 at requirements.txt:9, imported",
        ),
    ],
)
def test_what_was_imported_is_compared_with_the_lock(
    distributions: dict[str, str], status: str, line: str, tmp_path: Path
) -> None:
    found = installed(locked(tmp_path, **importing(**distributions)))
    assert (found.status, found.evidence[0]) == (status, line)
    assert status == "pass" or "install from requirements.txt alone" in found.remedy


def test_a_local_label_counts_where_the_lock_names_one(tmp_path: Path) -> None:
    cpu = f"torch==2.13.0+cpu --hash={A}\n"
    assert installed(locked(tmp_path, text=cpu, **importing(torch="2.13.0+cpu"))).status == "pass"
    assert installed(locked(tmp_path, text=cpu, **importing(torch="2.13.0"))).status == "fail"
    assert installed(locked(tmp_path, text=cpu, **importing(torch="2.13.0+cu128"))).status == "fail"


def test_markers_are_judged_for_the_python_that_trained(tmp_path: Path) -> None:
    forked = (
        f"idna==3.9 ; python_version < '3.10' --hash={A}\nidna==3.10 ; python_full_version >= "
        f"'3.10.0' --hash={A}\n"
    )
    assert (
        installed(locked(tmp_path, text=forked, **importing("3.12.7", idna="3.10"))).status
        == "pass"
    )
    assert (
        installed(locked(tmp_path, text=forked, **importing("3.9.1", idna="3.10"))).status == "fail"
    )
    assert (
        installed(locked(tmp_path, text=forked, **importing("3.9.1", idna="3.9"))).status == "pass"
    )
    other = installed(
        locked(
            tmp_path,
            text=f"idna==3.10 ; sys_platform == 'win32' --hash={A}\n",
            **importing(idna="3.10"),
        )
    )
    assert (other.status, other.evidence) == (
        "fail",
        ("idna 3.10 (for other machines alone) is not in the lock",),
    )
    extra = f"idna==3.10 ; extra == 'gpu' --hash={A}\n"
    assert installed(locked(tmp_path, text=extra, **importing(idna="3.10"))).status == "pass"


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("pyproject.toml", '[project]\nname = "Small_Training"\n'),
        ("pyproject.toml", '[tool.poetry]\nname = "small.training"\n'),
        ("setup.cfg", "[metadata]\nname = small-training\n"),
        (
            "setup.py",
            "from setuptools import setup\nsetup(name='small-training', packages=['\\d'])\n",
        ),
    ],
)
def test_the_project_itself_needs_no_entry(file: str, text: str, tmp_path: Path) -> None:
    found = locked(tmp_path, **importing(idna="3.10", small__training="0.1.0"))
    assert installed(found).status == "fail"
    (tmp_path / file).write_text(text)
    assert installed(found).status == "pass"


def test_the_locks_own_folder_needs_no_entry(tmp_path: Path) -> None:
    assert (
        installed(
            locked(tmp_path, "uv.lock", UV, **importing(idna="3.10", small__training="0.1.0"))
        ).status
        == "pass"
    )


def test_a_distribution_that_the_lock_leaves_open_is_missing(tmp_path: Path) -> None:
    found = installed(
        locked(
            tmp_path,
            text=f"torch>=2\nidna==3.10 --hash={A}\n",
            **importing(torch="2.13.0", idna="3.10"),
        )
    )
    assert (found.status, found.evidence) == (
        "warn",
        ("torch 2.13.0: requirements.txt:1 names no version",),
    )


def test_without_lock_imports_or_runs_there_is_nothing_to_hold(tmp_path: Path) -> None:
    assert installed(evidence(spec=spec(tmp_path), **importing(idna="3.10"))).status == "skip"
    assert installed(locked(tmp_path)).status == "skip"
    assert installed(locked(tmp_path, runs=(run("deterministic-1", training()),))).status == "skip"
    assert installed(locked(tmp_path, "uv.lock", "[", **importing(idna="3.10"))).status == "skip"


MIRROR, TAG, CUT = (
    IMAGE.replace("org/train", "mirror/train:v1"),
    "ghcr.io/org/train:v1",
    "ghcr.io/org/train@sha256:abc",
)
NONE = "repro.yml: no `env.image`"


@pytest.mark.parametrize(
    ("declared", "running", "status", "said", "lines", "remedy"),
    [
        (IMAGE, IMAGE, "pass", "runs in the declared image", (IMAGE,), ""),
        (IMAGE, MIRROR, "pass", "runs in the declared image", (IMAGE,), ""),
        (SHOUTED, IMAGE, "pass", "runs in the declared image", (SHOUTED,), ""),
        (
            IMAGE,
            OTHER,
            "fail",
            "another image",
            (f"declared {IMAGE}", f"running {OTHER}"),
            "correct env.image, or run in it",
        ),
        (IMAGE, None, "warn", "nothing shows", (IMAGE,), "run the gate inside that image"),
        (IMAGE, TAG, "warn", "nothing shows", (IMAGE,), "run the gate inside that image"),
        (TAG, IMAGE, "warn", "by tag", (TAG,), f"write `{IMAGE}`"),
        (CUT, IMAGE, "fail", "64 hex digits", (CUT,), f"write it as `{IMAGE}`"),
        (
            None,
            IMAGE,
            "skip",
            "no container image",
            (NONE, f"running {IMAGE}"),
            f"`env: {{image: {IMAGE}}}`",
        ),
        (None, None, "skip", "no container image", (NONE,), "@sha256:<64 hex digits>"),
    ],
)
def test_an_image_counts_by_its_digest_and_where_it_runs(
    declared: str | None,
    running: str | None,
    status: str,
    said: str,
    lines: tuple[str, ...],
    remedy: str,
) -> None:
    found = image_digest(evidence(spec=spec(env=Env(None, declared)), running_image=running))
    assert (found.status, found.evidence) == (status, lines)
    assert said in found.message and remedy in found.remedy and bool(remedy) is bool(found.remedy)
    if status in ("warn", "skip"):
        assert (
            image_digest(
                evidence(
                    spec=spec(profile="strict", env=Env(None, declared)), running_image=running
                )
            ).status
            == "fail"
        )


def test_what_is_not_declared_can_be_waived_or_made_a_warning() -> None:
    waived = Checklist("basic", (Waiver("env/image-digest", "bare metal"),))
    (found,) = (
        item
        for item in run_checks(evidence(spec=spec(checklist=waived)), date(2026, 1, 1))
        if item.id == "env/image-digest"
    )
    assert found.status == "waived"
    stricter = Checklist("basic", (), {"env/lockfile": "fail"})
    assert lockfile(evidence(spec=spec(checklist=stricter))).status == "fail"


@pytest.mark.parametrize("fact", ["python", "torch", "cuda", "interpreter"])
def test_versions_must_be_the_same_in_every_process(fact: str) -> None:
    other = training(key="rank1", facts={**FACTS, fact: "0"})
    found = versions(evidence(runs=(run("deterministic-1", training(), other),)))
    assert (
        found.status == "fail"
        and found.evidence[0].startswith(f"{fact}: 0, ")
        and "same interpreter" in found.remedy
    )
    assert (
        versions(
            evidence(runs=(run("deterministic-1", training()), run("default-1", other)))
        ).status
        == "fail"
    )
    assert (
        versions(evidence(runs=(run("deterministic-1", training(), training(key="rank1")),))).status
        == "pass"
    )
    assert versions(evidence()).status == "skip"


@pytest.mark.parametrize("fact", ["python", "torch", "cuda", "cudnn", "nccl"])
def test_on_a_gpu_every_version_must_be_recorded(fact: str) -> None:
    runs = (run("deterministic-1", training(facts=GPU)),)
    whole = versions(evidence(runs=runs, machine={"driver": "570.1"}))
    assert whole.status == "pass" and "driver 570.1" in whole.evidence
    assert (
        "driver" in versions(evidence(runs=runs)).message
        and versions(evidence(runs=runs)).status == "warn"
    )
    bare = {name: value for name, value in GPU.items() if name != fact}
    found = versions(
        evidence(runs=(run("deterministic-1", training(facts=bare)),), machine={"driver": "570.1"})
    )
    assert found.status == "warn" and f"the version of {fact} " in found.message
    assert "driver 570.1" in found.evidence and not any(
        line.startswith(f"{fact} ") for line in found.evidence
    )
    assert "nvidia-smi" in found.remedy


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
    assert (found.status, found.evidence) == (status, (line,))
    assert {"pass": "", "fail": "do not unset or change it", "warn": "import torch before"}[
        status
    ] in found.remedy
    assert bool(found.remedy) is (status != "pass")


def test_cublas_is_judged_in_deterministic_runs_on_cuda_alone() -> None:
    unset = training(facts={**GPU, "cublas-workspace-at-cuda-start": ""})
    assert cublas_workspace(evidence(runs=(run("default-1", unset),))).status == "skip"
    assert cublas_workspace(evidence(runs=(run("deterministic-1", training()),))).status == "skip"
    allowed = Determinism(allow=(AllowedFlag("CUBLAS_WORKSPACE_CONFIG", "costs 20 %"),))
    found = cublas_workspace(
        evidence(spec=spec(determinism=allowed), runs=(run("deterministic-1", unset),))
    )
    assert found.status == "warn" and "costs 20 %" in found.message
    assert (
        found.evidence == ("deterministic-1, process main: not set",)
        and "determinism.allow" in found.remedy
    )


def seeing(key: str = "main", **values: str) -> Trace:
    return replace(training(key=key), variables=values)


def test_variables_must_be_the_same_in_both_runs() -> None:
    first = run("deterministic-1", seeing(OMP_NUM_THREADS="2", MKL_CBWR="AUTO"))
    same = variables(evidence(pair=(first, first)))
    assert (same.status, same.evidence) == ("pass", ("MKL_CBWR=AUTO", "OMP_NUM_THREADS=2"))
    second = run("deterministic-2", seeing(OMP_NUM_THREADS="3"))
    found = variables(evidence(pair=(first, second)))
    assert (found.status, found.evidence) == (
        "fail",
        ("main: MKL_CBWR AUTO and not set", "main: OMP_NUM_THREADS 2 and 3"),
    )
    assert "train.env" in found.remedy


@pytest.mark.parametrize(
    "name",
    ["RANK", "LOCAL_RANK", "GROUP_RANK", "MASTER_PORT", "MASTER_ADDR", "TORCHELASTIC_ERROR_FILE"],
)
def test_variables_that_belong_to_one_process_may_differ(name: str) -> None:
    pair = tuple(
        run(f"deterministic-{n}", seeing(**{name: str(n), "OMP_NUM_THREADS": "2"})) for n in (1, 2)
    )
    assert variables(evidence(pair=pair)).status == "pass"


def test_ranks_are_compared_with_each_other() -> None:
    first = run(
        "deterministic-1",
        seeing("rank0", OMP_NUM_THREADS="2"),
        seeing("rank1", OMP_NUM_THREADS="4"),
    )
    assert variables(evidence(pair=(first, first))).status == "pass"
    other = run(
        "deterministic-2",
        seeing("rank0", OMP_NUM_THREADS="4"),
        seeing("rank1", OMP_NUM_THREADS="4"),
    )
    assert variables(evidence(pair=(first, other))).evidence == ("rank0: OMP_NUM_THREADS 2 and 4",)


def test_long_values_are_cut_and_control_characters_written_out() -> None:
    pair = (
        run("deterministic-1", seeing(LD_PRELOAD="/x" * 1000 + "\x1b")),
        run("deterministic-2", seeing(LD_PRELOAD="\x1b[2J")),
    )
    line = variables(evidence(pair=pair)).evidence[0]
    assert len(line) < 600 and "…" in line and "\\x1b[2J" in line
    path = ":".join(f"/opt/lib{number}" for number in range(20))
    first = run("deterministic-1", seeing(LD_LIBRARY_PATH=path))
    assert variables(evidence(pair=(first, first))).evidence == (f"LD_LIBRARY_PATH={path}",)


def test_every_variable_is_recorded_up_to_what_untrusted_code_may_fill_the_report_with() -> None:
    def recorded(count: int) -> tuple[str, ...]:
        first = run(
            "deterministic-1", seeing(**{f"NCCL_{number:04}": "1" for number in range(count)})
        )
        found = variables(evidence(pair=(first, first)))
        assert found.message == f"{count} environment variables were the same in both runs"
        return found.evidence

    assert recorded(120) == tuple(f"NCCL_{number:04}=1" for number in range(120))
    assert recorded(RECORDED + 2)[-2:] == (f"NCCL_{RECORDED - 1:04}=1", "… and 2 more")


def test_without_a_pair_or_variables_there_is_nothing_to_hold() -> None:
    assert variables(evidence()).status == "skip"
    assert (
        variables(
            evidence(pair=(run("deterministic-1", training()), run("deterministic-2", training())))
        ).status
        == "skip"
    )
