"""Runs both sides of a change with several seeds, and measures what it does to the metrics."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace

from repro_gate.baseline.model import SeedResult
from repro_gate.baseline.record import first_losses, loss_curve, plain
from repro_gate.compare.change import Change, mean
from repro_gate.compare.effect import Effect, effect_of, is_settled
from repro_gate.compare.unrecorded import named_numbers
from repro_gate.gate.measuring import explained
from repro_gate.runs import arms
from repro_gate.runs.launch import RunResult
from repro_gate.runs.progress import Watch
from repro_gate.runs.results import Results
from repro_gate.spec.model import EffectRule, Spec

LOSS = "loss"  # the metric that every training has


@dataclass
class Side:
    """One side of a change: its runs, and what a baseline has of other seeds."""

    name: str
    results: Results | None  # None: it can only be looked up
    found: dict[int, SeedResult] = field(default_factory=dict)
    problem: str = ""  # why a run of it has no result

    def has(self, seed: int, rule: EffectRule, watch: Watch) -> bool:
        """Return whether the side has a result of this seed, after a run if need be."""
        known = self.found.get(seed)
        results = self.results
        if known and (results is None or known.metrics.keys() >= {*rule.metrics}):
            return True
        if results is None:
            self.problem = f"{self.name} has no result of seed {seed}"
            return False
        result = _run_of(results, seed, watch, self.name)
        if not result.good:
            self.problem = f"{result.name} {result.problem}"
            return False
        self.found[seed] = seed_result(results, result, rule)
        return True

    def values(self, metric: str) -> dict[int, float]:
        """Return the values of a metric by seed, without the seeds that lack it."""
        return {
            seed: float(result.metrics[metric])
            for seed, result in self.found.items()
            if metric in result.metrics
        }


def _run_of(results: Results, seed: int, watch: Watch, side: str) -> RunResult:
    """Return a deterministic run of a seed: one that was done, or a new one."""
    for done in results.of_seed(seed):
        if done.good:
            return done
    spec = results.spec
    arm = arms.deterministic(seed, arms.allowed(spec), spec.train.steps)
    name = f"{side}-seed{seed}".replace("/", "-")
    watch.said(f"effect: {side}, seed {seed}")
    first = results.pair()[0]
    return explained(results, first, name=name, arm=arm, probe={}, collect=True)


def seed_result(results: Results, done: RunResult, rule: EffectRule) -> SeedResult:
    """Return the metrics of a run, without those that it does not have, and its losses."""
    losses = first_losses(done)
    last = [losses[step] for step in sorted(losses)][-max(len(losses) // 10, 1) :]
    metrics = {}
    for metric in rule.metrics:
        value = None
        if metric == LOSS:
            value = mean(last) if last else None
        elif ":" in metric:
            value = _in_artifact(results, done, *metric.rsplit(":", 1))
        else:
            value = _printed(done, metric)
        if value is not None:
            metrics[metric] = plain(value)
    return SeedResult(
        seed=done.arm.seed, metrics=metrics, loss_curve=loss_curve(losses)
    )


def _printed(done: RunResult, metric: str) -> float | None:
    """Return the last number that was printed under this name."""
    for line in reversed(done.ended.tail):
        for name, number in reversed(named_numbers(line)):
            if name == metric:
                return float(number)
    return None


def _in_artifact(
    results: Results, done: RunResult, name: str, path: str
) -> float | None:
    """Return the number at a path in an artifact, if it is one; text that reads as a number is
    one."""
    artifact = done.artifacts.get(name)
    if artifact is not None and artifact.readable:
        (content,) = results.reader.contents([artifact])
        with suppress(KeyError, TypeError, ValueError):
            return float(content.leaves[path].value or "")
    return None


def seeds_of(spec: Spec, most: int) -> list[int]:
    """Return the seeds to run: those of the spec, and those that follow the first."""
    following = range(spec.seed, spec.seed + most)
    return [*dict.fromkeys([*spec.random_state.seeds, *following])][:most]


def with_effects(change: Change, base: Side, now: Side, watch: Watch) -> Change:
    """Return a change beyond rounding with what it does to the metrics that its spec names, and
    the size by that. The change itself is as it was if the spec names none."""
    results = now.results
    rule = results.spec.effect if results else None
    if results is None or rule is None or change.size != "different":
        return change
    most = max(rule.at_most or 0, rule.seeds)
    done = []
    effects: tuple[Effect, ...] = ()
    for seed in seeds_of(results.spec, most):
        if not (base.has(seed, rule, watch) and now.has(seed, rule, watch)):
            break
        done.append(seed)
        if len(done) >= rule.seeds:
            effects = _effects(rule, base, now, last=len(done) == most)
            if all(map(is_settled, effects)):
                break
    effects = effects or _effects(rule, base, now, last=True)
    shown = any(item.result in ("better", "worse") for item in effects)
    size = "effect" if shown else "within-seed-noise"
    if not shown and any(not item.result for item in effects):
        size = change.size  # what has no figure may be an effect
    return replace(
        change,
        size=size,
        effects=effects,
        losses=tuple((seed, _both(base.found[seed], now.found[seed])) for seed in done),
        detail="; ".join(filter(None, (change.detail, base.problem, now.problem))),
    )


def _effects(
    rule: EffectRule, base: Side, now: Side, *, last: bool
) -> tuple[Effect, ...]:
    found = []
    for metric in rule.metrics:
        sides = base.values(metric), now.values(metric)
        effect = effect_of(
            metric,
            *sides,
            higher_is_better=metric in rule.higher_is_better,
            smallest=rule.smallest.get(metric, 0.0),
            last=last,
        )
        for side, values in zip((now, base), sides[::-1], strict=True):
            if side.found and not values:
                effect = replace(effect, why=f"no run of {side.name} has this number")
        found.append(effect)
    return tuple(found)


def _both(base: SeedResult, now: SeedResult) -> tuple[tuple[int, float, float], ...]:
    """Return step, loss of the base and loss of the change, of the steps that both curves have."""
    ours = base.loss_curve
    return tuple(
        (step, float(ours[step]), float(loss))
        for step, loss in sorted(now.loss_curve.items())
        if step in ours
    )
