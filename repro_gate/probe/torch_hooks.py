"""Connects the probe with torch: optimizers and DataLoaders call `Hooks`, and `loss` does when a
gradient is computed. Events are recorded in their order: a batch when the DataLoader hands it out;
generator states and the loss when `backward` is entered; gradients as the optimizer sees them when
`step` is entered (where it has a closure: after that; if the step is the training's own code, when
it returns), in the order in which autograd finished
them; parameters, optimizer state, buffers and generator states when `step` returns.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import types
from collections.abc import Iterable
from typing import Any, Callable

import torch

from . import compiled_steps, end_state, facts, flags, loss, names, sdk
from .device_digest import SLOW
from .digest import UNREAD, bare, shapeless
from .manual_steps import BACKWARD, ManualSteps
from .operators import watching
from .patch import WeakByIdentity, wrap
from .session import Session
from .shared import PROCESS
from .tensors import Tensors

_RECENT = 64  # the most optimizers that are held
_FUNCTIONS = (
    types.FunctionType,
    types.MethodType,
    types.BuiltinFunctionType,
    functools.partial,
)
_DCP = "torch.distributed.checkpoint.state_dict"
_CALLERS = 20  # between a hook and who called the optimizer
_NAME = 1_000  # characters of a thread's name
# the most open traces; if there are more, those of ended threads are closed
_THREADS = 200


def install(session: Session) -> None:
    """Seed torch, set the flags and hook in, right after `import torch`. Called once in each
    process."""
    from torch.optim import optimizer as optim
    from torch.utils.data import dataloader

    PROCESS.torch = torch
    torch.manual_seed(session.config["seed"])  # every CUDA device's as well, lazily
    flags.apply(torch, session.config["flags"])
    flags.watch(torch, session.config["flags"])
    if session.alternates:
        flags.switch(torch, session.config["alternating"], 0)
    facts.watch_cuda_start(torch)
    facts.keep_peaks(torch)
    hooks = Hooks(session)

    def of_thread(name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            return getattr(hooks.of_thread(), name)(*args, **kwargs)

        call._torchdynamo_disable = True  # type: ignore[attr-defined]
        return call

    before = optim.register_optimizer_step_pre_hook(of_thread("before_step"))
    after = optim.register_optimizer_step_post_hook(of_thread("after_step"))
    compiled_steps.watch(hooks, (before, after))
    wrap(optim.Optimizer, "__init__", of_thread("optimizer_made"))
    wrap(dataloader._BaseDataLoaderIter, "__init__", of_thread("epoch"))
    wrap(dataloader._BaseDataLoaderIter, "__next__", of_thread("batch"))
    wrap(torch.cuda.CUDAGraph, "capture_begin", of_thread("graph_begins"))
    wrap(torch.cuda.CUDAGraph, "capture_end", of_thread("graph_made"))
    wrap(torch.cuda.CUDAGraph, "replay", of_thread("graph_replayed"))
    loss.watch(hooks)


class Hooks:
    """The hooks of the main thread of a process, or of another thread that trains. Each has its own
    trace, since the order of several threads' steps differs between runs."""

    def __init__(self, session: Session, thread: Any = None) -> None:
        self.thread = thread  # None: the main thread
        self.tensors = Tensors(session)
        # id(parameter) -> when autograd finished its gradient
        self._order: dict[int, int] = {}
        # what each optimizer updates, and the same in that order
        self._ordered = WeakByIdentity()
        self.serve(session)

    def of_thread(self) -> Hooks:
        """Return the hooks of the calling thread. A thread other than the main one has its own
        hooks, or continues those of an ended thread with its name. Its batches are not written
        before it trains, since it may fetch them for others. Autograd's threads count as the main
        thread."""
        if _in_main_thread():
            return self
        thread = threading._active.get(threading.get_ident())  # type: ignore[attr-defined]
        own: Hooks | None = getattr(self._local, "hooks", None)
        if not (own or thread is None or isinstance(thread, threading._DummyThread)):
            with self.session.in_hook():
                own = self._local.hooks = self._of(thread)
        return own or self

    def _of(self, thread: Any) -> Hooks:
        ended = [other for other in self.others if not other.thread.is_alive()]
        for own in ended:
            if own.thread.name == thread.name:
                own.thread = thread
                return own
        session = Session(self.session.config, thread.name[:_NAME])
        own = Hooks(session, thread)
        if self.session.live:
            self.others.append(own)
            PROCESS.sessions.append(session)
            session.start()
            for other in ended if len(self.others) % _THREADS == 0 else ():
                other.session.close("exit")
        return own

    def serve(self, session: Session) -> None:
        """Call this session from here on, as at the beginning."""
        self.session = session
        session.hooks = self
        self.tensors.serve(session)
        # of the threads that train beside the main thread
        self.others: list[Hooks] = []
        self._local = threading.local()
        self.manual = ManualSteps(self.tensors)
        self._loaders = WeakByIdentity()  # that were written
        self._nonfinite = end_state.NonFinite()
        # whether any gradient was not zero; None before the first
        self._pulls: bool | None = None
        self._operators = watching(session.config)
        self._captured = self._at_boundary = False
        # an optimizer whose step is the training's own code and got a closure
        self._closing: Any = None
        # optimizers whose step the CUDA graph in progress has captured; those of each graph
        self._in_graph: list[Any] = []
        self._graphs = WeakByIdentity()
        # optimizers that stepped lately, held so that their state can be kept at the end
        self._used: list[Any] = []
        # handles of hooks on the first forward, and of those that learn the order of gradients
        self._waiting: list[Any] = []
        self._operators.at(session.step)

    def optimizer_made(
        self, original: Any, optimizer: Any, *args: Any, **kwargs: Any
    ) -> None:
        """Note a new optimizer, and wait for the first forward pass, at which the initial state is
        recorded."""
        original(optimizer, *args, **kwargs)
        with self.session.in_hook():
            self.tensors.made.add(optimizer, self.manual.calls)
            if not self._captured and self.session.live and not self._waiting:
                hook = torch.nn.modules.module.register_module_forward_pre_hook
                self._waiting.append(hook(lambda module, args: self._forward()))

    def _forward(self) -> None:
        if self.thread is None and _in_main_thread():
            self.initial_state()

    def initial_state(self) -> None:
        """Record the state that training starts from, once: generator states, parameters,
        buffers."""
        if (self._captured and not self._waiting) or not self.session.live:
            return
        with self.session.in_hook():
            self._release()
            if self._captured:
                return
            self._captured = True
            tensors = self.tensors
            with bare():
                tensors.name(tensors.made)
                self.session.runs_on(tensors.names.parameters)
                facts.synchronize()
                tensors.perturb()
                self.session.rng()
                tensors.record("parameter", tensors.names.parameters, "initial")
                tensors.buffers()
                self._look_for_nan()
            self.session.training_begins()
            # learn in which order the first backward finishes gradients
            for _, item in tensors.names.parameters:
                if item.requires_grad and item.is_leaf and not shapeless(item):
                    hook = item.register_post_accumulate_grad_hook(self._finished)
                    self._waiting.append(hook)

    def epoch(self, original: Any, iterator: Any, loader: Any) -> None:
        """Record the generators' states before a DataLoader's iterator draws from them. At a
        loader's first iterator, record also its workers and seed."""
        session = self.session
        if session.live and session.step >= 0:
            with session.in_hook():
                session.rng()
        original(iterator, loader)
        if session.live and not self._loaders.get(loader):
            with session.in_hook():
                self._loaders.add(loader, True)
                session.event(
                    "loaders",
                    workers=int(iterator._num_workers),
                    base_seed=iterator._base_seed,
                )

    def batch(self, original: Any, iterator: Any) -> Any:
        """Record a batch that a DataLoader hands out."""
        session = self.session
        first = PROCESS.sessions[0]  # a thread that fetches ahead has one of its own
        if first.alternates:
            first.behind = first.behind or _is_behind(iterator)
        value = original(iterator)
        if session.live:
            with session.in_hook():
                if self.tensors.made:
                    self.initial_state()
                if session.wants():
                    self._batch(value)
        return value

    def _batch(self, value: Any) -> None:
        # A batch may be of any kind; then only its digests are missing.
        try:
            leaves = list(names.leaves(value))
            self.session.block("batch", *sdk.digest_leaves(leaves))
            self.tensors.keep("batch", leaves)
        except Exception as error:
            why = f"a batch could not be read: {type(error).__name__}"
            self.session.note("not-digested", why)

    def before_step(
        self, optimizer: Any, args: Any, kwargs: Any
    ) -> tuple[Any, Any] | None:
        """Record the gradients that an optimizer's step uses. If torch's own step has a closure,
        return its arguments with a closure that records them; other code may look at the closure
        that it gets."""
        if not self.session.live:
            self.session.insist()
            return None
        if _makes_room():
            return None
        closure = _closure(args, kwargs)
        with self.session.in_hook():
            if closure is None and self._only_updates(optimizer):
                return None
            self.tensors.made.add(optimizer)
            self.initial_state()
            self.session.trains()
            self._boundary()
            self.manual.optimizer_steps()
            if closure is None:
                self._gradients(optimizer)
        if closure is None:
            return None
        self._closing = None
        if not str(type(optimizer).step.__module__).startswith("torch."):
            self._closing = optimizer
            return None

        @functools.wraps(closure)
        def watched(*inner: Any, **options: Any) -> Any:
            result = closure(*inner, **options)
            self._gradients(optimizer)
            return result

        if "closure" in kwargs:
            return args, {**kwargs, "closure": watched}
        return (args[0], watched, *args[2:]), kwargs

    def _boundary(self) -> None:
        """Record, in a leg of a resumed training, the state before its first step changes it."""
        if self.session.config.get("boundary") and not self._at_boundary:
            self._at_boundary = True
            with bare():
                self.tensors.name(self.tensors.made)
                names = self.tensors.names
                self.tensors.record("parameter", names.parameters, "boundary")
                for optimizer in self.tensors.made:
                    self.tensors.optimizer_state(optimizer)

    def _only_updates(self, optimizer: Any) -> bool:
        """Return whether an optimizer was made between a gradient and its own first step. Such
        trainings (Pyro) have one optimizer for each parameter and step them in any order, so the
        calls of `backward()` count as their steps. An optimizer that steps twice after a gradient
        is an ordinary one."""
        manual = self.manual
        calls = manual.calls
        updating = self.tensors.updating
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
        with self.session.in_hook():
            self._release()
            items = self.tensors.parameters(optimizer)
            before, ordered = self._ordered.get(optimizer) or (None, ())
            if not self._order:
                ordered = items[::-1]  # backward goes through a model from its end
            elif before is not items:
                order = self._order
                ordered = sorted(items, key=lambda item: order.get(id(item[1]), -1))
                self._ordered.add(optimizer, (items, ordered))
            every = ((name, item.grad) for name, item in ordered)
            grads = [it for it in every if it[1] is not None]
            self.tensors.record("gradient", grads)
            if grads and not self._pulls:
                self._pulls = any(end_state.not_zero(grad) for _, grad in grads)

    def after_step(self, optimizer: Any, *_: Any) -> None:
        """Record what an optimizer's step has changed, and close the step. Raises StopTraining
        after the last step of `train.steps`."""
        session = self.session
        tensors = self.tensors
        if not session.live:
            if facts.capturing():
                self._in_graph.append(optimizer)
            session.insist()
            return
        if tensors.updating.get(optimizer) or _makes_room():
            return
        try:
            self._stepped(optimizer)
        finally:
            # not while the training's modes, and this one, are set aside
            self._operators.at(session.step)

    def _stepped(self, optimizer: Any) -> None:
        session = self.session
        tensors = self.tensors
        with session.in_hook():
            session.training_begins()
            others = [other for other in self._used if other is not optimizer]
            known = len(others) < len(self._used)
            session.runs_on([] if known else tensors.parameters(optimizer))
            self._used = [*others[-_RECENT:], optimizer]
            if self._closing is optimizer:
                self._gradients(optimizer)
            self._closing = None
            if session.wants():
                tensors.record("parameter", tensors.parameters(optimizer))
                tensors.optimizer_state(optimizer)
                tensors.buffers()
                session.rng()
            tensors.scaler = None  # until it scales again
            if session.step == 1:
                self._look_for_nan()
            session.end_step()

    def graph_begins(
        self, original: Any, graph: Any, *args: Any, **kwargs: Any
    ) -> None:
        """Note that a CUDA graph is being captured, until `graph_made`."""
        self._in_graph = []
        PROCESS.captures.add(graph)
        try:
            original(graph, *args, **kwargs)
        except BaseException:
            PROCESS.captures.discard(graph)
            raise

    def graph_made(self, original: Any, graph: Any) -> None:
        """Keep the optimizers whose steps a CUDA graph has captured."""
        try:
            original(graph)
        finally:
            PROCESS.captures.discard(graph)
        if self.session.alternates:
            self.session.event("facts", facts={"cuda-graph": "captured"})
        self._graphs.add(graph, self._in_graph)
        self._in_graph = []

    def graph_replayed(self, original: Any, graph: Any) -> None:
        """Record the steps that a replay of a CUDA graph takes. Raises StopTraining after the last
        step of `train.steps`."""
        original(graph)
        self.took(self._graphs.get(graph) or ())

    def took(self, optimizers: Iterable[Any]) -> None:
        """Record steps that were taken where no hook could be called."""
        for optimizer in optimizers:
            self.before_step(optimizer, (optimizer,), {})
            self.after_step(optimizer)

    def read_flags(self) -> dict[str, Any]:
        """Return the determinism flags as they are now."""
        return flags.read(torch, self.session.config["variables"])

    def switch_flags(self, step: int) -> None:
        """Set the flags of the arm whose turn comes with this step of an alternating run."""
        flags.switch(torch, self.session.config["alternating"], step)

    def at_stop(self) -> None:
        """Record the state that no optimizer updates, for a notice."""
        frames = getattr(sys.modules.get("torch._dynamo.utils"), "counters", {})
        if self.session.alternates and frames.get("frames"):
            self.session.event("facts", facts={"compiled": "yes"})
        # An unusual module may fail here; then only the notice is missing.
        with contextlib.suppress(Exception):
            facts.synchronize()
            rows, failed = end_state.look(self.tensors.names)
            message = f"modules that could not be looked at: {failed}"
            self.session.note("modules-not-read", message if failed else "")
            self.session.event("unmoved", rows=rows)

    def at_close(self, reason: str) -> None:
        """Record parameters, optimizer state and buffers at the end: digests, since they may have
        changed after the last step, and saved tensors."""
        session = self.session
        tensors = self.tensors
        if reason != "exception":
            facts.synchronize()
        session.event("nonfinite", rows=self._nonfinite.lasting())
        if self._pulls is False:
            session.event("facts", facts={"gradients": "zero"})
        session.note("steps", self.manual.summary())
        if reason != "exception" and (self._used or self.manual.by):
            known = tensors.names.by_id
            unnamed = [item for item in self.manual.items if id(item[1]) not in known]
            tensors.record("parameter", tensors.names.parameters, "final")
            tensors.record("parameter", unnamed, "final")
            for optimizer in self._used:
                tensors.optimizer_state(optimizer)
            tensors.updating_state()
            tensors.buffers()
        for what, size in UNREAD.items():
            of = f", of up to {size:,} bytes," if size else ""
            text = f"{what}{of} were not digested: what they hold cannot be read"
            session.note("not-digested", text)
        for why in SLOW:
            text = "tensors on the GPU were digested by torch's operators, which takes longer"
            session.note("slow-digest", f"{text}: {why}")
        if session.config["keep"].get("final"):
            tensors.keep("parameter", tensors.names.parameters, "final")
            for optimizer in self._used:
                tensors.keep("optimizer", tensors.state_items(optimizer), "final")

    def _look_for_nan(self) -> None:
        """Note which updated parameters and which buffers contain NaN now. Called before the first
        step, and once after the second."""
        known = self.tensors.names
        step = self.session.step
        updated = set[int]()
        for optimizer in self.tensors.made:
            updated.update(map(id, names.updated_by(optimizer)))
        items = [item for item in known.parameters if id(item[1]) in updated]
        self._nonfinite.look("parameter", items, step)
        self._nonfinite.look("buffer", known.buffers(), step)

    def _finished(self, parameter: Any) -> None:
        self._order.setdefault(id(parameter), len(self._order))

    def _release(self) -> None:
        """Remove hooks: those on the first forward, and those on gradients once their order is
        known."""
        if self._order or not self._captured:
            while self._waiting:
                self._waiting.pop().remove()


def _makes_room() -> bool:
    """Return whether the current step is torch's own, with a learning rate of 0, which creates an
    optimizer's state before a checkpoint is loaded into it."""
    if _DCP not in sys.modules:
        return False
    frame = sys._getframe(1)
    for _ in range(_CALLERS):
        if frame.f_back is None:
            return False
        frame = frame.f_back
        if frame.f_code.co_name == "_init_optim_state":
            return True
    return False


def _is_behind(iterator: Any) -> bool:
    """Return whether all workers of a DataLoader are at work, so that they may set the pace of the
    training; True if it cannot be told how many are."""
    try:
        at_work = iterator._tasks_outstanding - iterator._data_queue.qsize()
        return bool(at_work >= iterator._num_workers)
    except Exception:
        return bool(iterator._num_workers)


def _in_main_thread() -> bool:
    return threading.get_ident() == threading.main_thread().ident


def _closure(args: Any, kwargs: Any) -> Any:
    """Return the closure argument of an optimizer's `step`; None if there is none, or if the
    argument is something else (the model, for example)."""
    if "closure" in kwargs:
        return kwargs["closure"]
    return args[1] if isinstance(args[1:] and args[1], _FUNCTIONS) else None
