"""What `repro-gate ops` does: measures a catalog or reads one, and shows it, or what changed since
another.

It measures two controls and lists the cases, then every row in one process and once more in a fresh
one. A row that ends its process, hangs or takes the memory is a row of the catalog, and another
process goes on after it. A whole catalog is written to the cache, for gate runs.
"""

from __future__ import annotations

import shlex
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal, NamedTuple

from repro_gate._version import __version__
from repro_gate.errors import Inconclusive, UsageError, obeyed
from repro_gate.escape import for_terminal
from repro_gate.files import scratch_folder
from repro_gate.machine import gpu_devices, read_machine
from repro_gate.ops import catalog as file
from repro_gate.ops import pages
from repro_gate.ops.catalog import ENDED, Arm, Catalog, Device, Key, Row
from repro_gate.ops.catalog import read as read
from repro_gate.ops.compare import merged
from repro_gate.ops.process import Line, ask
from repro_gate.runs import arms
from repro_gate.runs.interpreter import Interpreter, interpreter_on, unprobed
from repro_gate.runs.progress import Watch
from repro_gate.sandbox.confinement import confined
from repro_gate.sandbox.identity import Sandbox
from repro_gate.sandbox.selection import choose

EVERY = 30.0  # seconds between two lines of progress
_NOT_MEASURED = Arm(outcome="crash", message="it was not measured")
_EXPECTED = {"control/races": "differs", "control/repeats": "repeats"}
# without it, the flags refuse cuBLAS
_WORKSPACE = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}


class Choice(NamedTuple):
    """What the command line asks for, by the names of its options. What is left out is found out:
    `device`, `python`. `op` are `module:function`."""

    device: Device | None = None
    only: str | None = None
    op: Sequence[str] = ()
    python: str | None = None

    @property
    def scope(self) -> Literal["all", "some"]:
        """Return how much of the catalog that is."""
        return "some" if self.only or self.op else "all"

    @property
    def command(self) -> str:
        """Return the command line, without what says nothing about what was measured."""
        words = ["repro-gate", "ops"]
        options = [("--device", self.device), ("--only", self.only)]
        for option, value in (*options, *(("--op", own) for own in self.op)):
            words += [option, value] if value else []
        return shlex.join(words)[:1_000]


def rendered(
    catalog: Catalog, before: Catalog | None, form: str, *, verbose: bool = True
) -> str:
    """Return the catalog as `json`, or a page of it or of what changed since `before` as `txt`,
    `md` or `html`."""
    if form == "json":
        return file.text(catalog)
    page = pages.page_of_both(before, catalog) if before else pages.page_of(catalog)
    return pages.render(page, form, verbose=verbose)


def measured(choice: Choice, environment: Mapping[str, str], watch: Watch) -> Catalog:
    """Measure a catalog, and write a whole one to the cache for gate runs on this platform. Raises
    GateError."""
    sandbox = choose(environment)
    with confined(sandbox, environment, Path.cwd()), obeyed():
        catalog = measure(choice, environment, sandbox, watch)
    path = file.cached_path(environment, catalog.platform)
    if path is not None and catalog.complete and catalog.scope == "all":
        try:
            file.write(path, catalog)
        except OSError as error:
            problem = f"{path}: cannot be written: {error.strerror}"
            watch.said(for_terminal(problem, 300))
    return catalog


