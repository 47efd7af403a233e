"""What the report says, in words that the terminal and the Markdown share, so that both tell one
story.

Each function returns a Phrase: parts of text with a role, our own words (`say`, `figure`) kept
apart from what came out of the training (`name`), so that each renderer can style and escape them
in its own way.
"""

from __future__ import annotations

from collections.abc import Sequence
from string import Formatter

from repro_gate._version import DOCS_URL
from repro_gate.checks.interface import CATEGORIES, CheckResult
from repro_gate.compare.model import (
    KINDS,
    STEPS,
    Comparison,
    Divergence,
    Equivalence,
    NoiseFloor,
    Resumption,
)
from repro_gate.escape import for_terminal, listed
from repro_gate.report import numbers
from repro_gate.report.model import Determinism, Report, RunSummary
from repro_gate.trace import notebook

# (role, text): `say` and `figure` are our own words, `page` is a cause, whose page is named. From
# outside come `name` and `message`, `seen` (a line of evidence), `id` (of a reason or a check),
# `status`, and `fault` (how a run ended badly)
Part = tuple[str, str]
Phrase = tuple[Part, ...]


def phrase(template: str, *phrases: Phrase, **texts: str) -> Phrase:
    """Return our own words with a text in place of each `{role}` and a phrase in place of each
    `{}`. Of two texts with one role the second is called `{role2}`."""
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
    """Return words of one role, our own if none is named, as a phrase; none where there are
    none."""
    return ((role, words),) if words else ()


# the others are called as they are
_KIND_WORDS = {
    "rng": "random state",
    "gradient": "gradient of",
    "optimizer": "optimizer state of",
}
_COUNTED = {
    "parameter": ("parameter",),
    "gradient": ("gradient",),
    "batch": ("batch", "batches"),
    "loss": ("loss", "losses"),
    "buffer": ("buffer",),
    "artifact": ("artifact",),
    "optimizer": ("optimizer state",),
    "rng": ("generator state",),
}
_UNDECLARED = {"env/image-digest": "image", "env/lockfile": "lockfile"}
_ENDED_WELL = ("finished", "stopped")
_WORST_FIRST = ("fail", "warn", "waived", "skip", "pass")


def headline(report: Report) -> Phrase:
    """Return the verdict's one sentence. The only texts from outside are a proven cause's line and
    the name of what diverges without the flags."""
    found = report.determinism
    if report.verdict == "inconclusive":
        return say("the question could not be answered")
    if found is None:
        return say("the runs were not compared")
    if not found.identical:
        return _differing_headline(report, found)
    seeds = len(found.seeds)
    same = (
        f"bitwise identical: {numbers.count(found.tensors, 'tensor')}, "
        f"{numbers.count(found.steps, 'step')}, "
    )
    same += f"seed {found.seed}" if seeds <= 1 else numbers.count(seeds, "seed")
    if report.baseline is not None and drifted(report):
        names = joined([say(part, "name") for part in report.baseline.unlike[:3]])
        drift = "two runs agree, but not with the baseline: same inputs, other results"
        return phrase(f"{drift} in {{}}", names) if names else say(drift)
    if report.verdict == "fail":
        return say(f"{same}; yet it fails, see why")
    floor = report.noise_floor
    if floor is None or floor.identical or floor.first_divergence is None:
        return say(same)
    place = place_of(floor.first_divergence, floor.first_divergence.step + 1)
    words = f"{same}; without the flags they diverge {{message}}"
    return phrase(words, message=place)


def drifted(report: Report) -> bool:
    """Return whether two runs that agree are not what the baseline recorded for the same inputs,
    and that is why it fails."""
    found = report.determinism
    same = found is not None and found.identical
    return (
        same
        and report.verdict == "fail"
        and report.baseline is not None
        and report.baseline.status == "drift"
    )


def diverged(report: Report) -> bool:
    """Return whether two runs were compared and are not bitwise identical."""
    return report.determinism is not None and not report.determinism.identical


