"""The base ref: whose spec and lock judge, and what the change asks less of than its base. Called by `gate` and `cli`.

Under `policy: base`, set in the base branch's own `repro.yml` (or asked for with `--policy base`), the base branch's spec and lock judge
the change's code, so that a change cannot lower the bar that it has to pass. Else its own spec judges. What it weakens is always listed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from repro_gate.checkout import Checkout
from repro_gate.errors import GateError, UsageError
from repro_gate.lock.format import MAX_BYTES as MAX_LOCK_BYTES
from repro_gate.lock.format import read_lock, read_lock_text
from repro_gate.lock.model import FILE_NAME as LOCK_NAME
from repro_gate.lock.model import LockFile
from repro_gate.options import Options
from repro_gate.refs import commit_of, file_at, merge_base
from repro_gate.report.model import BaseFinding, Weakening
from repro_gate.spec.loader import MAX_BYTES as MAX_SPEC_BYTES
from repro_gate.spec.loader import key_lines, load_spec, load_spec_bytes
from repro_gate.spec.model import Spec
from repro_gate.weakening import weakened


@dataclass(frozen=True)
class Judging:
    """The spec and lock that judge, and what is known of the base."""

    spec: Spec
    lock: LockFile | None
    base: BaseFinding | None = None
    notes: tuple[str, ...] = ()


def judging(head: Spec, checkout: Checkout, options: Options) -> Judging:
    """Choose. Raises UsageError for a base that cannot be read where it has to judge, and for a lock that cannot be used."""
    ref = options.base or _of_pull_request(options.environment)
    if ref is None:
        if options.policy == "base":
            raise UsageError("--policy base: no base is known", remedy="name it: `--base origin/main`")
        return Judging(head, read_lock(head.path.parent / LOCK_NAME))
    try:
        if not checkout.is_git:
            raise UsageError(f"--base {ref}: {checkout.root} is no git checkout", remedy="leave --base out")
        tip = commit_of(checkout.root, ref, "--base")
    except UsageError as error:
        if options.base is not None or "base" in (options.policy, head.policy):
            raise
        note = f"what this change asks less than its base is not known: {error.message}; {error.remedy}"
        return Judging(head, read_lock(head.path.parent / LOCK_NAME), notes=(note,))
    base = _Side(checkout.root, tip, head.path, options)
    if (options.policy or base.policy()) == "base":
        return _by_the_base(base, ref, head.path)
    start = _Side(checkout.root, merge_base(checkout.root, tip), head.path, options)
    found, notes = _weakened(start, head.path)
    return Judging(head, read_lock(head.path.parent / LOCK_NAME), BaseFinding(ref, start.commit, "head", found), notes)


def _of_pull_request(environment: Mapping[str, str]) -> str | None:
    """The base branch of the pull request that a GitHub job runs for, as a checkout with history knows it."""
    name = environment.get("GITHUB_BASE_REF", "")
    return f"origin/{name}" if name else None


def _by_the_base(base: _Side, ref: str, path: Path) -> Judging:
    spec = base.spec(overridden=True)
    if spec is None:
        raise UsageError(
            f"{ref} has no {base.name}, so it cannot judge",
            remedy="add the spec to the base branch first, or take `--policy base` out",
            reason_id="base/no-spec",
        )
    found, notes = _weakened(base, path)
    return Judging(spec, base.lock(), BaseFinding(ref, base.commit, "base", found), notes)


class _Side:
    """The spec and lock of one commit, at the places where the head has its own."""

    def __init__(self, root: Path, commit: str, path: Path, options: Options) -> None:
        self.root, self.commit, self.path, self.options = root, commit, path, options
        self.name = os.path.relpath(os.path.realpath(path), root)

    def spec(self, overridden: bool = False) -> Spec | None:
        """None where this commit has no such file. Raises UsageError for one with mistakes."""
        raw = file_at(self.root, self.commit, self.name, MAX_SPEC_BYTES)
        if raw is None:
            return None
        source = f"{self.commit[:12]}:{self.name}"
        if not overridden:
            return load_spec_bytes(raw, source, self.path)
        return load_spec_bytes(raw, source, self.path, self.options.overrides, seed=self.options.seed, steps=self.options.steps)

    def policy(self) -> str:
        """What this commit's spec says of `policy`. Raises UsageError for one with mistakes: it might say `base`."""
        spec = self.spec()
        return "head" if spec is None else spec.policy

    def lock(self) -> LockFile | None:
        """None where this commit has no lock. Raises UsageError for one that cannot be used."""
        name = os.path.join(os.path.dirname(self.name), LOCK_NAME)
        raw = file_at(self.root, self.commit, name, MAX_LOCK_BYTES)
        return None if raw is None else read_lock_text(raw, f"{self.commit[:12]}:{name}")


def _weakened(base: _Side, path: Path) -> tuple[tuple[Weakening, ...], tuple[str, ...]]:
    """What the files in the checkout ask less than the base's do, and what could not be held against each other."""
    try:
        before = base.spec()
        if before is None:
            return (), (f"the base has no {base.name}: nothing to hold this one against",)
        before_lock = base.lock()
    except GateError as error:
        return (), (f"the base's own spec or lock cannot be read, so what this change asks less is not known: {error}",)
    lines = key_lines(path)
    place = os.path.basename(base.name)

    def where(key: tuple[str | int, ...]) -> str:
        near = next((key[:length] for length in range(len(key), 0, -1) if key[:length] in lines), None)
        return place if near is None else f"{place}:{lines[near]}"

    head = replace(load_spec(path), path=before.path)  # as the file says it, whatever the command line lays over it
    return weakened(before, head, before_lock, read_lock(path.parent / LOCK_NAME), where), ()
