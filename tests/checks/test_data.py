"""Category `data`: did both runs see the same bytes, and only declared ones?"""

from __future__ import annotations

from dataclasses import replace

import pytest

from repro_gate.analysis.compare import compare_runs
from repro_gate.checks.data import batches_equal, checksums, no_network, unchanged
from repro_gate.checks.interface import DataCheck
from repro_gate.spec.model import DataItem
from tests.analysis.builders import changed, evidence, flip, place_of, run, spec, training

DECLARED = (DataItem("train.bin", "a" * 64),)
RUNS = (run("deterministic-1", training()), run("deterministic-2", training()))
PROFILES = pytest.mark.parametrize(("profile", "status"), [("basic", "warn"), ("strict", "fail")])


@pytest.mark.parametrize(
    ("expected", "actual", "status"),
    [("a" * 64, "a" * 64, "pass"), ("a" * 64, "b" * 64, "fail"), ("a" * 64, None, "fail"), (None, None, "fail"), (None, "b" * 64, "warn")],
)
def test_data_is_what_the_spec_states(expected: str | None, actual: str | None, status: str) -> None:
    found = checksums(evidence(spec=spec(data=DECLARED), data=(DataCheck("train.bin", expected, actual, 3),)))
    assert found.status == status
    assert "train.bin" in found.evidence[0]


def test_data_without_a_checksum_fails_in_the_strict_profile() -> None:
    bare = evidence(spec=spec(profile="strict", data=DECLARED), data=(DataCheck("train.bin", None, "b" * 64, 3),))
    assert checksums(bare).status == "fail"
    assert checksums(evidence()).status == "skip"


def test_data_that_a_run_changed_fails() -> None:
    declared = evidence(spec=spec(data=DECLARED), runs=RUNS)
    assert unchanged(declared).status == "pass"
    assert unchanged(replace(declared, changed_data=("train.bin",))).status == "fail"
    assert unchanged(evidence(runs=RUNS)).status == "skip"
    assert unchanged(evidence(spec=spec(data=DECLARED))).status == "skip"


def test_batches_that_differ_first_fail_and_later_warn() -> None:
    a = training()
    batch = changed(a, place_of(a, 1, "batch"), flip(0))
    both = changed(batch, place_of(a, 0, "gradient"), flip(0))
    for b, status in ((a, "pass"), (batch, "fail"), (both, "warn")):
        assert batches_equal(evidence(pair=RUNS, comparison=compare_runs([a], [b]))).status == status
    bare = replace(a, blocks=[item for item in a.blocks if item.kind != "batch"])
    assert batches_equal(evidence(pair=RUNS, comparison=compare_runs([bare], [bare]))).status == "skip"
    assert batches_equal(evidence()).status == "skip"


@PROFILES
def test_a_connection_to_another_machine_is_told(profile: str, status: str) -> None:
    online = run("deterministic-1", replace(training(), network=["192.0.2.1:443"]))
    found = no_network(evidence(spec=spec(profile=profile), runs=(RUNS[0], online)))
    assert (found.status, found.evidence) == (status, ("192.0.2.1:443",))
    assert no_network(evidence(spec=spec(profile=profile), runs=RUNS)).status == "pass"
    assert no_network(evidence(spec=spec(profile=profile))).status == "skip"
