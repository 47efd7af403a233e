"""Every check that does not pass says what it saw and what to do about it. What exactly it says is
for the tests of its category."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from repro_gate.checkout.contents import tracked_files
from repro_gate.checkout.inspection import inspect_checkout
from repro_gate.checks import ALL
from repro_gate.checks.interface import Evidence
from repro_gate.compare.traces import compare_runs
from repro_gate.data.declared import DataFinding
from repro_gate.runs.results import Varied
from repro_gate.spec.model import DataItem, Env, Hardware
from repro_gate.trace.fields import Imported, Opened
from repro_gate.trace.model import Drawn, LoaderSeen
from tests.support.built_traces import (
    FACTS,
    changed,
    evidence,
    flip,
    place_of,
    run,
    spec,
    training,
)
from tests.support.repositories import git, repository, write

CUDA = {**FACTS, "device": "cuda: NVIDIA H200", "gpus": "1"}
FLAGS = {"torch.use_deterministic_algorithms": False}
POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'a' * 64}\nsize 123456\n"
CRASH = run(
    "deterministic-1",
    outcome="crashed",
    tail=["FileNotFoundError: [Errno 2] No such file or directory: 'build/vocab.json'"],
)


def committed(folder: Path, **files: str) -> Evidence:
    """The evidence of a repository with these files, all committed but what it ignores."""
    root = repository(folder / "repo")
    write(root, **files)
    git(root, "add", "-A")
    git(root, "commit", "-qm", "more", "--allow-empty")
    checkout = inspect_checkout(root)
    return evidence(
        spec=spec(checkout.root),
        checkout=checkout,
        tracked=tracked_files(checkout.root),
        commit=checkout.commit,
    )


def without_submodule(folder: Path) -> Evidence:
    inner, root = repository(folder / "inner"), repository(folder / "outer")
    git(root, "submodule", "add", "-q", str(inner), "libs/inner")
    git(root, "commit", "-qm", "a submodule")
    git(folder, "clone", "-q", str(root), "clone")
    return evidence(spec=spec(folder / "clone"), checkout=inspect_checkout(folder / "clone"))


def one(trace: Any = None, name: str = "default-1", **changes: Any) -> Evidence:
    """The evidence of one run with such a trace."""
    return evidence(runs=(run(name, replace(trace or training(), **changes)),))


def two(kind: str = "", **second: Any) -> Evidence:
    """The evidence of a pair whose second run differs."""
    a = training()
    b = replace(changed(a, place_of(a, 1, kind), flip(0)) if kind else a, **second)
    runs = (
        run(
            "deterministic-1",
            replace(a, loaders=[LoaderSeen(0, 2, 1)], variables={"OMP_NUM_THREADS": "1"}),
        ),
        run("deterministic-2", b),
    )
    return evidence(runs=runs, pair=runs, comparison=compare_runs([a], [b]))


def same_seed(folder: Path) -> Evidence:
    a, control = training(), training(2)
    runs = (run("deterministic-1", a),)
    return evidence(
        pair=runs, control=run("reseeded", control), control_comparison=compare_runs([a], [control])
    )


def one_fixed_generator(folder: Path) -> Evidence:
    a, control = training(), training(2, seed=7)
    place = place_of(control, 0, "rng")
    control = changed(control, place, lambda _: a.blocks[place_of(a, 0, "rng")])
    return evidence(
        pair=(run("deterministic-1", a),),
        control=run("reseeded", control),
        control_comparison=compare_runs([a], [control]),
    )


def drawing(folder: Path) -> Evidence:
    found = two("gradient")
    return replace(
        found,
        runs=(
            run("deterministic-1", replace(training(), drawn=[Drawn("uuid.uuid4", "train.py", 3)])),
        ),
    )


FAILING: dict[str, Callable[[Path], Evidence]] = {
    "code/commit": lambda _: evidence(commit=None),
    "code/clean": lambda _: evidence(uncommitted=("train.py",)),
    "code/submodules": without_submodule,
    "code/lfs": lambda folder: committed(
        folder, _dot_gitattributes="*.txt filter=lfs\n", pointer_dot_txt=POINTER
    ),
    "code/spec-tracked": committed,
    "code/licence": committed,
    "code/pristine-workspace": lambda folder: replace(
        committed(folder, build__vocab_dot_json="{}"), runs=(CRASH,)
    ),
    "code/imports-checkout": lambda _: one(
        imports=[Imported("pkg", "/venv/site-packages/pkg/__init__.py", "pkg")]
    ),
    "code/opened-files": lambda _: one(opened=[Opened("/opt/x.py", False)]),
    "data/checksums": lambda _: evidence(
        spec=spec(data=(DataItem("a"),)),
        data=(DataFinding(path="a", expected="a" * 64, actual="b" * 64),),
    ),
    "data/unchanged": lambda _: replace(
        one(), spec=spec(data=(DataItem("a"),)), changed_data=("a",)
    ),
    "data/undeclared-reads": lambda _: one(opened=[Opened("/opt/x.bin", False)]),
    "data/leftovers": lambda _: one(opened=[Opened("/opt/x.bin", False, "", True)]),
    "data/no-network": lambda _: one(network=["192.0.2.1:443"]),
    "data/revisions": lambda _: one(
        opened=[Opened(f"/hub/models--a--b/snapshots/{'0' * 40}/x.bin", False)]
    ),
    "data/batches": lambda _: two("batch"),
    "env/lockfile": lambda folder: evidence(spec=spec(folder, profile="strict")),
    "env/installed": lambda folder: replace(
        one(distributions={"torch": "2.13.0"}),
        spec=spec(
            committed(
                folder, a_dot_lock=f"six==1.17.0 --hash=sha256:{'a' * 64}\n"
            ).spec.path.parent,
            env=Env("a.lock"),
        ),
    ),
    "env/image-digest": lambda _: evidence(spec=spec(profile="strict")),
    "env/versions": lambda _: one(facts={**CUDA, "cudnn": ""}),
    "env/cublas-workspace": lambda _: one(name="deterministic-1", facts=CUDA),
    "env/variables": lambda _: two(variables={"OMP_NUM_THREADS": "2"}),
    "random-state/flags": lambda _: one(training(settings=FLAGS), "deterministic-1"),
    "random-state/generators": lambda _: two("rng"),
    "random-state/seed-reach": one_fixed_generator,
    "random-state/reseeded": same_seed,
    "random-state/workers": lambda _: two(),
    "random-state/os-entropy": drawing,
    "random-state/operators": lambda _: one(training(settings=FLAGS), "deterministic-1"),
    "random-state/robust": lambda _: replace(
        one(),
        comparison=compare_runs([training()], [training()]),
        varied={42: Varied(replace(CRASH, problem="no"), None, False)},
    ),
    "hardware/device": lambda _: replace(one(), spec=spec(hardware=Hardware("cuda"))),
    "hardware/same": lambda _: evidence(
        runs=(run("deterministic-1", training(), training(key="rank1", facts=CUDA)),)
    ),
    "hardware/recorded": lambda _: one(),
    "hardware/alone": lambda _: replace(one(facts=CUDA), gpu_processes=("4711 python",)),
}


def test_the_table_has_every_check() -> None:
    assert list(FAILING) == [item.id for item in ALL]


@pytest.mark.parametrize("item", ALL, ids=lambda item: item.id)
def test_what_does_not_pass_says_what_was_seen_and_what_to_do(item: Any, tmp_path: Path) -> None:
    found = item(FAILING[item.id](tmp_path))
    assert found.status in ("warn", "fail"), found.message
    assert found.evidence and all(line.strip() for line in found.evidence)
    assert found.remedy.strip() and found.message.strip()
