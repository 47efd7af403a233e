"""Who is told how the runs go, in words that neither a terminal nor a workflow's runner obeys."""

from __future__ import annotations

import io
import os
import re
from argparse import Namespace
from contextlib import closing

import pytest

from repro_gate.commands import output
from repro_gate.compare.model import Divergence
from repro_gate.report.progress import Lines
from repro_gate.runs.launch import RunResult
from repro_gate.runs.progress import Watch
from tests.support.built_traces import run, training

HOSTILE = (
    "::error file=a::b",
    "\n::set-output name=x::y",
    "  ::add-mask::z",
    "##[add-path]/tmp",
    "\x1b[31m\x1b]0;t\x07",
    "\r::warning::w",
    "café \u202e…",
    "::stop-commands::x",
    "[red]markup[/red]",
)
GOOD = run("deterministic-1", training())
COMMAND = re.compile(r"^\s*::|##\[")


def bad(text: str) -> RunResult:
    """A run that ended badly, all of whose words are hostile."""
    ended = {"outcome": "crashed", "problem": text, "reason_id": "run/crashed"}
    return run("default-1", training(), tail=(text, *HOSTILE), **ended)  # type: ignore[arg-type]


def tell(watch: Watch, text: str) -> None:
    """A whole series, with everything that training code can put into it."""
    watch.run_started("deterministic-1", 1, 5, 3)
    watch.advanced(0, 0.5)
    watch.advanced(1, None)
    watch.run_ended(GOOD)
    watch.run_started("default-1", 2, 5, None)
    watch.diverged(Divergence(step=1, kind="gradient", name=text, process=text))
    watch.run_ended(bad(text))
    watch.advanced(0, 0.5)  # of a run that was not announced


def said(text: str, *, github: bool) -> list[str]:
    """The lines of one series."""
    stream = io.StringIO()
    tell(Lines(stream, github), text)
    return stream.getvalue().splitlines()


@pytest.mark.parametrize("text", HOSTILE)
def test_no_word_of_the_training_is_a_workflow_command(text: str) -> None:
    lines = said(text, github=True)
    obeyed, stopped, tokens = [], "", set()
    for line in lines:  # as the runner reads them
        if stopped:
            stopped = "" if line == f"::{stopped}::" else stopped
            assert not stopped or not COMMAND.search(line), line
        elif line.startswith("::stop-commands::"):
            stopped = line.removeprefix("::stop-commands::")
            tokens.add(stopped)
        elif COMMAND.search(line):
            obeyed.append(line.partition(" ")[0])
    assert obeyed == ["::group::run", "::endgroup::"] * 2 and not stopped
    assert len(tokens) == 2  # one for each group
    assert sum("  | " in line for line in lines) == 1 + len(HOSTILE)


def test_a_gate_run_that_ends_in_a_run_lets_the_runner_obey_again() -> None:
    stream = io.StringIO()

    def interrupted() -> None:
        with closing(Lines(stream, github=True)) as watch:
            watch.run_started("deterministic-1", 1, 5, 3)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    group, stop, go, end = stream.getvalue().splitlines()
    assert group.startswith("::group::") and end == "::endgroup::"
    assert go == stop.replace("stop-commands::", "") + "::"


@pytest.mark.parametrize("text", HOSTILE)
def test_plain_lines_hold_no_escapes_and_no_commands_of_ours(text: str) -> None:
    lines = said(text, github=False)
    assert lines[0] == "run 1 of 5: deterministic-1, 3 steps"
    assert all(line.isprintable() and not line.startswith("::") for line in lines)
    assert len(lines) == 6 + 1 + len(HOSTILE)
    assert "about 6.00 s for the other 4 runs" in lines


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (None, "identical so far"),
        (Divergence(step=3, kind="loss", name="loss"), "diverged at step 3"),
        (Divergence(step=-1, kind="parameter", name="fc.weight"), "diverged before the first step"),
    ],
)
def test_plain_lines_say_now_and_then_what_is_left_and_whether_the_run_is_identical_so_far(
    state: Divergence | None, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, now = io.StringIO(), [0.0]
    lines = Lines(stream, github=False)
    monkeypatch.setattr("repro_gate.report.progress.time.monotonic", lambda: now[0])
    for number, name in ((1, "deterministic-1"), (2, "deterministic-2"), (3, "reseeded")):
        now[0] = 0.0
        lines.run_started(name, number, 3, 50)
        if number == 2:
            lines.compared(state)
        for step, moment in ((9, 10.0), (19, 40.0), (20, 41.0)):  # the middle one alone is due
            now[0] = moment
            lines.advanced(step, 0.25)
        lines.run_ended(run(name, training()))
    said = [line for line in stream.getvalue().splitlines() if line.startswith("  ")]
    assert len(said) == 6
    assert said[0] == "  deterministic-1: step 19 of 50, loss 0.25, about 1 min 00 s left"
    assert said[2] == f"  deterministic-2: step 19 of 50, loss 0.25, about 1 min 00 s left, {words}"
    assert said[3].endswith(f"; {words}") and said[3].startswith("  finished after 3 steps, ")
    # a run that is not compared says nothing of it
    assert said[4].endswith("s left") and ";" not in said[1] + said[5]


def test_on_a_terminal_the_last_line_moves_and_fits_80_columns() -> None:
    stream = io.StringIO()
    lines = Lines(stream, github=False, moving=True)
    lines.run_started("deterministic-" + "x" * 90, 1, 5, 500)
    lines._said = -1.0
    lines.advanced(119, 0.123456789)
    moving = stream.getvalue().rpartition("\n")[2]
    assert moving.startswith("\r\x1b[K  deterministic-") and len(moving) <= 4 + 79
    lines.run_ended(bad("\x1b]0;t\x07"))
    assert "\r\x1b[K  crashed after" in stream.getvalue() and "\x1b]0;" not in stream.getvalue()


def test_the_watch_suits_its_stream() -> None:
    for quiet, kind in ((True, Watch), (False, Lines)):
        with output.watch(Namespace(quiet=quiet)) as watch:
            assert type(watch) is kind
            tell(watch, "x")
    reading, writing = os.pipe()
    os.close(reading)
    stream = os.fdopen(writing, "w")
    watch = Lines(stream, github=False)
    watch.run_started("deterministic-1", 1, 5, 4)
    watch.diverged(Divergence(step=0, kind="loss", name="loss"))
    with pytest.raises(BrokenPipeError):
        stream.close()  # what was written is still in its buffer