def _differing_headline(report: Report, compared: Determinism) -> Phrase:
    first = compared.first_divergence
    if report.verdict == "pass":
        return say("not bitwise identical, but within the tolerance of the spec")
    two = f"two runs with seed {compared.seed}"
    seeds = sum(not item.identical for item in compared.seeds)
    of_seeds = (
        f" ({numbers.of(seeds, len(compared.seeds))} seeds)"
        if len(compared.seeds) > 1
        else ""
    )
    if first is not None and _differs_in_length(first):
        so = phrase(
            f"{two} end differently{of_seeds}: {{message}}", message=first.detail
        )
    else:
        place = "" if first is None else f" {moment(first, compared.steps)}"
        so = say(f"{two} diverge{place}{of_seeds}")
    why = report.diagnosis
    if why is None or not (why.confirmed or why.observed):
        return so
    if why.file:
        because = "because of" if why.confirmed else "after other input at"
        so = phrase(
            f"{{}} {because} {{name}}", so, name=notebook.place(why.file, why.line)
        )
    return phrase(
        "{}{}", so, say(f" ({why.cause}{'' if why.confirmed else ', observed'})")
    )


def moment(divergence: Divergence, steps: int) -> str:
    """When, in a run of `steps` steps: they count from 0, -1 is before them and `steps` after
    them."""
    if divergence.step < 0:
        return "before the first step"
    return (
        f"at step {divergence.step}"
        if divergence.step < steps
        else "after the last step"
    )


def place_of(divergence: Divergence, steps: int) -> str:
    """When and in what, as a clause: `at step 3 (gradient of fc.weight)`. The name is as the
    training gave it: the printer escapes it."""
    if divergence.kind == "artifact":
        return f"in artifact {divergence.name}"
    if _differs_in_length(divergence):
        return f"in how they end ({divergence.detail})"
    word = _KIND_WORDS.get(divergence.kind, divergence.kind)
    named = (
        divergence.kind
        if divergence.name == divergence.kind
        else f"{word} {divergence.name}"
    )
    return f"{moment(divergence, steps)} ({named})"


def _differs_in_length(divergence: Divergence) -> bool:
    """Return whether two runs are alike in all that both recorded, and took different numbers of
    steps."""
    return (divergence.kind, divergence.name) == ("optimizer", STEPS)


def where(divergence: Divergence) -> Phrase:
    """Return step, kind, name and process of a divergence."""
    step = "before the first step" if divergence.step < 0 else f"step {divergence.step}"
    word = _KIND_WORDS.get(divergence.kind, divergence.kind)
    if divergence.name == divergence.kind:
        word = "the"
    if _differs_in_length(divergence):
        word = "the number of"
    place = phrase(f"{{figure}}, {word} {{name}}", figure=step, name=divergence.name)
    if divergence.process == "main":
        return place
    return phrase("{} in process {name}", place, name=divergence.process)


def how_far(divergence: Divergence) -> Phrase:
    """Return type, shape and distances of a divergence; empty if nothing is known."""
    parts: list[Phrase] = []
    if divergence.dtype is not None:
        shape = (
            "" if divergence.shape is None else f" {numbers.shape(divergence.shape)}"
        )
        parts.append(say(divergence.dtype + shape, "name"))
    if divergence.values is not None:
        first, second = (
            value if isinstance(value, str) else repr(value)
            for value in divergence.values
        )
        parts.append(phrase("{name} against {name2}", name=first, name2=second))
    parts.extend(say(text, "figure") for text in apart(divergence))
    if divergence.detail:
        parts.append(say(divergence.detail, "message"))
    return joined(parts)


def apart(divergence: Divergence) -> list[str]:
    """Return the distances that exist, each with its name."""
    far = divergence
    values = {
        "max abs ": far.max_abs,
        "": None if far.max_ulp is None else numbers.ulps(far.max_ulp),
        "L2 ": far.l2,
        "relative L2 ": far.relative_l2,
    }
    return [
        name + (value if isinstance(value, str) else numbers.small(value))
        for name, value in values.items()
        if value is not None
    ]


