"""The Report as JSON: `report.json` by its published schema (`schema.json` beside this file).
 What is written here always passes `json_reader`, whose names stand here too: one
import is enough for whoever writes reports or reads foreign ones.
"""

from __future__ import annotations

from itertools import islice
from typing import Any

from repro_gate.baseline import document
from repro_gate.baseline.config_hash import ROOTS, ConfigHash
from repro_gate.baseline.model import AgainstFinding, BaselineFinding
from repro_gate.compare.model import Comparison, Cost, Divergence
from repro_gate.report.json_values import plain, plain_document, to_text
from repro_gate.report.model import BaseFinding, Report, SeedResult

SCHEMA_ID = "repro-gate/report/v1"
_ROWS = {  # the `maxItems` of the schema
    "by_step": 10_000,
    "losses": 10_000,
    "weights": 1_000,
    "reasons": 1_000,
    "checklist": 1_000,
    "runs": 1_000,
    "names": 1_000,
    "changed_inputs": 1_000,
    "weakened": 1_000,
    "log_tail": 200,
    "evidence": 500,
}


def to_json(report: Report) -> dict[str, Any]:
    """The document of `schema.json`. A part that was not measured is None; NaN and infinities are the strings `nan`, `inf` and `-inf`.

    Lists keep their first entries up to the limits of the schema; the totals beside them always count everything.
    """
    fields = {
        "schema": SCHEMA_ID,
        "verdict": report.verdict,
        "tool_version": report.tool_version,
        "started": report.started,
        "seconds": report.seconds,
        "subject": {**vars(report.subject), "uncommitted": _first("names", report.subject.uncommitted)},
        "reasons": [vars(item) for item in _first("reasons", report.reasons)],
        "notes": [vars(item) for item in _first("reasons", report.notes)],
        "determinism": _determinism(report),
        "diagnosis": None,
        "noise_floor": None
        if report.noise_floor is None
        else {
            **vars(report.noise_floor),
            "first_divergence": _divergence(report.noise_floor.first_divergence),
            "losses": _first("losses", report.noise_floor.losses),
        },
        "cost": _cost(report.cost, report.cost_budget_pct),
        "checklist": [{**vars(item), "evidence": _first("evidence", item.evidence)} for item in _first("checklist", report.checklist)],
        "config_hash": None,
        "baseline": _baseline(report.baseline),
        "against": _against(report.against),
        "base": _base(report.base),
        "runs": [{**vars(run), "log_tail": run.log_tail[-_ROWS["log_tail"] :]} for run in _first("runs", report.runs)],
        "fingerprint": None
        if report.fingerprint is None
        else {**vars(report.fingerprint), "by_step": _first("by_step", report.fingerprint.by_step)},
        "reproduce": report.reproduce,
        "origin": None if report.origin is None else vars(report.origin),
    }
    return {**plain_document(fields), "config_hash": _config_hash(report.config_hash)}


def comparison_to_json(pair: Comparison) -> dict[str, Any]:
    """One comparison by itself, as `repro-gate compare --json` writes it: the fields of `determinism` that two runs alone can have."""
    fields = {
        **_tallies(pair),
        "by_kind": {kind: vars(tally) for kind, tally in pair.by_kind.items()},
        "weights": [_divergence(item) for item in _first("weights", pair.weights)],
        "losses": _first("losses", pair.losses),
    }
    return plain_document(fields)


def dumps(report: Report) -> str:
    """`to_json` as text: keys sorted, two spaces, ASCII (so that `cat` is safe), no NaN token, never longer than `load` will read."""
    return to_text(to_json(report))


def _determinism(report: Report) -> dict[str, Any] | None:
    found = report.determinism
    if found is None:
        return None
    pair = found.comparison
    counted = sum(run.arm == "deterministic" and run.seed == found.seed for run in report.runs)
    return {
        **_tallies(pair),
        "seed": found.seed,
        "tolerance": None if report.tolerance is None else vars(report.tolerance),
        "losses": _first("losses", pair.losses),
        "runs": max(counted, 2),
        "by_kind": {kind: vars(tally) for kind, tally in pair.by_kind.items()},
        "by_step": [{"step": step, "differing": differing} for step, differing in _first("by_step", pair.by_step)],
        "weights": [_divergence(item) for item in _first("weights", pair.weights)],
        "seeds": [_seed(item) for item in _first("runs", report.comparisons)],
        "determinism_settings": dict(report.settings),
        "non_finite": [{"step": step, "value": value} for step, value in _first("names", report.non_finite)],
    }


def _tallies(pair: Comparison) -> dict[str, Any]:
    return {
        "identical": pair.identical,
        "steps": pair.steps,
        "tensors": pair.tensors,
        "differing": pair.differing,
        "first_divergence": _divergence(pair.first_divergence),
    }


def _seed(result: SeedResult) -> dict[str, Any]:
    return {"seed": result.seed, **_tallies(result.comparison)}


def _divergence(item: Divergence | None) -> dict[str, Any] | None:
    """One divergence, its distances beside its name rather than a level deeper."""
    if item is None:
        return None
    far = {"max_abs": None, "max_ulp": None, "l2": None, "relative_l2": None} if item.distance is None else vars(item.distance)
    return {**{key: value for key, value in vars(item).items() if key != "distance"}, **far}


def _cost(price: Cost | None, budget: float | None) -> dict[str, Any] | None:
    return None if price is None else {**vars(price), "max_percent": budget}


def _config_hash(hashed: ConfigHash | None) -> Any:
    """The form of `baseline.document`, input by input what is hashed, so that whoever reads it can hash it again. Not clipped where a
    reader takes it whole."""
    if hashed is None:
        return None
    fields = document.to_json(hashed)
    inputs = {root: dict(islice(fields["inputs"][root].items(), document.MAX_INPUTS)) for root in ROOTS}
    return plain({**fields, "inputs": inputs}, characters=document.MAX_VALUE)


def _baseline(found: BaselineFinding | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        **vars(found),
        "changed_inputs": [vars(item) for item in _first("changed_inputs", found.changed_inputs)],
        "unlike": _first("names", found.unlike),
        "outside": _first("names", found.outside),
    }


def _against(found: AgainstFinding | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        **vars(found),
        "changed_inputs": [vars(item) for item in _first("changed_inputs", found.changed_inputs)],
        "first_divergence": _divergence(found.first_divergence),
    }


def _base(found: BaseFinding | None) -> dict[str, Any] | None:
    return None if found is None else {**vars(found), "weakened": [vars(item) for item in _first("weakened", found.weakened)]}


def _first(kind: str, rows: tuple[Any, ...]) -> tuple[Any, ...]:
    return rows[: _ROWS[kind]]
