"""What the tests of this folder need: Chromium, GitHub's parser and stylesheet. Missing, they are
skipped; with REPRO_GATE_BROWSER_TESTS=1 (`make browser` sets it) that is an error, so that nobody
takes a skip for a pass."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest

from tests.browser.picture import NoPicture, browser, page


@pytest.fixture(scope="session")
def chromium() -> str:
    """The browser to use, once it is sure that a page can be made."""
    try:
        page("x")
        return browser()
    except NoPicture as error:
        missing(str(error))


def missing(what: str) -> NoReturn:
    """Skip, or fail where these tests are asked for."""
    if os.environ.get("REPRO_GATE_BROWSER_TESTS") == "1":
        pytest.fail(what)
    pytest.skip(what)
