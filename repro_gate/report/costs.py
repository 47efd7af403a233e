"""What determinism costs and where a gate run's time went, in Phrases as in `wording`: the terminal
and the Markdown share them."""

from __future__ import annotations

import math

from repro_gate.compare.model import Cost
from repro_gate.report import numbers
from repro_gate.report.model import Report
from repro_gate.report.wording import Phrase


def cost(price: Cost | None) -> Phrase:
    """What the flags cost in time, with the interval, however wide that is. A negative cost is said
    as `faster`."""
    if price is None:
        return (("say", "not measured"),)
    word = "faster" if price.determinism_cost_pct < 0 else "slower"
    figure = (
        f"{numbers.percent(abs(price.determinism_cost_pct), signed=False)} {word} with the flags"
    )
    over = "" if price.max_percent is None else f"; {_budget(price, price.max_percent)}"
    return (("figure", figure), ("say", f", 95% interval {numbers.interval(price.ci95)}{over}"))


def _budget(price: Cost, budget: float) -> str:
    low, high = price.ci95
    limit = f"budget of {numbers.budget(budget)}"
    if low > budget:
        return f"over the {limit}"
    return (
        f"within the {limit}"
        if high <= budget
        else f"the {limit} lies in between, which fails nothing"
    )


def step_times(price: Cost) -> str:
    """The two step times behind the cost: of the fastest fortieth of each run."""
    flags, none = (
        numbers.milliseconds(price.deterministic_step_ms),
        numbers.milliseconds(price.default_step_ms),
    )
    return (
        f"{flags} a step against {none} where runs are fastest, "
        f"{numbers.count(price.timed_steps, 'step')} timed"
    )


def times_spent(report: Report) -> str:
    """Return where the wall time of a gate run went, in words; empty where nothing ran. `starts` is
    what comes before and between the steps of runs: the start of Python and torch, loading,
    evaluation."""
    steps, probe = (
        sum(getattr(run, name) for run in report.runs) for name in ("step_seconds", "probe_seconds")
    )
    runs = sum(run.seconds for run in report.runs)
    diagnosis = report.diagnosis.seconds if report.diagnosis is not None else 0.0
    parts = {
        "starts": runs - steps - probe,
        "steps": steps,
        "probe": probe,
        "diagnosis": diagnosis,
        "gate": report.seconds - runs - diagnosis,
    }
    if not report.runs or not math.isfinite(sum(parts.values())):
        return ""
    return ", ".join(
        f"{name} {numbers.duration(seconds)}" for name, seconds in parts.items() if seconds > 0
    )


def memory(price: Cost) -> str:
    """Peak memory with and without the flags; empty where it was not measured."""
    if price.deterministic_peak_bytes is None or price.default_peak_bytes is None:
        return ""
    bounds = (
        "" if price.memory_ci95 is None else f", 95% interval {numbers.interval(price.memory_ci95)}"
    )
    change = (
        ""
        if price.memory_cost_pct is None
        else f" ({numbers.percent(price.memory_cost_pct)}{bounds})"
    )
    return (
        f"peak memory {numbers.size(price.deterministic_peak_bytes)} against "
        f"{numbers.size(price.default_peak_bytes)}{change}"
    )
