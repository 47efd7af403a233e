"""The README is true: its links lead somewhere, and its commands exist. Its demo is compared with a
real run in e2e/test_examples."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

import pytest
import yaml

from repro_gate.cli import main
from repro_gate.commands.arguments import parser

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [
    *ROOT.glob("*.md"),
    *(path for place in ("docs", "examples") for path in (ROOT / place).rglob("*.md")),
]

LINE = re.compile(r"  (?P<label>[a-z-]+(?: [a-z]+)*)  +(?P<values>.*)")


def labels(printed: str) -> set[str]:
    """What stands before the values of each line, or its verdict."""
    lines = [line for line in map(str.rstrip, printed.splitlines()) if line]
    found = {labelled["label"] for line in lines if (labelled := LINE.fullmatch(line))}
    return found | {line.split()[0] for line in lines if line.split()[0].isupper()}


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
    lines = README.splitlines()
    assert len(lines) <= 165 and any("docs/images/comment-fail.png" in line for line in lines[:10])
    assert lines.index("## Commands") <= 75  # a screen and a half


def links(page: Path) -> list[tuple[str, str]]:
    """The relative links of a page: file and heading, one of which may be empty."""
    text = page.read_text(encoding="utf-8")
    return re.findall(r"\]\((?!https?://)([^)#]*)(?:#([^)]+))?\)", text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    for target, anchor in links(page):
        path = page.parent / target if target else page
        assert path.exists(), target
        assert not anchor or anchor in anchors(path), f"{target}#{anchor}"


def test_links_and_headings_are_found() -> None:
    found = {page: links(page) for page in PAGES}
    assert len(found[ROOT / "README.md"]) > 10
    assert sum(map(bool, found.values())) > len(PAGES) // 2
    assert sum(bool(anchor) for page in PAGES for _, anchor in found[page]) > 10
    assert all(map(anchors, PAGES))


def test_every_command_and_option_it_names_exists(capsys: pytest.CaptureFixture[str]) -> None:
    table = README.split("## Commands")[1].split("## Exit codes")[0]
    commands = re.findall(r"^\| `repro-gate (\w+)", table, re.MULTILINE)
    (choices,) = (
        action.choices
        for action in parser()._actions
        if isinstance(action, argparse._SubParsersAction)
    )
    assert sorted(commands) == sorted(set(choices) - {"report"})  # the old name of `show`
    options = {
        name: re.findall(r"--[a-z-]+", rest)
        for name, rest in re.findall(r"^\| `repro-gate (\w+)(.*)$", table, re.MULTILINE)
    }
    assert options["run"]
    for name, named in options.items():
        with pytest.raises(SystemExit) as left:
            main([name, "--help"])
        shown = capsys.readouterr().out
        assert left.value.code == 0
        assert [option for option in named if option not in shown] == []


def test_its_workflow_gives_the_action_inputs_that_it_has_and_pins_the_others() -> None:
    (workflow,) = [
        block
        for block in re.findall(r"^```yaml\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
        if "jobs:" in block and "on: pull_request" in block
    ]
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    (job,) = yaml.safe_load(workflow)["jobs"].values()
    *others, step = job["steps"]
    assert others
    assert all(re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", other["uses"]) for other in others)
    assert step["uses"] == "repro-gate/repro-gate@v1"
    assert step["with"]["policy"] == "base" and step["with"].keys() <= action["inputs"].keys()


def test_each_situation_has_at_most_twelve_lines_and_one_workflow() -> None:
    page = (ROOT / "docs/start.md").read_text(encoding="utf-8")
    table = re.findall(r"^\| \[([^]]+)\]\(#([^)]+)\) \| (.*) \|$", page, re.MULTILINE)
    sections = dict(re.findall(r"^## (.+)\n([\s\S]+?)(?=^## |\Z)", page, re.MULTILINE))
    assert len(table) == 10 and [title for title, _, _ in table] == list(sections)
    for title, _, workflow in table:
        assert len(sections[title].strip().splitlines()) <= 12, title
        assert ".yml" in workflow or workflow == "none", title


def test_the_table_of_what_was_tested_is_that_of_ci_and_of_the_last_run_on_a_gpu() -> None:
    page = (ROOT / "docs/how-it-works.md").read_text(encoding="utf-8")
    table = page.split("<!-- tested -->\n")[1].split("<!-- /tested -->")[0].splitlines()[2:]
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))
    pythons = ", ".join(workflow["jobs"]["test"]["strategy"]["matrix"]["python"])
    (torch,) = re.findall(r"^TORCH \?= torch==(.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    run = json.loads((ROOT / "benchmarks/results/gpu.json").read_text(encoding="utf-8"))
    machine, day = run["machine"], run["taken"][:10]
    assert table == [
        f"| {pythons} | {torch} | CPU | `ci`, on each push |",
        f"| {machine['python']} | {machine['torch']} | {machine['gpu']} | `make gpu`, on {day} |",
    ]
