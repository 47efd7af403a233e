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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Literal

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
    Catalog,
    Device,
    Key,
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
_EXPECTED = {"control/races": "differs", "control/repeats": "repeats"}
_WORKSPACE = {
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8"
}  # without it, the flags refuse cuBLAS
_PARTIAL = msgspec.json.Decoder(tuple[Literal[0, 1], Row])


@dataclass(frozen=True, kw_only=True)
class Choice:
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
        options = [("--device", self.device), ("--only", self.pattern)]
        options += [("--op", own) for own in self.own]
        words = ["repro-gate", "ops", *(["--quick"] if self.quick else [])]
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
    page = (
        pages.page_of(catalog)
        if before is None
        else pages.page_of_both(before, catalog)
    )
    return pages.render(page, form, verbose=verbose)


def measured(choice: Choice, environment: Mapping[str, str], watch: Watch) -> Catalog:
    """Measure a catalog, and write a whole one to the cache for gate runs on this platform. Raises
    GateError."""
    sandbox = choose(environment)
    with confined(sandbox, environment, Path.cwd(), tell=watch.said), obeyed():
        found = measure(choice, environment, sandbox, watch)
    path = cached_path(environment, found.platform)
    if path is not None and found.complete and found.scope == "all":
        try:
            write(path, found)
        except OSError as error:
            watch.said(
                for_terminal(f"{path}: cannot be written: {error.strerror}", 300)
            )
    return found


def measure(
    choice: Choice, outer: Mapping[str, str], sandbox: Sandbox, watch: Watch
) -> Catalog:
    """Measure, on a Ctrl-C too: `complete` is then False, and what was done is left for the next
    start of the same command.

    Raises Inconclusive if there is no torch or a control is wrong, UsageError if no case fits.
    """
    started, date = (
        time.monotonic(),
        datetime.now(timezone.utc).isoformat(timespec="seconds"),
    )
    device: Device = choice.device or ("cuda" if gpu_devices() else "cpu")
    settings = _SETTINGS[choice.quick]
    request = {
        "device": device,
        "user": choice.own,
        "path": [str(Path.cwd())],
        "pattern": choice.pattern,
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
        # what is somebody's own may be another by the next start
        path = None if choice.own else cached_path(outer, platform)
        identity = zlib.crc32(
            f"{__version__} {choice.python} {choice.command}".encode()
        )
        path = path and path.with_name(f"{path.stem}-{identity}.partial")
        partial, complete = Partial(path, watch.said, fresh=choice.fresh), True
        try:
            for phase, more in ((0, {}), (1, _AGAIN)):
                request["settings"] = {**settings, **more}
                _measure_rows(phase, worker, request, listed, partial, watch)
            partial.remove()
        except KeyboardInterrupt:  # signals wait from here on
            complete = False
    first, again = partial.phases
    rows = tuple(merged(row, again.get(key)) for key, row in first.items())
    _require_own(choice, rows)
    return Catalog(
        schema="repro-gate/ops/v1",
        repro_gate=__version__,
        date=date,
        command=choice.command,
        seconds=round(time.monotonic() - started, 1),
        complete=complete,
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
    environment["PYTHONHASHSEED"] = (
        "0"  # some of PyTorch's samples come in the order of a set
    )
    if choice.python and shutil.which(choice.python, path=environment["PATH"]) is None:
        raise UsageError(
            f"--python {choice.python}: is no program",
            remedy="name the interpreter of the environment that you train in",
        )
    python = interpreter_on(
        environment["PATH"], [choice.python] if choice.python else []
    )
    return Interpreter(python, environment, sandbox, folder)


def _require_controls(rows: Sequence[Row]) -> None:
    """Raise Inconclusive unless both came out as they must."""
    for control, must in _EXPECTED.items():
        came = [row.off for row in rows if row.case == control]
        if [arm.outcome for arm in came] != [must]:
            was = "; ".join(f"{arm.outcome} {arm.message}" for arm in came)
            raise Inconclusive(
                f"{control} came out wrong: {for_terminal(was, 300)}, not `{must}`; so no row "
                "could be believed",
                remedy="measure again while the machine is quieter and has more than one "
                "processor; if it stays, please report it",
                reason_id="ops/control",
            )


def _require_own(choice: Choice, rows: Sequence[Row]) -> None:
    """Raise UsageError for a function of the command line of which nothing could be executed."""
    for name in choice.own:
        found = [row.off for row in rows if row.operator == name]
        if found and all(arm.outcome == "no-kernel" for arm in found):
            why = for_terminal(found[0].message, 300)
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
    """Measure what the first or the second process has not measured yet."""
    first, done = partial.phases[0], partial.phases[phase]
    due = listed
    if phase == 1:
        due = [
            key for key in listed if key in first and "repeats" in first[key].outcomes
        ]
    pending = dict.fromkeys(key for key in due if key not in done)
    reported = time.monotonic()

    def take(line: Line) -> None:
        nonlocal reported
        if line.began is not None and time.monotonic() - reported > EVERY:
            reported, count = time.monotonic(), (phase + 1) * len(listed) - len(pending)
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
        batch = itertools.islice(pending, BATCH)
        rows = [
            (*key, _timed_pairs(bool(request["quick"]), first.get(key)))
            for key in batch
        ]
        ask(worker, {**request, "rows": rows}, take)
        if len(pending) == before:
            raise Inconclusive(
                "the measuring process ends without a result",
                remedy="please report it",
                reason_id="ops/no-answer",
            )


def _timed_pairs(quick: bool, first: Row | None) -> int:
    """Return how often both arms of a row are executed for its price, at most; `first` is what the
    first process measured, if it is the second's turn."""
    if first is None:
        return 0 if quick else 6
    return 4 if first.on_ms else 0


class Partial:
    """Rows by key, of the first process and of the second, in a file as they come: a second start
    of the same command goes on from there. `path` is None if there can be no file; if it cannot be
    written, `tell` is told why. A line of it that cannot be read is measured again."""

    def __init__(
        self, path: Path | None, tell: Callable[[str], None], *, fresh: bool
    ) -> None:
        self.phases: tuple[dict[Key, Row], dict[Key, Row]] = {}, {}
        self._path = path
        if path is None:
            return
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            content = path.read_bytes() if path.exists() and not fresh else b""
            path.write_bytes(content + b"\n")  # the last line may have been cut short
        except OSError as error:
            self._path = None
            tell(for_terminal(f"{path} cannot be written: {error.strerror}", 300))
            return
        for line in content.split(b"\n"):
            with contextlib.suppress(ValueError, RecursionError, msgspec.MsgspecError):
                phase, row = _PARTIAL.decode(line)
                self.phases[phase][row.key] = row
        if self.phases[0]:
            known = f"{len(self.phases[0]):,} rows are known from an interrupted start"
            tell(f"{known} (--fresh measures them anew)")

    def add(self, phase: int, row: Row) -> None:
        """Add one row."""
        self.phases[phase][row.key] = row
        if self._path is not None:
            # a full disk: the rest is measured all the same
            with contextlib.suppress(OSError), self._path.open("ab") as file:
                file.write(msgspec.json.encode((phase, row)) + b"\n")

    def remove(self) -> None:
        """Remove the file: the measurement is complete."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)
