"""A comment as a reviewer sees it: Markdown to HTML by GitHub's own parser, in GitHub's stylesheet,
as a picture by headless Chromium.

`comments` beside it makes the pictures in `docs/images`. Needs `pip install cmarkgfm`, `npm ci` in
this folder and Chromium. GitHub cleans the HTML once more after its parser; nothing is cleaned
here, so what is harmless here is harmless there.
"""

from __future__ import annotations

import base64
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from html import escape
from pathlib import Path

FOLDER = Path(__file__).parent
MODULES = FOLDER / "node_modules"
WIDTH, HEIGHT = 900, 700  # pixels: the first screen of a reviewer's window
PHONE = 390  # pixels: the width of a phone
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>comment</title>
<link rel="stylesheet" href="{modules}/github-markdown-css/github-markdown-light.css">
<link rel="stylesheet" href="{modules}/@fontsource/noto-sans/400.css">
<link rel="stylesheet" href="{modules}/@fontsource/noto-sans/600.css">
<link rel="stylesheet" href="{modules}/@fontsource/noto-color-emoji/emoji-400.css">
<style>
  body {{ margin: 0; padding: 16px; background: #fff; color: #1f2328; font: 14px/1.5 "Noto Sans", "Noto Color Emoji", sans-serif; }}
  .comment {{ border: 1px solid #d1d9e0; border-radius: 6px; }}
  .head {{ padding: 8px 16px; background: #f6f8fa; border-bottom: 1px solid #d1d9e0; border-radius: 6px 6px 0 0; color: #59636e; }}
  .head b {{ color: #1f2328; }}
  .head i {{ border: 1px solid #d1d9e0; border-radius: 2em; padding: 0 7px; font: 500 12px/18px "Noto Sans"; }}
  .markdown-body {{ padding: 16px; font-size: 14px; font-family: "Noto Sans", "Noto Color Emoji", sans-serif; }}
  .markdown-body code, .markdown-body pre {{ font-family: "Liberation Mono", "DejaVu Sans Mono", monospace; }}
</style></head>
<body><div class="comment"><div class="head"><b>github-actions</b> <i>bot</i> commented now</div>
<div class="markdown-body" id="comment">{comment}</div></div></body></html>
"""
_MEASURE = (
    "document.body.dataset.height = "
    "Math.ceil(document.querySelector('.comment').getBoundingClientRect().bottom) + 16"
)
# the share of pixels, where both pictures have some, that are clearly darker or lighter in one
_COMPARE = """
window.onload = () => {
  const images = [...document.images];
  const [width, height] = ['naturalWidth', 'naturalHeight'].map(
    side => Math.min(...images.map(image => image[side])));
  const [one, other] = images.map(image => {
    const context = new OffscreenCanvas(width, height).getContext('2d');
    context.drawImage(image, 0, 0);
    return context.getImageData(0, 0, width, height).data;
  });
  let differing = 0;
  for (let at = 0; at < one.length; at += 4) differing += Math.abs(one[at + 1] - other[at + 1]) > 64;
  document.body.dataset.differing = differing / (width * height);
};
"""


class NoPicture(Exception):
    """What a picture needs is not there; the message says what, and how to get it."""


def browser() -> str:
    """The first Chromium on PATH. Raises NoPicture where there is none."""
    found = next((path for name in _BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        raise NoPicture(f"no {', '.join(_BROWSERS)} on PATH: install Chromium")
    return found


def page(markdown: str) -> str:
    """The comment in a page that looks like a pull request's. Raises NoPicture where the parser or
    the stylesheet is missing."""
    try:
        from cmarkgfm import github_flavored_markdown_to_html
        from cmarkgfm.cmark import Options
    except ImportError:
        raise NoPicture("no cmarkgfm: pip install '.[browser]'") from None
    if not (MODULES / "github-markdown-css").is_dir():
        raise NoPicture(f"no GitHub stylesheet: npm ci --prefix {FOLDER}")
    options = Options.CMARK_OPT_UNSAFE | Options.CMARK_OPT_HARDBREAKS
    comment = github_flavored_markdown_to_html(markdown, options)
    return _PAGE.format(comment=comment, modules=escape(MODULES.as_uri()))


def take(html: str, out: Path, width: int = WIDTH, height: int = HEIGHT) -> None:
    """A picture of the first screen of a page. Raises NoPicture where Chromium ends without one."""
    picture = out.resolve()
    _run(html, (f"--screenshot={picture}", f"--window-size={width},{height}"))
    if not picture.is_file():
        raise NoPicture(f"Chromium made no {picture}")


def dom(html: str, script: str = "", width: int = WIDTH, height: int = HEIGHT) -> str:
    """The page as Chromium holds it after loading, as HTML. `script` runs last in it and may leave
    what it found in the page."""
    if script:
        html = html.replace("</body>", f"<script>{script}</script></body>")
    return _run(html, ("--dump-dom", f"--window-size={width},{height}"))


def content_height(html: str, width: int = WIDTH) -> int:
    """Pixels from the top of the page to the end of the comment. Raises NoPicture where Chromium
    does not say."""
    found = re.search(r'data-height="([0-9]+)"', dom(html, _MEASURE, width))
    if found is None:
        raise NoPicture("Chromium did not say how high the page is")
    return int(found[1])


def difference(one: Path, other: Path) -> float:
    """The share of pixels in which two pictures differ clearly, as far down as both go. Raises
    NoPicture where Chromium does not say."""
    texts = (base64.b64encode(path.read_bytes()).decode() for path in (one, other))
    images = "".join(f'<img src="data:image/png;base64,{text}">' for text in texts)
    found = re.search(r'data-differing="([0-9.e-]+)"', dom(f"<body>{images}</body>", _COMPARE))
    if found is None:
        raise NoPicture("Chromium did not say how far the pictures differ")
    return float(found[1])


def _run(html: str, arguments: Sequence[str]) -> str:
    """Start Chromium on a file of its own with a fresh profile; its standard output."""
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "page.html"
        file.write_text(html, encoding="utf-8")
        command = [browser(), "--headless=new", "--no-sandbox", "--disable-gpu"]
        command += ["--hide-scrollbars", "--allow-file-access-from-files"]
        command += ["--force-device-scale-factor=1", "--virtual-time-budget=5000"]
        command += [f"--user-data-dir={place}/profile", *arguments, file.as_uri()]
        options = {"env": {**os.environ, "HOME": place}, "stdin": subprocess.DEVNULL}
        done = subprocess.run(command, capture_output=True, timeout=120, check=False, **options)
        if done.returncode:
            said = done.stderr.decode(errors="replace")[-500:]
            raise NoPicture(f"Chromium ended with {done.returncode}: {said}")
        return done.stdout.decode("utf-8")
