"""The base ref: whose spec and baseline judge, and which checks the change weakens compared with it.

Under `policy: base`, set in the base branch's own `repro.yml` (or asked for with `--policy base`), the base branch's spec and baseline
judge the change's code, so that a change cannot lower the bar that it has to pass. Else its own spec judges. What it weakens is always
listed.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from repro_gate.baseline.file import MAX_BYTES as MAX_LOCK_BYTES
from repro_gate.baseline.file import read_baseline, read_lock_text
from repro_gate.baseline.model import FILE_NAME as LOCK_NAME
from repro_gate.baseline.model import Baseline
from repro_gate.checkout.inspection import Checkout, outermost
from repro_gate.checkout.refs import commit_of, file_at, merge_base
from repro_gate.data.declarations import DECLARING, MAX_CROISSANT, expand_items
from repro_gate.data.formats import DataProblem
from repro_gate.errors import GateError, UsageError
from repro_gate.files import scratch_folder
from repro_gate.gate.options import Options
from repro_gate.gate.weakened import weakened
from repro_gate.report.model import BaseFinding, WeakenedCheck
from repro_gate.spec.loader import MAX_BYTES as MAX_SPEC_BYTES
from repro_gate.spec.loader import key_lines, load_spec, load_spec_bytes
from repro_gate.spec.model import Spec


@dataclass(frozen=True)
class EffectivePolicy:
    """The spec and baseline that judge, and what is known of the base."""

    spec: Spec
    baseline: Baseline | None
    base: BaseFinding | None = None
    notes: tuple[str, ...] = ()


def judging(head: Spec, checkout: Checkout, options: Options) -> EffectivePolicy:
    """Choose. Raises UsageError for a base that cannot be read where it has to judge, and for a baseline that cannot be used."""
    implied = options.environment.get("GITHUB_BASE_REF", "")  # the base branch of the pull request that a GitHub job runs for
    ref = options.base or (f"origin/{implied}" if implied else None)
    if ref is None:
        if options.policy == "base":
            raise UsageError("--policy base: no base is known", remedy="name it: `--base origin/main`")
        return EffectivePolicy(head, read_baseline(head.path.parent / LOCK_NAME))
    try:
        if not checkout.is_git:
            raise UsageError(f"--base {ref}: {checkout.root} is not a git checkout", remedy="leave --base out")
        root = outermost(checkout.root)
        tip = _commit_of(root, ref)
    except UsageError as error:
        if options.base is not None or "base" in (options.policy, head.policy):
            raise
        note = f"cannot list weakened checks: {error.message}; {error.remedy}"
        return EffectivePolicy(head, read_baseline(head.path.parent / LOCK_NAME), notes=(note,))
    name = _name_in(root, head.path)
    base, start = Side(root, tip, name, head.path, options), Side(root, merge_base(root, tip), name, head.path, options)
    policy = options.policy or base.policy()
    found, notes = _weakened(start if start.raw is not None else base, head.path)
    if policy == "base":
        return EffectivePolicy(base.judge(ref), base.baseline(), BaseFinding(ref, tip, "base", found), notes)
    return EffectivePolicy(head, read_baseline(head.path.parent / LOCK_NAME), BaseFinding(ref, start.commit, "head", found), notes)


def _commit_of(root: Path, ref: str) -> str:
    """The commit of a base ref. `origin/main` is the remote's branch, whatever a change calls a branch or a tag of its own."""
    with contextlib.suppress(UsageError):
        return commit_of(root, f"refs/remotes/{ref}", "--base")
    return commit_of(root, ref, "--base")


def _name_in(root: Path, path: Path) -> str:
    """The spec's path in the repository as it is written, links not followed: a change must not choose by a link which of the base's files
    is read. Raises UsageError where a link of the repository's stands in it."""
    home = next((folder for folder in path.parents if os.path.realpath(folder) == str(root)), None)
    links = (
        [] if home is None else [part for part in (path, *path.parents) if part.is_relative_to(home) and part != home and part.is_symlink()]
    )
    if home is None or links:
        through = f"through the link {links[0]}" if links else f"from outside {root}"
        raise UsageError(
            f"{path} is reached {through}, so the base's own spec cannot be found",
            remedy="name the spec by its own path, without links",
            reason_id="base/link",
        )
    return os.path.relpath(path, home)


