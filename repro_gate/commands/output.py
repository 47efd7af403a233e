"""What commands print on standard output, and the files that they write on request, one for each
format of a report."""

from __future__ import annotations

import argparse
import pkgutil
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path

from repro_gate.commands.arguments import FORMATS
from repro_gate.compare.fleet import Fleet
from repro_gate.errors import UsageError
from repro_gate.escape import for_encoding, for_log, log_guard, on_github
from repro_gate.report import terminal
from repro_gate.report.model import PLAIN, Report, View
from repro_gate.report.progress import Lines
from repro_gate.runs.progress import Watch

Files = Sequence[tuple[str, Path]]  # what renders it, and where it goes


def files_of(
    options: argparse.Namespace,
    read: Sequence[Path] = (),
    formats: Mapping[str, str] = FORMATS,
) -> Files:
    """Return the files that the command line asks for. Raises UsageError for one that cannot be
    written, that is named twice or is in `read`."""
    files = []
    uses = {path.resolve(): "what is read" for path in read}
    for option, render in formats.items():
        if path := getattr(options, option, None):
            writable(path)
            use = uses.setdefault(path.resolve(), f"--{option}")
            if use != f"--{option}":
                raise UsageError(
                    f"--{option} {path}: is the file of {use} too",
                    remedy="name another file",
                )
            files.append((render, path))
    return files


def remove(files: Files) -> None:
    """Remove older reports: whoever reads a file after us must not find one. What is no file of its
    own, such as /dev/null, stays."""
    for _, path in files:
        if path.is_file() and not path.is_symlink():
            path.unlink(missing_ok=True)


def rendered(report: Report | Fleet, render: str) -> str:
    """Return the report, or the answer of a fleet check, in one format."""
    return str(pkgutil.resolve_name(f"repro_gate.report.{render}")(report))


def show(report: Report, files: Files, *, verbose: bool) -> bool:
    """Print a report, its files first: a closed pipe must not lose them. Return whether all of them
    could be written."""
    written = [path for render, path in files if write(path, rendered(report, render))]
    names = [str(path) for path in written]
    print_guarded(terminal.render(report, view(verbose), names))
    return len(written) == len(files)


def print_guarded(text: str) -> None:
    """Print a whole text; no line of it is a command on GitHub."""
    with log_guard():
        print(for_encoding(text, sys.stdout.encoding or "utf-8"), end="", flush=True)


def report_at(path: Path) -> Path:
    """Return the path of a report.json, which may be named by its folder."""
    return path / "report.json" if path.is_dir() else path


def watch(options: argparse.Namespace) -> AbstractContextManager[Watch]:
    """Return the display of progress on standard error."""
    if options.quiet:
        return nullcontext(Watch())
    return closing(Lines(sys.stderr, on_github(), moving=sys.stderr.isatty()))


def view(verbose: bool = False) -> View:
    """Return a view for standard output; if it is no terminal, a line is as wide as it needs to
    be."""
    encoding = sys.stdout.encoding or "utf-8"
    is_terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size((80 if is_terminal else PLAIN.width, 1)).columns
    return View(width=width, encoding=encoding, colour=is_terminal, verbose=verbose)


def writable(path: Path | None) -> None:
    """Raise UsageError for a file that cannot be written: before the runs, not after them."""
    if path and (path.is_dir() or not path.absolute().parent.is_dir()):
        why = "it is a folder" if path.is_dir() else "its folder does not exist"
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


def make_empty(folder: Path) -> None:
    """Make the folder of `--keep-traces`. Raise UsageError if it cannot be made or written to, or
    holds something: before the runs."""
    why = "already exists and is not empty"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            is_empty = not any(folder.iterdir())
    except OSError as error:
        is_empty = False
        why = str(error.strerror)
    if not is_empty:
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
        line = f"repro-gate: {unwritable(path, error).message}"
        print(for_log(line), file=sys.stderr)
        return False
    return True
