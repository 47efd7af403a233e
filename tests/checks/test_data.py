"""Category `data`: did both runs see the same bytes, only declared ones, and can they be fetched
again?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from repro_gate.checkout.inspection import Checkout
from repro_gate.checks.code import opened_files
from repro_gate.checks.data import (
    batches_equal,
    checksums,
    no_leftovers,
    no_network,
    no_undeclared_reads,
    revisions_pinned,
    unchanged,
)
from repro_gate.checks.interface import Evidence
from repro_gate.checks.opened import NOT_ALL
from repro_gate.compare.traces import compare_runs
from repro_gate.data.declared import DataFinding
from repro_gate.data.formats import DataProblem
from repro_gate.runs.launch import Run
from repro_gate.spec.model import DataItem
from repro_gate.trace.fields import Location, Opened
from tests.checks.conftest import lines_of
from tests.support.built_traces import changed, evidence, flip, place_of, run, spec, training

DECLARED = (DataItem("train.bin", "a" * 64),)
RUNS = (run("deterministic-1", training()), run("deterministic-2", training()))
PROFILES = pytest.mark.parametrize(("profile", "status"), [("basic", "warn"), ("strict", "fail")])
SHA = "e4a5f0c1b2d3948576a1b2c3d4e5f60718293a4b"


def opening(*files: Opened, **changes: Any) -> Run:
    """A run that opened these files."""
    return run("default-1", replace(training(), opened=list(files), **changes))


@pytest.mark.parametrize(
    ("expected", "actual", "profile", "status", "line"),
    [
        ("a", "a", "basic", "pass", f"sha256 {'a' * 64}"),
        ("a", "b", "basic", "fail", f"sha256 expected {'a' * 64}, found {'b' * 64}"),
        ("a", None, "basic", "fail", "found nothing"),
        (None, None, "basic", "fail", "found nothing"),
        (None, "b", "basic", "warn", f"sha256 {'b' * 64}"),
        (None, "b", "strict", "fail", f"sha256 {'b' * 64}"),
    ],
)
def test_data_is_what_the_spec_states(
    expected: str | None, actual: str | None, profile: str, status: str, line: str
) -> None:
    sums = [value and value * 64 for value in (expected, actual)]
    item = DataFinding(path="train.bin", expected=sums[0], actual=sums[1], size=3)
    found = checksums(evidence(spec=spec(profile=profile, data=DECLARED), data=(item,)))
    assert (found.status, lines_of(found)) == (status, (f"train.bin: {line}",))
    assert bool(found.remedy) is (status != "pass")


@pytest.mark.parametrize(
    ("actual", "size", "status"), [("c", 3, "pass"), ("d", 3, "fail"), ("c", 4, "fail")]
)
def test_the_md5_and_the_size_of_a_declaration_file_count(
    actual: str, size: int, status: str
) -> None:
    item = DataFinding(path="train.bin", expected=None, actual="b" * 64, size=size)
    item = replace(item, size_expected=3, md5_expected="c" * 32, md5_actual=actual * 32)
    item = replace(item, source=Location("train.bin.dvc", 3))
    declared = spec(data=(DataItem("train.bin", md5="c" * 32),))
    found = checksums(evidence(spec=declared, data=(item,)))
    assert found.status == status and lines_of(found)[0].startswith("train.bin.dvc:3: ")


def test_a_declaration_that_cannot_be_used_fails_with_its_line() -> None:
    problem = DataProblem(Location("data.dvc", 2), "`outs` is missing", "run `dvc add` again")
    found = checksums(replace(evidence(), data_problems=(problem,)))
    assert (found.status, found.remedy) == ("fail", "run `dvc add` again")
    assert lines_of(found) == ("data.dvc:2: `outs` is missing",)
    assert checksums(evidence()).status == "skip"


def test_data_that_a_run_changed_or_that_an_earlier_one_left_fails() -> None:
    declared = evidence(spec=spec(data=DECLARED), runs=RUNS)
    assert unchanged(declared).status == "pass"
    found = unchanged(replace(declared, changed_data=("train.bin",)))
    assert (found.status, lines_of(found)) == ("fail", ("train.bin",))
    assert unchanged(evidence(runs=RUNS)).status == "skip"
    assert unchanged(evidence(spec=spec(data=DECLARED))).status == "skip"
    for left, status in ((True, "fail"), (False, "pass")):
        runs = (*RUNS, opening(Opened("/opt/x.bin", False, "", left)))
        assert no_leftovers(evidence(runs=runs)).status == status


def test_batches_that_differ_first_fail_and_later_warn() -> None:
    a = training()
    batch = changed(a, place_of(a, 1, "batch"), flip(0))
    both = changed(batch, place_of(a, 0, "gradient"), flip(0))
    bare = replace(a, blocks=[item for item in a.blocks if item.kind != "batch"])
    later = "1 of 2 tensors of batches differ; first divergence: gradient fc.weight at step 0"
    for one, other, status, lines in (
        (a, a, "pass", ()),
        (a, batch, "fail", ("images",)),
        (a, both, "warn", (later,)),
        (bare, bare, "skip", ()),
    ):
        found = batches_equal(evidence(pair=RUNS, comparison=compare_runs([one], [other])))
        assert (found.status, lines_of(found)) == (status, lines)
    assert batches_equal(evidence()).status == "skip"


@PROFILES
def test_a_connection_to_another_machine_is_told(profile: str, status: str) -> None:
    online = run("deterministic-1", replace(training(), network=["192.0.2.1:443"]))
    found = no_network(evidence(spec=spec(profile=profile), runs=(RUNS[0], online)))
    assert (found.status, lines_of(found)) == (status, ("192.0.2.1:443",))
    assert no_network(evidence(spec=spec(profile=profile), runs=RUNS)).status == "pass"
    assert no_network(evidence(spec=spec(profile=profile))).status == "skip"


@PROFILES
def test_a_file_from_outside_that_nothing_declares_is_named_with_its_line(
    profile: str, status: str
) -> None:
    files = (
        Opened("/srv/corpus/train.bin", False, Location("train.py", 12)),
        Opened("/srv/a.txt", False),
    )
    found = no_undeclared_reads(evidence(spec=spec(profile=profile), runs=(*RUNS, opening(*files))))
    assert found.status == status and "under `data:`" in found.remedy
    assert lines_of(found) == ("/srv/a.txt", "train.py:12: opens /srv/corpus/train.bin")


def test_a_hundred_files_are_a_folder() -> None:
    many = [
        Opened(f"/srv/{part}/{number}.{part}", False, Location("train.py", 3))
        for part in ("png", "yaml")
        for number in range(100)
    ]
    found = evidence(runs=(*RUNS, opening(*many)))
    line = "train.py:3: opens /srv/{}/: 100 files"
    assert lines_of(no_undeclared_reads(found)) == (line.format("png"),)
    assert lines_of(opened_files(found)) == (line.format("yaml") + ": outside the checkout",)


@pytest.mark.parametrize("name", ["helpers.py", "native.SO", "config.yaml", "run.sh", "setup.cfg"])
def test_source_and_settings_are_left_to_the_other_check(name: str) -> None:
    files = Opened(f"/opt/{name}", False, "train.py:1"), Opened("data/train.bin", True)
    clean = evidence(runs=(*RUNS, opening(*files)))
    assert no_undeclared_reads(clean).status == "pass"
    assert f"/opt/{name}" in lines_of(opened_files(clean))[0]
    assert no_undeclared_reads(evidence()).status == "skip"


@pytest.mark.parametrize("name", ["train.json", "train.jsonl", "train.csv", "train.bin", "train"])
def test_every_other_file_is_data_and_judged_once(name: str) -> None:
    found = evidence(runs=(*RUNS, opening(Opened(f"/opt/{name}", False), Opened("train.py", True))))
    assert lines_of(no_undeclared_reads(found)) == (f"/opt/{name}",)
    assert opened_files(replace(found, tracked=frozenset({"train.py"}))).status == "pass"


def test_reads_that_the_probe_did_not_list_are_said() -> None:
    note = (NOT_ALL, "more than 20000 files were opened; the others are not listed")
    for files, lines in (((), ()), ((Opened("/srv/x.bin", False),), ("/srv/x.bin",))):
        found = no_undeclared_reads(evidence(runs=(opening(*files, notes=[note]),)))
        assert (found.status, lines_of(found)) == ("warn", (*lines, note[1]))


CACHE = "/home/me/.cache/huggingface/hub/models--org--net/snapshots"


def reading(folder: Path, *commits: str, **changes: Any) -> Evidence:
    """Evidence of a run that opened train.py, settings.yaml and a file of each commit."""
    files = [Opened(f"{CACHE}/{commit}/config.json", False) for commit in commits]
    ran = opening(Opened("train.py", True), Opened("settings.yaml", True), *files)
    for name in ("train.py", "settings.yaml", "other.yaml"):
        (folder / name).touch()
    found = evidence(
        spec=spec(folder),
        checkout=Checkout(root=folder, commit="0" * 40),
        tracked=frozenset({"train.py", "settings.yaml", "other.yaml"}),
        runs=(ran,),
    )
    return replace(found, **changes)


@PROFILES
def test_a_commit_that_no_opened_file_names_is_not_pinned(
    tmp_path: Path, profile: str, status: str
) -> None:
    loose = reading(tmp_path, SHA, spec=spec(tmp_path, profile=profile))
    (tmp_path / "settings.yaml").write_text("revision: main\n")
    (tmp_path / "other.yaml").write_text(f"revision: {SHA}\n")  # nobody opened it
    found = revisions_pinned(loose)
    assert (found.status, lines_of(found)) == (status, (f"org/net: the runs read {SHA}",))
    assert 'revision="<40 digits>"' in found.remedy
    (tmp_path / "settings.yaml").write_text(f"revision: {SHA.upper()}\n")
    pinned = revisions_pinned(loose)
    assert (pinned.status, lines_of(pinned)) == ("pass", (f"org/net: {SHA}",))


def test_each_commit_that_was_read_has_to_be_named_by_any_file_where_not_all_are_listed(
    tmp_path: Path,
) -> None:
    two = reading(tmp_path, SHA, "1" * 40)
    (tmp_path / "train.py").write_text(f'load(revision="{SHA}")\n')
    assert lines_of(revisions_pinned(two)) == (f"org/net: the runs read {'1' * 40}",)
    (tmp_path / "train.py").write_text("")
    found = reading(tmp_path, SHA)
    (tmp_path / "other.yaml").write_text(SHA)
    assert revisions_pinned(found).status == "warn"
    files = (Opened("train.py", True), Opened(f"{CACHE}/{SHA}/config.json", False))
    ran = opening(*files, notes=[(NOT_ALL, "x")])
    assert revisions_pinned(replace(found, runs=(ran,))).status == "pass"
    assert revisions_pinned(reading(tmp_path)).status == "skip", "no hub"
    assert revisions_pinned(evidence()).status == "skip"
