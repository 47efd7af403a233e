"""Steps that no torch optimizer makes: calls of `backward()` or of `autograd.grad` between which
the training updates parameters itself.

A step goes from one call to the next, so that it holds the update between them. A call after which
no parameter was updated (input gradients of an evaluation, an attack on the input, one part of an
accumulated batch) is none.
"""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

from .digest import digest_all
from .patch import WeakByIdentity
from .process import works_for_a_pool

BACKWARD, GRAD = "backward()", "autograd.grad"
_NODES = 100_000  # of one graph that are looked at
_SCANS = 20  # searches for the names of new parameters
_WATCHED = 16  # leaves that are looked at for a change
_SAMPLE = 16_384  # elements of each of them that are looked at
_BESIDE = 8  # calls of autograd.grad that are recorded in one step


class ManualSteps:
    """The steps of one process that no optimizer makes. `hooks` is its `torch_hooks.Hooks`; `by` is
    what the steps are calls of, `why` the reason."""

    def __init__(self, torch: Any, hooks: Any) -> None:
        self.torch, self.hooks = torch, hooks
        # as an optimizer, so that `names` finds the models
        self.param_groups: List[Dict[str, Any]] = [{"params": []}]
        self.by = ""
        self.why = "no torch optimizer took a step"
        self.over = False  # an optimizer steps, or the script says itself what a step is
        self.steps = 0
        self.items: List[Tuple[str, Any]] = []
        self._fresh = False  # each call is given new tensors
        self._changed = False  # an update without an optimizer was seen
        self._watched: List[Any] = []  # leaves that an update changes
        self._before = b""  # their digests at the last call
        self._versions: List[
            int
            # and their versions, which count changes in place wherever they are (`.data` is outside
            # of it)
        ] = []
        self._searched: List[Any] = []  # what the last search for names was made for
        self._for_a_pool: Optional[bool] = None
        self.calls = 0  # of `backward()`
        self._scans = 0
        self._level = 1 << 30  # of torch.func's transforms, the lowest that took a gradient
        self._seen = WeakByIdentity()  # leaves of the last look that belong to no module
        self._beside = (-1, 0)
        self._nested: Dict[int, Any] = {}

    def in_a_pool(self) -> bool:
        """Whether gradients are taken here as a pool's task, for another process: nothing of that
        is recorded, and nothing is stopped."""
        if self._for_a_pool is None:
            self._for_a_pool = works_for_a_pool()
        return self._for_a_pool

    def of_the_input(self, leaves: Sequence[Any], roots: Sequence[Any]) -> bool:
        """Whether gradients are taken of what goes into a model, and of none of its parameters: a
        saliency map, an attack, a force."""
        kind, asked = self.torch.nn.Parameter, {id(leaf) for leaf in leaves}
        if any(isinstance(leaf, kind) for leaf in leaves):
            return False
        return any(isinstance(leaf, kind) and id(leaf) not in asked for leaf in leaves_of(roots))

    def enters(self, by: str, leaves: Sequence[Any]) -> None:
        """A gradient is about to be taken: where the leaves were updated since the last call, the
        step in progress ends here. Raises StopTraining after the last wanted one."""
        session = self.hooks.session
        self.over = self.over or session.explicit
        leaves = [*leaves, *self._nested.values()]
        self._nested = {}
        if self.over or not leaves or (by == GRAD and self.by == BACKWARD) or self._sharded(leaves):
            return
        due = False  # should what follows fail
        with session.own_time():
            due = self._updated(leaves) and bool(self.items) and by == self.by
            self._changed = self._changed or due
            self._fresh = self._fresh or (
                bool(self.items) and by == GRAD and self.items[0][1] is not leaves[0]
            )
            self.by, self.items = by, self._named(leaves)
            if due and session.wants():
                self.hooks.tensors("parameter", self.items)
                self.hooks.updating_state()
                self.hooks.buffers()
        if due:
            self.steps += 1
            # an optimizer that was made may yet take the steps that are wanted
            session.end_step(last=not self.hooks.made)

    def left(self, grads: Sequence[Any] = ()) -> None:
        """The gradient was taken; `grads` where they were returned and not accumulated."""
        session = self.hooks.session
        if self.over or not self.items or not session.live:
            return
        if self._nested:
            known = {id(leaf) for _, leaf in self.items}
            self.items = self.items + self._named(
                [leaf for leaf in self._nested.values() if id(leaf) not in known]
            )
        session.recorded()  # a step is owed, which the next call closes, an optimizer, or the end
        if session.wants() and (self._changed or not self.hooks.made):
            with session.own_time():
                self._gradients(grads or [leaf.grad for _, leaf in self.items])

    def nests(self, roots: Sequence[Any]) -> None:
        """A pass inside a pass, as reentrant checkpoints make: the graph from outside does not show
        the leaves that it reaches."""
        if not self.over:
            self._nested.update((id(leaf), leaf) for leaf in leaves_of(roots))

    def beside(self, inputs: Sequence[Any], grads: Sequence[Any]) -> None:
        """`autograd.grad` beside steps of another kind: a model may be trained by it, so what goes
        in and comes out is recorded as well."""
        session = self.hooks.session
        step, count = self._beside
        self._beside = session.step, count + 1 if step == session.step else 1
        if self.over and session.step >= 0 and session.wants() and self._beside[1] <= _BESIDE:
            with session.own_time():
                self.items = self._named(inputs)
                self.hooks.tensors("parameter", self.items)
                self._gradients(grads)

    def _gradients(self, grads: Sequence[Any]) -> None:
        self.hooks.tensors(
            "gradient",
            [(item[0], grad) for item, grad in zip(self.items, grads) if grad is not None],
        )

    def uncompared(self, roots: Sequence[Any]) -> None:
        """Where an optimizer steps: look now and then for leaves that get gradients and that no
        optimizer's model holds, and name them, so that they are compared now and at the end."""
        self.calls += 1
        if not self.over or self.calls & (self.calls - 1):
            return
        with self.hooks.session.own_time():
            known, found = self.hooks.names.by_id, list(leaves_of(roots))
            if self._sharded(found):
                return
            unknown = [leaf for leaf in found if id(leaf) not in known]
            kind, seen = self.torch.nn.Parameter, self._seen
            mine = [leaf for leaf in unknown if isinstance(leaf, kind) or seen.get(leaf)]
            self._seen = WeakByIdentity()
            for leaf in unknown:
                self._seen.add(leaf, True)
            if mine and self._scans < _SCANS:
                self.hooks.tensors("parameter", self._named(mine))

    def optimizer_steps(self) -> None:
        if not self.over:
            self.over, self.items, self._nested, self._watched = True, [], {}, []

    def outermost(self, inputs: Any, create_graph: bool) -> bool:
        """Whether a call of `autograd.grad` can be a step: not one that only makes a graph, nor one
        inside another of torch.func's. What `torch.func.vjp` returns makes a graph too, of inputs
        that are still in its transform's wrappers."""
        functorch = self.torch._C._functorch
        level = functorch.maybe_current_level()
        if level is None:
            given = inputs if isinstance(inputs, (list, tuple)) else [inputs]
            return not create_graph or any(map(functorch.is_functorch_wrapped_tensor, given))
        self._level = min(self._level, level)
        return bool(level <= self._level)

    def told(self) -> str:
        """What the report says of the steps; empty where an optimizer made them all."""
        if not self.by or (self.over and not self.steps):
            return ""
        if self.over:
            return "%d steps before an optimizer's first are calls of %s" % (self.steps, self.by)
        unseen = (
            "; the last update is compared only in capture.artifacts"
            if self._fresh and not self.hooks.session.stopped
            else ""
        )
        return "steps are calls of %s: %s%s" % (self.by, self.why, unseen)

    def _sharded(self, leaves: Sequence[Any]) -> bool:
        """Whether a model is sharded (FSDP): its leaves stand in for the parameters during a pass,
        and lose their memory after it."""
        updated = (
            item
            for optimizer in self.hooks.made
            for group in optimizer.param_groups
            for item in group["params"]
        )
        return any(hasattr(item, "_local_tensor") for item in updated) or any(
            getattr(leaf, "_is_flat_param", False) for leaf in leaves
        )

    def _updated(self, leaves: Sequence[Any]) -> bool:
        """Whether the parameters were updated since the last call, in place or by new tensors in
        their stead; watches these from now on."""
        parameters = [leaf for leaf in leaves if isinstance(leaf, self.torch.nn.Parameter)]
        watched, then = (parameters or list(leaves))[:_WATCHED], self._watched
        changed = self._digests(then) != self._before or _versions(then) != self._versions
        self._watched, self._before, self._versions = (
            watched,
            self._digests(watched),
            _versions(watched),
        )
        renewed = then and not set(map(id, then)) & set(map(id, watched))
        return changed or bool(renewed and self._digests(then) != self._before)

    def _digests(self, leaves: Sequence[Any]) -> bytes:
        """The digests of the beginnings of leaves; a tensor of a kind of its own is taken whole."""
        simple = (self.torch.Tensor, self.torch.nn.Parameter)
        long = [
            type(leaf) in simple and leaf.layout is self.torch.strided and leaf.numel() > _SAMPLE
            for leaf in leaves
        ]
        return digest_all(
            self.torch,
            [
                leaf.detach().reshape(-1)[:_SAMPLE] if cut else leaf
                for leaf, cut in zip(leaves, long)
            ],
        )

    def _named(self, leaves: Sequence[Any]) -> List[Tuple[str, Any]]:
        """(name, leaf). Modules are searched where a parameter is new; what stands where a named
        tensor stood before keeps that name."""
        hooks, known = self.hooks, self.hooks.names.by_id
        new = [leaf for leaf in leaves if id(leaf) not in known]
        if (
            new
            and self._scans < _SCANS
            and (not self._scans or any(isinstance(leaf, self.torch.nn.Parameter) for leaf in new))
        ):
            self._scans += 1
            held = {id(leaf) for leaf in new}
            self.param_groups[0]["params"] = [
                item for item in self._searched if id(item) not in held
            ] + new
            self._searched = (
                new  # not every leaf there ever was: what a training renews would stay in memory
            )
            hooks.name([self])
            known = hooks.names.by_id
        before = self.items if len(self.items) == len(leaves) else []
        return [
            (known.get(id(leaf)) or (before[index][0] if before else "leaf.%d" % index), leaf)
            for index, leaf in enumerate(leaves)
        ]


def _versions(leaves: Sequence[Any]) -> List[int]:
    return [getattr(leaf, "_version", 0) for leaf in leaves]


def leaves_of(roots: Sequence[Any]) -> Iterator[Any]:
    """The leaf tensors whose gradients a backward pass from `roots` accumulates, in the order of
    the graph."""
    stack = [root.grad_fn for root in roots if getattr(root, "grad_fn", None) is not None]
    seen = set(stack)
    while stack and len(seen) < _NODES:
        node = stack.pop()
        if type(node).__name__ == "AccumulateGrad":
            yield node.variable
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                stack.append(following)


def plain(torch: Any, values: Any) -> List[Any]:
    """The tensors among `values` (a tensor, a sequence or a mapping), out of the wrappers of
    torch.func's transforms."""
    if isinstance(values, dict):
        values = list(values.values())
    values = values if isinstance(values, (list, tuple)) else [values]
    functorch, found = torch._C._functorch, []
    for value in values:
        if isinstance(value, torch.Tensor):
            while functorch.is_functorch_wrapped_tensor(value):
                value = functorch.get_unwrapped(value)
            found.append(value)
    return found
