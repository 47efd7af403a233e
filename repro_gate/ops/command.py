"""What `repro-gate ops` does: measures a catalog or reads one, and shows it, or what changed since
another.

It measures two controls and lists the cases, then every row in one process and once more in a fresh
one. A row that ends its process, hangs or takes the memory is a row of the catalog, and another
process goes on after it. A whole catalog is written to the cache, for gate runs.
"""

from __future__ import annotations

import contextlib
import itertools
import shlex
import shutil
import time
import zlib
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from repro_gate._version import __version__
from repro_gate.errors import Inconclusive, UsageError, obeyed
from repro_gate.escape import for_terminal
from repro_gate.files import scratch_folder
from repro_gate.machine import gpu_devices, read_machine
from repro_gate.ops import pages
from repro_gate.ops.catalog import (
    ENDED,
    MAX_ROWS,
    Arm,
    Catalog,
    Device,
    Key,
    Platform,
    Row,
    cached_path,
    platform_of,
    read,
    text,
    write,
)
from repro_gate.ops.compare import merged
from repro_gate.ops.process import Line, ask
from repro_gate.runs import arms
from repro_gate.runs.interpreter import Interpreter, interpreter_on, unprobed
from repro_gate.runs.progress import Watch
from repro_gate.sandbox.confinement import confined
from repro_gate.sandbox.identity import Sandbox
from repro_gate.sandbox.selection import choose

__all__ = ["Catalog", "Choice", "measured", "read", "rendered"]

BATCH = 4_000  # rows of one process: it imports torch and its samples first, which takes seconds
EVERY = 30.0  # seconds between two lines of progress
_SETTINGS: Mapping[bool, Mapping[str, object]] = {  # by --quick
    False: {"repeats": 4, "contended": 3, "seconds": 0.35, "sizes": 2},
    True: {"repeats": 3, "contended": 1, "seconds": 0.2, "sizes": 1},
}
_AGAIN = {"repeats": 1, "contended": 0, "first": False}  # is the first the same?
_CONTROL = {"repeats": 12}
_NOT_MEASURED = Arm(outcome="crash", message="it was not measured")
_EXPECTED = {"control/races": "differs", "control/repeats": "repeats"}
# without it, the flags refuse cuBLAS
_WORKSPACE = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
_PARTIAL = msgspec.json.Decoder(tuple[Literal[0, 1], Row])


class Choice(NamedTuple):
    """What the command line asks for, by the names of its options. What is left out is found out:
    `device`, `python`. `op` are `module:function`."""

    device: Device | None = None
    only: str | None = None
    quick: bool = False
    op: Sequence[str] = ()
    python: str | None = None
    fresh: bool = False

    @property
    def scope(self) -> Literal["all", "quick", "some"]:
        """Return how much of the catalog that is."""
        return "some" if self.only or self.op else "quick" if self.quick else "all"

    @property
    def command(self) -> str:
        """Return the command line, without what says nothing about what was measured."""
        options = [("--device", self.device), ("--only", self.only)]
        options += [("--op", own) for own in self.op]
        words = ["repro-gate", "ops", *["--quick"] * self.quick]
        for option, value in options:
            words += [option, value] if value else []
        return shlex.join(words)[:1_000]


def rendered(
    catalog: Catalog, before: Catalog | None, form: str, *, verbose: bool = True
) -> str:
    """Return the catalog as `json`, or a page of it or of what changed since `before` as `txt`,
    `md` or `html`."""
    if form == "json":
        return text(catalog)
    page = pages.page_of_both(before, catalog) if before else pages.page_of(catalog)
    return pages.render(page, form, verbose=verbose)


def measured(choice: Choice, environment: Mapping[str, str], watch: Watch) -> Catalog:
    """Measure a catalog, and write a whole one to the cache for gate runs on this platform. Raises
    GateError."""
    sandbox = choose(environment)
    with confined(sandbox, environment, Path.cwd()), obeyed():
        catalog = measure(choice, environment, sandbox, watch)
    path = cached_path(environment, catalog.platform)
    if path is not None and catalog.complete and catalog.scope == "all":
        try:
            write(path, catalog)
        except OSError as error:
            watch.said(
                for_terminal(f"{path}: cannot be written: {error.strerror}", 300)
            )
    return catalog


