"""Every check has a docs page of one form, and the table of the checks is current."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from repro_gate.checks import ALL, pages
from repro_gate.checks.pages import page, reasons
from repro_gate.factors import BY_NAME
from tests.support.golden import golden

DOCS = Path(__file__).resolve().parents[2] / "docs" / "checks"
HEADINGS = ["What it looks at", "Why", "How to fix it", "Before and after"]
IDS = [check.id for check in ALL]
LINK = re.compile(r"\]\((?!https?://|#)([^)#]+)")


@pytest.mark.parametrize("identifier", IDS)
def test_every_check_has_a_page_of_the_one_form_whose_links_lead_somewhere(identifier: str) -> None:
    text = page(identifier)
    assert text is not None
    title, _, rest = text.partition("\n\n")
    assert title == f"# {identifier}"
    assert re.match(r"[A-Z][^\n]+\.\n\n## ", rest), "one sentence follows the title"
    assert re.findall(r"^## (.*)$", rest, re.MULTILINE) == HEADINGS
    sections = re.split(r"^## .*$", rest, flags=re.MULTILINE)[1:]
    assert all(section.strip() for section in sections)
    blocks = re.findall(r"^```[a-z]+\n(.*?)^```$", sections[-1], re.MULTILINE | re.DOTALL)
    assert len(blocks) == 2 and blocks[0] != blocks[1] and all(block.strip() for block in blocks)
    for target in LINK.findall(text):
        assert (DOCS / identifier).parent.joinpath(target).is_file(), target


def test_links_are_found_on_the_pages() -> None:
    assert sum(bool(LINK.findall(page(identifier) or "")) for identifier in IDS) > 5


NO_CHECKS = (
    "", "code", "code/none", "../checks/code/commit", "code/commit.md", "code/../code/commit", "CODE/commit", "/etc/passwd",
    "code/commit\n",
)  # fmt: skip


def test_what_is_no_check_has_no_page() -> None:
    for identifier in NO_CHECKS:
        assert page(identifier) is None
    assert (pages.url("env/lockfile") or "").endswith("/docs/checks/env/lockfile.md")
    assert (pages.url("run/crashed") or "").endswith("/docs/reasons.md")
    assert pages.url("run/none") is None and pages.url("../x") is None


# Texts of the package that look like an id and are none.
NO_IDS = {"control/races", "control/repeats", "dev/shm", "lfs/objects", "origin/main", "usr/local"}


def test_every_id_that_a_report_can_name_is_explained() -> None:
    """By what the package's own source holds: every text of the form of an id, and every note of
    the probe."""
    package = Path(pages.__file__).parents[1]
    source = "\n".join(path.read_text(encoding="utf-8") for path in package.rglob("*.py"))
    word = "[a-z]+(?:-[a-z]+)*"
    texts = {*re.findall(rf'"({word}/{word})"', source)}
    texts |= {*re.findall(rf"^({word}/{word})$", source, re.MULTILINE)}  # of tables that are text
    named = dict(re.findall(rf'^_?([A-Z_]+) = "({word})"$', source, re.MULTILINE))
    notes = re.findall(rf'\.note\(\s*(?:"({word})"|_?([A-Z][A-Z_]+)[,)])', source)
    assert len(notes) > 10
    texts |= {f"probe/{text or named[name]}" for text, name in notes}
    # the probe notes the use of a factor by another `note`
    ids = texts - {f"probe/{factor}" for factor in BY_NAME} - NO_IDS - set(IDS)
    assert ids - set(reasons()) == set(), "docs/reasons.md has no line on these"
    made_up = {f"baseline/{status}" for status in ("drift", "changed", "new-platform")}
    rest = {name for name in set(reasons()) - ids if not name.startswith("probe/")}
    assert rest <= made_up and not set(reasons()) & set(IDS)


def test_the_index_of_the_docs_is_current_and_no_page_is_without_a_check() -> None:
    """`REPRO_GATE_GOLDEN=write` renews the table."""
    path = DOCS / "README.md"
    text = path.read_text(encoding="utf-8")
    before, start, rest = text.partition("<!-- checks -->\n")
    _, end, after = rest.partition("<!-- /checks -->")
    rows = ["| check | passes where | looks at |", "| --- | --- | --- |"]
    rows += [f"| [`{it.id}`]({it.id}.md) | {it.title} | {it.subject.name} |" for it in ALL]
    current = before + start + "\n".join(rows) + "\n" + end + after
    golden(path, current)
    assert {f"{page.parent.name}/{page.stem}" for page in DOCS.glob("*/*.md")} == set(IDS)
