"""What commands print on standard output, and the files that they write on request, one for each
format of a report."""

from __future__ import annotations

import argparse
import errno
import os
import pkgutil
import shutil
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from repro_gate.commands.arguments import FORMATS, Format
from repro_gate.errors import UsageError
from repro_gate.escape import for_encoding, for_log, log_guard, on_github
from repro_gate.report import terminal
from repro_gate.report.model import PLAIN, Report, View
from repro_gate.report.progress import watching
from repro_gate.runs.progress import Watch

Files = Sequence[tuple[Format, Path]]


def files_of(
    options: argparse.Namespace,
    read: Sequence[Path] = (),
    formats: Sequence[Format] = FORMATS,
) -> Files:
    """Return the files that the command line asks for. Raises UsageError for one that cannot be
    written, that is named twice or is in `read`."""
    asked = ((form, getattr(options, form.option, None)) for form in formats)
    files = [(form, path) for form, path in asked if path is not None]
    taken = {path.resolve(): "what is read" for path in read}
    for form, path in files:
        writable(path)
        other = taken.setdefault(path.resolve(), f"--{form.option}")
        if other != f"--{form.option}":
            raise UsageError(
                f"--{form.option} {path}: is the file of {other} too",
                remedy="name another file",
            )
    return files


def remove(files: Files) -> None:
    """Remove older reports: whoever reads a file after us must not find one. What is no file of its
    own, such as /dev/null, stays."""
    for _, path in files:
        if path.is_file() and not path.is_symlink():
            path.unlink(missing_ok=True)


def rendered(report: Report, form: Format) -> str:
    """Return the report in one format."""
    render = pkgutil.resolve_name(f"repro_gate.report.{form.render}")
    return str(render(report))


def show(report: Report, files: Files, *, verbose: bool) -> bool:
    """Print a report, its files first: a closed pipe must not lose them. Return whether all of them
    could be written."""
    written = [path for form, path in files if write(path, rendered(report, form))]
    print_report(report, verbose, [str(path) for path in written])
    return len(written) == len(files)


def print_report(report: Report, verbose: bool, written: Sequence[str] = ()) -> None:
    """Print a report as a terminal shows it."""
    print_guarded(terminal.render(report, view(verbose), written))


def print_guarded(text: str) -> None:
    """Print a whole text; no line of it is a command on GitHub."""
    with log_guard():
        print(for_encoding(text, sys.stdout.encoding or "utf-8"), end="", flush=True)


def report_at(path: Path) -> Path:
    """Return the path of a report.json, which may be named by its folder."""
    return path / "report.json" if path.is_dir() else path


def watch(options: argparse.Namespace) -> AbstractContextManager[Watch]:
    """Return the display of progress on standard error."""
    is_terminal = sys.stderr.isatty()
    return watching(
        sys.stderr, terminal=is_terminal, github=on_github(), quiet=options.quiet
    )


def view(verbose: bool = False) -> View:
    """Return a view for standard output; if it is no terminal, a line is as wide as it needs to
    be."""
    is_terminal = sys.stdout.isatty()
    fits = is_terminal or "COLUMNS" in os.environ
    width = shutil.get_terminal_size().columns if fits else PLAIN.width
    encoding = sys.stdout.encoding or "utf-8"
    return View(width=width, encoding=encoding, colour=is_terminal, verbose=verbose)


def writable(path: Path | None) -> None:
    """Raise UsageError for a file that cannot be written: before the runs, not after them."""
    why = "it is a folder" if path and path.is_dir() else ""
    if path and not path.absolute().parent.is_dir():
        why = "its folder does not exist"
    if why:
        raise UsageError(
            f"{path}: cannot be written: {why}",
            remedy="name a file in a folder that exists",
        )


def unwritable(path: Path, error: OSError) -> UsageError:
    """Return the error of a file that could not be written."""
    return UsageError(
        f"{path}: cannot be written: {error.strerror}",
        remedy="see that its folder can be written to",
    )


def make_empty(folder: Path | None) -> None:
    """Make the folder of `--keep-traces`. Raise UsageError if it cannot be made or written to, or
    holds something: before the runs."""
    if folder is None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        why = "already exists and is not empty" if any(folder.iterdir()) else ""
        if not os.access(folder, os.W_OK | os.X_OK):
            why = os.strerror(errno.EACCES)
    except OSError as error:
        why = str(error.strerror)
    if why:
        raise UsageError(
            f"--keep-traces {folder}: {why}",
            remedy="name a new folder that can be written to",
        )


def write(path: Path, text: str) -> bool:
    """Write a file, or say on standard error that it cannot be written and return False: what is
    printed besides is still worth having."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        line = f"repro-gate: {path}: cannot be written: {error.strerror}"
        print(for_log(line), file=sys.stderr)
        return False
    return True
