"""The checklist of `repro-gate check`, which trains nothing: for a terminal and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict

from rich.console import RenderableType
from rich.text import Text

from repro_gate import __version__
from repro_gate.checks.interface import STATUSES, CheckResult
from repro_gate.report import numbers, wording
from repro_gate.report.document import plain, to_text
from repro_gate.report.model import PLAIN, View
from repro_gate.report.sections import check_items
from repro_gate.report.terminal import laid_out
from repro_gate.report.widgets import printed, section

SCHEMA_ID = "repro-gate/checklist/v1"
_COUNTED = (
    ("fail", "failed"),
    ("warn", "warn"),
    ("waived", "waived"),
    ("pass", "passed"),
    ("skip", "skipped"),
)


def render(
    results: Sequence[CheckResult], need_training: Sequence[str] = (), view: View = PLAIN
) -> str:
    """Every result by category, the worst first, and one line of counts at the end.

    `need_training` are the ids of the checks that were not made, since only a training can answer
    them.
    """
    parts: list[RenderableType] = []
    for category, passed, made in wording.coverage(results):
        here = [
            item
            for item in wording.worst_first(results)
            if item.category == category and not wording.is_undeclared(item)
        ]
        title = f"{category}: {numbers.of(passed, made) if made else 'nothing checked'}"
        parts += section(title, laid_out(check_items(here)) if here else None)
    if wording.undeclared(results):
        parts += [Text(""), Text(wording.undeclared(results), style="dim")]
    return printed(view, *parts, Text(""), _summary(results, len(need_training)))


def as_json(
    results: Sequence[CheckResult], spec_path: str, need_training: Sequence[str] = ()
) -> str:
    """What `repro-gate check --json` writes: the results with the fields of report.json's
    `checklist`, and what they add up to."""
    statuses = Counter(item.status for item in results)
    document = {
        "schema": SCHEMA_ID,
        "tool_version": __version__,
        "spec": spec_path,
        "counts": {status: statuses[status] for status in STATUSES},
        "coverage": [
            {"category": category, "passed": passed, "made": made}
            for category, passed, made in wording.coverage(results)
        ],
        "checklist": [asdict(item) for item in results],
        "need_training": list(need_training),
    }
    return to_text(plain(document))


def _summary(results: Sequence[CheckResult], waiting: int) -> Text:
    """`checklist: 3 failed, 2 warn, 9 passed, 4 need training (repro-gate run)`; of what there is
    none, only `passed` is said."""
    statuses = Counter(item.status for item in results)
    counts = [
        f"{statuses[status]:,} {word}"
        for status, word in _COUNTED
        if statuses[status] or status == "pass"
    ]
    if waiting:
        counts.append(
            f"{waiting:,} {'needs' if waiting == 1 else 'need'} training (repro-gate run)"
        )
    style = "bold red" if statuses["fail"] else "bold yellow" if statuses["warn"] else "bold green"
    # one line, so that a log can be searched for it
    return Text(f"checklist: {', '.join(counts)}", style=style, no_wrap=True)
