"""A report.json read back into a Report, so that a report of another run (or of another version) goes through the same renderers as our
own. What it says is still an untrusted: it is
shown, never believed. The config hash is carried as it is claimed; whoever builds on it hashes it again (`baseline.document.from_json`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from repro_gate.baseline.config_hash import PLATFORM, RECIPE, ChangedInput, ConfigHash, SelfCheck
from repro_gate.baseline.model import AgainstFinding, BaselineFinding
from repro_gate.checks.interface import CheckResult
from repro_gate.compare.model import KINDS, Comparison, Cost, Distance, Divergence, Fingerprint, NoiseFloor, Tally
from repro_gate.report.json_reader import ReportError
from repro_gate.report.model import BaseFinding, Origin, Reason, Report, RunSummary, SeedResult, Subject, WeakenedCheck
from repro_gate.spec.model import Tolerance

_LARGEST = 10**30  # no count reaches it, and every float holds it
_DISTANCES = ("max_abs", "max_ulp", "l2", "relative_l2")


def report_from(document: Mapping[str, Any]) -> Report:
    """The Report that a valid document tells of: `to_json` of it is the document again, as far as that was not cut short.

    Raises ReportError for a figure that no gate run can give, and for a document that does not follow the schema.
    """
    try:
        return _report(document)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError) as error:
        # A valid document does not get here; one that was never compared with the schema must not end in a stack trace.
        raise ReportError(f"not a report of this version: {type(error).__name__}", remedy="validate it with the schema first") from None


def _report(document: Mapping[str, Any]) -> Report:
    found, cost = document["determinism"], document["cost"]
    return Report(
        verdict=document["verdict"],
        tool_version=document["tool_version"],
        started=document["started"],
        seconds=_float(document["seconds"]),
        subject=_subject(document["subject"]),
        reasons=_reasons(document["reasons"]),
        notes=_reasons(document["notes"]),
        comparisons=() if found is None else _comparisons(found),
        settings=_settings(document),
        non_finite=() if found is None else tuple((_int(row["step"]), row["value"]) for row in found.get("non_finite", ())),
        noise_floor=None if document["noise_floor"] is None else _noise(document["noise_floor"]),
        cost=None if cost is None else _cost(cost),
        cost_budget_pct=None if cost is None else _maybe(cost.get("max_percent")),
        checklist=tuple(_check(item) for item in document["checklist"]),
        runs=tuple(_run(item) for item in document["runs"]),
        fingerprint=_fingerprint(document.get("fingerprint")),
        tolerance=None if found is None else _tolerance(found.get("tolerance")),
        config_hash=_config_hash(document["config_hash"]),
        baseline=_baseline(document.get("baseline")),
        against=_against(document.get("against")),
        base=_base(document.get("base")),
        reproduce=document["reproduce"],
        origin=_origin(document.get("origin")),
    )


def _subject(given: Mapping[str, Any]) -> Subject:
    return Subject(
        spec=given["spec"],
        command=given["command"],
        commit=given["commit"],
        uncommitted=tuple(given.get("uncommitted", ())),
        seeds=tuple(_int(seed) for seed in given.get("seeds", ())),
        versions={name: value if isinstance(value, str) else json.dumps(value) for name, value in given.get("versions", {}).items()},
        isolation=given.get("isolation", "same-user"),
    )


def _settings(document: Mapping[str, Any]) -> Mapping[str, object]:
    """The flags of the deterministic runs; where these were not compared, those of the first of them."""
    if document["determinism"] is not None:
        return dict(document["determinism"]["determinism_settings"])
    return next((dict(run.get("settings", {})) for run in document["runs"] if run["arm"] == "deterministic"), {})


def _reasons(given: list[Any]) -> tuple[Reason, ...]:
    return tuple(Reason(item["id"], item["message"], item.get("remedy", "")) for item in given)


def _comparisons(given: Mapping[str, Any]) -> tuple[SeedResult, ...]:
    """Every seed, in order; the details are those of the first that diverged, else of the first. Raises ReportError where they are not."""
    shown = SeedResult(_int(given.get("seed", 0)), _comparison(given))
    seeds = [SeedResult(_int(row["seed"]), _comparison(row)) for row in given.get("seeds", ())]
    chosen = next((index for index, item in enumerate(seeds) if not item.comparison.identical), 0)
    if not shown.comparison.identical and all(item.comparison.identical for item in seeds):
        return (*seeds, shown)  # the only seed, or one beyond the rows that a document holds
    if not seeds:
        return (shown,)
    same = (seeds[chosen].seed, seeds[chosen].comparison.identical) == (shown.seed, shown.comparison.identical)
    if not same and "seed" in given:
        raise ReportError("/determinism/seeds: another seed is the first to tell of than the one that /determinism is about")
    return (*seeds[:chosen], shown, *seeds[chosen + 1 :])


def _comparison(given: Mapping[str, Any]) -> Comparison:
    tallies = given.get("by_kind", {})
    return Comparison(
        identical=given["identical"],
        steps=_int(given["steps"]),
        tensors=_int(given["tensors"]),
        differing=_int(given["differing"]),
        first_divergence=_divergence(given["first_divergence"]),
        by_kind={kind: Tally(_int(tallies[kind]["tensors"]), _int(tallies[kind]["differing"])) for kind in KINDS if kind in tallies},
        by_step=tuple((_int(row["step"]), _int(row["differing"])) for row in given.get("by_step", ())),
        losses=_losses(given.get("losses", ())),
        weights=tuple(item for item in map(_divergence, given.get("weights", ())) if item is not None),
    )


def _divergence(given: Mapping[str, Any] | None) -> Divergence | None:
    if given is None:
        return None
    far = {name: given.get(name) for name in _DISTANCES}
    distance = Distance(
        _maybe(far["max_abs"]), None if far["max_ulp"] is None else _int(far["max_ulp"]), _maybe(far["l2"]), _maybe(far["relative_l2"])
    )
    shape, values = given.get("shape"), given.get("values")
    return Divergence(
        step=_int(given["step"]),
        kind=given["kind"],
        name=given["name"],
        process=given.get("process", "main"),
        dtype=given.get("dtype"),
        shape=None if shape is None else tuple(_int(size) for size in shape),
        values=None if values is None else (values[0], values[1]),
        detail=given.get("detail", ""),
        distance=None if all(value is None for value in far.values()) else distance,
    )


def _losses(given: Any) -> tuple[tuple[int, float, float], ...]:
    return tuple((_int(step), _float(one), _float(other)) for step, one, other in given)


def _noise(given: Mapping[str, Any]) -> NoiseFloor:
    step = given.get("first_step")
    return NoiseFloor(
        identical=given.get("identical", False),
        loss_gap=_maybe(given["loss_gap"]),
        weight_l2=_maybe(given["weight_l2"]),
        weight_relative_l2=_maybe(given.get("weight_relative_l2")),
        first_step=None if step is None else _int(step),
        first_divergence=_divergence(given.get("first_divergence")),
        losses=_losses(given.get("losses", ())),
        reproducible_by=given.get("reproducible_by", ""),
    )


def _cost(given: Mapping[str, Any]) -> Cost:
    bounds, flags, none = given.get("memory_ci95"), given.get("deterministic_peak_bytes"), given.get("default_peak_bytes")
    return Cost(
        determinism_cost_pct=_float(given["determinism_cost_pct"]),
        ci95=(_float(given["ci95"][0]), _float(given["ci95"][1])),
        deterministic_step_ms=_float(given["deterministic_step_ms"]),
        default_step_ms=_float(given["default_step_ms"]),
        timed_steps=_int(given.get("timed_steps", 0)),
        memory_cost_pct=_maybe(given.get("memory_cost_pct")),
        deterministic_peak_bytes=None if flags is None else _int(flags),
        default_peak_bytes=None if none is None else _int(none),
        suspicious=given.get("suspicious"),
        steps_needed=None if given.get("steps_needed") is None else _int(given["steps_needed"]),
        memory_ci95=None if bounds is None else (_float(bounds[0]), _float(bounds[1])),
    )


def _check(given: Mapping[str, Any]) -> CheckResult:
    evidence = tuple(given.get("evidence", ()))
    return CheckResult(given["id"], given["category"], given["status"], given["message"], evidence, given.get("remedy", ""))


def _run(given: Mapping[str, Any]) -> RunSummary:
    return RunSummary(
        name=given["name"],
        arm=given["arm"],
        seed=_int(given["seed"]),
        steps=_int(given["steps"]),
        seconds=_float(given["seconds"]),
        exit_code=None if given["exit_code"] is None else _int(given["exit_code"]),
        outcome=given["outcome"],
        processes=_int(given.get("processes", 1)),
        settings=dict(given.get("settings", {})),
        log_tail=tuple(given.get("log_tail", ())),
        artifacts=_int(given.get("artifacts", 0)),
    )


def _fingerprint(given: Mapping[str, Any] | None) -> Fingerprint | None:
    if given is None:
        return None
    rows = tuple((_int(step), digest) for step, digest in given["by_step"])
    return Fingerprint(_int(given["seed"]), rows, {kind: given["by_kind"][kind] for kind in KINDS if kind in given["by_kind"]})


def _tolerance(given: Mapping[str, Any] | None) -> Tolerance | None:
    return None if given is None else Tolerance(_float(given["loss"]), _float(given["weights"]))


def _config_hash(given: Mapping[str, Any] | None) -> ConfigHash | None:
    if given is None:
        return None
    self_check = given.get("self_check")
    return ConfigHash(
        config_hash=given["config_hash"],
        recipe=given[RECIPE],
        platform=given[PLATFORM],
        recipe_inputs=dict(given["inputs"][RECIPE]),
        platform_inputs=dict(given["inputs"][PLATFORM]),
        self_check=None if self_check is None else SelfCheck(self_check["stable"], _int(self_check["inputs"]), _int(self_check["covered"])),
    )


def _moves(given: Any) -> tuple[ChangedInput, ...]:
    return tuple(ChangedInput(item["root"], item["name"], item["before"], item["after"]) for item in given)


def _baseline(given: Mapping[str, Any] | None) -> BaselineFinding | None:
    if given is None:
        return None
    return BaselineFinding(
        status=given["status"],
        message=given["message"],
        changed_inputs=_moves(given.get("changed_inputs", ())),
        unlike=tuple(given.get("unlike", ())),
        loss_gap=_maybe(given.get("loss_gap")),
        outside=tuple(given.get("outside", ())),
        recorded=given.get("recorded", ""),
        remedy=given.get("remedy", ""),
        unknown_recipe=given.get("unknown_recipe") is True,
    )


def _against(given: Mapping[str, Any] | None) -> AgainstFinding | None:
    if given is None:
        return None
    return AgainstFinding(
        ref=given["ref"],
        commit=given["commit"],
        status=given["status"],
        message=given["message"],
        changed_inputs=_moves(given.get("changed_inputs", ())),
        first_divergence=_divergence(given.get("first_divergence")),
        loss_gap=_maybe(given.get("loss_gap")),
    )


def _base(given: Mapping[str, Any] | None) -> BaseFinding | None:
    if given is None:
        return None
    weakened = tuple(WeakenedCheck(item["key"], item["message"], item.get("where", "")) for item in given["weakened"])
    return BaseFinding(given["ref"], given["commit"], given["policy"], weakened)


def _origin(given: Mapping[str, Any] | None) -> Origin | None:
    if given is None:
        return None
    return Origin(given["repository"], given["head_sha"], _int(given["run_id"]), _int(given["run_attempt"]), given.get("name", ""))


def _int(value: Any) -> int:
    """JSON Schema counts `3.0` as an integer. Raises ReportError for one that no gate run gives, which arithmetic might stumble over."""
    if abs(value) > _LARGEST:
        raise ReportError(f"a number beyond {_LARGEST:.0e}, which no count reaches")
    return int(value)


def _float(value: Any) -> float:
    """A number, or one of the texts that stand for what is none: `nan`, `inf`, `-inf`."""
    return float(value)


def _maybe(value: Any) -> float | None:
    return None if value is None else _float(value)
