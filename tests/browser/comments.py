"""The six comments that a reviewer may meet, as pictures: `docs/images/comment-*.png`.

    python -m tests.browser.comments

writes them. They are made of the real reports in `reports/`; what a base branch demands, and the
pull request, are those of the tests' own reports.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from repro_gate.report.document import load
from repro_gate.report.markdown import comment, line
from repro_gate.report.model import BaseFinding, Origin, Report, View
from tests.browser.pages import REPORTS
from tests.browser.picture import WIDTH, content_height, page, take
from tests.support import reports

IMAGES = Path(__file__).parents[2] / "docs" / "images"
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
        "weakened": line(replace(passed, base=reports.WEAKENED.base), VIEW, before="pass"),
        "fork": comment(fork, replace(VIEW, foreign=True)),
    }


def main() -> int:
    for name, text in comments().items():
        html = page(text)
        take(html, IMAGES / f"comment-{name}.png", height=content_height(html, WIDTH))
    return 0


if __name__ == "__main__":
    sys.exit(main())
