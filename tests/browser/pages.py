"""Pictures of the pages in `docs/pages`, their first screens: `docs/images/page-*.png`.

    python -m tests.browser.pages

The pages are real reports, written by `repro-gate show REPORT.json --html F`; only the folder of
the interpreter was renamed in them.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.browser.picture import take

DOCS = Path(__file__).parents[2] / "docs"
# of a picture, in pixels
HEIGHTS = {
    "transformer": 1700,
    "quickstart-broken": 1420,
    "quickstart": 1130,
    "two-ranks": 1100,
    "drift": 1000,
}
WIDTH = 1100


def main() -> int:
    """Write the pictures."""
    for name, height in HEIGHTS.items():
        take(
            (DOCS / "pages" / f"{name}.html").read_text(encoding="utf-8"),
            DOCS / "images" / f"page-{name}.png",
            WIDTH,
            height,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
