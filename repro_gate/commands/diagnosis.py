"""`repro-gate run --only diagnosis`: the deterministic runs alone, and if they diverge, the search
for the cause, told as it goes; for tools as JSON lines, with each use of a factor that differed."""

from __future__ import annotations

import os
from argparse import Namespace
from dataclasses import dataclass, replace
from typing import Any, TextIO

import msgspec

from repro_gate.commands import output
from repro_gate.compare.model import Divergence
from repro_gate.diagnosis.model import Pair, Setting
from repro_gate.diagnosis.operators import culprit
from repro_gate.diagnosis.suspects import Suspect, suspects
from repro_gate.errors import Inconclusive
from repro_gate.escape import and_more, for_terminal
from repro_gate.gate.options import Options
from repro_gate.gate.robustness import diagnose_alone
from repro_gate.report import findings, widgets
from repro_gate.report.model import EXIT_CODES
from repro_gate.report.progress import sentence
from repro_gate.report.wording import phrase
from repro_gate.runs.results import Results
from repro_gate.spec.model import DiagnosisBounds, Spec
from repro_gate.trace.notebook import place

_SHOWN, _KEPT = 8, 1_000  # lines that differed: told in the story, written as JSON
_ALL = 1 << 62  # later than any step


def diagnose(spec: Spec, gate_options: Options, options: Namespace) -> int:
    """Diagnose a training, tell the story on standard output and to tools as JSON lines, and return
    0 if the runs agree, 1 if they diverged.

    The search is bounded by the spec, by its defaults under `diagnosis: false`; a tolerance is not
    looked at. Raises Inconclusive if the runs could not be compared.
    """
    output.writable(options.json_lines)
    whole = replace(
        spec,
        diagnosis=spec.diagnosis or DiagnosisBounds(),
        determinism=replace(spec.determinism, tolerance=None),
    )
    with (
        open(options.json_lines or os.devnull, "w", encoding="utf-8") as lines,
        output.watch(options) as watch,
    ):
        story = _Story(lines)
        results, diagnosis = diagnose_alone(
            whole, gate_options, watch, story.of_runs, story.of_pair
        )
        for run in results.runs:
            if run.log_matters:
                output.say(f"run {run.request.name}: {run.problem}", 1_000)
        pairs = results.comparisons.values()
        diverged = not all(comparison.identical for comparison in pairs)
        if not diverged:
            _require_comparison(results)
        story.write("diagnosis", diagnosis=diagnosis)
    if diagnosis is not None:
        remedy = phrase("remedy: {message}", message=findings.remedy_of(diagnosis))
        answer = *findings.why(diagnosis), *findings.background(diagnosis), remedy
        parts = map(widgets.text, answer)
        output.print_guarded(widgets.printed(output.view(), "", *parts))
    return EXIT_CODES["fail" if diverged or diagnosis is not None else "pass"]


def _require_comparison(results: Results) -> None:
    """Raise Inconclusive if the runs were not compared to their end."""
    if results.interrupted:
        raise Inconclusive(results.interrupted, remedy="diagnose it again")
    for run in results.runs:
        if not run.good and run.request.name not in results.fragile:
            problem = f"run {run.request.name}: {for_terminal(run.problem, 1_000)}"
            raise Inconclusive(problem, remedy=run.remedy)
    if not results.comparisons:
        raise Inconclusive(
            "no two runs could be compared",
            remedy="run the gate, whose report says why: `repro-gate run`",
        )


@dataclass
class _Story:
    """Tells of each comparison as soon as it is made."""

    lines: TextIO
    pairs: int = 0

    def write(self, event: str, **fields: Any) -> None:
        """Write a line for tools at once: who reads along sees it before the next pair."""
        line = msgspec.json.encode({"event": event, **fields}).decode()
        print(line, file=self.lines, flush=True)

    def of_runs(self, results: Results) -> None:
        """Tell what the first runs showed."""
        for seed, pair in results.comparisons.items():
            first = pair.first_divergence
            output.say(f"two runs with seed {seed}: they {_outcome(first)}")
            self.write(
                "runs", seed=seed, identical=pair.identical, first_divergence=first
            )

    def of_pair(self, purpose: str, setting: Setting, pair: Pair) -> None:
        """Tell what two further runs showed, and in which lines they differed."""
        self.pairs += 1
        until = _ALL if pair.first is None else max(pair.first.step, 0)
        differed = suspects(*pair.uses, until=until)
        self.write(
            "pair",
            number=self.pairs,
            purpose=purpose,
            setting=setting,
            failed=pair.failed,
            first_divergence=pair.first,
            uses=differed[:_KEPT],
            operators=[len(run) for run in pair.operators],
            operator=culprit(*pair.operators),
        )
        outcome = f"they {_outcome(pair.first)}"
        if pair.failed:
            outcome = f"failed: {pair.failed}"
        output.say(f"{self.pairs}. {for_terminal(purpose, 1_000)}: {outcome}", 1_400)
        if not setting.pinned:
            uses = [*map(_use, differed[:_SHOWN]), and_more(len(differed) - _SHOWN)]
            for line in filter(None, uses):
                output.say(f"   {line}", 300)


def _outcome(first: Divergence | None) -> str:
    return "agree" if first is None else f"diverge {sentence(first)}"


def _use(suspect: Suspect) -> str:
    """Return a line that got different answers."""
    use = suspect.use
    where = place(*use.site) if use.site[0] else "outside the workspace"
    return f"{use.factor}: {use.source} in {where} differs, from step {use.step} on"
