"""`repro-gate show REPORT` prints a report.json again, or writes it in another format.

Nothing is gated, so the exit code is 0 whatever the verdict says; 2 where a file is no report. What
is read is untrusted.
"""

from __future__ import annotations

import argparse

from repro_gate.commands import output
from repro_gate.errors import UsageError
from repro_gate.report.document import load


def show(options: argparse.Namespace) -> int:
    """Print one report. Raises GateError for what cannot be read or written."""
    path = options.report / "report.json" if options.report.is_dir() else options.report
    files = output.files_of(options, [path])
    report = load(path)
    output.remove(files)
    return 0 if output.show(report, files, verbose=options.verbose) else UsageError.exit_code
