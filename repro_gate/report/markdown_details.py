"""What comes below the comment's first table, as much of each part as the Form allows: in a comment
what a reviewer acts on, in a summary all.

Whatever is Markup here has been made safe or is our own.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from textwrap import dedent

from markupsafe import Markup

from repro_gate import escape
from repro_gate.baseline.config_hash import ConfigHash
from repro_gate.checks.pages import url
from repro_gate.compare.model import Comparison
from repro_gate.diagnosis.model import Diagnosis
from repro_gate.report import causes, comparisons, costs, numbers, wording
from repro_gate.report.markdown_rows import told
from repro_gate.report.markdown_text import MARKS, Form, code, message, prose, status
from repro_gate.report.model import Reason, Report, RunSummary
from repro_gate.report.text_map import text_map

_SEEN = 5  # weakened checks that a comment shows without a click
_INPUTS, _EVIDENCE = 1_000, 25  # of a page of its own


def details(report: Report, form: Form) -> dict[str, object]:
    """What the template shows below the first table, by the template's names."""
    found, base = report.determinism, report.base
    differs = None if found is None or found.comparison.identical else found.comparison
    weakened = [] if base is None else base.weakened[: form.rows]
    lines = [
        (prose(comparisons.weakening(item), form), message(item.message, form)) for item in weakened
    ]
    seen = len(lines) if form.open else _SEEN
    known = () if form.whole else told(report)
    reasons = [item for item in report.reasons if item not in known] if form.table else []
    return {
        "fold": Markup("<details open>" if form.open else "<details>"),
        "changes": [] if form.table else _changes(report, form),
        "excerpt": _excerpt(report.diagnosis) if form.figures else None,
        "weakened": lines[:seen],
        "weakened_besides": lines[seen:],
        "more_weakened": 0 if base is None else len(base.weakened) - form.rows,
        "judge": None if base is None else prose(comparisons.base_policy(base), form),
        "reasons": _reasons(reasons[: form.rows], form),
        "more_reasons": len(reasons) - form.rows,
        "background": _background(report, form),
        "heat_map": _heat_map(differs, form) or _noise_map(report, form),
        "differs": _differs(differs, form) if form.whole and differs is not None else None,
        "reproduce": _block(report.reproduce, "sh")
        if 0 < len(report.reproduce) <= form.reproduce
        else None,  # half a command is none
        "compared": _compared(report, form),
        "config_hash": None
        if report.config_hash is None or not form.whole
        else _config_hash(report.config_hash, form),
        "notes": _reasons(report.notes[: form.rows], form) if form.whole else [],
        "cost_details": _cost_details(report, form) if form.whole else [],
        "logs": _logs(report.runs, form),
        **_checks(report, form),
        **_setting(report, form),
        "tool_version": code(report.tool_version, form),
        "started": code(report.started, form),
        "seconds": report.seconds,
    }


def _changes(report: Report, form: Form) -> list[Markup]:
    """What a comment of one line says of the baseline and of another ref, where there is something
    new."""
    found = [
        ("", report.baseline),
        (
            f"against {escape.for_code_span(report.against.ref)}, " if report.against else "",
            report.against,
        ),
    ]
    return [
        Markup(start) + status(item.status, item.message, form)
        for start, item in found
        if item and item.status != "unchanged"
    ]


def _block(text: str | None, language: str) -> Markup | None:
    return None if text is None else Markup(escape.for_code_block(text, language))


def _excerpt(found: Diagnosis | None) -> Markup | None:
    """The cause's line, marked, with those around it."""
    if found is None or not found.excerpt:
        return None
    digits = max(len(str(number)) for number, _ in found.excerpt)
    texts = dedent(
        "\n".join(text.expandtabs(4).replace("\n", " ") for _, text in found.excerpt)
    ).split("\n")
    marked = ((">" if number == found.line else " ", number) for number, _ in found.excerpt)
    lines = (
        f"{mark} {number:>{digits}}  {escape.clip(text, 120)}".rstrip()
        for (mark, number), text in zip(marked, texts, strict=True)
    )
    return _block("\n".join(lines), "text")


def _heat_map(pair: Comparison | None, form: Form) -> Markup | None:
    if pair is None or pair.heat_map is None or not form.map_rows:
        return None
    return _block(
        text_map(pair.heat_map, pair.first_divergence, rows=form.map_rows) or None, "text"
    )


def _noise_map(report: Report, form: Form) -> Markup | None:
    """Where runs without the flags differ: for a page of its own."""
    floor = report.noise_floor
    if floor is None or floor.heat_map is None or floor.identical or not form.whole:
        return None
    return _block(
        text_map(floor.heat_map, floor.first_divergence, rows=form.map_rows) or None, "text"
    )


def _reasons(reasons: Sequence[Reason], form: Form) -> list[tuple[Markup, Markup, Markup]]:
    """Id (a link to its documentation where it is one of ours), message and remedy."""
    found = []
    for item in reasons:
        page, name = url(item.id), code(item.id, form)
        found.append(
            (
                name if page is None else Markup(f"[{name}]({page})"),
                message(item.message, form),
                message(item.remedy, form),
            )
        )
    return found


