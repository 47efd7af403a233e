"""The baseline and `--against`: what is recorded, and what the next gate run says about it. Real
processes."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from repro_gate.baseline.file import read_baseline
from tests.support.gates import LOOP, ROOT, command, environment, gate, training
from tests.support.repositories import git


@pytest.fixture(scope="module")
def committed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A committed training with a committed baseline, and beside it a library that training
    imports: `library/scaling` 1.0."""
    place = tmp_path_factory.mktemp("locked")
    library = place / "library"
    write_library(library, "1.0", 0.5)
    source = "import scaling\n" + LOOP.replace("# here", "x = x * scaling.FACTOR")
    train = (
        "train:\n  run: python train.py\n  steps: 4\n  timeout: 2m\n  env: {PYTHONPATH: "
        f"{library}}}\n"
    )
    spec = f"version: 1\n{train}cost: {{measure: false}}\n"
    code = training(
        place / "code", source, spec, {"notes.md": "first", ".gitignore": "__pycache__/\n"}
    )
    commit(code, "training")
    done = call("baseline", code)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "repro.baseline.yml" in done.stdout
    commit(code, "baseline")
    return place


def write_library(folder: Path, version: str, factor: float) -> None:
    """A library with a version and installed metadata, as pip inputs them."""
    information = folder / f"scaling-{version}.dist-info"
    for old in folder.glob("scaling-*.dist-info"):
        for path in old.iterdir():
            path.unlink()
        old.rmdir()
    information.mkdir(parents=True)
    (folder / "scaling.py").write_text(f"FACTOR = {factor!r}\n")
    (information / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: scaling\nVersion: {version}\n"
    )
    (information / "RECORD").write_text(
        f"scaling.py,,\nscaling-{version}.dist-info/METADATA,,\nscaling-{version}.dist-info/RECORD,,\n"
    )
    (information / "top_level.txt").write_text("scaling\n")


def commit(code: Path, message: str) -> None:
    """Commit everything in `code`."""
    if not (code / ".git").exists():
        git(code, "init", "-q")
    git(code, "add", "-A")
    git(code, "commit", "-qm", message)


