"""Where a gating takes place: one temporary folder with the snapshot of the checkout in it, closed off where the training is another user.

Called by `gate`; `series` makes its runs there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from repro_gate.ending import obeyed
from repro_gate.isolation.confinement import confined
from repro_gate.isolation.handover import let_in
from repro_gate.isolation.model import Isolation
from repro_gate.place import taken_place
from repro_gate.runs.trial import tried
from repro_gate.spec.model import Spec
from repro_gate.workspace import Checkout, Snapshot, data_path, resolve_data, take_snapshot


@dataclass(frozen=True)
class Ground:
    """Where a series takes place: one temporary folder, with the snapshot of the checkout in it."""

    place: Path
    snapshot: Snapshot
    outer: Mapping[str, str]  # the environment that the gate was started in
    isolation: Isolation  # who the training runs as


@contextlib.contextmanager
def open_ground(
    spec: Spec, checkout: Checkout, outer: Mapping[str, str], isolation: Isolation, within_reach: Sequence[Path] = ()
) -> Iterator[Ground]:
    """A temporary folder with a snapshot of the checkout; removed at the end whatever happens.

    As long as it stands the training, where it has a user of its own, is confined, and that it is has been tried. `within_reach` are
    folders that it needs besides. Raises Inconclusive where it cannot be kept apart.
    """
    folder = spec.path.parent
    data = resolve_data(spec.data, folder)
    with taken_place(isolation) as place, confined(isolation, outer, checkout.root, data, [place, *within_reach]):
        with obeyed():
            snapshot = take_snapshot(checkout, place / "snapshot", [data_path(item, folder) for item in spec.data])
        if isolation.own_user:
            snapshot.root.chmod(0o700)  # it has the mode of the checkout, which is closed to the training or lies in a folder that is
        for name in ("traces", "artifacts"):
            (place / name).mkdir(mode=0o700)
        let_in(isolation, place / "traces")
        tried(isolation, spec, place, checkout.root, outer, data)
        yield Ground(place, snapshot, outer, isolation)
