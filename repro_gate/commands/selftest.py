"""`repro-gate selftest`: the table of faults and how the gate found them, and the same as JSON for
audits (`docs/selftest.md`)."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator

import msgspec
from rich.text import Text

from repro_gate import __version__
from repro_gate.commands import output
from repro_gate.commands.gate import requested
from repro_gate.compare.model import Divergence
from repro_gate.errors import UsageError
from repro_gate.gate.faults import FAULTS
from repro_gate.gate.selftest import Row, SelfTest, selftest
from repro_gate.report import widgets, wording
from repro_gate.report.document import jsonable, to_text
from repro_gate.report.model import View

SCHEMA_ID = "repro-gate/selftest/v1"
_STYLE = {
    "caught": "green",
    "not caught": "bold white on red",
    "not applicable": "dim",
    "inconclusive": "yellow",
}
_OUTCOMES = {0: "caught", 1: "not caught", 3: "inconclusive"}


def selftest_command(options: Namespace) -> int:
    """Put faults into a training, and print how the gate found them, the JSON first: a closed pipe
    must not lose it."""
    output.writable(options.json)
    steps = options.steps
    options.steps = None  # the spec's stay as they are: they bound these
    if steps is not None and steps < 1:
        raise UsageError(
            f"--steps {steps}: a run takes one step at least",
            remedy="leave it out for a few steps",
        )
    spec, gate_options = requested(options, policy="head")
    with output.watch(options) as watch:
        result = selftest(spec, gate_options, watch, options.only, steps)
    output.write(options.json, as_json(result, options.spec))
    output.print_guarded(table(result, output.view()))
    return result.exit_code


def as_json(result: SelfTest, spec: str) -> str:
    """Return the document of a self-test, as text."""
    rows = [
        {**msgspec.to_builtins(row), "about": FAULTS[row.fault]} for row in result.rows
    ]
    for row in rows:
        if row["put"]:
            del row["put"]["key"]  # the probe's own
    document = {
        "schema": SCHEMA_ID,
        "tool_version": __version__,
        "spec": spec,
        "outcome": _OUTCOMES[result.exit_code],
        "seed": result.seed,
        "steps": result.steps,
        "seconds": result.seconds,
        "faults": rows,
    }
    return to_text(jsonable(document))


def table(result: SelfTest, view: View) -> str:
    """Return a row for each fault, then what it comes to."""
    rows = widgets.grid(10, 14, None)
    for row in result.rows:
        rows.add_row(
            Text(row.fault),
            widgets.text(wording.say(row.outcome), _STYLE[row.outcome]),
            Text("\n").join(_lines(row)),
        )
    return widgets.printed(
        view, rows, Text(""), widgets.text(wording.say(_sentence(result)))
    )


def _lines(row: Row) -> Iterator[Text]:
    yield widgets.text(wording.say(FAULTS[row.fault]))
    if row.put is not None:
        place = row.put
        put = Divergence(
            step=place.step, kind=place.kind, name=place.name, process=place.process
        )
        yield widgets.text(wording.phrase("put in: {}", wording.where(put)))
    if row.found is not None:
        yield widgets.text(wording.phrase("found:  {}", wording.where(row.found)))
    if row.why:
        yield widgets.text(
            (("message", row.why),), "" if row.outcome == "caught" else "dim"
        )


def _sentence(result: SelfTest) -> str:
    """Say what it comes to, in one sentence."""
    faults = {
        outcome: ", ".join(row.fault for row in result.rows if row.outcome == outcome)
        for outcome in _STYLE
    }
    excluded = faults["not applicable"]
    others = excluded and f"; not applicable: {excluded}"
    if result.exit_code == 0:
        count = sum(row.outcome == "caught" for row in result.rows)
        return f"all faults that apply ({count}) were caught where they were put in{others}"
    if result.exit_code == 1:
        return (
            f"not caught: {faults['not caught']}: do not trust a pass of this gate on this "
            f"machine{others}"
        )
    which = faults["inconclusive"] or excluded
    return f"inconclusive, for these faults show nothing: {which}{others}"
