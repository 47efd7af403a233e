"""Where the probe meets torch: optimizers and DataLoaders call `Hooks`, and `loss` does where a
gradient is taken.

What happens is recorded in the order in which it happens: a batch when the DataLoader hands it out;
generator states and the loss when `backward` is entered; gradients as the optimizer sees them when
`step` is entered (after its closure, where it has one), in the order in which autograd finished
them; parameters, optimizer state, buffers and generator states when `step` returns.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import threading
import types
from typing import Any, Callable, Dict, List, Optional, Tuple

from ..trace.format import MAX_NAME
from . import end_state, facts, flags, loss, names, sdk
from .device_digest import WITHOUT_TRITON
from .digest import UNREAD, bare, shapeless
from .loaders import Loaders
from .manual_steps import BACKWARD, ManualSteps
from .operators import watching
from .patch import wrap
from .session import Session
from .shared import PROCESS, Watcher
from .tensors import Tensors, parameters

_RECENT = 64  # steps after which an optimizer that no longer steps is let go
_FUNCTIONS = (
    types.FunctionType,
    types.MethodType,
    types.BuiltinFunctionType,
    functools.partial,
)
_THREADS = 200  # whose traces are open at once; of more, those of threads that ended are closed


def install(torch: Any, session: Session) -> None:
    """Seed torch, set the flags and hook in, right after `import torch`. Called once in each
    process."""
    from torch.optim import optimizer as optim
    from torch.utils.data import DataLoader, dataloader

    torch.manual_seed(session.config["seed"])  # every CUDA device's as well, lazily
    flags.apply(torch, session.config["flags"])
    flags.watch(torch, session.config["flags"])
    facts.watch_cuda_start(torch)
    hooks = Hooks(torch, session)

    def before_step(
        optimizer: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]
    ) -> Optional[Tuple[Any, Any]]:
        return hooks.of_thread().before_step(optimizer, args, kwargs)

    def after_step(optimizer: Any, args: Any, kwargs: Any) -> None:
        hooks.of_thread().after_step(optimizer)

    def made(
        original: Callable[..., Any], optimizer: Any, *args: Any, **kwargs: Any
    ) -> Any:
        result = original(optimizer, *args, **kwargs)
        hooks.of_thread().optimizer_made(optimizer)
        return result

    before_step._torchdynamo_disable = after_step._torchdynamo_disable = True  # type: ignore[attr-defined]
    optim.register_optimizer_step_pre_hook(before_step)
    optim.register_optimizer_step_post_hook(after_step)
    wrap(optim.Optimizer, "__init__", made)
    wrap(
        dataloader._BaseDataLoaderIter,
        "__next__",
        lambda original, iterator: hooks.of_thread().batch(
            original(iterator), iterator
        ),
    )
    wrap(
        DataLoader,
        "__iter__",
        lambda original, loader: hooks.of_thread().epoch(original, loader),
    )
    loss.watch(hooks)


class Hooks(Watcher):
    """The hooks of the main thread of a process, or of another thread that trains: it has a trace
    of its own, since the order of steps of several threads is not the same in two runs."""

    def __init__(self, torch: Any, session: Session, thread: Any = None) -> None:
        self.torch, self.thread = torch, thread  # None: the main thread
        self.tensors = Tensors(torch, session)
        self._order: Dict[
            int, int
        ] = {}  # id(parameter) -> when autograd finished its gradient
        self.serve(session)

    def of_thread(self) -> Hooks:
        """Return the hooks of the calling thread. Another one than the main thread has its own, and
        those of a thread of its name that has ended. What it makes and fetches (batches for others,
        as early as it can) is not written before it trains. Autograd's threads work for the main
        thread."""
        if threading.get_ident() == threading.main_thread().ident:
            return self
        own: Optional[Hooks] = getattr(self._local, "hooks", None)
        if own is not None:
            return own
        thread = threading._active.get(threading.get_ident())  # type: ignore[attr-defined]
        if thread is None or isinstance(thread, threading._DummyThread):
            return self
        found = self
        with self.session.own_time():
            ended = [other for other in self.others if not other.thread.is_alive()]
            own = next(
                (other for other in ended if other.thread.name == thread.name), None
            )
            if own is None:
                session = Session(self.session.config, thread=thread.name[:MAX_NAME])
                own = Hooks(self.torch, session, thread)
                if self.session.live:
                    self.others.append(own)
                    PROCESS.sessions.append(session)
                    session.start()
                    for other in ended if len(self.others) % _THREADS == 0 else ():
                        other.session.close("exit")
            own.thread = thread
            found = self._local.hooks = own
        return found

    def serve(self, session: Session) -> None:
        """Call this session from here on, as at the beginning."""
        self.session = session
        session.watcher, session.torch = self, self.torch
        self.tensors.serve(session)
        self.others: List[
            Hooks
        ] = []  # of the threads that train beside the main thread
        self._local = threading.local()
        self.manual = ManualSteps(self.torch, self.tensors)
        self.loaders = Loaders(session)
        self._nonfinite = end_state.NonFinite(self.torch)
        self._operators = watching(self.torch, session.config)
        self._captured = False
        # optimizers that stepped lately, held so that their state can be kept at the end
        self._used: Dict[int, Tuple[Any, int]] = {}
        # handles of hooks on the first forward, and of those that learn the order of gradients
        self._waiting: List[Any] = []
        if self._operators is not None:
            self._operators.at(session.step)

    def optimizer_made(self, optimizer: Any) -> None:
        """Note a new optimizer, and wait for the first forward pass: the initial state is what it
        finds."""
        with self.session.own_time():
            self.tensors.made.add(optimizer, self.manual.calls)
            if not self._captured and self.session.live and not self._waiting:
                hook = self.torch.nn.modules.module.register_module_forward_pre_hook
                self._waiting.append(hook(lambda module, args: self._forward()))

    def _forward(self) -> None:
        if (
            self.thread is None
            and threading.get_ident() == threading.main_thread().ident
        ):
            self.initial_state()

    def initial_state(self) -> None:
        """Record the state that training starts from, once: generator states, parameters,
        buffers."""
        if self._captured and not self._waiting:
            return
        with self.session.own_time():
            self._release()
            if self._captured or not self.session.live:
                return
            self._captured = True
            tensors = self.tensors
            with bare(self.torch):
                tensors.name(tensors.made)
                self.session.rng()
                tensors.record("parameter", tensors.names.parameters, "initial")
                tensors.buffers()
                self._look_for_nan()
            self.session.training_begins()
            # learn in which order the first backward finishes gradients
            for _, parameter in tensors.names.parameters:
                if (
                    parameter.requires_grad
                    and parameter.is_leaf
                    and not shapeless(parameter)
                ):
                    hook = parameter.register_post_accumulate_grad_hook(self._finished)
                    self._waiting.append(hook)

    def epoch(self, original: Callable[..., Any], loader: Any) -> Any:
        """Record the generators' states before a DataLoader draws from them."""
        if self.session.live and self.session.step >= 0:
            with self.session.own_time():
                self.session.rng()
        iterator = original(loader)
        if self.session.live:
            with self.session.own_time():
                self.loaders.started(loader, iterator)
        return iterator

    def batch(self, value: Any, iterator: Any) -> Any:
        """Record a batch that a DataLoader hands out, and return it."""
        session = self.session
        if session.live:
            with session.own_time():
                if self.tensors.made:
                    self.initial_state()
                self.loaders.batch(iterator)
                if session.wants():
                    session.block(
                        "batch", *sdk.digest_leaves(list(names.leaves(value)))
                    )
                    self.tensors.keep("batch", names.leaves(value))
        return value

    def before_step(
        self, optimizer: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]
    ) -> Optional[Tuple[Any, Any]]:
        """Record the gradients that an optimizer's step uses; if it has a closure, return its
        arguments with one that does so."""
        if not self.session.live:
            self.session.insist()
            return None
        closure: Any = None
        with self.session.own_time():
            closure = self._closure(optimizer, args, kwargs)
            if closure is None and self._only_updates(optimizer):
                return None
            self.tensors.made.add(optimizer)
            self.initial_state()
            self.session.trains()
            self.manual.optimizer_steps()
            if closure is None:
                self._gradients(optimizer)
        if closure is None:
            return None

        @functools.wraps(closure)
        def watched(*inner: Any, **named: Any) -> Any:
            result = closure(*inner, **named)
            self._gradients(optimizer)
            return result

        if "closure" in kwargs:
            return args, {**kwargs, "closure": watched}
        return (args[0], watched, *args[2:]), kwargs

    def _closure(
        self, optimizer: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]
    ) -> Any:
        """Return the closure that an optimizer's `step` is given; None if there is none, or what
        stands in its place is something else (the model, say)."""
        closure = kwargs.get("closure", args[1] if len(args) > 1 else None)
        if not callable(closure) or isinstance(closure, self.torch.nn.Module):
            return None
        if isinstance(closure, _FUNCTIONS) or "closure" in kwargs:
            return closure
        first = list(inspect.signature(type(optimizer).step).parameters)[1:2]
        return closure if any("closure" in name for name in first) else None

    def _only_updates(self, optimizer: Any) -> bool:
        """Return whether an optimizer was made between a gradient and its own first step. Trainings
        that do so (Pyro) have one for each parameter, and step them in an order that nothing
        depends on: the calls of `backward()` are their steps. One that steps twice after a gradient
        is an optimizer like any other."""
        manual, calls, updating = self.manual, self.manual.calls, self.tensors.updating
        if manual.by != BACKWARD or manual.over or updating.get(optimizer) == calls:
            updating.discard(optimizer)
        elif updating.get(optimizer) or self.tensors.made.get(optimizer) == calls:
            updating.add(optimizer, calls)
            manual.why = "each optimizer is made after one"
            self.tensors.made.discard(optimizer)
        return bool(updating.get(optimizer))

    def _gradients(self, optimizer: Any) -> None:
        if not (self.session.live and self.session.wants()):
            return
        with self.session.own_time():
            self.tensors.name([optimizer])
            self._release()
            named = self.tensors.parameters(optimizer)
            grads = [(name, item.grad, id(item)) for name, item in named]
            updated = [item for item in grads if item[1] is not None]
            if self._order:
                updated.sort(key=lambda item: self._order.get(item[2], -1))
            else:
                updated.reverse()  # backward goes through a model from its end
            self.tensors.record("gradient", [item[:2] for item in updated])

    def after_step(self, optimizer: Any) -> None:
        """Record what an optimizer's step has changed, and close the step. Raises StopTraining
        after the last wanted one."""
        session, tensors = self.session, self.tensors
        if not session.live:
            session.insist()
            return
        if tensors.updating.get(optimizer):
            return
        with session.own_time():
            session.training_begins()
            self._used[id(optimizer)] = (optimizer, session.step)
            recent = session.step - _RECENT
            self._used = {
                key: item for key, item in self._used.items() if item[1] >= recent
            }
            if session.wants():
                tensors.name([optimizer])
                tensors.record("parameter", tensors.parameters(optimizer))
                tensors.optimizer_state(optimizer)
                tensors.buffers()
                session.rng()
            if session.step == 1:
                self._look_for_nan()
            try:
                session.end_step()
            finally:
                if self._operators is not None:
                    self._operators.at(session.step)

    def read_flags(self) -> Dict[str, Any]:
        """Return the determinism flags as they are now."""
        return flags.read(self.torch, self.session.config["variables"])

    def at_stop(self) -> None:
        """Record, for a notice, what no optimizer updates."""
        # a module of a kind that was not foreseen: a notice is missing, nothing else
        with contextlib.suppress(Exception):
            rows, failed = end_state.look(self.torch, self.tensors.names)
            if failed:
                self.session.note(
                    "modules-not-read",
                    "modules that could not be looked at: %d" % failed,
                )
            self.session.event("unmoved", rows=rows)

    def at_close(self, reason: str) -> None:
        """Record parameters, optimizer state and buffers as they stand at the end: digested, for
        what changed after the last step; and kept."""
        session, tensors = self.session, self.tensors
        session.event("nonfinite", rows=self._nonfinite.lasting())
        session.note("steps", self.manual.summary())
        optimizers = [optimizer for optimizer, _ in self._used.values()]
        if reason != "exception" and (optimizers or self.manual.by):
            known = tensors.names.by_id
            unnamed = [item for item in self.manual.items if id(item[1]) not in known]
            tensors.record("parameter", tensors.names.parameters, "final")
            tensors.record("parameter", unnamed, "final")
            for optimizer in optimizers:
                tensors.optimizer_state(optimizer)
            tensors.updating_state()
            tensors.buffers()
        for kind in UNREAD:
            session.note(
                "not-digested",
                "tensors of type %s were not digested: their elements cannot be read"
                % kind,
            )
        for why in WITHOUT_TRITON:
            session.note(
                "slow-digest",
                "tensors on the GPU were digested by torch's operators, which takes longer: %s"
                % why,
            )
        if session.config["keep"].get("final"):
            tensors.keep("parameter", tensors.names.parameters, "final")
            for optimizer in optimizers:
                tensors.keep("optimizer", tensors.state_items(optimizer), "final")

    def _look_for_nan(self) -> None:
        """Note which parameters that an optimizer updates, and which buffers, hold NaN now: before
        the first step, and once after the second."""
        names, step = self.tensors.names, self.session.step
        updated = {
            id(item)
            for optimizer in self.tensors.made
            for item in parameters(optimizer)
        }
        items = [item for item in names.parameters if id(item[1]) in updated]
        self._nonfinite.look("parameter", items, step)
        self._nonfinite.look("buffer", names.buffers(), step)

    def _finished(self, parameter: Any) -> None:
        self._order.setdefault(id(parameter), len(self._order))

    def _release(self) -> None:
        """Take hooks off: those on the first forward, and those on gradients once the order is
        known."""
        if self._order or not self._captured:
            while self._waiting:
                self._waiting.pop().remove()
