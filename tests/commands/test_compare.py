"""`repro-gate compare`: checkpoints, traces, reports and config hashes, the same and not the same, and
what cannot be read."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from repro_gate.baseline.config_hash import InputValue, hash_inputs
from repro_gate.baseline.file import dump_baseline
from repro_gate.cli import main
from repro_gate.compare.model import Fingerprint
from repro_gate.report.document import to_text
from repro_gate.trace.writer import TraceWriter
from tests.support import recorded, reports
from tests.support.recorded import GPU

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


RECIPE: dict[str, InputValue] = {"code": "sha256:ab", "seeds": [42], "steps": None}
RECIPE |= {"command": "grep '\\d' \udcff", "data/\udcff": {"sha256": "ff", "bytes": 2**60}}
PLATFORM: dict[str, InputValue] = {"python": "3.11.9", "threads": 2, "long": "x" * 60_000}


def with_inputs(path: Path, recipe: Mapping[str, InputValue] = RECIPE) -> str:
    """A report with these inputs, but without a fingerprint; or, named `inputs`, only they, as `check
    --inputs --json` writes them."""
    hashed = hash_inputs(recipe, PLATFORM)
    if path.stem == "inputs":
        path.write_text(to_text(msgspec.to_builtins(hashed)))
        return str(path)
    report = replace(reports.PASS, config_hash=hashed, fingerprint=None)
    return str(reports.written(path, report))


def test_of_config_hashes_the_inputs_are_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)  # no line is folded
    report = with_inputs(tmp_path / "report.json")
    inputs = with_inputs(tmp_path / "inputs.json")
    assert main(["compare", report, inputs]) == 0
    assert capsys.readouterr().out == "same config hash: no input differs\n"
    moved = with_inputs(tmp_path / "moved.json", {**RECIPE, "seeds": [7], "\x1b[31m": 1})
    out = tmp_path / "changed.json"
    assert main(["compare", inputs, moved, "--json", str(out)]) == 1
    printed = "recipe \\x1b[31m: new, 1\nrecipe seeds: [42] -> [7]\n"
    assert capsys.readouterr().out == printed
    change = json.loads(out.read_text())["changed_inputs"][1]
    assert change == {"root": "recipe", "name": "seeds", "before": "[42]", "after": "[7]"}
    # of two reports the table has them, whether or not their runs can be compared
    assert main(["compare", report, moved]) == 2
    assert re.search(r"recipe seeds +\[42\] +\[7\]", capsys.readouterr().out)
    # a file of the training that names its config hash
    for name in ("a", "b"):
        (tmp_path / f"{name}.json").write_text(json.dumps({"config_hash": "sha256:ab", "x": name}))
    metrics = str(tmp_path / "a.json"), str(tmp_path / "b.json")
    assert main(["compare", *metrics, "--python", sys.executable]) == 1
    assert "recipe" not in capsys.readouterr().out


def test_of_baselines_the_inputs_are_compared_if_they_record_one_platform(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cpu, gpu = recorded.entry(), recorded.entry(platform=GPU)
    old, new = tmp_path / "old.baseline.yml", tmp_path / "repro.baseline.yml"
    old.write_text(dump_baseline(recorded.baseline(cpu)))
    new.write_text(dump_baseline(recorded.baseline(gpu)))
    assert main(["compare", str(old), str(old)]) == 0
    assert main(["compare", str(old), str(new)]) == 1
    assert "platform gpu-model: new, NVIDIA H100 80GB HBM3\n" in capsys.readouterr().out
    new.write_text(dump_baseline(recorded.baseline(cpu, gpu)))
    assert main(["compare", str(old), str(new)]) == 2
    assert "repro.baseline.yml: records 2 platforms" in capsys.readouterr().err


@pytest.mark.parametrize(
    "fields",
    [
        {"config_hash": "sha256:" + "0" * 64},
        {"inputs": {"recipe": {"\x1b[31m\u202e": 1}, "platform": {}}},
    ],
)
def test_a_forged_config_hash_is_refused_in_one_line(
    fields: Mapping[str, object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inputs = with_inputs(tmp_path / "inputs.json")
    report = with_inputs(tmp_path / "report.json")
    document = json.loads(Path(report).read_text())
    forged = {**document["config_hash"], **fields}
    Path(report).write_text(json.dumps({**document, "config_hash": forged}))
    assert main(["compare", inputs, report]) == 2
    line, remedy, end = capsys.readouterr().err.split("\n")
    assert line.startswith("repro-gate: ") and line.isprintable() and not end
    assert "report.json: " in line and remedy.startswith("  remedy: ")


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
