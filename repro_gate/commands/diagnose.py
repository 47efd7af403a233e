"""`repro-gate diagnose`: the deterministic runs alone, and where they diverge, the search for the
cause, told as it goes; as JSON lines for tools, with every use of a factor that differed."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TextIO

import msgspec

from repro_gate.compare.model import Divergence
from repro_gate.diagnosis.model import Diagnosis, Pair, Setting
from repro_gate.diagnosis.operators import culprit
from repro_gate.diagnosis.suspects import Suspect, suspects
from repro_gate.errors import Inconclusive
from repro_gate.escape import and_more, for_terminal
from repro_gate.gate.options import Options
from repro_gate.gate.run import diagnose_alone
from repro_gate.report import findings, widgets
from repro_gate.report.model import EXIT_CODES, View
from repro_gate.report.progress import sentence
from repro_gate.report.wording import phrase
from repro_gate.runs.progress import Watch
from repro_gate.runs.results import Results
from repro_gate.spec.model import DiagnosisBounds, Spec
from repro_gate.trace.notebook import place

_SHOWN, _KEPT = 8, 1_000  # lines that differed: told in the story, written as JSON
_ALL = 1 << 62  # later than any step


def diagnose(
    spec: Spec,
    options: Options,
    watch: Watch,
    tell: Callable[[str], None],
    lines: TextIO | None,
    view: View,
) -> int:
    """Diagnose the training of a spec and return the exit code: 0 where the runs agree, 1 where
    they diverged.

    The search is bounded by the spec, by its defaults under `diagnosis: false`; a tolerance is not
    looked at. `tell` gets the story, line by line and safe to print; `lines` is the open file for
    JSON lines. Raises Inconclusive where the runs could not be compared.
    """
    whole = replace(
        spec,
        diagnosis=spec.diagnosis or DiagnosisBounds(),
        determinism=replace(spec.determinism, tolerance=None),
    )
    numbers = itertools.count(1)

    def write(event: str, **fields: Any) -> None:
        if lines is not None:  # at once: who reads along sees it before the next pair
            print(msgspec.json.encode({"event": event, **fields}).decode(), file=lines, flush=True)

    def tell_runs(results: Results) -> None:
        for seed, comparison in results.comparisons.items():
            first = comparison.first_divergence
            tell(f"two runs with seed {seed}: they {_showed(first)}")
            write("runs", seed=seed, identical=comparison.identical, first_divergence=first)

    def tell_pair(purpose: str, setting: Setting, pair: Pair) -> None:
        number, until = next(numbers), _ALL if pair.first is None else max(pair.first.step, 0)
        differed = suspects(*pair.uses, until=until)
        write(
            "pair",
            number=number,
            purpose=purpose,
            setting=setting,
            failed=pair.failed,
            first_divergence=pair.first,
            uses=differed[:_KEPT],
            operators=[len(run) for run in pair.operators],
            operator=culprit(*pair.operators),
        )
        showed = f"they {_showed(pair.first)}"
        if pair.failed:
            showed = f"failed: {for_terminal(pair.failed, 300)}"
        tell(f"{number}. {for_terminal(purpose, 1_000)}: {showed}")
        if setting.pinned:
            return
        for line in (*map(_use, differed[:_SHOWN]), and_more(len(differed) - _SHOWN)):
            if line:
                tell(f"   {line}")

    results, found = diagnose_alone(whole, options, watch, tell_runs, tell_pair)
    for run in results.runs:
        if run.log_matters:
            tell(for_terminal(f"run {run.request.name}: {run.problem}", 1_000))
    diverged = any(not comparison.identical for comparison in results.comparisons.values())
    if results.interrupted and not diverged:
        raise Inconclusive(results.interrupted, remedy="diagnose it again")
    for run in () if diverged else results.runs:
        if not run.good and run.request.name not in results.fragile:
            problem = f"run {run.request.name}: {for_terminal(run.problem, 1_000)}"
            raise Inconclusive(problem, remedy=run.remedy)
    if not results.comparisons:
        raise Inconclusive(
            "no two runs could be compared",
            remedy="run the gate, whose report says why: `repro-gate run`",
        )
    write("diagnosis", diagnosis=found)
    if found is not None:
        tell("")
        answer = widgets.printed(replace(view, colour=False), *_answer(found))
        for line in answer.rstrip("\n").split("\n"):
            tell(line)
    return EXIT_CODES["fail" if diverged or found is not None else "pass"]


def _showed(first: Divergence | None) -> str:
    return "agree" if first is None else f"diverge {sentence(first)}"


def _answer(found: Diagnosis) -> list[Any]:
    lines = [*findings.why(found), *findings.background(found)]
    remedy = phrase("remedy: {message}", message=findings.remedy_of(found))
    return [*(widgets.text(line) for line in lines), widgets.text(remedy, "green")]


def _use(suspect: Suspect) -> str:
    """One line that got different answers."""
    use = suspect.use
    where = place(*use.site) if use.site[0] else "outside the workspace"
    return for_terminal(
        f"{use.factor}: {use.source} in {where} differs, from step {use.step} on", 300
    )
