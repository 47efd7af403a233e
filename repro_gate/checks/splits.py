"""The check `data/splits`: were the records that training drew others than those that it was evaluated on? Listed in `data.CHECKS`.

The probe digests each record as a DataLoader hands it out, in one observed run. A record that augmentation changes differs from its source,
so what augmentation hides is not seen; neither are the records of steps that were not run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from repro_gate.checks.interface import Evidence, Outcome, check, missing, passed, shortened, skipped
from repro_gate.checks.loaders import by_loader
from repro_gate.runs.launch import Run
from repro_gate.trace.format import RECORD_BYTES
from repro_gate.trace.model import Records


@dataclass(frozen=True)
class _Evaluated:
    """One evaluation loader: how many different records it drew, and how many of those training drew as well."""

    name: str
    records: int
    shared: int

    def __str__(self) -> str:
        share = 100 * self.shared / self.records
        return f"{self.name}: {self.shared} of {self.records} records ({share:.3g} %) were drawn for training too"


@check("data/splits", "No record that a DataLoader drew for training was drawn for evaluation.")
def splits_disjoint(evidence: Evidence) -> Outcome:
    """Digests of records, compared with each other over all processes of the first run that has any."""
    run = next((run for run in evidence.runs if any(trace.records for trace in run.traces)), None)
    drawn = list(by_loader(run, lambda trace: ((item.loader, item) for item in trace.records))) if run is not None else []
    training = [(name, item) for name, item in drawn if item.role == "train" and item.digests]
    own = _training_sets(run)
    evaluation = [(name, item) for name, item in drawn if item.role == "evaluation" and item.digests and name not in own]
    if not training or not evaluation:
        seen = "training" if training else "evaluation" if evaluation else ""
        more = ", and an evaluation of the training set itself" if own else ""
        return skipped(f"only {seen} drew from a torch DataLoader{more}" if seen else "no record came through a torch DataLoader")
    trained = {digest for _, item in training for digest in _split(item.digests)}
    evaluated = [_evaluated(name, item, trained) for name, item in evaluation]
    cut = [f"{name}: not every record was kept; the others were not compared" for name, item in drawn if not item.whole]
    cut += [f"{name}: draws the training set itself, which measures how well it is fitted" for name, item in drawn if name in own]
    names = ", ".join(name for name, _ in training[:4]) + (", …" if len(training) > 4 else "")
    return _judged(evaluated, f"{len(trained)} records of {names}", cut)


def _training_sets(run: Run | None) -> set[str]:
    """Evaluation loaders over the very data set that a training loader draws whole: nobody holds that out."""
    if run is None:
        return set()
    numbers = dict(by_loader(run, lambda trace: ((item.number, (id(trace), item.dataset)) for item in trace.loaders)))
    roles = dict(by_loader(run, lambda trace: ((item.loader, item.role) for item in trace.records)))
    trained = {numbers[name] for name, role in roles.items() if role == "train" and name in numbers and numbers[name][1] is not None}
    return {name for name, role in roles.items() if role == "evaluation" and numbers.get(name) in trained}


def _judged(evaluated: Sequence[_Evaluated], trained: str, cut: Sequence[str]) -> Outcome:
    """A loader that draws nothing but training records, beside one that draws none, measures how well training data is fitted."""
    shared = [item for item in evaluated if item.shared]
    if not shared:
        total = sum(item.records for item in evaluated)
        return passed(f"{total} records of {len(evaluated)} evaluation loaders share none with {trained}", cut)
    lines = (*shortened([str(item) for item in shared]), *shortened(list(cut), 3))
    if len(shared) < len(evaluated) and all(item.shared == item.records for item in shared):
        return passed(
            f"{len(shared)} of {len(evaluated)} evaluation loaders draw nothing but training records ({trained}), the others draw none",
            lines,
        )
    return missing(
        f"{sum(item.shared for item in shared)} records were drawn both for training ({trained}) and for evaluation",
        lines,
        "split by record, with a fixed seed, before anything is shuffled or copied; where equal records are not the same record (synthetic "
        "or very small ones), name the check under checklist.waive with that reason",
    )


def _evaluated(name: str, item: Records, trained: set[bytes]) -> _Evaluated:
    digests = set(_split(item.digests))
    return _Evaluated(name, len(digests), len(digests & trained))


def _split(digests: bytes) -> Iterator[bytes]:
    return (digests[place : place + RECORD_BYTES] for place in range(0, len(digests) - RECORD_BYTES + 1, RECORD_BYTES))
