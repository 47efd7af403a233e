"""The README is true: its links lead somewhere, its commands exist, and its demo has the shape of a
report as the gate prints it."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from repro_gate.checks.interface import CATEGORIES, CheckResult
from repro_gate.cli import main
from repro_gate.commands.arguments import parser
from repro_gate.compare.model import KINDS, Tally
from repro_gate.report import terminal
from repro_gate.report.model import Report, View
from tests.support import reports

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [
    *ROOT.glob("*.md"),
    *(path for place in ("docs", "examples") for path in (ROOT / place).rglob("*.md")),
]

# What a printed value is, in the order in which they are tried.
VALUES = re.compile(
    r"(?P<url>https?://\S+)|(?P<setting>[\w.]+=\S+)|(?P<name>(?<=gradient "
    r")\w+(\.\w+)*|[A-Za-z_]\w*(\.\w+)+)"
    r"|(?P<hash>sha256:[0-9a-f]{12}|\b[0-9a-f]{12}\b)"
    r"|(?P<percent>-?[\d.]+ ?%)|(?P<number>-?\d[\d.,]*(e-?\d+)?)"
)
LINE = re.compile(r"  (?P<label>[a-z-]+(?: [a-z]+)*)  +(?P<values>.*)")


def shape(printed: str) -> Iterator[tuple[str, tuple[str | None, ...]]]:
    """Of each line: its label or verdict ("" where it has neither), and the kinds of the values in
    it. Other words do not count."""
    for line in filter(None, map(str.rstrip, printed.splitlines())):
        labelled, first = LINE.fullmatch(line), line.split()[0]
        label = labelled["label"] if labelled else first if first.isupper() else ""
        values = VALUES.finditer(labelled["values"] if labelled else line)
        yield label, () if label == "reproduce" else tuple(found.lastgroup for found in values)


def like_the_quickstart() -> Report:
    """A pass that shows what the quickstart shows; and it declares no lockfile and no image."""
    pair = replace(reports.SAME, by_kind={kind: Tally(20, 0) for kind in KINDS if kind != "batch"})
    checks = [(f"{category}/made-up", category, "pass") for category in CATEGORIES]
    checks += [(f"env/{name}", "env", "skip") for name in ("lockfile", "image-digest")]
    return replace(
        reports.LOCKED,
        baseline=None,
        base=None,
        determinism=reports.compared(pair),
        noise_floor=replace(reports.NOISE, first_divergence=reports.FIRST),
        cost=replace(reports.COST, memory_ci95=(-2.0, -1.0), max_percent=None),
        checklist=tuple(
            CheckResult(id=name, category=category, status=status, message="")
            for name, category, status in checks
        ),
    )


def printed(report: Report) -> str:
    return terminal.render(report, View(width=200))


def demo() -> str:
    """What the README shows of a run of the quickstart. A real run is compared with it in
    e2e/test_examples."""
    return README.split("<!-- demo -->\n```text\n")[1].split("```\n<!-- /demo -->")[0]


def anchors(page: Path) -> set[str]:
    """What GitHub makes of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_pages_are_small_and_name_no_folder_of_whoever_made_them() -> None:
    pages = [path.read_text(encoding="utf-8") for path in (ROOT / "docs/pages").glob("*.html")]
    assert len(pages) == 5 and sum(len(page.encode()) for page in pages) <= 1024 * 1024
    assert not [
        found for page in pages for found in re.findall(r"/(?:root|work|Users)/[^ <]*", page)
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    for target, anchor in re.findall(
        r"\]\((?!https?://)([^)#]*)(?:#([^)]+))?\)", page.read_text(encoding="utf-8")
    ):
        path = page.parent / target if target else page
        assert path.exists(), target
        assert not anchor or anchor in anchors(path), f"{target}#{anchor}"


def test_the_demo_has_the_shape_of_a_report_as_it_is_printed_and_the_readme_is_short() -> None:
    assert list(shape(demo())) == list(shape(printed(like_the_quickstart())))
    lines = README.splitlines()
    assert len(lines) <= 155 and any("docs/images/comment-fail.png" in line for line in lines[:10])


def test_every_command_and_option_it_names_exists(capsys: pytest.CaptureFixture[str]) -> None:
    table = README.split("## Commands")[1].split("## Exit codes")[0]
    commands = re.findall(r"^\| `repro-gate (\w+)", table, re.MULTILINE)
    (choices,) = (
        action.choices
        for action in parser()._actions
        if isinstance(action, argparse._SubParsersAction)
    )
    assert sorted(commands) == sorted(set(choices) - {"report"})  # the old name of `show`
    for name, rest in re.findall(r"^\| `repro-gate (\w+)(.*)$", table, re.MULTILINE):
        with pytest.raises(SystemExit) as left:
            main([name, "--help"])
        shown = capsys.readouterr().out
        assert left.value.code == 0
        assert all(option in shown for option in re.findall(r"--[a-z-]+", rest))


def test_its_workflow_gives_the_action_inputs_that_it_has_and_pins_the_others() -> None:
    (workflow,) = [
        block
        for block in re.findall(r"^```yaml\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
        if "jobs:" in block
    ]
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    (job,) = yaml.safe_load(workflow)["jobs"].values()
    *others, step = job["steps"]
    assert all(re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", other["uses"]) for other in others)
    assert step["uses"] == "repro-gate/repro-gate@v1"
    assert step["with"]["policy"] == "base" and step["with"].keys() <= action["inputs"].keys()