def _background(report: Report, form: Form) -> list[Markup]:
    """How the cause was found."""
    return (
        [prose(line, form) for line in causes.background(report.diagnosis)]
        if report.diagnosis is not None and form.whole
        else []
    )


def _differs(pair: Comparison, form: Form) -> dict[str, object]:
    """What the section on the difference shows."""
    first = pair.first_divergence
    weights = []
    for item in pair.weights[: form.rows]:
        max_abs, ulps, _, relative = wording.distances(item)
        kind = code(f"{item.dtype or '?'} {numbers.shape(item.shape or ())}", form)
        weights.append((code(item.name, form), kind, max_abs, ulps, relative))
    return {
        "where": "" if first is None else prose(wording.where(first), form),
        "how_far": "" if first is None else prose(wording.how_far(first), form),
        "spread": prose(wording.spread(pair), form),
        "kinds": wording.kinds(pair),
        "weights": weights,
        "more_weights": len(pair.weights) - len(weights),
    }


def _compared(report: Report, form: Form) -> list[tuple[str, list[Markup], Markup]]:
    """Title, lines and remedy of what is behind the baseline's and the other ref's status."""
    found = []
    if report.baseline is not None:
        lines = comparisons.baseline_lines(report.baseline, form.changed_inputs)
        found.append(("Against the baseline", lines, message(report.baseline.remedy, form)))
    if report.against is not None:
        found.append(
            (
                "Against another ref",
                comparisons.against_lines(report.against, form.changed_inputs),
                Markup(""),
            )
        )
    shown = [
        (title, [prose(line, form) for line in lines] if form.changed_inputs else [], remedy)
        for title, lines, remedy in found
    ]
    return [item for item in shown if item[1] or item[2]]


def _config_hash(found: ConfigHash, form: Form) -> dict[str, object]:
    return {
        "roots": [(name, code(root, form)) for name, root in comparisons.roots(found)],
        "inputs": [
            (root, code(name, form), code(value, form))
            for root, name, value in islice(comparisons.inputs(found), _INPUTS)
        ],
        "more": len(found.recipe_inputs) + len(found.platform_inputs) - _INPUTS,
    }


def _cost_details(report: Report, form: Form) -> list[Markup]:
    price = report.cost
    spent = costs.times_spent(report)
    time = [Markup(f"`{costs.time_bar(report)}` {spent}")] if spent else []
    if price is None:
        return time
    lines = [Markup(line) for line in (costs.step_times(price), costs.memory(price)) if line]
    if price.suspicious is not None:
        lines.append(Markup(f"{MARKS['warn']} **suspicious:** ") + message(price.suspicious, form))
    return [*lines, *time]


def _checks(report: Report, form: Form) -> dict[str, object]:
    rows = form.rows if form.figures else 0
    wanted = ("pass", "waived", "warn", "fail") if form.whole else ("warn", "fail")
    made = [item for item in wording.worst_first(report.checklist) if item.status in wanted]
    skipped = [
        item
        for item in report.checklist
        if item.status == "skip" and not wording.is_undeclared(item)
    ]
    return {
        "checks": [
            {
                "id": code(item.id, form),
                "status": item.status,
                "message": message(item.message, form),
                "remedy": message(item.remedy, form)
                if item.status in ("warn", "fail")
                else Markup(""),
                "evidence": [
                    code(text, form) for text in item.evidence[: _EVIDENCE if form.whole else 2]
                ],
            }
            for item in made[:rows]
        ],
        "skipped": Markup(", ").join(code(item.id, form) for item in skipped[:rows])
        if form.whole
        else "",
        "undeclared": Markup(wording.undeclared(report.checklist)) if form.whole else "",
    }


def _logs(runs: Sequence[RunSummary], form: Form) -> list[tuple[Markup, Markup | None]]:
    """The end of the log of each run that ended badly, in a comment of the first alone."""
    found = []
    for run in [run for run in runs if run.log_tail and wording.ended_badly(run)][
        : (5 if form.whole else 1) if form.log_lines else 0
    ]:
        lines = "\n".join(escape.clip(line, form.name) for line in run.log_tail[-form.log_lines :])
        found.append((code(run.name, form), _block(lines, "text")))
    return found


def _setting(report: Report, form: Form) -> dict[str, object]:
    """The runs, the flags as read back, what was gated and on what. Names of ours are not taken
    over by what the training reported."""
    subject = report.subject
    facts: dict[str, object] = {
        "spec": subject.spec,
        "command": subject.command,
        "commit": subject.commit or "not in git",
        **(
            {"uncommitted changes": escape.listed(subject.uncommitted, 10)}
            if subject.uncommitted
            else {}
        ),
        "sandbox": subject.sandbox,
    }
    facts |= {name: value for name, value in sorted(subject.versions.items()) if name not in facts}
    rows = form.rows if form.whole else 0
    runs = report.runs[:rows]
    return {
        "runs": [
            (code(run.name, form), run, wording.ended_badly(run), wording.outcome(run)[:60])
            for run in runs
        ],
        "tables": [
            (
                title,
                [
                    (code(name, form), code(value, form))
                    for name, value in islice(values.items(), rows)
                ],
            )
            for title, values in (
                ("Flags as read back", dict(sorted(report.settings.items()))),
                ("Environment", facts),
            )
            if rows and values
        ],
    }
