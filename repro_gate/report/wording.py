"""What the report says, in words that the terminal and the Markdown share, so that both tell one
story.

Each function returns a Phrase: parts of text with a role, our own words (`say`, `figure`) kept
apart from what came out of the training (`name`), so that each renderer can style and escape them
in its own way.
"""

from __future__ import annotations

from collections.abc import Sequence

from repro_gate._version import DOCS_URL
from repro_gate.checks.interface import CATEGORIES, CheckResult
from repro_gate.compare.model import KINDS, STEPS, Comparison, Divergence, NoiseFloor
from repro_gate.escape import for_terminal, listed
from repro_gate.report import numbers
from repro_gate.report.model import Report, RunSummary
from repro_gate.trace import notebook

# (role, text): `say` and `figure` are our own words. From outside come `name` and `message`, `seen`
# (a line of evidence), `id` (of a reason or a check), `status`, and `fault` (how a run ended badly)
Part = tuple[str, str]
Phrase = tuple[Part, ...]

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
    """The verdict's one sentence. The only texts from outside are a proven cause's line and the
    name of what diverges without the flags."""
    found = report.determinism
    if report.verdict == "inconclusive":
        return (("say", "the question could not be answered"),)
    if found is None:
        return (("say", "the runs were not compared"),)
    if not found.identical:
        return _differing_headline(report)
    seeds, pair = len(found.seeds), found
    same = (
        f"bitwise identical: {numbers.count(pair.tensors, 'tensor')}, "
        f"{numbers.count(pair.steps, 'step')}, "
    )
    same += f"seed {found.seed}" if seeds == 1 else numbers.count(seeds, "seed")
    if drifted(report):
        parts = (
            joined([(("name", part),) for part in report.baseline.unlike[:3]])
            if report.baseline is not None
            else ()
        )
        return (
            ("say", "two runs agree, but not with the baseline: same inputs, other results"),
            *((("say", " in "), *parts) if parts else ()),
        )
    if report.verdict == "fail":
        return (("say", same + "; yet it fails, see why"),)
    floor = report.noise_floor
    if floor is None or floor.identical or floor.first_divergence is None:
        return (("say", same),)
    return (
        ("say", same + "; without the flags they diverge "),
        *_without_flags(floor, floor.first_divergence),
    )


def drifted(report: Report) -> bool:
    """Whether two runs that agree are not what the baseline recorded for the same inputs, and that
    is why it fails."""
    found = report.determinism
    same = found is not None and found.identical
    return (
        same
        and report.verdict == "fail"
        and report.baseline is not None
        and report.baseline.status == "drift"
    )


def _without_flags(floor: NoiseFloor, first: Divergence) -> Phrase:
    """Where two default runs diverge, and what alone makes them repeat, where that was shown."""
    named: Phrase = () if first.name == first.kind else (("say", " "), ("name", first.name))
    by: Phrase = (
        (("say", ", made reproducible by "), ("name", floor.reproducible_by))
        if floor.reproducible_by
        else ()
    )
    return (("say", f"{moment(first, first.step + 1)}, in {first.kind}"), *named, *by)


def _differing_headline(report: Report) -> Phrase:
    found = report.determinism
    assert found is not None  # the caller asked
    first = found.first_divergence
    if report.verdict == "pass":
        return (("say", "not bitwise identical, but within the tolerance of the spec"),)
    where = "" if first is None else f" {moment(first, found.steps)}"
    seeds = sum(not item.identical for item in found.seeds)
    of_seeds = f" ({numbers.of(seeds, len(found.seeds))} seeds)" if len(found.seeds) > 1 else ""
    says: Phrase = (("say", f"two runs with seed {found.seed} diverge{where}{of_seeds}"),)
    if first is not None and _differs_in_length(first):
        says = (
            ("say", f"two runs with seed {found.seed} end differently{of_seeds}: "),
            ("message", first.detail),
        )
    why = report.diagnosis
    if why is None or not (why.confirmed or why.observed):
        return says
    so = " because of " if why.confirmed else " after other input at "
    because: Phrase = (
        (("say", so), ("name", notebook.place(why.file, why.line))) if why.file else ()
    )
    return (*says, *because, ("say", f" ({why.cause}{'' if why.confirmed else ', observed'})"))


def moment(divergence: Divergence, steps: int) -> str:
    """When, in a run of `steps` steps: they count from 0, -1 is before them and `steps` after
    them."""
    if divergence.step < 0:
        return "before the first step"
    return f"at step {divergence.step}" if divergence.step < steps else "after the last step"


def place_of(divergence: Divergence, steps: int) -> str:
    """When and in what, as a clause: `at step 3 (gradient of fc.weight)`. The name is as the
    training gave it: the printer escapes it."""
    if divergence.kind == "artifact":
        return f"in artifact {divergence.name}"
    if _differs_in_length(divergence):
        return f"in how they end ({divergence.detail})"
    word = _KIND_WORDS.get(divergence.kind, divergence.kind)
    named = divergence.kind if divergence.name == divergence.kind else f"{word} {divergence.name}"
    return f"{moment(divergence, steps)} ({named})"


def _differs_in_length(divergence: Divergence) -> bool:
    """Return whether two runs are alike in all that both recorded, and took different numbers of
    steps."""
    return (divergence.kind, divergence.name) == ("optimizer", STEPS)


def where(divergence: Divergence) -> Phrase:
    """Step, kind, name and process of a divergence."""
    step = "before the first step" if divergence.step < 0 else f"step {divergence.step}"
    word = _KIND_WORDS.get(divergence.kind, divergence.kind)
    if divergence.name == divergence.kind:
        word = "the"
    if _differs_in_length(divergence):
        word = "the number of"
    phrase: Phrase = (("figure", step), ("say", f", {word} "), ("name", divergence.name))
    return (
        phrase
        if divergence.process == "main"
        else (*phrase, ("say", " in process "), ("name", divergence.process))
    )


