"""Records the named tensors of a training: one block for each kind at each moment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import is_
from types import SimpleNamespace
from typing import Any

import torch

from ..trace.format import MAX_NAME, SCALER
from ..trace.writer import Row
from . import distance, names, sdk
from .digest import Plan, begin, describe
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
        # the GradScaler that has scaled a loss since the last step; scaled losses, with what they
        # were before
        self.scaler: Any = None
        self.unscaled = WeakByIdentity()
        self.names = names.Names()
        self.serve(session)

    def serve(self, session: Session) -> None:
        """Record through this session from here on."""
        self.session = session
        # what is trained without an optimizer, in the form of one: `names` finds their models
        params: list[Any] = []
        group = {"params": params}
        self.leaves = SimpleNamespace(param_groups=[group])
        self._rows: dict[Any, tuple[tuple[Row, ...], Plan]] = {}
        # what each optimizer updates; the same by name; for each tensor: key of its state -> name
        self._updated = WeakByIdentity()

    def name(self, optimizers: Iterable[Any]) -> None:
        """Name what these optimizers update, if it has no name yet: theirs first, what no optimizer
        updates last."""
        now = list(optimizers)
        if all(map(self.names.knows, now)):
            return
        everyone = {id(item): item for item in (*now, *self.made)}
        everyone.pop(id(self.leaves), None)
        ordered = [*everyone.values(), self.leaves]
        self.names = names.name_tensors(ordered)
        self._updated = WeakByIdentity()

    def record(self, kind: str, items: Sequence[Item], label: str = "") -> None:
        """Record one block. Rows are made once for each list of names: a change of dtype or shape
        shows in the digest."""
        if not items:
            return
        own = tuple([name for name, _ in items])
        key = (kind, label, own)
        if key not in self._rows:
            self._rows[key] = tuple([describe(*item) for item in items]), Plan()
        rows, plan = self._rows[key]
        tensors = [tensor for _, tensor in items]
        digests = begin(tensors, plan=plan, made_anew=kind == "gradient")
        self.session.block(kind, rows, digests)
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
        step = session.step
        request = session.config["keep"]
        if kind not in request.get("kinds", (kind,)):
            return
        if label or step in request["steps"]:
            distance.keep(session, label or f"step{step}", kind, items)

    def buffers(self) -> None:
        """Record the buffers that there are now."""
        self.record("buffer", self.names.buffers())

    def parameters(self, optimizer: Any) -> Sequence[Item]:
        """Return what an optimizer updates, by name: the same object as long as this does not
        change."""
        return self._known(optimizer)[0]

    def _known(self, optimizer: Any) -> tuple[list[Item], list[dict[str, str]]]:
        """Return what an optimizer updates, by name, and the names of the state of each. `id` is
        called only for what is new, since each call runs the audit hooks."""
        updated = list(names.updated_by(optimizer))
        tensors, items, states = self._updated.get(optimizer) or ([], [], [])
        if len(tensors) != len(updated) or not all(map(is_, tensors, updated)):
            self.name([optimizer])
            by_id = self.names.by_id
            items = [(by_id[id(item)], item) for item in updated]
            states = [{} for _ in updated]
            self._updated.add(optimizer, (updated, items, states))
        return items, states

    def optimizer_state(self, optimizer: Any) -> None:
        """Record the state of each parameter, the hyperparameters of each group, and what the
        gradient scaler has until its `update`."""
        tensors: list[Item] = []
        for name in ("_scale", "_growth_tracker"):
            value = getattr(self.scaler, name, None)
            if isinstance(value, torch.Tensor):
                tensors.append((f"{SCALER}{name}", value))
        scalars: list[Item] = []
        for item in self.state_items(optimizer):
            if issubclass(type(item[1]), torch.Tensor):
                tensors.append(item)
            else:
                scalars.append(item)
        self.record("optimizer", tensors)
        if scalars:
            rows, digests = sdk.digest_leaves(scalars)
            values = sdk.hex_values(scalars)
            self.session.block("optimizer", rows, digests, values)

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
        state = optimizer.state
        for (own, parameter), known in zip(*self._known(optimizer)) if state else ():
            held = state.get(parameter)
            for key, value in names.entries({} if held is None else held):
                if key not in known:
                    known[key] = f"{own}.{names.label_of(key)}"[:MAX_NAME]
                if issubclass(type(value), torch.Tensor):
                    yield known[key], value
                else:
                    yield from names.leaves(value, known[key])
        kinds = (int, float, tuple, torch.Tensor)
        for number, group in enumerate(optimizer.param_groups):
            for key, value in names.entries(group):
                if key == "params":
                    continue
                if issubclass(type(value), kinds):
                    name = f"param_groups.{number}.{names.label_of(key)}"
                    yield from names.leaves(value, name)
