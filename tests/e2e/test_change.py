"""How large a change is: the five patches of the example, and what is said where nobody can tell. Real
processes."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from repro_gate.baseline.file import dump_baseline, read_baseline
from repro_gate.baseline.model import FILE_NAME
from tests.support.gates import LOOP, ROOT, Gated, call, command, environment, gate, training
from tests.support.repositories import commit, git

pytestmark = pytest.mark.slow
EXAMPLE = ROOT / "examples" / "change"
CHEAP = ("--set", "cost.measure=false", "--set", "robustness.vary=false")
STRICT = ("--set", "baseline.on-change=fail", "--set", "baseline.pass=rounding")
AGAINST = ("--against", "main", "--seeds")
WORSE = ("--set", "effect.fail=worse")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example as a repository, on the branch `main`."""
    code = tmp_path_factory.mktemp("plain") / "code"
    shutil.copytree(EXAMPLE, code, ignore=shutil.ignore_patterns("__pycache__"))
    git(code, "init", "-q", "-b", "main")
    commit(code, "training", _dot_gitignore="__pycache__/\n")
    return code


@pytest.fixture(scope="module")
def recorded(plain: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone of it with a recorded baseline that has five seeds."""
    code = tmp_path_factory.mktemp("recorded") / "code"
    git(plain.parent, "clone", "-q", str(plain), str(code))
    done = call("baseline", code, "--seeds", "5")
    assert done.returncode == 0, done.stdout + done.stderr
    commit(code, "baseline")
    return code


def changed(source: Path, place: Path, patch: str, *arguments: str) -> Gated:
    """What the gate says of a patch, which is committed in a clone."""
    code = place / "code"
    git(place, "clone", "-q", str(source), str(code))
    git(code, "switch", "-qc", "change")
    git(code, "apply", f"patches/{patch}.patch")
    commit(code, patch)
    return gate(code, *CHEAP, *arguments, out=place)


def size(gated: Gated) -> str:
    assert gated.report["change"] is not None, gated.said
    return str(gated.report["change"]["size"])


def effects(gated: Gated) -> dict[str, Any]:
    """What a change does to each metric."""
    return {item["metric"]: item for item in gated.report["change"]["effects"]}


def test_a_recorded_base_has_its_seeds_and_sketches(recorded: Path) -> None:
    (entry,) = read_baseline(recorded / FILE_NAME).values()
    assert [item.seed for item in entry.seeds] == [42, 43, 44, 45, 46]
    assert all(item.metrics.keys() == {"loss", "val_acc"} for item in entry.seeds)
    (outcome,) = entry.outcomes
    kinds = [what.split()[0] for what in outcome.sketches]
    assert (kinds.count("gradient"), kinds.count("parameter")) == (4, 4), outcome.sketches


def test_a_refactoring_is_none(recorded: Path, tmp_path: Path) -> None:
    gated = changed(recorded, tmp_path, "refactoring", *STRICT)
    gated.must(0)
    assert (size(gated), gated.report["baseline"]["status"]) == ("none", "no-op")
    assert gated.report["change"]["beside"] == FILE_NAME
    assert gated.report["change"]["effects"] == []


def test_a_fused_loss_is_rounding_and_may_pass_for_it(recorded: Path, tmp_path: Path) -> None:
    gated = changed(recorded, tmp_path, "fused-loss", *STRICT)
    gated.must(0)
    assert (size(gated), gated.report["baseline"]["status"]) == ("rounding", "changed")
    found = gated.report["change"]
    assert 0 < found["worst"]["roundings"] < 10 and found["first"] is None
    assert found["effects"] == [] and "rounding only: " in gated.stdout


def test_a_better_setting_is_an_effect_which_does_not_pass_for_rounding(
    recorded: Path, tmp_path: Path
) -> None:
    gated = changed(recorded, tmp_path, "better-setting", *STRICT, *WORSE)
    gated.must(1, "baseline/changed")
    assert size(gated) == "effect"
    found = effects(gated)
    assert {item["result"] for item in found.values()} == {"better"}, gated.stdout
    assert found["val_acc"]["seeds"] == 5 and found["val_acc"]["difference"] > 3
    losses = gated.report["change"]["losses"]
    assert [seed for seed, _ in losses] == [42, 43, 44, 45, 46]
    assert "mean loss of 5 seeds" in gated.stdout or "val_acc +" in gated.stdout


def test_another_initialization_is_within_seed_noise(plain: Path, tmp_path: Path) -> None:
    gated = changed(plain, tmp_path, "other-initialization", *AGAINST, "3", *WORSE)
    gated.must(0)
    assert (size(gated), gated.report["change"]["beside"]) == ("within-seed-noise", "main")
    found = effects(gated)
    assert {item["result"] for item in found.values()} == {"none-shown"}, gated.stdout
    assert gated.report["against"]["status"] == "changed"


def test_a_bug_is_an_effect_and_fails_where_worse_may_not_pass(plain: Path, tmp_path: Path) -> None:
    gated = changed(plain, tmp_path, "bug", *AGAINST, "4", *WORSE)
    gated.must(1)
    assert {*gated.reason_ids} == {"effect/worse"}, gated.said
    assert size(gated) == "effect"
    assert effects(gated)["val_acc"]["result"] == "worse", gated.stdout
    assert effects(gated)["val_acc"]["ci95"][1] < 0
    first = gated.report["change"]["first"]
    assert (first["step"], first["kind"]) == (0, "gradient") and first["roundings"] > 30


SPEC = """
version: 1
train: {run: "python train.py {seed}", steps: 4, timeout: 2m}
effect: {seeds: 3}
cost: {measure: false}
"""
UNSEEDED = "x = random.SystemRandom().random()"


@pytest.fixture
def loop(tmp_path: Path) -> Path:
    """A committed training without torch, on the branch `main`."""
    code = training(tmp_path / "loop", LOOP, SPEC, {".gitignore": "__pycache__/\n"})
    git(code, "init", "-q", "-b", "main")
    commit(code, "training")
    return code


def edit(code: Path, before: str, after: str) -> str:
    """Replace text in the training, and commit it."""
    text = (code / "train.py").read_text()
    assert before in text
    return commit(code, f"{before} -> {after}", train_dot_py=text.replace(before, after))


def test_of_a_base_that_diverges_by_itself_nothing_else_is_said(loop: Path, tmp_path: Path) -> None:
    edit(loop, "# here", UNSEEDED)
    git(loop, "tag", "unsound")
    edit(loop, UNSEEDED, "# here")
    gated = gate(loop, "--against", "unsound", out=tmp_path)
    gated.must(3, "against/inconclusive")
    assert gated.report["change"] is None
    against = gated.report["against"]
    assert "two runs of unsound are not bitwise identical" in against["message"]
    assert (against["loss_gap"], against["first_divergence"]) == (None, None)
    assert "\n  change " not in gated.stdout


def test_the_same_environment_is_no_change(loop: Path, tmp_path: Path) -> None:
    gated = gate(loop, "--against-env", sys.executable, out=tmp_path)
    gated.must(0)
    assert size(gated) == "none"
    found = gated.report["change"]
    assert (found["beside"], found["distributions"], found["operator"]) == (
        sys.executable,
        [],
        None,
    )
    assert gated.report["against"]["status"] == "unchanged"


def test_a_program_that_the_training_would_not_find_is_no_environment(
    loop: Path, tmp_path: Path
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3.99").symlink_to(sys.executable)
    for name in ("/bin/true", tmp_path / "bin" / "python3.99"):
        gate(loop, "--against-env", name, out=tmp_path).must(2)


def test_what_is_no_environment_is_refused_before_any_run(loop: Path, tmp_path: Path) -> None:
    for name in ("nowhere", "/etc/passwd"):
        gated = gate(loop, "--against-env", name, out=tmp_path)
        gated.must(2)
        assert f"--against-env {name}: neither a lockfile beside the spec" in gated.stderr


def test_a_baseline_without_sketches_says_so(loop: Path, tmp_path: Path) -> None:
    done = call("baseline", loop)
    assert done.returncode == 0, done.stdout + done.stderr
    path = loop / FILE_NAME
    whole = read_baseline(path)
    bare = {
        name: structs.replace(
            entry, outcomes=tuple(structs.replace(it, sketches={}) for it in entry.outcomes)
        )
        for name, entry in whole.items()
    }
    path.write_text(dump_baseline(bare))
    edit(loop, "weight -= 0.1 *", "weight -= 0.2 *")
    gated = gate(loop, "--set", "effect.seeds=4", out=tmp_path)
    gated.must(0)
    assert "no sketches" in gated.report["change"]["detail"]
    assert f"{FILE_NAME} has no result of seed 45" in gated.report["change"]["detail"]


def test_of_a_seed_that_was_not_recorded_nothing_is_said(loop: Path, tmp_path: Path) -> None:
    assert call("baseline", loop).returncode == 0
    gated = gate(loop, "--seed", "7", out=tmp_path)
    gated.must(0)
    assert "no common seed" in gated.report["baseline"]["message"]
    assert gated.report["change"] is None


def test_each_seed_is_run_once(loop: Path, tmp_path: Path) -> None:
    assert call("baseline", loop).returncode == 0
    commit(loop, "baseline")
    edit(loop, "weight -= 0.1 *", "weight -= 0.2 *")
    gated = gate(loop, "--against", "HEAD~1", out=tmp_path)
    gated.must(0)
    assert gated.stderr.count("effect: HEAD~1, seed") == 0, "the baseline has them"
    assert gated.stderr.count("effect: this change, seed 43") == 1


def bisected(code: Path, place: Path, *arguments: str) -> Gated:
    """What `git bisect run` is told of this checkout."""
    return gate(code, "--against", "main", "--bisect", *arguments, out=place)


def test_git_bisect_is_told_whether_the_results_are_the_same(loop: Path, tmp_path: Path) -> None:
    git(loop, "switch", "-qc", "change")
    edit(loop, "range(6)", "range(3 + 3)")
    bisected(loop, tmp_path).must(0)
    edit(loop, "weight -= 0.1 *", "weight -= 0.2 *")
    bisected(loop, tmp_path).must(1)
    bisected(loop, tmp_path, "--size", "rounding").must(1)
    edit(loop, "# here", UNSEEDED)
    bisected(loop, tmp_path).must(125)
    edit(loop, UNSEEDED, "raise SystemExit(1)")
    bisected(loop, tmp_path).must(125)
    (loop / "repro.yml").write_text("version: 1\ncolour: red\n")
    gated = bisected(loop, tmp_path)
    gated.must(125)
    assert "colour" in gated.stderr


def test_git_bisect_finds_the_commit_that_changes_the_numbers(loop: Path) -> None:
    for number in range(3):
        commit(loop, "notes", notes=str(number))
    culprit = edit(loop, "weight -= 0.1 *", "weight -= 0.2 *")
    for number in range(3, 6):
        commit(loop, "notes", notes=str(number))
    good = git(loop, "rev-list", "--max-parents=0", "HEAD")
    git(loop, "bisect", "start", "HEAD", good)
    judge = [*command("run", "."), "--against", good, "--bisect"]
    done = subprocess.run(
        ["git", "bisect", "run", *judge],
        cwd=loop,
        env=environment(PYTHONPATH=str(ROOT)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert f"{culprit} is the first bad commit" in done.stdout, done.stdout + done.stderr
