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
from tests.browser.comments import comments
from tests.browser.pages import REPORTS
from tests.browser.picture import HEIGHT, PHONE, WIDTH, dom, page, take
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
    """What a look into the page found."""
    # headless Chromium's window is 500 wide at least
    narrow = f"<style>body {{ box-sizing: border-box; width: {width}px; }}</style></head>"
    # headless Chromium takes the height of its window's bar off
    text = dom(
        page(markdown).replace("</head>", narrow),
        _LOOK.replace("EDGE", str(width)),
        width,
        height + 100,
    )
    match = re.search(r'<div id="found">(.*?)</div>', text, flags=re.DOTALL)
    assert match is not None, text[-2_000:]
    found: dict[str, Any] = json.loads(unescape(match[1]))
    return found


_EVIL = (
    reports.HOSTILE,
    "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">",
    (
        "[x](javascript:alert(1)) ![x](https://evil.example/pixel.png) <https://evil.example> "
        "@octocat @org/team"
    ),
    "</td></tr></table></details><h1>pass</h1><a href=//evil.example>ok</a>",
    (
        "`</code><svg onload=document.title='owned'>` ``` | --- |\n\n# heading\n\n- [ ] "
        "task\n\n<!-- repro-gate"
    ),
    "\u202edetrever\u2066\u200b \x1b[31m \ud800 &lt;b&gt; &#64;octocat &commat;octocat",
)


_CAUSES = "https://github.com/repro-gate/repro-gate/blob/main/docs/causes/"


@pytest.mark.parametrize("show", [comment, summary])
@pytest.mark.parametrize("evil", _EVIL, ids=range(len(_EVIL)))
def test_nothing_that_a_report_says_is_an_element_a_link_or_a_mention(
    evil: str, show: Callable[[Report, View], str]
) -> None:
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
    "pass": ("pass, bitwise identical", "149 tensors", "4.5% slower", "+2.1% to +6.9%"),
    "fail": (
        "fail, two runs with seed 42 diverge at step 0 because of",
        "examples/quickstart/broken/train.py:81",
        "unseeded-rng",
        "46,845 ULP",
        "187 of 308",
        "edge_sampler.seed()",
        "held fixed, two runs are bitwise identical",
        "generator.manual_seed(seed)",
        "4.2% slower",
    ),
    "inconclusive": (
        "inconclusive",
        "no such dataset: cora",
        "train.py:78",
        "it crashes without the gate too",
        "raise RuntimeError",
    ),
    "drift": (
        "fail, two runs agree, but not with the baseline: same inputs",
        "an undeclared data file",
        "losses up to",
        "data/undeclared-reads",
        "2.2% faster",
    ),
    "weakened": (
        "pass",
        "bitwise identical, as before",
        "+4.5%",
        "Weakened checks",
        "determinism.allow",
        "the verdict is by the spec of this change itself",
    ),
    "fork": (
        "fail, two runs",
        "examples/quickstart/broken/train.py:81",
        "46,845 ULP",
        "held fixed",
    ),
}
_COMMIT = load(REPORTS / "quickstart-broken.json").subject.commit or ""
_SEEN_ON_A_PHONE = {"pass": 4, "fail": 9, "inconclusive": 4, "drift": 4, "weakened": 5, "fork": 4}


@pytest.mark.parametrize("name", _SCREENS)
def test_the_first_screen_holds_what_a_reviewer_needs_and_that_of_a_phone_most_of_it(
    name: str,
) -> None:
    words, text = _SCREENS[name], comments()[name]
    on_a_phone = words[: _SEEN_ON_A_PHONE[name]]
    for width, height, wanted in ((WIDTH, HEIGHT, words), (PHONE, 2 * HEIGHT, on_a_phone)):
        found = _found(text, width, height)
        assert [word for word in wanted if word not in found["seen"]] == [], found["seen"]
        # a table or a block of code scrolls by itself, the page does not
        assert found["width"] <= width
        assert "Traceback" not in found["seen"].replace("Traceback (most recent call last)", "")
    assert len(text.encode()) < 8_000


def test_of_a_fork_both_commits_are_told_and_whose_spec_judged() -> None:
    seen = _found(comments()["fork"], height=2 * HEIGHT)["seen"]
    assert re.search(f"ffffffffffff.*tested as.*{_COMMIT[:12]}", seen, re.DOTALL), seen
    assert "no weakened checks; the verdict is by the spec of the base" in seen


def test_a_text_that_is_cut_off_is_not_seen() -> None:
    cut = f"| a | {'word' * 200} |\n| --- | --- |\n| b | c |"
    assert "word" not in _found(cut, PHONE)["seen"]
    assert _found("word " * 50, PHONE)["seen"].count("word") == 50


def test_the_causes_line_is_the_only_link_into_the_code() -> None:
    links = _found(comments()["fail"])["links"]
    line = (
        f"https://github.com/octo/training/blob/{_COMMIT}/examples/quickstart/broken/train.py#L81"
    )
    assert {link for link in links if "/octo/" in link} == {line, _RUN, f"{_RUN}#artifacts"}


@pytest.mark.parametrize(
    "report",
    [reports.enormous(tensors=100), reports.hostile("w" * 5_000)],
    ids=["enormous", "one long word"],
)
def test_no_name_pushes_the_verdict_or_the_cost_out_of_the_page(report: Report) -> None:
    seen = _found(comment(report))["seen"]
    assert "Repro Gate: fail" in seen


@pytest.mark.parametrize("name", _SCREENS)
def test_a_picture_is_made_and_those_in_the_docs_are_of_that_width(
    name: str, tmp_path: Path
) -> None:
    drawn = tmp_path / "drawn.png"
    take(page(comments()[name]), drawn)
    for path in (drawn, Path(__file__).parents[2] / f"docs/images/comment-{name}.png"):
        data = path.read_bytes()
        assert data.startswith(b"\x89PNG") and int.from_bytes(data[16:20], "big") == WIDTH
        assert len(data) < 150_000 or path == drawn
    assert int.from_bytes(drawn.read_bytes()[20:24], "big") == HEIGHT
