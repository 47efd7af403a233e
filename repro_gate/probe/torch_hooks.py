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
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

from ..trace.format import MAX_NAME
from ..trace.writer import Row
from . import distance, end_state, facts, flags, loss, names, sdk
from .device_digest import WITHOUT_TRITON
from .digest import UNREAD, Digests, Slots, bare, begin, describe, shapeless
from .dispatched import watching
from .end_state import NonFinite
from .loaders import Loaders
from .manual_steps import BACKWARD, ManualSteps
from .patch import WeakByIdentity, wrap
from .session import Session

_RECENT = 64  # steps after which an optimizer that no longer steps is let go
_FUNCTIONS = (types.FunctionType, types.MethodType, types.BuiltinFunctionType, functools.partial)
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

    before_step._torchdynamo_disable = after_step._torchdynamo_disable = True  # type: ignore[attr-defined]
    optim.register_optimizer_step_pre_hook(before_step)
    optim.register_optimizer_step_post_hook(after_step)
    wrap(
        optim.Optimizer,
        "__init__",
        lambda original, *args, **kwargs: hooks.of_thread().optimizer_made(
            original, *args, **kwargs
        ),
    )
    wrap(
        dataloader._BaseDataLoaderIter,
        "__next__",
        lambda original, iterator: hooks.of_thread().batch(original, iterator),
    )
    wrap(DataLoader, "__iter__", lambda original, loader: hooks.of_thread().epoch(original, loader))
    loss.watch(hooks)


