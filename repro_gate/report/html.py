"""The Report as one static page: no script, nothing loaded from elsewhere, readable without a
stylesheet, in at most MAX_BYTES.

Text from outside passes `drawing.shown` and is escaped by the template engine; only drawings and
phrases made here are Markup.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import islice
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from repro_gate.baseline.config_hash import ConfigHash
from repro_gate.checks.pages import url
from repro_gate.compare.model import Divergence
from repro_gate.diagnosis.model import Diagnosis
from repro_gate.report import (
    causes,
    comparisons,
    costs,
    drawing,
    drawn_map,
    html_figures,
    numbers,
    wording,
)
from repro_gate.report.drawing import shown
from repro_gate.report.findings import address
from repro_gate.report.model import PLAIN, Report, Subject, View
from repro_gate.report.wording import Phrase

MAX_BYTES = 1024 * 1024
_ROWS = (200, 60, 15)  # rows of a list; fewer where the page would be too large
_TEXT = (600, 300, 120)  # characters of one text
_CATEGORY_MARKS = {"pass": "✓", "warn": "!", "fail": "✗", "skip": "–", "waived": "w"}


def render(report: Report, view: View = PLAIN) -> str:
    """The page as text, in at most MAX_BYTES of UTF-8: what is too large is drawn coarser and cut
    shorter, and the page says so."""
    for shorter, (rows, text) in enumerate(zip(_ROWS, _TEXT, strict=True)):
        page = _rendered(report, view, rows, text, shortened=shorter > 0)
        if len(page.encode()) <= MAX_BYTES:
            return page
    bare = Report(
        verdict=report.verdict,
        tool_version="",
        started="",
        seconds=0.0,
        subject=Subject(spec="", command="", commit=None),
    )
    return _rendered(bare, PLAIN, _ROWS[-1], _TEXT[-1], shortened=True)


@cache
def _environment(limit: int) -> Environment:
    """`limit`: characters of one text from outside."""
    environment = Environment(
        loader=PackageLoader("repro_gate.report", "templates"),
        autoescape=True,
        finalize=lambda value: value if isinstance(value, Markup) else shown(value, limit),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        duration=numbers.duration,
        thousands="{:,}".format,
        prose=lambda words: drawing.prose(words, limit),
    )
    return environment


def _rendered(report: Report, view: View, rows: int, text: int, *, shortened: bool) -> str:
    """The template's context, section by section in the page's order."""
    found, base = report.determinism, report.base
    differs = None if found is None or found.comparison.identical else found.comparison
    first = differs.first_divergence if differs is not None else None

    def said(phrase: Phrase) -> Markup:
        return _phrase(phrase, text)

    context: dict[str, object] = {
        "title": f"Repro Gate: {report.verdict}",
        "verdict": report.verdict,
        "headline": said(wording.headline(report)),
        "why": [said(line) for line in causes.why(report.diagnosis)]
        if report.diagnosis is not None
        else [],
        "excerpts": _excerpts(report, view),
        "remedy": _remedy(report),
        "reasons": [
            (item.id, _documented(item.id), item.message[: 4 * text], item.remedy)
            for item in report.reasons[:rows]
        ],
        "weakened": [
            (said(comparisons.weakening(item)), item.message)
            for item in (base.weakened if base else ())[:rows]
        ],
        "judge": said(comparisons.base_policy(base)) if base is not None else "",
        "facts": [(label, said(phrase)) for label, phrase in _facts(report, first)],
        "reproduce": report.reproduce,
        "maps": html_figures.maps(report, rows),
        "legend": drawn_map.legend(),
        "growth": html_figures.growth(report),
        "cost": html_figures.cost(report),
        "cost_said": said(costs.cost(report.cost)),
        "checklist": _checklist(report, rows, text),
        "hash": _config_hash(report.config_hash, rows, text),
        "compared": _compared(report, rows, said),
        "runs": [
            (run, wording.outcome(run), wording.ended_badly(run), run.log_tail[-rows // 6 :])
            for run in report.runs[:rows]
        ],
        "tables": _tables(report, rows, text),
        "diagnosis": report.diagnosis,
        "uses": report.diagnosis.uses[:rows] if report.diagnosis is not None else (),
        "operators": report.diagnosis.operators[:rows] if report.diagnosis is not None else (),
        "background": [said(line) for line in causes.background(report.diagnosis)]
        if report.diagnosis is not None
        else [],
        "notes": [
            (item.id, _documented(item.id), item.message[: 4 * text], item.remedy)
            for item in report.notes[:rows]
        ],
        "report": report,
        "run_url": quote(view.run_url, safe="/:?&=#%@+,;~-._")
        if view.run_url.startswith("https://")
        else "",
        "shortened": shortened,
        "marks": _CATEGORY_MARKS,
    }
    return (
        _environment(8_000 if not shortened else 2 * text)
        .get_template("page.html.j2")
        .render(context)
        .encode("utf-8", "backslashreplace")
        .decode("utf-8")
    )


def _phrase(phrase: Phrase, limit: int) -> Markup:
    """A shared sentence: names as code, figures bold, all else as text."""
    tags = {"name": "code", "figure": "strong"}
    parts = (
        drawing.tag(tags[role], shown(words, limit))
        if role in tags
        else drawing.prose(words, 4 * limit)
        for role, words in phrase
        if words
    )
    return Markup("").join(parts)


def _documented(identifier: str) -> str:
    """The address of an id's page; empty for one that is none of ours."""
    return url(identifier) or ""


