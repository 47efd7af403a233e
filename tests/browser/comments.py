"""The comments that a reviewer may meet, and the pages of `docs/pages`, as pictures in
`docs/images`.

    python -m tests.browser.comments

writes pictures and pages. They are made of the real reports in `reports/`, of which only the folder
of the interpreter was renamed; what a base branch demands, and the pull request, are those of the
tests' own reports.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from repro_gate.report import html
from repro_gate.report.document import load
from repro_gate.report.markdown import comment, line
from repro_gate.report.model import BaseFinding, Origin, Report, View
from tests.browser.picture import WIDTH, content_height, page, take
from tests.support import reports

DOCS = Path(__file__).parents[2] / "docs"
REPORTS = Path(__file__).parent / "reports"
# of the pages' pictures, in pixels
_HEIGHTS = {"transformer": 1700, "quickstart-broken": 1420, "quickstart": 1130}
_HEIGHTS |= {"two-ranks": 1100, "drift": 1000}
_PAGE_WIDTH = 1100
VIEW = View(run_url="https://github.com/octo/training/actions/runs/7")
_PUSHED = "f" * 40  # of the fork: what ran is the merge with the base


def _real(name: str) -> Report:
    report = load(REPORTS / f"{name}.json")
    commit = report.subject.commit or ""
    return replace(report, origin=Origin("octo/training", commit, 7, 1, "repro-gate-report"))


def comments() -> Mapping[str, str]:
    """The Markdown of each, by its picture's name. A pass that weakens a check has the short form,
    as the action posts it by default."""
    passed, failed = _real("quickstart"), _real("quickstart-broken")
    fork = replace(
        failed,
        origin=Origin("octo/training", _PUSHED, 7, 1, "repro-gate-report"),
        base=BaseFinding("origin/main", reports.COMMIT, "base"),
    )
    return {
        "pass": comment(passed, VIEW),
        "fail": comment(failed, VIEW),
        "inconclusive": comment(_real("crash"), VIEW),
        "drift": comment(_real("drift"), VIEW),
        "resume": comment(_real("resume"), VIEW),
        "weakened": line(replace(passed, base=reports.WEAKENED.base), VIEW, before="pass"),
        "fork": comment(fork, replace(VIEW, by_training=True)),
    }


def main() -> int:
    for name, text in comments().items():
        shown = page(text)
        place = DOCS / "images" / f"comment-{name}.png"
        take(shown, place, height=content_height(shown, WIDTH))
    for name, height in _HEIGHTS.items():
        shown = html.render(load(REPORTS / f"{name}.json"))
        (DOCS / "pages" / f"{name}.html").write_text(shown, encoding="utf-8")
        take(shown, DOCS / "images" / f"page-{name}.png", _PAGE_WIDTH, height)
    return 0


if __name__ == "__main__":
    sys.exit(main())