def measure(
    choice: Choice, outer: Mapping[str, str], sandbox: Sandbox, watch: Watch
) -> Catalog:
    """Measure, on a Ctrl-C too: `complete` is then False, and what was done is left for the next
    start of the same command.

    Raises Inconclusive if there is no torch or a control is wrong, UsageError if no case fits.
    """
    started = time.monotonic()
    date = datetime.now(timezone.utc)
    device: Device = choice.device or ("cuda" if gpu_devices() else "cpu")
    settings = _SETTINGS[choice.quick]
    request = {
        "device": device,
        "user": choice.op,
        "path": [str(Path.cwd())],
        "pattern": choice.only or "",
        "quick": choice.quick,
        "rows": None,
        "settings": {**settings, **_CONTROL},
    }
    with scratch_folder() as folder:
        worker = _worker(choice, device, outer, sandbox, folder)
        lines: list[Line] = []
        ask(worker, request, lines.append)
        _require_controls([line.row for line in lines if line.row])
        platform = platform_of(lines[0].about, read_machine())
        listed = [line.listed for line in lines if line.listed][:MAX_ROWS]
        if not listed:
            remedy = "give `--only` a part of a name, or a pattern such as `*pool*`"
            raise UsageError("no case fits", remedy=remedy)
        watch.said(
            f"{for_terminal(platform.torch)} on {for_terminal(platform.device_name, 80)}: both "
            f"controls are right; {len(listed):,} rows"
        )
        partial = _known(choice, outer, platform, folder)
        if partial.first:
            watch.said(
                f"{len(partial.first):,} rows are known from an interrupted start "
                "(--fresh measures them anew)"
            )
        is_complete = True
        try:
            for phase, more in enumerate(({}, _AGAIN)):
                request["settings"] = {**settings, **more}
                _measure_rows(phase, worker, request, listed, partial, watch)
            with contextlib.suppress(OSError):
                partial.path.unlink()
        except KeyboardInterrupt:  # signals wait from here on
            is_complete = False
    first, again = partial.phases
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


def _known(
    choice: Choice, outer: Mapping[str, str], platform: Platform, folder: Path
) -> Partial:
    """Return what an interrupted start of the same command on this platform has measured. What is
    somebody's own may be another by the next start, so it is kept in `folder` alone."""
    cached = None if choice.op else cached_path(outer, platform)
    path = folder / "rows" if cached is None else cached
    words = f"{__version__} {choice.python or ''} {choice.command}"
    identity = zlib.crc32(words.encode())
    return Partial(path.with_name(f"{path.stem}-{identity}.partial"), choice.fresh)


def _worker(
    choice: Choice,
    device: Device,
    outer: Mapping[str, str],
    sandbox: Sandbox,
    folder: Path,
) -> Interpreter:
    arm = arms.Arm("default", 0, {}, _WORKSPACE if device == "cuda" else {})
    environment = unprobed(arm, outer, sandbox, folder, {}, device)
    # some of PyTorch's samples come in the order of a set
    environment["PYTHONHASHSEED"] = "0"
    search = environment["PATH"]
    named = choice.python
    if named and shutil.which(named, path=search) is None:
        raise UsageError(
            f"--python {named}: is no program",
            remedy="name the interpreter of the environment that you train in",
        )
    python = interpreter_on(search, [named] if named else [])
    return Interpreter(python, environment, sandbox, folder)


def _require_controls(rows: Sequence[Row]) -> None:
    """Raise Inconclusive unless both came out as they must."""
    came = {row.case: row.off for row in rows}
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
    phase: int,
    worker: Interpreter,
    request: Mapping[str, object],
    listed: Sequence[Key],
    partial: Partial,
    watch: Watch,
) -> None:
    """Measure what the first or the second process has not measured yet, with so many timed pairs
    of executions at most for a row's price."""
    if phase == 0:
        due = dict.fromkeys(listed, 0 if request["quick"] else 6)
    else:
        rows = [partial.first[key] for key in listed]
        due = {
            row.key: 4 * bool(row.on_ms) for row in rows if "repeats" in row.outcomes
        }
    pending = {
        key: pairs for key, pairs in due.items() if key not in partial.phases[phase]
    }
    reported = time.monotonic()

    def take(line: Line) -> None:
        nonlocal reported
        if line.began is not None and time.monotonic() - reported > EVERY:
            reported = time.monotonic()
            count = (phase + 1) * len(listed) - len(pending)
            now = for_terminal(" ".join(line.began), 120)
            watch.said(f"{count:,} of {2 * len(listed):,} measurements: {now}")
        row = line.row
        if row is not None and row.key in pending:
            partial.add(phase, row)
            del pending[row.key]
            if row.off.outcome in ENDED:
                watch.said(for_terminal(f"{' '.join(row.key)}: {row.off.message}", 500))

    while pending:
        before = len(pending)
        batch = itertools.islice(pending.items(), BATCH)
        rows_asked = [(*key, pairs) for key, pairs in batch]
        ask(worker, {**request, "rows": rows_asked}, take)
        if len(pending) == before:
            raise Inconclusive(
                "the measuring process ends without a result",
                remedy="please report it",
                reason_id="ops/no-answer",
            )


class Partial:
    """Rows by key, of the first process and of the second, in a file as they come: a second start
    of the same command goes on from there. A line of it that cannot be read is measured again;
    where it cannot be written, nothing is lost but that."""

    def __init__(self, path: Path, fresh: bool) -> None:
        self.path = path
        self.first: dict[Key, Row] = {}
        self.phases: tuple[dict[Key, Row], dict[Key, Row]] = self.first, {}
        with contextlib.suppress(OSError):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if fresh:
                path.unlink()
            for line in path.read_bytes().split(b"\n"):
                with contextlib.suppress(
                    ValueError, RecursionError, msgspec.MsgspecError
                ):
                    phase, row = _PARTIAL.decode(line)
                    self.phases[phase][row.key] = row

    def add(self, phase: int, row: Row) -> None:
        """Add one row. The last line of the file may have been cut short."""
        self.phases[phase][row.key] = row
        with contextlib.suppress(OSError), self.path.open("ab") as file:
            file.write(b"\n" + msgspec.json.encode((phase, row)))
