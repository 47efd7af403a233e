"""The pages of `docs/pages`, and pictures of their first screens: `docs/images/page-*.png`.

    python -m tests.browser.pages

makes both of the real reports in `reports/`, of which only the folder of the interpreter was
renamed.
"""

from __future__ import annotations

import sys
from pathlib import Path

from repro_gate.report import html
from repro_gate.report.document import load
from tests.browser.picture import take

REPORTS = Path(__file__).parent / "reports"
DOCS = Path(__file__).parents[2] / "docs"
# of a picture, in pixels
HEIGHTS = {"transformer": 1700, "quickstart-broken": 1420, "quickstart": 1130}
HEIGHTS |= {"two-ranks": 1100, "drift": 1000}
WIDTH = 1100


def main() -> int:
    for name, height in HEIGHTS.items():
        page = html.render(load(REPORTS / f"{name}.json"))
        (DOCS / "pages" / f"{name}.html").write_text(page, encoding="utf-8")
        take(page, DOCS / "images" / f"page-{name}.png", WIDTH, height)
    return 0


if __name__ == "__main__":
    sys.exit(main())
