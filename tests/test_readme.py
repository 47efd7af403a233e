"""The README is true: its links lead somewhere, its commands exist, and its demo is a report as the gate prints it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from repro_gate.checks.interface import CATEGORIES
from repro_gate.checks.pages import placed
from repro_gate.cli import main

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "CONTRIBUTING.md",
        "examples/workflows/README.md",
        *(f"docs/{name}.md" for name in ("flags", "causes", "repro-yml", "trust-model", "content-address", "lock")),
        *(f"docs/{name}.md" for name in ("action", "preflight", "what-a-pass-does-not-cover", "checks/README")),
    ],
)
def test_every_relative_link_leads_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!https?://|#)([^)#]+)", text):
        assert (ROOT / page).parent.joinpath(target).exists(), target


def test_the_demo_is_a_report_as_it_was_printed() -> None:
    demo = README.split("<!-- demo -->")[1].split("<!-- /demo -->")[0]
    for part in ("PASS", "same bits twice", "address      sha256:", "noise floor", "\n  cost ", "Checklist", "See it again"):
        assert part in demo
    assert all(re.search(rf"^  {category} +\d+ of \d+$", demo, re.MULTILINE) for category in CATEGORIES)


def test_the_table_of_checks_is_current() -> None:
    assert placed(README, "docs/checks/") == README, "run `python -m repro_gate.checks.pages`"


def test_every_command_and_option_it_names_exists(capsys: pytest.CaptureFixture[str]) -> None:
    table = README.split("## Commands")[1].split("## Exit codes")[0]
    commands = re.findall(r"^\| `repro-gate (\w+)", table, re.MULTILINE)
    assert commands == ["run", "check", "lock", "hash", "explain", "comment", "compare", "init", "schema"]
    for name, rest in re.findall(r"^\| `repro-gate (\w+)(.*)$", table, re.MULTILINE):
        with pytest.raises(SystemExit) as left:
            main([name, "--help"])
        shown = capsys.readouterr().out
        assert left.value.code == 0
        assert all(option in shown for option in re.findall(r"--[a-z-]+", rest))


def test_its_workflow_pins_every_action_but_the_gates_own() -> None:
    (workflow,) = [block for block in re.findall(r"^```yaml\n(.*?)^```", README, re.MULTILINE | re.DOTALL) if "jobs:" in block]
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    used = re.findall(r"uses: (\S+)", workflow)
    assert all(re.fullmatch(r"repro-gate/repro-gate@v1|\S+@[0-9a-f]{40}", name) for name in used)
    (job,) = yaml.safe_load(workflow)["jobs"].values()
    step = job["steps"][-1]
    assert step["uses"].startswith("repro-gate/repro-gate@")
    assert step["with"]["policy"] == "base" and step["with"].keys() <= action["inputs"].keys()
