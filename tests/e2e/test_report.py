"""What a person reads about real trainings: one that passes, one that diverges in a learning rate,
one that crashes. Each is gated once."""

from __future__ import annotations

import json

import pytest

from tests.e2e.test_gate import CLEAN, CLOCK, line_number
from tests.support.gates import Gated, gate, training, with_line

ALONE = CLEAN.replace("num_workers=2", "num_workers=0")
CRASH = with_line("if number == 1: raise RuntimeError('out of ' + 'luck ' * 30)")


@pytest.fixture(scope="module")
def passed(tmp_path_factory: pytest.TempPathFactory) -> Gated:
    """A clean training of ten steps, with the default runs, an artifact, and nothing declared."""
    folder = tmp_path_factory.mktemp("passed")
    spec = (
        "version: 1\ntrain: {run: python train.py, steps: 10, timeout: 2m}\ncapture: {artifacts: "
        "[out.pt]}\n"
    )
    source = ALONE.replace("for step,", "torch.save([model.state_dict()], 'out.pt')\nfor step,")
    return gate(training(folder / "code", source, spec), out=folder)


@pytest.fixture(scope="module")
def diverged(tmp_path_factory: pytest.TempPathFactory) -> Gated:
    """A training whose learning rate depends on the clock in its second step."""
    folder = tmp_path_factory.mktemp("diverged")
    rate = f"optimizer.param_groups[0]['lr'] = 1e-3 + (1e-9 * ({CLOCK}) if step == 1 else 0)"
    return gate(
        training(folder / "code", ALONE.replace("# here", rate)),
        "--sarif",
        str(folder / "report.sarif"),
        out=folder,
        XDG_CACHE_HOME=str(folder / "cache"),
    )


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Gated:
    """A training that raises in its second step."""
    folder = tmp_path_factory.mktemp("crashed")
    return gate(training(folder / "code", CRASH), out=folder)


def test_a_crash_is_told_by_its_exception_and_the_users_own_line(crashed: Gated) -> None:
    (reason,) = crashed.report["reasons"]
    line = line_number(CRASH, "luck")
    said = (
        "it exited with status 1, without the gate too: RuntimeError: out of "
        f"{'luck ' * 30}(train.py:{line})"
    )
    assert (
        crashed.exit_code == 3
        and reason["id"] == "run/crashed"
        and said in reason["message"].replace("  ", " ")
    )
    # not wrapped
    assert any(
        "RuntimeError: out of luck" in text and f"(train.py:{line})" in text
        for text in crashed.stdout.splitlines()
    )


def test_where_nothing_was_traced_no_check_is_listed_as_skipped(crashed: Gated) -> None:
    shown = [line.split() for line in crashed.stdout.splitlines()]
    assert not [words for words in shown if words[:1] == ["skip"] or words[1:2] == ["skip"]], (
        crashed.stdout
    )


@pytest.mark.slow
def test_what_was_never_declared_is_one_quiet_line_and_env_is_still_covered(passed: Gated) -> None:
    assert passed.exit_code == 0, passed.stdout + passed.stderr
    assert passed.stdout.count("not declared: image, lockfile") == 1
    assert {passed.check(name)["status"] for name in ("env/image-digest", "env/lockfile")} == {
        "skip"
    }
    assert any(
        item["category"] == "env" and item["status"] == "pass"
        for item in passed.report["checklist"]
    )


@pytest.mark.slow
def test_a_cost_has_further_pairs_and_its_interval_is_told_however_wide(passed: Gated) -> None:
    """Steps of a tiny model take a few hundred microseconds: ten of them mostly say nothing about a
    cost."""
    cost, runs = passed.report["cost"], [run["arm"] for run in passed.report["runs"]]
    low, high = cost["ci95"]
    assert low < cost["determinism_cost_pct"] < high and "with the flags, 95% interval" in " ".join(
        passed.stdout.split()
    )
    assert cost["pairs"] == runs.count("default") == runs.count("deterministic") <= 6
    assert cost["pairs"] > 2 or (high - low) / 2 <= max(3, abs(cost["determinism_cost_pct"]) / 4)


@pytest.mark.slow
def test_a_pass_says_what_was_compared(passed: Gated) -> None:
    (line,) = (line for line in passed.stdout.splitlines() if line.lstrip().startswith("compared"))
    for words in ("6 parameters", "6 gradients", "2 batches", "1 artifact,"):
        assert words in line, line
    assert "optimizer states" in line


@pytest.mark.slow
def test_a_learning_rate_that_differs_is_shown_with_both_values(diverged: Gated) -> None:
    first = diverged.first
    assert (first["step"], first["kind"], first["name"]) == (1, "optimizer", "param_groups.0.lr")
    a, b = first["values"]
    assert 1e-3 <= min(a, b) < max(a, b) < 2.1e-3
    assert any(f"float [], {a!r} against {b!r}" in line for line in diverged.stdout.splitlines()), (
        diverged.stdout
    )


@pytest.mark.slow
def test_the_map_and_the_growth_say_how_far_apart_over_all_steps(
    diverged: Gated, passed: Gated
) -> None:
    drawn, growth = (diverged.report["determinism"][name] for name in ("heat_map", "growth"))
    cells = {(row["kind"], row["module"]): row["cells"] for row in drawn["rows"]}
    steps = diverged.report["determinism"]["steps"]
    assert (
        cells["loss", ""][:3] == " .."
        and cells["parameter", "0"][:2] == ".."
        and {len(line) for line in cells.values()} == {1 + steps}
    )
    # every step was measured, in two more runs
    assert "?" not in cells["parameter", "0"] and "." not in cells["parameter", "0"][2:]
    assert [item["step"] for item in growth] == list(range(1, steps))
    assert all(item["weight_l2"] > 0 and item["max_ulp"] > 0 for item in growth)
    same = passed.report["determinism"]
    assert {cell for row in same["heat_map"]["rows"] for cell in row["cells"]} == {
        ".",
        " ",
    } and same["growth"] == []


@pytest.mark.slow
def test_what_is_wrong_is_written_as_sarif_and_an_estimate_is_said(
    diverged: Gated, tmp_path_factory: pytest.TempPathFactory
) -> None:
    (path,) = tmp_path_factory.getbasetemp().glob("diverged[0-9]*/report.sarif")
    run = json.loads(path.read_text())["runs"][0]
    assert run["results"][0]["ruleId"] == "determinism/diverged"
    assert run["tool"]["driver"]["informationUri"].startswith("https://")
    assert "for the other 2 runs" in diverged.stderr
