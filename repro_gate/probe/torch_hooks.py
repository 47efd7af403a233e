"""Where the probe meets torch: optimizer steps, the autograd entry, DataLoaders. Installed right after `import torch`.

Order of what is recorded is the order in which it happens: batch when the DataLoader hands it out; generator states and the loss when
`backward` is entered; gradients as the optimizer sees them when `step` is entered (after its closure, where it has one), in the order in
which autograd finished them; parameters, optimizer state, buffers and generator states when `step` returns.
"""

from __future__ import annotations

import contextlib
import functools
import weakref
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

from ..trace.format import MAX_NAME
from ..trace.writer import Row
from . import facts, flags, keep, names, patch, sdk, seeds, unmoved
from .by_hand import BACKWARD, GRAD, ByHand, leaves_of, plain
from .digest import UNREAD, bare, describe, digest_all
from .loaders import Loaders
from .nonfinite import NonFinite
from .session import Session

_HOOKS: List["Hooks"] = []
_RECENT = 64  # steps after which an optimizer that no longer steps is let go


def install(torch: Any, session: Session) -> None:
    """Seed torch, set the flags and hook in. Called once in each process."""
    config = session.config
    seeds.seed_torch(torch, config["seed"])
    flags.apply(torch, config["flags"])
    flags.watch(torch, session, config["flags"])
    facts.watch_cuda_start(torch)
    hooks = Hooks(torch, session)
    _HOOKS[:] = [hooks]
    patch.attach(hooks)


def rearm(session: Session) -> None:
    """In a forked child: the hooks report to the child's own session."""
    if _HOOKS:
        _HOOKS[0].serve(session)


