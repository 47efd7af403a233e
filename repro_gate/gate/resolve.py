"""A spec resolved: its declared data expanded to the items that `.dvc` files stand for,
by the checkout's files or by those of one commit."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from repro_gate.baseline.file import parse_baseline
from repro_gate.baseline.model import FILE_NAME, Baseline
from repro_gate.checkout.refs import file_at
from repro_gate.data.formats import DVC, MAX_DVC, DataProblem, expand_items
from repro_gate.files import scratch_folder
from repro_gate.gate.options import Options
from repro_gate.spec.document import MAX_BYTES
from repro_gate.spec.loader import load_spec_bytes
from repro_gate.spec.model import Spec


@dataclass(frozen=True)
class Resolved:
    """A spec with its data expanded, and what is wrong with the files that declare it."""

    spec: Spec
    problems: tuple[DataProblem, ...] = ()


def resolve(spec: Spec, folder: Path | None = None, root: Path | None = None) -> Resolved:
    """Expand the spec's data by the declarations in `folder` (the spec's own), inside `root` (the
    checkout's)."""
    items, problems = expand_items(spec.data, folder or spec.path.parent, root)
    return Resolved(replace(spec, data=items), problems)


@dataclass
class CommitFiles:
    """The spec and baseline of one commit, where the head has its own at `path`. `name` is the
    spec's path in the repository."""

    root: Path
    commit: str
    name: str
    path: Path
    options: Options

    @cached_property
    def raw(self) -> bytes | None:
        """The spec's bytes; None where this commit has no such file."""
        return file_at(self.root, self.commit, self.name, MAX_BYTES)

    def spec(self, *, overridden: bool) -> Resolved | None:
        """The spec, resolved with the declarations of this commit; None where there is none.
        `overridden`: with what the command line lays over it. Raises UsageError for one with
        mistakes."""
        if self.raw is None:
            return None
        given = self.options if overridden else Options()
        return self._resolve(
            load_spec_bytes(
                self.raw,
                f"{self.commit[:12]}:{self.name}",
                self.path,
                given.overrides,
                seed=given.seed,
                steps=given.steps,
            )
        )

    def baseline(self) -> Baseline | None:
        """None where this commit has no baseline. Raises UsageError for one that cannot be used."""
        name = os.path.join(os.path.dirname(self.name), FILE_NAME)
        raw = file_at(self.root, self.commit, name, MAX_BYTES)
        return None if raw is None else parse_baseline(raw, f"{self.commit[:12]}:{name}")

    def _resolve(self, spec: Spec) -> Resolved:
        folder = os.path.dirname(self.name)
        with scratch_folder() as scratch:
            for name in (
                name
                for item in spec.data
                for name in (item.path, f"{item.path}.dvc")
                if name.endswith(DVC)
            ):
                path = os.path.normpath(os.path.join(folder, name))
                raw = (
                    None
                    if path.startswith(("..", "/"))
                    else file_at(self.root, self.commit, path, MAX_DVC)
                )
                if raw is not None:
                    (scratch / path).parent.mkdir(parents=True, exist_ok=True)
                    (scratch / path).write_bytes(raw)
            (scratch / folder).mkdir(parents=True, exist_ok=True)
            return resolve(spec, scratch / folder, scratch)
