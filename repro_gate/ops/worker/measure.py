"""Answers one request of the gate: lists the cases, after it has measured the two controls, or
measures some rows. A row is one case in one dtype and direction, flags off and on, alone and beside
other work.

The two arms alternate, so that the machine's moods reach both alike. The first execution of each is
compared with every later one.
"""

from __future__ import annotations

import contextlib
import platform
import statistics
import time
from importlib.util import find_spec
from typing import Any, Callable, Iterator, NamedTuple

import torch

from ...trace.dispatch import gives_unwritten
from . import bits, cases, samples
from .cases import Case, Sample
from .runner import Arm, Runner, copied, load, outcome_of, switch, versions

QUICK_DTYPES = ("float32", "bfloat16", "int64")
_OPTIONAL = ("torchvision", "torch_scatter")  # packages that may be missing
_LIMIT = {  # what the rows cannot show
    "cuda": "CUBLAS_WORKSPACE_CONFIG was set with the flags off too: races that it prevents do not "
    "show, nor does its price",
    "cpu": "torch computes with one thread here: no kernel of the CPU can race",
}
# ratios of time between which the flag is taken to change nothing
_CHEAPEST, _DEAREST = 0.87, 1.15
_FEWEST = 3  # timed executions of an arm, for a price
_MORE = 4  # times as many executions of what is known to race
_NOTICED = 0.1  # milliseconds of difference below which a ratio is noise


class Settings(NamedTuple):
    """How often and how long. `repeats` counts the executions alone after the first, `price` the
    timed pairs. `first`: this process looks for the row's kernel, and takes a price only if the
    flags seem to change something."""

    repeats: int = 4
    contended: int = 3
    # of one row's repeats, for each size; one execution is made in any case
    seconds: float = 0.25
    price: int = 6
    sizes: int = 2
    first: bool = True


