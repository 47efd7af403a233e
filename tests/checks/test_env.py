"""Category `env`: can the software be set up again, and was it what trained?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from repro_gate.checkout.inspection import Checkout
from repro_gate.checks import env
from repro_gate.checks.interface import Evidence
from repro_gate.runs.launch import RunResult
from repro_gate.spec.model import AllowedFlag, Determinism, Env
from tests.checks.conftest import outcome, statuses
from tests.support.built_traces import FACTS, evidence, run, spec, training
from tests.support.lockfiles import PROJECT, REQUIREMENTS, UV

A = f"--hash=sha256:{'a' * 64}"
AT_START = "cublas-workspace-at-cuda-start"
GPU = {**FACTS, "device": "cuda: NVIDIA H200", "cuda": "12.8", "cudnn": "91002", "nccl": "2.27.5"}
TOOLS = {"pip": "23.2.1", "setuptools": "80", "repro_gate": "0.1.0"}
IMAGE, OTHER = (f"ghcr.io/org/train@sha256:{digit * 64}" for digit in "ab")
SHOUTED = IMAGE.replace("a" * 64, "A" * 64)
TAG, CUT = "ghcr.io/org/train:v1", "ghcr.io/org/train@sha256:abc"


def locked(
    folder: Path, name: str = "requirements.txt", text: str = REQUIREMENTS, **changes: Any
) -> Evidence:
    (folder / name).write_text(text)
    if name == "uv.lock":
        (folder / "pyproject.toml").write_text(PROJECT)
    return replace(evidence(spec=spec(folder, env=Env(name))), **changes)


def test_a_lockfile_is_named_and_must_be_a_lock_that_is_pinned_and_tracked(tmp_path: Path) -> None:
    bare = evidence(spec=spec(tmp_path))
    assert statuses(env.lockfile, bare) == ("skip", "fail")
    (tmp_path / "yarn.lock").write_text('"@babel/core@^7.0.0":\n  version "7.1.0"\n')
    (tmp_path / "uv.lock").write_text(UV)
    assert outcome(env.lockfile, bare)[1] == ("uv.lock",)
    assert "{lockfile: uv.lock}" in env.lockfile(bare).remedy
    (tmp_path / "requirements.lock").write_text(REQUIREMENTS)
    (tmp_path / "exp").mkdir()
    inside = evidence(spec=spec(tmp_path / "exp"), checkout=Checkout(root=tmp_path))
    assert outcome(env.lockfile, inside)[1] == ("../requirements.lock", "../uv.lock")
    loose = locked(tmp_path, "loose.txt", REQUIREMENTS + "torch>=2\nnumpy==2.4.6\n")
    assert statuses(env.lockfile, loose) == ("warn", "fail")
    places = [line.split(": ")[:2] for line in outcome(env.lockfile, loose)[1]]
    assert places == [["loose.txt:17", "torch"], ["loose.txt:18", "numpy"]]
    untracked = locked(tmp_path, tracked=frozenset())
    assert statuses(env.lockfile, untracked) == ("warn", "fail")
    assert outcome(env.lockfile, untracked)[1] == ("requirements.txt",)
    for name, text in (("requirements.txt", REQUIREMENTS), ("uv.lock", UV)):
        fine = locked(tmp_path, name, text, tracked=frozenset({name}))
        assert env.lockfile(fine).status == "pass"


def test_a_declared_lockfile_must_be_there_and_be_a_lock(tmp_path: Path) -> None:
    for name, text in (
        ("requirements.lock", ""),
        ("requirements.lock", "-r more.txt\n"),
        ("uv.lock", "["),
        ("../uv.lock", UV),
        ("requirements.lock.gone", None),
        (".", None),
    ):
        (tmp_path / "repo").mkdir(exist_ok=True)
        if text is not None:
            (tmp_path / "repo" / name).write_text(text)
        assert env.lockfile(evidence(spec=spec(tmp_path / "repo", env=Env(name)))).status == "fail"


def importing(python: str = "3.12.7", **distributions: str) -> tuple[RunResult]:
    names = {name.replace("__", "-"): version for name, version in distributions.items()}
    trace = replace(training(facts={"python": python}), distributions=names)
    return (run("deterministic-1", training(), trace),)


def test_what_a_line_of_the_lock_asks_for(tmp_path: Path) -> None:
    for text, python, name, version, status in (
        # versions compare as PEP 440 has it
        ("idna==3.10", "3.12.7", "IDNA", "3.10.0", "pass"),
        ("idna==3.10", "3.12.7", "idna", "odd", "fail"),
        # markers are judged for the Python that trained
        ("idna==3.10 ; python_full_version >= '3.10.0'", "3.12.7", "idna", "3.10", "pass"),
        ("idna==3.10 ; python_full_version >= '3.10.0'", "3.9.1", "idna", "3.10", "fail"),
        ("idna==3.9 ; python_version < '3.10'", "3.9.1", "idna", "3.9", "pass"),
        ("idna==3.10 ; sys_platform == 'win32'", "3.12.7", "idna", "3.10", "fail"),
        ("idna==3.10 ; extra == 'gpu'", "3.12.7", "idna", "3.10", "pass"),
        # one of several pins is enough, and every version is judged
        (f"numpy==1.26 {A}\nnumpy==2.4.6", "3.12.7", "NumPy", "2.4.6", "pass"),
        (f"numpy==1.26 {A}\nnumpy==2.4.6", "3.12.7", "numpy", "2.0", "fail"),
        # an entry without a version is for env/lockfile
        ("torch>=2", "3.12.7", "torch", "2.13.0", "pass"),
        # a tool needs no pin, and one that is pinned counts
        ("idna==3.10", "3.12.7", "setuptools", "79.0", "pass"),
        ("setuptools==80.0", "3.12.7", "setuptools", "79.0", "fail"),
    ):
        facts = locked(tmp_path, text=f"{text} {A}\n", runs=importing(python, **{name: version}))
        assert env.installed(facts).status == status


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("pyproject.toml", '[project]\nname = "Small_Training"\n'),
        ("setup.cfg", "[metadata]\nname = small-training\n"),
        ("setup.py", "from setuptools import setup\nsetup(name='small-training', x=['\\d'])\n"),
        ("setup.py", "\0" + "(" * 5000 + " name = 'small-training'"),
    ],
)
def test_the_project_itself_needs_no_entry(file: str, text: str, tmp_path: Path) -> None:
    facts = locked(tmp_path, runs=importing(idna="3.10", small__training="0.1.0"))
    assert env.installed(facts).status == "fail"
    (tmp_path / file).write_text(text)
    assert env.installed(facts).status == "pass"


def test_without_lock_imports_or_runs_there_is_nothing_to_compare(tmp_path: Path) -> None:
    idna = importing(idna="3.10")
    for facts in (
        evidence(spec=spec(tmp_path), runs=idna),
        locked(tmp_path),
        locked(tmp_path, runs=(run("deterministic-1", training()),)),
        locked(tmp_path, "uv.lock", "[", runs=idna),
    ):
        assert env.installed(facts).status == "skip"
    own = importing(idna="3.10", small__training="0.1.0")  # the project itself needs no entry
    assert env.installed(locked(tmp_path, "uv.lock", UV, runs=own)).status == "pass"
    for distributions, lines in (
        ({"idna": "3.10", "six": "1.17.0", **TOOLS}, []),
        ({"idna": "3.11"}, ["idna 3.11: 3.10 at requirements.txt:9, imported"]),
        ({"idna": "3.10", "torch": "2.13.0"}, ["torch 2.13.0 is not in the lock for this machine"]),
    ):
        status, found = outcome(env.installed, locked(tmp_path, runs=importing(**distributions)))
        assert (status, [*found]) == ("fail", lines) if lines else status == "pass"


def test_an_image_counts_by_its_digest_and_where_it_runs() -> None:
    for declared, running, expected in (
        (IMAGE, IMAGE, ("pass", "pass")),
        (SHOUTED, IMAGE, ("pass", "pass")),
        (IMAGE, OTHER, ("fail", "fail")),
        (IMAGE, None, ("warn", "fail")),
        (IMAGE, TAG, ("warn", "fail")),
        (TAG, IMAGE, ("warn", "fail")),
        (CUT, IMAGE, ("fail", "fail")),
        (None, IMAGE, ("skip", "fail")),
    ):
        facts = evidence(spec=spec(env=Env(None, declared)), running_image=running)
        assert statuses(env.image_digest, facts) == expected


@pytest.mark.parametrize("fact", ["python", "torch", "cuda", "hip", "interpreter"])
def test_versions_must_be_the_same_in_every_process(fact: str) -> None:
    first, same = training(), training(key="rank1")
    other = training(key="rank1", facts={**FACTS, fact: "0"})
    for runs in (
        (run("deterministic-1", first, other),),
        (run("deterministic-1", first), run("default-1", other)),
        (run("deterministic-1", replace(other, key="main"), first),),  # one took the other's place
    ):
        status, lines = outcome(env.versions, evidence(runs=runs))
        assert status == "fail" and [line.partition(":")[0] for line in lines] == [fact]
    facts = evidence(runs=(run("deterministic-1", first, same),))
    assert env.versions(facts).status == "pass"
    pypy = training(key="rank1", facts={**FACTS, "interpreter": "/usr/bin/pypy3"})
    python = training(facts={**FACTS, "interpreter": "/usr/bin/python3.1"})
    assert env.versions(evidence(runs=(run("run", python, pypy),))).status == "fail"
    assert env.versions(evidence()).status == "skip"


@pytest.mark.parametrize("fact", ["", "python", "torch", "cuda", "cudnn", "nccl", "driver"])
def test_on_a_gpu_every_version_must_be_recorded(fact: str) -> None:
    facts, machine = (
        {key: value for key, value in known.items() if key != fact}
        for known in (GPU, {"driver": "570.1"})
    )
    result = env.versions(evidence(runs=(run("run", training(facts=facts)),), machine=machine))
    assert result.status == ("warn" if fact else "pass") and fact in result.message
    assert ("driver 570.1" in map(str, result.evidence)) is (fact != "driver")


def test_cublas_must_find_its_workspace_when_cuda_starts_in_a_deterministic_run() -> None:
    for name, facts, status in (
        ("deterministic-1", {**GPU, AT_START: ":4096:8"}, "pass"),
        ("deterministic-1", {**GPU, AT_START: ""}, "fail"),
        ("deterministic-1", {**GPU, AT_START: ":4096:2:16:8"}, "fail"),
        ("deterministic-1", GPU, "warn"),
        ("deterministic-1", FACTS, "skip"),
        ("default-1", {**GPU, AT_START: ""}, "skip"),
    ):
        runs = (run(name, training(facts=facts)),)
        assert env.cublas_workspace(evidence(runs=runs)).status == status
        allowed = Determinism(allow=(AllowedFlag("CUBLAS_WORKSPACE_CONFIG", "costs 20 %"),))
        excused = evidence(spec=spec(determinism=allowed), runs=runs)
        assert env.cublas_workspace(excused).status == status.replace("fail", "warn")


def compared(
    *values: dict[str, str], varied: frozenset[str] = frozenset()
) -> tuple[str, tuple[str, ...]]:
    """Return what `variables` says of runs that saw these, the last one varied."""
    runs = [run(f"a-{n}", replace(training(), variables=item)) for n, item in enumerate(values)]
    runs[-1] = replace(runs[-1], request=replace(runs[-1].request, varied=varied))
    return outcome(env.variables, evidence(pair=tuple(runs)))


def test_variables_must_be_the_same_in_both_runs_but_for_those_of_one_process_or_varied() -> None:
    first = {"OMP_NUM_THREADS": "2", "MKL_CBWR": "AUTO"}
    assert compared(first, first) == ("pass", ("MKL_CBWR=AUTO", "OMP_NUM_THREADS=2"))
    lines = ("main: MKL_CBWR AUTO and not set", "main: OMP_NUM_THREADS 2 and 3")
    assert compared(first, {"OMP_NUM_THREADS": "3"}) == ("fail", lines)
    assert compared({}, {})[0] == compared(first)[0] == "skip"
    for name, one, other, varied, status in (
        *[(name, "1", "2", (), "pass") for name in ("LOCAL_RANK", "MASTER_PORT")],
        ("OMP_NUM_THREADS", "1", "2", ("threads",), "pass"),
        ("OMP_NUM_THREADS", "1", "2", ("path",), "fail"),
        ("TORCH_HOME", "/x/run/home/a", "/x/run/user/a", ("home",), "pass"),
        ("TORCH_HOME", "/x/run/home/a", "/x/run/user/a", (), "fail"),
        ("TORCH_HOME", "/x/run/home/a", "/x/run/user/b", ("home",), "fail"),
    ):
        assert compared({name: one}, {name: other}, varied=frozenset(varied))[0] == status

    def ranks(*threads: str) -> RunResult:
        traces = [
            replace(training(key=f"rank{rank}"), variables={"OMP_NUM_THREADS": count})
            for rank, count in enumerate(threads)
        ]
        return run("deterministic-1", *traces)

    same = evidence(pair=(ranks("2", "4"), ranks("2", "4")))
    assert env.variables(same).status == "pass"
    other = evidence(pair=(ranks("2", "4"), ranks("4", "4")))
    assert outcome(env.variables, other)[1] == ("rank0: OMP_NUM_THREADS 2 and 4",)
    (line,) = compared({"LD_PRELOAD": "/x" * 1000 + "\x1b"}, {"LD_PRELOAD": "\x1b[2J"})[1]
    assert len(line) < 600 and "…" in line and "\\x1b[2J" in line
    path = ":".join(f"/opt/lib{number}" for number in range(20))
    assert compared(*[{"LD_LIBRARY_PATH": path}] * 2)[1] == (f"LD_LIBRARY_PATH={path}",)
