"""What GitHub's runner reads from a step: its files for outputs and for the job's summary.

The limits are the runner's own: github.com/actions/runner, `ExecutionContext.cs`,
`FileCommandManager.cs`.
"""

from __future__ import annotations

import errno
import math
import os
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path

from repro_gate.errors import Inconclusive
from repro_gate.escape import for_terminal

# of a step, all that it writes together; a summary over it is left out whole
SUMMARY_BYTES = 1024 * 1024


def write_outputs(path: Path | None, outputs: Mapping[str, str]) -> None:
    """Append the step's outputs to GITHUB_OUTPUT, each between delimiters that nobody can guess;
    nothing if `path` is None.

    Raises Inconclusive if the runner's file is a link or no regular file, or cannot be written.
    """
    text = ""
    for name, value in outputs.items():
        delimiter = f"end-{secrets.token_hex(16)}"
        text += f"{name}<<{delimiter}\n{value}\n{delimiter}\n"
    _append(path, "GITHUB_OUTPUT", text)


def write_summary(path: Path | None, markdown: str) -> None:
    """Append `markdown` to GITHUB_STEP_SUMMARY, or nothing if it does not fit: the runner would
    drop all. Raises Inconclusive as `write_outputs` does."""
    _append(path, "GITHUB_STEP_SUMMARY", markdown, SUMMARY_BYTES)


def _append(
    path: Path | None, variable: str, text: str, limit: float = math.inf
) -> None:
    """Append to one of the runner's files, on a line of its own, if it then has at most `limit`
    bytes: whoever wrote before may have left a line open.

    The runner makes these files before the step starts. One that is a link, a pipe or has a second
    name is not the runner's any more, and as root we would write wherever it leads: it is refused.
    """
    if path is None:
        return
    # The runner passes over empty lines.
    data = b"\n" + text.encode("utf-8", "backslashreplace")
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
    try:
        with os.fdopen(os.open(path, flags, 0o644), "ab") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
                raise OSError(
                    errno.EPERM, "it is not a regular file, or has a second name"
                )
            if status.st_size + len(data) <= limit:
                file.write(data)
    except OSError as error:
        why = "it is a link" if error.errno == errno.ELOOP else error.strerror
        raise Inconclusive(
            f"{variable}: {for_terminal(os.fspath(path), 200)} cannot be written: {why}",
            remedy="the runner makes this file for each step: look for a step or a mount that has "
            "put something else in its place",
            reason_id="action/runner-file",
        ) from None
