"""Claims about `report.annotations`."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from repro_gate.report.exports import (
    MESSAGE,
    MOST_OF_A_LEVEL,
    Annotation,
    command,
    workflow_commands,
)
from repro_gate.report.model import Reason
from tests.support import reports


def command_of(line: str) -> tuple[str, dict[str, str], str]:
    """Name, properties and data of one command line, as the runner takes it apart."""
    found = re.fullmatch(r"::([a-z-]+)(?: ([^\n]*?))?::([^\n\r]*)", line)
    assert found is not None, line
    pairs = [pair.partition("=") for pair in (found[2] or "").split(",") if pair]
    data = {"%0A": "\n", "%0D": "\r", "%3A": ":", "%2C": ",", "%25": "%"}

    def plain(text: str) -> str:
        return re.sub("%(?:0A|0D|3A|2C|25)", lambda code: data[code[0]], text)

    return found[1], {name: plain(value) for name, _, value in pairs}, plain(found[3])


def test_what_is_not_known_of_a_place_is_left_out() -> None:
    assert command(Annotation(level="notice", title="", message="x", line=4)) == "::notice::x"
    assert command(Annotation(level="notice", title="x", message="")) == "::notice title=x::x"


@pytest.mark.parametrize(
    "text",
    [
        "a::b",
        "x\n::set-output name=v::1",
        "x\r::stop-commands::y",
        "%0A::error::",
        "a,line=9,file=/etc/passwd",
        "100%",
        "\u2028::error::",
    ],
)
def test_no_text_of_an_annotation_becomes_a_command_or_a_property(text: str) -> None:
    line = command(Annotation(level="error", title=text, message=text, file=text, line=3))
    name, properties, data = command_of(line)
    assert name == "error" and properties.keys() == {"title", "file", "line"}
    assert properties["line"] == "3"
    assert line.isprintable() and data == "\n".join(
        part.replace("\r", "\\r").replace("\u2028", "\\u2028") for part in text.split("\n")
    )


@pytest.mark.parametrize("char", ["x", "%", "\n", "\u202e", "\U0001f600", "é"])
def test_a_message_is_cut_to_what_the_runner_keeps(char: str) -> None:
    data = command_of(command(Annotation(level="error", title="t", message=char * 5000 + "end")))[2]
    assert len(data.encode("utf-16-le")) // 2 <= MESSAGE and "…" in data and data.endswith("end")


def test_the_last_of_too_many_says_how_many_are_left_out() -> None:
    found = enumerate(["warn"] * 11 + ["fail"])
    checks = tuple(reports.check(f"code/c-{number}", level) for number, level in found)
    lines = workflow_commands(replace(reports.PASS, checklist=checks, notes=())).splitlines()
    assert len(lines) == 1 + MOST_OF_A_LEVEL and lines[0].startswith("::error")
    assert "c-7," in lines[MOST_OF_A_LEVEL - 1]
    assert lines[-1].startswith("::warning") and "3 more warnings" in lines[-1]


def test_what_the_gate_saw_before_its_runs_is_a_notice() -> None:
    report = replace(
        reports.PASS,
        checklist=(),
        notes=(Reason("preflight/disk", "little is left", "free some"), Reason("other/x", "y")),
    )
    assert (
        workflow_commands(report) == "::notice title=preflight/disk::little is left%0Afree some\n"
    )
