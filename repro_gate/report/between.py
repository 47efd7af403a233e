"""What changed between two reports, for a terminal: a row for each value that is not the same, side
by side, and how many are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from repro_gate.baseline.changes import changed_inputs
from repro_gate.checks.interface import CheckResult
from repro_gate.compare.model import Cost
from repro_gate.escape import and_more, listed
from repro_gate.report import causes, comparisons, costs, numbers, wording
from repro_gate.report.model import PLAIN, Report, View
from repro_gate.report.widgets import STATUS_STYLE, printed, say, text, verdict_badge
from repro_gate.report.wording import Phrase

_ROWS, _FEW = 40, 5  # values of one kind (checks, inputs, versions); entries of a list in one value
_NONE: Phrase = (("say", "none"),)


@dataclass(frozen=True)
class _Row:
    """One value of both reports."""

    label: Phrase
    a: Text
    b: Text
    same: bool  # of what the reports hold, which may be longer than what is shown


def render(a: Report, b: Report, names: tuple[str, str], view: View = PLAIN) -> str:
    """Two reports side by side: the verdicts, then only what differs. `names` are the files. It
    prints whatever the texts hold."""
    kinds = [list(kind(a, b)) for kind in _KINDS]
    changed = [[row for row in kind if not row.same] for kind in kinds]
    equal = sum(map(len, kinds)) - sum(map(len, changed))
    return printed(view, *_parts(a, b, names, changed, equal))


def _parts(
    a: Report, b: Report, names: tuple[str, str], changed: Sequence[Sequence[_Row]], equal: int
) -> Iterator[RenderableType]:
    differing, rows = sum(map(len, changed)), [row for kind in changed for row in kind[:_ROWS]]
    badges = verdict_badge(a.verdict)
    if a.verdict != b.verdict:
        badges.append(" -> ").append_text(verdict_badge(b.verdict))
    said = (
        f"{numbers.count(differing, 'value')} changed, {equal:,} equal"
        if rows
        else f"nothing changed: all {equal:,} values are equal"
    )
    yield Text("", overflow="fold").append_text(badges).append("  ").append_text(say(said, "bold"))
    yield Text("")
    table = Table.grid(padding=(0, 2, 0, 0), expand=False)
    for _ in range(3):
        table.add_column(overflow="fold")
    for title, left, right in _titles(a, b, names):
        table.add_row(say(title, "dim"), left, right)
    if rows:
        table.add_row("")
    for row in rows:
        table.add_row(text(row.label), row.a, row.b)
    yield table
    if more := and_more(differing - len(rows)):
        yield say(more, "dim")


def _titles(a: Report, b: Report, names: tuple[str, str]) -> Iterator[tuple[str, Text, Text]]:
    """Which two reports these are: equal or not, that is no finding."""
    yield "", text((("name", names[0]),)), text((("name", names[1]),))
    yield "started", text((("message", a.started),)), text((("message", b.started),))


def _row(label: str, a: Phrase, b: Phrase, *, same: bool = True) -> _Row:
    return _Row((("say", label),), text(a or _NONE), text(b or _NONE), same and a == b)


def _outcome(a: Report, b: Report) -> Iterator[_Row]:
    """What was found: divergence, cause, noise floor, cost."""
    yield _row("verdict", *((("say", item.verdict),) for item in (a, b)))
    ids = [tuple(reason.id for reason in item.reasons) for item in (a, b)]
    yield _row(
        "reasons",
        *(wording.joined([(("name", name),) for name in found[:_ROWS]]) for found in ids),
        same=ids[0] == ids[1],
    )
    yield _row("result", *(_result(item) for item in (a, b)))
    yield _row("digests", *(_digests(item) for item in (a, b)), same=_bits(a) == _bits(b))
    yield _row("diverges at", *(_first(item, wording.where) for item in (a, b)))
    yield _row("how far", *(_first(item, wording.how_far) for item in (a, b)))
    yield _row("cause", *(_cause(item) for item in (a, b)))
    yield _row(
        "not finite",
        *((("message", wording.non_finite(item)),) if item.non_finite else () for item in (a, b)),
    )
    yield _row("noise floor", *(wording.noise(item.noise_floor) for item in (a, b)))
    price = _row("cost", *(costs.cost(item.cost, item.cost_budget_pct) for item in (a, b)))
    yield (
        price
        if price.same
        else _Row(price.label, price.a, price.b.copy().append(_overlap(a.cost, b.cost)), same=False)
    )
    for label, said in (("step times", costs.step_times), ("memory", costs.memory)):
        told = ("" if item.cost is None else said(item.cost) for item in (a, b))
        yield _row(label, *((("say", words),) if words else () for words in told))


def _result(report: Report) -> Phrase:
    found = report.determinism
    if found is None:
        return (("say", "not compared"),)
    pair = found.comparison
    if pair.identical:
        return (
            (
                "say",
                (
                    f"bitwise identical, {numbers.count(pair.tensors, 'tensor')}, "
                    f"{numbers.count(pair.steps, 'step')}"
                ),
            ),
        )
    return wording.spread(pair)


def _bits(report: Report) -> object:
    """All that the first deterministic run computed, as digests."""
    found = report.fingerprint
    return None if found is None else (found.seed, found.digest, found.by_step, dict(found.by_kind))


def _digests(report: Report) -> Phrase:
    found = report.fingerprint
    if found is None:
        return ()
    kinds = ", ".join(
        f"{kind} {digest[:8]}" for kind, digest in sorted(found.by_kind.items())[:_FEW]
    )
    return (("say", f"seed {found.seed}: "), ("message", kinds))


def _first(report: Report, said: Callable[..., Phrase]) -> Phrase:
    found = report.determinism
    return (
        ()
        if found is None or found.comparison.first_divergence is None
        else said(found.comparison.first_divergence)
    )


def _cause(report: Report) -> Phrase:
    return () if report.diagnosis is None else causes.why(report.diagnosis)[0]


def _overlap(a: Cost | None, b: Cost | None) -> str:
    """Whether two costs may be the same."""
    if a is None or b is None:
        return ""
    same = a.ci95[0] <= b.ci95[1] and b.ci95[0] <= a.ci95[1]
    return (
        "; the intervals overlap: no change is shown" if same else "; the intervals do not overlap"
    )


def _earlier(a: Report, b: Report) -> Iterator[_Row]:
    """What either said of the baseline, another ref, and its base."""
    for label, found in (
        ("baseline", (a.baseline, b.baseline)),
        ("against", (a.against, b.against)),
    ):
        yield _row(
            label,
            *(
                () if item is None else (("message", f"{item.status}: {item.message}"),)
                for item in found
            ),
        )
    keys = [
        [item.key for item in report.base.weakened] if report.base is not None else []
        for report in (a, b)
    ]
    yield _row(
        "weakened",
        *((("message", listed(found, _ROWS)),) if found else () for found in keys),
        same=keys[0] == keys[1],
    )


def _checks(a: Report, b: Report) -> Iterator[_Row]:
    """Every check by its id: its status, and its message where that changed."""
    first, second = ({item.id: item for item in report.checklist} for report in (a, b))
    for name in dict.fromkeys([*first, *second]):
        left, right = first.get(name), second.get(name)
        same = left is not None and right is not None and left.status == right.status
        shown = (
            (text((("message", left.status if left else ""),)),) * 2
            if same
            else (_status(left), _status(right))
        )
        yield _Row((("say", "check "), ("name", name)), *shown, same=same)


def _status(item: CheckResult | None) -> Text:
    if item is None:
        return say("not there", "dim")
    return text((("message", item.status),), STATUS_STYLE.get(item.status, "")).append_text(
        text((("say", ": "), ("message", item.message)))
    )


def _inputs(a: Report, b: Report) -> Iterator[_Row]:
    """The inputs of the config hash."""
    first, second = a.config_hash, b.config_hash
    yield _row(
        "config hash",
        *(() if found is None else comparisons.config_hash(found) for found in (first, second)),
    )
    if first is None or second is None:
        return
    try:
        moved = {(item.root, item.name): item for item in changed_inputs(first, second)}
    except ValueError:
        # a report is not believed: this one claims an input that no config hash is made of
        yield _row(
            "inputs", (("say", "cannot be compared"),), (("say", "one of them is no input"),)
        )
        return
    for root, before, after in (
        ("recipe", first.recipe_inputs, second.recipe_inputs),
        ("platform", first.platform_inputs, second.platform_inputs),
    ):
        for name in sorted(before.keys() | after.keys()):
            item = moved.get((root, name))
            values = ("", "") if item is None else (item.before, item.after)
            left, right = (
                say("none", "dim")
                if value is None
                else text((("message", comparisons.short(value)),))
                for value in values
            )
            yield _Row((("say", f"{root} "), ("name", name)), left, right, item is None)


def _setting(a: Report, b: Report) -> Iterator[_Row]:
    """What was gated, and in which environment."""
    for label, said in _SUBJECT.items():
        yield _row(label, *((("message", said(item)),) for item in (a, b)))
    paths = [item.subject.uncommitted for item in (a, b)]
    yield _row(
        "uncommitted",
        *((("message", listed(found, _FEW)),) if found else () for found in paths),
        same=paths[0] == paths[1],
    )
    yield from _by_name("", a.subject.versions, b.subject.versions)
    yield from _by_name("flag ", a.settings, b.settings)
    yield _row("wall time", *((("say", numbers.duration(item.seconds)),) for item in (a, b)))


_SUBJECT: Mapping[str, Callable[[Report], str]] = {
    "spec": lambda item: item.subject.spec,
    "command": lambda item: item.subject.command,
    "commit": lambda item: comparisons.short(item.subject.commit or "none"),
    "seeds": lambda item: listed([str(seed) for seed in item.subject.seeds], _ROWS),
    "sandbox": lambda item: item.subject.sandbox,
    "repro-gate": lambda item: item.tool_version,
}


def _by_name(prefix: str, a: Mapping[str, object], b: Mapping[str, object]) -> Iterator[_Row]:
    for name in dict.fromkeys([*a, *b]):
        left, right = (
            text((("message", str(item[name])),)) if name in item else say("none", "dim")
            for item in (a, b)
        )
        yield _Row(
            (("say", prefix), ("name", name)),
            left,
            right,
            name in a and name in b and a[name] == b[name],
        )


_KINDS = (_outcome, _earlier, _checks, _inputs, _setting)
