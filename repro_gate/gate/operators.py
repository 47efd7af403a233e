"""`repro-gate ops`: two controls, the list of cases, then every row in one process and once more in
a fresh one; in the end a catalog.

A row that ends its process, hangs or takes the memory is a row of the catalog, and another process
goes on after it.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Protocol

import msgspec
import psutil

from repro_gate._version import __version__
from repro_gate.errors import Inconclusive, UsageError
from repro_gate.escape import for_terminal
from repro_gate.files import scratch_folder
from repro_gate.gate.operator_rows import dead_row, entries_of, rows_of
from repro_gate.gate.operator_state import Kept
from repro_gate.machine import gpu_devices, read_machine
from repro_gate.ops.catalog import (
    MAX_ROWS,
    Arm,
    Catalog,
    Controls,
    Device,
    Platform,
    Repeats,
    Row,
    Scope,
    cached_path,
    platform_of,
)
from repro_gate.ops.controls import EXPECTED
from repro_gate.report.numbers import excluded
from repro_gate.runs import arms
from repro_gate.runs.interpreter import interpreter_on, unprobed
from repro_gate.runs.operators import Death, Line, Worker, ask
from repro_gate.sandbox.identity import Sandbox

BATCH = 512  # cases of one process: it imports torch and its samples first, which takes seconds
ROW_SECONDS, QUICK_ROW_SECONDS = 120.0, 60.0  # of one row; torch.compile takes most of a minute
_MEMORY_SHARE, _LEAST_MEMORY = 0.6, 1 << 30  # of what is free; bytes
_FACTS = {
    "cpu-isa": "cpu_capability",
    "gpu-model": "gpu",
    **{name: name for name in ("torch", "python", "threads", "cuda", "cudnn")},
}
_SETTINGS: Mapping[bool, Mapping[str, Any]] = {  # by --quick
    False: {"repeats": 4, "contended": 3, "seconds": 0.35, "sizes": 2},
    True: {"repeats": 3, "contended": 1, "seconds": 0.2, "sizes": 1, "price": 0},
}
# is the first result the same?
_AGAIN: Mapping[str, Any] = {
    "repeats": 1,
    "contended": 0,
    "price": 4,
    "record": False,
}
_CONTROL_REPEATS = 12
_WORKSPACE = ("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it, cuBLAS is refused under the flags


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What the command line asks for. `device` is found out where it is None, `python` where it is
    empty; `own` are `module:function`."""

    device: Device | None = None
    pattern: str = ""
    quick: bool = False
    own: tuple[str, ...] = ()
    python: str = ""
    fresh: bool = False
    command: str = "repro-gate ops"

    @property
    def scope(self) -> Scope:
        """How much of the catalog that is."""
        return "some" if self.pattern or self.own else "quick" if self.quick else "all"


class Watch(Protocol):
    """Who is told how it goes."""

    def said(self, text: str) -> None:
        """A line worth keeping."""

    def advanced(self, done: int, total: int, now: str) -> None:
        """So many rows of all are done; `now` is executed next (untrusted)."""


def measure(wanted: Wanted, outer: Mapping[str, str], sandbox: Sandbox, watch: Watch) -> Catalog:
    """Measure, on a Ctrl-C too: `complete` is then False, and what was done is kept for the next
    start of the same command.

    Raises Inconclusive where there is no torch or a control is wrong, UsageError where no case
    fits.
    """
    started, date = time.monotonic(), datetime.now(timezone.utc).isoformat(timespec="seconds")
    device: Device = wanted.device or ("cuda" if gpu_devices() else "cpu")
    with scratch_folder() as folder:
        asking = _Asking(wanted, device, _worker(wanted, device, outer, sandbox, folder))
        controls, platform = asking.controls()
        listed, notes = asking.cases()
        notes += tuple(_limits(platform))
        count = sum(bool(line.rows) for line in listed)
        watch.said(
            f"{platform.torch} on {for_terminal(platform.device_name, 80)}: both controls are "
            f"right; {count} cases"
        )
        identity = hashlib.sha256(
            json.dumps(
                [__version__, wanted.scope, wanted.quick, wanted.pattern, wanted.python]
            ).encode()
        ).hexdigest()
        # what is somebody's own may be another by the next start
        path = None if wanted.own else cached_path(outer, platform)
        with Kept(
            None if path is None else path.with_name(f"{path.stem}-{identity[:8]}.partial"),
            fresh=wanted.fresh,
        ) as kept:
            if kept.problem:
                watch.said(
                    f"an interrupted start will be begun anew: {for_terminal(kept.problem, 200)}"
                )
            if kept.first:
                watch.said(
                    f"{len(kept.first):,} rows are known from an interrupted start (--fresh "
                    "measures them anew)"
                )
            try:
                for phase in (1, 2):
                    _phase(phase, asking, listed, kept, watch)
                complete = True
                kept.remove()
            except KeyboardInterrupt:  # signals wait from here on
                complete = False
            rows = rows_of(kept.first, kept.again)
    _require_own(wanted, rows)
    settings = _SETTINGS[wanted.quick]
    alone, beside, again = 1 + settings["repeats"], settings["contended"], 1 + _AGAIN["repeats"]
    return Catalog(
        schema="repro-gate/ops/v1",
        repro_gate=__version__,
        date=date,
        command=wanted.command[:1_000],
        seconds=round(time.monotonic() - started, 1),
        complete=complete,
        scope=wanted.scope,
        platform=platform,
        repeats=Repeats(
            in_process=alone,
            contended=beside,
            again=again,
            processes=2,
            excludes_rate=excluded(alone + beside + again) / 100,
        ),
        controls=controls,
        documented=() if wanted.own else entries_of(listed, device),
        rows=rows[:MAX_ROWS],
        notes=notes,
    )


