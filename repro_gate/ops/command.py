"""What `repro-gate ops` does: measures a catalog or reads one, keeps a whole one for gate runs, and
shows it, or what changed since another."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from repro_gate.errors import UsageError, obeyed
from repro_gate.escape import for_terminal
from repro_gate.ops import pages
from repro_gate.ops.catalog import Catalog, cached_path, read, text, write
from repro_gate.ops.driver import Wanted, measure
from repro_gate.runs.progress import Watch
from repro_gate.sandbox.confinement import confined
from repro_gate.sandbox.selection import choose

__all__ = ["Catalog", "Wanted", "measured", "read", "rendered"]


def rendered(catalog: Catalog, before: Catalog | None, form: str, *, verbose: bool = True) -> str:
    """Return the catalog as `json`, or a page of it or of what changed since `before` as `txt`,
    `md` or `html`."""
    if form == "json":
        return text(catalog)
    page = pages.page_of(catalog) if before is None else pages.page_of_both(before, catalog)
    return pages.render(page, form, verbose=verbose)


def measured(wanted: Wanted, environment: Mapping[str, str], watch: Watch) -> Catalog:
    """Measure a catalog, and keep a whole one for gate runs on this platform. Raises GateError."""
    for name in wanted.own:
        if not all(name.partition(":")[::2]):
            raise UsageError(
                f"--op {name}: is not of the form module:function",
                remedy="such as `--op mykernels.ops:scatter`",
            )
    sandbox = choose(environment)
    if wanted.own and sandbox.own_user:
        raise UsageError(
            "--op: the training has a user of its own here, who cannot read the current folder",
            remedy="measure your own operators where gate and training are one user: "
            "`REPRO_GATE_SANDBOX=same-user`",
        )
    with confined(sandbox, environment, Path.cwd(), tell=watch.said), obeyed():
        found = measure(wanted, environment, sandbox, watch)
    path = cached_path(environment, found.platform)
    if path is not None and found.complete and found.scope == "all":
        try:
            write(path, found)
        except OSError as error:
            watch.said(for_terminal(f"{path}: cannot be written: {error.strerror}", 300))
    return found
