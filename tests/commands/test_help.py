"""The help of every command, compared whole with `help.txt`: `make golden` writes it anew."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pytest

from repro_gate.commands.arguments import parser
from tests.support.golden import golden

GOLDEN = Path(__file__).with_name("help.txt")


@pytest.mark.skipif(
    sys.version_info[:2] not in ((3, 11), (3, 12)),
    reason="argparse lays out its help in another way in each Python",
)
def test_the_help_of_every_command_is_the_golden_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    top = parser()
    (commands,) = (
        action for action in top._actions if isinstance(action, argparse._SubParsersAction)
    )
    text = "\n".join(command.format_help() for command in (top, *commands.choices.values()))
    golden(GOLDEN, text)