def answer(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the lines that answer one request.

    With `rows` (case, dtype, direction, timed pairs) these are measured. Without, the lines are
    `about`, the controls' rows, each case with its dtypes and directions, and notes. Before each
    row comes a line {"began": …}, so that whoever started this knows which row crashed the process
    or never ended, and can start it again without that one. `CUBLAS_WORKSPACE_CONFIG` and limits
    are set by whoever starts it.
    """
    device = request["device"]
    quick = request["quick"]
    rows = request["rows"]
    switch(False)
    if torch.backends.mkl.is_available():
        # two threads in a process's first call of MKL's vector math race, whatever the operator
        torch.ones(1).sqrt()
    if device == "cuda":
        torch.cuda.init()
    found, notes = _cases(device, request["user"], rows)
    controls = [case for case in found if case.source == "control"]
    if rows is None:
        yield {"about": _about(device)}
    by_name = {case.name: case for case in found}
    for name, dtype, direction, price in rows or [
        (case.name, "float32", "forward", 0) for case in controls
    ]:
        yield {"began": [name, dtype, direction]}
        settings = Settings(**request["settings"], price=price)
        yield {
            "row": Measurement(
                device, by_name[name], dtype, direction, settings
            ).measure()
        }
    if rows is not None:
        return
    for case in cases.matching(found[len(controls) :], request["pattern"]):
        few = (
            tuple(name for name in case.dtypes if name in QUICK_DTYPES)
            or case.dtypes[:1]
        )
        for dtype in few if quick else case.dtypes:
            for direction in (
                case.directions(dtype) if not (quick and case.compiled) else ()
            ):
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
    notes += cases.assign(
        found, torch.use_deterministic_algorithms.__doc__ or "", device
    )
    # importing the samples takes seconds
    if rows is None or any(name.startswith("opinfo/") for name, *_ in rows):
        try:
            found += samples.cases(device)
        except Exception as error:  # NumPy is missing, or the module has moved
            why = " ".join(str(error).split())[:200]
            notes.append(f"PyTorch's operator samples cannot be imported: {why}")
    return found, notes


def _about(device: str) -> dict[str, str]:
    """Return the facts of the platform by the names that a trace has."""
    facts = {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "threads": torch.get_num_threads(),
        "cpu-isa": torch.backends.cpu.get_cpu_capability(),
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "device": device,
        "gpu-model": torch.cuda.get_device_properties(0).name
        if device == "cuda"
        else "",
    }
    return {name: str(value) for name, value in facts.items()}


class Measurement:
    """One row: `measure` returns it as the catalog has it."""

    def __init__(
        self, device: str, case: Case, dtype: str, direction: str, settings: Settings
    ) -> None:
        self.device = device
        self.case = case
        self.settings = settings
        self.dtype = dtype
        self.direction = direction
        self.documented = case.documented.get(direction, "")
        # a race that shows in few executions needs more of them
        self.risky = case.risky or bool(self.documented)
        self.off = Arm()
        self.on = Arm()
        self.kernels = [bits.Call("inductor")] if case.compiled else []
        self.inputs = ""
        self.off_ms: list[float] = []
        self.on_ms: list[float] = []

    def measure(self) -> dict[str, Any]:
        """Execute it. Torch's flags are off afterwards. Raises what no later row of this process
        would survive."""
        off = self.off
        on = self.on
        sizes = min(self.case.sizes, self.settings.sizes)
        try:
            for size in range(sizes):
                if size == 0 or "repeats" in (off.outcome, on.outcome):
                    self._one_size(size, last=size + 1 == sizes)
        except Exception as error:
            # a sample that cannot be made, or an operator that this device, dtype or torch does not
            # have
            if off.outcome == "repeats":
                off.fail(error)
            else:
                outcome_of(error)
        finally:
            switch(False)
        if off.outcome == "no-kernel" and not on.runs:
            on.outcome = off.outcome
            on.message = off.message
        # which of several operators differs is not known
        known = off.outcome != "differs" or len(self.kernels) == 1
        kernel = (*(self.kernels if known else ()), bits.Call())[0]
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

    def _sample(self, size: int) -> Sample:
        return self.case.make(self.device, self.dtype, self.direction, size)

    def _one_size(self, size: int, last: bool) -> None:
        switch(False)
        sample = self._sample(size)
        self.inputs = self.inputs or bits.digest(
            bits.leaves((sample.inputs, sample.numbers))
        )
        running = []
        for arm in (self.off, self.on):
            if arm.outcome == "repeats":
                runner = Runner(arm, sample, self.direction, on=arm is self.on)
                if self._start(runner, size):
                    running.append(runner)
                elif arm is self.off:
                    return
        settings = self.settings
        is_off = bool(running) and not running[0].on
        if settings.first and is_off and not size and not self.case.compiled:
            self._describe(running[0].run)
        seconds = settings.seconds / 2 * (_MORE if self.risky else 1)
        self._repeat(running, self._often(settings.repeats, size), seconds)
        if settings.contended and (last or self.risky):
            with load(self.device):
                count = self._often(settings.contended, size)
                self._repeat(running, count, seconds, timed=False)
        if (
            settings.price
            and not size
            and len(running) == 2
            and self._worth_a_price(*running)
        ):
            for runner in running:
                runner.times = []
            self._repeat(running, settings.price, settings.seconds / 2, least=_FEWEST)
            self.off_ms, self.on_ms = (runner.times for runner in running)

    def _start(self, runner: Runner, size: int) -> bool:
        """Make the execution that the later ones are compared with; it warms up, too. Return False
        if there is none: the arm says why, or had a smaller size."""
        arm = runner.arm
        sample = runner.sample
        before = versions(sample)
        try:
            result = runner.anew()
            if before != versions(sample):  # it writes to its inputs
                sample.inputs = self._sample(size).inputs
                runner.copies = True
                result = runner.anew()
            runner.first = copied(bits.leaves(result))
        except Exception as error:
            if not arm.digests:
                arm.fail(error)
            return False
        refused = "the forward, which the flags refuse, ran without them"
        arm.message = refused if runner.unflagged else ""
        arm.digests.append(bits.digest(runner.first))
        arm.runs = 1
        arm.differing = 0
        return True

    def _describe(self, run: Callable[[], Any]) -> None:
        """Note the kernel, and whether the result shows memory that nobody wrote."""
        # it may run, but not under a dispatch mode: its names stay unknown
        with contextlib.suppress(Exception):
            calls, _ = bits.record(run)
            self.kernels = bits.kernels(calls)
            empty = [call for call in calls if gives_unwritten(call.name)]
            if empty and bits.uninitialised(run):
                self.off.outcome = "uninitialised"
                self.kernels = empty[:1]

    def _often(self, count: int, size: int) -> int:
        """Return how often one size of this row is executed for `count` of the settings."""
        if self.case.source == "opinfo":
            return count // 2 or count  # by far the most rows
        if self.risky:
            return count * _MORE
        # half of it for the larger of two sizes
        return -(-count // 2) if size else count

    def _repeat(
        self,
        running: list[Runner],
        count: int,
        seconds: float,
        *,
        least: int = 1,
        timed: bool = True,
    ) -> None:
        """Execute the arms in turn, until it is enough."""
        ends = time.monotonic() + seconds
        for done in range(count):
            known = self.off.outcome == "differs" and done > self.settings.repeats
            if done >= least and (known or time.monotonic() > ends):
                break
            for runner in running:
                self._again(runner, timed)

    def _again(self, runner: Runner, timed: bool) -> None:
        arm = runner.arm
        runner.prepare()
        self._wait()
        started = time.perf_counter()
        arm.runs += 1
        try:
            result = runner.execute()
            self._wait()
            took = round((time.perf_counter() - started) * 1000, 4)
            found = bits.leaves(result)
        except Exception as error:
            arm.fail_later(error)
            return
        if timed:
            runner.times.append(took)
        if not bits.equal(runner.first, found):
            arm.differ(bits.largest_ulp(runner.first, found))

    def _wait(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()

    def _worth_a_price(self, off: Runner, on: Runner) -> bool:
        """Return whether torch documents that the flags change it, or they seem to."""
        differ = (
            self.off.outcome != self.on.outcome or self.off.digests != self.on.digests
        )
        if not self.settings.first or self.documented or differ:
            return True
        if not (off.times and on.times):
            return False
        without = statistics.median(off.times)
        with_it = statistics.median(on.times)
        ratio = with_it / max(without, 1e-9)
        return abs(with_it - without) > _NOTICED and not _CHEAPEST < ratio < _DEAREST
