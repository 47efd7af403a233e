"""The page for coding agents is true: its commands are ours, its jq lines run on reports and name
fields that the schema has."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from repro_gate.commands.arguments import parser
from repro_gate.factors import Cause
from repro_gate.report.document import to_json
from repro_gate.report.model import EXIT_CODES
from repro_gate.report.schema import PATH
from tests.support import reports

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs/for-agents.md").read_text(encoding="utf-8")
SCHEMA: dict[str, Any] = json.loads(PATH.read_text(encoding="utf-8"))
LINES = [
    line.strip()
    for block in re.findall(r"^ *```sh\n(.*?)^ *```", PAGE, re.MULTILINE | re.DOTALL)
    for line in block.splitlines()
]
COMMANDS = [shlex.split(line, comments=True) for line in LINES if line.startswith("repro-gate ")]
QUERIES = [shlex.split(line, comments=True) for line in LINES if line.startswith("jq ")]
NEEDS_JQ = pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
PROGRAMS = [query[-2] for query in QUERIES]


def fields(program: str) -> Iterator[tuple[str, ...]]:
    """The paths of the report that a jq program asks for. A stage that is one path is where the
    next stages stand."""
    here: tuple[str, ...] = ()
    for stage in map(
        str.strip, re.sub(r'"([^"\\]|\\[^(])*"', '""', program.replace("\\n", "")).split("|")
    ):
        found = [
            tuple(path.strip(".").split("."))
            for path in re.findall(
                r"(?<![\w)])\.[A-Za-z_][\w.]*(?=\W|$)", stage.replace("[]", "").replace("?", "")
            )
        ]
        yield from (here + path for path in found)
        if constructed := re.fullmatch(r"\{([\w, ]+)\}", stage):
            yield from ((*here, name.strip()) for name in constructed[1].split(","))
        if len(found) == 1 and re.fullmatch(r"[.\w\[\]?]+", stage):
            here += found[0]


def has(part: dict[str, Any], path: tuple[str, ...]) -> bool:
    """Whether the schema has a field at `path`: through references, choices and lists."""
    if "$ref" in part:
        part = SCHEMA["$defs"][part["$ref"].removeprefix("#/$defs/")]
    if not path:
        return True
    inner = [*part.get("anyOf", ()), part.get("items")]
    if any(has(branch, path) for branch in inner if isinstance(branch, dict)):
        return True
    return path[0] in part.get("properties", {}) and has(part["properties"][path[0]], path[1:])


def test_every_field_that_is_asked_for_is_in_the_schema_in_the_order_that_the_page_promises() -> (
    None
):
    asked = list(dict.fromkeys(path for program in PROGRAMS for path in fields(program)))
    assert [path for path in asked if not has(SCHEMA, path)] == []
    assert all(any(fields(program)) for program in PROGRAMS)
    assert not has(SCHEMA, ("diagnosis", "remedies")) and not has(SCHEMA, ("verdict", "x"))
    tops = [*dict.fromkeys(path[0] for path in asked)]
    assert tops[:6] == ["verdict", "reasons", "diagnosis", "determinism", "checklist", "baseline"]
    assert {("diagnosis", "file"), ("determinism", "first_divergence", "max_ulp")} <= {*asked}


@NEEDS_JQ
@pytest.mark.parametrize("name", ["explained", "inconclusive", "nothing", "drift"])
def test_every_query_runs_on_a_report_of_each_kind_and_prints_cause_line_and_remedy(
    name: str, tmp_path: Path
) -> None:
    printed = ""
    for query in QUERIES:
        (tmp_path / query[-1]).write_text(json.dumps(to_json(reports.ALL[name])))
        done = subprocess.run(query, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0 and done.stderr == "", (query, done.stderr)
        printed += done.stdout * (query[-1] == "report.json")
    if name == "explained":
        for text in ("unseeded-rng", "src/train.py", "determinism/diverged: ", "data/checksums"):
            assert text in printed
        assert '"line": 41' in printed and '"step": 3' in printed
        assert printed.count(f"remedy: {reports.EXPLAINED.reasons[0].remedy}") == 1
        assert reports.EXPLAINED.reproduce in printed


def test_every_command_is_one_of_ours() -> None:
    assert {command[1] for command in COMMANDS} == {"check", "run", "explain"}
    for command in COMMANDS:
        parser().parse_args(command[1:])


def test_the_exit_codes_and_the_causes_are_all_there() -> None:
    table = re.findall(r"^\| (\d) \| `?(\w+)", PAGE, re.MULTILINE)
    codes = {str(code): verdict for verdict, code in EXIT_CODES.items()}
    assert dict(table) == {**codes, "2": "none"}
    causes = re.findall(r"^\| \[`([\w-]+)`\]\(causes/([\w-]+)\.md\) \| ", PAGE, re.MULTILINE)
    assert {name for name, _ in causes} == set(get_args(Cause))
    assert all(name == page for name, page in causes)
