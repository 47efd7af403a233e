"""`repro-gate ops`: measures which torch operators repeat their bits on this machine, shows a
catalog, or compares two.

Exit code 0 if the catalog is whole, 2 for bad arguments or files, 3 if it could not be measured, or
not to its end.
"""

from __future__ import annotations

import os
from argparse import Namespace

from repro_gate.commands import output
from repro_gate.commands.arguments import CATALOG_FORMATS
from repro_gate.errors import Inconclusive, UsageError
from repro_gate.ops import command


def ops_command(options: Namespace) -> int:
    """Measure and show, or only show or compare what is in files. Raises GateError."""
    read = [path for path in (options.catalog, options.compare) if path is not None]
    files = output.files_of(options, read, CATALOG_FORMATS)
    before = None if options.compare is None else command.read(options.compare)
    choice = command.Choice(
        *(getattr(options, name) for name in command.Choice._fields)
    )
    if options.catalog is None:
        with output.watch(options) as watch:
            catalog = command.measured(choice, os.environ, watch)
    elif any(choice):
        raise UsageError(
            "nothing is measured if a catalog is named",
            remedy="leave out the catalog, or what chooses what is measured",
        )
    else:
        catalog = command.read(options.catalog)
    written = [
        output.write(path, command.rendered(catalog, before, render))
        for render, path in files
    ]
    output.print_guarded(
        command.rendered(catalog, before, "txt", verbose=options.verbose)
    )
    if not all(written):
        return UsageError.exit_code
    is_whole = catalog.complete or options.catalog is not None
    return 0 if is_whole else Inconclusive.exit_code
