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
from repro_gate.escape import (
    for_encoding,
    for_log,
    for_terminal,
    log_guard,
    on_github,
)
from repro_gate.files import leads_out, replace_file
from repro_gate.report import terminal
from repro_gate.report.model import PLAIN, Report, View
from repro_gate.report.progress import Lines
from repro_gate.runs.progress import Watch
from repro_gate.spec.loader import checkout_of

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


def written(report: Report | Fleet, files: Files) -> list[str]:
    """Write a report, or the answer of a fleet check, in these formats. Return the names of the
    files that could be written."""
    names = []
    for form, path in files:
        render = pkgutil.resolve_name(f"repro_gate.report.{form}")
        if write(path, render(report)):
            names.append(str(path))
    return names


def show(report: Report, files: Files, *, verbose: bool) -> bool:
    """Print a report, its files first: a closed pipe must not lose them. Return whether all of them
    could be written."""
    names = written(report, files)
    print_guarded(terminal.render(report, view(verbose), names))
    return len(names) == len(files)


def say(line: str, limit: int | None = None) -> None:
    """Print one line, in at most `limit` characters."""
    print(for_log(for_terminal(line, limit)), flush=True)


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
    if path is None:
        return
    why = "it is a folder" if path.is_dir() else _led_out(path)
    if not path.absolute().parent.is_dir():
        why = "its folder does not exist"
    if why:
        raise UsageError(
            f"{path}: cannot be written: {why}",
            remedy="name a file in a folder that exists, by its own path",
        )


def _led_out(path: Path) -> str:
    """Return why what is written at a path would not stay in the checkout that the path names: its
    code may have put a link there. Empty where it would, or where it is a device."""
    if str(path.absolute()).startswith(("/dev/", "/proc/")):
        return ""
    why = leads_out(path, checkout_of(path))
    return why and f"a link leads to where it {why}"


def replace(path: Path, text: str) -> None:
    """Write a file of the checkout in the place of what is there, a link too. Raise UsageError if
    it cannot be written."""
    try:
        replace_file(path, text.encode(), 0o644)
    except OSError as error:
        raise UsageError(
            _unwritable(path, error), remedy="see that its folder can be written to"
        ) from None


def _unwritable(path: Path, error: OSError) -> str:
    return f"{path}: cannot be written: {error.strerror}"


def make_empty(folder: Path) -> None:
    """Make the folder of `--keep-traces`. Raise UsageError if it cannot be made or written to, or
    holds something: before the runs."""
    why = _led_out(folder)
    try:
        if not why:
            folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
            why = "already exists and is not empty" if any(folder.iterdir()) else ""
    except OSError as error:
        why = str(error.strerror)
    if why:
        raise UsageError(
            f"--keep-traces {folder}: {why}",
            remedy="name a new folder that can be written to, by its own path",
        )


def write(path: Path | None, text: str) -> bool:
    """Write a file if one was asked for, or say on standard error that it cannot be written and
    return False: what is printed besides is still worth having."""
    if path is None:
        return True
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        print(for_log(f"repro-gate: {_unwritable(path, error)}"), file=sys.stderr)
        return False
    return True
