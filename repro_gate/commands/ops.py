"""`repro-gate ops`: measures which torch operators repeat their bits on this machine, shows a
catalog, or compares two.

Exit code 0 where the catalog is whole, 2 for bad arguments or files, 3 where it could not be
measured, or not to its end.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from repro_gate.commands import output
from repro_gate.errors import Inconclusive, UsageError, obeyed
from repro_gate.escape import for_log, for_terminal
from repro_gate.gate.operators import Wanted, measure
from repro_gate.github.workflow import log_guard
from repro_gate.ops import catalog as file
from repro_gate.ops.catalog import Catalog
from repro_gate.report import operator_pages, operators
from repro_gate.report.operator_progress import watching
from repro_gate.sandbox.confinement import confined
from repro_gate.sandbox.selection import choose


def ops(options: argparse.Namespace) -> int:
    """Measure and show, or only show or compare what is in files. Raises GateError."""
    files = {
        name: path
        for name in ("json", "markdown", "html")
        if (path := getattr(options, name)) is not None
    }
    read = [path for path in (options.catalog, options.compare) if path is not None]
    if len({path.resolve() for path in (*files.values(), *read)}) < len(files) + len(read):
        raise UsageError("one file is named twice", remedy="name another file")
    for path in files.values():
        output.writable(path)
    before = None if options.compare is None else file.read(options.compare)
    if options.catalog is not None:
        _only_shown(options)
        found = file.read(options.catalog)
    else:
        found = _measured(options)
    page = operators.page(found) if before is None else operators.compared(before, found)
    texts = {"markdown": operator_pages.markdown, "html": operator_pages.html}
    written = [
        output.write(path, file.text(found) if name == "json" else texts[name](page))
        for name, path in files.items()
    ]
    with log_guard(os.environ):
        print(
            operator_pages.terminal(page, output.view(), verbose=options.verbose),
            end="",
            flush=True,
        )
    if not all(written):
        return UsageError.exit_code
    return 0 if found.complete or options.catalog is not None else Inconclusive.exit_code


def _measured(options: argparse.Namespace) -> Catalog:
    wanted = Wanted(
        device=options.device,
        pattern=options.only or "",
        quick=options.quick,
        own=tuple(options.op),
        python=options.python or "",
        fresh=options.fresh,
        command=_command(options),
    )
    if bad := next((name for name in wanted.own if not all(name.partition(":")[::2])), None):
        raise UsageError(
            f"--op {bad}: is not of the form module:function",
            remedy="such as `--op mykernels.ops:scatter`",
        )
    sandbox = choose(os.environ)
    if wanted.own and sandbox.own_user:
        problem = (
            "--op: the training has a user of its own here, who cannot read the current folder"
        )
        raise UsageError(
            problem,
            remedy="measure your own operators where gate and training are one user: "
            "`REPRO_GATE_SANDBOX=same-user`",
        )
    with (
        watching(sys.stderr, terminal=sys.stderr.isatty(), quiet=options.quiet) as watch,
        confined(sandbox, os.environ, Path.cwd(), tell=watch.said),
        obeyed(),
    ):
        found = measure(wanted, os.environ, sandbox, watch)
    _keep(found, os.environ)
    return found


def _command(options: argparse.Namespace) -> str:
    """The command line without the files that it writes, which say nothing about what was
    measured."""
    words = ["repro-gate", "ops"]
    for name in ("device", "only"):
        words += [f"--{name}", getattr(options, name)] if getattr(options, name) else []
    words += ["--quick"] if options.quick else []
    for own in options.op:
        words += ["--op", own]
    return shlex.join(words)


def _keep(found: Catalog, environment: Mapping[str, str]) -> None:
    """Keep a whole catalog for gate runs on this platform; a quick one does not take the place of
    one that is not."""
    path = file.cached_path(environment, found.platform)
    if path is None or not found.complete or found.scope == "some":
        return
    try:
        if found.scope == "quick" and path.is_file() and file.read(path).scope == "all":
            return
    except UsageError:  # damaged, or of another version: it is replaced
        pass
    try:
        file.write(path, found)
    except OSError as error:
        told = (
            f"repro-gate: {path}: cannot be written: {error.strerror}; gate runs will not know "
            "this catalog"
        )
        print(for_log(for_terminal(told), environment), file=sys.stderr)


def _only_shown(options: argparse.Namespace) -> None:
    """Raises UsageError for what only a measurement could heed."""
    given = [
        name
        for name in ("device", "only", "quick", "op", "python", "fresh")
        if getattr(options, name)
    ]
    if given:
        raise UsageError(
            f"--{given[0]}: nothing is measured where a catalog is named",
            remedy="leave one of them out",
        )
