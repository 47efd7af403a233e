"""Notes each of torch's DataLoaders at its first batch: how many workers it has, and their seed."""

from __future__ import annotations

import weakref
from typing import Any

from .patch import WeakByIdentity


class Loaders:
    """The DataLoaders of one process; tells them apart by identity and holds none alive."""

    def __init__(self, session: Any) -> None:
        self._session = session
        # iterators, with weak references to their loaders
        self._made_by = WeakByIdentity()
        self._known = WeakByIdentity()  # loaders, or iterators without one

    def started(self, loader: Any, iterator: Any) -> None:
        """Note that `iter(loader)` gave this iterator."""
        if iterator is not loader:
            self._made_by.add(iterator, weakref.ref(loader))

    def batch(self, iterator: Any) -> None:
        """Note that an iterator hands out a batch."""
        reference = self._made_by.get(iterator)
        loader = reference() if reference is not None else None
        key = iterator if loader is None else loader
        if self._known.get(key) is None:
            self._known.add(key, True)
            seed = getattr(iterator, "_base_seed", None)
            workers = getattr(iterator, "_num_workers", 0)
            self._session.event(
                "loaders",
                workers=workers if type(workers) is int else 0,
                base_seed=seed if type(seed) is int else None,
            )
