"""Phrases on comparisons (the config hash, the baseline, another ref, weakened checks) and on costs
(of determinism, and of a gate run's time). As in `wording`, the terminal and the Markdown share
them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from repro_gate.baseline.config_hash import ChangedInput, ConfigHash, input_text
from repro_gate.baseline.model import AgainstFinding, BaselineFinding
from repro_gate.compare.model import Cost, SpeedChange
from repro_gate.escape import and_more
from repro_gate.report import numbers, wording
from repro_gate.report.model import BaseFinding, Report, WeakenedCheck
from repro_gate.report.wording import Phrase, phrase, say

# the title of their list, the same for the terminal and the comment
WEAKENED_TITLE = "Weakened checks"
_SHORT = 12  # hex digits of a hash that a person sees, as git shows them
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


def baseline_lines(baseline: BaselineFinding, most: int) -> tuple[Phrase, ...]:
    """Return a baseline's status and the details, most important first; at most `most` inputs and
    as many facts outside them."""
    words = "{status}: {message}"
    line = phrase(words, status=baseline.status, message=baseline.message)
    if baseline.recorded:
        line = phrase("{} (recorded {message})", line, message=baseline.recorded)
    names = wording.joined([say(part, "name") for part in baseline.unlike[:most]])
    more = say(and_more(len(baseline.unlike) - most))
    facts = baseline.outside
    since = "{}; the machine's load may have been different when that was recorded"
    lines = (
        line,
        phrase("differs in {}", wording.joined([names, more], " ")) if names else (),
        _gap(baseline.loss_gap),
        *(phrase("outside the inputs: {name}", name=fact) for fact in facts[:most]),
        _left(len(facts) - most, "fact"),
        *(phrase(since, line) for line in speed(baseline.speed)),
        *_moved(baseline.changed_inputs, most),
    )
    return tuple(filter(None, lines))


def against_lines(against: AgainstFinding, most: int) -> tuple[Phrase, ...]:
    """Return the comparison with another ref: the status, the first tensor that differs, the
    distance of losses, and the inputs."""
    ref = at(against.ref, against.commit)
    words = "{}, {status}: {message}"
    first = wording.where(against.first_divergence)
    lines = (
        phrase(words, ref, status=against.status, message=against.message),
        phrase("first at {}", first) if first else (),
        wording.how_far(against.first_divergence),
        _gap(against.loss_gap),
        *speed(against.speed),
        *_moved(against.changed_inputs, most),
    )
    return tuple(filter(None, lines))


def speed(changes: Sequence[SpeedChange]) -> Iterator[Phrase]:
    """Yield how a change affects the time of a step, one line for each arm."""
    for item in changes:
        flags = "with" if item.arm == "deterministic" else "without"
        interval = numbers.interval(item.ci95)
        words = f"a step {flags} the flags: {{figure}}, 95% interval {interval}"
        yield phrase(words, figure=_slower(item.slower_pct))


def at(ref: str, commit: str) -> Phrase:
    """Return a ref and its commit."""
    return phrase("{name} at {name2}", name=ref, name2=short(commit))


def base_policy(base: BaseFinding) -> Phrase:
    """Return the base, whether nothing of it is weakened, and whose spec judged."""
    judge = "the spec of the base"
    if base.policy == "head":
        judge = "the spec of this change itself"
    ref = at(base.ref, base.commit)
    words = "The base is {}" if base.weakened else "{}: no weakened checks"
    return phrase(f"{words}; {judge} decides the verdict", ref)


def weakening(item: WeakenedCheck) -> Phrase:
    """Return the key, what is weaker, and the location."""
    line = phrase("{name}: {message}", name=item.key, message=item.message)
    return phrase("{name} {}", line, name=str(item.location)) if item.location else line


def _gap(gap: float | None) -> Phrase:
    if not gap:
        return ()
    return phrase("losses up to {figure} apart", figure=numbers.small(gap))


def _moved(moves: Sequence[ChangedInput], most: int) -> list[Phrase]:
    return [*map(move, moves[:most]), _left(len(moves) - most, "input")]


def _left(left: int, one: str) -> Phrase:
    return say(and_more(left, one if left == 1 else f"{one}s"))


def cost(price: Cost | None) -> Phrase:
    """Return the cost of the flags in time, with its interval. A negative cost is shown as
    `faster`."""
    if price is None:
        return say("not measured")
    figure = f"{_slower(price.determinism_cost_pct)} with the flags"
    line = f"{{figure}}, 95% interval {numbers.interval(price.ci95)}"
    if price.max_percent is not None:
        line += f"; {_budget(price, price.max_percent)}"
    return phrase(line, figure=figure)


def doubt(price: Cost | None) -> Phrase:
    """Return why a cost is suspicious; empty if it is not."""
    if price is None or price.suspicious is None:
        return ()
    return phrase("{figure}: {message}", figure="suspicious", message=price.suspicious)


def _slower(percent: float) -> str:
    words = "slower" if percent > 0 else "faster"
    return f"{numbers.percent(abs(percent), signed=False)} {words}"


def _budget(price: Cost, budget: float) -> str:
    low, high = price.ci95
    limit = f"budget of {budget:g}%"
    if low > budget:
        return f"over the {limit}"
    if high <= budget:
        return f"within the {limit}"
    return f"the interval contains the {limit}, so this does not fail"


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
    if not report.runs:
        return ""
    return ", ".join(
        f"{name} {numbers.duration(seconds)}"
        for name, seconds in parts.items()
        if seconds > 0
    )


def memory(price: Cost | None) -> str:
    """Return peak memory with and without the flags; empty if it was not measured."""
    if (
        price is None
        or price.deterministic_peak_bytes is None
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
