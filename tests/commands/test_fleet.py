"""`repro-gate compare` over the reports of many nodes: exit codes, what is refused, what is written,
and the traces that were kept beside the reports."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from repro_gate.baseline.config_hash import hash_inputs
from repro_gate.cli import main
from repro_gate.compare.model import Divergence, Fingerprint
from repro_gate.report.model import Reason, Report
from repro_gate.trace.writer import TraceWriter
from tests.support import reports

STEPS = 4
Printed = pytest.CaptureFixture[str]


def node(
    host: str,
    *,
    flip: int = STEPS,
    kinds: str = "loss gradient rng",
    own: Divergence | None = None,
    digest: str = "xxh3-128",
    recipe: Mapping[str, Any] | None = None,
    **machine: str,
) -> Report:
    """The recording of a node whose bits are other ones from the step `flip` on, or, under `own`, its
    gate run."""

    def bits(step: int) -> str:
        return ("b" if step >= flip else "a") * 32

    found = Fingerprint(
        1,
        tuple((step, bits(step)) for step in range(STEPS)),
        {kind: bits(STEPS - 1) for kind in kinds.split()},
        digest,
    )
    driver = machine.get("driver", "535")
    hashed = hash_inputs(recipe or {"code": "x", "steps": 4}, {"driver": driver, "image": None})
    subject = replace(reports.SUBJECT, versions={"host": host}, machine=machine)
    pair = replace(reports.DIFFERENT, first_divergence=own)
    return replace(
        reports.RECORDED,
        subject=subject,
        fingerprint=found,
        config_hash=hashed,
        determinism=reports.compared(pair) if own else None,
    )


@pytest.fixture(autouse=True)
def _no_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table is as wide as it needs to be."""
    monkeypatch.delenv("COLUMNS", raising=False)


def compared(place: Path, *each: Report | Path, options: tuple[str, ...] = ()) -> int:
    """The exit code of a comparison of these reports, written in this order."""
    paths = [
        item if isinstance(item, Path) else reports.written(place / f"{number}.json", item)
        for number, item in enumerate(each)
    ]
    return main(["compare", *map(str, paths), *options])


def last(printed: Printed) -> str:
    return printed.readouterr().out.splitlines()[-1]


def test_the_exit_code_and_the_last_line_say_who_differs(tmp_path: Path, capsys: Printed) -> None:
    good = [node(f"gpu-{number}") for number in range(3)]
    assert compared(tmp_path, *good) == 0
    assert last(capsys) == "all 3 nodes agree"
    assert compared(tmp_path, *good, node("gpu-17", flip=2, driver="550")) == 1
    printed = capsys.readouterr().out.splitlines()
    assert printed[-1] == "3 of 4 nodes agree; gpu-17 differs from step 2 on"
    assert "driver 550 instead of 535" in printed[2] and "loss, gradient" in printed[2]
    assert compared(tmp_path, *good, node("gpu-17", own=reports.FIRST)) == 1
    words = (
        "gpu-17 differs from itself from step 3 on, first in the gradient of blocks.3.attn.weight"
    )
    assert last(capsys) == f"3 of 4 nodes agree; {words}"
    assert compared(tmp_path, *good, node("gpu-1", flip=2)) == 1
    words = "gpu-1 differs from itself, or a report of another node has its name"
    assert last(capsys) == f"2 of 3 nodes agree; gpu-1 (3.json) differs from step 2 on; {words}"


def test_generator_states_alone_and_the_end_of_a_report_are_no_divergence(
    tmp_path: Path, capsys: Printed
) -> None:
    good = [node("a"), node("b"), node("c")]
    print_ = good[2].fingerprint
    assert print_ is not None
    other = replace(print_, by_kind={**print_.by_kind, "rng": "c" * 32})
    assert compared(tmp_path, *good[:2], replace(good[2], fingerprint=other)) == 0
    left_out = replace(print_, by_kind={"loss": "a" * 32, "gradient": "a" * 32})
    assert compared(tmp_path, *good[:2], replace(good[2], fingerprint=left_out)) == 0
    capsys.readouterr()
    crashed = replace(good[2], fingerprint=None, reasons=(Reason("run/crashed", "it\x1bcrashed"),))
    assert compared(tmp_path, *good[:2], crashed) == 3
    assert last(capsys) == "2 of 3 nodes agree; c has no result"
    assert compared(tmp_path, *good[:2], crashed, node("d", flip=1)) == 1
    assert "it\\x1bcrashed" in capsys.readouterr().out
    assert compared(tmp_path, *good[:2], node("c", kinds="rng")) == 3
    assert compared(tmp_path, *good, options=("--nodes", "5")) == 3
    assert last(capsys) == "3 of 5 nodes agree; 2 of 5 nodes left no report"
    assert compared(tmp_path, *good, options=("--nodes", "3")) == 0


def test_a_report_without_a_host_is_named_by_its_file(tmp_path: Path, capsys: Printed) -> None:
    def nameless(flip: int = STEPS) -> Report:
        report = node("x", flip=flip)
        return replace(report, subject=replace(report.subject, versions={}))

    assert compared(tmp_path, nameless(), nameless(), nameless(1)) == 1
    assert last(capsys) == "2 of 3 nodes agree; 2 differs from step 1 on"


