"""A hook of MkDocs: what a page links outside docs/ is read in the repository."""

from __future__ import annotations

import posixpath
import re
from typing import Any

_LINK = re.compile(r"\]\((?!https?://|#)([^)#\s]+)")
_REPOSITORY = "https://github.com/repro-gate/repro-gate/blob/main/"


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Return the page with these links made absolute."""
    folder = posixpath.dirname(posixpath.join("docs", page.file.src_uri))

    def absolute(found: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, found[1]))
        outside = not path.startswith("docs/") or posixpath.splitext(path)[1] not in (
            ".md",
            ".png",
            ".html",
        )
        return f"]({_REPOSITORY}{path}" if outside else found[0]

    return _LINK.sub(absolute, markdown)
