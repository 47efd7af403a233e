"""Claims about the report's page as Chromium shows it."""

from __future__ import annotations

import json
import os
import re
import socketserver
import subprocess
import threading
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from repro_gate.report import html
from repro_gate.report.model import Report
from tests.browser.conftest import missing
from tests.browser.picture import MODULES, browser, dom
from tests.report.test_html import ALL, FAIL, VIEW

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("chromium")]

AXE = MODULES / "axe-core" / "axe.min.js"
# headless Chromium has no window below 500 pixels
WIDTHS = {"phone": 500, "tablet": 820, "desktop": 1400}
_OWN_POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')
_JENKINS = (
    '<meta http-equiv="Content-Security-Policy" '
    "content=\"default-src 'none'; img-src 'self'; style-src 'self'; script-src 'unsafe-inline'\">"
)
_LEAVE = """
const out = document.createElement('div'); out.id = 'found'; out.textContent = JSON.stringify(FOUND); document.body.append(out);
"""


def _page(report: Report, *, dark: bool = False, policy: str = "") -> str:
    """The page with another policy than its own, so that a test may look into it; `dark` as
    somebody sees it who asks for that."""
    page = _OWN_POLICY.sub(policy, html.render(report, VIEW))
    return page.replace("@media (prefers-color-scheme: dark)", "@media all") if dark else page


def _left(page: str, script: str, width: int = 1400) -> Any:
    """What a script leaves in the loaded page, as JSON."""
    text = dom(page, script, width=width, height=2000)
    match = re.search(r'<div id="found">(.*?)</div>', text, flags=re.DOTALL)
    assert match is not None, text[-2_000:]
    return json.loads(unescape(match[1]))


def _found(page: str, expression: str, width: int = 1400) -> Any:
    return _left(page, _LEAVE.replace("FOUND", expression), width)


def _violations(page: str) -> list[str]:
    """The rules of axe-core that the page breaks."""
    if not AXE.is_file():
        missing(f"no axe-core: npm ci --prefix {MODULES.parent}")
    leave = _LEAVE.replace("FOUND", "result.violations.map(item => item.id)")
    run = f"axe.run().then(result => {{ {leave} }})"
    found: list[str] = _left(page, f"{AXE.read_text(encoding='utf-8')};\n{run}")
    return found


_NAMES = ["pass", "explained", "inconclusive", "weakened", "drift", "hostile"]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("name", _NAMES)
def test_axe_core_finds_nothing(name: str, dark: bool) -> None:
    opened = _page(ALL[name], dark=dark).replace("<details>", "<details open>")
    assert _violations(opened) == []


def test_axe_core_would_find_something() -> None:
    page = _page(FAIL).replace("--soft: #57606a", "--soft: #cccccc").replace('lang="en"', "")
    assert {"color-contrast", "html-has-lang"} <= {*_violations(page)}


_PICTURE = '<img src="http://evil.example/x.png">'
_NAMED = (b".example", b"github")  # what every address in these pages holds


class Listener(socketserver.BaseRequestHandler):
    """Answers with the page whatever is asked, and keeps the beginning of it: TLS too, where the
    name of the server is plain."""

    page, heard = b"", list[bytes]()

    def handle(self) -> None:
        self.heard.append(self.request.recv(4096))
        head = "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nConnection: close"
        length = f"Content-Length: {len(self.page)}"
        self.request.sendall(f"{head}\r\n{length}\r\n\r\n".encode() + self.page)


def _asked(page: str, place: Path) -> list[bytes]:
    """What is asked of any server that a page names; Chromium believes that all are one of ours.
    What it asks for itself is left out."""
    Listener.page, Listener.heard = page.encode(), []
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Listener) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        rules = f"--host-resolver-rules=MAP * 127.0.0.1:{server.server_address[1]}"
        command = [browser(), "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run"]
        command += ["--disable-background-networking", rules, "--virtual-time-budget=3000"]
        command += [f"--user-data-dir={place}", "--dump-dom", "http://page.example/report.html"]
        home = {**os.environ, "HOME": str(place)}
        shown = subprocess.check_output(command, env=home, timeout=120, stderr=subprocess.DEVNULL)
        server.shutdown()
    assert b"Repro Gate" in shown
    return [item for item in Listener.heard if any(name in item for name in _NAMED)]


@pytest.mark.parametrize("name", ["explained", "hostile"])
def test_nothing_is_asked_for_but_the_page(name: str, tmp_path: Path) -> None:
    (only,) = _asked(html.render(ALL[name], VIEW), tmp_path)
    assert only.startswith(b"GET /report.html ")


def test_the_listener_would_hear_it(tmp_path: Path) -> None:
    other = '<img src="https://evil.example/y.png">'
    page = _page(FAIL).replace("</main>", f"{_PICTURE}{other}</main>")
    heard = _asked(page, tmp_path)
    assert any(item.startswith(b"GET /x.png ") for item in heard)
    assert any(item.startswith(b"\x16\x03") and b"evil.example" in item for item in heard)


def test_a_page_that_got_a_picture_in_would_still_not_ask_for_it(tmp_path: Path) -> None:
    page = html.render(FAIL, VIEW).replace("</main>", f"{_PICTURE}</main>")
    assert len(_asked(page, tmp_path)) == 1  # its own policy


@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
@pytest.mark.parametrize("name", ["explained", "inconclusive", "hostile"])
def test_the_page_fits_its_window(name: str, width: int) -> None:
    sizes = "[document.documentElement.scrollWidth, window.innerWidth]"
    wide, window = _found(_page(ALL[name]), sizes, width=width)
    assert wide <= window


def test_the_verdict_the_cause_and_the_remedy_are_on_the_first_screen() -> None:
    script = """(() => { const low = item => item.getBoundingClientRect().bottom; return [
    document.querySelector('.cause'), [...document.querySelectorAll('td')].find(item => item.textContent == 'remedy')].map(low); })()"""
    assert max(_found(_page(FAIL), script)) < 800


def test_a_server_that_refuses_styles_still_shows_the_map() -> None:
    script = """[...document.querySelectorAll('rect[class]')].map(
        item => [item.getAttribute('fill'), getComputedStyle(item).fill, item.getBoundingClientRect().width > 0])"""
    cells = _found(_page(FAIL, policy=_JENKINS), script)
    assert cells and all(shown for _, _, shown in cells)
    assert {given for given, _, _ in cells} >= {"#d5dae0", "#ffe08a"}
    assert "rgb(0, 0, 0)" not in {seen for _, seen, _ in cells}
    obeyed = "getComputedStyle(document.body).maxWidth"
    assert _found(_page(FAIL, policy=_JENKINS), obeyed) == "none"


def test_what_is_folded_is_printed() -> None:
    printed = "item => item.media?.mediaText === 'print'"
    sheet = f"[...document.styleSheets[0].cssRules].filter({printed}).map(item => item.cssText)"
    assert "::details-content" in _found(_page(FAIL), f"{sheet}.join()")
