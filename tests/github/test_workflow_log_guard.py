"""Nothing that is printed between the gate's two lines is a workflow command, whatever happens
meanwhile."""

from __future__ import annotations

import io
import re

import pytest

from repro_gate.github.workflow import commands_disabled, log_guard

ON_GITHUB = {"GITHUB_ACTIONS": "true"}


def test_what_is_printed_on_github_stands_between_a_stop_and_its_end() -> None:
    stream = io.StringIO()
    with log_guard(ON_GITHUB, stream):
        print("::error::forged", file=stream)
    first, inside, last = stream.getvalue().splitlines()
    token = first.removeprefix("::stop-commands::")
    assert inside == "::error::forged"
    assert last == f"::{token}::"
    assert re.fullmatch("[0-9a-f]{32}", token)


def test_each_stop_has_a_token_of_its_own() -> None:
    stream = io.StringIO()
    for _ in range(2):
        with commands_disabled(stream):
            pass
    first, _, second, _ = stream.getvalue().splitlines()
    assert first != second


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, BrokenPipeError])
def test_a_stop_is_ended_on_a_line_of_its_own_whatever_happens(error: type[BaseException]) -> None:
    stream = io.StringIO()

    def cut_off() -> None:
        with log_guard(ON_GITHUB, stream):
            stream.write("half a line")
            raise error

    with pytest.raises(error):
        cut_off()
    lines = stream.getvalue().splitlines()
    assert lines[1] == "half a line"
    assert lines[-1] == f"::{lines[0].removeprefix('::stop-commands::')}::"


@pytest.mark.parametrize("environment", [{}, {"GITHUB_ACTIONS": "1"}])
def test_elsewhere_nothing_is_added(environment: dict[str, str]) -> None:
    stream = io.StringIO()
    with log_guard(environment, stream):
        stream.write("x")
    assert stream.getvalue() == "x"
