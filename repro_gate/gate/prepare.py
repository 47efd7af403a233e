"""Prepares a gate run before any training: decides whose spec judges, reads this machine, resolves
the ref of `--against`, and creates the folder of the runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from time import monotonic, time

from repro_gate._version import DOCS_URL
from repro_gate.checkout.inspection import Checkout, inspect_checkout
from repro_gate.errors import UsageError, obeyed
from repro_gate.gate.base_policy import EffectivePolicy, effective_policy
from repro_gate.gate.options import Options
from repro_gate.gate.preflight import Facts, look, preflight, require_scripts
from repro_gate.gate.resolve import OtherRef, other_ref
from repro_gate.install.install import environments_root, installed
from repro_gate.report.model import Reason
from repro_gate.runs.gate_folder import open_gate_folder
from repro_gate.runs.progress import Watch
from repro_gate.runs.workspaces import GateFolder
from repro_gate.spec.model import (
    CostBudget,
    OperatorsBudget,
    RandomState,
    Robustness,
    Spec,
)


@dataclass(frozen=True, kw_only=True)
class Job:
    """One gate run, prepared."""

    options: Options
    watch: Watch
    checkout: Checkout
    policy: EffectivePolicy
    facts: Facts  # of this machine
    notes: tuple[Reason, ...]  # of the preflight
    other: OtherRef | None
    started: datetime
    clock: float  # when it started, by the monotonic clock

    @property
    def spec(self) -> Spec:
        """Return the spec that judges, resolved."""
        return self.policy.spec


def prepare(written: Spec, options: Options, watch: Watch) -> Job:
    """Prepare a gate run. Raises GateError if it cannot start; later problems are in the report."""
    started = datetime.now(timezone.utc)
    clock = monotonic()
    checkout = inspect_checkout(written.path.parent)
    policy = effective_policy(written, checkout, options)
    spec = policy.spec
    if options.only or options.record:
        spec = narrowed(spec, options.only)
    left_out: tuple[Reason, ...] = ()
    if options.quick:
        left_out = tuple(_left_out(spec))
        spec = _quick(spec)
    if options.operators and spec.operators is None:
        spec = replace(spec, operators=OperatorsBudget())
    facts = look()
    job = Job(
        options=options,
        watch=watch,
        checkout=checkout,
        policy=replace(policy, spec=spec),
        facts=facts,
        notes=(*left_out, *preflight(spec, options.environment, facts)),
        other=other_ref(spec, checkout, options),
        started=started,
        clock=clock,
    )
    require_scripts(spec, checkout)
    return job


def narrowed(spec: Spec, section: str) -> Spec:
    """Return the spec reduced to one pair of runs and this section, without measuring cost and
    without varying the second run; without a section, to one run. Raises UsageError if the spec
    lacks the section."""
    if section and not getattr(spec, section):
        raise UsageError(
            f"--only {section}: {spec.path.name} has no section `{section}`",
            remedy=f"add it: {DOCS_URL}/repro-yml.md#{section}",
        )
    return replace(
        spec,
        random_state=RandomState(spec.random_state.seeds[:1]),
        determinism=replace(spec.determinism, repeat=2 if section else 1),
        robustness=Robustness(vary=()),
        cost=CostBudget(measure=False),
        resume=spec.resume if section == "resume" else None,
        equivalent=spec.equivalent if section == "equivalent" else (),
        operators=None,
    )


def _quick(spec: Spec) -> Spec:
    """Return the spec reduced to one pair of runs, of which the second is varied, and the reseeded
    control."""
    return replace(
        narrowed(spec, ""),
        determinism=replace(spec.determinism, repeat=2),
        robustness=spec.robustness,
        diagnosis=None,
        effect=None,
    )


def _left_out(spec: Spec) -> Iterator[Reason]:
    """Yield a note of what `--quick` leaves out of a spec, unless that is nothing."""
    asked = {
        "the noise floor and the cost": spec.cost.measure,
        "why runs diverge": spec.diagnosis,
        "further seeds": spec.random_state.seeds[1:],
        "further repeats": spec.determinism.repeat > 2,
        "resume": spec.resume,
        "other ways to the same training": spec.equivalent,
        "operators": spec.operators,
    }
    if names := [name for name, value in asked.items() if value]:
        what = ", ".join(names)
        message = f"a quick look: without `--quick` the gate looks at {what} too"
        yield Reason("run/quick", message)


@contextlib.contextmanager
def gate_folder(job: Job) -> Iterator[GateFolder]:
    """Open the folder of the runs. If the spec has `env.install`, install the lockfile first, which
    runs untrusted code too."""
    spec = job.spec
    root = job.checkout.root
    options = job.options
    tell = job.watch.said
    outer = options.environment
    sandbox = options.sandbox
    installs = spec.env.install or (
        job.other is not None and job.other.spec.env.install
    )
    reach = [environments_root(outer, options.cache_root, sandbox)] if installs else []
    if job.other is not None and job.other.python is not None:
        reach.append(job.other.python.parent.parent)
    with (
        open_gate_folder(spec, job.checkout, outer, sandbox, reach, tell) as folder,
        installed(
            spec, root, outer, sandbox, cache_root=options.cache_root, tell=tell
        ) as outer,
        obeyed(),
    ):
        yield replace(folder, outer=outer, began=time())
