"""Every check has a docs page of one form, and the table of the checks is current."""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path

import pytest

from repro_gate.checks import ALL, pages
from repro_gate.checks.pages import page, reasons
from repro_gate.factors import BY_NAME

DOCS = Path(__file__).resolve().parents[2] / "docs" / "checks"
HEADINGS = ["What it looks at", "Why", "How to fix it", "Before and after"]
IDS = [check.id for check in ALL]


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
    for target in re.findall(r"\]\((?!https?://|#)([^)#]+)", text):
        assert (DOCS / identifier).parent.joinpath(target).is_file(), target


NO_CHECKS = (
    "", "code", "code/none", "../checks/code/commit", "code/commit.md", "code/../code/commit", "CODE/commit", "/etc/passwd",
    "code/commit\n",
)  # fmt: skip


@pytest.mark.parametrize("identifier", NO_CHECKS)
def test_what_is_no_check_has_no_page(identifier: str) -> None:
    assert page(identifier) is None


def test_an_id_of_ours_has_a_url_and_another_has_none() -> None:
    assert (pages.url("env/lockfile") or "").endswith("/docs/checks/env/lockfile.md")
    assert (pages.url("run/crashed") or "").endswith("/docs/reasons.md")
    assert pages.url("run/none") is None and pages.url("../x") is None


# Texts of the package that look like an id and are none.
NO_IDS = {"control/races", "control/repeats", "dev/shm", "lfs/objects", "origin/main", "usr/local"}


def test_every_id_that_a_report_can_name_is_explained() -> None:
    """By what the package's own source holds: every text of the form of an id, and every note of
    the probe."""
    package, texts = Path(pages.__file__).parents[1], set[str]()
    nodes = [
        node
        for path in package.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    ]
    named = {
        target.id: node.value.value
        for node in nodes
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            texts.add(node.value)
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "note"
            and node.args
        ):
            name = node.args[0]
            if isinstance(name, ast.Attribute | ast.BinOp):
                continue  # of the use of a factor
            if isinstance(name, ast.Name) and name.id not in named:
                continue  # `identifier`, which is handed on
            assert isinstance(name, (ast.Name, ast.Constant)), ast.dump(node)
            texts.add(f"probe/{named[name.id] if isinstance(name, ast.Name) else name.value}")
    # the probe notes the use of a factor by another `note`
    texts -= {f"probe/{factor}" for factor in BY_NAME}
    ids = (
        {text for text in texts if re.fullmatch(r"[a-z]+(-[a-z]+)*/[a-z]+(-[a-z]+)*", text)}
        - NO_IDS
        - set(IDS)
    )
    assert ids - set(reasons()) == set(), "docs/reasons.md has no line on these"
    assert set(reasons()) - ids <= {
        "baseline/drift",
        "baseline/changed",
        "baseline/new-platform",
    } | {i for i in reasons() if i.startswith("probe/")}
    assert not set(reasons()) & set(IDS)


def test_the_index_of_the_docs_is_current_and_no_page_is_without_a_check() -> None:
    """`REPRO_GATE_GOLDEN=write` renews the table."""
    path = DOCS / "README.md"
    text = path.read_text(encoding="utf-8")
    before, start, rest = text.partition("<!-- checks -->\n")
    _, end, after = rest.partition("<!-- /checks -->")
    rows = ["| check | passes where | looks at |", "| --- | --- | --- |"]
    rows += [f"| [`{it.id}`]({it.id}.md) | {it.title} | {it.subject.name} |" for it in ALL]
    current = before + start + "\n".join(rows) + "\n" + end + after
    if os.environ.get("REPRO_GATE_GOLDEN") == "write":
        path.write_text(current, encoding="utf-8")
    assert text == current
    assert {f"{page.parent.name}/{page.stem}" for page in DOCS.glob("*/*.md")} == set(IDS)
