"""The loop that looks like the training's in a process that recorded nothing, so that the gate can
say where two lines are to be added."""

from __future__ import annotations

import contextlib
import sys

from . import source_line

_FILES = 200  # modules of the workspace that are read
_BYTES = 1 << 20  # of one file


def largest_loop() -> str:
    """`train.py:12`: the loop with the most code, among the modules of the workspace that this
    process has loaded; empty without one, and where they cannot be read."""
    with contextlib.suppress(Exception):
        return _largest_loop()
    return ""


def _largest_loop() -> str:
    import ast

    largest, place = 0, ""
    files = {getattr(module, "__file__", None) or "" for module in list(sys.modules.values())}
    for path in sorted(path for path in files if path.endswith(".py") and source_line.inside(path))[
        :_FILES
    ]:
        # not what it was when it was imported, or nested too deep
        with contextlib.suppress(Exception):
            with open(path, "rb") as file:
                tree = ast.parse(file.read(_BYTES))
            for node in ast.walk(tree):
                size = (
                    sum(1 for _ in ast.walk(node)) if isinstance(node, (ast.For, ast.While)) else 0
                )
                if size > largest:
                    largest, place = size, "%s:%d" % (source_line.inside(path), node.lineno)  # type: ignore[attr-defined]
    return place
