"""The help of every command, compared whole with `help.txt`: `make golden` writes it anew."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import pytest

from repro_gate.commands.arguments import parser

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
    if os.environ.get("REPRO_GATE_GOLDEN") == "write":
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8")
