"""The README is true: its links lead somewhere, its commands exist, and its demo is a report as the gate prints it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from repro_gate.checks.table import placed
from repro_gate.cli import main

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "CONTRIBUTING.md",
        *(f"docs/{name}.md" for name in ("flags", "causes", "repro-yml", "trust-model", "content-address", "lock", "checks/README")),
    ],
)
def test_every_relative_link_leads_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!https?://|#)([^)#]+)", text):
        assert (ROOT / page).parent.joinpath(target).exists(), target


def test_the_demo_is_a_report_as_it_was_printed() -> None:
    demo = README.split("<!-- demo -->")[1].split("<!-- /demo -->")[0]
    for part in ("PASS", "same bits twice", "noise floor", "95% interval", "Checklist", "See it again"):
        assert part in demo


def test_the_table_of_checks_is_current() -> None:
    assert placed(README, "docs/checks/") == README, "run `python -m repro_gate.checks.table`"


def test_every_command_and_option_it_names_exists(capsys: pytest.CaptureFixture[str]) -> None:
    table = README.split("## Commands")[1].split("## Exit codes")[0]
    commands = re.findall(r"^\| `repro-gate (\w+)", table, re.MULTILINE)
    assert commands == ["run", "check", "lock", "hash", "explain", "compare", "init", "schema"]
    for name, rest in re.findall(r"^\| `repro-gate (\w+)(.*)$", table, re.MULTILINE):
        with pytest.raises(SystemExit) as left:
            main([name, "--help"])
        shown = capsys.readouterr().out
        assert left.value.code == 0
        assert all(option in shown for option in re.findall(r"--[a-z-]+", rest))