def test_other_recipes_other_digests_and_what_is_no_report_are_refused_by_name(
    tmp_path: Path, capsys: Printed
) -> None:
    more = {"code": "y", "steps": 5, "seeds": [1], "train.env/X": "\x1b[31m::error::x"}
    assert compared(tmp_path, node("a"), node("b"), node("c", recipe=more)) == 2
    said = capsys.readouterr().err
    assert f"{tmp_path}/0.json and {tmp_path}/2.json are of different recipes: " in said
    assert "recipe code: x -> y, recipe seeds: new, [1], recipe steps: 4 -> 5 and 1 more" in said
    assert "\x1b" not in said and "remedy: compare nodes at one commit" in said
    assert compared(tmp_path, node("a"), node("b"), node("c", digest="sha256-128")) == 3
    said = capsys.readouterr().err
    assert "0.json and" in said and "xxh3-128" in said and "sha256-128" in said
    seldom = node("c")
    assert seldom.fingerprint is not None
    rows = seldom.fingerprint.by_step
    seldom = replace(seldom, fingerprint=replace(seldom.fingerprint, by_step=rows[::2]))
    assert compared(tmp_path, node("a"), node("b"), seldom) == 2
    assert "recorded other steps: is `capture.every` the same?" in capsys.readouterr().err
    # the platform sets apart, and refuses nothing
    assert compared(tmp_path, node("a"), node("b"), node("c", driver="1")) == 0
    (tmp_path / "x.json").write_text("{}")
    for path, words in (("x.json", "not a report"), ("gone.json", "is not there")):
        assert compared(tmp_path, node("a"), node("b"), tmp_path / path) == 2
        said = capsys.readouterr().err
        assert path in said and words in said
    assert compared(tmp_path, node("a")) == 2
    assert "nothing to compare it with" in capsys.readouterr().err


def test_the_answer_is_written_in_each_format_and_two_reports_are_a_fleet_if_asked_for(
    tmp_path: Path, capsys: Printed
) -> None:
    files = {name: tmp_path / f"fleet.{name}" for name in ("json", "markdown", "html")}
    options = [word for name, path in files.items() for word in (f"--{name}", str(path))]
    assert compared(tmp_path, node("a"), node("b", flip=0), options=tuple(options)) == 1
    line = "no majority among 2 nodes: 2 groups differ"
    assert last(capsys) == line
    assert files["markdown"].read_text().startswith(f"## ❌ Fleet: {line}\n")
    assert line in files["html"].read_text()
    found = json.loads(files["json"].read_text())
    assert found["schema"] == "repro-gate/fleet/v1" and found["answer"] == line
    assert [item["nodes"] for item in found["groups"]] == [["a"], ["b"]]
    assert found["groups"][1]["first_divergence"]["step"] == 0
    # without such an option two reports are compared as ever
    assert compared(tmp_path, node("a"), node("b", flip=0)) == 1
    assert "differ: step 0" in capsys.readouterr().out
    again = ("--json", str(tmp_path / "0.json"))
    assert compared(tmp_path, node("a"), node("b"), node("c"), options=again) == 2
    assert "is the file of what is read too" in capsys.readouterr().err


def kept(folder: Path, flip: bool = False) -> None:
    folder.mkdir(parents=True)
    hello = {"nonce": "n", "pid": 1, "argv": [], "forked": False}
    writer = TraceWriter(str(folder), hello)
    rows = (("fc.weight", "float32", (2, 2)),)
    for step in range(STEPS):
        writer.block(step, "gradient", rows, (b"b" if flip and step > 1 else b"a") * 16)
        writer.event("step", step=step, ms=1.0, probe_ms=0.1, peak_bytes=1, flags=writer.flags({}))
    writer.event("end", reason="exit", steps=STEPS)


def test_the_tensor_is_named_where_one_of_most_and_the_odd_one_kept_their_traces(
    tmp_path: Path, capsys: Printed
) -> None:
    fleet = node("a"), node("b"), node("c", flip=2)
    kept(tmp_path / "2" / "deterministic-1", flip=True)
    assert compared(tmp_path, *fleet) == 1
    assert last(capsys).endswith("c differs from step 2 on")
    kept(tmp_path / "1" / "deterministic-1")
    assert compared(tmp_path, *fleet) == 1
    assert last(capsys).endswith("c differs from step 2 on, first in the gradient of fc.weight")
    # traces that do not differ are not those of these reports
    (tmp_path / "2").rename(tmp_path / "old")
    kept(tmp_path / "2" / "deterministic-1")
    assert compared(tmp_path, *fleet) == 1
    assert last(capsys).endswith("c differs from step 2 on")
    (trace,) = (tmp_path / "2" / "deterministic-1").iterdir()
    trace.write_text(trace.read_text()[:-20])
    assert compared(tmp_path, *fleet) == 2
    assert trace.name in capsys.readouterr().err
    trace.unlink()
    assert compared(tmp_path, *fleet) == 2
    assert "holds no trace" in capsys.readouterr().err


def test_no_host_is_a_command_to_github(
    tmp_path: Path, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    hostile = node("\n::error::forged", flip=0, driver="::set-output name=x::y")
    assert compared(tmp_path, node("a"), node("b"), hostile) == 1
    first, *between, end = capsys.readouterr().out.splitlines()
    assert (
        first.startswith("::stop-commands::")
        and end == f"::{first.removeprefix('::stop-commands::')}::"
    )
    assert not [line for line in between if line.startswith("::")]
