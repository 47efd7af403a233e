"""Steps that no torch optimizer makes: calls of `backward()` or of `autograd.grad` between which
the training updates parameters itself.

A step goes from one call to the next, so that it holds the update between them. A call after which
no parameter was updated (input gradients of an evaluation, an attack on the input, one part of an
accumulated batch) is none.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.nn import Parameter

from .digest import digest_all
from .names import updated_by
from .patch import WeakByIdentity
from .tensors import Tensors

BACKWARD = "backward()"
GRAD = "autograd.grad"
_NODES = 100_000  # of one graph that are looked at
_SCANS = 20  # searches for the names of new parameters
_WATCHED = 16  # leaves that are looked at for a change
_BESIDE = 8  # calls of autograd.grad that are recorded in one step


class ManualSteps:
    """The steps of one thread that no optimizer makes. `by` is what the steps are calls of, `why`
    the reason."""

    def __init__(self, tensors: Tensors) -> None:
        self.tensors = tensors
        self.session = tensors.session
        self.by = ""
        self.why = "no torch optimizer took a step"
        # an optimizer steps, or the script says itself what a step is
        self.over = False
        self.steps = self._scans = 0
        # the leaves of the call in progress, by name
        self.items: list[tuple[str, Any]] = []
        self.calls = 0  # of `backward()`
        self._fresh = False  # each call is given new tensors
        self._changed = False  # an update without an optimizer was seen
        self._watched: list[Any] = []  # leaves that an update changes
        self._before = b""  # their digests at the last call
        self._searched: list[Any] = []  # what the last search for names was made for
        # of torch.func's transforms, the lowest that took a gradient
        self._level = 1 << 30
        # leaves of the last look that belong to no module
        self._unnamed = WeakByIdentity()
        # leaves that passes inside the pass in progress reach
        self._nested = WeakByIdentity()
        self._extra = -1, 0  # calls of autograd.grad in a step that an optimizer makes

    def of_the_input(self, leaves: Sequence[Any], roots: Sequence[Any]) -> bool:
        """Return whether gradients are taken of what goes into a model, and of none of its
        parameters: a saliency map, an attack, a force."""
        if any(isinstance(leaf, Parameter) for leaf in leaves):
            return False
        return any(isinstance(leaf, Parameter) for leaf in leaves_of(roots))

    def enters(self, by: str, leaves: Sequence[Any]) -> None:
        """Note that a gradient is about to be taken. If the leaves were updated since the last
        call, the step in progress ends here. Raises StopTraining after the last wanted one."""
        session = self.session
        tensors = self.tensors
        self.over = self.over or session.explicit
        leaves = [*leaves, *self._nested]
        self._nested = WeakByIdentity()
        is_beside = by == GRAD and self.by == BACKWARD
        if self.over or not leaves or is_beside or self._sharded(leaves):
            return
        due = False  # should what follows fail
        with session.in_hook():
            due = self._updated(leaves) and by == self.by and bool(self.items)
            self._changed = self._changed or due
            if self.items and by == GRAD and self.items[0][1] is not leaves[0]:
                self._fresh = True
            self.by = by
            self.items = self._by_name(leaves)
            if due and session.wants():
                tensors.record("parameter", self.items)
                tensors.updating_state()
                tensors.buffers()
        if due:
            self.steps += 1
            # an optimizer that was made may yet take the steps that are wanted
            session.end_step(last=not tensors.made)

    def left(self, grads: Sequence[Any] = ()) -> None:
        """Note that the gradient was taken; `grads` if they were returned and not accumulated."""
        session = self.session
        if self.over or not self.items or not session.live:
            return
        known = {id(leaf) for _, leaf in self.items}
        more = [leaf for leaf in self._nested if id(leaf) not in known]
        self.items = self.items + self._by_name(more)
        session.recorded()  # a step is owed, which the next call closes, an optimizer, or the end
        if session.wants() and (self._changed or not self.tensors.made):
            with session.in_hook():
                self._gradients(grads or [leaf.grad for _, leaf in self.items])

    def nests(self, roots: Sequence[Any]) -> None:
        """Note a pass inside a pass, as reentrant checkpoints make: the graph from outside does not
        show the leaves that it reaches."""
        for leaf in () if self.over else leaves_of(roots):
            self._nested.add(leaf)

    def record_extra(self, inputs: Sequence[Any], grads: Sequence[Any]) -> None:
        """Record `autograd.grad` beside steps of another kind: a model may be trained by it."""
        session = self.session
        step, count = self._extra
        count = count + 1 if step == session.step else 1
        self._extra = session.step, count
        if self.over and session.step >= 0 and session.wants() and count <= _BESIDE:
            with session.in_hook():
                self.items = self._by_name(inputs)
                self.tensors.record("parameter", self.items)
                self._gradients(grads)

    def _gradients(self, grads: Sequence[Any]) -> None:
        pairs = zip(self.items, grads)
        items = [(name, grad) for (name, _), grad in pairs if grad is not None]
        self.tensors.record("gradient", items)

    def uncompared(self, roots: Sequence[Any]) -> None:
        """If an optimizer steps: look now and then for leaves that get gradients and that no
        optimizer's model holds, and name them, so that they are compared now and at the end."""
        self.calls += 1
        if not self.over or self.calls & (self.calls - 1):
            return
        with self.session.in_hook():
            leaves = list(leaves_of(roots))
            if self._sharded(leaves):
                return
            before = self._unnamed
            self._unnamed = WeakByIdentity()
            mine = []
            for leaf in self._new(leaves):
                self._unnamed.add(leaf, True)
                if isinstance(leaf, Parameter) or before.get(leaf):
                    mine.append(leaf)
            if self._scans < _SCANS:
                self.tensors.record("parameter", self._by_name(mine))

    def optimizer_steps(self) -> None:
        """Note that an optimizer steps: gradients make no steps from here on."""
        if not self.over:
            self.over = True
            self.items = []
            self._watched = []

    def outermost(self, inputs: Any, create_graph: bool) -> bool:
        """Return whether a call of `autograd.grad` can be a step: not one that only makes a graph,
        nor one inside another of torch.func's. What `torch.func.vjp` returns makes a graph too, of
        inputs that are still in its transform's wrappers."""
        functorch = torch._C._functorch
        level = functorch.maybe_current_level()
        if level is None:
            items = inputs if isinstance(inputs, (list, tuple)) else [inputs]
            wrapped = map(functorch.is_functorch_wrapped_tensor, items)
            return not create_graph or any(wrapped)
        self._level = min(self._level, level)
        return bool(level == self._level)

    def summary(self) -> str:
        """Return what the report says of the steps; empty if an optimizer made them all."""
        if not self.by or (self.over and not self.steps):
            return ""
        text = f"steps are calls of {self.by}: {self.why}"
        if self.over:
            text = (
                f"{self.steps} steps before an optimizer's first are calls of {self.by}"
            )
        elif self._fresh and not self.session.stopped:
            text += "; the last update is compared only in capture.artifacts"
        return text

    def _sharded(self, leaves: Sequence[Any]) -> bool:
        """Return whether a model is sharded by FSDP. If so, its leaves are temporary tensors that
        are freed after the pass, and cannot be watched."""
        if any(getattr(leaf, "_is_flat_param", False) for leaf in leaves):
            return True
        updated = itertools.chain.from_iterable(map(updated_by, self.tensors.made))
        return any(hasattr(item, "_local_tensor") for item in updated)

    def _updated(self, leaves: Sequence[Any]) -> bool:
        """Return whether the parameters were updated since the last call, in place or by new
        tensors in their stead; watch these from now on."""
        before = self._before
        then = self._watched
        changed = digest_all(then) != before
        own = [leaf for leaf in leaves if isinstance(leaf, Parameter)]
        self._watched = (own or list(leaves))[:_WATCHED]
        self._before = digest_all(self._watched)
        renewed = then and not set(map(id, then)) & set(map(id, self._watched))
        return changed or bool(renewed and self._before != before)

    def _new(self, leaves: Sequence[Any]) -> list[Any]:
        """Return the leaves that have no name yet."""
        known = self.tensors.names.by_id
        return [leaf for leaf in leaves if id(leaf) not in known]

    def _by_name(self, leaves: Sequence[Any]) -> list[tuple[str, Any]]:
        """Return (name, leaf). Modules are searched if a parameter is new; what stands where a
        named tensor stood before keeps that name."""
        tensors = self.tensors
        before = self.items
        new = self._new(leaves)
        first = not self._scans or any(isinstance(leaf, Parameter) for leaf in new)
        if new and self._scans < _SCANS and first:
            self._scans += 1
            # not every leaf there ever was: what a training renews would stay in memory
            both = {id(leaf): leaf for leaf in (*self._searched, *new)}
            tensors.leaves.param_groups[0]["params"] = list(both.values())
            self._searched = new
            tensors.name([tensors.leaves])
        items = []
        for index, leaf in enumerate(leaves):
            same = len(before) == len(leaves)
            other = before[index][0] if same else f"leaf.{index}"
            items.append((tensors.names.by_id.get(id(leaf)) or other, leaf))
        return items


def leaves_of(roots: Sequence[Any]) -> Iterator[Any]:
    """Yield the leaf tensors whose gradients a backward pass from `roots` accumulates, in the order
    of the graph."""
    stack = [root.grad_fn for root in roots if getattr(root, "grad_fn", None)]
    visited = set(stack)
    while stack and len(visited) < _NODES:
        node = stack.pop()
        if type(node).__name__ == "AccumulateGrad":
            yield node.variable
        for following, _ in node.next_functions:
            if following is not None and following not in visited:
                visited.add(following)
                stack.append(following)


def unwrapped(values: Any) -> list[Any]:
    """Return the tensors among `values` (a tensor, a sequence or a mapping), out of the wrappers of
    torch.func's transforms."""
    if isinstance(values, dict):
        values = list(values.values())
    values = values if isinstance(values, (list, tuple)) else [values]
    functorch = torch._C._functorch
    tensors = []
    for value in values:
        if isinstance(value, torch.Tensor):
            while functorch.is_functorch_wrapped_tensor(value):
                value = functorch.get_unwrapped(value)
            tensors.append(value)
    return tensors
