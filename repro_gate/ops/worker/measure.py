"""Measures one row of the catalog: one case in one dtype and direction, flags off and on, alone and
beside other work.

The two arms alternate, so that the machine's moods reach both alike. The first execution of each is
compared with every later one.
"""

from __future__ import annotations

import contextlib
import statistics
import threading
import time
from typing import Any, Iterator, NamedTuple

from ...trace.dispatch import gives_unwritten
from . import bits, dispatch, flags
from .case import Case, Sample

_LONGEST_MESSAGE = 300
_CULPRIT_SECONDS = 1.0  # of recorded executions in which the operator that differs is looked for
_CHEAPEST, _DEAREST = 0.87, 1.15  # ratios of time between which the flag is taken to change nothing
_FEWEST = 3  # timed executions of an arm, for a price
_MORE = 4  # times as many executions of what is known to race
_NOTICED = 0.1  # milliseconds of difference below which a ratio is noise
# of the load's matrices: a product takes about a millisecond, so that the load ends soon after it
# is told to
_SIDE = 192


class Settings(NamedTuple):
    """How often and how long. `repeats` counts the executions alone after the first; `price` asks
    for more timed pairs if the flag changes something."""

    repeats: int = 4
    contended: int = 3
    seconds: float = 0.25  # of one row's repeats, for each size; one execution is made in any case
    price: int = 6
    sizes: int = 2
    record: bool = True
    dear: bool = False  # take the price in any case


class Load:
    """A thread that keeps the device busy next to the operator that is measured: it multiplies
    matrices while `busy`, on a GPU in a second stream."""

    def __init__(self, torch: Any, device: str) -> None:
        self._torch, self.device = torch, device
        self._wanted, self._idle = threading.Event(), threading.Event()
        threading.Thread(target=self._work, daemon=True).start()

    @contextlib.contextmanager
    def busy(self) -> Iterator[None]:
        self._wanted.set()
        try:
            yield
        finally:
            self._idle.clear()
            self._wanted.clear()
            self._idle.wait(5)

    def _work(self) -> None:
        torch, cuda = self._torch, self.device == "cuda"
        side = _SIDE * 8 if cuda else _SIDE
        matrix = torch.full((side, side), 1e-3, device=self.device)
        stream = torch.cuda.Stream() if cuda else None
        while True:
            if not self._wanted.is_set():
                self._idle.set()
                self._wanted.wait()
            with torch.cuda.stream(stream):  # without a stream it does nothing
                torch.mm(matrix, matrix)
            if stream is not None:
                stream.synchronize()


class Runner:
    """Executes one sample again and again, from the same bits and the same seed, under the flags as
    they stand. A backward runs through one graph, if torch allows it; if the flags refuse its
    forward, `unflagged`, that is made without them."""

    def __init__(self, torch: Any, sample: Sample, direction: str) -> None:
        self.torch, self.sample, self.direction = torch, sample, direction
        self.copies = False  # whether each execution is given copies, since it writes to its inputs
        self.unflagged = self._once_only = False
        self._graph: Any = None

    def anew(self) -> Any:
        """Execute with a new graph, which chose its kernels under the flags as they are now."""
        if self.direction == "backward":
            try:
                self._graph = self._forward()
            except RuntimeError as error:
                if not flags.refused(error) or self.unflagged:
                    raise
                self.unflagged = True
                self._graph = self._forward()
        return self.run()

    def run(self) -> Any:
        """Seed, then execute."""
        flags.seed(self.torch)
        return self.execute()

    def execute(self) -> Any:
        """Execute: this is what is timed."""
        if self.direction == "forward":
            with self.torch.no_grad():
                return self.sample.function(*self._inputs())
        if not self._once_only:
            try:
                return self._backward()
            except RuntimeError as error:
                if flags.refused(error):
                    raise
                # this graph bears no second backward, or its layer's buffers have moved on
                self._once_only = True
        self._graph = self._forward()
        return self._backward()

    def _forward(self) -> Any:
        """Return outputs, their fixed cotangents, and what gradients are taken of."""
        torch, sample = self.torch, self.sample
        inputs = [item for place, item in enumerate(sample.inputs) if place not in sample.constants]
        wanted = [
            item.requires_grad_(True)
            for item in inputs + sample.parameters
            if item.is_leaf and (item.is_floating_point() or item.is_complex())
        ]
        on = torch.are_deterministic_algorithms_enabled()
        flags.switch(torch, on and not self.unflagged)
        flags.seed(torch)
        outputs = bits.tensors(torch, sample.function(*self._inputs()))
        flags.switch(torch, on)
        outputs = [item for item in outputs if item.requires_grad]
        if not outputs or not wanted:
            raise NotImplementedError("no output has a gradient")
        generator = torch.Generator().manual_seed(1)
        return outputs, [_cotangent(torch, item, generator) for item in outputs], wanted

    def _inputs(self) -> list[Any]:
        given = self.sample.inputs
        return _copied(self.torch, given) if self.copies else given

    def _backward(self) -> Any:
        outputs, cotangents, wanted = self._graph
        found = self.torch.autograd.grad(
            outputs, wanted, cotangents, retain_graph=not self._once_only, allow_unused=True
        )
        return [item for item in found if item is not None]


