"""`repro-gate show REPORT` prints a report.json again, or writes it in another format; with two of
them, what changed between them.

Nothing is gated, so the exit code is 0 whatever the verdicts say; 2 where a file is no report. What
is read is untrusted.
"""

from __future__ import annotations

import argparse
import os

from repro_gate.commands import output
from repro_gate.errors import UsageError
from repro_gate.github.workflow import log_guard
from repro_gate.report.document import load


def show(options: argparse.Namespace) -> int:
    """Print one report or the difference of two. Raises GateError for what cannot be read or
    written."""
    given = [path for path in (options.a, options.b) if path is not None]
    paths = [path / "report.json" if path.is_dir() else path for path in given]
    files = output.files_of(options, paths)
    if len(paths) == 2 and files:
        raise UsageError(
            f"--{files[0][0].option}: writes one report, and two are named",
            remedy="name the one that is to be written",
        )
    if len(paths) == 2 and options.verbose:
        raise UsageError(
            "--verbose: prints one report, and two are named",
            remedy="leave it out: all that changed is printed without it",
        )
    reports = [load(path) for path in paths]
    if len(reports) == 1:
        output.remove(files)
        return (
            0 if output.show(reports[0], files, verbose=options.verbose) else UsageError.exit_code
        )
    from repro_gate.report import between

    first, second = (str(path) for path in given)
    with log_guard(os.environ):
        print(
            between.render(reports[0], reports[1], (first, second), output.view()),
            end="",
            flush=True,
        )
    return 0
