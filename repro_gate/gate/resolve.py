"""Resolves a spec: replaces `.dvc` files in its data by the items that they list. Reads them from
the checkout or from one commit."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from repro_gate.baseline.file import parse_baseline
from repro_gate.baseline.model import FILE_NAME, Baseline
from repro_gate.checkout.inspection import Checkout
from repro_gate.checkout.refs import commit_of, file_at
from repro_gate.data.dvc import DVC, MAX_DVC, DataProblem, expand_items
from repro_gate.errors import UsageError
from repro_gate.files import scratch_folder
from repro_gate.gate.options import Options
from repro_gate.spec.document import MAX_BYTES
from repro_gate.spec.loader import load_spec
from repro_gate.spec.model import Spec


@dataclass(frozen=True)
class Resolved:
    """A spec with its data expanded, and the problems of the `.dvc` files."""

    spec: Spec
    problems: tuple[DataProblem, ...] = ()


@dataclass(frozen=True, kw_only=True)
class OtherRef(Resolved):
    """The ref that `--against` names, with its own spec (this checkout's if it has none); or this
    checkout, in the environment of an interpreter or of the spec's own lockfile."""

    ref: str
    commit: str
    here: bool = False  # it is this checkout's own code
    python: Path | None = None


def resolve(
    spec: Spec, folder: Path | None = None, root: Path | None = None
) -> Resolved:
    """Expand the spec's data with the `.dvc` files of `folder` (default: the spec's folder), within
    `root` (default: the checkout)."""
    items, problems = expand_items(spec.data, folder or spec.path.parent, root)
    return Resolved(replace(spec, data=items), problems)


def other_ref(spec: Spec, checkout: Checkout, options: Options) -> OtherRef | None:
    """Return the ref that `--against` names, read before any long work. Raises UsageError if the
        commit does not exist or its spec has mistakes.

    Timeout, warm-up, capture and cost come from this checkout's spec, so that both can be compared.
    """
    ref = options.against
    if options.against_env:
        return _other_environment(spec, checkout, options.against_env)
    if ref is None:
        return None
    if not checkout.is_git:
        raise UsageError(
            f"--against {ref}: {checkout.root} is not a git checkout",
            remedy="leave --against out",
        )
    commit = commit_of(checkout.root, ref, "--against")
    name = os.path.relpath(os.path.realpath(spec.path), checkout.root)
    own = CommitFiles(checkout.root, commit, name, spec.path).spec(options) or Resolved(
        spec
    )
    train = spec.train
    train = replace(own.spec.train, timeout=train.timeout, warmup=train.warmup)
    comparable = replace(own.spec, train=train, capture=spec.capture, cost=spec.cost)
    return OtherRef(comparable, own.problems, ref=ref, commit=commit)


def _other_environment(spec: Spec, checkout: Checkout, name: str) -> OtherRef:
    """Return this checkout in the environment of an interpreter, or of a lockfile. Raises
    UsageError if it is neither."""
    path = Path(name).absolute()
    commit = checkout.commit or "0" * 40
    python = path.parent / "python"
    is_python = os.access(path, os.X_OK) and python.exists() and path.samefile(python)
    if not is_python:
        lockfile = os.path.relpath(path, spec.path.parent)
        if not path.is_file() or lockfile.startswith(".."):
            raise UsageError(
                f"--against-env {name}: neither a lockfile beside the spec or below it, nor the "
                "`python` of its folder",
                remedy="name one, such as `/opt/torch-2.13/bin/python` or `new/requirements.txt`",
            )
        spec = replace(spec, env=replace(spec.env, lockfile=lockfile, install=True))
    resolved = resolve(spec)
    return OtherRef(
        resolved.spec,
        resolved.problems,
        ref=name,
        commit=commit,
        here=True,
        python=python if is_python else None,
    )


@dataclass
class CommitFiles:
    """The spec and baseline of one commit. `path` is the head's spec, `name` the spec's path in the
    repository."""

    root: Path
    commit: str
    name: str
    path: Path

    @cached_property
    def raw(self) -> bytes | None:
        """Return the spec's bytes; None if this commit has no such file."""
        return file_at(self.root, self.commit, self.name, MAX_BYTES)

    def spec(self, options: Options | None = None) -> Resolved | None:
        """Return the spec, resolved with the `.dvc` files of this commit; None if there is no spec.
        `options` override its values. Raises UsageError if it has mistakes."""
        if self.raw is None:
            return None
        options = options or Options()
        spec = load_spec(
            self.path,
            options.overrides,
            seed=options.seed,
            steps=options.steps,
            committed=(self.raw, f"{self.commit[:12]}:{self.name}"),
        )
        folder = os.path.dirname(self.name)
        with scratch_folder() as scratch:
            (scratch / folder).mkdir(parents=True, exist_ok=True)
            for item in spec.data:
                path = os.path.normpath(os.path.join(folder, item.path))
                if not path.endswith(DVC) or path.startswith(("..", "/")):
                    continue
                raw = file_at(self.root, self.commit, path, MAX_DVC)
                if raw is not None:
                    (scratch / path).parent.mkdir(parents=True, exist_ok=True)
                    (scratch / path).write_bytes(raw)
            return resolve(spec, scratch / folder, scratch)

    def baseline(self) -> Baseline:
        """Return the baseline of this commit, empty if it has none. Raises UsageError if it cannot
        be used."""
        name = os.path.join(os.path.dirname(self.name), FILE_NAME)
        raw = file_at(self.root, self.commit, name, MAX_BYTES)
        return {} if raw is None else parse_baseline(raw, f"{self.commit[:12]}:{name}")
