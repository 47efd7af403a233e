"""The text of a file in a checkout, read as what a stranger sent: bounded, a regular file, and never one outside the checkout.

Called by the readers of lockfiles, workflows and project files. Standard library only.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from repro_gate.files import NotRegular, leads_out, read_start

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


class Unreadable(Exception):
    """A file that cannot be used. The message is a clause that follows its name: `is no UTF-8 text`."""


def is_inside(path: Path, folder: Path) -> bool:
    """Whether `path`, with links followed, lies in `folder` or is it."""
    real, top = os.path.realpath(path), os.path.realpath(folder)
    return real == top or real.startswith(top.rstrip(os.sep) + os.sep)


def read_text(path: Path, within: Path, most: int) -> str:
    """The UTF-8 text of `path`. Raises Unreadable where it is not there, not inside `within`, git's own, no regular file or over
    `most` bytes."""
    try:
        if why := leads_out(path, within):
            raise Unreadable(why)
        content = read_start(path, most + 1)
    except FileNotFoundError:
        raise Unreadable("is not there") from None
    except NotRegular:
        raise Unreadable("is no regular file") from None
    except (OSError, ValueError) as error:
        raise Unreadable(f"cannot be read: {error}") from None
    if len(content) > most:
        raise Unreadable(f"is larger than {most} bytes")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Unreadable(f"is no UTF-8 text (byte {error.start})") from None


def parse_toml(text: str) -> dict[str, Any]:
    """The tables of a TOML text. Raises Unreadable with the line that tomllib names."""
    try:
        document: dict[str, Any] = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        said = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise Unreadable(f"is no TOML: {said}") from None
    return document