def spread(comparison: Comparison) -> Phrase:
    """Return how much of what was compared differs, and in how many steps."""
    text = (
        f" tensor{'s' * (comparison.tensors != 1)} "
        f"differ{'s' * (1 in (comparison.differing, comparison.tensors))}"
    )
    first = comparison.first_divergence
    text += (
        f" up to step {first.step}"
        if first is not None and _differs_in_length(first) and not comparison.differing
        else ""
    )
    if steps := comparison.differing_steps:
        text += f", in {numbers.of(steps, max(comparison.steps, steps))} steps"
    return phrase(
        f"{{figure}}{text}", figure=numbers.of(comparison.differing, comparison.tensors)
    )


def kinds(comparison: Comparison) -> str:
    """`gradient 14 of 20, loss 1 of 1`: the kinds that differ. Empty where the tallies are not
    there."""
    differing = (
        f"{kind} {numbers.of(tally.differing, tally.tensors)}"
        for kind in KINDS
        if (tally := comparison.by_kind.get(kind)) is not None and tally.differing
    )
    return ", ".join(differing)


def compared(report: Report) -> str:
    """`10 parameters, 10 gradients, 2 batches, 4 artifacts`: what equal runs were compared in;
    empty where they differ."""
    found = report.determinism
    if found is None or not found.identical:
        return ""
    counts = {kind: tally.tensors for kind, tally in found.by_kind.items()}
    if counts.get("artifact"):
        counts["artifact"] = (
            max((run.artifacts for run in report.runs), default=0) or counts["artifact"]
        )
    return ", ".join(
        numbers.count(counts[kind], *words)
        for kind, words in _COUNTED.items()
        if counts.get(kind)
    )


def bound(report: Report) -> str:
    """Return what equal runs exclude at 95 %, as `3 of 3 identical; …`, or how many ended badly;
    empty where they differ."""
    if (found := report.determinism) is None or not found.identical:
        return ""
    counted = f"{numbers.of(found.runs, found.runs + found.failed)} identical"
    if found.bound_pct is None:
        return f"{counted}, {found.failed} ended badly"
    least = f"{found.bound_pct:.0f} %"
    return (
        f"{counted}; a fault in more than {least} of runs would have shown (95 % sure)"
    )


def non_finite(report: Report) -> str:
    """`nan at step 7, inf at step 8`: the losses that are not finite."""
    lost = () if report.determinism is None else report.determinism.non_finite
    return listed([f"{value} at step {step}" for step, value in lost], 10)


def seeds(report: Report) -> str:
    """`1 same, 2 differs`: each seed, and whether its runs are bitwise identical."""
    seeds = () if report.determinism is None else report.determinism.seeds
    each = [f"{item.seed} {'same' if item.identical else 'differs'}" for item in seeds]
    return listed(each, 20)


def noise(floor: NoiseFloor | None) -> Phrase:
    """Return what happens without the flags."""
    if floor is None:
        return say("not measured (how far two runs without flags drift apart)")
    if floor.identical:
        return say("zero: this workload repeats its bits here without the flags")
    first = floor.first_divergence
    step = floor.first_step
    when = ""
    if first is not None:
        when = place_of(first, first.step + 1)
    elif step is not None:
        when = "before the first step" if step < 0 else f"from step {step} on"
    start = phrase("two runs without flags diverge {message}", message=when)
    measured = {
        "loss gap {}": floor.loss_gap,
        "weights {} apart (L2)": floor.weight_l2,
        "relative {}": floor.weight_relative_l2,
    }
    figures = [
        words.format(numbers.small(value))
        for words, value in measured.items()
        if value is not None
    ]
    return (
        phrase("{}: {figure}", start, figure=", ".join(figures)) if figures else start
    )


