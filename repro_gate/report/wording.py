"""The report's sentences, which the terminal and the Markdown share.

Each function returns a Phrase: parts of text with a role. The role separates our own words (`say`,
`figure`) from text of the training (`name`), so that each renderer can style and escape them in its
own way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from string import Formatter
from typing import Any

from repro_gate._version import DOCS_URL
from repro_gate.checks.interface import CATEGORIES, CheckResult
from repro_gate.compare.model import (
    KINDS,
    STEPS,
    Comparison,
    Divergence,
    NoiseFloor,
    Resumption,
)
from repro_gate.escape import listed
from repro_gate.report import numbers
from repro_gate.report.model import Determinism, Report, RunSummary
from repro_gate.trace import notebook

# (role, text): `say` and `figure` are our own words, `page` is a cause to link to its page. From
# outside come `name` and `message`, `seen` (a line of evidence), `id` (of a reason or a check),
# `status`, and `fault` (how a run ended badly)
Part = tuple[str, str]
Phrase = tuple[Part, ...]


def phrase(template: str, *phrases: Phrase, **texts: str) -> Phrase:
    """Return a template of our own words with each `{role}` replaced by a text and each `{}` by a
    phrase. If two texts have the same role, the second is `{role2}`."""
    parts: list[Part] = []
    following = iter(phrases)
    for words, key, _, _ in Formatter().parse(template):
        if words:
            parts.append(("say", words))
        if key:
            parts.append((key.rstrip("2"), texts[key]))
        elif key is not None:
            parts.extend(next(following))
    return tuple(parts)


def say(words: str, role: str = "say") -> Phrase:
    """Return words of one role as a phrase; an empty phrase for no words."""
    return ((role, words),) if words else ()


def plain_text(line: Phrase) -> str:
    """Return the words of a phrase."""
    return "".join(words for _, words in line)


# Other kinds are shown by their own names.
_KIND_WORDS = {
    "rng": "random state",
    "gradient": "gradient of",
    "optimizer": "optimizer state of",
}
# kind -> the noun by which compared tensors are counted
_COUNTED = {
    "parameter": "parameter",
    "gradient": "gradient",
    "batch": "batch",
    "loss": "loss",
    "buffer": "buffer",
    "artifact": "artifact",
    "optimizer": "optimizer state",
    "rng": "generator state",
}
_UNDECLARED = {"env/image-digest": "image", "env/lockfile": "lockfile"}
_ENDED_WELL = ("finished", "stopped")
_WORST_FIRST = ("fail", "warn", "waived", "skip", "pass")


def headline(report: Report) -> Phrase:
    """Return the sentence behind the verdict. The only texts from outside are the line of a proven
    cause and the name of the tensor that diverges without the flags."""
    pair = report.determinism
    if report.verdict == "inconclusive":
        return say("the gate could not decide")
    if report.verdict == "recorded":
        steps = numbers.count(
            max((run.steps for run in report.runs), default=0), "step"
        )
        return say(f"one run of {steps}; nothing was compared")
    if pair is None:
        return say("the runs were not compared")
    if not pair.identical:
        return _diverging_headline(report, pair)
    seeds = len(pair.seeds)
    same = (
        f"bitwise identical: {numbers.count(pair.tensors, 'tensor')}, "
        f"{numbers.count(pair.steps, 'step')}, "
    )
    same += f"seed {pair.seed}" if seeds <= 1 else numbers.count(seeds, "seed")
    if report.baseline is not None and drifted(report):
        names = joined([say(part, "name") for part in report.baseline.unlike[:3]])
        drift = "two runs agree but differ from the baseline: same inputs, different results"
        return phrase(f"{drift} in {{}}", names) if names else say(drift)
    if report.verdict == "fail":
        return say(f"{same}; but the gate fails, see why")
    floor = report.noise_floor
    if floor is None or floor.identical or floor.first_divergence is None:
        return say(same)
    place = place_of(floor.first_divergence, floor.first_divergence.step + 1)
    words = f"{same}; without the flags they diverge {{message}}"
    return phrase(words, message=place)


def drifted(report: Report) -> bool:
    """Return whether the gate fails because two runs agree but differ from the baseline of the same
    inputs."""
    pair = report.determinism
    failed = report.verdict == "fail" and pair is not None and pair.identical
    return failed and report.baseline is not None and report.baseline.status == "drift"


def diverged(report: Report) -> bool:
    """Return whether two runs were compared and are not bitwise identical."""
    return report.determinism is not None and not report.determinism.identical


def _diverging_headline(report: Report, pair: Determinism) -> Phrase:
    first = pair.first_divergence
    if report.verdict == "pass":
        return say("not bitwise identical, but within the tolerance of the spec")
    two = f"two runs with seed {pair.seed}"
    of_seeds = ""
    if len(pair.seeds) > 1:
        count = sum(not item.identical for item in pair.seeds)
        of_seeds = f" ({numbers.of(count, len(pair.seeds))} seeds)"
    if first is None:
        line = say(f"{two} diverge{of_seeds}")
    elif _differs_in_length(first):
        words = f"{two} end differently{of_seeds}: {{message}}"
        line = phrase(words, message=first.detail)
    else:
        line = say(f"{two} diverge {moment(first, pair.steps)}{of_seeds}")
    why = report.diagnosis
    if why is None or not (why.confirmed or why.observed):
        return line
    if why.file:
        because = "because of" if why.confirmed else "after different input at"
        place = notebook.place(why.file, why.line)
        line = phrase(f"{{}} {because} {{name}}", line, name=place)
    return phrase(f"{{}} ({why.cause}{'' if why.confirmed else ', observed'})", line)


def moment(divergence: Divergence, steps: int) -> str:
    """Return when a divergence happens in a run of `steps` steps. Steps count from 0; -1 is before
    the first and `steps` after the last."""
    if divergence.step < 0:
        return "before the first step"
    if divergence.step >= steps:
        return "after the last step"
    return f"at step {divergence.step}"


def place_of(divergence: Divergence, steps: int) -> str:
    """Return step and tensor as a clause: `at step 3 (gradient of fc.weight)`. The name is
    untrusted: the printer escapes it."""
    if divergence.kind == "artifact":
        return f"in artifact {divergence.name}"
    if _differs_in_length(divergence):
        return f"in how they end ({divergence.detail})"
    label = f"{_KIND_WORDS.get(divergence.kind, divergence.kind)} {divergence.name}"
    if divergence.name == divergence.kind:
        label = divergence.kind
    return f"{moment(divergence, steps)} ({label})"


def _differs_in_length(divergence: Divergence) -> bool:
    """Return whether two runs agree in all that both recorded but made different numbers of
    steps."""
    return (divergence.kind, divergence.name) == ("optimizer", STEPS)


def where(divergence: Divergence | None) -> Phrase:
    """Return step, kind, name, process and node of a divergence; empty if there is none."""
    if divergence is None:
        return ()
    step = "before the first step" if divergence.step < 0 else f"step {divergence.step}"
    place = phrase("{figure}, {}", quantity(divergence), figure=step)
    if divergence.process == "main":
        return place
    words = (
        "{} in process {name} on {name2}" if divergence.node else "{} in process {name}"
    )
    return phrase(words, place, name=divergence.process, name2=divergence.node)


def quantity(divergence: Divergence) -> Phrase:
    """Return kind and name of what diverges: `gradient of fc.weight`, `the loss`."""
    word = _KIND_WORDS.get(divergence.kind, divergence.kind)
    if divergence.name == divergence.kind:
        word = "the"
    if _differs_in_length(divergence):
        word = "the number of"
    return phrase(f"{word} {{name}}", name=divergence.name)


def how_far(divergence: Divergence | None) -> Phrase:
    """Return type, shape and distances of a divergence; empty if none is known."""
    if divergence is None:
        return ()
    parts: list[Phrase] = []
    if divergence.dtype is not None:
        shape = divergence.shape
        sizes = "" if shape is None else f" {list(shape)}"
        parts.append(say(divergence.dtype + sizes, "name"))
    if divergence.values is not None:
        one, other = map(str, divergence.values)
        parts.append(phrase("{name} against {name2}", name=one, name2=other))
    parts += [say(text, "figure") for text in distances(divergence)]
    parts.append(say(divergence.detail, "message"))
    return joined(parts)


def distances(divergence: Divergence) -> list[str]:
    """Return the known distances, each with its name."""
    small, ulps = numbers.small, numbers.ulps
    figures: tuple[tuple[str, Any, Callable[[Any], str]], ...] = (
        ("max abs ", divergence.max_abs, small),
        ("", divergence.max_ulp, ulps),
        ("L2 ", divergence.l2, small),
        ("relative L2 ", divergence.relative_l2, small),
    )
    return [name + form(value) for name, value, form in figures if value is not None]


def spread(comparison: Comparison) -> Phrase:
    """Return how many of the compared tensors differ, and in how many steps."""
    few = 1 in (comparison.differing, comparison.tensors)
    text = f" tensor{'s' * (comparison.tensors != 1)} differ{'s' * few}"
    first = comparison.first_divergence
    if first and _differs_in_length(first) and not comparison.differing:
        text += f" up to step {first.step}"
    if steps := comparison.differing_steps:
        text += f", in {numbers.of(steps, max(comparison.steps, steps))} steps"
    share = numbers.of(comparison.differing, comparison.tensors)
    return phrase(f"{{figure}}{text}", figure=share)


def kinds(comparison: Comparison) -> str:
    """Return `gradient 14 of 20, loss 1 of 1`: the kinds that differ. Empty if there are no
    tallies."""
    tallies = ((kind, comparison.by_kind.get(kind)) for kind in KINDS)
    return ", ".join(
        f"{kind} {numbers.of(tally.differing, tally.tensors)}"
        for kind, tally in tallies
        if tally and tally.differing
    )


def compared(report: Report) -> str:
    """Return `10 parameters, 10 gradients, 2 batches, 4 artifacts`: what was compared in equal
    runs; empty if they differ."""
    pair = report.determinism
    if pair is None or not pair.identical:
        return ""
    counts = {kind: tally.tensors for kind, tally in pair.by_kind.items()}
    files = max((run.artifacts for run in report.runs), default=0)
    if files and counts.get("artifact"):
        counts["artifact"] = files
    return ", ".join(
        numbers.count(counts[kind], name)
        for kind, name in _COUNTED.items()
        if counts.get(kind)
    )


def bound(report: Report) -> str:
    """Return `3 of 3 identical; …`: which rate of faults equal runs exclude at 95 %, or how many
    runs ended badly. Empty if runs differ."""
    if (pair := report.determinism) is None or not pair.identical:
        return ""
    counted = f"{numbers.of(pair.runs, pair.runs + pair.failed)} identical"
    if pair.bound_pct is None:
        return f"{counted}, {pair.failed} ended badly"
    least = f"{pair.bound_pct:.0f} %"
    return (
        f"{counted}; a fault in more than {least} of runs would have shown (95 % sure)"
    )


def non_finite(report: Report) -> str:
    """Return `not finite: nan at step 7, inf at step 8`; empty if all losses are finite."""
    lost = () if report.determinism is None else report.determinism.non_finite
    each = [f"{value} at step {step}" for step, value in lost]
    return f"not finite: {listed(each, 10)}" if each else ""


def seeds(report: Report) -> str:
    """Return `1 same, 2 differs`: whether the runs of each seed are bitwise identical; empty if
    there is only one seed."""
    seeds = () if report.determinism is None else report.determinism.seeds
    if len(seeds) < 2:
        return ""
    each = [f"{item.seed} {'same' if item.identical else 'differs'}" for item in seeds]
    return listed(each, 20)


def noise(floor: NoiseFloor | None) -> Phrase:
    """Return what happens without the flags."""
    if floor is None:
        return say("not measured (how far apart two runs without flags are)")
    if floor.identical:
        return say(
            "zero: here the training is bitwise identical even without the flags"
        )
    first = floor.first_divergence
    step = floor.first_step
    when = ""
    if first is not None:
        when = place_of(first, first.step + 1)
    elif step is not None:
        when = "before the first step" if step < 0 else f"from step {step} on"
    measured = (
        ("loss gap {}", floor.loss_gap),
        ("weights {} apart (L2)", floor.weight_l2),
        ("relative {}", floor.weight_relative_l2),
    )
    figures = ", ".join(
        words.format(numbers.small(value))
        for words, value in measured
        if value is not None
    )
    words = "two runs without flags diverge {message}"
    if figures:
        words += ": {figure}"
    return phrase(words, message=when, figure=figures)


def coverage(checklist: Sequence[CheckResult]) -> list[tuple[str, int, int]]:
    """Return (category, checks that passed, checks that were made). A skipped check was not
    made."""

    rows = []
    for category in CATEGORIES:
        made = [
            item.status
            for item in checklist
            if item.category == category and item.status != "skip"
        ]
        rows.append((category, made.count("pass"), len(made)))
    return rows


def checks(checklist: Sequence[CheckResult]) -> Phrase:
    """Return how many checks passed, the ids of the others, and what the spec does not declare;
    empty if no check was made."""
    statuses = Counter(item.status for item in checklist)
    made = statuses.total() - statuses["skip"]
    if not made:
        return ()
    line = phrase("{figure} passed", figure=numbers.of(statuses["pass"], made))
    for status in ("fail", "warn", "waived"):
        ids = [item.id for item in checklist if item.status == status]
        if ids:
            more = f"{{}}; {len(ids):,} {{status}}: {{message}}"
            line = phrase(more, line, status=status, message=listed(ids, 6))
    missing = undeclared(checklist).partition(" (")[0]
    return phrase(f"{{}}; {missing}", line) if missing else line


def undeclared(checklist: Sequence[CheckResult]) -> str:
    """Return `not declared: image, lockfile (https://…)`; empty if the spec declares both."""
    words = sorted(_UNDECLARED[item.id] for item in checklist if is_undeclared(item))
    page = f"{DOCS_URL}/checks/README.md"
    return f"not declared: {', '.join(words)} ({page})" if words else ""


def is_undeclared(item: CheckResult) -> bool:
    """Return whether a check was skipped because the spec does not declare its subject."""
    return item.status == "skip" and item.id in _UNDECLARED


def worst_first(checklist: Sequence[CheckResult]) -> list[CheckResult]:
    """Return the results, the worst first. A list may be cut at its end, so failures must not be
    there."""
    return sorted(checklist, key=lambda item: _WORST_FIRST.index(item.status))


def ended_badly(run: RunSummary) -> bool:
    """Return whether a run neither finished nor was stopped at `train.steps`."""
    return run.outcome not in _ENDED_WELL


def outcome(run: RunSummary) -> str:
    """Return how a run ended, with its exit code if that adds something."""
    is_code = run.exit_code not in (0, None) and ended_badly(run)
    return f"{run.outcome} (exit {run.exit_code})" if is_code else run.outcome


def joined(phrases: Sequence[Phrase], separator: str = ", ") -> Phrase:
    """Return the phrases joined by `separator`, without empty ones."""
    parts: list[Part] = []
    for phrase in filter(None, phrases):
        parts.extend([("say", separator), *phrase] if parts else phrase)
    return tuple(parts)


def resume(pair: Resumption | None) -> str:
    """Return one line on a training that was stopped and resumed; empty if that was not tested."""
    if pair is None:
        return ""
    stops = " and ".join(str(leg.ends) for leg in pair.legs[:-1])
    return f"bitwise identical, stopped after {stops} steps"


def roundings(count: float) -> str:
    """Return a distance as a multiple of the effect of rounding."""
    number = f"{count:.1f}" if count < 100 else f"{count:,.0f}"
    return f"{number if count < 1e9 else f'{count:.1e}'} times the effect of rounding"


def equivalent(report: Report) -> str:
    """Return one line on the equivalent ways; empty if there are none."""
    words = []
    steps = report.determinism.steps if report.determinism else 0
    for item in report.equivalences:
        far = item.worst.roundings if item.worst else None
        how = roundings(far) if far else "bitwise identical"
        if item.steps < steps:
            how += f" in the first {item.steps} of {steps} steps"
        words.append(f"{item.name} ({how if item.equivalent else 'not the same'})")
    return ", ".join(words)