def _facts(report: Report, first: Divergence | None) -> Iterable[tuple[str, Phrase]]:
    """Where, how far, how much, and what was compared."""
    found = report.determinism
    if first is not None and found is not None:
        yield "First to differ", wording.where(first)
        if far := wording.how_far(first):
            yield "How far", far
        yield "How much", wording.spread(found.comparison)
    if said := wording.compared(report):
        yield "Compared", (("say", said),)
        yield "Runs", (("say", wording.bound(report)),)
    if len(report.comparisons) > 1:
        words = ", ".join(
            f"{item.seed} {'same' if item.comparison.identical else 'differs'}"
            for item in report.comparisons[:50]
        )
        yield "Seeds", (("say", words),)
    if report.non_finite:
        yield "Loss", (("say", f"not finite: {wording.non_finite(report)}"),)
    if report.noise_floor is not None:
        yield "Without the flags", wording.noise(report.noise_floor)
    if report.cost is not None:
        yield "Determinism cost", costs.cost(report.cost)


def _remedy(report: Report) -> tuple[str, str] | None:
    """What to do, and the address of the page that says more."""
    if report.diagnosis is not None:
        return report.diagnosis.remedy, causes.page_of(report.diagnosis)
    said = next((item for item in report.reasons if item.remedy), None)
    return None if said is None else (said.remedy, _documented(said.id))


def _excerpts(report: Report, view: View) -> list[dict[str, object]]:
    """The lines around each cause, with the address of its line at the commit where that is
    known."""
    found = report.diagnosis
    causes_shown: Sequence[Diagnosis] = () if found is None else (found, *found.also)
    return [
        {
            "place": causes.place(item),
            "link": address(report, view, item),
            "lines": item.excerpt,
            "line": item.line,
        }
        for item in causes_shown[:4]
        if item.file
    ]


def _checklist(report: Report, rows: int, text: int) -> list[dict[str, object]]:
    """By category, the worst first; what the spec never mentions is one line."""
    worst = wording.worst_first(report.checklist)
    return [
        {
            "name": category,
            "count": numbers.of(passed, made) if made else "nothing checked",
            "checks": [
                (
                    item,
                    _documented(item.id),
                    [shown(line, text) for line in item.evidence[: rows // 4]],
                    len(item.evidence) - rows // 4,
                )
                for item in worst
                if item.category == category
            ][:rows],
        }
        for category, passed, made in wording.coverage(report.checklist)
    ]


def _config_hash(found: ConfigHash | None, rows: int, text: int) -> dict[str, object] | None:
    if found is None:
        return None
    return {
        "roots": comparisons.roots(found),
        "inputs": [
            (root, name, shown(value, text))
            for root, name, value in islice(comparisons.inputs(found), 2 * rows)
        ],
        "more": max(len(found.recipe_inputs) + len(found.platform_inputs) - 2 * rows, 0),
    }


def _compared(report: Report, rows: int, said: object) -> list[dict[str, object]]:
    """The baseline and another ref, with what changed since."""
    assert callable(said)
    found: list[dict[str, object]] = []
    if report.baseline is not None:
        lines = [said(line) for line in comparisons.baseline_lines(report.baseline, rows)]
        item = report.baseline
        told = report.diagnosis is None and any(
            reason.message == item.message for reason in report.reasons
        )
        row = {
            "title": "Since the baseline",
            "status": item.status,
            "message": item.message,
            "lines": lines,
            "remedy": item.remedy,
        }
        found.append({**row, "told": told})
    if report.against is not None:
        lines = [said(line) for line in comparisons.against_lines(report.against, rows)]
        title = (
            f"Against {shown(report.against.ref, 80)} at {comparisons.short(report.against.commit)}"
        )
        found.append(
            {
                "title": title,
                "status": report.against.status,
                "message": report.against.message,
                "lines": lines,
                "remedy": "",
                "told": False,
            }
        )
    return found


def _tables(report: Report, rows: int, text: int) -> list[tuple[str, list[tuple[str, str]]]]:
    """What was gated, on what, and under which flags."""
    subject = report.subject
    gated = {
        "spec": subject.spec,
        "command": subject.command,
        "commit": subject.commit or "not in git",
        "sandbox": subject.sandbox,
    }
    gated["seeds"] = ", ".join(map(str, subject.seeds[:50]))
    if subject.uncommitted:
        gated["uncommitted"] = ", ".join(subject.uncommitted[:10])
    named: tuple[tuple[str, Mapping[str, object]], ...] = (
        ("What was gated", gated),
        ("Environment", dict(sorted(subject.versions.items()))),
        ("Flags as read back", dict(sorted(report.settings.items()))),
    )
    return [
        (
            title,
            [(shown(name, 120), shown(value, text)) for name, value in islice(given.items(), rows)],
        )
        for title, given in named
        if given
    ]