def _limits(platform: Platform) -> Iterator[str]:
    """What these rows cannot show."""
    if platform.device == "cuda":
        yield (
            f"{_WORKSPACE[0]}={_WORKSPACE[1]} was set with the flags off too: races that it "
            "prevents do not show, nor does its price"
        )
    elif platform.threads == 1:
        yield "torch computes with one thread here: no kernel of the CPU can race"


def _require_own(wanted: Wanted, rows: Sequence[Row]) -> None:
    """Raises UsageError for a function of the command line of which nothing could be executed."""
    for name in wanted.own:
        arms_of = [row.off for row in rows if row.case == f"user/{name}"]
        if arms_of and all(arm.outcome == "no-kernel" for arm in arms_of):
            remedy = (
                "see docs/ops/README.md for what such a function returns; it is imported from the "
                "current folder"
            )
            raise UsageError(
                f"--op {for_terminal(name, 200)}: cannot be executed: "
                f"{for_terminal(arms_of[0].message, 300)}",
                remedy=remedy,
            )


def _worker(
    wanted: Wanted, device: Device, outer: Mapping[str, str], sandbox: Sandbox, folder: Path
) -> Worker:
    arm = arms.Arm("default", 0, {}, dict([_WORKSPACE]) if device == "cuda" else {})
    environment = unprobed(arm, outer, sandbox, folder, {}, device)
    if wanted.python and shutil.which(wanted.python, path=environment["PATH"]) is None:
        raise UsageError(
            f"--python {wanted.python}: is no program",
            remedy="name the interpreter of the environment that you train in",
        )
    python = interpreter_on(environment["PATH"], [wanted.python] if wanted.python else [])
    memory = max(int(psutil.virtual_memory().available * _MEMORY_SHARE), _LEAST_MEMORY)
    seconds = QUICK_ROW_SECONDS if wanted.quick else ROW_SECONDS
    return Worker(
        python=python,
        environment=environment,
        folder=folder,
        sandbox=sandbox,
        memory=memory,
        row_seconds=seconds,
    )


