"""`repro-gate compare`: checkpoints, traces and reports, the same and not the same, and what cannot
be read."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from repro_gate.cli import main
from repro_gate.compare.model import Fingerprint
from repro_gate.report.document import render
from repro_gate.report.model import Report
from repro_gate.trace.model import Trace
from repro_gate.trace.writer import TraceWriter
from tests.support import reports

torch = pytest.importorskip("torch")


def checkpoint(path: Path, bump: float = 0.0) -> str:
    """A checkpoint of tensors, one of them moved by `bump` in one element; two have names that are
    commands to GitHub."""
    state = {"a": torch.ones(3, 4), "b": torch.zeros(5, dtype=torch.float64)}
    state["a"][1, 2] += bump
    torch.save(
        {
            "model": state,
            "step": 7,
            "::error::forged": torch.full((2,), bump),
            "##[add-mask]x": bump,
        },
        path,
    )
    return str(path)


def trace(folder: Path, digest: bytes) -> Path:
    """A folder with one trace of two steps."""
    folder.mkdir()
    writer = TraceWriter(
        str(folder), {"nonce": "n", "pid": 1, "key": "main", "argv": [], "forked": False}
    )
    for step in range(2):
        writer.block(
            step, "gradient", (("fc.weight", "float32", (2, 2)),), digest if step else b"0" * 16
        )
        writer.event("step", step=step, ms=1.0, probe_ms=0.1, peak_bytes=1, flags=writer.flags({}))
    writer.event("end", reason="exit", steps=2)
    return folder


def report(path: Path, which: Report) -> Path:
    """A report as `run --json` writes it."""
    path.write_text(render(which))
    return path


def test_equal_checkpoints_are_the_same_whatever_their_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        main(
            [
                "compare",
                checkpoint(tmp_path / "a.pt"),
                checkpoint(tmp_path / "other.pt"),
                "--python",
                sys.executable,
            ]
        )
        == 0
    )
    assert capsys.readouterr().out.startswith("same: ")


def test_a_checkpoint_that_differs_is_named_by_leaf_and_distance_and_without_torch_as_a_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    out, pair = (
        tmp_path / "differences.json",
        [checkpoint(tmp_path / "a.pt"), checkpoint(tmp_path / "b.pt", 0.25)],
    )
    assert main(["compare", *pair, "--python", sys.executable, "--json", str(out)]) == 1
    printed = capsys.readouterr().out
    assert "model.a: float32 [3, 4], max abs 0.25" in printed
    assert not [
        line for line in printed.splitlines() if line.lstrip().startswith("::") or "##[" in line
    ]
    found = json.loads(out.read_text())
    assert (found["tensors"], found["differing"]) == (5, 3)
    assert next(item for item in found["weights"] if item["name"] == "model.a")["max_ulp"] == 2**21
    assert main(["compare", *pair, "--python", str(tmp_path / "no-python")]) == 1
    printed = capsys.readouterr().out
    assert "(file)" in printed and "compared as a whole" in printed and "no-python" in printed


def test_traces_are_compared_step_by_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b, c = (
        trace(tmp_path / "a", b"1" * 16),
        trace(tmp_path / "b", b"1" * 16),
        trace(tmp_path / "c", b"2" * 16),
    )
    assert main(["compare", str(a), str(b)]) == 0
    assert main(["compare", str(a), str(c)]) == 1
    assert "step 1, gradient of fc.weight" in capsys.readouterr().out


def test_reports_are_compared_by_their_fingerprints(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = replace(
        reports.PASS,
        fingerprint=Fingerprint(
            1, ((-1, "a" * 32), (0, "b" * 32)), {"loss": "c" * 32, "parameter": "d" * 32}
        ),
    )
    other = replace(
        base,
        fingerprint=Fingerprint(
            1, ((-1, "a" * 32), (0, "e" * 32)), {"loss": "f" * 32, "parameter": "d" * 32}
        ),
    )
    a, b = report(tmp_path / "a.json", base), report(tmp_path / "b.json", other)
    assert main(["compare", str(a), str(a)]) == 0
    assert main(["compare", str(a), str(b)]) == 1
    assert "step 0" in capsys.readouterr().out
    assert base.fingerprint is not None
    elsewhere = report(
        tmp_path / "sha.json",
        replace(base, fingerprint=replace(base.fingerprint, digest="\x1b[31m")),
    )
    assert main(["compare", str(a), str(elsewhere)]) == 3
    assert "an unnamed digest" in (said := capsys.readouterr().err) and "\x1b" not in said
    bare = report(tmp_path / "bare.json", replace(base, fingerprint=None))
    assert main(["compare", str(a), str(bare)]) == 2


def test_steps_that_one_report_lacks_do_not_differ(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def of_steps(name: str, count: int, last: str = "b") -> str:
        rows = tuple((step, (last if step == 1 else "b") * 32) for step in range(-1, count))
        return str(
            report(
                tmp_path / name,
                replace(reports.PASS, fingerprint=Fingerprint(1, rows, {"loss": f"{count:032d}"})),
            )
        )

    assert main(["compare", of_steps("a.json", 2), of_steps("b.json", 5)]) == 1
    out = capsys.readouterr().out
    assert (
        "differ: step 2, the number of steps: 2 optimizer steps in the first run, 5 in the second"
        in out
    )
    assert "0 of the 2 steps that both have differ" in out
    assert main(["compare", of_steps("a.json", 2), of_steps("c.json", 5, "d")]) == 1
    assert "1 of the 2 steps that both have differ" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("a", "b"),
    [("none.pt", "none.pt"), ("folder", "file.pt"), ("folder", "folder"), ("fifo", "file.pt")],
)
def test_what_cannot_be_read_is_one_line_and_exit_two(
    a: str, b: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "folder").mkdir()
    checkpoint(tmp_path / "file.pt")
    os.mkfifo(tmp_path / "fifo")
    assert main(["compare", str(tmp_path / a), str(tmp_path / b)]) == 2
    assert capsys.readouterr().err.startswith("repro-gate: ")


def test_a_forged_trace_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = trace(tmp_path / "a", b"1" * 16)
    forged = tmp_path / "forged"
    forged.mkdir()
    (forged / "1-1.trace.jsonl").write_text(
        '{"e":"hello","format":"repro-gate/trace/v2","nonce":"n","pid":1,"key":"main","argv":[],"forked":false}\n{"e":"block","step":"x"}\n'
    )
    assert main(["compare", str(a), str(forged)]) == 2
    assert "1-1.trace.jsonl:2" in capsys.readouterr().err
    assert Trace(path=forged).blocks == []
