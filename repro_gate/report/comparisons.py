"""What the report says about earlier answers (the config hash, the baseline, another ref, and which
checks the change weakens) and about costs (of determinism, and where a gate run's time went).

Phrases as in `wording`: the terminal and the Markdown share them.
"""

from __future__ import annotations

import math
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
    """Return the beginning of a hash or a commit; any other text as it is."""
    return text[: text.find(":") + 1 + _SHORT] if _DIGEST.fullmatch(text) else text


def config_hash(hashed: ConfigHash) -> Phrase:
    """Return the config hash and its two roots, shortened, with what each is made of."""
    recipe, platform = (
        short(root).removeprefix("sha256:") for root in (hashed.recipe, hashed.platform)
    )
    halves = phrase(
        "recipe (code, data, seed, flags) {name} + platform {name2}",
        name=recipe,
        name2=platform,
    )
    return phrase("{name} = {}", halves, name=short(hashed.config_hash))


def roots(hashed: ConfigHash) -> tuple[tuple[str, str], ...]:
    """Return the config hash and its two roots, by name."""
    return ("config hash", hashed.config_hash), *(
        (root, digest) for root, digest, _ in hashed.roots()
    )


def inputs(hashed: ConfigHash) -> Iterator[tuple[str, str, str]]:
    """Root, name and value of each input, a value that no person can read said to be one."""
    for root, _, given in hashed.roots():
        for name, value in sorted(given.items()):
            try:
                said = input_text(value)
            except (
                ValueError,
                TypeError,
                RecursionError,
            ):
                # an integer of thousands of digits, a bottomless list
                said = "too large to show"
            yield root, name, said


def move(item: ChangedInput) -> Phrase:
    """Return one input that changed, with its value before and after."""
    start = phrase("{message} {name}", message=item.root, name=item.name)
    if item.before is None and item.after is None:
        return start
    if item.before is None:
        return phrase("{}: new, {name}", start, name=short(item.after or ""))
    before = short(item.before)
    if item.after is None:
        return phrase("{}: gone, was {name}", start, name=before)
    return phrase("{}: {name} -> {name2}", start, name=before, name2=short(item.after))


def baseline_lines(baseline: BaselineFinding, most: int) -> tuple[Phrase, ...]:
    """Return a baseline's status and what is behind it, most telling first; at most `most` inputs
    and as many facts outside them."""
    words = "{status}: {message}"
    line = phrase(words, status=baseline.status, message=baseline.message)
    if baseline.recorded:
        line = phrase("{} (recorded {message})", line, message=baseline.recorded)
    lines = [line]
    if baseline.unlike:
        names = wording.joined([say(part, "name") for part in baseline.unlike[:most]])
        more = and_more(len(baseline.unlike) - most)
        lines.append(
            phrase("differs in {} {}" if more else "differs in {}", names, say(more))
        )
    lines += _gap(baseline.loss_gap)
    lines += [
        phrase("outside the inputs: {name}", name=fact)
        for fact in baseline.outside[:most]
    ]
    lines += _left(len(baseline.outside) - most, "fact")
    since = "{}; the machine may have had another load when that was recorded"
    lines += [phrase(since, line) for line in speed(baseline.speed)]
    return (*lines, *_moved(baseline.changed_inputs, most))


def against_lines(against: AgainstFinding, most: int) -> tuple[Phrase, ...]:
    """Return the answer against another ref and what is behind it: the first tensor that differs,
    how far losses did, and the inputs."""
    ref = at(against.ref, against.commit)
    words = "{}, {status}: {message}"
    lines = [phrase(words, ref, status=against.status, message=against.message)]
    if against.first_divergence is not None:
        lines.append(phrase("first at {}", wording.where(against.first_divergence)))
        far = wording.how_far(against.first_divergence)
        lines += [far] if far else []
    return (
        *lines,
        *_gap(against.loss_gap),
        *speed(against.speed),
        *_moved(against.changed_inputs, most),
    )


def speed(found: Sequence[SpeedChange]) -> tuple[Phrase, ...]:
    """Return what a change does to the time of a step, one line for each arm."""
    lines: list[Phrase] = []
    for item in found:
        flags = "with" if item.arm == "deterministic" else "without"
        words = f"a step {flags} the flags: {{figure}}, 95% interval {numbers.interval(item.ci95)}"
        lines.append(phrase(words, figure=_slower(item.slower_pct)))
    return tuple(lines)


def at(ref: str, commit: str) -> Phrase:
    """Return a ref and the commit it stands for."""
    return phrase("{name} at {name2}", name=ref, name2=short(commit))


def base_policy(base: BaseFinding) -> Phrase:
    """Return the base, what of it is weakened if anything is not, and whose spec judged."""
    judge = "the spec of the base"
    if base.policy == "head":
        judge = "the spec of this change itself"
    ref = at(base.ref, base.commit)
    words = "The base is {}" if base.weakened else "{}: no weakened checks"
    return phrase(f"{words}; the verdict is by {judge}", ref)


def weakening(item: WeakenedCheck) -> Phrase:
    """Return where, which key, and what of it is less."""
    line = phrase("{name}: {message}", name=item.key, message=item.message)
    return phrase("{name} {}", line, name=str(item.location)) if item.location else line


def _gap(gap: float | None) -> list[Phrase]:
    if not gap:
        return []
    return [phrase("losses up to {figure} apart", figure=numbers.small(gap))]


def _moved(moves: Sequence[ChangedInput], most: int) -> list[Phrase]:
    return [*(move(item) for item in moves[:most]), *_left(len(moves) - most, "input")]


def _left(left: int, one: str) -> list[Phrase]:
    more = and_more(left, one if left == 1 else one + "s")
    return [say(more)] if more else []


def cost(price: Cost | None) -> Phrase:
    """Return what the flags cost in time, with the interval, however wide that is. A negative cost
    is said as `faster`."""
    if price is None:
        return say("not measured")
    figure = f"{_slower(price.determinism_cost_pct)} with the flags"
    line = f"{{figure}}, 95% interval {numbers.interval(price.ci95)}"
    if price.max_percent is not None:
        line += f"; {_budget(price, price.max_percent)}"
    return phrase(line, figure=figure)


def doubts(price: Cost | None) -> tuple[Phrase, ...]:
    """Return what makes a cost suspicious, where anything does."""
    if price is None or price.suspicious is None:
        return ()
    doubt = price.suspicious
    return (phrase("{figure}: {message}", figure="suspicious", message=doubt),)


def _slower(percent: float) -> str:
    words = "slower" if percent > 0 else "faster"
    return f"{numbers.percent(abs(percent), signed=False)} {words}"


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


def times_spent(report: Report) -> str:
    """Return where the wall time of a gate run went, in words; empty where nothing ran. `starts` is
    what comes before and between the steps of runs: the start of Python and torch, loading,
    evaluation."""
    steps, probe = (
        sum(getattr(run, name) for run in report.runs)
        for name in ("step_seconds", "probe_seconds")
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
        f"{name} {numbers.duration(seconds)}"
        for name, seconds in parts.items()
        if seconds > 0
    )


def memory(price: Cost) -> str:
    """Peak memory with and without the flags; empty where it was not measured."""
    if price.deterministic_peak_bytes is None or price.default_peak_bytes is None:
        return ""
    bounds = (
        ""
        if price.memory_ci95 is None
        else f", 95% interval {numbers.interval(price.memory_ci95)}"
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