class _Asking:
    """The requests of one measurement."""

    def __init__(self, wanted: Wanted, device: Device, worker: Worker) -> None:
        self.worker, self.device = worker, device
        self._settings = _SETTINGS[wanted.quick]
        # it is about the name behind the source
        anywhere = any(sign in wanted.pattern for sign in "*?[") and "/" not in wanted.pattern
        self._base: dict[str, Any] = {
            "device": device,
            "pattern": "*/" * anywhere + wanted.pattern,
            "quick": wanted.quick,
        }
        if wanted.own:
            self._base |= {"user": wanted.own, "path": [str(Path.cwd())]}

    def controls(self) -> tuple[Controls, Platform]:
        """Both, right. Raises Inconclusive where one of them is not."""
        lines: list[Line] = []
        request = {
            "device": self.device,
            "mode": "controls",
            "settings": {**self._settings, "repeats": _CONTROL_REPEATS, "price": 0},
        }
        death = ask(self.worker, request, lines.append)
        rows = {line.case: line for line in lines if line.off is not None and line.on is not None}
        about = next((line.about for line in lines if line.about is not None), {})
        facts = {
            name: str(about[key])[:300]
            for name, key in _FACTS.items()
            if isinstance(about.get(key), str | int)
        }
        races, repeats = (rows[name].off if name in rows else None for name in EXPECTED)
        for (control, must), arm in zip(EXPECTED.items(), (races, repeats), strict=True):
            if arm is None or arm.outcome != must:
                name = control.rpartition("/")[2]
                came = death.message if death else arm.outcome if arm else "not measured"
                raise Inconclusive(
                    f"the control `{name}` came out wrong: {for_terminal(came, 300)}, not "
                    f"`{must}`; so no row could be believed",
                    remedy="measure again while the machine is quieter and has more than one "
                    "processor; if it stays, please report it",
                    reason_id="ops/control",
                )
        assert races is not None and repeats is not None
        kept = (msgspec.convert(msgspec.to_builtins(arm), Arm) for arm in (races, repeats))
        return Controls(races=next(kept), repeats=next(kept)), platform_of(
            facts, read_machine(), self.device
        )

    def cases(self) -> tuple[tuple[Line, ...], tuple[str, ...]]:
        """The cases, and what could not be listed. Raises UsageError where there are none."""
        lines: list[Line] = []
        ask(self.worker, {**self._base, "mode": "list"}, lines.append)
        about: Mapping[str, Any] = next(
            (line.about for line in lines if line.about is not None), {}
        )
        notes = about.get("notes") if isinstance(about.get("notes"), list) else []
        found = tuple(line for line in lines if line.rows is not None)
        if not any(line.rows for line in found):
            raise UsageError(
                "no case fits",
                remedy="give `--only` a part of a name, or a pattern such as `*pool*`",
            )
        return found, tuple(str(note)[:1_000] for note in (notes or [])[:100])

    def measure(
        self, phase: int, rows: Mapping[str, Sequence[Any]], take: Callable[[Line], None]
    ) -> Death | None:
        """Some rows in a process of their own: those of `cases`, without `skip`; a price of each of
        `dear`."""
        settings = {**self._settings, **(_AGAIN if phase == 2 else {})}
        return ask(
            self.worker, {**self._base, **rows, "mode": "measure", "settings": settings}, take
        )


def _phase(phase: int, asking: _Asking, listed: Sequence[Line], kept: Kept, watch: Watch) -> None:
    """Measure what is not known yet. In the second phase: the rows that repeated in the first
    process."""
    by_case = {line.case: line for line in listed}
    rows = [
        (line.case, dtype, direction) for line in listed for dtype, direction in line.rows or ()
    ]
    wanted = (
        rows
        if phase == 1
        else [key for key in rows if key in kept.first and _repeats(kept.first[key])]
    )
    done = kept.of(phase)
    pending = dict.fromkeys(key for key in wanted if key not in done)
    total = 2 * len(rows)  # as both phases count

    def take(line: Line) -> None:
        if line.began is not None:
            watch.advanced(
                phase * len(rows) - len(pending),
                total,
                f"{line.began.case} {line.began.dtype} {line.began.direction}",
            )
        elif line.off is not None and line.on is not None and line.key in pending:
            kept.add(phase, line)
            del pending[line.key]

    while pending:
        before = len(pending)
        batch = list(dict.fromkeys(case for case, _, _ in pending))[:BATCH]
        skip = [key for key in rows if key[0] in batch and key not in pending]
        dear = [
            key
            for key, line in kept.first.items()
            if line.times_on_ms and line.times_off_ms and key[0] in batch
        ]
        death = asking.measure(
            phase, {"cases": batch, "skip": skip, "dear": dear if phase == 2 else []}, take
        )
        if death is not None and death.row in pending:
            take(dead_row(by_case[death.row[0]], death, asking.device))
            watch.said(
                f"{for_terminal(' '.join(death.row), 200)}: {for_terminal(death.message, 300)}"
            )
        elif death is None:  # what the worker left out, it does not have
            for key in [key for key in pending if key[0] in batch]:
                del pending[key]
        if len(pending) == before:
            raise Inconclusive(
                "the measuring process ends without a result",
                remedy="please report it",
                reason_id="ops/no-answer",
            )
    watch.advanced(phase * len(rows), total, "")


def _repeats(line: Line) -> bool:
    return any(arm is not None and arm.outcome == "repeats" for arm in (line.off, line.on))