class Hooks:
    """The hooks of one process. Holds the names of tensors and, weakly, every optimizer that was made."""

    def __init__(self, torch: Any, session: Session) -> None:
        self.torch = torch
        self.made: Any = weakref.WeakKeyDictionary()  # in the order in which they were made, which a WeakSet does not keep
        self.names = names.Names()
        self.order: Dict[int, int] = {}  # id(parameter) -> when autograd finished its gradient
        self.serve(session)

    def serve(self, session: Session) -> None:
        """Report to `session` from here on, from the beginning."""
        torch = self.torch
        self.session = session
        self.captured = False
        self.by_hand = ByHand(torch, self)
        self.used: Dict[int, Tuple[Any, int]] = {}  # optimizers that stepped lately, held so that their state can be kept at the end
        self.pending: List[Tuple[str, Tuple[Row, ...], bytes]] = []  # batches handed out before training began
        self.rows: Dict[Any, Tuple[Row, ...]] = {}
        self.waiting: List[Any] = []  # handles of the hooks that learn the order of gradients
        variables = tuple(session.config["variables"])
        session.synchronize = lambda: facts.synchronize(torch)
        session.read_flags = lambda: flags.read(torch, variables)
        session.peak_bytes, session.reset_peak = lambda: facts.peak_bytes(torch), lambda: facts.reset_peak(torch)
        session.facts.update(facts.facts(torch))
        self.loaders = Loaders(torch, session)
        self.nonfinite = NonFinite(torch)
        session.whole_run = lambda: session.block("rng", *seeds.rng_digests())
        session.at_stop += [self.loaders.write, self._unmoved]
        session.at_close.append(self._end)

    # What happens, in the order of a step

    def optimizer_made(self, original: Callable[..., Any], optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(optimizer, *args, **kwargs)
        self.made[optimizer] = None
        if not self.captured and self.session.live and not self.waiting:
            self.waiting.append(self.torch.nn.modules.module.register_module_forward_pre_hook(self._first_forward))
        return result

    def _first_forward(self, module: Any, args: Any) -> None:
        """The first forward after an optimizer was made: the state that training starts from."""
        self._release()
        self._capture()

    def _capture(self) -> None:
        """Record the initial state, once: generator states, parameters, buffers."""
        if self.captured or not self.session.live:
            return
        self.captured = True
        with self.session.own_time(), bare(self.torch):
            self._name(list(self.made))
            self.session.block("rng", *seeds.rng_digests())
            self._tensors("parameter", self.names.parameters, "initial")
            self._buffers()
            self._look_for_nan()
        self.session.training_begins()
        with self.session.own_time():
            for kind, rows, digests in self.pending:
                self.session.block(kind, rows, digests)
            self.pending = []
            self._learn_order()

    def batch(self, iterator: Any, value: Any) -> None:
        if not self.captured and self.made:
            self._capture()
        if not self.session.live:
            return
        with self.session.own_time():
            self.loaders.batch(iterator, value)
            if self.session.wants():
                self._batch_block(value)

    def _batch_block(self, value: Any) -> None:
        rows, digests = sdk.digest_leaves(list(names.leaves(value)))
        if self.session.step < 0:
            self.pending = (self.pending + [("batch", rows, digests)])[-1000:]
            return
        self.session.block("batch", rows, digests)
        if self._keeps():
            self._keep("batch", [(name, item) for name, item in names.leaves(value) if isinstance(item, self.torch.Tensor)])

    def backward(self, tensors: Any) -> None:
        roots, leaves = plain(self.torch, tensors), []
        if not self.by_hand.over and self.by_hand.helps():
            return
        if not self.by_hand.over:
            with self.session.own_time():
                leaves = list(leaves_of(roots))
        self.by_hand.enters(BACKWARD, leaves)
        self._loss(roots)
        self.by_hand.uncompared(roots)

    def _loss(self, roots: List[Any]) -> None:
        """A gradient is about to be taken: the initial state where this is the first, generator states, the loss."""
        self._release()
        self._capture()
        self.loaders.trained()
        if not self.session.live:
            return
        self.session.trains()
        with self.session.own_time(), bare(self.torch):
            losses = [patch.loss_of(root) for root in roots if root.numel() == 1 and root.is_floating_point()]
            if self.session.wants():
                self.session.block("rng", *seeds.rng_digests())
            if losses:
                rows = tuple(
                    ("loss" if len(losses) == 1 else "loss.%d" % index, describe("", item)[1], ()) for index, item in enumerate(losses)
                )
                self.session.block("loss", rows, digest_all(self.torch, losses), [float(item).hex() for item in losses])

    def grad(self, original: Callable[..., Any], outputs: Any, inputs: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
        """`autograd.grad`, which torch.func's transforms call too: a step where nothing else is one, else recorded beside the steps."""
        by_hand, taken = self.by_hand, plain(self.torch, inputs)
        create_graph = bool(args[2] if len(args) > 2 else kwargs.get("create_graph"))
        mine = self.session.live and all(item.is_leaf for item in taken) and by_hand.outermost(create_graph)
        roots = plain(self.torch, outputs)
        if mine and not by_hand.over:
            with self.session.own_time(), bare(self.torch):
                mine = not by_hand.helps() and not by_hand.asks(taken, roots)
        steps = mine and not by_hand.over and by_hand.by != BACKWARD
        if steps:
            with bare(self.torch):
                by_hand.enters(GRAD, taken)
            self._loss(roots)
        elif self.session.stopped and by_hand.by == GRAD and not by_hand.over:
            self.session.insist()
        result = original(outputs, inputs, *args, **kwargs)
        if mine:
            with bare(self.torch):
                if steps:
                    by_hand.leaves(plain(self.torch, result))
                else:
                    by_hand.beside(taken, plain(self.torch, result))
        return result

    def before_step(self, optimizer: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Optional[Tuple[Any, Any]]:
        if not self.session.live:
            self.session.insist()
            return None
        self._release()
        self._capture()
        self.session.trains()
        self.by_hand.optimizer_steps()
        self.loaders.trained()
        closure = kwargs.get("closure", args[1] if len(args) > 1 else None)
        if not callable(closure):
            self._gradients(optimizer)
            return None

        @functools.wraps(closure)
        def watched(*inner: Any, **named: Any) -> Any:
            result = closure(*inner, **named)
            self._gradients(optimizer)
            return result

        return ((args[0], watched) + tuple(args[2:]), kwargs) if len(args) > 1 else (args, {**kwargs, "closure": watched})

    def _gradients(self, optimizer: Any) -> None:
        session = self.session
        if not (session.live and session.wants()):
            return
        with session.own_time():
            self._name([optimizer])
            self._forget_order()
            items = [
                (self.names.by_id[id(parameter)], parameter.grad, self.order.get(id(parameter), -1))
                for parameter in _moved(optimizer)
                if parameter.grad is not None
            ]
            if self.order:
                items.sort(key=lambda item: item[2])
            else:
                items.reverse()  # backward goes through a model from its end
            self._tensors("gradient", [item[:2] for item in items])

    def after_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        session = self.session
        if session.live:
            session.training_begins()
            self.used[id(optimizer)] = (optimizer, session.step)
            for key in [key for key, (_, last) in self.used.items() if session.step - last > _RECENT]:
                del self.used[key]
            if session.wants():
                with session.own_time():
                    self._name([optimizer])
                    self._tensors("parameter", [(self.names.by_id[id(item)], item) for item in _moved(optimizer)])
                    self._optimizer_state(optimizer)
                    self._buffers()
                    session.block("rng", *seeds.rng_digests())
            if session.step == 1:
                with session.own_time():
                    self._look_for_nan()
        session.end_step()

    # Recording

    def _tensors(self, kind: str, items: Sequence[Tuple[str, Any]], label: str = "") -> None:
        """One block of tensors. Rows are made once for each list of names: a change of dtype or shape shows in the digest."""
        if items:
            key = (kind, label, tuple([item[0] for item in items]))
            rows = self.rows.get(key)
            if rows is None:
                rows = self.rows[key] = tuple(describe(name, tensor) for name, tensor in items)
            self.session.block(kind, rows, digest_all(self.torch, [tensor for _, tensor in items]))
            if self._keeps():
                self._keep(kind, items)

    def _optimizer_state(self, optimizer: Any) -> None:
        items = list(self._state_items(optimizer))
        tensors = [(name, value) for name, value in items if isinstance(value, self.torch.Tensor)]
        self._tensors("optimizer", tensors)
        scalars = [(name, value) for name, value in items if not isinstance(value, self.torch.Tensor)]
        if scalars:
            self.session.block("optimizer", *sdk.digest_leaves(scalars), sdk.hex_values(scalars))

    def _state_items(self, optimizer: Any) -> Iterator[Tuple[str, Any]]:
        """(name, value) of the state of each parameter and of the hyperparameters of each group."""
        for parameter in _moved(optimizer):
            state = optimizer.state.get(parameter)
            if state:
                name = self.names.by_id[id(parameter)]
                for key, value in state.items():
                    if isinstance(value, self.torch.Tensor):
                        yield ("%s.%s" % (name, key))[:MAX_NAME], value
                    else:
                        yield from names.leaves(value, "%s.%s" % (name, key))
        for number, group in enumerate(optimizer.param_groups):
            for key, value in group.items():
                if isinstance(value, (bool, int, float, tuple, self.torch.Tensor)) and key != "params":
                    yield from names.leaves(value, "param_groups.%d.%s" % (number, key))

    def _buffers(self) -> None:
        self._tensors("buffer", [(name, holder[key]) for name, holder, key in self.names.buffers if holder.get(key) is not None])

    def _look_for_nan(self) -> None:
        """Which parameters that an optimizer updates, and which buffers, hold NaN now: before the first step, and once after the second."""
        moved = {id(parameter) for optimizer in self.made for parameter in _moved(optimizer)}
        self.nonfinite.look("parameter", [item for item in self.names.parameters if id(item[1]) in moved], self.session.step)
        buffers = [(name, holder[key]) for name, holder, key in self.names.buffers if holder.get(key) is not None]
        self.nonfinite.look("buffer", buffers, self.session.step)

    def _name(self, optimizers: List[Any]) -> None:
        if not all(self.names.knows(optimizer) for optimizer in optimizers):
            made = [*self.made, self.by_hand]
            everyone = [*made, *(item for item in optimizers if item not in made)]
            self.names = names.name_tensors(
                self.torch, sorted(everyone, key=lambda item: (item is not self.by_hand, item in optimizers), reverse=True)
            )

    # Keeping tensors for distances

    def _keeps(self) -> bool:
        return bool(self.session.config["keep"].get("step") == self.session.step)

    def _keep(self, kind: str, items: Sequence[Tuple[str, Any]]) -> None:
        keep.keep(self.torch, self.session, "step%d" % self.session.step, kind, items)

    def _unmoved(self) -> None:
        with contextlib.suppress(Exception):  # a module of a kind that was not foreseen: a notice is missing, nothing else
            rows, failed = unmoved.look(self.torch, self.names)
            if failed:
                self.session.note("modules-not-read", "%d module%s could not be looked at" % (failed, "" if failed == 1 else "s"))
            self.session.event("unmoved", rows=rows)

    def _end(self, reason: str) -> None:
        """Parameters, optimizer state and buffers as they stand at the end: digested, for what changed after the last step; and kept."""
        lasting = self.nonfinite.lasting()
        if lasting:
            self.session.event("nonfinite", rows=lasting)
        if self.by_hand.said():
            self.session.note("steps", self.by_hand.said())
        if reason != "exception" and (self.used or self.by_hand.by):
            self._tensors("parameter", self.names.parameters, "final")
            self._tensors("parameter", [item for item in self.by_hand.items if id(item[1]) not in self.names.by_id], "final")
            for optimizer, _ in self.used.values():
                self._optimizer_state(optimizer)
            self._buffers()
        for kind in UNREAD:
            self.session.note("not-digested", "tensors of type %s were not digested: their elements cannot be read" % kind)
        if not self.session.config["keep"].get("final"):
            return
        keep.keep(self.torch, self.session, "final", "parameter", self.names.parameters)
        for optimizer, _ in self.used.values():
            items = [(name, value) for name, value in self._state_items(optimizer) if isinstance(value, self.torch.Tensor)]
            keep.keep(self.torch, self.session, "final", "optimizer", items)

    # The order of gradients

    def _learn_order(self) -> None:
        """Note in which order the first backward finishes gradients; the hooks are taken off again at the first step."""

        def finished(parameter: Any) -> None:
            self.order.setdefault(id(parameter), len(self.order))

        for _, parameter in self.names.parameters:
            if parameter.requires_grad and parameter.is_leaf:
                self.waiting.append(parameter.register_post_accumulate_grad_hook(finished))

    def _forget_order(self) -> None:
        if self.order:
            self._release()

    def _release(self) -> None:
        if self.order or not self.captured:
            while self.waiting:
                self.waiting.pop().remove()


def _moved(optimizer: Any) -> Iterator[Any]:
    for group in optimizer.param_groups:
        yield from group["params"]
