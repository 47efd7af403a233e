"""What `repro-gate ops` does: measures a catalog or reads one, keeps a whole one for gate runs, and
shows it, or what changed since another."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

from repro_gate.errors import UsageError, obeyed
from repro_gate.escape import for_terminal
from repro_gate.ops import pages
from repro_gate.ops.catalog import Catalog, cached_path, read, text, write
from repro_gate.ops.driver import Wanted, Watch, measure
from repro_gate.sandbox.confinement import confined
from repro_gate.sandbox.identity import Sandbox
from repro_gate.sandbox.selection import choose

__all__ = ["Catalog", "Wanted", "measured", "read", "rendered"]


def rendered(catalog: Catalog, before: Catalog | None, form: str, *, verbose: bool = True) -> str:
    """Return the catalog as `json`, or a page of it or of what changed since `before` as `txt`,
    `md` or `html`."""
    if form == "json":
        return text(catalog)
    page = pages.page_of(catalog) if before is None else pages.page_of_both(before, catalog)
    return pages.render(page, form, verbose=verbose)


def measured(wanted: Wanted, environment: Mapping[str, str], stream: TextIO | None) -> Catalog:
    """Measure a catalog, and keep a whole one for gate runs on this platform. Progress goes to
    `stream`. Raises GateError."""
    for name in wanted.own:
        if not all(name.partition(":")[::2]):
            raise UsageError(
                f"--op {name}: is not of the form module:function",
                remedy="such as `--op mykernels.ops:scatter`",
            )
    sandbox: Sandbox = choose(environment)
    if wanted.own and sandbox.own_user:
        raise UsageError(
            "--op: the training has a user of its own here, who cannot read the current folder",
            remedy="measure your own operators where gate and training are one user: "
            "`REPRO_GATE_SANDBOX=same-user`",
        )
    watch = Watch(stream)
    with confined(sandbox, environment, Path.cwd(), tell=watch.said), obeyed():
        found = measure(wanted, environment, sandbox, watch)
    path = cached_path(environment, found.platform)
    if path is None or not found.complete or found.scope == "some":
        return found
    if found.scope == "all" or not _is_whole(path):
        try:
            write(path, found)
        except OSError as error:
            watch.said(for_terminal(f"{path}: cannot be written: {error.strerror}", 300))
    return found


def _is_whole(path: Path) -> bool:
    """Return whether a catalog of all cases is there, which a quick one must not replace."""
    try:
        return path.is_file() and read(path).scope == "all"
    except UsageError:  # damaged, or of another version
        return False