def how_far(divergence: Divergence) -> Phrase:
    """Type, shape and distances of a divergence; empty where nothing is known."""
    parts: list[Phrase] = []
    if divergence.dtype is not None:
        parts.append(
            (
                (
                    "name",
                    divergence.dtype
                    + (
                        " " + numbers.shape(divergence.shape)
                        if divergence.shape is not None
                        else ""
                    ),
                ),
            )
        )
    if divergence.values is not None:
        first, second = (
            value if isinstance(value, str) else repr(value) for value in divergence.values
        )
        parts.append((("name", first), ("say", " against "), ("name", second)))
    parts.extend((("figure", text),) for text in apart(divergence))
    if divergence.detail:
        parts.append((("message", divergence.detail),))
    return joined(parts)


def distances(divergence: Divergence) -> tuple[str, str, str, str]:
    """Largest absolute difference, ULP, L2 and relative L2 as text; empty what does not exist."""
    far = divergence
    small = [
        "" if value is None else numbers.small(value)
        for value in (far.max_abs, far.l2, far.relative_l2)
    ]
    return small[0], "" if far.max_ulp is None else numbers.ulps(far.max_ulp), small[1], small[2]


def apart(divergence: Divergence) -> list[str]:
    """The distances that exist, each with its name."""
    names = ("max abs ", "", "L2 ", "relative L2 ")
    return [name + text for name, text in zip(names, distances(divergence), strict=True) if text]


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
    return (("figure", numbers.of(comparison.differing, comparison.tensors)), ("say", text))


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
        numbers.count(counts[kind], *words) for kind, words in _COUNTED.items() if counts.get(kind)
    )


def bound(report: Report) -> str:
    """Return what equal runs exclude at 95 %, as `3 of 3 identical; …`, or how many ended badly;
    empty where they differ."""
    if (found := report.determinism) is None or not found.identical:
        return ""
    counted = f"{numbers.of(found.runs, found.runs + found.failed)} identical"
    if found.bound_pct is None:
        return f"{counted}, {found.failed} ended badly"
    return f"{counted}; a fault in more than {found.bound_pct:.0f} % of runs would have shown (95 % sure)"


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
    """The noise floor: what happens without the flags."""
    if floor is None:
        return (("say", "not measured (how far two runs without flags drift apart)"),)
    if floor.identical:
        return (("say", "zero: this workload repeats its bits here without the flags"),)
    first, step = floor.first_divergence, floor.first_step
    when = "" if step is None else " before the first step" if step < 0 else f" from step {step} on"
    start: Phrase = (("say", "two runs without flags diverge" + when),)
    if first is not None:
        start = (("say", "two runs without flags diverge "), *_without_flags(floor, first))
    found = (
        None if floor.loss_gap is None else f"loss gap {numbers.small(floor.loss_gap)}",
        None if floor.weight_l2 is None else f"weights {numbers.small(floor.weight_l2)} apart (L2)",
        None
        if floor.weight_relative_l2 is None
        else f"relative {numbers.small(floor.weight_relative_l2)}",
    )
    figures_found = ", ".join(text for text in found if text is not None)
    return (*start, *((("say", ": "), ("figure", figures_found)) if figures_found else ()))


def coverage(checklist: Sequence[CheckResult]) -> tuple[tuple[str, int, int], ...]:
    """(category, checks that passed, checks that were made) in the design's order. A skipped check
    was not made."""

    def tally(category: str) -> tuple[str, int, int]:
        made = [item for item in checklist if item.category == category and item.status != "skip"]
        return category, sum(item.status == "pass" for item in made), len(made)

    return tuple(tally(category) for category in CATEGORIES)


def checks(checklist: Sequence[CheckResult]) -> Phrase:
    """Return how many checks passed, the ids of those that did not, and what was never declared;
    empty if none was made."""
    made = [item for item in checklist if item.status != "skip"]
    passed = sum(item.status == "pass" for item in made)
    phrase: Phrase = (("figure", numbers.of(passed, len(made))), ("say", " passed"))
    for status in ("fail", "warn", "waived"):
        ids = [item.id for item in made if item.status == status]
        if ids:
            listing = ("message", listed([for_terminal(name, 60) for name in ids], 6))
            phrase += (("say", f"; {len(ids):,} "), ("status", status), ("say", ": "), listing)
    if missing := undeclared(checklist).partition(" (")[0]:
        phrase += (("say", f"; {missing}"),)
    return phrase if made else ()


def undeclared(checklist: Sequence[CheckResult]) -> str:
    """`not declared: image, lockfile (https://…)`; empty where everything is declared that a check
    asks for."""
    words = sorted(_UNDECLARED[item.id] for item in checklist if is_undeclared(item))
    return f"not declared: {', '.join(words)} ({DOCS_URL}/checks/README.md)" if words else ""


def is_undeclared(item: CheckResult) -> bool:
    """Whether a check had nothing to look at because the spec never mentions it."""
    return item.status == "skip" and item.id in _UNDECLARED


def worst_first(checklist: Sequence[CheckResult]) -> list[CheckResult]:
    """What did not pass comes first, in an order that is the same in every renderer: it must not be
    cut."""
    return sorted(checklist, key=lambda item: _WORST_FIRST.index(item.status))


def ended_badly(run: RunSummary) -> bool:
    """Whether a run ended in another way than by finishing or by being stopped at `train.steps`."""
    return run.outcome not in _ENDED_WELL


def outcome(run: RunSummary) -> str:
    """How a run ended, with its exit code where it says more."""
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
