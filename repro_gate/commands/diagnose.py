"""`repro-gate diagnose`: the deterministic runs alone, and where they diverge, the search for the
cause, told as it goes.

The story is for people; the JSON lines hold the same for tools, with every use of a factor that
differed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from typing import Any, TextIO

import msgspec

from repro_gate.diagnosis.model import Diagnosis, Pair, Setting
from repro_gate.diagnosis.operators import culprit
from repro_gate.diagnosis.suspects import Suspect, suspects
from repro_gate.errors import Inconclusive
from repro_gate.escape import and_more, for_terminal
from repro_gate.gate.options import Options
from repro_gate.gate.run import diagnose_alone
from repro_gate.report import causes, widgets
from repro_gate.report.document import plain
from repro_gate.report.model import EXIT_CODES, View
from repro_gate.report.progress import sentence
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
    told = _Told(tell, lines)
    whole = replace(
        spec,
        diagnosis=spec.diagnosis or DiagnosisBounds(),
        determinism=replace(spec.determinism, tolerance=None),
    )
    results, found = diagnose_alone(whole, options, watch, told.compared, told.pair)
    for run in results.runs:
        if run.log_matters:
            tell(for_terminal(f"run {run.plan.name}: {run.problem}", 1_000))
    diverged = any(not comparison.identical for comparison in results.comparisons.values())
    if results.interrupted and not diverged:
        raise Inconclusive(results.interrupted, remedy="diagnose it again")
    if not diverged and (
        bad := next(
            (run for run in results.runs if not run.good and run.plan.name not in results.fragile),
            None,
        )
    ):
        raise Inconclusive(
            f"run {bad.plan.name}: {for_terminal(bad.problem, 1_000)}", remedy=bad.remedy
        )
    if not results.comparisons:
        raise Inconclusive(
            "no two runs could be compared",
            remedy="run the gate, whose report says why: `repro-gate run`",
        )
    told.write({"event": "diagnosis", "diagnosis": msgspec.to_builtins(found)})
    if found is not None:
        tell("")
        for line in (
            widgets.printed(replace(view, colour=False), *_answer(found)).rstrip("\n").split("\n")
        ):
            tell(line)
    return EXIT_CODES["fail" if diverged or found is not None else "pass"]


def _answer(found: Diagnosis) -> list[Any]:
    lines = [*causes.why(found), *causes.background(found)]
    return [*(widgets.text(line) for line in lines), widgets.remedy(causes.remedy_of(found))]


class _Told:
    """The story so far."""

    def __init__(self, tell: Callable[[str], None], lines: TextIO | None) -> None:
        self._tell, self._lines = tell, lines
        self._number = 0

    def compared(self, results: Results) -> None:
        """The two deterministic runs of each seed."""
        for seed, comparison in results.comparisons.items():
            first = comparison.first_divergence
            self._tell(
                f"two runs with seed {seed}: they "
                + ("agree" if first is None else f"diverge {sentence(first)}")
            )
            self.write(
                {
                    "event": "runs",
                    "seed": seed,
                    "identical": comparison.identical,
                    "first_divergence": msgspec.to_builtins(first),
                }
            )

    def pair(self, purpose: str, setting: Setting, pair: Pair) -> None:
        """One pair of runs of the search."""
        self._number += 1
        differed = suspects(
            *pair.uses, until=_ALL if pair.first is None else max(pair.first.step, 0)
        )
        operator = culprit(*pair.operators)
        showed = f"failed: {for_terminal(pair.failed, 300)}" if pair.failed else "they agree"
        if pair.first is not None:
            showed = f"they diverge {sentence(pair.first)}"
        self._tell(f"{self._number}. {for_terminal(purpose, 1_000)}: {showed}")
        for suspect in differed[:_SHOWN] if not setting.pinned else ():
            self._tell(f"   {_use(suspect)}")
        if not setting.pinned and (left := and_more(len(differed) - _SHOWN)):
            self._tell(f"   {left}")
        self.write(
            {
                "event": "pair",
                "number": self._number,
                "purpose": purpose,
                "setting": {
                    **msgspec.to_builtins(setting),
                    "pinned": sorted(msgspec.to_builtins(setting.pinned), key=str),
                },
                "failed": pair.failed,
                "first_divergence": msgspec.to_builtins(pair.first),
                "uses": [msgspec.to_builtins(item) for item in islice(differed, _KEPT)],
                "operators": [len(run) for run in pair.operators],
                "operator": msgspec.to_builtins(operator),
            }
        )

    def write(self, event: dict[str, Any]) -> None:
        """One line of JSON, at once: who reads along sees it before the next pair."""
        if self._lines is not None:
            self._lines.write(json.dumps(plain(event), allow_nan=False) + "\n")
            self._lines.flush()


def _use(suspect: Suspect) -> str:
    """One line that got different answers."""
    use = suspect.use
    where = place(*use.site) if use.site[0] else "outside the workspace"
    return for_terminal(
        f"{use.factor}: {use.source} in {where} differs, from step {use.step} on", 300
    )
