"""The runner's files and commands: read back here as the runner reads them, with everything in them that untrusted code would try."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from repro_gate.errors import Inconclusive
from repro_gate.github import workflow
from repro_gate.github.workflow import annotation, select, write_outputs, write_summary
from repro_gate.report.findings import LEVELS, Annotation

ON_GITHUB = {"GITHUB_ACTIONS": "true"}


def outputs_in(path: Path) -> dict[str, str]:
    """GITHUB_OUTPUT as the runner reads it: lines end at LF only, `name<<delimiter` or `name=value`."""
    lines = iter(path.read_bytes().decode("utf-8").split("\n"))
    found: dict[str, str] = {}
    for line in lines:
        if not line:
            continue
        name, sign, delimiter = line.partition("<<")
        if not sign or "=" in name:
            name, sign, found[name] = line.partition("=")
            assert sign, f"the runner would fail: invalid format {line!r}"
            continue
        value = []
        while (part := next(lines)) != delimiter:
            value.append(part)
        found[name] = "\n".join(value)
    return found


def command_of(line: str) -> tuple[str, dict[str, str], str]:
    """Name, properties and data of one command line, as the runner takes it apart."""
    found = re.fullmatch(r"::([a-z-]+)(?: ([^\n]*?))?::([^\n\r]*)", line)
    assert found is not None, line
    pairs = [pair.partition("=") for pair in (found[2] or "").split(",") if pair]
    data = {"%0A": "\n", "%0D": "\r", "%3A": ":", "%2C": ",", "%25": "%"}

    def plain(text: str) -> str:
        return re.sub("%(?:0A|0D|3A|2C|25)", lambda code: data[code[0]], text)

    return found[1], {name: plain(value) for name, _, value in pairs}, plain(found[3])


@pytest.mark.parametrize(
    "value",
    [
        "pass",
        "",
        "two\nlines",
        "\n",
        "a=b",
        "verdict=pass\nx<<EOF\nEOF",
        "\r\n::error::x",
        '{"step": 3}',
        "é\u202e\U0001f600",
        "trailing\n",
    ],
)
def test_an_output_arrives_as_it_was(tmp_path: Path, value: str) -> None:
    path = tmp_path / "output"
    path.touch()
    write_outputs(path, {"verdict": value, "after": "1"})
    assert outputs_in(path) == {"verdict": value, "after": "1"}


def test_outputs_are_added_after_what_stands_there_even_on_an_open_line(tmp_path: Path) -> None:
    path = tmp_path / "output"
    path.write_text("earlier=1")
    write_outputs(path, {"verdict": "pass"})
    write_outputs(path, {"cause": ""})
    assert outputs_in(path) == {"earlier": "1", "verdict": "pass", "cause": ""}


def test_a_value_cannot_end_itself_since_each_delimiter_is_new(tmp_path: Path) -> None:
    path = tmp_path / "output"
    write_outputs(path, {"a": "x"})
    seen = path.read_text().split("\n")[0].partition("<<")[2]
    write_outputs(path, {"b": f"x\n{seen}\nverdict=pass"})
    assert outputs_in(path) == {"a": "x", "b": f"x\n{seen}\nverdict=pass"}


def test_a_delimiter_that_stands_in_the_value_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = iter(["aa", "bb"])
    monkeypatch.setattr("secrets.token_hex", lambda _: next(tokens))
    write_outputs(tmp_path / "output", {"a": "x\nend-aa\nverdict=pass"})
    assert outputs_in(tmp_path / "output") == {"a": "x\nend-aa\nverdict=pass"}


def test_half_a_character_does_not_stop_the_outputs(tmp_path: Path) -> None:
    write_outputs(tmp_path / "output", {"a": "x\ud800"})
    assert outputs_in(tmp_path / "output") == {"a": "x\\ud800"}


@pytest.mark.parametrize("name", ["", "a b", "a=b", "a\nb", "a<<b"])
def test_a_name_that_is_none_is_our_own_mistake(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="not a name for an output"):
        write_outputs(tmp_path / "output", {name: "x"})


def test_without_the_runners_files_nothing_is_written() -> None:
    write_outputs(None, {"verdict": "pass"})
    assert write_summary(None, "# x")


@pytest.mark.parametrize("kind", ["link", "dangling", "pipe", "second name", "folder"])
def test_what_is_not_the_runners_own_file_is_refused_and_not_written_to(tmp_path: Path, kind: str) -> None:
    target, path = tmp_path / "target", tmp_path / "output"
    if kind != "dangling":
        target.write_text("shadow")
    if kind in ("link", "dangling"):
        path.symlink_to(target)
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "second name":
        path.hardlink_to(target)
    else:
        path.mkdir()
    with pytest.raises(Inconclusive, match="GITHUB_OUTPUT") as caught:
        write_outputs(path, {"verdict": "pass"})
    assert caught.value.remedy
    with pytest.raises(Inconclusive, match="GITHUB_STEP_SUMMARY"):
        write_summary(path, "# x")
    assert not target.exists() if kind == "dangling" else target.read_text() == "shadow"


def test_a_summary_is_added_on_a_line_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "summary"
    path.write_text("earlier")
    assert write_summary(path, "# Gate\n")
    assert path.read_text() == "earlier\n# Gate\n"


@pytest.mark.parametrize("earlier", ["", "x" * 1000, "x" * 999 + "\n"])
def test_a_summary_is_measured_in_bytes_together_with_what_stands_there(tmp_path: Path, earlier: str) -> None:
    path = tmp_path / "summary"
    path.write_text(earlier)
    room = workflow.SUMMARY_BYTES - len(earlier) - (earlier[-1:] == "x")
    markdown = "é" * (room // 2) + "y" * (room % 2)
    assert not write_summary(path, markdown + "z") and path.read_text() == earlier
    assert write_summary(path, markdown) and path.stat().st_size == workflow.SUMMARY_BYTES


def test_an_annotation_names_file_lines_and_title() -> None:
    item = Annotation(level="error", title="Repro Gate: diverged", message="first\nsecond", file="src/train.py", line=41, end_line=43)
    assert annotation(item) == "::error title=Repro Gate%3A diverged,file=src/train.py,line=41,endLine=43::first%0Asecond"


@pytest.mark.parametrize(
    "item",
    [
        Annotation(level="notice", title="", message="x"),
        Annotation(level="notice", title="", message="x", file=None, line=4, end_line=5),
        Annotation(level="notice", title="x", message=""),
    ],
)
def test_what_is_not_known_of_a_place_is_left_out(item: Annotation) -> None:
    assert annotation(item) in ("::notice::x", "::notice title=x::x")


def test_a_line_without_sense_is_left_out() -> None:
    assert annotation(Annotation(level="warning", title="", message="x", file="a.py", line=0, end_line=4)) == "::warning file=a.py::x"
    assert (
        annotation(Annotation(level="warning", title="", message="x", file="a.py", line=4, end_line=3)) == "::warning file=a.py,line=4::x"
    )


@pytest.mark.parametrize(
    "text",
    ["a::b", "x\n::set-output name=v::1", "x\r::stop-commands::y", "%0A::error::", "a,line=9,file=/etc/passwd", "100%", "\u2028::error::"],
)
def test_no_text_of_an_annotation_becomes_a_command_or_a_property(text: str) -> None:
    line = annotation(Annotation(level="error", title=text, message=text, file=text, line=3))
    name, properties, data = command_of(line)
    assert name == "error" and set(properties) == {"title", "file", "line"} and properties["line"] == "3"
    assert line.isprintable() and data == "\n".join(part.replace("\r", "\\r").replace("\u2028", "\\u2028") for part in text.split("\n"))


@pytest.mark.parametrize("char", ["x", "%", "\n", "\u202e", "\U0001f600", "é"])
def test_a_message_is_cut_to_what_the_runner_keeps(char: str) -> None:
    data = command_of(annotation(Annotation(level="error", title="t", message=char * 5000 + "end")))[2]
    assert len(data.encode("utf-16-le")) // 2 <= workflow.MESSAGE and "…" in data and data.endswith("end")


def test_a_message_that_fits_is_whole() -> None:
    assert command_of(annotation(Annotation(level="error", title="t", message="x" * workflow.MESSAGE)))[2] == "x" * workflow.MESSAGE


def test_errors_come_first_and_each_level_keeps_its_order() -> None:
    given = [Annotation(level=level, title=str(number), message="x") for number in range(10) for level in reversed(LEVELS)]
    chosen = select(given)
    assert [item.level for item in chosen] == [level for level in LEVELS for _ in range(10)]
    assert [item.title for item in chosen[:10]] == [str(number) for number in range(10)]


def test_the_tenth_of_eleven_says_how_many_are_left_out() -> None:
    chosen = select(
        [Annotation(level="warning", title=str(number), message="x") for number in range(11)]
        + [Annotation(level="error", title="e", message="x")]
    )
    assert len(chosen) == 11 and chosen[0].title == "e" and [item.title for item in chosen[1:10]] == [str(number) for number in range(9)]
    assert chosen[10].level == "warning" and "2 more warnings" in chosen[10].message
