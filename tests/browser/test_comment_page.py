"""Claims about the comment as Chromium shows it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from repro_gate.report.document import load
from repro_gate.report.markdown import comment, summary
from repro_gate.report.model import Report, View
from tests.browser.comments import REPORTS, comments
from tests.browser.picture import HEIGHT, PHONE, WIDTH, difference, dom, page, take
from tests.support import reports

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("chromium")]

_RUN = "https://github.com/octo/training/actions/runs/7"
_OURS = {*re.findall(r"\w+", "div h2 h3 p br ul li table thead tbody tr th td strong code pre sub")}
_OURS |= {"details", "summary"}
# What GitHub makes live in text once the Markdown is HTML: mentions, references, emoji, commits,
# addresses, math.
_LIVE = re.compile(
    r"@\w|(?<!\w)#\d|\bGH-\d|:[a-z_]+:|https?://|\bwww\.|\$[^$]+\$|\b[0-9a-f]{7,40}\b",
    re.IGNORECASE,
)
_LOOK = """
setTimeout(() => {  // after whatever an element of the page starts by itself
const root = document.getElementById('comment');
const all = [...root.querySelectorAll('*')];
const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
const plain = [], seen = [];
while (walker.nextNode()) {
  const node = walker.currentNode;
  if (!node.parentElement.closest('code, pre, a')) plain.push(node.textContent);
  const range = document.createRange(); range.selectNodeContents(node);
  const boxes = [...range.getClientRects()];
  const shown = node.parentElement.checkVisibility();
  const inside = node.parentElement.closest('pre') || boxes.every(box => box.right <= EDGE);
  if (shown && boxes.length && boxes[boxes.length - 1].bottom <= window.innerHeight && inside) seen.push(node.textContent);
}
const found = {
  tags: [...new Set(all.map(item => item.tagName.toLowerCase()))],
  attributes: [...new Set(all.flatMap(item => item.getAttributeNames()))],
  links: [...root.querySelectorAll('a')].map(item => item.href),
  plain, seen: seen.join(' '),
  width: Math.max(document.body.scrollWidth, document.querySelector('.comment').scrollWidth),
  title: document.title,
};
const out = document.createElement('div'); out.id = 'found'; out.textContent = JSON.stringify(found); document.body.append(out);
}, 300);
"""


def _found(markdown: str, width: int = WIDTH, height: int = HEIGHT) -> dict[str, Any]:
    # headless Chromium's window is 500 wide at least
    narrow = f"<style>body {{ box-sizing: border-box; width: {width}px; }}</style></head>"
    shown = page(markdown).replace("</head>", narrow)
    # headless Chromium takes the height of its window's bar off
    text = dom(shown, _LOOK.replace("EDGE", str(width)), width, height + 100)
    match = re.search(r'<div id="found">(.*?)</div>', text, flags=re.DOTALL)
    assert match is not None, text[-2_000:]
    found: dict[str, Any] = json.loads(unescape(match[1]))
    return found


_OWN = "document.title='owned'"
_LINKS = "[x](javascript:alert(1)) ![x](https://evil.example/pixel.png) <https://evil.example>"
_EVIL = (
    reports.HOSTILE,
    f'<script>{_OWN}</script><img src=x onerror="{_OWN}">',
    f"{_LINKS} @octocat @org/team",
    "</td></tr></table></details><h1>pass</h1><a href=//evil.example>ok</a>",
    f"`</code><svg onload={_OWN}>` ``` | --- |\n\n# heading\n\n- [ ] task\n\n<!-- repro-gate",
    "\u202edetrever\u2066\u200b \x1b[31m \ud800 &lt;b&gt; &#64;octocat &commat;octocat",
)


_CAUSES = "https://github.com/repro-gate/repro-gate/blob/main/docs/causes/"


@pytest.mark.parametrize("show", [comment, summary])
@pytest.mark.parametrize("evil", _EVIL, ids=range(len(_EVIL)))
def test_nothing_of_a_report_is_live(evil: str, show: Callable[[Report, View], str]) -> None:
    found = _found(show(reports.hostile(evil), View(run_url=_RUN)))
    assert set(found["tags"]) <= _OURS | {"a"} and found["title"] == "comment"
    assert [text for text in found["plain"] if _LIVE.search(text)] == []
    links = {link for link in found["links"] if not link.startswith(_CAUSES)}
    assert links <= {f"{_RUN}#artifacts", _RUN}
    if show is comment:
        assert set(found["attributes"]) <= {"align", "class", "lang", "href"}
        assert found["links"].count(_RUN) == 1 and len(found["links"]) == 3


def test_the_look_into_the_page_sees_what_is_live() -> None:
    image = "<img src=x onerror=\"document.title='owned'\">"
    found = _found(f"[x](https://evil.example) @octocat {image}")
    assert found["links"] == ["https://evil.example/"] and "img" in found["tags"]
    assert found["title"] == "owned"
    assert any(_LIVE.search(text) for text in found["plain"])


# what happened, why, and what to do: seen in the first screen, at a desk and on a phone
_SCREENS = {
    "pass": ("bitwise identical", "149 tensors", "4.5% slower"),
    "fail": ("diverge at step 0", "broken/train.py:81", "unseeded-rng", "generator.manual_seed"),
    "inconclusive": ("inconclusive", "no such dataset: cora", "train.py:78"),
    "drift": ("differ from the baseline", "an undeclared data file", "losses up to"),
    "resume": ("resumed at step 6", "torch generator", "save in the checkpoint"),
    "weakened": ("as before", "Weakened checks", "determinism.allow"),
    "fork": ("two runs", "broken/train.py:81", "46,845 ULP", "held fixed"),
}
_COMMIT = load(REPORTS / "quickstart-broken.json").subject.commit or ""


@pytest.mark.parametrize("name", _SCREENS)
def test_the_first_screen_holds_what_a_reviewer_needs_and_that_of_a_phone_too(name: str) -> None:
    text = comments()[name]
    for width, height in ((WIDTH, HEIGHT), (PHONE, 2 * HEIGHT)):
        found = _found(text, width, height)
        assert [word for word in _SCREENS[name] if word not in found["seen"]] == [], found["seen"]
        # a table or a block of code scrolls by itself, the page does not
        assert found["width"] <= width
        assert "Traceback" not in found["seen"].replace("Traceback (most recent call last)", "")
    assert len(text.encode()) < 8_000


def test_of_a_fork_both_commits_are_told_and_one_line_is_linked() -> None:
    seen = _found(comments()["fork"], height=2 * HEIGHT)["seen"]
    assert re.search(f"ffffffffffff.*tested as.*{_COMMIT[:12]}", seen, re.DOTALL), seen
    assert "no weakened checks; the spec of the base decides the verdict" in seen
    links = _found(comments()["fail"])["links"]
    code = f"https://github.com/octo/training/blob/{_COMMIT}/examples/quickstart/broken"
    ours = {f"{code}/train.py#L81", _RUN, f"{_RUN}#artifacts"}
    assert {link for link in links if "/octo/" in link} == ours


def test_a_text_that_is_cut_off_is_not_seen() -> None:
    cut = f"| a | {'word' * 200} |\n| --- | --- |\n| b | c |"
    assert "word" not in _found(cut, PHONE)["seen"]
    assert _found("word " * 50, PHONE)["seen"].count("word") == 50


@pytest.mark.parametrize("report", [reports.enormous(tensors=100), reports.hostile("w" * 5_000)])
def test_no_name_pushes_the_verdict_out_of_the_page(report: Report) -> None:
    assert "Repro Gate: fail" in _found(comment(report))["seen"]


_IMAGES = Path(__file__).parents[2] / "docs/images"


@pytest.mark.parametrize("name", _SCREENS)
def test_a_picture_in_the_docs_shows_the_comment_of_today(name: str, tmp_path: Path) -> None:
    kept, drawn = _IMAGES / f"comment-{name}.png", tmp_path / "drawn.png"
    text = comments()[name]
    take(page(text), drawn)
    assert difference(kept, drawn) < 0.002
    take(page(text.replace("Repro Gate", "Something else")), drawn)
    assert difference(kept, drawn) > 0.002
    data = kept.read_bytes()
    assert int.from_bytes(data[16:20], "big") == WIDTH and len(data) < 150_000
