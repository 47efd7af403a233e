"""Where a gate run takes place: one temporary folder with the snapshot of the checkout in it, closed off where the training is another
user."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import canonicalize_name

from repro_gate.checkout.inspection import Checkout, ignored_files
from repro_gate.checkout.snapshot import Snapshot, take_snapshot
from repro_gate.data.declared import data_path, resolve_data
from repro_gate.errors import obeyed
from repro_gate.files import Unreadable, parse_toml, read_text
from repro_gate.runs.launch import Original
from repro_gate.runs.self_test import tried
from repro_gate.sandbox.confinement import confined
from repro_gate.sandbox.identity import Isolation
from repro_gate.sandbox.ownership import let_in
from repro_gate.sandbox.temp_folder import fixed_folder
from repro_gate.spec.model import Spec

_MODULES = (".py", ".so", ".pyd")
_NAME = re.compile(r"""\bname\s*=\s*["']?([A-Za-z0-9][\w.-]*)""")  # in setup.py and setup.cfg
_PROJECT_BYTES = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class GateFolder:
    """Where a series takes place: one temporary folder, with the snapshot of the checkout in it."""

    place: Path
    snapshot: Snapshot
    outer: Mapping[str, str]  # the environment that the gate was started in
    isolation: Isolation  # who the training runs as
    original: Original  # what the snapshot was taken of
    began: float | None = None  # when all was ready for the first run, in seconds since 1970


@contextlib.contextmanager
def open_gate_folder(
    spec: Spec,
    checkout: Checkout,
    outer: Mapping[str, str],
    isolation: Isolation,
    within_reach: Sequence[Path] = (),
    tell: Callable[[str], None] = lambda _: None,
) -> Iterator[GateFolder]:
    """A temporary folder with a snapshot of the checkout; removed at the end whatever happens.

    As long as it stands the training, where it has a user of its own, is confined, and that it is has been tried. `within_reach` are
    folders that it needs besides; `tell` is given a line before another gate is waited for.

    Raises Inconclusive where it cannot be kept apart.
    """
    folder = spec.path.parent
    data = resolve_data(spec.data, folder)
    with fixed_folder(isolation) as place, confined(isolation, outer, checkout.root, data, [place, *within_reach], tell=tell):
        with obeyed():
            snapshot = take_snapshot(checkout, place / "snapshot", [data_path(item, folder) for item in spec.data])
        if isolation.own_user:
            snapshot.root.chmod(0o700)  # it has the mode of the checkout, which is closed to the training or lies in a folder that is
        for name in ("traces", "artifacts"):
            (place / name).mkdir(mode=0o700)
        let_in(isolation, place / "traces")
        tried(isolation, spec, place, checkout.root, outer, data)
        yield GateFolder(place=place, snapshot=snapshot, outer=outer, isolation=isolation, original=original_of(spec, checkout))


def original_of(spec: Spec, checkout: Checkout) -> Original:
    """What the probe must know of the checkout to tell its packages from others: its projects lie at the root or above the spec."""
    root, folder = Path(os.path.realpath(checkout.root)), Path(os.path.realpath(spec.path.parent))
    folders = [root, *(place for place in (folder, *folder.parents) if place.is_relative_to(root))]
    names = {canonicalize_name(name) for place in dict.fromkeys(folders) for name in _project_names(place, root)}
    return Original(root, ignored_files(root, _MODULES) if checkout.is_git else (), tuple(sorted(names)))


def _project_names(folder: Path, root: Path) -> Iterator[str]:
    """The names of the distributions that the project in `folder` makes, as its settings say."""
    for name in ("pyproject.toml", "setup.cfg", "setup.py"):
        try:
            text = read_text(folder / name, root, _PROJECT_BYTES)
            if name != "pyproject.toml":
                yield from _NAME.findall(text)[:100]
                continue
            document = parse_toml(text)
        except Unreadable:
            continue
        tool = document.get("tool")
        for table in (document.get("project"), tool.get("poetry") if isinstance(tool, dict) else None):
            if isinstance(table, dict) and isinstance(table.get("name"), str):
                yield table["name"]
