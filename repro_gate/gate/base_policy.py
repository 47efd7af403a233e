"""Decides whose spec and baseline judge, and lists the checks that the change weakens compared with
the base ref.

Under `policy: base`, set in the base branch's own `repro.yml` (or by `--policy base`), the base
branch's spec and baseline judge the change's code, so that a change cannot lower the bar that it
has to pass. Otherwise its own spec judges. Weakened checks are always listed.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from repro_gate.baseline.file import read_baseline
from repro_gate.baseline.model import FILE_NAME, Baseline
from repro_gate.checkout.inspection import Checkout, outermost
from repro_gate.checkout.refs import commit_of, merge_base
from repro_gate.errors import GateError, UsageError
from repro_gate.gate.options import Options
from repro_gate.gate.resolve import CommitFiles, Resolved, resolve
from repro_gate.gate.weakened import weakened
from repro_gate.report.model import BaseFinding, WeakenedCheck
from repro_gate.spec.errors import KeyPath
from repro_gate.spec.loader import key_lines, load_spec
from repro_gate.spec.model import Spec
from repro_gate.trace.fields import Location


@dataclass(frozen=True, kw_only=True)
class EffectivePolicy(Resolved):
    """The spec and the baseline that judge, and the facts about the base."""

    baseline: Baseline
    base: BaseFinding | None = None
    notes: tuple[str, ...] = ()


def effective_policy(
    head: Spec, checkout: Checkout, options: Options
) -> EffectivePolicy:
    """Return the spec and the baseline that judge. Raises UsageError for a base that cannot be read
    if it has to judge, and for a baseline that cannot be used."""
    # GitHub sets this to the base branch of the job's pull request.
    implied = options.environment.get("GITHUB_BASE_REF", "")
    ref = options.base or (implied and f"origin/{implied}")
    if not ref:
        if options.policy == "base":
            raise UsageError(
                "--policy base: no base is known",
                remedy="name it: `--base origin/main`",
            )
        return _own(head)
    try:
        if not checkout.is_git:
            raise UsageError(
                f"--base {ref}: {checkout.root} is not a git checkout",
                remedy="leave --base out",
            )
        root = outermost(checkout.root)
        try:
            # The remote's branch first: a change may name a local branch or tag like it.
            tip = commit_of(root, f"refs/remotes/{ref}", "--base")
        except UsageError:
            tip = commit_of(root, ref, "--base")
    except UsageError as error:
        if options.base is not None or "base" in (options.policy, head.policy):
            raise
        return _own(
            head,
            notes=(f"cannot list weakened checks: {error.message}; {error.remedy}",),
        )
    name = _name_in(root, head.path)
    base, start = (
        CommitFiles(root, commit, name, head.path)
        for commit in (tip, merge_base(root, tip))
    )
    written = base.spec()
    policy = options.policy or ("head" if written is None else written.spec.policy)
    checks, notes = _weakened(start if start.raw is not None else base, head.path)
    if policy != "base":
        return _own(head, BaseFinding(ref, start.commit, "head", checks), notes)
    judging = base.spec(options)
    if judging is None:
        raise UsageError(
            f"{ref} has no {name}, so it cannot judge",
            remedy="add the spec to the base branch first, or take `--policy base` out",
            reason_id="base/no-spec",
        )
    for problem in judging.problems:
        raise UsageError(f"{tip[:12]}:{problem}", remedy=problem.remedy)
    return EffectivePolicy(
        judging.spec,
        baseline=base.baseline(),
        base=BaseFinding(ref, tip, "base", checks),
        notes=notes,
    )


def _own(
    head: Spec, base: BaseFinding | None = None, notes: tuple[str, ...] = ()
) -> EffectivePolicy:
    """Return the policy in which the change's own spec and baseline judge."""
    baseline = read_baseline(head.path.parent / FILE_NAME)
    own = vars(resolve(head))
    return EffectivePolicy(**own, baseline=baseline, base=base, notes=notes)


def _name_in(root: Path, path: Path) -> str:
    """Return the spec's path in the repository without following links: with a link, a change could
    choose which file of the base is read. Raises UsageError if the path contains a link of the
    repository."""
    home = next(
        (folder for folder in path.parents if os.path.realpath(folder) == str(root)),
        None,
    )
    parts = (path, *path.parents)
    links = [part for part in parts if home in part.parents and part.is_symlink()]
    if home is None or links:
        through = f"through the link {links[0]}" if links else f"from outside {root}"
        raise UsageError(
            f"{path} is reached {through}, so the base's own spec cannot be found",
            remedy="name the spec by its own path, without links",
            reason_id="base/link",
        )
    return os.path.relpath(path, home)


def _weakened(
    base: CommitFiles, path: Path
) -> tuple[tuple[WeakenedCheck, ...], tuple[str, ...]]:
    """Return the checks that the checkout's files weaken compared with the base's, and a note if
    they could not be compared."""
    try:
        before = base.spec()
        if before is None:
            return (), (
                f"the base has no {base.name}, so weakened checks are not listed",
            )
        old_baseline = base.baseline()
    except GateError as error:
        note = "the base's own spec or baseline cannot be read, so weakened checks are not listed"
        return (), (f"{note}: {error}",)
    lines = key_lines(path)
    name = os.path.basename(base.name)

    def line_of(key: KeyPath) -> Location:
        parts = range(len(key), 0, -1)
        return Location(
            name, next((lines[key[:n]] for n in parts if key[:n] in lines), 0)
        )

    # Read the file itself: the command line's overrides do not weaken the committed spec.
    head = resolve(load_spec(path)).spec
    baseline = read_baseline(path.parent / FILE_NAME)
    return weakened(before.spec, head, old_baseline, baseline, line_of), ()
