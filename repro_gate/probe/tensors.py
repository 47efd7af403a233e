"""Records the named tensors of a training: one block for each kind at each moment."""

from __future__ import annotations

from typing import Any, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

from ..trace.format import MAX_NAME
from ..trace.writer import Row
from . import distance, names, sdk
from .digest import Slots, begin, describe
from .patch import WeakByIdentity
from .session import Session

Item = Tuple[str, Any]


class Leaves:
    """Tensors that are trained without an optimizer, in the form of one: `names` finds their
    models."""

    def __init__(self) -> None:
        self.param_groups: List[Dict[str, Any]] = [{"params": []}]


class Tensors:
    """Names and records what one thread trains. Holds, weakly, every optimizer that it made."""

    def __init__(self, torch: Any, session: Session) -> None:
        self.torch = torch
        # in the order in which they were made, with how often a gradient was taken before
        self.made = WeakByIdentity()
        # those that make no steps of their own, with how many gradients were taken at their last
        self.updating = WeakByIdentity()
        self.names = names.Names()
        self.serve(session)

    def serve(self, session: Session) -> None:
        """Record through this session from here on."""
        self.session = session
        self.leaves = Leaves()
        self._rows: Dict[Any, Tuple[Tuple[Row, ...], Optional[Slots]]] = {}
        # id(parameter) -> key of its state -> name
        self._state_names: Dict[int, Dict[str, str]] = {}

    def name(self, optimizers: Iterable[Any]) -> None:
        """Name what these optimizers update, if it has no name yet: theirs first, what no optimizer
        updates last."""
        now = list(optimizers)
        if all(map(self.names.knows, now)):
            return
        known = {id(item) for item in now}
        now += [item for item in self.made if id(item) not in known]
        everyone = [item for item in now if item is not self.leaves]
        self.names = names.name_tensors(self.torch, [*everyone, self.leaves])
        self._state_names = {}

    def record(self, kind: str, items: Sequence[Item], label: str = "") -> None:
        """Record one block. Rows are made once for each list of names: a change of dtype or shape
        shows in the digest."""
        if items:
            key = (kind, label, tuple([item[0] for item in items]))
            if key not in self._rows:
                # gradients are made anew at each step
                slots = None if kind == "gradient" else Slots(len(items))
                self._rows[key] = (
                    tuple(describe(name, tensor) for name, tensor in items),
                    slots,
                )
            rows, slots = self._rows[key]
            tensors = [tensor for _, tensor in items]
            self.session.block(kind, rows, begin(self.torch, tensors, slots=slots))
            self.keep(kind, items)

    def keep(self, kind: str, items: Iterable[Item], label: str = "") -> None:
        """Keep these for the distance between two runs, if the run was asked to keep this step."""
        step = self.session.step
        if label or step in self.session.config["keep"]["steps"]:
            distance.keep(
                self.torch, self.session, label or "step%d" % step, kind, items
            )

    def buffers(self) -> None:
        """Record the buffers that there are now."""
        self.record("buffer", self.names.buffers())

    def parameters(self, optimizer: Any) -> List[Item]:
        """Return what an optimizer updates, by name."""
        return [(self.names.by_id[id(item)], item) for item in parameters(optimizer)]

    def optimizer_state(self, optimizer: Any) -> None:
        """Record the state of each parameter and the hyperparameters of each group."""
        items, kind = list(self.state_items(optimizer)), self.torch.Tensor
        self.record("optimizer", [item for item in items if isinstance(item[1], kind)])
        scalars = [item for item in items if not isinstance(item[1], kind)]
        if scalars:
            self.session.block(
                "optimizer", *sdk.digest_leaves(scalars), sdk.hex_values(scalars)
            )

    def updating_state(self) -> None:
        """Record the state of the optimizers that make no steps, in the order of their parameters'
        names."""

        def first_names(optimizer: Any) -> List[str]:
            return [name for name, _ in self.parameters(optimizer)]

        known = filter(self.names.knows, self.updating)
        for optimizer in sorted(known, key=first_names):
            self.optimizer_state(optimizer)

    def state_items(self, optimizer: Any) -> Iterator[Item]:
        """Yield (name, value) of an optimizer's state and hyperparameters."""
        for parameter in parameters(optimizer) if optimizer.state else ():
            known = self._state_names.setdefault(id(parameter), {})
            for key, value in names.held(optimizer.state.get(parameter) or {}):
                name = known.get(key)
                if name is None:
                    name = "%s.%s" % (self.names.by_id[id(parameter)], key)
                    name = known[key] = name[:MAX_NAME]
                if isinstance(value, self.torch.Tensor):
                    yield name, value
                else:
                    yield from names.leaves(value, name)
        for number, group in enumerate(optimizer.param_groups):
            for key, value in names.held(group):
                kinds = (bool, int, float, tuple, self.torch.Tensor)
                if isinstance(value, kinds) and key != "params":
                    yield from names.leaves(value, "param_groups.%d.%s" % (number, key))


def parameters(optimizer: Any) -> Iterator[Any]:
    """Yield the tensors that an optimizer updates."""
    for group in optimizer.param_groups:
        yield from group["params"]