def coverage(checklist: Sequence[CheckResult]) -> tuple[tuple[str, int, int], ...]:
    """(category, checks that passed, checks that were made) in the design's order. A skipped check
    was not made."""

    def tally(category: str) -> tuple[str, int, int]:
        made = [
            item
            for item in checklist
            if item.category == category and item.status != "skip"
        ]
        return category, sum(item.status == "pass" for item in made), len(made)

    return tuple(tally(category) for category in CATEGORIES)


def checks(checklist: Sequence[CheckResult]) -> Phrase:
    """Return how many checks passed, the ids of those that did not, and what was never declared;
    empty if none was made."""
    made = [item for item in checklist if item.status != "skip"]
    if not made:
        return ()
    passed = sum(item.status == "pass" for item in made)
    counted = phrase("{figure} passed", figure=numbers.of(passed, len(made)))
    for status in ("fail", "warn", "waived"):
        ids = [for_terminal(item.id, 60) for item in made if item.status == status]
        if ids:
            more = f"{{}}; {len(ids):,} {{status}}: {{message}}"
            counted = phrase(more, counted, status=status, message=listed(ids, 6))
    missing = undeclared(checklist).partition(" (")[0]
    return phrase(f"{{}}; {missing}", counted) if missing else counted


def undeclared(checklist: Sequence[CheckResult]) -> str:
    """`not declared: image, lockfile (https://…)`; empty where everything is declared that a check
    asks for."""
    words = sorted(_UNDECLARED[item.id] for item in checklist if is_undeclared(item))
    return (
        f"not declared: {', '.join(words)} ({DOCS_URL}/checks/README.md)"
        if words
        else ""
    )


def is_undeclared(item: CheckResult) -> bool:
    """Return whether a check had nothing to look at because the spec never mentions it."""
    return item.status == "skip" and item.id in _UNDECLARED


def worst_first(checklist: Sequence[CheckResult]) -> list[CheckResult]:
    """Return the results, what did not pass first, in an order that is the same in every renderer:
    it must not be cut."""
    return sorted(checklist, key=lambda item: _WORST_FIRST.index(item.status))


def ended_badly(run: RunSummary) -> bool:
    """Return whether a run ended in another way than by finishing or by being stopped at
    `train.steps`."""
    return run.outcome not in _ENDED_WELL


def outcome(run: RunSummary) -> str:
    """Return how a run ended, with its exit code where it says more."""
    return (
        run.outcome
        if run.exit_code in (0, None) or not ended_badly(run)
        else f"{run.outcome} (exit {run.exit_code})"
    )


def joined(phrases: Sequence[Phrase], separator: str = ", ") -> Phrase:
    """Phrases in a row."""
    parts: list[Part] = []
    for phrase in phrases:
        parts.extend([("say", separator), *phrase] if parts else phrase)
    return tuple(parts)


def resume(found: Resumption | None) -> str:
    """Return how a training that was stopped went on, in a line; empty if that was not looked
    at."""
    if found is None:
        return ""
    stops = ", ".join(str(leg.ends) for leg in found.legs[:-1])
    return f"bitwise identical, stopped after {stops} steps"


def roundings(count: float) -> str:
    """Return a distance in multiples of what rounding alone does."""
    number = f"{count:.1f}" if count < 100 else f"{count:,.0f}"
    return f"{number if count < 1e9 else f'{count:.1e}'} times what rounding does"


def equivalent(found: Sequence[Equivalence], steps: int) -> str:
    """Return the other ways to the same training, in a line; empty if there are none."""
    words = []
    for item in found:
        far = item.worst.roundings if item.worst else None
        how = roundings(far) if far else "bitwise identical"
        if item.steps < steps:
            how += f" in the first {item.steps} of {steps} steps"
        words.append(f"{item.name} ({how if item.equivalent else 'not the same'})")
    return ", ".join(words)
