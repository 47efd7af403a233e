"""Phrases on comparisons (the config hash, the baseline, another ref, weakened checks) and on costs
(of determinism, and of a gate run's time). As in `wording`, the terminal and the Markdown share
them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

from repro_gate.baseline.config_hash import ChangedInput, ConfigHash, input_text
from repro_gate.baseline.model import AgainstFinding, BaselineFinding, Compared
from repro_gate.compare.change import Equivalence
from repro_gate.compare.cost import DIGESTING, gpu_differences
from repro_gate.compare.model import Cost, Estimate, Leg, SpeedChange
from repro_gate.escape import and_more, counted
from repro_gate.report import numbers, wording
from repro_gate.report.model import BaseFinding, Report, WeakenedCheck
from repro_gate.report.wording import Phrase, phrase, say
from repro_gate.runs.flags import SWITCHED

# the title of their list, the same for the terminal and the comment
WEAKENED_TITLE = "Weakened checks"
_SHORT = 12  # hex digits of a hash that a person sees, as git shows them
# before a flag's short name
_FLAG = re.compile(r"torch\.(?:backends|utils\.deterministic)\.")
_percent = partial(numbers.percent, signed=False)
_DIGEST = re.compile(r"(sha256:)?[0-9a-f]{40,64}")


def short(text: str) -> str:
    """Return the beginning of a hash or a commit; any other text unchanged."""
    return text[: text.find(":") + 1 + _SHORT] if _DIGEST.fullmatch(text) else text


def config_hash(hashed: ConfigHash) -> Phrase:
    """Return the config hash and its two halves, shortened, with what each covers."""
    recipe, platform = (
        short(root).removeprefix("sha256:") for root in (hashed.recipe, hashed.platform)
    )
    halves = phrase(
        "recipe (code, data, seed, flags) {name} + platform {name2}",
        name=recipe,
        name2=platform,
    )
    return phrase("{name} = {}", halves, name=short(hashed.config_hash))


def inputs(hashed: ConfigHash) -> Iterator[tuple[str, str, str]]:
    """Yield root, name and value of each input."""
    for root, _, values in hashed.roots():
        for name, value in sorted(values.items()):
            yield root, name, input_text(value)


def move(item: ChangedInput) -> Phrase:
    """Return one input that changed, with its value before and after."""
    start = phrase("{message} {name}", message=item.root, name=item.name)
    before, after = (text and short(text) for text in (item.before, item.after))
    if before is None:
        return phrase("{}: new, {name}", start, name=after or "")
    if after is None:
        return phrase("{}: removed, was {name}", start, name=before)
    return phrase("{}: {name} -> {name2}", start, name=before, name2=after)


def baseline_lines(baseline: BaselineFinding, most: int) -> list[Phrase]:
    """Return a baseline's status with its message, then at most `most` facts that differ outside
    the inputs, then what the message shortens."""
    words = "{status}: {message}"
    line = phrase(words, status=baseline.status, message=baseline.message)
    if baseline.recorded:
        line = phrase("{} (recorded {message})", line, message=baseline.recorded)
    facts = [
        phrase("outside the inputs: {name}", name=fact)
        for fact in baseline.outside[:most]
    ]
    more = say(and_more(len(baseline.outside) - most, "fact"))
    names = wording.joined([say(part, "name") for part in baseline.unlike[:most]])
    left = say(and_more(len(baseline.unlike) - most))
    unlike = phrase("differs in {}", wording.joined([names, left], " "))
    load = "the machine's load may have been different when that was recorded"
    speeds = [phrase(f"{{}}; {load}", speed(item)) for item in baseline.speed]
    details = [unlike] if names else []
    return [line, *facts, more, *details, *speeds, *_moved(baseline, most)]


def against_lines(against: AgainstFinding, most: int) -> list[Phrase]:
    """Return the comparison with another ref: the status with its message, how far apart the first
    tensor is that differs, and what the message shortens."""
    ref = at(against.ref, against.commit)
    words = "{}, {status}: {message}"
    line = phrase(words, ref, status=against.status, message=against.message)
    gap = numbers.small(against.loss_gap) if against.loss_gap else ""
    losses = say(gap and f"losses up to {gap} apart")
    far = wording.where_and_how_far(against.first_divergence)
    speeds = map(speed, against.speed)
    return [line, far, losses, *speeds, *_moved(against, most)]


def _moved(found: Compared, most: int) -> list[Phrase]:
    changed = found.changed_inputs
    more = say(and_more(len(changed) - most, "input"))
    return [*map(move, changed[:most]), more]


def speed(item: SpeedChange) -> Phrase:
    """Return how a change affects the time of a step of one arm."""
    flags = "with" if item.arm == "deterministic" else "without"
    interval = numbers.interval(item.ci95)
    words = f"a step {flags} the flags: {{figure}}, 95% interval {interval}"
    return phrase(words, figure=slower(item.slower_pct))


def leg(item: Leg) -> Phrase:
    """Return whether one leg of a resumed training is the same training."""
    words = "bitwise identical" if item.identical else "different"
    steps = f"{item.begins} to {item.ends - 1}"
    return say(f"leg {item.number}, steps {steps}: {words}")


def way(item: Equivalence) -> Phrase:
    """Return whether another way is the same training, over how many steps, and how far apart it
    is."""
    words = "the same training" if item.equivalent else "not the same training"
    steps = counted(item.steps, "step")
    count = item.worst.roundings if item.worst else None
    far = "compared bitwise"
    if count is not None:
        far = f"at most {wording.roundings(count)} apart"
    return phrase(f"{{name}}: {words}, {far}, in {steps}", name=item.name)


def at(ref: str, commit: str) -> Phrase:
    """Return a ref and its commit."""
    return phrase("{name} at {name2}", name=ref, name2=short(commit))


def base_policy(base: BaseFinding) -> Phrase:
    """Return the base, whether nothing of it is weakened, and whose spec judged."""
    judge = "the base" if base.policy == "base" else "this change itself"
    words = "The base is {}" if base.weakened else "{}: no weakened checks"
    line = f"{words}; the spec of {judge} decides the verdict"
    return phrase(line, at(base.ref, base.commit))


def weakening(item: WeakenedCheck) -> Phrase:
    """Return the key, what is weaker, and the location."""
    line = phrase("{name}: {message}", name=item.key, message=item.message)
    return phrase("{name} {}", line, name=str(item.location)) if item.location else line


def cost(price: Cost | None) -> Phrase:
    """Return the cost of the flags in time, with its interval and what single flags take of it. A
    negative cost is shown as `faster`. Of a cost that could not be measured, return how much runs
    scatter; empty if nobody tried."""
    if price is None:
        return ()
    if price.determinism_cost_pct is None:
        on, off = price.deterministic_scatter_pct, price.default_scatter_pct
        which = "with" if on > off else "without"
        scatter = f"the runs {which} flags alone scatter by {max(on, off):.0f} %"
        line = f"not measurable here: {scatter}"
        figure = ""
    else:
        figure = f"{slower(price.determinism_cost_pct)} with the flags"
        line = f"{{figure}}, 95% interval {numbers.interval(price.ci95)}"
    shares = [
        phrase(f"{{name}} {_percent(item.cost_pct)}", name=_FLAG.sub("", item.flag))
        for item in price.flags
    ]
    line += ", of which {}" if shares else ""
    if price.max_percent is not None:
        line += f"; {_budget(price, price.max_percent)}"
    return phrase(line, wording.joined(shares), figure=figure)


def doubts(price: Cost | None) -> Iterator[Phrase]:
    """Yield why a cost is suspicious, why whole runs decide although alternating steps may have a
    figure too, and how the GPUs differed between the arms."""
    if price is None:
        return
    if price.suspicious is not None:
        yield phrase("suspicious: {message}", message=price.suspicious)
    if price.why:
        steps = f"; alternating steps: {estimate(price.other)}" if price.other else ""
        without = " without digests" * price.undigested
        if price.probe_pct > DIGESTING:
            share = numbers.percent(price.probe_pct, signed=False)
            steps += f"; with digests the probe takes {share} of a step"
        yield phrase(f"from whole runs{without}: {{message}}{steps}", message=price.why)
    for difference in gpu_differences(price.gpus):
        yield phrase("{message}", message=difference)


def estimate(item: Estimate) -> str:
    """Return a cost with its interval."""
    return f"{numbers.percent(item.cost_pct)} ({numbers.interval(item.ci95)})"


def saving(item: Estimate) -> Phrase:
    """Return what leaving a flag off saves, and what it gives up."""
    words = (
        "leaving {name} off (`determinism.allow`) saves {figure} and gives up {message}"
    )
    figure = _percent(item.cost_pct)
    given_up = SWITCHED.get(item.flag, "what it does")
    return phrase(words, name=item.flag, figure=figure, message=given_up)


def slower(percent: float) -> str:
    """Return `12.4% slower`; below zero `3.1% faster`."""
    words = "faster" if round(percent, 1) < 0 else "slower"
    return f"{_percent(abs(percent))} {words}"


def _budget(price: Cost, budget: float) -> str:
    low, high = price.ci95
    limit = f"the budget of {budget:g}%"
    if low <= budget < high:
        return f"the interval contains {limit}, so this does not fail"
    return f"{'over' if low > budget else 'within'} {limit}"


def times_spent(report: Report) -> str:
    """Return how the wall time of a gate run was spent; empty if nothing ran. `starts` is the time
    of runs outside their steps: starting Python and torch, loading, evaluation."""
    steps = sum(run.step_seconds for run in report.runs)
    probe = sum(run.probe_seconds for run in report.runs)
    runs = sum(run.seconds for run in report.runs)
    diagnosis = report.diagnosis.seconds if report.diagnosis is not None else 0.0
    parts = {
        "starts": runs - steps - probe,
        "steps": steps,
        "probe": probe,
        "diagnosis": diagnosis,
        "gate": report.seconds - runs - diagnosis,
    }
    return ", ".join(
        f"{name} {numbers.duration(seconds)}"
        for name, seconds in parts.items()
        if seconds > 0 and report.runs
    )


def memory(price: Cost) -> str:
    """Return peak memory with and without the flags; empty if it was not measured."""
    if (
        price.deterministic_peak_bytes is None
        or price.default_peak_bytes is None
        or price.memory_cost_pct is None
    ):
        return ""
    change = numbers.percent(price.memory_cost_pct)
    if price.memory_ci95 is not None:
        change += f", 95% interval {numbers.interval(price.memory_ci95)}"
    with_flags = numbers.size(price.deterministic_peak_bytes)
    without = numbers.size(price.default_peak_bytes)
    return f"peak memory {with_flags} against {without} ({change})"
