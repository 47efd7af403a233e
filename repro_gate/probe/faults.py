"""Puts one fault into the training, on purpose, for `repro-gate selftest` to find. Loaded only
where the run's configuration names one.

This is the one place where the probe changes a number: the live tensor, before it is digested, so
that digest, trace and comparison are all shown to work. A note in the trace says what was done.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Callable

from . import imports, sdk, session
from .digest import local
from .patch import wrap
from .process import process_key

NOTE = "fault"
# of the racing operator: threads, additions of each, elements that they add to
_THREADS = 4
_TURNS = 250
_WIDTH = 64


def install(config: dict[str, Any]) -> None:
    """Put in the fault that `config` describes, once, in the process that it names.

    `what` is `flip` (the last bit of one element of a tensor of this `kind` and `name`), `race`
    (scale that tensor by what threads add up in the order in which they come), `draw` (a number
    more from the generator `name`) or `flag` (switch the deterministic algorithms off); each in
    `step`, where the tensor, or else the generators, are recorded first.
    """
    fault = _Fault(**config)
    wrap(session.Session, "rng", fault.rng)
    wrap(sdk, "digest_leaves", fault.leaves)
    imports.after_import("torch", fault.torch_arrived)


@dataclass
class _Fault:
    """The fault of this process."""

    what: str
    kind: str
    name: str
    step: int
    process: str
    done = False

    def torch_arrived(self, torch: Any) -> None:
        from . import tensors

        wrap(tensors.Tensors, "record", self.tensors)

    def rng(self, original: Callable[[Any], None], current: Any) -> None:
        """Call around the recording of the generators' states."""
        if self.what in ("draw", "flag") and self._due():
            if self.what == "draw":
                draw(self.name)
                self._did(f"one more number drawn from the {self.name} generator")
            else:
                sys.modules["torch"].use_deterministic_algorithms(False)
                self._did("torch.use_deterministic_algorithms(False)")
        original(current)

    def tensors(
        self, original: Any, tensors: Any, kind: str, items: Any, *label: str
    ) -> None:
        """Call around the recording of named tensors of one kind."""
        if kind == self.kind and self._due():
            self._change(items)
        original(tensors, kind, items, *label)

    def leaves(self, original: Any, items: list[tuple[str, Any]]) -> Any:
        """Call around the digests of a batch, and of what the training itself records."""
        of_a_loader = sys._getframe(2).f_code.co_name == "batch"  # of `Hooks`
        concerned = self.kind == "batch" or not of_a_loader
        if self.what in ("flip", "race") and concerned and self._due():
            self._change(items)
        return original(items)

    def _due(self) -> bool:
        is_now = session.current().step == self.step and not self.done
        return is_now and process_key() == self.process

    def _change(self, items: Sequence[tuple[str, Any]]) -> None:
        torch = sys.modules.get("torch")
        value = dict(items).get(self.name)
        if torch is not None and isinstance(value, torch.Tensor):
            change = race if self.what == "race" else flip
            with torch.no_grad(), torch._C.DisableTorchFunctionSubclass():
                self._did(change(torch, local(value).data))
        elif self.what == "flip" and type(value).__module__ == "numpy":
            self._did(flip_array(value))

    def _did(self, text: str) -> None:
        self.done = True
        where = f"step {self.step} of {self.process}, {self.kind} {self.name}"
        session.current().note(NOTE, f"{where}: {text}")


def flip(torch: Any, tensor: Any) -> str:
    """Flip the last bit of one element, in place: of a float that is finite and not 0, of an
    integer that is odd, where there is one, so that it stays an index of whatever it indexes."""
    own = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    good = torch.isfinite(own) & (own != 0) if own.is_floating_point() else own % 2 == 1
    places = good.nonzero()
    place = tuple(places[0].tolist()) if len(places) else (0,) * own.dim()
    element = own[place]
    before = element.item()
    element.view(getattr(torch, f"int{8 * own.element_size()}")).bitwise_xor_(1)
    return f"element {list(place)} was {before!r} and is {own[place].item()!r}"


def flip_array(array: Any) -> str:
    """Flip the last bit of the first element of an array of numbers, in place."""
    place = (0,) * array.ndim
    before = array[place].item()
    array.view(f"u{array.itemsize}")[place] ^= 1
    return f"element {list(place)} was {before!r} and is {array[place].item()!r}"


def draw(name: str) -> None:
    """Draw one number from a generator, by the name that it has in a trace."""
    if name == "python":
        random.random()  # noqa: S311  the generator that is in question
    elif name == "numpy":
        sys.modules["numpy"].random.random()
    else:
        sys.modules["torch"].rand(1, device="cpu" if name == "torch" else name)


def race(torch: Any, tensor: Any) -> str:
    """Let threads add to shared elements without waiting for one another, and scale the tensor, by
    1 % at most, by what rounding and lost additions made of it. The terms are the same in every
    run; their order is not."""
    seeded = torch.Generator().manual_seed(0)
    terms = torch.rand(_THREADS, _WIDTH, generator=seeded) + 1.0
    shared = torch.zeros(_WIDTH)
    together = threading.Barrier(_THREADS)

    def contend(row: Any) -> None:
        together.wait()
        for turn in range(_TURNS):
            shared.add_(row, alpha=1.0 / (turn + 1))
            time.sleep(0)  # another thread's turn, or not

    with ThreadPoolExecutor(_THREADS) as pool:
        list(pool.map(contend, terms))
    # so that the smallest difference shows in any dtype
    scale = 1.0 + 0.01 * (float(shared.double().sum()) * 1e7 % 1.0)
    tensor.mul_(scale)
    return f"scaled by {scale!r}, which {_THREADS} threads made"
