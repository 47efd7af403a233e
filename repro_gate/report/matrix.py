"""Several reports of one commit as one comment: a table with a row for each kind of machine, and
what fails below it.

Runs are compared within one machine only, so each row stands for itself; the verdict of all is that
of the worst.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

from markupsafe import Markup

from repro_gate.escape import clip, for_code_block, for_terminal
from repro_gate.report import causes, comparisons, costs, wording
from repro_gate.report.markdown import LIMIT, as_markdown
from repro_gate.report.markdown_text import MARKS, Form, code, message, prose
from repro_gate.report.model import PLAIN, Report, View
from repro_gate.report.sections import reason_items

_HEADER = ("Where", "Verdict", "First to differ", "Cause", "Determinism\u00a0cost", "Platform")
_WORST_FIRST = ("fail", "inconclusive", "pass")
# with so many reasons below each row, longest first
_FORMS = (
    (Form(name=120, message=400), 5),
    (Form(name=120, message=400), 0),
)
_NONE = Markup("–")


def render(reports: Sequence[Report], view: View = PLAIN) -> str:
    """The Markdown of a comment on `reports` (at least one), in the longest form that fits into
    `view.limit` characters. Rows are in the order of their names, whatever order the reports come
    in."""
    limit = LIMIT if view.limit is None else view.limit
    named = sorted(
        zip(_names(reports), reports, strict=True), key=lambda pair: (pair[0], pair[1].started)
    )
    short = f"{_heading(reports)}\nThe table is too long for this place: see each job's report.\n"
    texts = (*(_whole(named, view, form, rows) for form, rows in _FORMS), short)
    return next((text for text in texts if len(text) <= limit), verdict(reports)[:limit])


def verdict(reports: Sequence[Report]) -> str:
    """The worst verdict: one kind of machine that fails fails all."""
    return min((report.verdict for report in reports), key=_WORST_FIRST.index)


def _names(reports: Sequence[Report]) -> list[str]:
    """What tells each report from its siblings: the GPU, else the device; those of one kind by the
    report's folder, which is also the name of one whose training never came so far as to name a
    device. Untrusted text."""
    folders = [report.origin.name if report.origin is not None else "" for report in reports]
    devices = [
        report.subject.versions.get("gpu-model") or report.subject.versions.get("device") or ""
        for report in reports
    ]
    alone = [device if devices.count(device) == 1 else "" for device in devices]
    return [
        own or ", ".join(part for part in (device, folder) if part) or "unknown device"
        for own, device, folder in zip(alone, devices, folders, strict=True)
    ]


def _whole(named: Sequence[tuple[str, Report]], view: View, form: Form, rows: int) -> str:
    reports = [report for _, report in named]
    lines = [_heading(reports), f"| {' | '.join(_HEADER)} |", f"|{' :--- |' * len(_HEADER)}"]
    lines += [f"| {' | '.join(_row(name, report, form))} |" for name, report in named]
    for name, report in named:
        lines += _below(name, report, form, rows) if report.verdict != "pass" and rows else ()
    commit = (
        reports[0].origin.head_sha if reports[0].origin is not None else reports[0].subject.commit
    )
    foot = [Markup("Commit ") + code(comparisons.short(commit), form)] if commit else []
    if view.run_url:  # made of the runner's variables: what could end the link early is quoted
        foot.append(Markup(f"[workflow run](<{quote(view.run_url, safe='/:?&=#%@+,;~-._')}>)"))
    return "\n".join([*lines, *(["", Markup(" · ").join(foot)] if foot else []), ""])


def _heading(reports: Sequence[Report]) -> str:
    counts = ", ".join(
        f"{found} {word}"
        for word in _WORST_FIRST
        if (found := sum(report.verdict == word for report in reports))
    )
    overall = verdict(reports)
    return f"## {MARKS[overall]} Repro Gate: {overall} ({counts})\n"


def _row(name: str, report: Report, form: Form) -> list[str]:
    found, cause, address = report.determinism, report.diagnosis, report.config_hash
    if found is None:
        first = Markup("not compared")
    elif found.comparison.identical:
        first = Markup(f"nothing: {found.runs} runs, {found.comparison.steps:,} steps")
    else:
        divergence = found.comparison.first_divergence
        first = Markup("unknown") if divergence is None else prose(wording.where(divergence), form)
    why = _NONE
    if cause is not None:
        at = Markup(" in ") + code(causes.place(cause), form) if cause.file else Markup("")
        why = (
            Markup(f"[{cause.cause}]({causes.page_of(cause)})")
            + at
            + Markup(
                "" if cause.confirmed else " (observed)" if cause.observed else " (not proven)"
            )
        )
    elif report.reasons and (found is None or found.comparison.identical):
        why = message(report.reasons[0].message, form)
    platform = (
        _NONE
        if address is None
        else code(comparisons.short(address.platform).removeprefix("sha256:"), form)
    )
    mark = Markup(f"{MARKS[report.verdict]} {report.verdict}")
    return [
        code(name, form),
        mark,
        first,
        why,
        prose(costs.cost(report.cost), form),
        platform,
    ]


def _below(name: str, report: Report, form: Form, rows: int) -> list[str]:
    """What one row's report says against the change, folded. Markdown is not read inside a summary:
    there a name is HTML's code."""
    shown = Markup("<code>{}</code>").format(clip(for_terminal(name), form.name))
    lines = [
        "",
        f"<details><summary>{MARKS[report.verdict]} {shown}: why, and what to do</summary>",
        "",
        prose(wording.headline(report), form),
        "",
    ]
    lines.append(as_markdown(reason_items(report.reasons, rows), form))
    if 0 < len(report.reproduce) <= 2_000:  # half a command is none
        lines += ["", for_code_block(report.reproduce, "sh")]
    return [*lines, "", "</details>"]
