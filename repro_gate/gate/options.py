"""The options of a gate run that are not in the spec. `cli` builds them; the `Job` holds them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from repro_gate.sandbox.identity import Sandbox


@dataclass(frozen=True, kw_only=True)
class Options:
    """Every default is that of `repro-gate run` without options. `overrides`, `seed` and `steps`
    override the spec that judges, the base's too."""

    spec_as_given: str = "repro.yml"
    overrides: tuple[str, ...] = ()  # `key=value`, as given on the command line
    seed: int | None = None
    steps: int | None = None
    # the ref that the change is to be merged into; None: no base is known
    base: str | None = None
    # whose spec judges, `head` or `base`; None: what the base branch's spec says
    policy: str | None = None
    against: str | None = None  # a ref to run in the same gate run and compare with
    against_env: str | None = None  # an environment to run this checkout in and compare
    fail_fast: bool = False
    only: str = ""  # the only section of the spec to run, after one pair of runs
    quick: bool = False  # one pair of runs and the control alone
    record: bool = False  # one deterministic run alone: nothing is compared
    operators: bool = False  # measure them, even if the spec does not ask for it
    keep_traces: Path | None = None
    # reuse the digests of data files that have not changed
    cache: bool = True
    # the folder for environments of `env.install`; None: this user's cache folder
    cache_root: Path | None = None
    record_baseline: bool = False  # write a baseline entry; the old one does not judge
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    # the user that the training runs as
    sandbox: Sandbox = field(default_factory=Sandbox)
