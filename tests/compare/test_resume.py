"""Claims about `compare.resume`: where a leg begins, what it lacks, and whether it is the same
training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from repro_gate.compare.model import Divergence, Leg
from repro_gate.compare.resume import beginnings, leg_of
from repro_gate.trace.blocks import Block
from repro_gate.trace.model import StepMark, Trace
from tests.support.built_traces import ROWS, block, digest, flip, training

STEPS = 8
GROUP = (("param_groups.0.lr", "float", ()), ("param_groups.0.weight_decay", "float", ()))
Change = Callable[[list[Block]], list[Block]]


def with_groups(trace: Trace, rates: list[float]) -> Trace:
    """The training with the numbers of its one parameter group at every step."""
    groups = [
        block(step, "optimizer", GROUP, at=1, seed=rate, values=(rate, 0.1))
        for step, rate in enumerate(rates)
    ]
    blocks = sorted([*trace.blocks, *groups], key=lambda item: item.step)
    return replace(trace, blocks=blocks)


REFERENCE = with_groups(training(STEPS), [0.1 / (step + 1) for step in range(STEPS)])


def leg(begins: int, count: int, change: Change = lambda blocks: blocks) -> Trace:
    """What the probe records of a training that goes on from a step: its state before the first
    step, then steps counted from 0."""

    def at(item: Block, step: int) -> Block:
        return replace(item, step=step)

    before = [item for item in REFERENCE.blocks if item.step == begins - 1]
    own = [item for item in REFERENCE.blocks if begins <= item.step < begins + count]
    first = [at(item, 0) for item in own if item.step == begins]
    cut = next(place for place, item in enumerate(first) if item.kind == "gradient")
    initial = [at(item, -1) for item in before if item.kind in ("parameter", "buffer")]
    state = [at(item, 0) for item in before if item.kind in ("parameter", "optimizer")]
    later = [at(item, item.step - begins) for item in own if item.step > begins]
    blocks = [*initial, *first[:cut], *state, *first[cut:], *later]
    marks = [StepMark(step, 10.0, 0.1, 1 << 20, 0) for step in range(count)]
    return replace(REFERENCE, blocks=change(blocks), steps=marks)


def judged(trace: Trace, *, number: int = 2, reached_end: bool = False) -> Leg:
    return leg_of([REFERENCE], [trace], number=number, reached_end=reached_end, expected=3)


def otherwise(kind: str, step: int, *, last: bool = False) -> Change:
    """Other digests in the first, or last, block of a kind in a step, and in what follows it."""

    def change(blocks: list[Block]) -> list[Block]:
        places = [
            place for place, item in enumerate(blocks) if (item.step, item.kind) == (step, kind)
        ]
        place = places[-1 if last else 0]
        other = b"".join(digest("other", row) for row in blocks[place].rows)
        return [*blocks[:place], replace(blocks[place], content=other), *blocks[place + 1 :]]

    return change


def without(kind: str, step: int) -> Change:
    def change(blocks: list[Block]) -> list[Block]:
        place = next(n for n, item in enumerate(blocks) if (item.step, item.kind) == (step, kind))
        return [*blocks[:place], *blocks[place + 1 :]]

    return change


@pytest.mark.parametrize("begins", [1, 3, STEPS - 1])
def test_a_leg_begins_where_its_parameters_are_the_reference_s(begins: int) -> None:
    found = judged(leg(begins, STEPS - begins), reached_end=True)
    assert (found.begins, found.ends, found.identical) == (begins, STEPS, True)
    assert found.not_restored == ()


def test_a_leg_that_was_stopped_is_compared_as_far_as_it_came() -> None:
    found = judged(leg(3, 2))
    assert (found.begins, found.ends, found.identical) == (3, 5, True)
    short = judged(leg(3, 2), reached_end=True)
    assert not short.identical
    assert [item.component for item in short.not_restored] == ["step-count"]


def test_ranks_must_begin_at_one_step() -> None:
    ours = {"rank0": REFERENCE, "rank1": REFERENCE}
    assert beginnings(ours, {"rank0": leg(3, 2), "rank1": leg(3, 2)}) == [3]
    assert beginnings(ours, {"rank0": leg(3, 2), "rank1": leg(4, 2)}) == []


@pytest.mark.parametrize(
    ("component", "change"),
    [
        ("buffers", otherwise("buffer", -1)),
        ("optimizer-state", without("optimizer", 0)),
        ("optimizer-state", otherwise("optimizer", 0)),
        ("rng:python", otherwise("rng", 0)),
        ("batches", otherwise("batch", 0)),
        ("gradients", otherwise("gradient", 0)),
        ("unrecorded", otherwise("loss", 0)),
        ("batches", otherwise("batch", 1)),
    ],
)
def test_what_was_not_restored_is_named(component: str, change: Change) -> None:
    found = judged(leg(3, 4, change))
    assert component in [item.component for item in found.not_restored]
    assert found.begins == 3


def test_a_learning_rate_that_changes_is_the_scheduler_s() -> None:
    blocks = leg(3, 4).blocks
    at = max(n for n, item in enumerate(blocks) if (item.step, item.kind) == (0, "optimizer"))
    other = block(0, "optimizer", GROUP, at=1, seed="other", values=(0.1, 0.1))
    changed = replace(leg(3, 4), blocks=[*blocks[:at], other, *blocks[at + 1 :]])
    found = judged(changed)
    assert [item.component for item in found.not_restored] == ["scheduler"]
    assert "0.1 where the reference has 0.025" in found.not_restored[0].message


def test_a_generator_that_nothing_depends_on_is_named_and_decides_nothing() -> None:
    found = judged(leg(3, 4, otherwise("rng", 0)))
    assert [item.component for item in found.not_restored] == ["rng:python", "rng:torch"]
    assert found.identical


def states(trace: Trace, name: str, seed: object, moves: bool) -> Trace:
    """The training with one more generator, whose state moves at each step, or never."""

    def more(item: Block) -> Block:
        if item.kind != "rng":
            return item
        state = digest("state", name, seed, item.step if moves else 0)
        rows = (*item.rows, (name, "state", ()))
        return replace(item, rows=rows, content=item.digests + state)

    return replace(trace, blocks=[more(item) for item in trace.blocks])


@pytest.mark.parametrize(
    ("moves", "again", "components"),
    [
        (True, 1, ["rng:numpy"]),
        (True, 2, ["unrecorded"]),  # nobody seeded it: it differs whether or not it is restored
        (False, 1, ["unrecorded"]),  # nothing is drawn from it
    ],
)
def test_a_generator_of_no_effect_is_not_named_and_hides_nothing(
    moves: bool, again: int, components: list[str]
) -> None:
    reference = states(REFERENCE, "numpy", 1, moves)
    repeat = states(REFERENCE, "numpy", again, moves)
    own = states(leg(3, 4, otherwise("loss", 0)), "numpy", 3, moves)
    found = leg_of([reference], [own], number=2, reached_end=False, expected=3, again=[repeat])
    assert [item.component for item in found.not_restored] == components
    assert found.first_divergence is not None
    assert found.first_divergence.kind == ("rng" if "rng:numpy" in components else "loss")


def test_part_of_the_parameters_is_named_alone_at_the_step_of_the_others() -> None:
    own = leg(3, 4)
    blocks = [
        flip(1)(item) if item.kind == "parameter" and item.step < 1 else item for item in own.blocks
    ]
    found = leg_of(
        [REFERENCE], [replace(own, blocks=blocks)], number=2, reached_end=False, expected=5
    )
    assert (found.begins, found.identical) == (3, False)
    (only,) = found.not_restored
    assert only.component == "parameters"
    assert only.message == "1 of its 2 parameters are not as they were before step 3: fc.bias"


def test_weights_of_another_start_are_no_training_that_began_anew() -> None:
    own = leg(3, 4)
    fresh = [item for item in REFERENCE.blocks if (item.step, item.kind) == (-1, "parameter")]
    first = [flip(0)(item) for item in fresh]  # the other half is as before the first step
    blocks = [
        item
        for item in own.blocks
        if item.step >= 0 and item.kind not in ("optimizer", "parameter")
    ]
    found = judged(replace(own, blocks=[*first, *blocks]))
    assert (found.begins, found.not_restored[0].component) == (3, "parameters")


def test_what_an_empty_optimizer_state_takes_along_is_no_component_of_its_own() -> None:
    """Its step counts, and the learning rate that a scheduler had set."""
    blocks = without("optimizer", 0)(leg(3, 4).blocks)
    at = max(n for n, item in enumerate(blocks) if (item.step, item.kind) == (0, "optimizer"))
    other = block(0, "optimizer", GROUP, at=1, seed="other", values=(0.1, 0.1))
    found = judged(replace(leg(3, 4), blocks=[*blocks[:at], other, *blocks[at + 1 :]]))
    (only,) = found.not_restored
    assert (
        only.component == "optimizer-state" and "is empty, learning rate 0.1 where" in only.message
    )


def in_passes(trace: Trace, passes: Sequence[range], begins: int = 0) -> Trace:
    """The training with several backward passes before an update, by step: batch, generators and
    loss of each."""
    blocks = [item for item in trace.blocks if item.step < 0 or item.kind not in ("rng", "loss")]
    for item in [item for item in blocks if item.kind == "batch"]:
        own: list[Block] = []
        for at, number in enumerate(passes[item.step]):
            for kind in ("batch", "rng", "loss"):
                rows = ROWS[kind]
                content = b"".join(digest(begins + item.step, number, row) for row in rows)
                own.append(replace(item, kind=kind, at=at, rows=rows, content=content))
        place = blocks.index(item)
        blocks[place : place + 1] = own
    return replace(trace, blocks=blocks)


@pytest.mark.parametrize("left", [range(2, 4), range(3, 4), range(4)])
@pytest.mark.parametrize("fault", [None, "gradient", "loss", "rng"])
def test_a_checkpoint_between_two_passes_of_an_update_is_compared_from_there(
    left: range, fault: str | None
) -> None:
    reference = in_passes(REFERENCE, [range(4)] * STEPS)
    own = in_passes(leg(3, 3), [left, range(4), range(4)], 3)
    own = replace(own, blocks=otherwise(fault, 0)(own.blocks) if fault else own.blocks)
    found = leg_of([reference], [own], number=2, reached_end=False, expected=3)
    lost = {
        "gradient": ["gradients"],
        "loss": ["unrecorded"],
        "rng": ["rng:python", "rng:torch"],
        None: [],
    }[fault]
    assert (found.begins, found.identical) == (3, fault in (None, "rng"))
    assert [item.component for item in found.not_restored] == lost


def test_parameters_of_no_step_are_told_and_the_expected_step_is_taken() -> None:
    found = judged(leg(3, 4, otherwise("parameter", 0)))
    assert found.begins == 3
    assert found.not_restored[0].component == "parameters"


def test_a_leg_that_begins_anew_is_no_leg_however_well_it_repeats() -> None:
    anew = replace(REFERENCE, blocks=list(REFERENCE.blocks))
    found = judged(anew, reached_end=True)
    assert (found.begins, found.identical) == (0, False)
    assert [item.component for item in found.not_restored] == ["scratch"]
    assert judged(anew, number=1, reached_end=True).identical


def test_skipped_batches_and_generators_before_the_first_loss_are_no_difference() -> None:
    def skips(blocks: list[Block]) -> list[Block]:
        more = [block(0, "batch", ROWS["batch"], seed=n) for n in range(3)]
        more += [block(0, "rng", ROWS["rng"], seed="epoch")]
        at = next(n for n, item in enumerate(blocks) if item.step == 0)
        found, counts = [*blocks[:at], *more, *blocks[at:]], dict[tuple[int, str], int]()
        numbered = []
        for item in found:
            key = (item.step, item.kind)
            counts[key] = counts.get(key, -1) + 1
            numbered.append(replace(item, at=counts[key]))
        return numbered

    assert judged(leg(3, 4, skips)).identical


def fetching(trace: Trace, fetched: Sequence[str]) -> Trace:
    """The training with other batches: those that a loader hands out in each step, by letter."""
    batches = [
        block(step, "batch", [(f"batch {letter}", "float32", (4,))], at=at, seed=letter)
        for step, letters in enumerate(fetched)
        for at, letter in enumerate(letters)
    ]
    others = [item for item in trace.blocks if item.kind != "batch"]
    for item in batches:
        place = next(n for n, it in enumerate(others) if it.step >= item.step)
        others.insert(place + item.at, replace(item, content=digest(item.rows[0][0])))
    return replace(trace, blocks=others)


@pytest.mark.parametrize(
    ("begins", "fetched", "lost"),
    [
        (2, ("c", "d"), []),  # before it the reference is evaluated, with x and y
        (2, ("d", "e"), ["batches"]),
        (4, ("fg", "h"), []),  # an epoch begins, of a loader that fetches one batch ahead
        (4, ("fz", "h"), ["batches"]),
        (5, ("gh", ""), []),
        (6, ("h",), []),  # an epoch's last step, whose batch came in the step before
    ],
)
def test_batches_of_an_evaluation_or_fetched_ahead_are_no_difference(
    begins: int, fetched: Sequence[str], lost: Sequence[str]
) -> None:
    whole = "a", "b", "xyc", "d", "xfg", "h", "", "ij"
    reference = fetching(REFERENCE, whole)
    again = fetching(leg(begins, len(fetched)), fetched)
    found = leg_of([reference], [again], number=2, reached_end=False, expected=begins)
    assert (found.begins, found.identical) == (begins, not lost)
    assert [item.component for item in found.not_restored] == lost


def test_of_batches_that_were_not_recorded_nothing_is_said() -> None:
    other = otherwise("loss", 0)(leg(3, 2).blocks)
    again = replace(leg(3, 2), blocks=other)
    nothing: list[str] = [""] * STEPS
    found = [
        leg_of([reference], [trace], number=2, reached_end=False, expected=3).not_restored
        for reference, trace in (
            (REFERENCE, again),
            (fetching(REFERENCE, nothing), fetching(again, nothing)),
        )
    ]
    assert [["batch and" in item.message for item in items] for items in found] == [[True], [False]]


def test_a_loss_that_differs_alone_may_be_that_of_a_model_that_no_optimizer_moves() -> None:
    teacher = replace(REFERENCE, unmoved=[("module", "Teacher", "a"), ("attribute", "p", "b")])
    own = leg(3, 2, otherwise("loss", 0))
    found = leg_of([teacher], [own], number=2, reached_end=False, expected=3)
    (only,) = found.not_restored
    assert only.component == "unrecorded"
    assert "a model that no optimizer moves (Teacher), a torch.Generator" in only.message


def test_processes_of_a_stopped_leg_count_as_far_as_each_came() -> None:
    """One reports the checkpoint, and all are killed wherever they are; one may not have begun."""
    ranks = [replace(REFERENCE, key=f"rank{number}") for number in range(3)]
    legs = [replace(leg(3, 4 - number), key=f"rank{number}") for number in range(2)]
    found = leg_of(ranks, legs, number=2, reached_end=False, expected=3)
    assert (found.begins, found.ends, found.identical) == (3, 7, True)
    assert not leg_of(ranks, legs, number=2, reached_end=True, expected=3).identical


def test_a_leg_that_was_stopped_beyond_the_end_takes_too_many_steps() -> None:
    found = judged(leg(2, STEPS - 1))
    assert (found.identical, [it.component for it in found.not_restored]) == (False, ["step-count"])


def test_what_a_leg_does_beyond_the_end_that_train_steps_set_is_left_out() -> None:
    short = leg_of([leg(0, 6)], [leg(0, 8)], number=1, reached_end=False, is_cut=True, expected=0)
    assert (short.ends, short.identical) == (6, True)
    went_on = leg_of([leg(0, 6)], [leg(0, 8)], number=1, reached_end=True, is_cut=True, expected=0)
    assert (went_on.ends, went_on.identical) == (6, True)
    too_few = leg_of([leg(0, 8)], [leg(0, 6)], number=1, reached_end=True, is_cut=True, expected=0)
    assert [item.component for item in too_few.not_restored] == ["step-count"]


def test_a_generator_of_another_name_is_a_component_of_the_report() -> None:
    rows = (("mine", "state", ()),)

    def mine(seed: object) -> Change:
        def change(blocks: list[Block]) -> list[Block]:
            place = next(n for n, item in enumerate(blocks) if item.kind == "loss")
            own = block(blocks[place].step, "rng", rows, at=1, seed=seed)
            return [*blocks[:place], own, *blocks[place:]]

        return change

    reference = replace(REFERENCE, blocks=mine(1)(list(leg(0, 8).blocks)))
    found = leg_of(
        [reference], [leg(0, 4, mine(2))], number=1, reached_end=False, expected=0
    ).not_restored
    assert [item.component for item in found] == ["unrecorded"] and "mine" in found[0].message


def test_an_artifact_differs_at_its_own_step() -> None:
    item = Divergence(step=STEPS - 1, kind="artifact", name="out/model.pt")
    trace = leg(3, STEPS - 3)
    found = leg_of([REFERENCE], [trace], number=3, reached_end=True, expected=3, artifacts=[item])
    assert found.first_divergence == item
    assert [item.component for item in found.not_restored] == ["artifact"]


@pytest.mark.parametrize(
    ("unmoved", "again", "components"),
    [
        (("module", "EMA", "b"), "a", ["ema"]),
        (("module", "EMA", "b"), "c", []),  # as between two runs that were never stopped
        (("attribute", "EMA", "b"), "a", []),
    ],
)
def test_a_module_that_no_optimizer_moves_must_be_the_same_at_the_end(
    unmoved: tuple[str, str, str], again: str, components: list[str]
) -> None:
    what, name, _ = unmoved
    traces = [
        replace(trace, unmoved=[(what, name, digest_)])
        for trace, digest_ in ((REFERENCE, "a"), (REFERENCE, again))
    ]
    own = replace(leg(3, STEPS - 3), unmoved=[unmoved])
    found = leg_of(traces[:1], [own], number=3, reached_end=True, expected=3, again=traces[1:])
    assert [item.component for item in found.not_restored] == components
    assert found.identical == (not components)