def measure(
    choice: Choice, outer: Mapping[str, str], sandbox: Sandbox, watch: Watch
) -> Catalog:
    """Measure; after a Ctrl-C the catalog holds what was measured until then, and is not
    `complete`.

    Raises Inconclusive if there is no torch or a control is wrong, UsageError if no case fits.
    """
    started = time.monotonic()
    date = datetime.now(timezone.utc)
    device: Device = choice.device or ("cuda" if gpu_devices() else "cpu")
    request: dict[str, Any] = {
        "device": device,
        "user": choice.op,
        "path": [str(Path.cwd())],
        "pattern": choice.only or "",
        "rows": None,
    }
    first: dict[Key, Row] = {}
    again: dict[Key, Row] = {}
    is_complete = False
    with scratch_folder() as folder:
        worker = _worker(choice, device, outer, sandbox, folder)
        lines: list[Line] = []
        ask(worker, request, lines.append)
        _require_controls(lines)
        platform = file.platform_of(lines[0].about, read_machine())
        listed = [line.listed for line in lines if line.listed][: file.MAX_ROWS]
        if not listed:
            remedy = "give `--only` a part of a name, or a pattern such as `*pool*`"
            raise UsageError("no case fits", remedy=remedy)
        watch.said(
            f"{for_terminal(platform.torch)} on {for_terminal(platform.device_name, 80)}: both "
            f"controls are right; {len(listed):,} rows"
        )
        try:
            _measure_rows(worker, request, listed, first, watch)
            repeating = [row.key for row in first.values() if "repeats" in row.outcomes]
            request["again"] = True
            _measure_rows(worker, request, repeating, again, watch)
            is_complete = True
        except KeyboardInterrupt:
            pass  # signals wait from here on
    rows = tuple(merged(row, again.get(key)) for key, row in first.items())
    _require_own(choice, rows)
    return Catalog(
        schema="repro-gate/ops/v1",
        repro_gate=__version__,
        date=date.isoformat(timespec="seconds"),
        command=choice.command,
        seconds=round(time.monotonic() - started, 1),
        complete=is_complete,
        scope=choice.scope,
        platform=platform,
        rows=rows,
        notes=tuple(line.note for line in lines if line.note)[:100],
    )


def _worker(
    choice: Choice,
    device: Device,
    outer: Mapping[str, str],
    sandbox: Sandbox,
    folder: Path,
) -> Interpreter:
    arm = arms.Arm("default", 0, {}, _WORKSPACE if device == "cuda" else {})
    environment = unprobed(arm, outer, sandbox, folder, {}, device)
    # Some of PyTorch's samples come in the order of a set.
    environment["PYTHONHASHSEED"] = "0"
    search = environment["PATH"]
    if choice.python and shutil.which(choice.python, path=search) is None:
        raise UsageError(
            f"--python {choice.python}: is no program",
            remedy="name the interpreter of the environment that you train in",
        )
    python = interpreter_on(search, [choice.python] if choice.python else [])
    return Interpreter(python, environment, sandbox, folder)


def _require_controls(lines: Iterable[Line]) -> None:
    """Raise Inconclusive unless both came out as they must."""
    came = {line.row.case: line.row.off for line in lines if line.row}
    for control, must in _EXPECTED.items():
        arm = came.get(control, _NOT_MEASURED)
        if arm.outcome != must:
            was = for_terminal(f"{arm.outcome} {arm.message}", 300)
            raise Inconclusive(
                f"{control} came out wrong: {was}, not `{must}`; so no row could be believed",
                remedy="measure again while the machine is quieter and has more than one "
                "processor; if it stays, please report it",
                reason_id="ops/control",
            )


def _require_own(choice: Choice, rows: Sequence[Row]) -> None:
    """Raise UsageError for a function of the command line of which nothing could be executed."""
    for name in choice.op:
        came = [row.off for row in rows if row.operator == name]
        if came and all(arm.outcome == "no-kernel" for arm in came):
            why = for_terminal(came[0].message, 300)
            raise UsageError(
                f"--op {for_terminal(name, 200)}: cannot be executed: {why}",
                remedy="name it as `module:function` (docs/ops/README.md says what it returns); it "
                "is imported from the current folder, which a training with a user of its own "
                "cannot read: `REPRO_GATE_SANDBOX=same-user`",
            )


def _measure_rows(
    worker: Interpreter,
    request: Mapping[str, object],
    keys: Iterable[Key],
    rows: dict[Key, Row],
    watch: Watch,
) -> None:
    """Measure what is asked for into `rows`, in another process after each that ended in a row."""
    pending = dict.fromkeys(keys)
    total = len(pending)
    reported = time.monotonic()

    def take(line: Line) -> None:
        nonlocal reported
        row = line.row
        if row is None or row.key not in pending:
            return
        del pending[row.key]
        rows[row.key] = row
        name = " ".join(row.key)
        if row.off.outcome in ENDED:
            watch.said(for_terminal(f"{name}: {row.off.message}", 500))
        elif time.monotonic() - reported > EVERY:
            reported = time.monotonic()
            process = "in a fresh process, " * ("again" in request)
            done = f"{process}{total - len(pending):,} of {total:,} rows"
            watch.said(for_terminal(f"{done}: {name}", 200))

    while pending:
        before = len(pending)
        ask(worker, {**request, "rows": list(pending)}, take)
        if len(pending) == before:
            raise Inconclusive(
                "the measuring process ends without a result",
                remedy="please report it",
                reason_id="ops/no-answer",
            )
