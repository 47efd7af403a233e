"""Claims about `gate.effect`: what a run's metrics are, which seeds are run on which side, when they
are enough, and what a change beyond rounding is called by them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from repro_gate.baseline.model import SeedResult
from repro_gate.compare.artifacts import Artifact
from repro_gate.compare.change import Change
from repro_gate.gate.effect import Side, seed_result, seeds_of, with_effects
from repro_gate.runs.artifacts import Collected
from repro_gate.runs.launch import RunRequest, RunResult
from repro_gate.runs.progress import Watch
from repro_gate.runs.results import Results
from repro_gate.spec.model import EffectRule, RandomState
from tests.support.artifacts import read_files
from tests.support.built_traces import arm, results, run, spec, training, with_loss

BEYOND = Change(size="different", steps=4, detail="said before")
Printed = Callable[[int], str]  # by a run with this seed
NOISE = {42: 0.3, 43: -0.2, 44: 0.1, 45: -0.4, 46: 0.2, 47: 0.35, 48: -0.1}


@dataclass
class Runs:
    """Stands for the runs of both sides: what each prints, and what was asked for."""

    prints: dict[str, Printed]
    asked: list[str] = field(default_factory=list)
    ends: str = "finished"

    def __call__(self, _: object, __: object, request: RunRequest) -> RunResult:
        self.asked.append(request.name)
        assert (request.probe, request.counts, request.collect) == ({}, "never", True)
        side, seed = request.name.rsplit("-seed", 1)
        assert request.arm == arm(seed=int(seed))
        text = self.prints[side](int(seed))
        problem = "" if self.ends == "finished" else "it exited"
        done = run("x", training(4), outcome=self.ends, problem=problem, tail=text.split("\n"))
        return replace(done, request=request)


def series(rule: EffectRule | None, printed: Printed, **sections: Any) -> Results:
    """One side whose first two runs are done."""
    found = results(spec=spec(effect=rule, **sections))
    for number in (1, 2):
        seed = found.spec.seed
        done = run(f"deterministic-{number}", training(4), tail=printed(seed).split("\n"))
        found.add(replace(done, request=replace(done.request, arm=arm(seed=seed))))
    return found


def compared(
    monkeypatch: pytest.MonkeyPatch,
    rule: EffectRule,
    base: Printed,
    now: Printed,
    recorded: Mapping[int, SeedResult] | None = None,
    *,
    base_runs: bool = True,
    **sections: Any,
) -> tuple[Change, Runs]:
    """What is said of a change from one training to another, and the runs that it took."""
    runs = Runs({"main": base, "this change": now})
    monkeypatch.setattr("repro_gate.runs.series.run", runs)
    there = Side(
        "main", series(rule, base, **sections) if base_runs else None, dict(recorded or {})
    )
    here = Side("this change", series(rule, now, **sections))
    return with_effects(BEYOND, there, here, Watch()), runs


def noisy(shift: float = 0.0, name: str = "acc") -> Printed:
    return lambda seed: f"{name} {50 + shift + NOISE.get(seed, 0.0):.3f}"


def shifted(*shifts: float) -> Printed:
    """As `noisy`, but moved by so much with each seed."""
    return lambda seed: f"acc {50 + NOISE[seed] + shifts[seed - 42]:.3f}"


ACC = EffectRule(seeds=5, metrics=("acc",), higher_is_better=("acc",))
UP = shifted(3.0, 3.1, 2.9, 3.05, 2.95)
DOWN = shifted(-3.0, -3.1, -2.9, -3.05, -2.95)
LEVEL = shifted(0.2, -0.3, 0.1, -0.1, 0.05)


@pytest.mark.parametrize(
    ("now", "size", "result"),
    [
        (UP, "effect", "better"),
        (DOWN, "effect", "worse"),
        (LEVEL, "within-seed-noise", "none-shown"),
    ],
)
def test_both_sides_run_each_further_seed_once(
    now: Printed, size: str, result: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, runs = compared(monkeypatch, ACC, noisy(), now)
    assert (found.size, found.detail) == (size, "said before")
    (effect,) = found.effects
    assert (effect.metric, effect.seeds, effect.result) == ("acc", 5, result)
    seeds = range(43, 47)  # 42 was run already
    assert runs.asked == [
        f"{side}-seed{seed}" for seed in seeds for side in ("main", "this change")
    ]
    assert [seed for seed, _ in found.losses] == [42, *seeds]
    assert found.losses[0][1] == tuple((step, 1 / (step + 1), 1 / (step + 1)) for step in range(4))


@pytest.mark.parametrize("size", ["none", "rounding"])
def test_a_change_that_is_no_other_training_needs_no_seed(size: str) -> None:
    change = Change(size=size)
    sides = Side("main", series(ACC, noisy())), Side("this change", series(ACC, noisy()))
    assert with_effects(change, *sides, Watch()) is change


def test_without_metrics_the_size_stays_as_it_is() -> None:
    sides = Side("main", series(None, noisy())), Side("this change", series(None, noisy()))
    assert with_effects(BEYOND, *sides, Watch()) is BEYOND


def test_the_seeds_are_those_of_the_spec_and_those_that_follow_the_first() -> None:
    for own, most, seeds in (
        ((42,), 3, [42, 43, 44]),
        ((7, 9), 4, [7, 9, 8, 10]),
        ((1, 2, 3, 4), 3, [1, 2, 3]),
        ((5, 6), 3, [5, 6, 7]),
    ):
        assert seeds_of(spec(random_state=RandomState(seeds=own)), most) == seeds


def kept(values: Mapping[int, float], metric: str = "acc") -> dict[int, SeedResult]:
    """What a baseline has of these seeds."""
    return {
        seed: SeedResult(seed=seed, metrics={metric: value}, loss_curve={0: 1.0})
        for seed, value in values.items()
    }


def test_of_a_recorded_base_nothing_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = kept({seed: 50 + NOISE[seed] for seed in range(42, 47)})
    for base_runs in (False, True):
        found, runs = compared(monkeypatch, ACC, noisy(), UP, recorded, base_runs=base_runs)
        assert (found.size, found.effects[0].seeds) == ("effect", 5)
        assert runs.asked == [f"this change-seed{seed}" for seed in range(43, 47)]
        # the curves share a step
        assert found.losses[0][1] == ((0, 1.0, 1.0),)


def test_seeds_that_were_not_recorded_are_run_if_the_base_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recorded = kept({seed: 50 + NOISE[seed] for seed in range(42, 45)})
    found, runs = compared(monkeypatch, ACC, noisy(), UP, recorded)
    assert [name for name in runs.asked if "main" in name] == ["main-seed45", "main-seed46"]
    assert found.effects[0].seeds == 5
    found, runs = compared(monkeypatch, ACC, noisy(), UP, recorded, base_runs=False)
    assert found.detail == "said before; main has no result of seed 45"
    assert (found.size, found.effects[0].seeds) == ("effect", 3)
    # of the change none is run for nothing
    assert runs.asked == ["this change-seed43", "this change-seed44"]


def test_seeds_without_this_metric_are_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = kept(dict.fromkeys(range(42, 47), 1.0), "loss")
    found, runs = compared(monkeypatch, ACC, noisy(), UP, recorded)
    assert sum("main" in name for name in runs.asked) == 4 and found.effects[0].seeds == 5


def test_a_metric_that_a_baseline_lacks_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = kept({seed: 50 + NOISE[seed] for seed in range(42, 47)})
    rule = replace(ACC, metrics=("acc", "new"))
    found, _ = compared(monkeypatch, rule, noisy(), UP, recorded, base_runs=False)
    acc, new = found.effects
    assert (acc.result, acc.seeds) == ("better", 5)
    assert new.why == "no run of main has this number" and "seed 42" not in found.detail


@pytest.mark.parametrize("side", ["main", "this change"])
def test_a_metric_of_one_side_only_has_no_figure(
    side: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent: Printed = lambda _: "nothing is printed"  # noqa: E731
    sides = (silent, UP) if side == "main" else (noisy(), silent)
    found, runs = compared(monkeypatch, ACC, *sides)
    (effect,) = found.effects
    assert (effect.why, effect.result) == (f"no run of {side} has this number", "")
    assert found.size == "different" and len(runs.asked) == 8
    # another metric is measured all the same
    rule = replace(ACC, metrics=("acc", "loss"))
    found, _ = compared(monkeypatch, rule, *sides)
    assert [item.seeds for item in found.effects] == [0, 5]
    assert found.size == "different", "the other may be an effect"


def test_a_metric_that_some_runs_print_has_their_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    def sometimes(seed: int) -> str:
        return UP(seed) if seed in (42, 44, 46) else "no accuracy today"

    found, _ = compared(monkeypatch, ACC, noisy(), sometimes)
    assert (found.effects[0].seeds, found.effects[0].result) == (3, "better")
    found, _ = compared(monkeypatch, ACC, noisy(), lambda seed: UP(seed) if seed < 44 else "")
    assert "3 seeds of both sides are the fewest" in found.effects[0].why


def test_a_metric_that_is_no_number_has_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    found, _ = compared(
        monkeypatch, ACC, noisy(), lambda seed: "acc nan" if seed == 44 else UP(seed)
    )
    assert found.effects[0].why == "no figure: the change has nan with seed 44"
    assert found.size == "different"


def test_a_seed_that_the_training_ignores_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    found, _ = compared(monkeypatch, ACC, lambda _: "acc 50.0", lambda _: "acc 50.5")
    assert found.effects[0].why == "the seed does not move it, on either side"


@pytest.mark.parametrize(
    ("now", "at_most", "seeds"),
    [
        (UP, 7, 5),  # shown at the first look
        (lambda seed: f"acc {50.4 + 2 * NOISE[seed]:.3f}", 7, 7),
        (lambda seed: f"acc {50.4 + 2 * NOISE[seed]:.3f}", None, 5),
    ],
)
def test_seeds_are_added_until_it_is_clear(
    now: Printed, at_most: int | None, seeds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sharp = lambda seed: now(seed) if seed < 47 or now is not UP else "acc 53.2"  # noqa: E731
    # 99.99 % at a look before the last
    base, rule = noisy(), replace(ACC, at_most=at_most)
    found, runs = compared(monkeypatch, rule, base, sharp)
    assert found.effects[0].seeds == seeds
    assert len(runs.asked) == 2 * (seeds - 1)


def test_every_metric_has_to_be_clear_before_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    def both(acc: Printed) -> Printed:
        return lambda seed: (
            f"{acc(seed)}\nf1 {0.5 + NOISE[seed] * (2 if acc is not plain else 1):.3f}"
        )

    plain = noisy()
    rule = replace(ACC, metrics=("acc", "f1"), at_most=6)
    longer = lambda seed: UP(seed) if seed < 47 else "acc 53.3"  # noqa: E731
    found, _ = compared(monkeypatch, rule, both(plain), both(longer))
    assert [item.seeds for item in found.effects] == [6, 6]
    # and one without a figure waits for nothing
    rule = replace(ACC, metrics=("acc", "none"), at_most=6)
    found, _ = compared(monkeypatch, rule, plain, longer)
    assert found.effects[0].seeds == 5


def test_a_run_that_ends_badly_ends_it_and_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs({"main": noisy(), "this change": UP}, ends="crashed")
    monkeypatch.setattr("repro_gate.runs.series.run", runs)
    sides = Side("main", series(ACC, noisy())), Side("this change", series(ACC, UP))
    found = with_effects(BEYOND, *sides, Watch())
    assert runs.asked == ["main-seed43"]
    assert found.detail == "said before; main-seed43 it exited"
    assert (found.size, found.effects[0].result) == ("different", "")
    assert [seed for seed, _ in found.losses] == [42]


def test_a_ref_s_name_makes_no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs({"origin-main": noisy()})
    monkeypatch.setattr("repro_gate.runs.series.run", runs)
    assert Side("origin/main", series(ACC, noisy())).has(43, ACC, Watch())
    assert runs.asked == ["origin-main-seed43"]


def metrics(done: RunResult, *names: str, files: Mapping[str, Artifact] | None = None) -> Any:
    """The metrics of a run whose artifacts hold this."""
    found = results(done)
    artifacts = {name: Collected(name=name, path=Path(name)) for name in files or {}}

    class Reader:
        def contents(self, items: Sequence[Collected]) -> list[Artifact]:
            return [(files or {})[item.name] for item in items]

    found.reader = Reader()  # type: ignore[assignment]
    done = replace(done, artifacts=artifacts)
    return seed_result(found, done, EffectRule(metrics=names)).metrics


def test_the_last_number_that_is_printed_counts() -> None:
    log = ("step 1 acc 1.5", "acc: 2.5", "best_acc 9.5", "acc 3.5 s", "acc=4.25, acc 5.25", "done")
    assert metrics(run("x-1", tail=log), "acc", "best_acc", "lr") == {"acc": 5.25, "best_acc": 9.5}
    assert metrics(run("x-1", tail=["acc -inf"]), "acc") == {"acc": "-inf"}
    assert metrics(run("x-1", tail=["acc NaN"]), "acc") == {"acc": "nan"}


def test_the_loss_is_the_mean_of_the_last_tenth() -> None:
    for steps, expected in ((30, (1 / 28 + 1 / 29 + 1 / 30) / 3), (19, 1 / 19), (1, 1.0)):
        found = seed_result(results(), run("x-1", training(steps)), EffectRule())
        assert found.metrics == {"loss": pytest.approx(expected)}
        assert (found.seed, len(found.loss_curve)) == (42, steps)
    assert seed_result(results(), run("x-1"), EffectRule()).metrics == {}


def test_a_loss_that_is_no_number_is_told_as_text() -> None:
    trace = with_loss(training(4), 3, math.nan)
    found = seed_result(results(), run("x-1", trace), EffectRule())
    assert found.metrics == {"loss": "nan"} and found.loss_curve[3] == "nan"


@pytest.mark.parametrize("last", [(1.7e308, 1.7e308), (math.inf, -math.inf)])
def test_losses_without_a_mean_are_no_error(last: tuple[float, float]) -> None:
    trace = training(20)
    for step, loss in zip((18, 19), last, strict=True):
        trace = with_loss(trace, step, loss)
    found = seed_result(results(), run("x-1", trace), EffectRule())
    assert found.metrics["loss"] in ("nan", "inf")


def test_a_number_of_a_json_artifact_may_be_text(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    values = {"val": {"acc": "83.25", "f1": 0.5}, "n": 7, "no": "best", "yes": True, "x": None}
    path.write_text(json.dumps({**values, "list": [1.5, "2.5"]}))
    (content,) = read_files(path)
    leaves = {name: leaf.value for name, leaf in content.leaves.items()}
    wanted = {"val.acc": 83.25, "val.f1": 0.5, "n": 7.0}
    assert wanted.keys() <= leaves.keys(), leaves
    names = [f"out/m.json:{name}" for name in leaves]
    found = metrics(run("x-1"), *names, files={"out/m.json": content})
    assert {f"out/m.json:{name}": value for name, value in wanted.items()}.items() <= found.items()
    numbers = {name: value for name, value in found.items() if "list" in name}
    assert sorted(numbers.values()) == [1.5, 2.5]
    others = {name.partition(":")[2] for name in found} - wanted.keys() - {"list.0", "list.1"}
    assert others == {"yes"}, "what reads as no number is none"


def test_an_artifact_that_is_not_there_has_no_number() -> None:
    files = {"a.json": Artifact(format="json")}
    assert metrics(run("x-1"), "b.json:acc", files=files) == {}


def test_a_path_that_is_not_in_an_artifact_has_no_number() -> None:
    assert metrics(run("x-1"), "a.json:acc", files={"a.json": Artifact(format="json")}) == {}
