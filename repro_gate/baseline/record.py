"""What one gate run leaves in the baseline: digests of what its runs ended with, and the facts that
are no inputs of the config hash.

The digests do not depend on `capture.every`, which is not part of the config hash: losses are
recorded at every step whatever it says, and of weights and optimizer state only what was digested
last of all counts, which the probe does at the end of every run.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from repro_gate.baseline.config_hash import ConfigHash, hashable
from repro_gate.baseline.model import MAX_CURVE, Entry, Loss, RecordedResult
from repro_gate.compare.artifacts import Artifact
from repro_gate.compare.distances import losses_of
from repro_gate.compare.model import TimedArm
from repro_gate.compare.traces import processes
from repro_gate.machine import PASSING
from repro_gate.runs.flags import VARIABLES
from repro_gate.runs.launch import RunResult
from repro_gate.trace.model import Trace

MAX_FACT = 500  # characters of one fact

_Row = Sequence[object]  # plain JSON
# variables that are of one run or one process, or inputs already (threads)
_OF_ONE_RUN = (
    "PL_GLOBAL_SEED",
    "PL_SEED_WORKERS",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "RANK",
    "LOCAL_RANK",
    *VARIABLES,
)
# the temporary folder of one gate run
_TEMPORARY = re.compile(r"repro-gate-(?:[A-Za-z0-9_]{8}|\d+-\d+)(/|$)")


def entry_of(
    hashed: ConfigHash,
    results: Sequence[RecordedResult],
    outside: Mapping[str, str],
    now: str,
    version: str,
    step_times: Mapping[TimedArm, tuple[float, ...]],
) -> Entry:
    """Return what a gate run leaves in the baseline. `now` is UTC, ISO 8601 to the second,
    `version` this tool's, `step_times` as in Entry."""
    return Entry(
        **msgspec.structs.asdict(hashed),
        recorded=now,
        tool_version=version,
        outcomes=tuple(sorted(results, key=lambda result: result.seed)),
        outside=_readable(outside),
        step_times={
            arm: tuple(float(f"{time:.6g}") for time in times)
            for arm, times in step_times.items()
        },
    )


def result_of(run: RunResult, artifacts: Mapping[str, Artifact]) -> RecordedResult:
    """Return what a run that came to its end left behind; `artifacts` by their names, those that
    could be read."""
    traces = processes(run.traces)
    files = {}
    for path, artifact in artifacts.items():
        leaves = (
            [name, leaf.kind, leaf.dtype, leaf.shape, leaf.digest]
            for name, leaf in artifact.leaves.items()
        )
        first = ["", artifact.format, artifact.structure]
        files[path] = str(_digest("artifact", [first, *leaves]))
    return RecordedResult(
        seed=run.request.arm.seed,
        steps=run.steps,
        losses=_digest("losses", _final(traces, "loss")),
        weights=_digest("weights", _final(traces, "parameter", "buffer")),
        optimizer=_digest("optimizer", _final(traces, "optimizer")),
        artifacts=_readable(files),
        loss_curve=loss_curve(first_losses(run)),
    )


def first_losses(run: RunResult) -> dict[int, float]:
    """Return step -> loss of the first process of a run."""
    return next(map(losses_of, processes(run.traces).values()), {})


def loss_curve(losses: Mapping[int, float]) -> dict[int, Loss]:
    """Return at most `MAX_CURVE` of the losses: every n-th, with n a power of two so that runs of
    different length share steps, and the last."""
    steps = sorted(losses)
    stride = 1
    while len(steps) - 1 > stride * (MAX_CURVE - 1):
        stride *= 2
    return {step: plain(losses[step]) for step in (*steps[:-1:stride], *steps[-1:])}


def plain(value: float) -> Loss:
    """Return a number as the baseline has it: what is not finite is text."""
    return value if math.isfinite(value) else str(value)  # type: ignore[return-value]


def outside_facts(run: RunResult, machine: Mapping[str, str]) -> dict[str, str]:
    """Return facts by name, sorted: `distribution/numpy` for what was imported,
    `variable/CUDA_MODULE_LOADING` for what torch or CUDA read from the environment (without flags,
    which are inputs, and without what is of one run or one process), and what `read_machine` says
    of the machine as far as it is no input: `kernel`, `libc`, `os`, on a GPU `cpu-model` and
    `gpu.0.ecc`. A fact on which the processes of the run do not agree is left out.
    """
    facts = defaultdict(set)
    inputs = r"driver|gpu\..*|cpu-model"
    for trace in processes(run.traces).values():
        for name, version in (trace.distributions or {}).items():
            facts[f"distribution/{name}"].add(version)
        for name, value in trace.variables.items():
            if name not in _OF_ONE_RUN and not _TEMPORARY.search(value):
                facts[f"variable/{name}"].add(value)
        if trace.facts.get("device", "").startswith("cuda"):
            inputs = rf"driver|gpu\..*\.model|{PASSING}"
    for name, value in machine.items():
        if not re.fullmatch(inputs, name):
            facts[name].add(value)
    return {
        name: values.pop()[:MAX_FACT]
        for name, values in sorted(facts.items())
        if len(values) == 1
    }


def _readable(texts: Mapping[str, str]) -> dict[str, str]:
    """Return names and texts as they are read back, sorted: no text in UTF-8 holds a byte that is
    none."""
    return {
        str(hashable(name)): str(hashable(text)) for name, text in sorted(texts.items())
    }


def _final(traces: Mapping[str, Trace], *kinds: str) -> Iterator[_Row]:
    """Yield a row for each quantity of these kinds, with its digest in the last step that recorded
    one of its name.

    Where torch's hooks recorded, `capture.every` decides which steps did; what was digested at the
    very end is there whatever it says.
    """
    for label, trace in traces.items():
        ends = [block.step for block in trace.blocks if block.kind == "parameter"]
        is_hooked = any(block.kind == "gradient" for block in trace.blocks)
        latest = dict[tuple[str, str], tuple[int, list[_Row]]]()
        for block in trace.blocks:
            at_end = block.kind == "loss" or not is_hooked or block.step in ends[-1:]
            if block.kind not in kinds or not at_end:
                continue
            for place, (name, dtype, shape) in enumerate(block.rows):
                key = block.kind, name
                if key not in latest or latest[key][0] != block.step:
                    latest[key] = block.step, []
                rows = latest[key][1]
                rows.append(
                    [label, *key, len(rows), dtype, shape, block.digest(place).hex()]
                )
        for _, rows in latest.values():
            yield from rows


def _digest(what: str, rows: Iterable[_Row]) -> str | None:
    """Return `sha256:…` over the rows, whatever their order; the name of what is digested and its
    version go in first. None for no rows."""
    lines = sorted(json.dumps(row, separators=(",", ":")) for row in rows)
    if not lines:
        return None
    text = "".join(f"{line}\n" for line in [f"repro-gate/outcome/{what}/v1", *lines])
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
