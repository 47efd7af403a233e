"""The report's sentences, which the terminal and the Markdown share.

Each function returns a Phrase: parts of text with a role. The role separates our own words (`say`,
`figure`) from text of the training (`name`), so that each renderer can style and escape them in its
own way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from string import Formatter

from repro_gate.checks.interface import CATEGORIES, CheckResult
from repro_gate.compare.change import SIZE_WORDS, Change
from repro_gate.compare.effect import Effect
from repro_gate.compare.model import (
    KINDS,
    STEPS,
    Comparison,
    Divergence,
    NoiseFloor,
)
from repro_gate.diagnosis.robustness import conditions_of
from repro_gate.escape import clip, counted, listed
from repro_gate.report import numbers
from repro_gate.report.model import Determinism, Reason, Report, RunSummary
from repro_gate.runs.results import OF_COST
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
    "rng": "generator state",
    "gradient": "gradient of",
    "optimizer": "optimizer state of",
}
_UNDECLARED = {"env/image-digest": "image", "env/lockfile": "lockfile"}
_ENDED_WELL = ("finished", "stopped")
_WORST_FIRST = ("fail", "warn", "waived", "skip", "pass")
_RESULTS = {"better": "better", "worse": "worse", "none-shown": "no effect shown"}
_UNMATCHED = 3  # names in a sentence on a change
# With a smaller correlation of both sides, pairing them by seed does not help.
_PAIRED = 0.3
HEADING = 160  # characters of a reason in the headline
ROBUST = "random-state/robust"
TOLERATED = "not bitwise identical, but within the tolerance of the spec"
# reasons that are told by how the runs diverge
_OF_RUNS = (
    "determinism/diverged",
    "determinism/crashed",
    "determinism/outside-tolerance",
)


def headline(report: Report) -> Phrase:
    """Return the sentence behind the verdict; it names what failed. The only texts from outside are
    a reason and the line of a proven cause."""
    pair = report.determinism
    if (reason := headline_reason(report)) is not None:
        return say(clip(reason.message.rstrip(". "), HEADING), "message")
    if pair is None:
        runs = counted(len(report.runs), "run")
        steps = counted(max((run.steps for run in report.runs), default=0), "step")
        return say(f"{runs} of {steps}; nothing was compared")
    if report.is_conditional:
        return _condition(report)
    if _fails_by_shell(report):
        return phrase("the runs agree {}", _condition(report))
    if not pair.identical:
        return _diverging_headline(report, pair)
    if drifted(report):
        return say("two runs agree but differ from the baseline")
    seeds = len(pair.seeds)
    tensors, steps = counted(pair.tensors, "tensor"), counted(pair.steps, "step")
    seed = f"seed {pair.seed}" if seeds <= 1 else counted(seeds, "seed")
    more = ""
    change = report.change
    is_new = report.baseline and report.baseline.status == "new-platform"
    if is_new and change and change.size == "rounding":
        more = f"; beside another platform {SIZE_WORDS['rounding']}"
    return say(f"bitwise identical: {tensors}, {steps}, {seed}{more}")


def headline_reason(report: Report) -> Reason | None:
    """Return the reason that the headline tells: the first one, unless the runs diverge, drift or
    agree only under a condition, which the headline says in its own words."""
    if not report.reasons or report.verdict == "pass" or drifted(report):
        return None
    first = report.reasons[0]
    is_of_runs = diverged(report) and first.id in _OF_RUNS
    return None if is_of_runs or _fails_by_shell(report) else first


def _fails_by_shell(report: Report) -> bool:
    """Return whether the gate fails first because the runs agree only in one shell."""
    ids = [item.id for item in report.reasons]
    return report.robust is False and ids[:1] == [ROBUST]


def _condition(report: Report) -> Phrase:
    """Return `only with PYTHONHASHSEED=42: without it the runs differ because of train.py:8`."""
    pair = report.determinism
    why = report.diagnosis
    conditions = conditions_of(why) if why else []
    if why is None or why.one_of or not conditions:
        return say("only while nothing around the training changes")
    seed = str(pair.seed % 2**32) if pair else ""  # as the gate sets it
    every = joined([phrase(item, message=seed) for item in conditions], " and ")
    it = "it" if len(conditions) == 1 else "them"
    line = phrase(f"only with {{}}: without {it} the runs differ", every)
    for item in (why, *why.also):
        if item.file:
            place = notebook.place(item.file, item.line)
            return phrase("{} because of {name}", line, name=place)
    return line


def drifted(report: Report) -> bool:
    """Return whether the gate fails because two runs agree but differ from the baseline of the same
    inputs."""
    pair = report.determinism
    status = report.baseline and report.baseline.status
    return (report.verdict, pair and pair.identical, status) == ("fail", True, "drift")


def diverged(report: Report) -> bool:
    """Return whether two runs were compared and are not bitwise identical."""
    return report.determinism is not None and not report.determinism.identical


def _diverging_headline(report: Report, pair: Determinism) -> Phrase:
    first = pair.first_divergence
    if report.verdict == "pass":
        return say(TOLERATED)
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
    label = plain_text(quantity(divergence)).removeprefix("the ")
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
    on_node = " on {name2}" if divergence.node else ""
    words = "{} in process {name}" + on_node
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


def where_and_how_far(divergence: Divergence | None) -> Phrase:
    """Return place and distances of a divergence; empty if there is none."""
    return joined([where(divergence), how_far(divergence)], ": ")


def distances(divergence: Divergence) -> list[str]:
    """Return the known distances, each with its name."""
    figures = {
        "max abs ": divergence.max_abs,
        "": divergence.max_ulp,  # whose unit says what it is
        "L2 ": divergence.l2,
        "relative L2 ": divergence.relative_l2,
    }
    return [
        name + (numbers.small(value) if name else numbers.ulps(int(value)))
        for name, value in figures.items()
        if value is not None
    ]


def spread(comparison: Comparison) -> Phrase:
    """Return `differing: loss 1 of 1, gradient 14 of 20, in 47 of 50 steps`; empty if there are no
    tallies."""
    tallies = ((kind, comparison.by_kind.get(kind)) for kind in KINDS)
    kinds = ", ".join(
        f"{kind} {numbers.of(tally.differing, tally.tensors)}"
        for kind, tally in tallies
        if tally and tally.differing
    )
    if not kinds:
        return ()
    steps = comparison.differing_steps
    whole = counted(max(comparison.steps, steps), "step")
    share = f", in {steps:,} of {whole}" if steps else ""
    return phrase(f"differing: {{figure}}{share}", figure=kinds)


def compared(report: Report) -> str:
    """Return `2 batches, 10 gradients, 10 parameters, 4 artifacts`: what was compared in equal
    runs; empty if they differ."""
    pair = report.determinism
    if pair is None or not pair.identical:
        return ""
    counts = {kind: tally.tensors for kind, tally in pair.by_kind.items()}
    files = max((run.artifacts for run in report.runs), default=0)
    if files and counts.get("artifact"):
        counts["artifact"] = files
    nouns = {kind: _KIND_WORDS.get(kind, kind).removesuffix(" of") for kind in KINDS}
    return ", ".join(
        counted(counts[kind], noun) for kind, noun in nouns.items() if counts.get(kind)
    )


def bound(report: Report) -> str:
    """Return `3 of 3 identical; …`: which rate of faults equal runs exclude at 95 %, or how many
    runs ended badly. Empty if runs differ."""
    if (pair := report.determinism) is None or not pair.identical:
        return ""
    steps = counted(pair.steps, "step")
    same = f"{numbers.of(pair.runs, pair.runs + pair.failed)} identical over {steps}"
    if pair.bound_pct is None:
        return f"{same}, {pair.failed} ended badly"
    least = f"{pair.bound_pct:.0f} %"
    return f"{same}; a fault in more than {least} of such runs would have shown (95 % sure)"


def non_finite(report: Report) -> str:
    """Return `not finite: nan at step 7, inf at step 8`; empty if all losses are finite."""
    lost = report.determinism.non_finite if report.determinism else ()
    each = [f"{value} at step {step}" for step, value in lost]
    return f"not finite: {listed(each, 10)}" if each else ""


def seeds(report: Report) -> str:
    """Return `1 same, 2 differs`: whether the runs of each seed are bitwise identical; empty if
    there is only one seed."""
    seeds = report.determinism.seeds if report.determinism else ()
    each = [f"{item.seed} {'same' if item.identical else 'differs'}" for item in seeds]
    return listed(each, 20) if len(each) > 1 else ""


def noise(floor: NoiseFloor | None) -> Phrase:
    """Return what happens without the flags; empty if that was not measured."""
    if floor is None:
        return ()
    if floor.identical:
        return say(
            "zero: here the training is bitwise identical even without the flags"
        )
    first = floor.first_divergence
    when = place_of(first, first.step + 1) if first else ""
    measured = {
        "loss gap {}": floor.loss_gap,
        "weights {} apart (L2)": floor.weight_l2,
        "relative {}": floor.weight_relative_l2,
    }
    figures = ", ".join(
        words.format(numbers.small(value))
        for words, value in measured.items()
        if value is not None
    )
    words = "two runs without flags diverge"
    if when:
        words += " {message}"
    if figures:
        words += ": {figure}"
    return phrase(words, message=when, figure=figures)


def coverage(checklist: Sequence[CheckResult]) -> list[tuple[str, int, int]]:
    """Return (category, checks that passed, checks that were made). A skipped check was not
    made."""

    passed = Counter(item.category for item in checklist if item.status == "pass")
    made = Counter(item.category for item in checklist if item.status != "skip")
    return [(name, passed[name], made[name]) for name in CATEGORIES]


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
    missing = sorted(_UNDECLARED[item.id] for item in checklist if is_undeclared(item))
    undeclared = f"; not declared: {', '.join(missing)}" if missing else ""
    return (*line, *say(undeclared))


def is_undeclared(item: CheckResult) -> bool:
    """Return whether a check was skipped because the spec does not declare its subject."""
    return item.status == "skip" and item.id in _UNDECLARED


def worst_first(checklist: Sequence[CheckResult]) -> list[CheckResult]:
    """Return the results, the worst first. A list may be cut at its end, so failures must not be
    there."""
    return sorted(checklist, key=lambda item: _WORST_FIRST.index(item.status))


def ended_badly(run: RunSummary) -> bool:
    """Return whether a run neither finished nor was stopped at `train.steps`; one that only the
    cost needs decides nothing, and `cost.why` says how it ended."""
    return not run.name.startswith(OF_COST) and run.outcome not in _ENDED_WELL


def outcome(run: RunSummary) -> str:
    """Return how a run ended, with its exit code if that adds something."""
    is_code = run.exit_code and ended_badly(run)
    return f"{run.outcome} (exit {run.exit_code})" if is_code else run.outcome


def joined(phrases: Iterable[Phrase], separator: str = ", ") -> Phrase:
    """Return the phrases joined by `separator`, without empty ones."""
    parts: Phrase = ()
    for phrase in filter(None, phrases):
        parts += (("say", separator), *phrase) if parts else phrase
    return parts


def roundings(count: float) -> str:
    """Return a distance as a multiple of the effect of rounding."""
    number = f"{count:.1f}" if count < 100 else f"{count:,.0f}"
    number = number if count < 1e9 else f"{count:.1e}"
    return f"{number} rounding{'' if number == '1.0' else 's'}"


def size_of(change: Change) -> str:
    """Return how large a change is as a clause: `rounding only: 2.1 roundings at most`. Names in it
    are untrusted: the printer escapes them."""
    worst = change.worst
    first = change.first
    steps = counted(change.steps, "step")
    words = SIZE_WORDS[change.size]
    if change.size == "rounding" and worst and worst.roundings is not None:
        words += f": {roundings(worst.roundings)} at most in {steps}"
    elif first is not None:
        words += f", first {place_of(first.place, first.step + 1)}"
        by = first.roundings
        words += "" if by is None else f" by {roundings(by)}"
    parts = [words, change.detail, change.likely]
    if operator := change.operator:
        by = operator.roundings
        parts.append(
            f"{operator.name} in {operator.place or 'no line of the checkout'} first"
            + ("" if by is None else f", {roundings(by)}")
        )
    if change.unmatched:
        parts.append(f"on one side only: {listed(change.unmatched, _UNMATCHED)}")
    text = "; ".join(filter(None, parts))
    both = [it for it in change.distributions if " absent" not in it]
    moved = listed(both or change.distributions, _UNMATCHED)
    return f"{moved}: {text}" if moved else text


def effect(item: Effect) -> str:
    """Return what a change does to a metric, how sure that is, and what more seeds would show."""
    if item.difference is None or item.ci95 is None:
        return f"{item.metric}: {item.why}"
    low, high = (f"{end:+.3g}" for end in item.ci95)
    interval = f"95 %: {low} to {high}, {counted(item.seeds, 'paired seed')}"
    parts = [
        f"{item.metric} {item.difference:+.3g} ({interval}): {_RESULTS[item.result]}"
    ]
    if item.spread is not None:
        parts.append(f"another seed alone moves it by {item.spread:.3g}")
    # a difference that is nothing beside the spread needs no seeds
    is_seen = item.smallest or abs(item.difference) > (item.spread or 0.0) / 10
    if item.needed is not None and item.result == "none-shown" and is_seen:
        wanted = item.smallest or abs(item.difference)
        seeds = counted(item.needed, "seed")
        parts.append(f"{seeds} would show an effect of {wanted:.3g}")
    if item.correlation is not None and item.correlation < _PAIRED:
        parts.append("pairing by seed does not help here")
    return ", ".join(filter(None, [*parts, item.why]))