class Arm:
    """What one arm gave, over all sizes of one row."""

    runner: Runner
    first: list[Any]

    def __init__(self) -> None:
        self.outcome, self.message = "repeats", ""
        self.runs = self.differing = 0  # of the last size
        self.max_ulp: int | None = None
        self.digests: list[str] = []  # of each size's first result
        self.refused: dispatch.Call | None = None  # the operator that was
        self.times: list[float] = []  # milliseconds of the executions alone, at this size
        self.priced: list[float] = []  # of those that were made for the price

    def fail(self, error: Exception) -> None:
        """Note that it raised. Raises what leaves no later operator of this process a chance."""
        self.outcome = flags.outcome_of(error)
        text = " ".join(str(error).split()) or type(error).__name__
        self.message = text[:_LONGEST_MESSAGE]

    def row(self) -> dict[str, Any]:
        """Return it as the catalog has it."""
        names = ("outcome", "message", "runs", "differing", "max_ulp", "digests")
        return {name: getattr(self, name) for name in names}


class Measurement:
    """One row: `measure` returns it as the catalog has it."""

    def __init__(self, torch: Any, load: Load, case: Case, dtype: str, direction: str) -> None:
        self.torch, self.load, self.case = torch, load, case
        self.dtype, self.direction = dtype, direction
        self.documented = case.documented.get(direction, "")
        # a race that shows in few executions needs more of them
        self.risky = case.risky or bool(self.documented)
        self.off, self.on = Arm(), Arm()
        self.kernel = dispatch.Call("inductor" if case.compiled else "", "", False, "", [])
        self.inputs = ""

    def measure(self, settings: Settings) -> dict[str, Any]:
        """Execute it. Torch's flags are off afterwards. Raises what no later row of this process
        would survive."""
        off, on = self.off, self.on
        sizes = min(self.case.sizes, settings.sizes)
        try:
            for size in range(sizes):
                if size == 0 or "repeats" in (off.outcome, on.outcome):
                    self._one_size(size, size + 1 == sizes, settings)
        except Exception as error:
            # a sample that cannot be made, or an operator that this device, dtype or torch does not
            # have
            if off.outcome == "repeats":
                off.fail(error)
            else:
                flags.outcome_of(error)
        finally:
            flags.switch(self.torch, False)
        if off.outcome == "no-kernel" and not on.runs:
            on.outcome, on.message = off.outcome, off.message
        names = ("dtype", "direction", "documented", "inputs")
        return {
            **{name: getattr(self, name) for name in names},
            "case": self.case.name,
            "kernel": self.kernel.name,
            "form": self.kernel.form,
            "off": off.row(),
            "on": on.row(),
            "off_ms": off.priced,
            "on_ms": on.priced,
        }

    def _sample(self, size: int) -> Sample:
        device = self.load.device
        return self.case.make(self.torch, device, self.dtype, self.direction, size)

    def _one_size(self, size: int, last: bool, settings: Settings) -> None:
        torch, off, on = self.torch, self.off, self.on
        flags.switch(torch, False)
        sample = self._sample(size)
        self.inputs = self.inputs or bits.digest(
            torch, [*bits.leaves(torch, sample.inputs), sample.numbers]
        )
        running = []
        for arm in (off, on):
            if arm.outcome == "repeats":
                arm.times = []
                arm.runner = Runner(torch, sample, self.direction)
                if self._first(arm, size):
                    running.append(arm)
                elif arm is off:
                    return
        watched = settings.record and not self.case.compiled and off in running
        if watched and not size:
            self._describe()
        self._repeat(running, settings, "alone")
        if last or self.risky:
            self._repeat(running, settings, "contended")
        if watched and off.outcome == "differs":
            # one that differs too seldom for a few recorded executions keeps the row's kernel
            flags.switch(torch, False)
            with contextlib.suppress(Exception):
                found = dispatch.first_differing(torch, off.runner.run, _CULPRIT_SECONDS)
                self.kernel = found or self.kernel
        self.kernel = on.refused or self.kernel
        priced = settings.dear or (settings.record and self._worth_a_price())
        if settings.price and not size and len(running) == 2 and priced:
            self._repeat(running, settings, "priced")

    def _first(self, arm: Arm, size: int) -> bool:
        """Make the execution that the later ones are compared with; it warms up, too. Return False
        if there is none: the arm says why, or had a smaller size."""
        torch, runner = self.torch, arm.runner
        flags.switch(torch, arm is self.on)
        before = _versions(torch, runner.sample)
        try:
            result = runner.anew()
            if before != _versions(torch, runner.sample):  # it writes to its inputs
                runner.sample.inputs, runner.copies = self._sample(size).inputs, True
                result = runner.anew()
            arm.first = _copied(torch, bits.leaves(torch, result))
        except Exception as error:
            if not arm.digests:
                arm.fail(error)
                if arm.outcome == "raises" and not self.case.compiled:
                    # it may be refused before anything is dispatched
                    with contextlib.suppress(Exception):
                        arm.refused = dispatch.record(torch, runner.anew).raised
            return False
        refused = "the forward, which the flags refuse, ran without them"
        arm.message = refused if runner.unflagged else ""
        arm.digests.append(bits.digest(torch, arm.first))
        arm.runs, arm.differing = 1, 0
        return True

    def _describe(self) -> None:
        flags.switch(self.torch, False)
        run = self.off.runner.run
        # it may run, but not under a dispatch mode: its names stay unknown
        with contextlib.suppress(Exception):
            found = dispatch.record(self.torch, run)
            self.kernel = found.kernel()
            empty = [call for call in found.calls if gives_unwritten(call.name)]
            if empty and dispatch.uninitialised(self.torch, run):
                self.off.outcome, self.kernel = "uninitialised", empty[0]

    def _repeat(self, running: list[Arm], settings: Settings, place: str) -> None:
        """Execute the arms in turn: `alone`, `contended` (next to other work), or `priced` (alone,
        only to time them)."""
        count = {"alone": settings.repeats, "priced": settings.price}.get(place, settings.contended)
        least, seconds = 1, settings.seconds / 2
        if place == "priced":
            least = _FEWEST
        else:
            seconds *= _MORE if self.risky else 1
            if self.case.name.startswith("opinfo/") and count > 1:
                count //= 2  # by far the most rows
            elif self.risky:
                count *= _MORE
            elif len(self.off.digests) > 1:
                count = -(-count // 2)  # the larger of two sizes
        busy = place == "contended" and count > 0
        with self.load.busy() if busy else contextlib.nullcontext():
            ends = time.monotonic() + seconds
            for done in range(count):
                known = self.off.outcome == "differs" and done > settings.repeats
                if done >= least and (known or time.monotonic() > ends):
                    break
                for arm in running:
                    flags.switch(self.torch, arm is self.on)
                    self._again(arm, place)

    def _again(self, arm: Arm, place: str) -> None:
        torch, cuda = self.torch, self.load.device == "cuda"
        flags.seed(torch)
        if cuda:
            torch.cuda.synchronize()
        started = time.perf_counter()
        arm.runs += 1
        try:
            result = arm.runner.execute()
            if cuda:
                torch.cuda.synchronize()
            took = round((time.perf_counter() - started) * 1000, 4)
            found = bits.leaves(torch, result)
        except Exception as error:  # it ran the first time
            arm.fail(error)
            arm.outcome = "crash" if arm.outcome == "crash" else "differs"
            arm.message = "the first execution ran, a later one did not: " + arm.message
            arm.differing += 1
            return
        if place != "contended":
            (arm.priced if place == "priced" else arm.times).append(took)
        if not bits.equal(torch, arm.first, found):
            arm.outcome = "uninitialised" if arm.outcome == "uninitialised" else "differs"
            arm.differing += 1
            distance = bits.largest_ulp(torch, arm.first, found)
            arm.max_ulp = distance if arm.max_ulp is None else max(arm.max_ulp, distance or 0)

    def _worth_a_price(self) -> bool:
        """Return whether torch documents that the flags change it, or they seem to."""
        off, on = self.off, self.on
        if self.documented or off.outcome != on.outcome or off.digests != on.digests:
            return True
        if not (off.times and on.times):
            return False
        without, with_it = statistics.median(off.times), statistics.median(on.times)
        ratio = with_it / max(without, 1e-9)
        return abs(with_it - without) > _NOTICED and not _CHEAPEST < ratio < _DEAREST


def _versions(torch: Any, sample: Sample) -> list[int]:
    given = bits.tensors(torch, sample.inputs)
    return [item._version for item in given if not item.is_inference()]


def _copied(torch: Any, found: list[Any]) -> list[Any]:
    return [item.clone() if isinstance(item, torch.Tensor) else item for item in found]


def _cotangent(torch: Any, output: Any, generator: Any) -> Any:
    """Return normal numbers of the output's shape."""
    if output.layout != torch.strided or output.is_nested:
        return torch.ones_like(output)
    kind = torch.complex64 if output.is_complex() else torch.float32
    drawn = torch.randn(output.shape, generator=generator, dtype=kind)
    return drawn.to(output.dtype).to(output.device)
