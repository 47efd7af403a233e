"""The check `data/splits`: training and evaluation draw other records."""

from __future__ import annotations

from dataclasses import replace

import pytest

from repro_gate.checks.data import splits_disjoint
from repro_gate.checks.interface import CheckResult
from repro_gate.trace.model import LoaderSeen, Records, Trace
from tests.support.built_traces import evidence, records, run, spec, training


def judged(*drawn: Records, profile: str = "basic") -> CheckResult:
    """The check's result for one process that drew these."""
    observed = run("default-1", replace(training(), records=list(drawn)))
    return splits_disjoint(
        evidence(spec=spec(profile=profile), runs=(run("deterministic-1", training()), observed))
    )


@pytest.mark.parametrize(("profile", "status"), [("basic", "warn"), ("strict", "fail")])
def test_records_in_both_splits_are_counted_by_loader(profile: str, status: str) -> None:
    found = judged(
        records(0, "train", range(100)), records(1, "evaluation", range(90, 130)), profile=profile
    )
    assert found.status == status
    assert (
        found.message
        == "10 records were drawn both for training (100 records of loader 0) and for evaluation"
    )
    assert found.evidence == ("loader 1: 10 of 40 records (25 %) were drawn for training too",)
    assert "split by record" in found.remedy


def test_disjoint_splits_pass() -> None:
    found = judged(
        records(0, "train", range(100)),
        records(1, "evaluation", range(100, 140)),
        records(2, "evaluation", range(200, 210)),
    )
    assert (found.status, found.message) == (
        "pass",
        "50 records of 2 evaluation loaders share none with 100 records of loader 0",
    )


def test_a_loader_over_the_training_set_itself_holds_nothing_out() -> None:
    def seen(*datasets: int | None, drawn: tuple[Records, ...]) -> CheckResult:
        loaders = [LoaderSeen(number, 0, 1, dataset) for number, dataset in enumerate(datasets)]
        observed = run("deterministic-1", replace(training(), records=list(drawn), loaders=loaders))
        return splits_disjoint(evidence(spec=spec(profile="strict"), runs=(observed,)))

    # the steps were cut: training drew some records of its set, the pass over that set drew others
    # too
    drawn = (records(0, "train", range(50)), records(1, "evaluation", range(40, 90)))
    found = seen(7, 7, drawn=drawn)
    assert (found.status, found.message) == (
        "skip",
        "only training drew from a torch DataLoader, and an evaluation of the training set itself",
    )
    assert seen(7, 8, drawn=drawn).status == "fail", "another set with the same records"
    assert seen(None, None, drawn=drawn).status == "fail", "parts of one set that overlap"
    beside = seen(7, 7, 9, drawn=(*drawn, records(2, "evaluation", range(200, 210))))
    assert beside.status == "pass" and beside.evidence == (
        "loader 1: draws the training set itself, which measures how well it is fitted",
    )
    assert seen(7, 7, 9, drawn=(*drawn, records(2, "evaluation", range(49, 60)))).status == "fail"


def test_a_loader_that_measures_the_fit_on_training_data_beside_a_clean_one_passes() -> None:
    drawn = (
        records(0, "train", range(100)),
        records(1, "evaluation", range(100)),
        records(2, "evaluation", range(200, 210)),
    )
    found = judged(*drawn, profile="strict")
    assert (found.status, found.evidence) == (
        "pass",
        ("loader 1: 100 of 100 records (100 %) were drawn for training too",),
    )
    assert judged(*drawn[:2], profile="strict").status == "fail"
    assert (
        judged(*drawn[:2], records(2, "evaluation", range(99, 210)), profile="strict").status
        == "fail"
    )


def test_every_rank_counts() -> None:
    def rank(number: int, *drawn: Records) -> Trace:
        return replace(training(key=f"rank{number}"), records=list(drawn))

    one = rank(0, records(0, "train", range(50)), records(1, "evaluation", range(100, 105)))
    two = rank(1, records(0, "train", range(50, 102)), records(1, "evaluation", range(105, 110)))
    found = splits_disjoint(evidence(runs=(run("deterministic-1", one, two),)))
    assert (found.status, found.evidence) == (
        "warn",
        ("rank0: loader 1: 2 of 5 records (40 %) were drawn for training too",),
    )


def test_what_the_probe_did_not_keep_is_said() -> None:
    clean = judged(
        records(0, "train", range(9), whole=False), records(1, "evaluation", range(20, 29))
    )
    assert (clean.status, clean.evidence) == (
        "pass",
        ("loader 0: not every record was kept; the others were not compared",),
    )


@pytest.mark.parametrize(
    ("drawn", "message"),
    [
        ((), "no record came through a torch DataLoader"),
        ((records(0, "train", range(3)),), "only training drew from a torch DataLoader"),
        ((records(0, "evaluation", range(3)),), "only evaluation drew from a torch DataLoader"),
        (
            (records(0, "train", range(3)), records(1, "evaluation", ())),
            "only training drew from a torch DataLoader",
        ),
    ],
)
def test_without_both_splits_nothing_is_compared(drawn: tuple[Records, ...], message: str) -> None:
    found = judged(*drawn)
    assert (found.status, found.message) == ("skip", message)
