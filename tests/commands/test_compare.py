"""`repro-gate compare`: checkpoints, traces and reports, the same and not the same, and what cannot
be read."""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from repro_gate.cli import main
from repro_gate.compare.model import Fingerprint
from repro_gate.trace.writer import TraceWriter
from tests.support import reports

torch = pytest.importorskip("torch")


def checkpoint(path: Path, bump: float = 0.0) -> str:
    """A checkpoint of tensors, one of them moved by `bump` in one element; two have names that are
    commands to GitHub."""
    state = {"a": torch.ones(3, 4), "b": torch.zeros(5, dtype=torch.float64)}
    state["a"][1, 2] += bump
    forged = {"::error::forged": torch.full((2,), bump), "##[add-mask]x": bump}
    torch.save({"model": state, "step": 7, **forged}, path)
    return str(path)


def trace(folder: Path, digest: bytes) -> Path:
    folder.mkdir()
    hello = {"nonce": "n", "pid": 1, "argv": [], "forked": False}
    writer, rows = TraceWriter(str(folder), hello), (("fc.weight", "float32", (2, 2)),)
    for step in range(2):
        writer.block(step, "gradient", rows, digest if step else b"0" * 16)
        writer.event("step", step=step, ms=1.0, probe_ms=0.1, peak_bytes=1, flags=writer.flags({}))
    writer.event("end", reason="exit", steps=2)
    return folder


def test_checkpoints_are_the_same_or_named_by_leaf_and_distance_and_without_torch_as_a_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = [checkpoint(tmp_path / name) for name in ("a.pt", "other.pt")]
    assert main(["compare", *pair, "--python", sys.executable]) == 0
    assert capsys.readouterr().out.startswith("same: ")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    out = tmp_path / "differences.json"
    pair = [checkpoint(tmp_path / "a.pt"), checkpoint(tmp_path / "b.pt", 0.25)]
    assert main(["compare", *pair, "--python", sys.executable, "--json", str(out)]) == 1
    printed = capsys.readouterr().out
    assert "model.a: float32 [3, 4], max abs 0.25" in printed
    assert not re.search(r"^\s*::|##\[", printed, re.MULTILINE)
    found = json.loads(out.read_text())
    assert (found["tensors"], found["differing"]) == (5, 3)
    assert next(item for item in found["weights"] if item["name"] == "model.a")["max_ulp"] == 2**21
    assert main(["compare", *pair, "--python", str(tmp_path / "no-python")]) == 1
    printed = capsys.readouterr().out
    assert "(file)" in printed and "compared as a whole" in printed and "no-python" in printed


def test_traces_and_reports_differ(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = (("a", b"1"), ("b", b"1"), ("c", b"2"))
    a, b, c = (str(trace(tmp_path / name, digest * 16)) for name, digest in given)
    assert main(["compare", a, b]) == 0
    assert main(["compare", a, c]) == 1
    assert "step 1, gradient of fc.weight" in capsys.readouterr().out
    (real,) = Path(c).iterdir()
    hello, *_ = real.read_text().splitlines()
    real.write_text(hello + '\n{"e":"block","step":"x"}\n')
    assert main(["compare", a, c]) == 2
    assert f"{real.name}:2" in capsys.readouterr().err

    def of(name: str, *steps: str, loss: str = "c", digest: str | None = None) -> str:
        rows = tuple((number - 1, one * 32) for number, one in enumerate(steps))
        found = Fingerprint(1, rows, {"loss": loss * 32, "parameter": "d" * 32})
        found = found if digest is None else replace(found, digest=digest)
        which = replace(reports.PASS, fingerprint=found if steps else None)
        return str(reports.written(tmp_path / name, which))

    a = of("a.json", "a", "b")
    assert main(["compare", a, a]) == 0
    assert main(["compare", a, of("b.json", "a", "e", loss="f")]) == 1
    assert "step 0" in capsys.readouterr().out
    # steps that one report lacks do not differ
    for longer, differing in ((of("c.json", *"abbb", loss="f"), 0), (of("d.json", *"aebb"), 1)):
        assert main(["compare", a, longer]) == 1
        printed = capsys.readouterr().out
        assert "the number of steps: 1 optimizer step" in printed or differing
        assert f"{differing} of the 1 step" in printed
    assert main(["compare", a, of("sha.json", "a", "b", digest="sha256-128")]) == 3
    assert "by sha256-128 in the second" in capsys.readouterr().err
    # an algorithm has a name that is safe to print
    assert main(["compare", a, of("odd.json", "a", "b", digest="\x1b[31m")]) == 2
    assert "digest" in (said := capsys.readouterr().err) and "\x1b" not in said
    assert main(["compare", a, of("bare.json")]) == 2


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
