"""Category `data`: did both runs see the same bytes, only declared ones, and can they be fetched
again?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from repro_gate.checkout.inspection import Checkout
from repro_gate.checks import code, data
from repro_gate.checks.interface import Evidence
from repro_gate.checks.opened import NOT_ALL
from repro_gate.compare.traces import compare_runs
from repro_gate.data.declared import DataFinding
from repro_gate.data.dvc import DataProblem
from repro_gate.runs.launch import RunResult
from repro_gate.spec.model import DataItem
from repro_gate.trace.fields import Location, Opened
from tests.checks.conftest import outcome, statuses
from tests.support.built_traces import changed, evidence, flip, place_of, run, spec, training

DECLARED = spec(data=(DataItem("train.bin", "a" * 64),))
RUNS = (run("deterministic-1", training()), run("deterministic-2", training()))
SHA = "e4a5f0c1b2d3948576a1b2c3d4e5f60718293a4b"
CACHE = "/home/me/.cache/huggingface/hub/models--org--net/snapshots"
MORE = (NOT_ALL, "more than 20000 files were opened; the others are not listed")


def opening(*files: Opened, **changes: Any) -> RunResult:
    """Return a run that opened these files."""
    return run("default-1", replace(training(), opened=list(files), **changes))


def test_data_is_what_the_spec_states() -> None:
    for expected, actual, outcomes, line in (
        ("a", "a", ("pass", "pass"), f"sha256 {'a' * 64}"),
        ("a", "b", ("fail", "fail"), f"sha256 expected {'a' * 64}, found {'b' * 64}"),
        ("a", None, ("fail", "fail"), "found nothing"),
        (None, None, ("fail", "fail"), "found nothing"),
        (None, "b", ("warn", "fail"), f"sha256 {'b' * 64}"),
    ):
        sums = [value and value * 64 for value in (expected, actual)]
        item = DataFinding(path="train.bin", expected=sums[0], actual=sums[1], size=3)
        facts = evidence(spec=DECLARED, data=(item,))
        assert statuses(data.checksums, facts) == outcomes
        assert outcome(data.checksums, facts)[1] == (f"train.bin: {line}",)
    for actual, status in (("c", "pass"), ("d", "fail")):
        item = DataFinding(
            path="train.bin",
            expected=None,
            actual="b" * 64,
            md5_expected="c" * 32,
            md5_actual=actual * 32,
            source=Location("train.bin.dvc", 3),
        )
        declared = spec(data=(DataItem("train.bin", md5="c" * 32),))
        result = data.checksums(evidence(spec=declared, data=(item,)))
        assert (result.status, result.evidence[0].location) == (status, item.source)
    problem = DataProblem(Location("data.dvc", 2), "`outs` is missing", "run `dvc add` again")
    wrong = DataFinding(path="train.bin", expected="a" * 64, actual=None)
    result = data.checksums(evidence(spec=DECLARED, data=(wrong,), data_problems=(problem,)))
    assert (result.status, result.remedy) == ("fail", problem.remedy)
    assert [line.location for line in result.evidence] == [problem.location, None]
    assert data.checksums(evidence()).status == "skip"


def test_data_that_a_run_changed_or_left_fails_and_a_connection_is_named() -> None:
    declared = evidence(spec=DECLARED, runs=RUNS)
    assert data.unchanged(declared).status == "pass"
    assert outcome(data.unchanged, replace(declared, changed_data=("x",))) == ("fail", ("x",))
    assert data.unchanged(replace(declared, spec=spec())).status == "skip"
    assert data.unchanged(replace(declared, runs=())).status == "skip"
    for is_left, status in ((True, "fail"), (False, "pass")):
        runs = (*RUNS, opening(Opened("/opt/x.bin", False, None, is_left)))
        assert data.no_leftovers(evidence(runs=runs)).status == status
    online = run("deterministic-1", replace(training(), network=["192.0.2.1:443"]))
    facts = evidence(runs=(RUNS[0], online))
    assert outcome(data.no_network, facts)[1] == ("192.0.2.1:443",)
    assert statuses(data.no_network, facts) == ("warn", "fail")
    assert data.no_network(evidence(runs=RUNS)).status == "pass"


def test_batches_that_differ_first_fail_and_later_warn() -> None:
    a = training()
    batch = changed(a, place_of(a, 1, "batch"), flip(0))
    both = changed(batch, place_of(a, 0, "gradient"), flip(0))
    bare = replace(a, blocks=[item for item in a.blocks if item.kind != "batch"])
    first = "gradient fc.weight at step 0"
    for one, other, status, place in (
        (a, a, "pass", ""),
        (a, batch, "fail", "differing: 1 of 2 batches"),
        (a, both, "warn", f"differing: 1 of 2 batches; first divergence: {first}"),
        (bare, bare, "skip", ""),
    ):
        facts = evidence(pair=RUNS, comparison=compare_runs([one], [other]))
        assert outcome(data.batches_equal, facts) == (status, (place,) if place else ())
        if status == "fail":
            told = "batches differ, first batch images at step 1"
            assert data.batches_equal(facts).message == told
    assert data.batches_equal(evidence()).status == "skip"


def test_a_file_from_outside_that_nothing_declares_is_named_with_its_line() -> None:
    place = Location("train.py", 12)
    files = Opened("/srv/corpus/train.bin", False, place), Opened("/srv/a.txt", False)
    facts = evidence(runs=(*RUNS, opening(*files)))
    assert statuses(data.no_undeclared_reads, facts) == ("warn", "fail")
    result = data.no_undeclared_reads(facts)
    assert [line.location for line in result.evidence] == [None, place]
    assert [file.path in line.text for file, line in zip(files, result.evidence[::-1], strict=True)]


def test_each_file_from_outside_is_judged_once() -> None:
    for name, is_data in (
        *[(f"train{end}", True) for end in (".json", ".jsonl", ".csv", ".bin", "")],
        *[(name, False) for name in ("ops.py", "native.SO", "config.yaml", "run.sh", "setup.cfg")],
    ):
        runs = (*RUNS, opening(Opened(f"/opt/{name}", False), Opened("train.py", True)))
        facts = evidence(runs=runs, tracked=frozenset({"train.py"}))
        judge, other = data.no_undeclared_reads, code.opened_files
        if not is_data:
            judge, other = other, judge
        assert f"/opt/{name}" in outcome(judge, facts)[1][0]
        assert other(facts).status == "pass"


def reading(folder: Path, *commits: str, **changes: Any) -> Evidence:
    """Return evidence of a run that opened train.py, settings.yaml and a file of each commit."""
    files = [Opened(f"{CACHE}/{commit}/config.json", False) for commit in commits]
    ran = opening(Opened("train.py", True), Opened("settings.yaml", True), *files, **changes)
    names = ("train.py", "settings.yaml", "other.yaml")
    for name in names:
        (folder / name).touch()
    return evidence(
        spec=spec(folder),
        checkout=Checkout(root=folder, commit="0" * 40),
        tracked=frozenset(names),
        runs=(ran,),
    )


def test_a_commit_that_no_opened_file_names_is_not_pinned(tmp_path: Path) -> None:
    loose = reading(tmp_path, SHA)
    (tmp_path / "settings.yaml").write_text("revision: main\n")
    (tmp_path / "other.yaml").write_text(f"revision: {SHA}\n")  # nobody opened it
    assert statuses(data.revisions_pinned, loose) == ("warn", "fail")
    assert outcome(data.revisions_pinned, loose)[1] == (f"org/net: the runs read {SHA}",)
    # any file counts if not all are listed
    assert data.revisions_pinned(reading(tmp_path, SHA, notes=[MORE])).status == "pass"
    (tmp_path / "settings.yaml").write_text(f"revision: {SHA.upper()}\n")
    assert outcome(data.revisions_pinned, loose) == ("pass", (f"org/net: {SHA}",))
    two = reading(tmp_path, SHA, "1" * 40)
    assert outcome(data.revisions_pinned, two)[1] == (f"org/net: the runs read {'1' * 40}",)
    assert data.revisions_pinned(reading(tmp_path)).status == "skip", "no hub"
