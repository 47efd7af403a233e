"""Answers one request of the gate: lists the cases, after it has measured the two controls, or
measures some rows. A row is one case in one dtype and direction, flags off and on, alone and beside
other work.

The two arms alternate, so that the machine's moods reach both alike. The first execution of each is
compared with every later one.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Callable, Iterator, NamedTuple

import torch

from ...probe import facts
from ...probe.shared import PROCESS
from ...trace.dispatch import gives_unwritten
from . import bits, cases, samples
from .cases import Case
from .runner import Arm, Runner, load, outcome_of, switch

_OPTIONAL = ("torchvision", "torch_scatter")  # packages that may be missing
_LIMIT = {  # what the rows cannot show
    "cuda": "CUBLAS_WORKSPACE_CONFIG was set with the flags off too: races that it prevents do not "
    "show, nor does its price",
    "cpu": "torch computes with one thread here: no kernel of the CPU can race",
}
_MORE = 4  # times as many executions of what is known to race
_TIMED = 3  # executions alone that are made however long they take, for a price


class Settings(NamedTuple):
    """How often and how long. `repeats` counts the executions alone after the first, `contended`
    those beside other work, `seconds` limits either for one size. `first`: this process looks for
    the row's kernel."""

    repeats: int = 4
    contended: int = 3
    seconds: float = 0.175
    first: bool = True


def answer(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the lines that answer one request.

    With `rows` (case, dtype, direction) these are measured, `again` if another process has measured
    them before. Without, the lines are `about`, the controls' rows, each case with its dtypes and
    directions, and notes. Before each row comes a line {"began": …}, so that whoever started this
    knows which row crashed the process or never ended, and can start it again without that one.
    `CUBLAS_WORKSPACE_CONFIG` and limits are set by whoever starts it.
    """
    device = request["device"]
    rows = request["rows"]
    switch(False)
    if torch.backends.mkl.is_available():
        # Two threads in a process's first call of MKL's vector math race, whatever the operator.
        torch.ones(1).sqrt()
    if device == "cuda":
        torch.cuda.init()
    found, notes = _cases(device, request["user"], rows)
    by_name = {case.name: case for case in found}
    settings = Settings()
    if "again" in request:
        settings = Settings(contended=0, first=False)
    if rows is None:
        PROCESS.torch = torch
        yield {"about": facts.read(facts.facts())}
        settings = Settings(repeats=12)
    controls = [(case.name, "float32", "forward") for case in found[:2]]
    for name, dtype, direction in rows or controls:
        yield {"began": [name, dtype, direction]}
        measured = Measurement(device, by_name[name], dtype, direction, settings)
        yield {"row": measured.measure()}
    if rows is not None:
        return
    for case in cases.matching(found[2:], request["pattern"]):
        for dtype in case.dtypes:
            for direction in case.directions(dtype):
                yield {"listed": [case.name, dtype, direction]}
    if device == "cuda" or torch.get_num_threads() == 1:
        notes.append(_LIMIT[device])
    for note in notes:
        yield {"note": note}


def _cases(
    device: str, own: list[str], rows: list[Any] | None
) -> tuple[list[Case], list[str]]:
    """Return the two controls and the cases of a request, and a note for each thing that cannot be
    measured. With functions of a user, those alone."""
    missing = [name for name in _OPTIONAL if find_spec(name) is None]
    found = [case for case in cases.listed(device) if case.source not in missing]
    if own:
        return [*found[:2], *map(cases.own, own)], []
    notes = [f"{name} is not installed" for name in missing]
    documentation = torch.use_deterministic_algorithms.__doc__ or ""
    notes += cases.assign(found, documentation, device)
    # Importing the samples takes seconds.
    if rows is None or any(name.startswith("opinfo/") for name, *_ in rows):
        try:
            found += samples.cases(device)
        except Exception as error:  # NumPy is missing, or the module has moved
            why = " ".join(str(error).split())[:200]
            notes.append(f"PyTorch's operator samples cannot be imported: {why}")
    return found, notes


@dataclass
class Measurement:
    """One row: `measure` returns it as the catalog has it."""

    device: str
    case: Case
    dtype: str
    direction: str
    settings: Settings

    def measure(self) -> dict[str, Any]:
        """Execute it. Torch's flags are off afterwards. Raises what no later row of this process
        would survive."""
        self.off = off = Arm()
        self.on = on = Arm()
        self.inputs = ""
        self.documented = self.case.documented.get(self.direction, "")
        self.kernels = [bits.Call("inductor")] * self.case.compiled
        self.off_ms: list[float] = []
        self.on_ms: list[float] = []
        sizes = self.case.sizes
        try:
            for size in range(sizes):
                if "repeats" in (off.outcome, on.outcome):
                    self._one_size(size, last=size + 1 == sizes)
        except Exception as error:
            # A sample that cannot be made, or an operator that this device, dtype or torch does
            # not have.
            if off.outcome == "repeats":
                off.fail(error)
            else:
                outcome_of(error)
        finally:
            switch(False)
        if off.outcome == "no-kernel" and not on.runs:
            on.outcome = off.outcome
            on.message = off.message
        kernel = self.kernels[0] if self.kernels else bits.Call()
        if off.outcome == "differs" and len(self.kernels) > 1:
            kernel = bits.Call()  # which of several operators differs is not known
        return {
            "case": self.case.name,
            "dtype": self.dtype,
            "direction": self.direction,
            "documented": self.documented,
            "inputs": self.inputs,
            "kernel": kernel.name,
            "form": kernel.form,
            "off": vars(off),
            "on": vars(on),
            "off_ms": self.off_ms,
            "on_ms": self.on_ms,
        }

    def _one_size(self, size: int, last: bool) -> None:
        switch(False)
        sample = self.case.make(self.device, self.dtype, self.direction, size)
        inputs = bits.leaves((sample.inputs, sample.numbers))
        self.inputs = self.inputs or bits.digest(inputs)
        running = []
        for arm in (self.off, self.on):
            if arm.outcome == "repeats":
                runner = Runner(arm, sample, self.direction, on=arm is self.on)
                if runner.start():
                    running.append(runner)
                elif arm is self.off:
                    return
        settings = self.settings
        if settings.first and not size and not self.case.compiled:
            self._describe(running[0].run)
        # A race that shows in few executions needs more of them.
        risky = self.case.risky or bool(self.documented)
        times = _MORE if risky else 0.5 if size else 1
        seconds = settings.seconds * max(times, 1)
        _repeat(running, settings.repeats * times, seconds, least=_TIMED)
        if len(running) == 2 and not size:
            self.off_ms, self.on_ms = (list(runner.times) for runner in running)
        if settings.contended and (last or risky):
            with load(self.device):
                _repeat(running, settings.contended * times, seconds)

    def _describe(self, run: Callable[[], Any]) -> None:
        """Note the kernel, and whether the result shows memory that nobody wrote."""
        # It may run, but not under a dispatch mode: its names stay unknown.
        with contextlib.suppress(Exception):
            calls, _ = bits.record(run)
            self.kernels = bits.kernels(calls)
            empty = [call for call in calls if gives_unwritten(call.name)]
            if empty and bits.uninitialised(run):
                self.off.outcome = "uninitialised"
                self.kernels = empty[:1]


def _repeat(
    running: list[Runner], count: float, seconds: float, least: int = 1
) -> None:
    """Execute the arms in turn, until it is enough."""
    ends = time.monotonic() + seconds
    done = 0
    while done < count and (done < least or time.monotonic() < ends):
        done += 1
        for runner in running:
            runner.again()
