"""Traces, runs and evidence of small synthetic trainings: what the tests of analysis, checks,
verdict and progress stand on."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from repro_gate.checkout.inspection import Checkout
from repro_gate.checks.interface import Evidence
from repro_gate.runs import arms
from repro_gate.runs.arms import Arm
from repro_gate.runs.launch import RunRequest, RunResult
from repro_gate.runs.process import Ended
from repro_gate.runs.reading import ArtifactReader
from repro_gate.runs.results import Results
from repro_gate.spec.model import Checklist, Spec, Train
from repro_gate.trace.blocks import Block
from repro_gate.trace.fields import Measured, Row
from repro_gate.trace.model import StepMark, Trace

ROWS: Mapping[str, tuple[Row, ...]] = {
    "batch": (("images", "float32", (4, 8)), ("labels", "int64", (4,))),
    "rng": (("python", "state", ()), ("torch", "uint8", (5056,))),
    "loss": (("loss", "float32", ()),),
    "gradient": (("fc.weight", "float32", (2, 8)), ("fc.bias", "float32", (2,))),
    "parameter": (("fc.weight", "float32", (2, 8)), ("fc.bias", "float32", (2,))),
    "optimizer": (("fc.weight.exp_avg", "float32", (2, 8)),),
    "buffer": (("norm.running_mean", "float32", (8,)),),
}
ORDER = tuple(ROWS)  # in which one step records
FACTS = {"python": "3.12.7", "torch": "2.13.0", "device": "cpu: AVX2", "cuda": "none"}
FACTS |= {"gpus": "0", "threads": "2", "processors": "2"}


def digest(*parts: object) -> bytes:
    return hashlib.sha256(repr(parts).encode()).digest()[:16]


def block(
    step: int,
    kind: str,
    rows: Sequence[Row] | None = None,
    at: int = 0,
    seed: object = 42,
    values: Sequence[float] = (),
) -> Block:
    """One block whose digests follow from what it is and from the seed."""
    rows = ROWS[kind] if rows is None else tuple(rows)
    return Block(
        step=step,
        kind=kind,
        at=at,
        rows=rows,
        content=b"".join(digest(seed, step, kind, at, row[0]) for row in rows),
        values=tuple(value.hex() for value in values),
    )


def training(
    steps: int = 3,
    *,
    key: str = "main",
    seed: object = 42,
    times: Sequence[float] = (),
    facts: Mapping[str, str] = FACTS,
    settings: Mapping[str, Any] | None = None,
) -> Trace:
    """One process that trained: initial parameters, then every kind at every step; the loss of step
    s is 1 / (s + 1)."""
    blocks = [block(-1, "parameter", seed=seed)]
    for step in range(steps):
        blocks += [
            block(step, kind, seed=seed, values=(1.0 / (step + 1),) if kind == "loss" else ())
            for kind in ORDER
        ]
    took = times[:steps] or [10.0] * steps
    marks = [StepMark(step, ms, 0.1, 1 << 20, 0) for step, ms in enumerate(took)]
    empty = Trace(path=Path(f"1-{key}.trace.jsonl"), pid=1, key=key, end="exit")
    read_back = [dict(settings or {})]
    return replace(empty, facts=dict(facts), blocks=blocks, steps=marks, settings=read_back)


def timed(times: Sequence[float], key: str = "main", peak: int = 1 << 20) -> Trace:
    """One process of which only step times and peak memory matter."""
    marks = [StepMark(step, ms, 0.0, peak, 0) for step, ms in enumerate(times)]
    path = Path(f"1-{key}.trace.jsonl")
    return Trace(path=path, key=key, steps=marks, settings=[{}], end="exit")


def changed(trace: Trace, place: int, change: Callable[[Block], Block | None]) -> Trace:
    """The trace with its block at `place` changed, or left out where the change gives None."""
    new = change(trace.blocks[place])
    instead = [] if new is None else [new]
    return replace(trace, blocks=[*trace.blocks[:place], *instead, *trace.blocks[place + 1 :]])


def flip(row: int) -> Callable[[Block], Block]:
    def flipped(old: Block) -> Block:
        before, after = old.digests[: row * 16], old.digests[(row + 1) * 16 :]
        return replace(old, content=before + digest("other", old.step, row) + after)

    return flipped


def place_of(trace: Trace, step: int, kind: str) -> int:
    return next(
        index for index, item in enumerate(trace.blocks) if (item.step, item.kind) == (step, kind)
    )


def with_loss(trace: Trace, step: int, value: float) -> Trace:
    place = place_of(trace, step, "loss")
    return changed(trace, place, lambda old: replace(flip(0)(old), values=(value.hex(),)))


def apart(
    trace: Trace,
    l2: float | None,
    max_abs: float | None,
    *,
    name: str = "fc.weight",
    kind: str = "parameter",
    norm: float | None = 2.0,
    max_ulp: int | None = 7,
) -> Trace:
    """The trace with one measured distance at its end."""
    [(dtype, shape)] = [row[1:] for row in ROWS[kind] if row[0] == name]
    far = {"max_abs": max_abs, "max_ulp": max_ulp, "l2": l2, "reference_l2": norm}
    step = len(trace.steps) - 1
    item = Measured(step=step, kind=kind, name=name, dtype=dtype, shape=shape, **far)
    return replace(trace, distances=[*trace.distances, item])


def arm(name: str = "deterministic", seed: int = 42) -> Arm:
    if name == "default":
        return arms.default(seed, None)
    if name == "reseeded":
        return arms.reseeded(seed, frozenset(), 2)
    return arms.deterministic(seed, frozenset(), None)


def run(
    name: str = "deterministic-1",
    *traces: Trace,
    outcome: str = "finished",
    problem: str = "",
    reason_id: str = "",
    tail: Sequence[str] = (),
    left: int = 0,
) -> RunResult:
    """What came of one run; its arm follows from its name."""
    code = 0 if outcome in ("finished", "stopped") else 1
    quiet: dict[str, Any] = {"timed_out": False, "out_of_memory": False}
    ended = Ended(
        exit_code=code, stopped="", seconds=1.5, tail=tuple(tail), left_running=left, **quiet
    )
    return RunResult(
        request=RunRequest(name=name, arm=arm(name.rpartition("-")[0] or name)),
        outcome=outcome,
        ended=ended,
        traces=traces,
        problem=problem,
        remedy="mend it" if problem else "",
        reason_id=reason_id,
    )


def results(*runs: RunResult, **fields: Any) -> Results:
    """What a series of these runs came to, without a folder and artifacts."""
    given: dict[str, Any] = {"spec": spec(), "folder": None, **fields}
    return Results(runs=runs, reader=ArtifactReader(given["spec"], given["folder"]), **given)


def spec(tmp_path: Path = Path("/nowhere"), *, profile: str = "basic", **sections: Any) -> Spec:
    """A spec with these sections, everything else at its default."""
    sections.setdefault("checklist", Checklist(profile))
    return Spec(path=tmp_path / "repro.yml", train=Train(run="python train.py"), **sections)


def evidence(**changes: Any) -> Evidence:
    """Evidence of a checkout at a clean commit, without runs unless given."""
    clean = "0123456789abcdef" + "0" * 24
    given: dict[str, Any] = {"spec": spec(), **changes}
    checkout = Checkout(
        root=Path(os.path.realpath(given["spec"].path.parent)),
        commit=given.pop("commit", clean),
        uncommitted=given.pop("uncommitted", ()),
    )
    return Evidence(**{"checkout": checkout, **given})