class Hooks:
    """The hooks of the main thread of a process, or of another thread that trains: it has a trace
    of its own, since the order of steps of several threads is not the same in two runs. Holds the
    names of tensors and, weakly, every optimizer that was made."""

    def __init__(self, torch: Any, session: Session, thread: Any = None) -> None:
        self.torch, self.thread = torch, thread  # None: the main thread
        # in the order in which they were made, with how often a gradient was taken before
        self.made = WeakByIdentity()
        # those that make no steps of their own, with how many gradients were taken at their last
        self.updating = WeakByIdentity()
        self.names = names.Names()
        self._order: Dict[int, int] = {}  # id(parameter) -> when autograd finished its gradient
        self.serve(session)

    def of_thread(self) -> Hooks:
        """The hooks of the calling thread. Another one than the main thread has its own, and those
        of a thread of its name that has ended. What it makes and fetches (batches for others, as
        early as it can) is not written before it trains. Autograd's threads work for the main
        thread."""
        if threading.get_ident() == threading.main_thread().ident:
            return self
        own: Optional[Hooks] = getattr(self._local, "hooks", None)
        if own is not None:
            return own
        thread = next(
            (item for item in threading.enumerate() if item.ident == threading.get_ident()), None
        )
        if thread is None or isinstance(thread, threading._DummyThread):
            return self
        found = self
        with self.session.own_time():
            ended = [other for other in self.others if not other.thread.is_alive()]
            own = next((other for other in ended if other.thread.name == thread.name), None)
            if own is None:
                session = Session(self.session.config, thread=thread.name[:MAX_NAME])
                own = Hooks(self.torch, session, thread)
                if self.session.live:
                    self.others.append(own)
                    session.start()
                    for other in ended if len(self.others) % _THREADS == 0 else ():
                        other.session.close("exit")
            own.thread = thread
            found = self._local.hooks = own
        return found

    def serve(self, session: Session) -> None:
        """Report to `session` from here on, from the beginning: a forked child has one of its
        own."""
        self.session = session
        session.hooks, session.torch = self, self.torch
        self.others: List[Hooks] = []  # of the threads that train beside the main thread
        self._local = threading.local()
        self.manual = ManualSteps(self.torch, self)
        self.loaders = Loaders(session)
        self._nonfinite = NonFinite(self.torch)
        self._operators = watching(self.torch, session.config)
        self._captured = False
        self._used: Dict[
            int, Tuple[Any, int]
        ] = {}  # optimizers that stepped lately, held so that their state can be kept at the end
        self._pending: List[
            Tuple[Tuple[Row, ...], Digests]
        ] = []  # batches handed out before training began
        self._rows: Dict[Any, Tuple[Tuple[Row, ...], Optional[Slots]]] = {}
        self._state_names: Dict[
            int, Dict[str, str]
        ] = {}  # id(parameter) -> key of its state -> name
        self._waiting: List[
            Any
            # handles of hooks on the first forward, and of those that learn the order of gradients
        ] = []
        if self._operators is not None:
            self._operators.at(session.step)

    def optimizer_made(
        self, original: Callable[..., Any], optimizer: Any, *args: Any, **kwargs: Any
    ) -> Any:
        result = original(optimizer, *args, **kwargs)
        with self.session.own_time():
            self.made.add(optimizer, self.manual.calls)
            if not self._captured and self.session.live and not self._waiting:
                hook = self.torch.nn.modules.module.register_module_forward_pre_hook
                self._waiting.append(hook(lambda module, args: self._forward()))
        return result

    def _forward(self) -> None:
        if self.thread is None and threading.get_ident() == threading.main_thread().ident:
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
            with bare(self.torch):
                self.name(list(self.made))
                self.session.rng()
                self.tensors("parameter", self.names.parameters, "initial")
                self.buffers()
                self._look_for_nan()
            self.session.training_begins()
            for rows, digests in self._pending:
                self.session.block("batch", rows, digests)
            self._pending = []
            # learn in which order the first backward finishes gradients
            for _, parameter in self.names.parameters:
                if parameter.requires_grad and parameter.is_leaf and not shapeless(parameter):
                    hook = parameter.register_post_accumulate_grad_hook(self._finished)
                    self._waiting.append(hook)

    def epoch(self, original: Callable[..., Any], loader: Any) -> Any:
        if self.session.live and self.session.step >= 0:
            with self.session.own_time():
                self.session.rng()
        iterator = original(loader)
        if self.session.live:
            with self.session.own_time():
                self.loaders.started(loader, iterator)
        return iterator

    def batch(self, original: Callable[..., Any], iterator: Any) -> Any:
        value, session = original(iterator), self.session
        if session.live:
            with session.own_time():
                if self.made:
                    self.initial_state()
                self.loaders.batch(iterator)
                if session.wants():
                    rows, digests = sdk.digest_leaves(list(names.leaves(value)))
                    if session.step < 0:
                        self._pending = [*self._pending, (rows, digests)][-1000:]
                    else:
                        session.block("batch", rows, digests)
                        self._keep("batch", names.leaves(value))
        return value

    def before_step(
        self, optimizer: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]
    ) -> Optional[Tuple[Any, Any]]:
        if not self.session.live:
            self.session.insist()
            return None
        closure: Any = None
        with self.session.own_time():
            closure = kwargs.get("closure", args[1] if len(args) > 1 else None)
            if not isinstance(closure, _FUNCTIONS) and not (
                "closure" in kwargs or _takes_closure(optimizer)
            ):
                closure = None  # what stands there is the model, say
            if not callable(closure) or isinstance(closure, self.torch.nn.Module):
                closure = None
            if closure is None and self._only_updates(optimizer):
                return None
            self.made.add(optimizer)
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

    def _only_updates(self, optimizer: Any) -> bool:
        """Whether an optimizer was made between a gradient and its own first step. Trainings that
        do so (Pyro) have one for each parameter, and step them in an order that nothing depends on:
        the calls of `backward()` are their steps. One that steps twice after a gradient is an
        optimizer like any other."""
        manual, calls = self.manual, self.manual.calls
        if manual.by != BACKWARD or manual.over or self.updating.get(optimizer) == calls:
            self.updating.discard(optimizer)
        elif self.updating.get(optimizer) or self.made.get(optimizer) == calls:
            self.updating.add(optimizer, calls)
            manual.why = "each optimizer is made after one"
            self.made.discard(optimizer)
        return bool(self.updating.get(optimizer))

    def _gradients(self, optimizer: Any) -> None:
        if not (self.session.live and self.session.wants()):
            return
        with self.session.own_time():
            self.name([optimizer])
            self._release()
            grads = [(id(item), item.grad) for item in _parameters(optimizer)]
            updated = [item for item in grads if item[1] is not None]
            if self._order:
                updated.sort(key=lambda item: self._order.get(item[0], -1))
            else:
                updated.reverse()  # backward goes through a model from its end
            self.tensors("gradient", [(self.names.by_id[place], grad) for place, grad in updated])

    def after_step(self, optimizer: Any) -> None:
        session = self.session
        if not session.live:
            session.insist()
            return
        if self.updating.get(optimizer):
            return
        with session.own_time():
            session.training_begins()
            self._used[id(optimizer)] = (optimizer, session.step)
            recent = session.step - _RECENT
            self._used = {key: item for key, item in self._used.items() if item[1] >= recent}
            if session.wants():
                self.name([optimizer])
                known = self.names.by_id
                items = [(known[id(item)], item) for item in _parameters(optimizer)]
                self.tensors("parameter", items)
                self._optimizer_state(optimizer)
                self.buffers()
                session.rng()
            if session.step == 1:
                self._look_for_nan()
            try:
                session.end_step()
            finally:
                if self._operators is not None:
                    self._operators.at(session.step)

    def tensors(self, kind: str, items: Sequence[Tuple[str, Any]], label: str = "") -> None:
        """One block of tensors. Rows are made once for each list of names: a change of dtype or
        shape shows in the digest."""
        if items:
            key = (kind, label, tuple([item[0] for item in items]))
            if key not in self._rows:
                # gradients are made anew at each step
                slots = None if kind == "gradient" else Slots(len(items))
                self._rows[key] = tuple(describe(name, tensor) for name, tensor in items), slots
            rows, slots = self._rows[key]
            self.session.block(
                kind, rows, begin(self.torch, [tensor for _, tensor in items], slots=slots)
            )
            self._keep(kind, items)

    def buffers(self) -> None:
        self.tensors("buffer", self.names.buffers())

    def name(self, optimizers: List[Any]) -> None:
        """Name what these optimizers update, where it has no name yet."""
        if not all(self.names.knows(optimizer) for optimizer in optimizers):
            made = [*self.made, self.manual]
            now = {id(item) for item in optimizers}
            everyone = [*made, *(item for item in optimizers if id(item) not in set(map(id, made)))]
            everyone.sort(key=lambda item: (item is not self.manual, id(item) in now), reverse=True)
            self.names = names.name_tensors(self.torch, everyone)
            self._state_names = {}

    def read_flags(self) -> Dict[str, Any]:
        return flags.read(self.torch, self.session.config["variables"])

    def at_stop(self) -> None:
        # a module of a kind that was not foreseen: a notice is missing, nothing else
        with contextlib.suppress(Exception):
            rows, failed = end_state.look(self.torch, self.names)
            if failed:
                self.session.note(
                    "modules-not-read",
                    "%d module%s could not be looked at" % (failed, "" if failed == 1 else "s"),
                )
            self.session.event("unmoved", rows=rows)

    def at_close(self, reason: str) -> None:
        """Parameters, optimizer state and buffers as they stand at the end: digested, for what
        changed after the last step; and kept."""
        self.session.event("nonfinite", rows=self._nonfinite.lasting())
        told = self.manual.told()
        if told:
            self.session.note("steps", told)
        if reason != "exception" and (self._used or self.manual.by):
            known = self.names.by_id
            beside = [item for item in self.manual.items if id(item[1]) not in known]
            self.tensors("parameter", self.names.parameters, "final")
            self.tensors("parameter", beside, "final")
            for optimizer, _ in self._used.values():
                self._optimizer_state(optimizer)
            self.updating_state()
            self.buffers()
        for kind in UNREAD:
            self.session.note(
                "not-digested",
                "tensors of type %s were not digested: their elements cannot be read" % kind,
            )
        for why in WITHOUT_TRITON:
            self.session.note(
                "slow-digest",
                "tensors on the GPU were digested by torch's operators, which takes longer: %s"
                % why,
            )
        if self.session.config["keep"].get("final"):
            keep = functools.partial(distance.keep, self.torch, self.session, "final")
            keep("parameter", self.names.parameters)
            for optimizer, _ in self._used.values():
                keep("optimizer", self._state_items(optimizer))

    def _optimizer_state(self, optimizer: Any) -> None:
        items, kind = list(self._state_items(optimizer)), self.torch.Tensor
        self.tensors("optimizer", [item for item in items if isinstance(item[1], kind)])
        scalars = [item for item in items if not isinstance(item[1], kind)]
        if scalars:
            self.session.block("optimizer", *sdk.digest_leaves(scalars), sdk.hex_values(scalars))

    def updating_state(self) -> None:
        """Record the state of the optimizers that make no steps, in the order of their parameters'
        names."""
        by_id, known = self.names.by_id, filter(self.names.knows, self.updating)
        for optimizer in sorted(
            known, key=lambda item: [by_id[id(parameter)] for parameter in _parameters(item)]
        ):
            self._optimizer_state(optimizer)

    def _state_items(self, optimizer: Any) -> Iterator[Tuple[str, Any]]:
        """(name, value) of the state of each parameter and of the hyperparameters of each group."""
        for parameter in _parameters(optimizer) if optimizer.state else ():
            known = self._state_names.setdefault(id(parameter), {})
            for key, value in names.held(optimizer.state.get(parameter) or {}):
                name = known.get(key)
                if name is None:
                    name = known[key] = ("%s.%s" % (self.names.by_id[id(parameter)], key))[
                        :MAX_NAME
                    ]
                if isinstance(value, self.torch.Tensor):
                    yield name, value
                else:
                    yield from names.leaves(value, name)
        for number, group in enumerate(optimizer.param_groups):
            for key, value in names.held(group):
                kinds = (bool, int, float, tuple, self.torch.Tensor)
                if isinstance(value, kinds) and key != "params":
                    yield from names.leaves(value, "param_groups.%d.%s" % (number, key))

    def _look_for_nan(self) -> None:
        """Which parameters that an optimizer updates, and which buffers, hold NaN now: before the
        first step, and once after the second."""
        updated = {id(parameter) for optimizer in self.made for parameter in _parameters(optimizer)}
        parameters = [item for item in self.names.parameters if id(item[1]) in updated]
        self._nonfinite.look("parameter", parameters, self.session.step)
        self._nonfinite.look("buffer", self.names.buffers(), self.session.step)

    def _keep(self, kind: str, items: Iterable[Tuple[str, Any]]) -> None:
        if self.session.step in self.session.config["keep"]["steps"]:
            distance.keep(self.torch, self.session, "step%d" % self.session.step, kind, items)

    def _finished(self, parameter: Any) -> None:
        self._order.setdefault(id(parameter), len(self._order))

    def _release(self) -> None:
        """Take hooks off: those on the first forward, and those on gradients once the order is
        known."""
        if self._order or not self._captured:
            while self._waiting:
                self._waiting.pop().remove()


def _takes_closure(optimizer: Any) -> bool:
    """Whether the first argument of this optimizer's `step` is called as a closure's: others take
    the model, say."""
    return any(
        "closure" in name for name in list(inspect.signature(type(optimizer).step).parameters)[1:2]
    )


def _parameters(optimizer: Any) -> Iterator[Any]:
    for group in optimizer.param_groups:
        yield from group["params"]
