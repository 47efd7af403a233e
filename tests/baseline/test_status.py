"""Claims about what a gate run means beside the baseline."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path

import pytest

from repro_gate.baseline.config_hash import PLATFORM, InputValue
from repro_gate.baseline.file import dump_baseline, read_baseline
from repro_gate.baseline.model import (
    FILE_NAME,
    STATUSES,
    Baseline,
    BaselineFinding,
    RecordedResult,
)
from repro_gate.baseline.record import entry_of
from repro_gate.baseline.status import compare_entry, loss_gap
from repro_gate.commands import gate as command
from repro_gate.compare.model import TimedArm
from tests.support import reports
from tests.support.recorded import (
    CPU,
    GPU,
    NOW,
    OUTSIDE,
    RECIPE,
    baseline,
    config_hash_of,
    curve,
    digest,
    entry,
    outcome,
)

REFACTORED: Mapping[str, InputValue] = {**RECIPE, "code/train.py": "sha256:" + "9" * 64}
LONGER: Mapping[str, InputValue] = {**REFACTORED, "steps": 100}


def judged(
    recipe: Mapping[str, InputValue] = RECIPE,
    platform: Mapping[str, InputValue] = CPU,
    *outcomes: RecordedResult,
    outside: Mapping[str, str] = OUTSIDE,
    held: Baseline | None = None,
) -> BaselineFinding:
    before = baseline(entry()) if held is None else held
    found = compare_entry(before, entry(recipe, platform, *outcomes, outside=outside))
    assert found.status in STATUSES
    return found


SECOND = outcome(bits="second")
A_PT, OTHER_PT = outcome().artifacts, {"out/final.pt": digest("other")}
BITS = ("losses", "weights", "optimizer")
NAN, INF = float("nan"), float("inf")
ROWS: list[tuple[Mapping[str, InputValue], RecordedResult, str, list[str], list[str]]] = [
    (RECIPE, outcome(), "unchanged", [], []),
    # an artifact that only one side captured is no difference
    (RECIPE, outcome(artifacts={}), "unchanged", [], []),
    (RECIPE, outcome(artifacts={**A_PT, "more": digest()}), "unchanged", [], []),
    (RECIPE, outcome(loss_curve={}), "unchanged", [], []),  # the curve only says how far
    (REFACTORED, outcome(), "no-op", ["code/train.py"], []),
    (LONGER, outcome(steps=100), "changed", ["code/train.py", "steps"], ["steps"]),
    (LONGER, SECOND, "changed", ["code/train.py", "steps"], [*BITS, "artifact out/final.pt"]),
    (RECIPE, outcome(losses=digest("other")), "drift", [], ["losses"]),
    (RECIPE, outcome(weights=digest("other")), "drift", [], ["weights"]),
    (RECIPE, outcome(optimizer=digest("other")), "drift", [], ["optimizer"]),
    (RECIPE, outcome(optimizer=None), "drift", [], ["optimizer"]),
    (RECIPE, outcome(artifacts=OTHER_PT), "drift", [], ["artifact out/final.pt"]),
    ({**RECIPE, "seeds": [7]}, outcome(7), "changed", ["seeds"], ["seeds"]),
]


def test_inputs_and_bits_decide_the_status() -> None:
    for recipe, now, status, changed, unlike in ROWS:
        found = judged(recipe, CPU, now)
        assert (found.status, [*found.unlike], found.recorded) == (status, unlike, NOW)
        assert [(item.root, item.name) for item in found.changed_inputs] == [
            ("recipe", name) for name in changed
        ]
        assert all(name in found.message for name in (*changed, *unlike[:3]))
        assert bool(found.remedy) is (status != "unchanged") and (
            not found.remedy or "`repro-gate baseline`" in found.remedy
        )
    times: Mapping[TimedArm, tuple[float, ...]] = {"deterministic": (10.0, 10.1)}
    before = entry(RECIPE, CPU, step_times={**times, "default": (9.0, 9.1)})
    now = entry(REFACTORED, CPU, step_times={"deterministic": (12.0, 12.1)})
    (found,) = compare_entry(baseline(before), now).speed
    assert (found.arm, found.runs) == ("deterministic", 2)
    assert 15 < found.ci95[0] < found.slower_pct == pytest.approx(19.9, abs=0.1)
    assert found.slower_pct < found.ci95[1] < 25
    elsewhere = entry(REFACTORED, GPU, step_times=now.step_times)
    for recorded, given in ((entry(), now), (before, elsewhere)):
        assert compare_entry(baseline(recorded), given).speed == ()
    assert compare_entry(baseline(before), before).speed[0].slower_pct == 0


def test_gaps_of_losses_are_taken_at_common_steps_and_the_largest_is_said() -> None:
    found = judged(LONGER, CPU, SECOND)
    assert found.loss_gap == pytest.approx(0.125) and "losses up to 0.12 apart" in found.message
    for now in (outcome(bits="second", loss_curve={0: 1.0, 49: "nan"}), outcome(7)):
        assert judged(REFACTORED, CPU, now).loss_gap is None
    assert judged().loss_gap == 0.0
    for before, after, gap in (
        ([(0, 1.0), (5, 2.0)], [(0, 1.0), (5, 2.5), (9, 9.0)], 0.5),
        ([(0, NAN), (5, INF)], [(0, NAN), (5, INF)], 0.0),
        ([(0, INF)], [(0, 1.0)], INF),
        ([(0, NAN)], [(0, 1.0)], INF),
        ([(0, 1.0)], [(1, 1.0)], None),
    ):
        old, new = (outcome(loss_curve=curve(*losses)) for losses in (before, after))
        assert loss_gap([(old, new)]) == gap


def test_drift_names_what_changed_outside_the_inputs_and_every_seed_counts() -> None:
    assert "no recorded fact changed" in judged(RECIPE, CPU, SECOND).message
    outside = {"distribution/numpy": "2.2.0", "kernel": "Linux 6.8", "distribution/scipy": "1.14"}
    assert judged(RECIPE, CPU, SECOND, outside=outside).outside == (
        "distribution/numpy: 2.1.0 -> 2.2.0",
        "distribution/scipy: absent -> 1.14",
        "libc: glibc 2.39 -> absent",
    )
    assert judged(outside=outside).status == "unchanged"  # other facts with equal bits are no drift
    found = judged(RECIPE, CPU, SECOND, outside={}, held=baseline(entry(outside={})))
    assert (found.status, found.outside) == ("drift", ())
    held = baseline(entry(RECIPE, CPU, outcome(1), outcome(2)))
    assert judged(RECIPE, CPU, outcome(1), outcome(2), held=held).status == "unchanged"
    found = judged(RECIPE, CPU, outcome(1), outcome(2, "second"), held=held)
    assert (found.status, found.unlike[0]) == ("drift", "losses")
    found = judged(RECIPE, CPU, outcome(42), outcome(43))
    assert (found.status, found.unlike) == ("drift", ("seed 43",))
    found = judged({**RECIPE, "a\n" + "b" * 500: 1}, CPU)
    assert "\n" not in found.message and len(found.message) < 250


def test_an_unknown_platform_is_new_and_compared_with_the_nearest() -> None:
    found = judged(REFACTORED, GPU)
    assert (found.status, found.unknown_recipe) == ("new-platform", True)
    newer, far = {**CPU, "torch": "2.14.0"}, entry(RECIPE, {"torch": "1.0"}, outcome(bits="third"))
    held = baseline(entry(), far)
    same, other = judged(RECIPE, newer, held=held), judged(RECIPE, newer, SECOND, held=held)
    found = judged(REFACTORED, newer)
    assert same.status == other.status == found.status == "new-platform"
    for finding in (same, found):
        (move,) = finding.changed_inputs
        assert (move.root, move.name) == (PLATFORM, "torch")
        assert (move.before, move.after) == ("2.13.0", "2.14.0")
    assert (same.unlike, other.unlike[:2]) == ((), ("losses", "weights"))
    assert found.unknown_recipe and not same.unknown_recipe


def test_an_entry_has_its_results_by_seed_and_facts_of_its_own() -> None:
    outside = dict(OUTSIDE)
    results = [outcome(2), outcome(1)]
    new = entry_of(config_hash_of(), results, outside, NOW, "0.2.0", {})
    outside.clear()
    assert [result.seed for result in new.outcomes] == [1, 2] and new.outside == OUTSIDE


def test_recording_replaces_this_platform_and_keeps_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, other = tmp_path / FILE_NAME, entry(RECIPE, GPU)
    path.write_text(dump_baseline(baseline(entry(), other)))
    (tmp_path / "repro.yml").write_text("version: 1\ntrain: {run: python train.py}\n")
    new = entry(REFACTORED, CPU, outcome(1), outcome(2))
    monkeypatch.setattr(command, "gate", lambda *_: (reports.PASS, new))
    options = {"spec": tmp_path, "no_cache": True, "quiet": True, "verbose": False}
    assert command.baseline_command(Namespace(**options)) == 0
    held = read_baseline(path)
    assert held == baseline(new, other)
    assert judged(REFACTORED, CPU, outcome(1), outcome(2), held=held).status == "unchanged"
    # the other platform's entry is of an older recipe
    assert judged(REFACTORED, GPU, SECOND, held=held).status == "changed"
