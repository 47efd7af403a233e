"""Claims about what a gate run means beside the baseline: five answers, each where it is due and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from repro_gate.baseline.config_hash import PLATFORM, RECIPE, InputValue
from repro_gate.baseline.model import STATUSES, Baseline, BaselineFinding, RecordedResult
from repro_gate.baseline.record import entry_of, merge
from repro_gate.baseline.status import compare_entry, loss_gap, unlike
from tests.support.recorded import CPU, GPU, NOW, OUTSIDE, baseline, config_hash_of, curve, digest, entry, outcome

RECIPE_INPUTS: Mapping[str, InputValue] = entry().recipe_inputs
REFACTORED: Mapping[str, InputValue] = {**RECIPE_INPUTS, "code/train.py": "sha256:" + "9" * 64}
LONGER: Mapping[str, InputValue] = {**REFACTORED, "steps": 100}


def judged(
    recipe: Mapping[str, InputValue] = RECIPE_INPUTS,
    platform: Mapping[str, InputValue] = CPU,
    *outcomes: RecordedResult,
    outside: Mapping[str, str] = OUTSIDE,
    held: Baseline | None = None,
) -> BaselineFinding:
    found = compare_entry(baseline(entry()) if held is None else held, entry(recipe, platform, *outcomes, outside=outside))
    assert found.status in STATUSES
    return found


def test_same_config_hash_and_same_bits_are_unchanged() -> None:
    found = judged()
    assert (found.status, found.changed_inputs, found.unlike, found.outside, found.loss_gap) == ("unchanged", (), (), (), 0.0)
    assert found.message == "same inputs, bitwise identical results: final losses, weights, optimizer state, 1 artifact"
    assert (found.recorded, found.remedy) == (NOW, "")


def test_same_bits_of_another_recipe_are_a_no_op() -> None:
    found = judged(REFACTORED)
    assert found.status == "no-op" and found.unlike == ()
    assert [(item.root, item.name) for item in found.changed_inputs] == [(RECIPE, "code/train.py")]
    assert "inputs changed (code/train.py), results are bitwise identical to the baseline" in found.message


def test_other_bits_of_another_recipe_are_a_change() -> None:
    found = judged(LONGER, CPU, outcome(bits="second", steps=100))
    assert found.status == "changed" and found.unlike == ("steps", "losses", "weights", "optimizer", "artifact out/final.pt")
    assert [item.name for item in found.changed_inputs] == ["code/train.py", "steps"]
    assert found.loss_gap == pytest.approx(0.125)
    assert found.message == (
        "inputs changed (code/train.py, steps), results differ: steps, losses, weights and 2 more, losses up to 0.12 apart"
    )
    assert "`repro-gate baseline`" in found.remedy


@pytest.mark.parametrize("part", ["losses", "weights", "optimizer"])
def test_other_bits_at_the_same_config_hash_are_drift(part: str) -> None:
    found = judged(RECIPE_INPUTS, CPU, outcome(**{part: digest("other")}))
    assert (found.status, found.unlike, found.changed_inputs) == ("drift", (part,), ())
    assert found.message.startswith(f"same inputs, different results: {part}")
    assert "none of the 3 recorded facts outside the hashed inputs changed" in found.message
    assert "an undeclared data file" in found.remedy and "`repro-gate baseline`" in found.remedy


def test_drift_of_an_artifact_alone_names_it() -> None:
    found = judged(RECIPE_INPUTS, CPU, outcome(artifacts={"out/final.pt": digest("other")}))
    assert (found.status, found.unlike) == ("drift", ("artifact out/final.pt",))


def test_drift_names_what_changed_outside_the_inputs() -> None:
    outside = {"distribution/numpy": "2.2.0", "kernel": "Linux 6.8", "distribution/scipy": "1.14"}
    found = judged(RECIPE_INPUTS, CPU, outcome(bits="second"), outside=outside)
    assert found.status == "drift"
    assert found.outside == ("distribution/numpy: 2.1.0 -> 2.2.0", "distribution/scipy: absent -> 1.14", "libc: glibc 2.39 -> absent")
    assert "; changed outside the hashed inputs: distribution/numpy, distribution/scipy, libc" in found.message
    assert "undo that change" in found.remedy


def test_what_moves_outside_the_inputs_with_equal_bits_is_no_drift() -> None:
    assert judged(outside={"distribution/numpy": "9"}).status == "unchanged"


def test_drift_of_which_nothing_outside_is_known_says_so() -> None:
    found = compare_entry(baseline(entry(outside={})), entry(RECIPE_INPUTS, CPU, outcome(bits="second"), outside={}))
    assert "nothing outside the hashed inputs was recorded" in found.message


def test_an_artifact_that_only_one_side_captured_is_no_difference() -> None:
    assert judged(RECIPE_INPUTS, CPU, outcome(artifacts={})).status == "unchanged"
    assert judged(RECIPE_INPUTS, CPU, outcome(artifacts={**outcome().artifacts, "more": digest()})).status == "unchanged"


def test_a_kind_of_bits_that_is_not_recorded_any_more_is_a_difference() -> None:
    assert judged(RECIPE_INPUTS, CPU, outcome(optimizer=None)).unlike == ("optimizer",)


def test_a_platform_that_is_not_recorded_is_new() -> None:
    found = judged({**REFACTORED}, GPU)
    assert (found.status, found.unknown_recipe) == ("new-platform", True)
    assert found.message.startswith(
        "repro.baseline.yml holds nothing for this platform, and these inputs for no other platform; the nearest one differs in "
    )
    assert judged(held=Baseline({})).message == "repro.baseline.yml holds nothing for this platform"
    assert "records its result beside the others" in found.remedy


def test_a_new_platform_is_compared_with_the_nearest_one_with_the_same_recipe() -> None:
    far: Mapping[str, InputValue] = {"torch": "1.0"}
    held = baseline(entry(), entry(RECIPE_INPUTS, far, outcome(bits="third")))
    newer = {**CPU, "torch": "2.14.0"}
    same, other = judged(RECIPE_INPUTS, newer, held=held), judged(RECIPE_INPUTS, newer, outcome(bits="second"), held=held)
    assert same.status == other.status == "new-platform"
    assert [(item.root, item.name, item.before, item.after) for item in same.changed_inputs] == [(PLATFORM, "torch", "2.13.0", "2.14.0")]
    assert (
        "the nearest platform has the same recipe (code, data, seed, flags) and the same results, and differs in torch 2.13.0 -> 2.14.0"
        in same.message
        and not same.unlike
    )
    assert (
        "has the same recipe (code, data, seed, flags) and other results (losses, weights, optimizer and 1 more)" in other.message
        and other.unlike
    )


def test_a_new_platform_names_the_version_that_changed_where_the_recipe_is_another_one_too() -> None:
    found = judged(REFACTORED, {**CPU, "torch": "2.14.0"})
    assert "the nearest one differs in torch 2.13.0 -> 2.14.0" in found.message and found.unknown_recipe
    assert [(item.root, item.name) for item in found.changed_inputs] == [(PLATFORM, "torch")]


def test_every_seed_that_both_have_counts() -> None:
    held = baseline(entry(RECIPE_INPUTS, CPU, outcome(1), outcome(2)))
    assert judged(RECIPE_INPUTS, CPU, outcome(1), outcome(2), held=held).status == "unchanged"
    found = judged(RECIPE_INPUTS, CPU, outcome(1), outcome(2, "second"), held=held)
    assert (found.status, found.unlike[0]) == ("drift", "losses")


def test_a_seed_that_only_one_side_has_is_not_unchanged() -> None:
    found = judged(RECIPE_INPUTS, CPU, outcome(42), outcome(43))
    assert (found.status, found.unlike) == ("drift", ("seed 43",))


def test_a_change_of_all_seeds_cannot_be_called_a_no_op() -> None:
    found = judged({**RECIPE_INPUTS, "seeds": [7]}, CPU, outcome(7))
    assert (found.status, found.unlike, found.loss_gap) == ("changed", ("seeds",), None)
    assert found.message == "inputs changed (seeds), no seed is in both, so results cannot be compared"


def test_a_loss_that_became_no_number_has_no_gap_and_is_said() -> None:
    curve = "0 1.0\n49 nan"
    found = judged(REFACTORED, CPU, outcome(bits="second", loss_curve=curve))
    assert found.loss_gap is None and "a loss is finite on one side only" in found.message


def test_loss_gaps_are_taken_at_common_steps() -> None:
    def of(*losses: tuple[int, float]) -> list[RecordedResult]:
        return [outcome(loss_curve=curve(*losses))]

    nan, inf = float("nan"), float("inf")
    assert loss_gap(of((0, 1.0), (5, 2.0)), of((0, 1.0), (5, 2.5), (9, 9.0))) == 0.5
    assert loss_gap(of((0, nan), (5, inf)), of((0, nan), (5, inf))) == 0.0
    assert loss_gap(of((0, inf)), of((0, 1.0))) == inf
    assert loss_gap(of((0, 1.0)), of((1, 1.0))) is None
    assert loss_gap(of((0, 1.0)), []) is None


def test_names_from_outside_are_cut_short_and_made_printable() -> None:
    found = judged({**RECIPE_INPUTS, "a\n" + "b" * 500: 1}, CPU)
    assert "\n" not in found.message and len(found.message) < 250


def test_unlike_is_empty_only_for_the_same_bits() -> None:
    assert unlike([outcome()], [outcome()]) == ()
    assert unlike([outcome()], [outcome(loss_curve="")]) == ()  # the curve only says how far
    assert unlike([outcome(1)], [outcome(2)]) == ("seeds",)


# Step times


def test_the_time_of_a_step_is_compared_where_both_sides_have_it() -> None:
    before = entry(RECIPE_INPUTS, CPU, step_times={"deterministic": (10.0, 10.1), "default": (9.0, 9.1)})
    now = entry(REFACTORED, CPU, step_times={"deterministic": (12.0, 12.1)})
    (found,) = compare_entry(baseline(before), now).speed
    assert (found.arm, found.runs) == ("deterministic", 2) and found.slower_pct == pytest.approx(19.9, abs=0.1)
    assert 15 < found.ci95[0] < found.slower_pct < found.ci95[1] < 25
    assert compare_entry(baseline(entry(RECIPE_INPUTS, CPU)), now).speed == ()
    assert compare_entry(baseline(before), entry(REFACTORED, GPU, step_times=now.step_times)).speed == ()  # another platform
    assert compare_entry(baseline(before), before).speed[0].slower_pct == 0


# Entries


def test_recording_replaces_this_platform_and_keeps_the_others() -> None:
    held = baseline(entry(), entry(RECIPE_INPUTS, GPU))
    new = entry(REFACTORED, CPU, outcome(bits="second"))
    assert merge(held, new) == baseline(new, entry(RECIPE_INPUTS, GPU))
    assert merge(None, new) == baseline(new)
    assert merge(merge(held, new), new) == merge(held, new)


def test_what_was_recorded_is_unchanged_when_gated_again() -> None:
    item = entry_of(config_hash_of(RECIPE_INPUTS, CPU), [outcome(2), outcome(1)], OUTSIDE, NOW, "0.2.0")
    assert [outcome.seed for outcome in item.outcomes] == [1, 2]
    found = compare_entry(merge(None, item), entry(RECIPE_INPUTS, CPU, outcome(1), outcome(2)))
    assert found.status == "unchanged"


def test_another_platforms_entry_of_an_older_recipe_is_called_changed_there() -> None:
    held = merge(baseline(entry(RECIPE_INPUTS, GPU)), entry(REFACTORED, CPU))
    assert judged(REFACTORED, GPU, outcome(bits="second"), held=held).status == "changed"
    assert judged(REFACTORED, CPU, held=held).status == "unchanged"


def test_an_entry_does_not_hold_on_to_its_arguments() -> None:
    outside = dict(OUTSIDE)
    item = entry_of(config_hash_of(RECIPE_INPUTS, CPU), [outcome()], outside, NOW, "0.2.0")
    outside.clear()
    assert item.outside == OUTSIDE