class Side:
    """The spec and baseline of one commit, at the places where the head has its own. `name` is the spec's path in the repository."""

    def __init__(self, root: Path, commit: str, name: str, path: Path, options: Options) -> None:
        self.root, self.commit, self.name, self.path, self.options = root, commit, name, path, options

    @cached_property
    def raw(self) -> bytes | None:
        """The spec's bytes; None where this commit has no such file."""
        return file_at(self.root, self.commit, self.name, MAX_SPEC_BYTES)

    def spec(self, overridden: bool = False) -> Spec | None:
        """None where this commit has no such file. Raises UsageError for one with mistakes."""
        raw = self.raw
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

    def judge(self, ref: str) -> Spec:
        """The spec that judges, its data as this commit's own declarations have it. Raises UsageError where there is none to use."""
        spec = self.spec(overridden=True)
        if spec is None:
            raise UsageError(
                f"{ref} has no {self.name}, so it cannot judge",
                remedy="add the spec to the base branch first, or take `--policy base` out",
                reason_id="base/no-spec",
            )
        spec, problems = self.expanded(spec)
        for problem in problems:
            raise UsageError(f"{self.commit[:12]}:{problem.where}: {problem.message}", remedy=problem.remedy)
        return spec

    def expanded(self, spec: Spec) -> tuple[Spec, tuple[DataProblem, ...]]:
        """The spec with the items that its `.dvc` files and Croissant metadata stand for, as these files are in this commit; and what is
        wrong with them."""
        folder = os.path.dirname(self.name)
        with scratch_folder() as place:
            for name in (name for item in spec.data for name in (item.path, f"{item.path}.dvc") if name.lower().endswith(DECLARING)):
                path = os.path.normpath(os.path.join(folder, name))
                raw = None if path.startswith(("..", "/")) else file_at(self.root, self.commit, path, MAX_CROISSANT)
                if raw is not None:
                    (place / path).parent.mkdir(parents=True, exist_ok=True)
                    (place / path).write_bytes(raw)
            (place / folder).mkdir(parents=True, exist_ok=True)
            items, problems = expand_items(spec.data, place / folder, place)
            return replace(spec, data=items), problems

    def baseline(self) -> Baseline | None:
        """None where this commit has no baseline. Raises UsageError for one that cannot be used."""
        name = os.path.join(os.path.dirname(self.name), LOCK_NAME)
        raw = file_at(self.root, self.commit, name, MAX_LOCK_BYTES)
        return None if raw is None else read_lock_text(raw, f"{self.commit[:12]}:{name}")


def _weakened(base: Side, path: Path) -> tuple[tuple[WeakenedCheck, ...], tuple[str, ...]]:
    """The checks that the checkout's files weaken compared with the base's, and what could not be compared."""
    try:
        before = base.spec()
        if before is None:
            return (), (f"the base has no {base.name}: nothing to compare this one with",)
        before, _ = base.expanded(before)
        before_baseline = base.baseline()
    except GateError as error:
        return (), (f"the base's own spec or baseline cannot be read, so weakened checks are not listed: {error}",)
    lines = key_lines(path)
    place = os.path.basename(base.name)

    def where(key: tuple[str | int, ...]) -> str:
        near = next((key[:length] for length in range(len(key), 0, -1) if key[:length] in lines), None)
        return place if near is None else f"{place}:{lines[near]}"

    head = load_spec(path)  # as the file says it, whatever the command line lays over it
    head = replace(head, data=expand_items(head.data, path.parent)[0])
    return weakened(before, head, before_baseline, read_baseline(path.parent / LOCK_NAME), where), ()
