"""The page for coding agents is true: its commands are ours, its jq lines run on reports and name
fields that the schema has."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import get_args

import pytest
import yaml

from repro_gate.commands.arguments import parser
from repro_gate.factors import Cause
from repro_gate.report.document import to_json
from repro_gate.report.model import EXIT_CODES
from tests.support import reports
from tests.support.schemas import path_of

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs/for-agents.md").read_text(encoding="utf-8")
SCHEMA = json.loads(path_of("report").read_text(encoding="utf-8"))
SKILL = (ROOT / "skills/repro-gate/SKILL.md").read_text(encoding="utf-8")


def shell_lines(text: str) -> list[str]:
    blocks = re.findall(r"^ *```sh\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL)
    return [line.strip() for block in blocks for line in block.splitlines()]


LINES = shell_lines(PAGE)
COMMANDS = [shlex.split(line, comments=True) for line in LINES if line.startswith("repro-gate ")]
QUERIES = [shlex.split(line, comments=True) for line in LINES if line.startswith("jq ")]
NEEDS_JQ = pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")


@NEEDS_JQ
@pytest.mark.parametrize("name", ["explained", "inconclusive", "nothing", "drift"])
def test_every_query_prints_cause_line_and_remedy(name: str, tmp_path: Path) -> None:
    printed = ""
    assert len(QUERIES) >= 6
    for query in QUERIES:
        (tmp_path / query[-1]).write_text(json.dumps(to_json(reports.ALL[name])))
        done = subprocess.run(query, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0 and done.stderr == "", (query, done.stderr)
        printed += done.stdout * (query[-1] == "report.json")
    if name == "explained":
        reason = reports.EXPLAINED.reasons[0].remedy
        assert printed.count(f"remedy: {reason}") == 1 and reports.EXPLAINED.reproduce in printed
        told = ("unseeded-rng", "src/train.py", '"line": 41', "determinism/diverged: ", '"step": 3')
        assert all(text in printed for text in (*told, "data/checksums"))


def test_every_field_that_is_asked_for_is_in_the_schema_in_the_promised_order() -> None:
    parts = [SCHEMA, *SCHEMA["$defs"].values()]
    known = {name for part in parts for name in part.get("properties", ())}
    programs = [re.sub(r'"[^"\\]*"', "", query[-2]) for query in QUERIES]
    for program in programs:
        made = [
            word for names in re.findall(r"\{([\w, ]+)\}", program) for word in names.split(", ")
        ]
        asked = {*re.findall(r"\.([a-z]\w*)", program), *made}
        assert asked and asked <= known, program
    tops = [*dict.fromkeys(program.split(".")[1].split()[0].strip("[]|") for program in programs)]
    assert tops[:6] == ["verdict", "reasons", "diagnosis", "determinism", "checklist", "baseline"]


def test_every_command_is_one_of_ours_and_exit_codes_and_causes_are_all_there() -> None:
    assert {command[1] for command in COMMANDS} == {"check", "run", "explain"}
    for command in COMMANDS:
        parser().parse_args(command[1:])
    table = re.findall(r"^\| (\d) \| `?(\w+)", PAGE, re.MULTILINE)
    codes = {str(code): verdict for verdict, code in EXIT_CODES.items() if verdict != "recorded"}
    assert dict(table) == {**codes, "2": "none"}
    causes = re.findall(r"^\| \[`([\w-]+)`\]\(causes/([\w-]+)\.md\) \| ", PAGE, re.MULTILINE)
    assert {name for name, _ in causes} == set(get_args(Cause))
    assert all(name == page for name, page in causes)


def test_the_skill_is_short_and_says_what_the_page_says() -> None:
    _, head, text = SKILL.split("---\n", 2)
    front = yaml.safe_load(head)
    assert front["name"] == "repro-gate" and len(front["description"]) < 1024
    assert len(SKILL.splitlines()) <= 60
    lines = shell_lines(text)
    assert len(lines) >= 8 and set(lines) <= set(LINES)
    assert {line.split()[1] for line in lines if line.startswith("repro-gate ")} == {
        *("check", "explain", "run"),
    }
