"""Measures a catalog: two controls and the list of cases, then every row in one process and once
more in a fresh one.

A row that ends its process, hangs or takes the memory is a row of the catalog, and another process
goes on after it.
"""

from __future__ import annotations

import itertools
import shlex
import shutil
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal

from repro_gate._version import __version__
from repro_gate.errors import Inconclusive, UsageError
from repro_gate.escape import for_terminal
from repro_gate.files import scratch_folder
from repro_gate.machine import gpu_devices, read_machine
from repro_gate.ops.catalog import (
    MAX_ROWS,
    Catalog,
    Device,
    Key,
    Row,
    cached_path,
    platform_of,
)
from repro_gate.ops.process import Line, Worker, ask
from repro_gate.ops.rows import merged
from repro_gate.ops.state import Kept
from repro_gate.runs import arms
from repro_gate.runs.interpreter import interpreter_on, unprobed
from repro_gate.runs.progress import Watch
from repro_gate.sandbox.identity import Sandbox

BATCH = 4_000  # rows of one process: it imports torch and its samples first, which takes seconds
EVERY = 30.0  # seconds between two lines of progress
_SETTINGS: Mapping[bool, Mapping[str, Any]] = {  # by --quick
    False: {"repeats": 4, "contended": 3, "seconds": 0.35, "sizes": 2},
    True: {"repeats": 3, "contended": 1, "seconds": 0.2, "sizes": 1, "price": 0},
}
_AGAIN = {"repeats": 1, "contended": 0, "price": 4, "record": False}  # is the first the same?
_CONTROL = {"repeats": 12, "price": 0}
_EXPECTED = {"control/races": "differs", "control/repeats": "repeats"}
_WORKSPACE = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}  # without it, the flags refuse cuBLAS


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What the command line asks for. `device` is found out if it is None, `python` if it is empty;
    `own` are `module:function`."""

    device: Device | None = None
    pattern: str = ""
    quick: bool = False
    own: tuple[str, ...] = ()
    python: str = ""
    fresh: bool = False

    @property
    def scope(self) -> Literal["all", "quick", "some"]:
        """Return how much of the catalog that is."""
        return "some" if self.pattern or self.own else "quick" if self.quick else "all"

    @property
    def command(self) -> str:
        """Return the command line, without what says nothing about what was measured."""
        words = ["repro-gate", "ops"]
        words += ["--device", self.device] if self.device else []
        words += ["--only", self.pattern] if self.pattern else []
        words += ["--quick"] if self.quick else []
        return shlex.join([*words, *(word for own in self.own for word in ("--op", own))])[:1_000]


def measure(wanted: Wanted, outer: Mapping[str, str], sandbox: Sandbox, watch: Watch) -> Catalog:
    """Measure, on a Ctrl-C too: `complete` is then False, and what was done is kept for the next
    start of the same command.

    Raises Inconclusive if there is no torch or a control is wrong, UsageError if no case fits.
    """
    started, date = time.monotonic(), datetime.now(timezone.utc).isoformat(timespec="seconds")
    device: Device = wanted.device or ("cuda" if gpu_devices() else "cpu")
    base: dict[str, Any] = {"device": device, "user": wanted.own, "path": [str(Path.cwd())]}
    base |= {"pattern": wanted.pattern, "quick": wanted.quick}
    settings = _SETTINGS[wanted.quick]
    with scratch_folder() as folder:
        worker = _worker(wanted, device, outer, sandbox, folder)
        lines: list[Line] = []
        request = {**base, "mode": "list", "settings": {**settings, **_CONTROL}}
        dead = ask(worker, request, lines.append)
        _require_controls([line.row for line in (*lines, Line(row=dead)) if line.row])
        platform = platform_of(lines[0].about, read_machine(), device)
        listed = [line.listed for line in lines if line.listed][:MAX_ROWS]
        if not listed:
            remedy = "give `--only` a part of a name, or a pattern such as `*pool*`"
            raise UsageError("no case fits", remedy=remedy)
        notes = [line.note for line in lines if line.note][:100]
        watch.said(
            f"{for_terminal(platform.torch)} on {for_terminal(platform.device_name, 80)}: both "
            f"controls are right; {len(listed):,} rows"
        )
        # what is somebody's own may be another by the next start
        path = None if wanted.own else cached_path(outer, platform)
        identity = zlib.crc32(f"{__version__} {wanted.python} {wanted.command}".encode())
        path = path and path.with_name(f"{path.stem}-{identity}.partial")
        kept, complete = Kept(path, watch.said, fresh=wanted.fresh), True
        try:
            for phase, how in ((0, settings), (1, {**settings, **_AGAIN})):
                _phase(phase, worker, {**base, "settings": how}, listed, kept, watch)
            kept.remove()
        except KeyboardInterrupt:  # signals wait from here on
            complete = False
        rows = tuple(merged(row, kept.phases[1].get(key)) for key, row in kept.phases[0].items())
    _require_own(wanted, rows)
    return Catalog(
        schema="repro-gate/ops/v1",
        repro_gate=__version__,
        date=date,
        command=wanted.command,
        seconds=round(time.monotonic() - started, 1),
        complete=complete,
        scope=wanted.scope,
        platform=platform,
        rows=rows,
        notes=tuple(notes),
    )


def _worker(
    wanted: Wanted, device: Device, outer: Mapping[str, str], sandbox: Sandbox, folder: Path
) -> Worker:
    arm = arms.Arm("default", 0, {}, _WORKSPACE if device == "cuda" else {})
    environment = unprobed(arm, outer, sandbox, folder, {}, device)
    environment["PYTHONHASHSEED"] = "0"  # some of PyTorch's samples come in the order of a set
    if wanted.python and shutil.which(wanted.python, path=environment["PATH"]) is None:
        raise UsageError(
            f"--python {wanted.python}: is no program",
            remedy="name the interpreter of the environment that you train in",
        )
    python = interpreter_on(environment["PATH"], [wanted.python] if wanted.python else [])
    return Worker(python, environment, folder, sandbox)


def _require_controls(rows: Sequence[Row]) -> None:
    """Raise Inconclusive unless both came out as they must."""
    came = {row.case: row.off for row in rows}
    for control, must in _EXPECTED.items():
        arm = came.get(control)
        if arm is None or arm.outcome != must:
            was = "not measured" if arm is None else f"{arm.outcome} {arm.message}"
            raise Inconclusive(
                f"{control} came out wrong: {for_terminal(was, 300)}, not `{must}`; so no row "
                "could be believed",
                remedy="measure again while the machine is quieter and has more than one "
                "processor; if it stays, please report it",
                reason_id="ops/control",
            )


def _require_own(wanted: Wanted, rows: Sequence[Row]) -> None:
    """Raise UsageError for a function of the command line of which nothing could be executed."""
    for name in wanted.own:
        found = [row.off for row in rows if row.operator == name]
        if found and all(arm.outcome == "no-kernel" for arm in found):
            why = for_terminal(found[0].message, 300)
            raise UsageError(
                f"--op {for_terminal(name, 200)}: cannot be executed: {why}",
                remedy="see docs/ops/README.md for what such a function returns; it is imported "
                "from the current folder",
            )


def _phase(
    phase: int,
    worker: Worker,
    base: Mapping[str, object],
    listed: Sequence[Key],
    kept: Kept,
    watch: Watch,
) -> None:
    """Measure what is not known yet. In the second phase: the rows that repeated in the first
    process, with a price for those that were timed there."""
    first, done = kept.phases[0], kept.phases[phase]
    wanted = [key for key in listed if phase == 0 or (key in first and _repeats(first[key]))]
    pending = dict.fromkeys(key for key in wanted if key not in done)
    told = time.monotonic()

    def take(line: Line) -> None:
        nonlocal told
        if line.began is not None and time.monotonic() - told > EVERY:
            told, measured = time.monotonic(), (phase + 1) * len(listed) - len(pending)
            now = for_terminal(" ".join(line.began), 120)
            watch.said(f"{measured:,} of {2 * len(listed):,} measurements: {now}")
        if line.row is not None and line.row.key in pending:
            kept.add(phase, line.row)
            del pending[line.row.key]

    while pending:
        before = len(pending)
        rows = [
            (*key, bool(phase and first[key].on_ms)) for key in itertools.islice(pending, BATCH)
        ]
        dead = ask(worker, {**base, "mode": "measure", "rows": rows}, take)
        if dead is not None:
            take(Line(row=dead))
            watch.said(for_terminal(f"{' '.join(dead.key)}: {dead.off.message}", 500))
        if len(pending) == before:
            raise Inconclusive(
                "the measuring process ends without a result",
                remedy="please report it",
                reason_id="ops/no-answer",
            )


def _repeats(row: Row) -> bool:
    return "repeats" in (row.off.outcome, row.on.outcome)
