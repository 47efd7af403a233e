"""Measures one row of the catalog: one case in one dtype and direction, flags off and on, alone and
beside other work.

The two arms alternate, so that the machine's moods reach both alike. The first execution of each is
compared with every later one.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from . import bits, dispatch, flags
from .case import Case
from .contention import Contention
from .runner import Runner, tensors

_LONGEST_MESSAGE = 300
_CULPRIT_SECONDS = 1.0  # of recorded executions in which the operator that differs is looked for
_CHEAPEST, _DEAREST = 0.87, 1.15  # ratios of time between which the flag is taken to change nothing
_MOST_RESULTS = 100  # digests of one arm that are told
_FEWEST = 3  # timed executions of an arm, for a price
_MORE = 4  # times as many executions of what is known to race
_NOTICED = 0.1  # milliseconds of difference below which a ratio is noise
ARMS = ("off", "on")


class Settings(NamedTuple):
    """How often and how long. `repeats` counts the executions alone after the first; `price` asks
    for more timed pairs where the flag changes something."""

    repeats: int = 4
    contended: int = 3
    seconds: float = (
        0.25  # of one row's repeats, for each size; two executions are made in any case
    )
    price: int = 6
    dear: bool = False  # take the price in any case
    seed: int = 0
    flags: str = "both"  # or "off", "on"
    sizes: int = 2
    record: bool = True


class Arm:
    """What one arm gave, over all sizes of one row."""

    def __init__(self) -> None:
        self.outcome = "repeats"
        self.message = self.raised = self.form = ""  # `raised`: the operator that did, and its form
        self.runs = self.differing = 0  # of the last size
        self.distinct: Dict[str, None] = {}  # their digests, in the order in which they came
        self.digests: List[str] = []
        self.max_ulp: Optional[int] = None
        self.times: List[float] = []  # milliseconds of the executions alone, at this size
        self.priced: List[float] = []  # of those that were made for the price
        self.first: Any = None

    def fail(self, error: BaseException) -> None:
        """It raised. Passes on what leaves no later operator of this process a chance."""
        if flags.fatal(error):
            raise error
        self.outcome = (
            "raises"
            if flags.refused(error)
            else "crash"
            if flags.out_of_memory(error)
            else "no-kernel"
        )
        text = " ".join(str(error).split()) or type(error).__name__
        self.message = text if len(text) <= _LONGEST_MESSAGE else text[: _LONGEST_MESSAGE - 1] + "…"

    def count(self, digest: str) -> None:
        """One more execution, and what it gave."""
        self.runs += 1
        self.distinct[digest] = None
        self.differing += digest != self.digests[-1]

    def done(self) -> bool:
        """Nothing more to be learned from this arm."""
        return self.outcome != "repeats"

    def line(self) -> Dict[str, Any]:
        return {
            "outcome": self.outcome,
            "runs": self.runs,
            "differing": self.differing,
            "distinct": len(self.distinct),
            "results": list(self.distinct)[:_MOST_RESULTS],
            "max_ulp": self.max_ulp,
            "digests": self.digests,
            "message": self.message,
        }


def measure(
    torch: Any,
    case: Case,
    device: str,
    dtype: str,
    direction: str,
    settings: Settings,
    load: Contention,
) -> Dict[str, Any]:
    """One row, as `worker` writes it. Torch's flags are off afterwards. Raises what no later row of
    this process would survive."""
    arms = {name: Arm() for name in ARMS}
    row: Dict[str, Any] = {
        "size": "",
        "inputs": "",
        "kernel": "inductor" if case.compiled else "",
        "form": "",
        "dispatched": [],
    }
    row["random"] = case.random
    begun = time.monotonic()
    try:
        for size in range(min(case.sizes, settings.sizes)):
            if size and all(arm.done() for arm in arms.values()):
                break
            _one_size(
                _Bench(torch, case, device, dtype, direction, settings, load), size, arms, row
            )
    except Exception as error:
        # a sample that cannot be made, or an operator that this device, dtype or torch does not
        # have
        if flags.fatal(error):
            raise
        if not arms["off"].done():
            arms["off"].fail(error)
    finally:
        flags.switch(torch, False)
    if arms["off"].outcome == "no-kernel" and not arms["on"].runs:
        arms["on"].outcome, arms["on"].message = "no-kernel", arms["off"].message
    row.update({name: arms[name].line() for name in ARMS})
    row.update(
        {"times_%s_ms" % name: [round(value, 4) for value in arms[name].priced] for name in ARMS}
    )
    row["seconds"] = round(time.monotonic() - begun, 3)
    return row


class _Bench(NamedTuple):
    torch: Any
    case: Case
    device: str
    dtype: str
    direction: str
    settings: Settings
    load: Contention

    def documented(self) -> str:
        return self.case.documented.get(self.device, {}).get(self.direction, "")

    def risky(self) -> bool:
        """Whether it is known to race somewhere: a race that shows in few executions needs more of
        them."""
        return self.case.risky or bool(self.documented())


def _one_size(bench: _Bench, size: int, arms: Dict[str, Arm], row: Dict[str, Any]) -> None:
    torch, settings = bench.torch, bench.settings
    flags.switch(torch, False)
    runners: Dict[str, Runner] = {}
    sample = bench.case.make(torch, bench.device, bench.dtype, bench.direction, size, settings.seed)
    row["inputs"] = row["inputs"] or bits.digest(
        torch, [*bits.leaves(torch, sample.inputs), sample.numbers]
    )
    for name in ARMS:
        if settings.flags not in ("both", name) or arms[name].done():
            continue
        arms[name].times = []
        runner = Runner(torch, sample, bench.direction, settings.seed + 1)
        if not _first(bench, name, runner, arms[name]):
            if name == "off":
                return
            continue
        runners[name] = runner
        if name == "off" or settings.flags == name or not size:
            row["size"] = sizes_of(torch, sample.inputs)
    if settings.record and not bench.case.compiled and "off" in runners and not size:
        _describe(torch, runners["off"], arms["off"], row)
    last = size + 1 == min(bench.case.sizes, settings.sizes)
    _repeat(bench, runners, arms, ("alone", "contended") if last or bench.risky() else ("alone",))
    if (
        "off" in runners
        and arms["off"].outcome == "differs"
        and not bench.case.compiled
        and settings.record
    ):
        _blame(torch, runners["off"], row)
    if arms["on"].raised:
        row["kernel"], row["form"] = arms["on"].raised, arms["on"].form
    if (
        settings.price
        and not size
        and len(runners) == 2
        and (settings.dear or (settings.record and _worth_a_price(bench, arms)))
    ):
        _repeat(bench, runners, arms, ("priced",))


def _first(bench: _Bench, name: str, runner: Runner, arm: Arm) -> bool:
    """The execution that the later ones are compared with; it warms up, too. False where there is
    none: the arm says why, or had a smaller size."""
    torch = bench.torch
    flags.switch(torch, name == "on")
    kept = _versions(torch, runner.sample.inputs)
    try:
        runner.prepare()
        result = runner.run()
        # it writes to its inputs: each execution is given copies of new ones
        if kept != _versions(torch, runner.sample.inputs):
            made = bench.case.make(
                torch,
                bench.device,
                bench.dtype,
                bench.direction,
                len(arm.digests),
                bench.settings.seed,
            )
            runner.sample.inputs, runner.sample.copies = made.inputs, True
            runner.prepare()
            result = runner.run()
        arm.first = _copied(torch, bits.leaves(torch, result))
    except Exception as error:
        if not arm.digests:
            arm.fail(error)
            if arm.outcome == "raises" and not bench.case.compiled:
                arm.raised, arm.form = _raised(torch, runner)
        return False
    arm.message = (
        "the forward, which the flags refuse, ran without them" if runner.unflagged else ""
    )
    arm.digests.append(bits.digest(torch, arm.first))
    arm.runs, arm.differing, arm.distinct = 0, 0, {}
    arm.count(arm.digests[-1])
    return True


def _versions(torch: Any, inputs: List[Any]) -> List[int]:
    return [item._version for item in tensors(torch, inputs) if not item.is_inference()]


def _raised(torch: Any, runner: Runner) -> Tuple[str, str]:
    """The operator that the flag refuses, and its form."""
    try:
        found = dispatch.record(torch, runner.anew)[0]
    except Exception:  # refused before anything was dispatched
        return "", ""
    return found.raised, found.forms.get(found.raised, "")


def _describe(torch: Any, runner: Runner, arm: Arm, row: Dict[str, Any]) -> None:
    flags.switch(torch, False)
    try:
        found, _ = dispatch.record(torch, runner.run)
        row["kernel"] = found.kernel()
        row["form"] = found.forms.get(row["kernel"], "")
        row["dispatched"] = list(dict.fromkeys(found.names))[: dispatch.MOST]
        row["random"] = row["random"] or found.random
        if found.empty() and dispatch.uninitialised(torch, runner.run):
            arm.outcome, row["kernel"] = "uninitialised", found.empty()
    except Exception:  # it runs, but not under a dispatch mode: its names stay unknown
        row["dispatched"] = row["dispatched"] or []


def _repeat(
    bench: _Bench, runners: Dict[str, Runner], arms: Dict[str, Arm], places: Tuple[str, ...]
) -> None:
    """Execute the arms in turn: `alone`, `contended` (beside other work), or `priced` (alone, only
    to time them)."""
    torch, settings = bench.torch, bench.settings
    for place in places:
        wanted = {
            "priced": settings.price,
            "alone": settings.repeats,
            "contended": settings.contended,
        }[place]
        least = 1
        if place == "priced":
            least = _FEWEST
        elif bench.case.source == "opinfo" and wanted > 1:
            wanted //= 2  # by far the most rows
        elif bench.risky():
            wanted *= _MORE
        elif len(arms["off"].digests) > 1:
            wanted = -(-wanted // 2)  # the larger of two sizes
        with bench.load.busy() if place == "contended" and wanted else contextlib.nullcontext():
            ends = time.monotonic() + settings.seconds / 2 * (
                _MORE if bench.risky() and place != "priced" else 1
            )
            for done in range(wanted):
                if done >= least and (
                    time.monotonic() > ends
                    or (arms["off"].outcome == "differs" and done > settings.repeats)
                ):
                    break
                for name, runner in runners.items():
                    flags.switch(torch, name == "on")
                    _again(bench, runner, arms[name], place)


def _again(bench: _Bench, runner: Runner, arm: Arm, place: str) -> None:
    torch = bench.torch
    flags.seed(torch, runner.number)
    if bench.device == "cuda":
        torch.cuda.synchronize()
    started = time.perf_counter()
    try:
        result = runner.execute()
        if bench.device == "cuda":
            torch.cuda.synchronize()
        if place != "contended":
            (arm.priced if place == "priced" else arm.times).append(
                (time.perf_counter() - started) * 1000
            )
        found = bits.leaves(torch, result)
    except Exception as error:  # it ran the first time
        arm.fail(error)
        arm.outcome = "crash" if arm.outcome == "crash" else "differs"
        arm.message = "the first execution ran, a later one did not: " + arm.message
        arm.count(type(error).__name__)
        return
    if bits.equal(torch, arm.first, found):
        arm.count(arm.digests[-1])
        return
    arm.outcome = "uninitialised" if arm.outcome == "uninitialised" else "differs"
    arm.count(bits.digest(torch, found))
    distance = bits.largest_ulp(torch, arm.first, found)
    arm.max_ulp = distance if arm.max_ulp is None else max(arm.max_ulp, distance or 0)


def _blame(torch: Any, runner: Runner, row: Dict[str, Any]) -> None:
    """Name the operator of a row that differs. One that differs too seldom for a few recorded
    executions keeps the row's kernel."""
    flags.switch(torch, False)
    with contextlib.suppress(Exception):
        first, _ = dispatch.record(torch, runner.run, digests=True)
        name = dispatch.first_differing(torch, runner.run, first.calls, _CULPRIT_SECONDS)
        if name:
            row["kernel"], row["form"] = name, first.forms[name]


def _worth_a_price(bench: _Bench, arms: Dict[str, Arm]) -> bool:
    """Whether torch documents that the flags change it, or they seem to."""
    off, on = arms["off"], arms["on"]
    if bench.documented() or off.outcome != on.outcome or off.digests != on.digests:
        return True
    if not (off.times and on.times):
        return False
    without, with_it = statistics.median(off.times), statistics.median(on.times)
    return (
        abs(with_it - without) > _NOTICED
        and not _CHEAPEST < with_it / max(without, 1e-9) < _DEAREST
    )


def _copied(torch: Any, found: List[Any]) -> List[Any]:
    return [leaf.clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in found]


def sizes_of(torch: Any, inputs: List[Any]) -> str:
    """The shapes of the first inputs: `1024x1024, 1024 int64`."""
    texts = []
    for item in tensors(torch, inputs)[:4]:
        shape = "x".join(map(str, item.shape)) or "scalar"
        texts.append(
            shape
            if item.is_floating_point() or item.is_complex()
            else "%s %s" % (shape, str(item.dtype).split(".")[-1])
        )
    return ", ".join(texts)[:200]
