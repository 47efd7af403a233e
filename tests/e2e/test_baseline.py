"""The baseline and `--against`: what is recorded, and what the next gate run says about it. Real
processes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from repro_gate.baseline.file import read_baseline
from tests.support.gates import LOOP, call, gate, training
from tests.support.repositories import commit, git

SPEC = """
version: 1
train: {{run: python train.py, steps: 4, timeout: 2m, env: {{PYTHONPATH: {library}}}}}
cost: {{measure: false}}
"""
SCALED, UNSEEDED = "x = x * scaling.FACTOR", "x = random.SystemRandom().random()"


@pytest.fixture(scope="module")
def committed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A committed training with a committed baseline, and beside it a library that training
    imports: `library/scaling` 1.0."""
    place = tmp_path_factory.mktemp("locked")
    write_library(place / "library", "1.0", 0.5)
    source = "import scaling\n" + LOOP.replace("# here", SCALED)
    files = {"notes.md": "first", ".gitignore": "__pycache__/\n"}
    code = training(place / "code", source, SPEC.format(library=place / "library"), files)
    git(code, "init", "-q")
    commit(code, "training")
    record(code)
    return place


def write_library(folder: Path, version: str, factor: float) -> None:
    """A library with a version and installed metadata, as pip inputs them."""
    for old in folder.glob("scaling-*.dist-info"):
        shutil.rmtree(old)
    name = f"scaling-{version}.dist-info"
    (folder / name).mkdir(parents=True)
    for path, text in {
        "scaling.py": f"FACTOR = {factor!r}\n",
        f"{name}/METADATA": f"Metadata-Version: 2.1\nName: scaling\nVersion: {version}\n",
        f"{name}/RECORD": f"scaling.py,,\n{name}/METADATA,,\n{name}/RECORD,,\n",
        f"{name}/top_level.txt": "scaling\n",
    }.items():
        (folder / path).write_text(text)


def record(code: Path) -> None:
    """Record the baseline and commit it."""
    done = call("baseline", code)
    assert done.returncode == 0 and "repro.baseline.yml" in done.stdout, done.stdout + done.stderr
    commit(code, "baseline")


@pytest.fixture
def code(committed: Path, tmp_path: Path) -> Path:
    """A clone of its own, so that each test changes only its own."""
    git(tmp_path, "clone", "-q", str(committed / "code"), "code")
    return tmp_path / "code"


def edit(code: Path, name: str, before: str, after: str) -> None:
    """Replace text in a file and commit it."""
    text = (code / name).read_text()
    assert before in text
    (code / name).write_text(text.replace(before, after))
    commit(code, f"edit {name}")


def found(status: dict[str, Any]) -> tuple[str, list[str]]:
    """What is said of two sets of results, and the inputs that changed."""
    return status["status"], [item["name"] for item in status["changed_inputs"]]


def test_the_same_checkout_is_unchanged_and_a_refactor_a_no_op(code: Path, tmp_path: Path) -> None:
    gated = gate(code, out=tmp_path)
    gated.must(0)
    assert found(gated.report["baseline"]) == ("unchanged", [])
    baseline = read_baseline(code / "repro.baseline.yml")
    [entry] = baseline.values()
    assert entry.config_hash == gated.report["config_hash"]["config_hash"]
    edit(code, "train.py", "for number in range(6):", "for number in range(3 + 3):")
    gated = gate(code, out=tmp_path)
    gated.must(0)
    assert found(gated.report["baseline"]) == ("no-op", ["code"])


@pytest.mark.parametrize("rule", ["notice", "fail"])
def test_another_learning_rate_is_a_change(rule: str, code: Path, tmp_path: Path) -> None:
    edit(code, "train.py", "weight -= 0.1 *", "weight -= 0.2 *")
    gated = gate(code, "--set", f"baseline.on-change={rule}", out=tmp_path)
    gated.must(int(rule == "fail"), *(["baseline/changed"] if rule == "fail" else []))
    changed = gated.report["baseline"]
    assert found(changed) == ("changed", ["code"])
    assert {"losses", "weights", "optimizer"} <= set(changed["unlike"]) and changed["loss_gap"] > 0


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_another_library_under_the_same_config_hash_is_drift(
    version: str, committed: Path, code: Path, tmp_path: Path
) -> None:
    write_library(committed / "library", version, 0.5 if version == "1.0" else 0.25)
    try:
        gated = gate(code, out=tmp_path)
    finally:
        write_library(committed / "library", "1.0", 0.5)
    same, baseline = version == "1.0", gated.report["baseline"]
    gated.must(int(not same), *([] if same else ["baseline/drift"]))
    assert baseline["status"] == ("unchanged" if same else "drift")
    assert baseline["outside"] == ([] if same else ["distribution/scaling: 1.0 -> 1.1"])
    assert gated.report["determinism"]["identical"], "only not identical with the recorded ones"


