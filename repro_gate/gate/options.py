"""What the caller of the gate asks for besides the spec. Built by `cli`, and held by the `Job`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from repro_gate.sandbox.identity import Sandbox


@dataclass(frozen=True, kw_only=True)
class Options:
    """Every field has the default of a bare `repro-gate run`. `overrides`, `seed` and `steps` are
    laid over whichever spec judges."""

    spec_as_given: str = "repro.yml"
    overrides: tuple[str, ...] = ()  # `key=value`, as given on the command line
    seed: int | None = None
    steps: int | None = None
    # the ref that the change is to be merged into; None: no base is known
    base: str | None = None
    # whose spec judges, `head` or `base`; None: what the base branch's spec says
    policy: str | None = None
    against: str | None = None  # a ref that is gated in the same call
    fail_fast: bool = False
    only: str = ""  # the section of the spec that is looked at beside one pair of runs
    keep_traces: Path | None = None
    # take the digests of data that has not changed since they were made
    cache: bool = True
    # where the environments of `env.install` are kept; None: where this user's caches lie
    cache_root: Path | None = None
    record_baseline: bool = False  # write a baseline entry; the old one does not judge
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    # who the training runs as: what `sandbox.choosing.choose` said
    sandbox: Sandbox = field(default_factory=Sandbox)