def call(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """One call of the command line."""
    return subprocess.run(
        command(*arguments),
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


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


def names(found: Sequence[dict[str, str]]) -> list[str]:
    """The inputs that moved."""
    return [item["name"] for item in found]


def test_the_same_checkout_is_unchanged_and_its_config_hash_is_the_recorded_one(
    code: Path, tmp_path: Path
) -> None:
    gated = gate(code, out=tmp_path)
    baseline = read_baseline(code / "repro.baseline.yml")
    assert gated.exit_code == 0, gated.said
    assert (
        gated.report["baseline"]["status"] == "unchanged"
        and not gated.report["baseline"]["changed_inputs"]
    )
    assert baseline is not None
    hashed = gated.report["config_hash"]
    assert [entry.config_hash for entry in baseline.entries.values()] == [hashed["config_hash"]]


def test_a_refactor_is_a_no_op(code: Path, tmp_path: Path) -> None:
    edit(code, "train.py", "for number in range(6):", "for number in range(3 + 3):")
    gated = gate(code, out=tmp_path)
    assert gated.exit_code == 0, gated.stdout
    assert gated.report["baseline"]["status"] == "no-op" and names(
        gated.report["baseline"]["changed_inputs"]
    ) == ["code"]


@pytest.mark.parametrize(
    ("rule", "exit_code", "reasons"), [("notice", 0, []), ("fail", 1, ["baseline/changed"])]
)
def test_another_learning_rate_is_a_change(
    rule: str, exit_code: int, reasons: list[str], code: Path, tmp_path: Path
) -> None:
    edit(code, "train.py", "weight -= 0.1 *", "weight -= 0.2 *")
    (code / "repro.yml").write_text(
        (code / "repro.yml").read_text() + f"baseline: {{on-change: {rule}}}\n"
    )
    gated = gate(code, out=tmp_path)
    found = gated.report["baseline"]
    assert (gated.exit_code, gated.reason_ids) == (exit_code, reasons), gated.stdout
    assert found["status"] == "changed" and names(found["changed_inputs"]) == ["code"]
    assert {"losses", "weights", "optimizer"} <= set(found["unlike"]) and found["loss_gap"] > 0


def test_another_library_under_the_same_config_hash_is_drift(
    committed: Path, code: Path, tmp_path: Path
) -> None:
    write_library(committed / "library", "1.1", 0.25)
    try:
        gated = gate(code, out=tmp_path)
    finally:
        write_library(committed / "library", "1.0", 0.5)
    assert (gated.exit_code, gated.reason_ids) == (1, ["baseline/drift"]), gated.stdout
    assert gated.report["baseline"]["outside"] == ["distribution/scaling: 1.0 -> 1.1"]
    assert gated.report["determinism"]["identical"], (
        "the two runs are bitwise identical, only not the recorded ones"
    )
    again = gate(code, out=tmp_path)
    assert again.exit_code == 0 and again.report["baseline"]["status"] == "unchanged", (
        "the clean twin"
    )


TORCH = """
import torch
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(2):
    optimizer.zero_grad()
    model(torch.randn(16, 8)).square().mean().backward()
    optimizer.step()
"""


@pytest.mark.slow
def test_fewer_threads_are_another_platform_and_set_by_the_code_another_recipe(
    code: Path, tmp_path: Path
) -> None:
    few = gate(code, out=tmp_path, OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")
    assert few.exit_code == 0 and few.report["baseline"]["status"] == "new-platform", few.stdout

    (code / "train.py").write_text(TORCH)
    (code / "repro.baseline.yml").unlink()
    commit(code, "torch")
    assert call("baseline", code).returncode == 0
    commit(code, "baseline")
    baseline, printed = read_baseline(code / "repro.baseline.yml"), call("hash", code)
    assert baseline is not None and printed.returncode == 0, printed.stderr
    [entry] = baseline.entries.values()
    assert entry.config_hash in printed.stdout, "the same config hash without a run"
    edit(code, "train.py", "import torch", "import torch; torch.set_num_threads(1)")
    gated = gate(code, "--set", "baseline.on-change=fail", out=tmp_path)
    assert gated.report["baseline"]["status"] in ("changed", "no-op"), (
        "a change must not leave its platform to leave its baseline"
    )
    assert names(gated.report["baseline"]["changed_inputs"]) == ["code"]


@pytest.mark.slow
def test_a_training_that_looks_at_its_own_path_does_not_drift(code: Path, tmp_path: Path) -> None:
    paths = "{str(p) for p in __import__('pathlib').Path('.').resolve().iterdir()}"
    look = f"for path in sorted({paths}, key=hash): x = x + 1e-3 * len(path) * (x * 1.1)"
    edit(code, "train.py", "x = x * scaling.FACTOR", look)
    assert call("baseline", code).returncode == 0
    commit(code, "baseline")
    again = gate(code, out=tmp_path)
    assert again.exit_code == 0 and again.report["baseline"]["status"] == "unchanged", again.stdout


def test_a_forged_baseline_is_refused(code: Path, tmp_path: Path) -> None:
    text = (code / "repro.baseline.yml").read_text()
    assert "steps: 4" in text
    (code / "repro.baseline.yml").write_text(text.replace("seeds:", "seedz:", 1))
    gated = gate(code, out=tmp_path)
    assert (
        gated.exit_code == 2
        and "repro.baseline.yml" in gated.stderr
        and "Traceback" not in gated.stderr
    )


def test_a_training_that_diverges_is_not_recorded(code: Path) -> None:
    before = (code / "repro.baseline.yml").read_text()
    edit(
        code,
        "train.py",
        "x = x * scaling.FACTOR",
        "x = random.SystemRandom().random()",
    )
    done = call("baseline", code)
    assert done.returncode == 1 and (code / "repro.baseline.yml").read_text() == before
    assert "wrote" not in done.stdout


def test_against_a_ref_a_refactor_is_a_no_op_and_a_change_is_named(
    code: Path, tmp_path: Path
) -> None:
    same = gate(code, "--against", "HEAD~1", out=tmp_path)
    assert same.exit_code == 0 and same.report["against"]["status"] == "unchanged", same.stdout
    edit(code, "notes.md", "first", "second")
    quiet = gate(code, "--against", "HEAD~1", out=tmp_path)
    assert quiet.report["against"]["status"] == "no-op" and names(
        quiet.report["against"]["changed_inputs"]
    ) == ["code"]
    edit(code, "train.py", "loss = (", "loss = 2 * (")
    loud = gate(
        code,
        "--against",
        "HEAD~1",
        "--set",
        "cost.measure=true",
        "--set",
        "train.warmup=0",
        out=tmp_path,
    )
    found = loud.report["against"]
    assert (found["relation"], found["times_noise"]) == ("beyond-noise", None), (
        "both refs repeat their losses without the flags"
    )
    assert [(item["arm"], item["runs"]) for item in found["speed"]] == [
        ("deterministic", 2),
        ("default", 2),
    ]
    assert all(item["ci95"][0] <= item["slower_pct"] <= item["ci95"][1] for item in found["speed"])
    assert (
        quiet.report["against"]["relation"] == "identical"
        and quiet.report["against"]["speed"] == []
    )
    assert [step for step, *_ in loud.report["determinism"]["losses"]] == [0, 1, 2, 3], (
        "nobody reruns to get the new losses"
    )
    assert loud.exit_code == 0 and found["status"] == "changed", loud.stdout
    assert (found["first_divergence"]["step"], found["first_divergence"]["kind"]) == (0, "loss")
    assert git(code, "status", "--porcelain") == "", "nothing was checked out"


def test_against_a_ref_its_own_data_is_trained_on(code: Path, tmp_path: Path) -> None:
    (code / "factor.txt").write_text("1")
    edit(code, "repro.yml", "version: 1", "version: 1\ndata: [{path: factor.txt}]")
    edit(code, "train.py", "x = x * scaling.FACTOR", "x = x * float(open('factor.txt').read())")
    edit(code, "factor.txt", "1", "2")
    gated = gate(code, "--against", "HEAD~1", out=tmp_path)
    found = gated.report["against"]
    assert found["status"] == "changed" and names(found["changed_inputs"]) == ["data/factor.txt"], (
        gated.stdout
    )


def test_against_a_ref_with_a_bad_spec_is_said_before_anything_runs(
    code: Path, tmp_path: Path
) -> None:
    edit(code, "repro.yml", "version: 1", "version: 1\ncolour: red")
    edit(code, "repro.yml", "colour: red", "")
    gated = gate(code, "--against", "HEAD~1", out=tmp_path)
    assert gated.exit_code == 2 and "colour" in gated.stderr and "run 1" not in gated.stderr


def test_against_a_ref_that_diverges_says_so(code: Path, tmp_path: Path) -> None:
    edit(
        code,
        "train.py",
        "x = x * scaling.FACTOR",
        "x = random.SystemRandom().random()",
    )
    git(code, "revert", "--no-edit", "HEAD")
    gated = gate(code, "--against", "HEAD~1", out=tmp_path)
    assert gated.exit_code == 3 and gated.reason_ids == ["against/inconclusive"], gated.stdout


def test_the_base_branch_judges_and_what_is_weakened_is_listed(code: Path, tmp_path: Path) -> None:
    git(code, "switch", "-qc", "main-line")
    edit(
        code,
        "repro.yml",
        "version: 1",
        "version: 1\npolicy: base\nchecklist: {profile: basic, severity: {env/lockfile: "
        "fail}}\nenv: {lockfile: requirements.txt}",
    )
    git(code, "switch", "-qc", "change")
    edit(code, "repro.yml", "severity: {env/lockfile: fail}", "severity: {env/lockfile: warn}")
    edit(
        code,
        "repro.yml",
        "policy: base",
        "policy: head\ndeterminism: {compare: {loss: 0.1, weights: 0.1}}",
    )
    judged = gate(code, "--base", "main-line", out=tmp_path)
    base = judged.report["base"]
    assert (
        base["policy"] == "base" and judged.exit_code == 1 and "env/lockfile" in judged.reason_ids
    ), judged.stdout
    keys = {item["key"] for item in base["weakened"]}
    assert {"policy", "checklist.severity", "determinism.compare"} <= keys
    assert all(item["where"].startswith("repro.yml") for item in base["weakened"])
    own = gate(code, "--base", "main-line", "--policy", "head", out=tmp_path)
    assert (
        own.report["base"]["policy"] == "head"
        and {item["key"] for item in own.report["base"]["weakened"]} == keys
    )
    clean = gate(code, "--base", "HEAD", "--policy", "head", out=tmp_path)
    assert clean.report["base"]["weakened"] == []