@pytest.mark.slow
def test_a_training_that_looks_at_its_own_path_does_not_drift(code: Path, tmp_path: Path) -> None:
    paths = "{str(p) for p in __import__('pathlib').Path('.').resolve().iterdir()}"
    look = f"for path in sorted({paths}, key=hash): x = x + 1e-3 * len(path) * (x * 1.1)"
    edit(code, "train.py", SCALED, look)
    record(code)
    again = gate(code, out=tmp_path)
    again.must(0)
    assert again.report["baseline"]["status"] == "unchanged"


def test_a_training_that_diverges_is_not_recorded(code: Path) -> None:
    before = (code / "repro.baseline.yml").read_text()
    edit(code, "train.py", SCALED, UNSEEDED)
    done = call("baseline", code)
    assert done.returncode == 1 and "wrote" not in done.stdout
    assert (code / "repro.baseline.yml").read_text() == before


def test_against_a_ref_a_refactor_is_no_change(code: Path, tmp_path: Path) -> None:
    same = gate(code, "--against", "HEAD~1", out=tmp_path)
    same.must(0)
    assert same.report["against"]["status"] == "unchanged"
    edit(code, "notes.md", "first", "second")
    quiet = gate(code, "--against", "HEAD~1", out=tmp_path).report["against"]
    assert found(quiet) == ("no-op", ["code"])
    assert "bitwise identical results" in quiet["message"] and quiet["speed"] == []
    edit(code, "train.py", "loss = (", "loss = 2 * (")
    measured = ("--set", "cost.measure=true", "--set", "train.warmup=0")
    loud = gate(code, "--against", "HEAD~1", *measured, out=tmp_path)
    loud.must(0)
    changed = loud.report["against"]
    assert changed["status"] == "changed"
    change = loud.report["change"]
    assert (change["beside"], change["size"]) == ("HEAD~1", "different")
    # no torch, so no tensor: the loss is what differs first
    assert (change["first"]["step"], change["first"]["kind"]) == (0, "loss")
    arms = [("deterministic", 2), ("default", 2)]
    assert [(item["arm"], item["runs"]) for item in changed["speed"]] == arms
    assert all(
        item["ci95"][0] <= item["slower_pct"] <= item["ci95"][1] for item in changed["speed"]
    )
    # nobody reruns to get the new losses
    assert [step for step, *_ in loud.report["determinism"]["losses"]] == [0, 1, 2, 3]
    first = changed["first_divergence"]
    assert (first["step"], first["kind"]) == (0, "loss")
    assert git(code, "status", "--porcelain") == "", "nothing was checked out"


def test_against_a_ref_its_own_data_is_trained_on(code: Path, tmp_path: Path) -> None:
    (code / "factor.txt").write_text("1")
    edit(code, "repro.yml", "version: 1", "version: 1\ndata: [{path: factor.txt}]")
    edit(code, "train.py", SCALED, "x = x * float(open('factor.txt').read())")
    edit(code, "factor.txt", "1", "2")
    gated = gate(code, "--against", "HEAD~1", out=tmp_path)
    assert found(gated.report["against"]) == ("changed", ["data/factor.txt"]), gated.said


def test_a_bad_spec_of_a_ref_is_said_before_anything_runs(code: Path, tmp_path: Path) -> None:
    edit(code, "repro.yml", "version: 1", "version: 1\ncolour: red")
    edit(code, "repro.yml", "colour: red", "")
    gated = gate(code, "--against", "HEAD~1", out=tmp_path)
    gated.must(2)
    assert "colour" in gated.stderr and "run 1" not in gated.stderr


def test_against_a_ref_that_diverges_says_so(code: Path, tmp_path: Path) -> None:
    edit(code, "train.py", SCALED, UNSEEDED)
    git(code, "revert", "--no-edit", "HEAD")
    gate(code, "--against", "HEAD~1", out=tmp_path).must(3, "against/inconclusive")


def test_the_base_branch_judges_and_what_is_weakened_is_listed(code: Path, tmp_path: Path) -> None:
    """What weakens a check: tests/gate."""
    asked = """version: 1
policy: base
checklist: {profile: basic, severity: {env/lockfile: fail}}
env: {lockfile: requirements.txt}"""
    edit(code, "repro.yml", "version: 1", asked)
    git(code, "branch", "main-line")
    clean = gate(code, "--base", "main-line", "--policy", "head", out=tmp_path)
    assert clean.report["base"]["weakened"] == []
    edit(code, "repro.yml", "severity: {env/lockfile: fail}", "severity: {env/lockfile: warn}")
    for policy, exit_code in (("base", 1), ("head", 0)):
        gated = gate(code, "--base", "main-line", "--policy", policy, out=tmp_path)
        gated.must(exit_code)
        base = gated.report["base"]
        (weakened,) = base["weakened"]
        assert (base["policy"], weakened["key"]) == (policy, "checklist.severity")
        assert weakened["location"]["file"] == "repro.yml"
        assert ("env/lockfile" in gated.reason_ids) is (policy == "base")
