"""The base ref: whose spec and baseline judge, and which checks the change weakens compared with
it.

Under `policy: base`, set in the base branch's own `repro.yml` (or asked for with `--policy base`),
the base branch's spec and baseline judge the change's code, so that a change cannot lower the bar
that it has to pass. Else its own spec judges. What it weakens is always listed.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from repro_gate.baseline.file import read_baseline
from repro_gate.baseline.model import FILE_NAME, Baseline
from repro_gate.checkout.inspection import Checkout, outermost
from repro_gate.checkout.refs import commit_of, merge_base
from repro_gate.data.formats import DataProblem
from repro_gate.errors import GateError, UsageError
from repro_gate.gate.options import Options
from repro_gate.gate.resolve import CommitFiles, resolve
from repro_gate.gate.weakened import weakened
from repro_gate.report.model import BaseFinding, WeakenedCheck
from repro_gate.spec.loader import key_lines, load_spec
from repro_gate.spec.model import Spec
from repro_gate.trace.fields import Location


@dataclass(frozen=True, kw_only=True)
class EffectivePolicy:
    """The spec (resolved) and the baseline that judge, and what is known of the base."""

    spec: Spec
    problems: tuple[DataProblem, ...] = ()  # of the files that declare its data
    baseline: Baseline | None
    base: BaseFinding | None = None
    notes: tuple[str, ...] = ()


def effective_policy(head: Spec, checkout: Checkout, options: Options) -> EffectivePolicy:
    """Choose. Raises UsageError for a base that cannot be read where it has to judge, and for a
    baseline that cannot be used."""
    # the base branch of the pull request that a GitHub job runs for
    implied = options.environment.get("GITHUB_BASE_REF", "")
    ref = options.base or (f"origin/{implied}" if implied else None)
    if ref is None:
        if options.policy == "base":
            raise UsageError(
                "--policy base: no base is known", remedy="name it: `--base origin/main`"
            )
        return _own(head)
    try:
        if not checkout.is_git:
            raise UsageError(
                f"--base {ref}: {checkout.root} is not a git checkout", remedy="leave --base out"
            )
        root = outermost(checkout.root)
        tip = _commit_of(root, ref)
    except UsageError as error:
        if options.base is not None or "base" in (options.policy, head.policy):
            raise
        return _own(head, notes=(f"cannot list weakened checks: {error.message}; {error.remedy}",))
    name = _name_in(root, head.path)
    base, start = (
        CommitFiles(root, commit, name, head.path, options)
        for commit in (tip, merge_base(root, tip))
    )
    said = base.spec(overridden=False)
    policy = options.policy or ("head" if said is None else said.spec.policy)
    found, notes = _weakened(start if start.raw is not None else base, head.path)
    if policy == "base":
        return EffectivePolicy(
            spec=_judging(base, ref),
            baseline=base.baseline(),
            base=BaseFinding(ref, tip, "base", found),
            notes=notes,
        )
    return _own(head, BaseFinding(ref, start.commit, "head", found), notes)


def _own(
    head: Spec, base: BaseFinding | None = None, notes: tuple[str, ...] = ()
) -> EffectivePolicy:
    """The change's own spec and baseline judge."""
    own = resolve(head)
    baseline = read_baseline(head.path.parent / FILE_NAME)
    return EffectivePolicy(
        spec=own.spec, problems=own.problems, baseline=baseline, base=base, notes=notes
    )


def _judging(base: CommitFiles, ref: str) -> Spec:
    """The base's spec. Raises UsageError where there is none to use."""
    found = base.spec(overridden=True)
    if found is None:
        raise UsageError(
            f"{ref} has no {base.name}, so it cannot judge",
            remedy="add the spec to the base branch first, or take `--policy base` out",
            reason_id="base/no-spec",
        )
    for problem in found.problems:
        raise UsageError(f"{base.commit[:12]}:{problem}", remedy=problem.remedy)
    return found.spec


def _commit_of(root: Path, ref: str) -> str:
    """The commit of a base ref. `origin/main` is the remote's branch, whatever a change calls a
    branch or a tag of its own."""
    with contextlib.suppress(UsageError):
        return commit_of(root, f"refs/remotes/{ref}", "--base")
    return commit_of(root, ref, "--base")


def _name_in(root: Path, path: Path) -> str:
    """The spec's path in the repository as it is written, links not followed: a change must not
    choose by a link which of the base's files is read. Raises UsageError where a link of the
    repository's stands in it."""
    home = next((folder for folder in path.parents if os.path.realpath(folder) == str(root)), None)
    inside = (
        []
        if home is None
        else [part for part in (path, *path.parents) if part.is_relative_to(home) and part != home]
    )
    link = next((part for part in inside if part.is_symlink()), None)
    if home is None or link is not None:
        through = f"through the link {link}" if link is not None else f"from outside {root}"
        raise UsageError(
            f"{path} is reached {through}, so the base's own spec cannot be found",
            remedy="name the spec by its own path, without links",
            reason_id="base/link",
        )
    return os.path.relpath(path, home)


def _weakened(base: CommitFiles, path: Path) -> tuple[tuple[WeakenedCheck, ...], tuple[str, ...]]:
    """The checks that the checkout's files weaken compared with the base's, and what could not be
    compared."""
    try:
        before = base.spec(overridden=False)
        if before is None:
            return (), (f"the base has no {base.name}: nothing to compare this one with",)
        before_baseline = base.baseline()
    except GateError as error:
        return (), (
            (
                "the base's own spec or baseline cannot be read, so weakened checks are not "
                f"listed: {error}"
            ),
        )
    lines, name = key_lines(path), os.path.basename(base.name)

    def where(key: tuple[str | int, ...]) -> Location:
        near = next(
            (key[:length] for length in range(len(key), 0, -1) if key[:length] in lines), None
        )
        return Location(name, 0 if near is None else lines[near])

    head = resolve(
        load_spec(path)
    ).spec  # as the file says it, whatever the command line lays over it
    return weakened(
        before.spec, head, before_baseline, read_baseline(path.parent / FILE_NAME), where
    ), ()
