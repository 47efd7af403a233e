"""Measures calls of operators, each with the determinism flags off and on in turns.

1. A child is forked before torch has computed anything, so it is as fresh as a training's process.
   An operator that ends its process ends this one child; another goes on behind it.
2. Each arm executes the call once to warm up; with that result every later one is compared.
3. Alone, the arms take turns, so that the machine's moods reach all alike: these are timed. A third
   arm, all flags but the filling of new memory, tells what the filling costs.
4. Then the two arms are executed beside other work, untimed: a race shows more often there.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import threading
import time
from functools import partial
from typing import Any, Callable, Iterator, NamedTuple, Sequence

import torch
from torch.utils._pytree import tree_leaves, tree_map_only

from ...probe import distance, facts, flags
from ...probe.digest import digest_all
from ...probe.shared import PROCESS
from ...trace.dispatch import gives_unwritten, is_mutable
from . import inputs

_LIMIT = 60.0  # seconds of one call, after which its child is ended
_TIMED = 200  # executions alone that are timed, at most
_LEAST = 3  # executions of a phase, however long they take
_COMPARED = 10  # executions of a phase whose bits are compared
_LONGEST_MESSAGE = 300
_LARGEST = (1 << 63) - 1  # ULP that the answer may hold
# of the other work's matrices: a product takes about a millisecond, so that it ends soon
_SIDE = 192
_FLAGS = flags.ALGORITHMS, flags.FILL, flags.CUDNN, flags.BENCHMARK, flags.MKLDNN
_OFF = dict.fromkeys(_FLAGS, False)


class Call(NamedTuple):
    """What is measured: `prepare` makes what one execution takes, `execute` is timed. `compares`:
    what it gives is more than memory as it was."""

    prepare: Callable[[], Any]
    execute: Callable[[Any], Any]
    compares: bool = True


class Task(NamedTuple):
    """A call that is made in the child that measures it, and how the answer names it."""

    make: Callable[[], Call]
    operator: str = ""
    form: str = ""


def answer(request: dict[str, Any], further: Sequence[Task]) -> None:
    """Measure the `calls` of a request ([operator, form]) and further ones, within about `seconds`.
    Append to the file `answer` a line with `about` (facts on this interpreter), then a line for
    each call, by its `number`, and {"done": true}. `flags` are those of the arm on."""
    tasks = [Task(partial(recorded, *call)) for call in request["calls"]]
    tasks += further
    ends = time.monotonic() + request["seconds"]
    if request.get("threads"):
        torch.set_num_threads(request["threads"])
    with open(request["answer"], "a", encoding="utf-8") as out:

        def write(line: dict[str, Any], number: int = -1) -> None:
            if number >= 0:
                _, operator, form = tasks[number]
                line |= {"number": number, "operator": operator, "form": form}
            out.write(json.dumps(line) + "\n")
            out.flush()

        def work(number: int) -> None:  # -1: the facts
            left = (ends - time.monotonic()) / (len(tasks) - number)
            left = min(left, _LIMIT / 2)  # a long one is no call that hangs
            if number < 0:
                PROCESS.torch = torch
                if torch.cuda.is_available():
                    # the device that facts name has to be in use
                    torch.empty(1, device="cuda")
                write({"about": facts.read(facts.facts())})
            elif left > 0:
                write(measured(tasks[number].make, request["flags"], left), number)
            else:
                write({"off": failed("the time was over")}, number)

        for number, why in in_children(range(-1, len(tasks)), work):
            write({"off": failed(why)}, number)
        write({"done": True})


def in_children(
    numbers: Sequence[int], work: Callable[[int], None]
) -> Iterator[tuple[int, str]]:
    """Do the work for each number, in a forked child; yield those in which a child ended, or did
    not end, and why. The next child goes on behind it."""
    while numbers:
        read, write = os.pipe()
        child = os.fork()
        if not child:
            status = 1
            with contextlib.suppress(BaseException):
                flags.apply(torch, {flags.MKL_EARLY: True})
                for number in numbers:
                    os.write(write, b".")
                    work(number)
                status = 0
            os._exit(status)
        os.close(write)
        begun, why = 0, ""
        while select.select([read], [], [], _LIMIT)[0]:
            dots = os.read(read, 4096)
            begun += len(dots)
            if not dots:
                break
        else:
            why = f"it took more than {_LIMIT:g} s"
            os.kill(child, signal.SIGKILL)
        os.close(read)
        status = os.waitpid(child, 0)[1]
        begun = max(begun, 1)
        if status:
            number = os.WTERMSIG(status)
            how = signal.Signals(number).name if number else f"status {status >> 8}"
            yield numbers[begun - 1], why or f"it ended its process with {how}"
        numbers = numbers[begun:]


def recorded(name: str, form: str) -> Call:
    """Return a call that a training made. Raises inputs.NotMade."""
    function = inputs.operator(name)
    given = inputs.arguments(name, form)
    mutable = is_mutable(function)

    def prepare() -> Any:
        return tree_map_only(torch.Tensor, _copy, given) if mutable else given

    def execute(made: Any) -> Any:
        args, kwargs = made
        with torch.no_grad():
            result = function(*args, **kwargs)
        return result, made if mutable else ()

    return Call(prepare, execute, not gives_unwritten(name))


def _copy(tensor: Any) -> Any:
    """Return a copy that lies in memory as the tensor does."""
    storage = tensor.untyped_storage().clone()
    return tensor.new_empty(0).set_(storage, 0, tensor.size(), tensor.stride())


def failed(why: object, outcome: str = "not measured") -> dict[str, Any]:
    """Return an arm that gave no result."""
    text = " ".join(str(why).split()) or type(why).__name__
    return {"outcome": outcome, "message": text[:_LONGEST_MESSAGE]}


class Arm:
    """One setting of the flags: what its executions gave, and how long they took."""

    def __init__(self, call: Call, setting: dict[str, Any]) -> None:
        self.call = call
        self.setting = {**_OFF, **setting}
        self.times = list[float]()  # milliseconds
        self.row: dict[str, Any] = {"outcome": "repeats", "runs": 1, "differing": 0}
        self.first: list[Any] | None = None

    def start(self) -> None:
        """Make the execution that the later ones are compared with."""
        try:
            result = self._executed()
        except Exception as error:
            if _is_fatal(error):
                raise
            is_refused = isinstance(error, RuntimeError) and "deterministic" in str(
                error
            )
            self.row = failed(error, "raises" if is_refused else "not measured")
            return
        self.times.clear()
        self.first = [tensor.clone() for tensor in _tensors(result)]
        self.digests = digest_all(self.first)
        if not self.call.compares:
            self.row = {"outcome": "new memory"}

    def again(self, compares: bool) -> None:
        """Execute, take the time of the execution alone, and compare the result, or do not."""
        result = self._executed()
        if not (compares and self.call.compares and self.first is not None):
            return
        self.row["runs"] += 1
        found = _tensors(result)
        if digest_all(found) != self.digests:
            self.row["outcome"] = "differs"
            self.row["differing"] += 1
            largest = [self.row.get("max_ulp")]
            for one, other in zip(self.first, found):
                is_dense = one.layout is torch.strided and not one.is_quantized
                if is_dense and (one.dtype, one.shape) == (other.dtype, other.shape):
                    largest.append(distance.measure(one, other)[1])
            most = max(filter(None, largest), default=None)
            self.row["max_ulp"] = most and min(most, _LARGEST)

    def _executed(self) -> Any:
        flags.apply(torch, self.setting)
        # `torch.manual_seed` takes 0.2 ms, with all devices
        torch.default_generator.manual_seed(1)
        if torch.cuda.is_initialized():
            torch.cuda.manual_seed(1)
        made = self.call.prepare()
        _wait()
        began = time.perf_counter()
        result = self.call.execute(made)
        _wait()
        self.times.append(round((time.perf_counter() - began) * 1000, 6))
        return result


def _tensors(value: Any) -> list[Any]:
    """Return the tensors of a result, on the CPU."""
    leaves = tree_leaves(value)
    return [it.detach().cpu() for it in leaves if isinstance(it, torch.Tensor)]


def _wait() -> None:
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def _is_fatal(error: Exception) -> bool:
    """Return whether every later call of CUDA in this process fails as well."""
    return type(error).__name__ == "AcceleratorError" or str(error).startswith(
        "CUDA error"
    )


def measured(
    make: Callable[[], Call], setting: dict[str, Any], seconds: float
) -> dict[str, Any]:
    """Return what came of one call in both arms, and the times of all three. Raises what no later
    call of this process would survive."""
    try:
        call = make()
        settings: Any = {}, setting, {**setting, flags.FILL: False}
        off, on, unfilled = arms = [Arm(call, each) for each in settings]
        for arm in arms:
            arm.start()
        running = [arm for arm in (off, on) if arm.first is not None]
        is_filled = len(running) == 2 and setting.get(flags.FILL, False)
        _repeat([*running, *[unfilled] * is_filled], _TIMED, seconds / 2)
        names = "off_ms", "on_ms", "unfilled_ms"
        times = dict(zip(names, [list(arm.times) for arm in arms]))
        if call.compares:
            with other_work():
                _repeat(running, _COMPARED, seconds / 2)
    except Exception as error:
        if _is_fatal(error):
            raise
        return {"off": failed(error)}
    return {"off": off.row, "on": on.row, **times}


def _repeat(arms: list[Arm], count: int, seconds: float) -> None:
    """Execute the arms in turn until it is enough."""
    ends = time.monotonic() + seconds
    done = 0
    while done < _LEAST or (done < count and time.monotonic() < ends):
        for arm in arms:
            arm.again(done < _COMPARED)
        done += 1


@contextlib.contextmanager
def other_work() -> Iterator[None]:
    """Keep the device busy meanwhile: a thread multiplies matrices, on a GPU in a second stream."""
    ended = threading.Event()
    cuda = torch.cuda.is_initialized()

    def work() -> None:
        side = _SIDE * 8 if cuda else _SIDE
        matrix = torch.full((side, side), 1e-3, device="cuda" if cuda else "cpu")
        stream = torch.cuda.Stream() if cuda else None
        while not ended.is_set():
            with torch.cuda.stream(stream):  # without a stream it does nothing
                torch.mm(matrix, matrix)
            if stream is not None:
                stream.synchronize()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(5)
