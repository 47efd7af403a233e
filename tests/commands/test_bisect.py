"""Claims about `repro-gate run --bisect`: what `git bisect run` is told of each size of a change, and
which options fit together."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from repro_gate.baseline.model import AgainstFinding
from repro_gate.cli import main
from repro_gate.commands import gate as command
from repro_gate.compare.change import SIZES, Change
from repro_gate.compare.model import Apart
from repro_gate.errors import Inconclusive, UsageError
from repro_gate.gate.options import Options
from repro_gate.report.model import EXIT_CODES, Report
from repro_gate.spec.model import Spec
from tests.support import reports
from tests.support.gates import training

SKIP = 125
BISECT = ("--against", "good", "--bisect")
FAR = Apart(step=0, kind="gradient", name="fc.weight", roundings=300.0)


class Gate:
    """Stands for the gate: what it found, and what it was asked."""

    def __init__(self, found: Report | BaseException) -> None:
        self.found = found
        self.asked: list[tuple[Spec, Options]] = []

    def __call__(self, spec: Spec, options: Options, watch: object) -> Report:
        self.asked.append((spec, options))
        if isinstance(self.found, BaseException):
            raise self.found
        return self.found


@pytest.fixture
def code(tmp_path: Path) -> Path:
    return training(tmp_path / "code", "raise SystemExit('it was started')")


def judged(
    monkeypatch: pytest.MonkeyPatch,
    code: Path,
    found: Report | BaseException,
    *arguments: str,
) -> tuple[int, Gate]:
    """The exit code where the gate finds this."""
    gate = Gate(found)
    monkeypatch.setattr(command, "run_gate", gate)
    return main(["run", str(code), "--quiet", *BISECT, *arguments]), gate


def changed(size: str, **more: Any) -> Report:
    against = AgainstFinding(ref="good", commit="1" * 40, status="changed", message="x")
    return replace(reports.PASS, against=against, change=Change(size=size, beside="good", **more))


# size of the change, and the exit code without `--size`, with `rounding`, with `within-seed-noise`
EXITS = [
    ("none", 0, 0, 0),
    ("rounding", 1, 0, 0),
    ("within-seed-noise", 1, 1, 0),
    ("effect", 1, 1, 1),
    # without seeds nobody knows
    ("different", 1, 1, SKIP),
]


@pytest.mark.parametrize(("size", "none", "rounding", "noise"), EXITS)
def test_a_commit_is_bad_if_its_change_is_larger_than_the_size(
    size: str, none: int, rounding: int, noise: int, code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = changed(size, worst=FAR)
    for allowed, exit_code in (
        ((), none),
        (("--size", "rounding"), rounding),
        (("--size", "within-seed-noise"), noise),
    ):
        assert judged(monkeypatch, code, report, *allowed)[0] == exit_code, allowed


def test_every_size_is_judged() -> None:
    assert tuple(size for size, *_ in EXITS) == SIZES


@pytest.mark.parametrize("verdict", EXIT_CODES)
def test_the_verdict_does_not_matter(
    verdict: str, code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for size, exit_code in (("none", 0), ("effect", 1)):
        report = replace(changed(size), verdict=verdict)
        assert judged(monkeypatch, code, report)[0] == exit_code


@pytest.mark.parametrize("allowed", [(), ("--size", "rounding"), ("--size", "within-seed-noise")])
def test_where_nothing_was_compared_the_commit_is_skipped(
    allowed: tuple[str, ...], code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inconclusive = replace(changed("none").against, status="inconclusive")  # type: ignore[type-var]
    for found in (
        replace(changed("none"), verdict="inconclusive", against=inconclusive, change=None),
        reports.INCONCLUSIVE,
        Inconclusive("no trace"),
        UsageError("--against good: no such commit"),
    ):
        assert judged(monkeypatch, code, found, *allowed)[0] == SKIP


def test_what_the_baseline_says_is_not_asked(code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for size in ("none", "different"):
        report = changed(size)
        report = replace(
            report,
            against=replace(report.against, status="inconclusive"),  # type: ignore[type-var]
            change=replace(report.change, beside="repro.baseline.yml"),  # type: ignore[type-var]
        )
        assert judged(monkeypatch, code, report)[0] == SKIP


def test_a_distance_that_could_not_be_measured_is_skipped_if_it_matters(
    code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = changed("different", detail="roundings were not measured: rounding-x crashed")
    assert judged(monkeypatch, code, report)[0] == 1
    assert judged(monkeypatch, code, report, "--size", "rounding")[0] == SKIP


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left"), MemoryError(), RuntimeError("a mistake")]
)
def test_what_is_wrong_with_the_machine_makes_no_commit_bad(
    error: BaseException, code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert judged(monkeypatch, code, error)[0] == SKIP


def test_a_spec_with_a_mistake_is_skipped_and_said(
    code: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (code / "repro.yml").write_text("version: 1\ncolour: red\n")
    exit_code, gate = judged(monkeypatch, code, reports.PASS)
    assert exit_code == SKIP and not gate.asked
    assert "colour" in capsys.readouterr().err
    # which is a usage error without --bisect
    assert main(["run", str(code), "--against", "good"]) == 2


def test_only_what_tells_the_results_apart_is_run(
    code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, gate = judged(monkeypatch, code, changed("none"), "--set", "cost.measure=true")
    [(spec, options)] = gate.asked
    assert (spec.cost.measure, spec.robustness.vary, spec.diagnosis) == (False, (), None)
    assert options.against == "good"


def test_a_report_is_shown_and_written_as_ever(
    code: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = code.parent / "report.json"
    assert judged(monkeypatch, code, changed("rounding"), "--json", str(path))[0] == 1
    assert "rounding only" in capsys.readouterr().out and path.exists()


ALONE = [
    (("--bisect",), "leave out --bisect"),
    (("--bisect", "--size", "rounding"), "leave out --bisect"),
    (("--against", "x", "--size", "rounding"), "leave out --size"),
    (("--size", "rounding"), "leave out --size"),
    (("--against", "x", "--against-env", "y"), "leave out --against-env"),
    (("--record", "--against-env", "y"), "leave out --against-env"),
    (("--record", *BISECT), "leave out --against"),
    (("--quick", *BISECT), "leave out --against"),
    (("--quick", "--against-env", "y"), "leave out --against-env"),
    (("--only", "diagnosis", *BISECT), "leave out --against"),
    (("--only", "diagnosis", "--against-env", "y"), "leave out --against-env"),
    (("--only", "diagnosis", "--seeds", "5"), "leave out --seeds"),
]


@pytest.mark.parametrize(("arguments", "remedy"), ALONE)
def test_options_of_which_one_would_be_ignored_are_refused(
    arguments: tuple[str, ...],
    remedy: str,
    code: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(command, "run_gate", Gate(AssertionError("it was started")))
    assert main(["run", str(code), *arguments]) == 2
    assert remedy in capsys.readouterr().err


def test_another_environment_may_be_bisected_too(
    code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(changed("none"))
    monkeypatch.setattr(command, "run_gate", gate)
    assert main(["run", str(code), "--quiet", "--against-env", "new.txt", "--bisect"]) == 0
    assert gate.asked[0][1].against_env == "new.txt"


@pytest.mark.parametrize("size", ["none", "effect", "different", "huge", ""])
def test_another_size_is_refused(size: str, code: Path) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["run", str(code), *BISECT, "--size", size])


@pytest.mark.parametrize(
    ("seeds", "exit_code"),
    [
        ("5", 0),
        ("3", 0),
        ("50", 0),
        ("2", 2),
        ("51", 2),
        ("0", 2),
        ("-1", 2),
    ],
)
def test_seeds_are_those_of_the_spec_s_section(
    seeds: str,
    exit_code: int,
    code: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    gate = Gate(changed("none"))
    monkeypatch.setattr(command, "run_gate", gate)
    found = main(["run", str(code), "--quiet", "--against", "good", "--seeds", seeds])
    assert found == exit_code, capsys.readouterr().err
    if exit_code == 0:
        rule = gate.asked[0][0].effect
        assert rule is not None and (rule.seeds, rule.metrics) == (int(seeds), ("loss",))
    else:
        assert "effect.seeds" in capsys.readouterr().err
