"""Who watches is told whether a repeat is identical so far, if anything was compared."""

from __future__ import annotations

from dataclasses import replace

from repro_gate.compare.model import Divergence
from repro_gate.runs.progress import Progress, Watch
from repro_gate.trace.model import Trace
from tests.support.built_traces import block, place_of, training, with_loss

FIRST = training(5)


class Told(Watch):
    """Everything that is told, in order."""

    def __init__(self) -> None:
        self.said: list[object] = []

    def advanced(self, step: int, loss: float | None) -> None:
        self.said.append(step)

    def compared(self, divergence: Divergence | None) -> None:
        self.said.append(
            "same" if divergence is None else ("differs", divergence.step, divergence.kind)
        )

    def diverged(self, divergence: Divergence) -> None:
        self.said.append("diverged")


def grown(trace: Trace, steps: int) -> Trace:
    """The trace as it is after so many steps."""
    blocks = [block for block in trace.blocks if block.step < steps]
    return replace(trace, blocks=blocks, steps=trace.steps[:steps])


def told(
    second: Trace, *, fail_fast: bool = False, varied: bool = False
) -> tuple[list[object], str]:
    """What a watch is told of a run that is looked at after each step, and why it was ended."""
    watch, ended = Told(), None
    progress = Progress(watch=watch, first=(FIRST,), fail_fast=fail_fast, varied=varied)
    for steps in range(1, len(second.steps) + 1):
        ended = ended or progress.tick([grown(second, steps)])
    return watch.said, ended or ""


def test_an_identical_repeat_is_identical_so_far_at_every_step() -> None:
    assert told(training(5)) == (["same", 0, "same", 1, "same", 2, "same", 3, "same", 4], "")


def test_a_divergence_is_told_once_and_stays_the_state() -> None:
    second = with_loss(training(5), 2, 7.0)
    differs = ("differs", 2, "loss")
    assert told(second)[0] == ["same", 0, "same", 1, "diverged", differs, 2, differs, 3, differs, 4]
    assert told(second, fail_fast=True)[1] == "stopped: diverged from the first run"
    # of a varied run it is not announced, and is the state all the same; it goes on to its end
    said, ended = told(second, fail_fast=True, varied=True)
    assert "diverged" not in said and said[-2:] == [differs, 4] and not ended


def test_the_state_in_which_a_run_ends_early_is_of_no_step() -> None:
    final = [
        block(3, kind, seed="after three steps") for kind in ("parameter", "optimizer", "buffer")
    ]
    short = replace(training(3), blocks=[*training(3).blocks, block(3, "batch"), *final])
    watch = Told()
    live = Progress(watch=watch, first=(FIRST,), fail_fast=True, varied=False)
    assert live.tick([grown(short, 2)]) is None and live.tick([short]) is None
    assert live.divergence is None and "same" in watch.said
    longer = replace(short, steps=training(4).steps)  # that step was closed after all
    assert live.tick([longer]) is not None and live.divergence is not None
    assert (live.divergence.step, live.divergence.kind) == (3, "parameter")


def test_where_nothing_can_be_compared_nothing_is_called_identical() -> None:
    for key in ("rank0", "other"):
        assert told(training(3, key=key))[0] == [0, 1, 2]
    states = [FIRST.blocks[place_of(FIRST, step, "rng")] for step in range(3)]
    assert "same" not in told(replace(training(3), blocks=states))[0]
