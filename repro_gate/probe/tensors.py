"""Records the named tensors of a training: one block for each kind at each moment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import torch

from ..trace.format import MAX_NAME
from ..trace.writer import Row
from . import distance, names, sdk
from .digest import SLOT, begin, describe
from .patch import WeakByIdentity
from .session import Session

Item = tuple[str, Any]


class Tensors:
    """Names and records what one thread trains. Holds, weakly, every optimizer that it made."""

    def __init__(self, session: Session) -> None:
        # in the order in which they were made, with how often a gradient was taken before
        self.made = WeakByIdentity()
        # those that make no steps of their own, with how many gradients were taken at their last
        self.updating = WeakByIdentity()
        self.names = names.Names()
        self.serve(session)

    def serve(self, session: Session) -> None:
        """Record through this session from here on."""
        self.session = session
        # what is trained without an optimizer, in the form of one: `names` finds their models
        self.leaves = SimpleNamespace(param_groups=[{"params": []}])
        self._rows: dict[Any, tuple[tuple[Row, ...], list[Any] | None]] = {}
        # id(parameter) -> key of its state -> name
        self._state_names: dict[int, dict[str, str]] = {}

    def name(self, optimizers: Iterable[Any]) -> None:
        """Name what these optimizers update, if it has no name yet: theirs first, what no optimizer
        updates last."""
        now = list(optimizers)
        if not all(map(self.names.knows, now)):
            everyone = {id(item): item for item in (*now, *self.made)}
            everyone.pop(id(self.leaves), None)
            self.names = names.name_tensors([*everyone.values(), self.leaves])
            self._state_names = {}

    def record(self, kind: str, items: Sequence[Item], label: str = "") -> None:
        """Record one block. Rows are made once for each list of names: a change of dtype or shape
        shows in the digest."""
        if items:
            key = (kind, label, tuple([item[0] for item in items]))
            if key not in self._rows:
                described = tuple([describe(*item) for item in items])
                # gradients are made anew at each step
                new = None if kind == "gradient" else [SLOT] * len(items)
                self._rows[key] = described, new
            rows, slots = self._rows[key]
            tensors = [tensor for _, tensor in items]
            self.session.block(kind, rows, begin(tensors, slots=slots))
            self.keep(kind, items)

    def perturb(self) -> None:
        """Change the last bits of the initial parameters, in the run that shows what rounding
        does."""
        lost = self.session.config.get("perturb")
        if lost is not None:
            distance.perturb(self.names.parameters, lost)

    def keep(self, kind: str, items: Iterable[Item], label: str = "") -> None:
        """Keep these for the distance between two runs, if the run was asked to keep this step."""
        session = self.session
        wanted = session.config["keep"]
        if kind not in wanted.get("kinds", (kind,)):
            return
        if label or session.step in wanted["steps"]:
            distance.keep(session, label or f"step{session.step}", kind, items)

    def buffers(self) -> None:
        """Record the buffers that there are now."""
        self.record("buffer", self.names.buffers())

    def parameters(self, optimizer: Any) -> list[Item]:
        """Return what an optimizer updates, by name."""
        by_id = self.names.by_id
        return [(by_id[id(item)], item) for item in names.updated_by(optimizer)]

    def optimizer_state(self, optimizer: Any) -> None:
        """Record the state of each parameter and the hyperparameters of each group."""
        tensors: list[Item] = []
        scalars: list[Item] = []
        for item in self.state_items(optimizer):
            (tensors if isinstance(item[1], torch.Tensor) else scalars).append(item)
        self.record("optimizer", tensors)
        if scalars:
            values = sdk.hex_values(scalars)
            self.session.block("optimizer", *sdk.digest_leaves(scalars), values)

    def updating_state(self) -> None:
        """Record the state of the optimizers that make no steps, in the order of their parameters'
        names."""

        def first_names(optimizer: Any) -> list[str]:
            return [name for name, _ in self.parameters(optimizer)]

        known = filter(self.names.knows, self.updating)
        for optimizer in sorted(known, key=first_names):
            self.optimizer_state(optimizer)

    def state_items(self, optimizer: Any) -> Iterator[Item]:
        """Yield (name, value) of an optimizer's state and hyperparameters."""
        for parameter in names.updated_by(optimizer) if optimizer.state else ():
            known = self._state_names.setdefault(id(parameter), {})
            for key, value in names.entries(optimizer.state.get(parameter) or {}):
                name = known.get(key)
                if name is None:
                    name = f"{self.names.by_id[id(parameter)]}.{key}"
                    name = known[key] = name[:MAX_NAME]
                if isinstance(value, torch.Tensor):
                    yield name, value
                else:
                    yield from names.leaves(value, name)
        for number, group in enumerate(optimizer.param_groups):
            for key, value in names.entries(group):
                kinds = (int, float, tuple, torch.Tensor)
                if isinstance(value, kinds) and key != "params":
                    yield from names.leaves(value, f"param_groups.{number}.{key}")
