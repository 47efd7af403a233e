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
SCHEMA = json.loads(PATH.read_text(encoding="utf-8"))
LINES = [
    line.strip()
    for block in re.findall(r"^ *```sh\n(.*?)^ *```", PAGE, re.MULTILINE | re.DOTALL)
    for line in block.splitlines()
]
COMMANDS = [shlex.split(line, comments=True) for line in LINES if line.startswith("repro-gate ")]
QUERIES = [shlex.split(line, comments=True) for line in LINES if line.startswith("jq ")]
NEEDS_JQ = pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")


@NEEDS_JQ
@pytest.mark.parametrize("name", ["explained", "inconclusive", "nothing", "drift"])
def test_every_query_prints_cause_line_and_remedy(name: str, tmp_path: Path) -> None:
    printed = ""
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


def fields(program: str) -> Iterator[tuple[str, ...]]:
    """The paths of the report that a jq program asks for. A stage that is one path is where the
    next stages stand."""
    here: tuple[str, ...] = ()
    text = re.sub(r'"([^"\\]|\\[^(])*"', '""', program.replace("\\n", ""))
    for stage in map(str.strip, text.split("|")):
        paths = re.findall(r"(?<![\w)])\.([A-Za-z_][\w.]*)", re.sub(r"\[\]|\?", "", stage))
        found = [tuple(path.strip(".").split(".")) for path in paths]
        yield from (here + path for path in found)
        if made := re.fullmatch(r"\{([\w, ]+)\}", stage):
            yield from ((*here, name.strip()) for name in made[1].split(","))
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


def test_every_field_that_is_asked_for_is_in_the_schema_in_the_promised_order() -> None:
    each = [[*fields(query[-2])] for query in QUERIES]
    asked = [*dict.fromkeys(path for paths in each for path in paths)]
    assert all(each) and [path for path in asked if not has(SCHEMA, path)] == []
    assert not has(SCHEMA, ("diagnosis", "remedies")) and not has(SCHEMA, ("verdict", "x"))
    tops = [*dict.fromkeys(path[0] for path in asked)]
    assert tops[:6] == ["verdict", "reasons", "diagnosis", "determinism", "checklist", "baseline"]
    assert {("diagnosis", "file"), ("determinism", "first_divergence", "max_ulp")} <= {*asked}


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
