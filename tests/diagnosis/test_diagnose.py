"""The search, run in a small world of faults whose causes are known: what is pinned decides where a
pair of runs diverges."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pytest
from msgspec import structs

from repro_gate.compare.model import Divergence
from repro_gate.diagnosis.diagnose import Case, diagnose, diagnose_nan
from repro_gate.diagnosis.model import Diagnosis, Experiments, Pair, Rate, Setting, Unit, gone
from repro_gate.factors import Site
from repro_gate.trace.format import HANDED
from repro_gate.trace.model import OperatorLine, Undone, Used

STEPS = 10


@dataclass(frozen=True, kw_only=True)
class Fault:
    """Makes two runs diverge at (step, kind), unless its factor is pinned as a whole or at its
    line. `shows`: a use of it is watched."""

    factor: str
    site: Site = ("train.py", 10)
    step: int = 2
    kind: str = "loss"
    shows: bool = True
    direct: bool = True
    call: str = ""
    handed: bool = False
    outside: bool = False


@dataclass(kw_only=True)
class World:
    """What runs show. `decoys` differ as well, and change no number; `luck` says, pair by pair,
    whether anything diverges."""

    faults: Sequence[Fault] = ()
    decoys: Sequence[Fault] = ()
    operators: Sequence[tuple[OperatorLine, OperatorLine]] = ()
    distinct: int = 3
    luck: Callable[[int], bool] = lambda number: True
    needs_stress: bool = False
    late: Callable[[int], int] = lambda number: 0  # by how many steps a pair diverges later
    asked: list[Setting] = field(default_factory=list)

    def run(self, setting: Setting) -> Pair:
        self.asked.append(setting)
        steps = STEPS if setting.steps is None else setting.steps
        left = [item for item in self.faults if not pinned(item, setting) and item.step < steps]
        if not self.luck(len(self.asked)) or (self.needs_stress and not setting.stress):
            left = []
        left = [replace(item, step=item.step + self.late(len(self.asked))) for item in left]
        first = min(left, key=lambda item: item.step, default=None)
        operators: tuple[tuple[OperatorLine, ...], tuple[OperatorLine, ...]] = ((), ())
        if setting.operators:
            operators = tuple(a for a, _ in self.operators), tuple(b for _, b in self.operators)
            if setting.replay is not None:
                again = structs.replace(
                    operators[0][0], distinct={"as-trained": self.distinct, "one-thread": 1}
                )
                operators = (again,), ()
        seen = [item for item in (*self.decoys, *self.faults) if item.shows and item.step < steps]
        return Pair(
            finite=not any(
                item.factor == "memory" and not pinned(item, setting) for item in self.faults
            ),
            first=None if first is None else Divergence(step=first.step, kind=first.kind, name="w"),
            steps=steps,
            uses=(
                tuple(use(item, "a") for item in seen),
                tuple(use(item, "a" if pinned(item, setting) else "b") for item in seen),
            ),
            lines=lines() if setting.lines else ((), ()),
            operators=operators,
        )


def pinned(item: Fault, setting: Setting) -> bool:
    if item.outside:
        return False
    return Unit(item.factor) in setting.pinned or Unit(item.factor, item.site) in setting.pinned


def use(item: Fault, digest: str) -> Used:
    return Used(
        process="main",
        step=max(item.step - 1, -1),
        factor=item.factor,
        source=f"{item.factor}()" + HANDED * item.handed,
        file=item.site[0],
        line=item.site[1],
        call=item.call or (f"call_{item.site[1]}()" if item.site[0] else ""),
        count=1,
        digest=digest,
        direct=item.direct,
        outside=item.outside,
    )


def lines() -> tuple[tuple[Used, ...], tuple[Used, ...]]:
    same, one, other = (
        use(Fault(factor="line", site=("net.py", at), call="for x in bag:"), digest)
        for at, digest in ((3, "s"), (7, "a"), (7, "b"))
    )
    return (same, one), (same, other)


def operator(name: str, outputs: str, inputs: str = "i", **more: object) -> OperatorLine:
    given = {
        "process": "main",
        "count": 1,
        "phase": "backward",
        "node": "N",
        "file": "net.py",
        "line": 41,
        "simple": False,
        **more,
    }
    return OperatorLine(op=name, inputs=(inputs,), outputs=(outputs,), **given)  # type: ignore[arg-type]


def explained(
    world: World,
    first: Fault | None = None,
    pairs: int = 6,
    undone: Sequence[Undone] = (),
    **case: object,
) -> Diagnosis:
    fault = first or world.faults[0]
    given = Case(
        first=Divergence(step=fault.step, kind=fault.kind, name="w"), undone=undone, **case
    )  # type: ignore[arg-type]
    return diagnose(given, Experiments(world.run, pairs))


@pytest.mark.parametrize(
    ("factor", "cause"),
    [
        ("entropy", "unseeded-rng"),
        ("clock", "wall-clock"),
        ("listing", "file-order"),
        ("identity", "process-identity"),
    ],
)
def test_a_draw_of_one_line_is_the_cause_in_two_pairs(factor: str, cause: str) -> None:
    world = World(faults=[Fault(factor=factor, site=("data.py", 41))])
    found = explained(world)
    assert (found.cause, found.factor, found.file, found.line, found.confirmed) == (
        cause,
        factor,
        "data.py",
        41,
        True,
    )
    assert "call_41() in data.py:41" in found.message
    assert any("bitwise identical up to step 9" in item for item in found.evidence)
    assert len(world.asked) == 2


def test_what_differs_and_changes_no_number_is_told_apart_by_experiment() -> None:
    decoys = [Fault(factor="entropy", site=("log.py", at)) for at in range(1, 9)] + [
        Fault(factor="clock", site=("log.py", 30))
    ]
    world = World(faults=[Fault(factor="clock", site=("sched.py", 5))], decoys=decoys)
    found = explained(world, pairs=12)
    assert (found.cause, found.file, found.line) == ("wall-clock", "sched.py", 5)
    assert found.also == ()


def test_two_causes_at_one_place_are_both_found() -> None:
    world = World(
        faults=[Fault(factor="entropy", site=("a.py", 1)), Fault(factor="clock", site=("b.py", 2))]
    )
    found = explained(world, pairs=12)
    assert {(item.cause, item.file) for item in (found, *found.also)} == {
        ("unseeded-rng", "a.py"),
        ("wall-clock", "b.py"),
    }


def test_a_second_cause_that_shows_later_is_found_once_the_first_is_pinned() -> None:
    late = Fault(factor="clock", site=("b.py", 2), step=6, kind="gradient")
    world = World(faults=[Fault(factor="entropy", site=("a.py", 1)), late])
    found = explained(world, pairs=8)
    assert [item.file for item in (found, *found.also)] == ["a.py", "b.py"]
    assert any("diverge only at step 6" in item for item in found.evidence)


def test_a_long_training_is_cut_off_right_after_the_divergence() -> None:
    world = World(faults=[Fault(factor="entropy", step=3)])
    explained(world, steps=4)
    assert {item.steps for item in world.asked} == {4}


def test_a_flag_that_the_training_switched_off_comes_first() -> None:
    world = World(
        faults=[Fault(factor="flags", site=("settings.py", 3), shows=False, kind="gradient")]
    )
    found = explained(
        world, undone=[Undone("torch.use_deterministic_algorithms", "False", "settings.py", 3, 0)]
    )
    assert (found.cause, found.file, found.line) == ("determinism-disabled", "settings.py", 3)
    assert found.call == "torch.use_deterministic_algorithms"
    assert len(world.asked) == 2


def test_threads_are_tried_first_where_the_training_starts_some() -> None:
    """A race is hidden by luck from any other pair, so nothing else may be believed before."""
    race, log = (
        Fault(factor="threads", site=("pool.py", 8)),
        Fault(factor="clock", site=("log.py", 3)),
    )
    found = explained(World(faults=[race], decoys=[log], luck=lambda number: number != 3))
    assert (found.cause, found.file, found.line) == ("thread-race", "pool.py", 8)


def test_what_is_not_a_race_must_be_gone_twice_where_threads_run() -> None:
    world = World(
        faults=[Fault(factor="clock", site=("sched.py", 5))],
        decoys=[Fault(factor="threads", site=("pool.py", 8))],
    )
    assert explained(world).file == "sched.py"
    assert [Unit("clock", ("sched.py", 5)) in setting.pinned for setting in world.asked] == [
        False,
        False,
        True,
        True,
    ]
    lucky = World(
        faults=[Fault(factor="none", shows=False)],
        decoys=[*world.decoys, *world.faults],
        luck=lambda number: number != 3,
    )
    assert explained(lucky, pairs=12).cause == "unknown"


def test_addresses_are_pinned_as_a_whole_and_the_line_is_the_first_whose_values_differ() -> None:
    world = World(faults=[Fault(factor="addresses", shows=False, kind="batch")])
    found = explained(world)
    assert (found.cause, found.file, found.line) == ("process-identity", "net.py", 7)
    asked = world.asked[-1]
    assert asked.lines and Unit("clock") in asked.pinned and Unit("addresses") not in asked.pinned


def test_the_operator_that_got_the_same_bits_and_gave_others_is_replayed() -> None:
    same = operator("aten.mm.default", "m", node="M")
    pairs = [
        (same, same),
        (operator("aten.index_put_.default", "a"), operator("aten.index_put_.default", "b")),
    ]
    world = World(
        faults=[Fault(factor="none", shows=False, kind="gradient")], operators=pairs[1:] + pairs[:0]
    )
    world.operators = [pairs[1], pairs[0]]
    found = explained(world)
    assert (found.cause, found.op, found.file, found.line) == (
        "nondeterministic-op",
        "aten.index_put_.default",
        "net.py",
        41,
    )
    assert found.confirmed
    assert any("as it was called 3, with one thread 1" in item for item in found.evidence)


@pytest.mark.parametrize(("later", "steps"), [(0, 3), (2, 20)])
def test_where_a_divergence_moves_the_operators_of_all_early_steps_are_recorded(
    later: int, steps: int
) -> None:
    world = World(
        faults=[Fault(factor="none", shows=False, kind="gradient")], late=lambda number: later
    )
    explained(world)
    assert next(item.steps for item in world.asked if item.operators) == steps


def test_an_operator_whose_replays_all_agree_is_not_confirmed() -> None:
    twins = (operator("aten.index_put_.default", "a"), operator("aten.index_put_.default", "b"))
    world = World(
        faults=[Fault(factor="none", shows=False, kind="gradient")], operators=[twins], distinct=1
    )
    assert not explained(world).confirmed


def test_nothing_explains_it_is_unknown_and_says_what_was_ruled_out() -> None:
    world = World(
        faults=[Fault(factor="none", shows=False)],
        decoys=[Fault(factor="clock", site=("log.py", 2))],
    )
    found = explained(world, pairs=20)
    assert (found.cause, found.confirmed, found.line) == ("unknown", False, 0)
    assert any("every factor as a whole" in item for item in found.ruled_out)


def test_a_rare_race_is_made_to_come_back_under_load_and_pinned_there() -> None:
    race = Fault(factor="threads", site=("pool.py", 8))
    world = World(faults=[race], needs_stress=True)
    found = explained(world)
    assert (found.cause, found.file, found.line, found.confirmed, found.rate) == (
        "thread-race",
        "pool.py",
        8,
        True,
        Rate(1, 3),
    )
    assert [item.stress for item in world.asked] == [
        False,
        False,
        True,
        True,
        True,
    ] and "came back under load" in found.evidence[0]


def test_a_race_that_never_comes_back_names_the_line_that_takes_results_as_they_come_and_proves_nothing() -> (
    None
):
    start, taken = (
        Fault(factor="threads", site=("pool.py", 8)),
        Fault(factor="threads", site=("pool.py", 9), handed=True),
    )
    found = explained(World(faults=[start], decoys=[taken], luck=lambda number: False))
    assert (found.cause, found.file, found.line, found.confirmed, found.rate) == (
        "thread-race",
        "pool.py",
        9,
        False,
        Rate(1, 3),
    )
    assert found.message == "call_9() in pool.py:9 took results in the order in which they came"
    found = explained(World(faults=[start], decoys=[taken]))
    assert (found.file, found.line, found.confirmed) == ("pool.py", 9, True)
    used_up = explained(World(faults=[start], decoys=[taken]), pairs=2)
    assert (used_up.file, used_up.line, used_up.confirmed) == ("pool.py", 9, False)
    library = Fault(factor="threads", site=("", 0), handed=True)
    begun = explained(World(faults=[start], decoys=[library]))  # no line of the training takes them
    assert (begun.file, begun.line) == ("pool.py", 8) and begun.message.endswith(
        "started threads whose order decides"
    )
    other = explained(
        World(faults=[Fault(factor="none", shows=False)], decoys=[start, taken]), pairs=20
    )
    assert (other.cause, other.file) == ("unknown", "")


def test_a_divergence_that_does_not_come_back_is_told_with_its_rate() -> None:
    world = World(faults=[Fault(factor="entropy")], luck=lambda number: False)
    found = explained(world)
    assert found.cause == "unknown"
    assert found.rate is not None
    assert (found.rate.diverged, found.rate.pairs) == (1, 3)


def test_a_divergence_that_comes_later_by_chance_confirms_nothing() -> None:
    """A sum in the order of addresses: each pair diverges at another step, or not at all. A log
    line's clock must not be blamed."""
    log = Fault(factor="clock", site=("log.py", 3))
    world = World(
        faults=[Fault(factor="addresses", shows=False, step=1)],
        decoys=[log],
        late=lambda number: (0, 2, 1, 3)[number % 4],
    )
    found = explained(world, pairs=20)
    assert (found.cause, found.also) == ("process-identity", ())
    same_at_first = World(
        faults=world.faults, decoys=[log], late=lambda number: (0, 0, 2, 1, 3)[min(number, 4)]
    )
    assert explained(same_at_first, pairs=20).factor == "addresses"
    lucky = World(
        faults=world.faults, decoys=[log], late=world.late, luck=lambda number: number not in (1, 3)
    )
    assert explained(lucky, pairs=6).factor != "clock"


def test_a_divergence_that_comes_later_than_in_the_gates_own_pair_is_looked_for_in_longer_runs() -> (
    None
):
    world = World(faults=[Fault(factor="entropy", site=("a.py", 4), step=1)], late=lambda number: 3)
    found = explained(world, pairs=12)
    assert (found.cause, found.line, found.confirmed) == ("unseeded-rng", 4, True)
    assert [item.steps for item in world.asked[:2]] == [2, None]


def test_a_call_that_draws_is_tried_before_an_import_that_does() -> None:
    """A library that is imported first draws for its own names; the call behind it draws what
    decides."""
    imports = [
        Fault(factor="entropy", site=("train.py", at), direct=False, call="import gymnasium as gym")
        for at in range(1, 6)
    ]
    world = World(
        faults=[Fault(factor="entropy", site=("train.py", 9), direct=False)], decoys=imports
    )
    found = explained(world)
    assert (found.cause, found.line, found.confirmed, found.one_of) == ("unseeded-rng", 9, True, ())
    assert len(world.asked) == 3  # watched, operators, that line alone
    needed = World(faults=imports[3:4], decoys=imports[:3])
    assert (explained(needed, pairs=12).line, explained(needed, pairs=12).confirmed) == (4, True)


def test_an_agreeing_set_that_was_not_reduced_is_one_of_these_lines_and_never_confirmed() -> None:
    decoys = [Fault(factor="entropy", site=("log.py", at), direct=False) for at in range(1, 6)]
    found = explained(
        World(faults=[Fault(factor="entropy", site=("z.py", 9), direct=False)], decoys=decoys),
        pairs=4,
    )
    assert (found.cause, found.file, found.line, found.confirmed) == (
        "unseeded-rng",
        "log.py",
        1,
        False,
    )
    assert [(item.file, item.line) for item in found.one_of] == [
        *(("log.py", at) for at in range(1, 6)),
        ("z.py", 9),
    ]
    assert any(
        item.startswith("seen: with all of them held fixed, two runs are bitwise identical")
        for item in found.evidence
    )
    assert not any(item.startswith("confirmed") for item in found.evidence)


def test_lines_that_agreed_in_fewer_pairs_than_it_takes_are_named_all_the_same() -> None:
    """Threads are started, so what is no race has to agree twice: the runs end after the first of
    those pairs."""
    race, decoys = (
        Fault(factor="threads", site=("pool.py", 8)),
        [Fault(factor="clock", site=("log.py", 1), direct=False)],
    )
    needed = Fault(factor="entropy", site=("train.py", 7), direct=False)
    found = explained(World(faults=[needed], decoys=[*decoys, race]), pairs=3)
    assert (found.cause, found.line, found.confirmed) == ("unseeded-rng", 7, False)
    assert (
        explained(
            World(faults=[needed, replace(needed, site=("b.py", 2))], decoys=[*decoys, race]),
            pairs=4,
        ).cause
        != "unknown"
    )


def test_factors_as_a_whole_that_were_not_reduced_are_named_and_no_line_is() -> None:
    world = World(faults=[Fault(factor="identity", site=("", 0), shows=False)], decoys=[])
    found = explained(world, pairs=5)
    assert (found.cause, found.file, found.confirmed) == ("unknown", "", False)
    assert "identity" in {item.factor for item in found.one_of} and not any(
        item.file for item in found.one_of
    )


def test_operators_that_agree_in_a_pair_without_the_divergence_rule_out_nothing() -> None:
    twins = (operator("aten.index_put_.default", "a"), operator("aten.index_put_.default", "b"))
    world = World(
        faults=[Fault(factor="none", shows=False, kind="gradient")], luck=lambda number: number != 2
    )
    run = world.run

    def ran(setting: Setting) -> Pair:
        world.operators = [twins] if setting.operators and len(world.asked) > 1 else []
        return run(setting)

    world.run = ran  # type: ignore[method-assign]
    found = explained(world)
    assert (found.cause, found.op) == ("nondeterministic-op", "aten.index_put_.default")
    assert [item.steps for item in world.asked if item.operators][:2] == [3, 20]
    assert found.rate == Rate(2, 3)


@pytest.mark.parametrize("factor", ["memory", "addresses"])
def test_a_line_that_was_ruled_out_is_not_the_one_that_a_whole_factor_reached(factor: str) -> None:
    """Two lines asked for memory or an address and are not to blame: what is to blame asked in C,
    and its line is found by its values."""
    decoys = [Fault(factor=factor, site=("train.py", at)) for at in (16, 17)] + [
        Fault(factor="clock", site=("a.py", 1), direct=False)
    ]
    world = World(
        faults=[Fault(factor=factor, site=("", 0), shows=False, kind="batch")], decoys=decoys
    )
    found = explained(world, pairs=6 if factor == "memory" else 7)
    assert (found.factor, found.file, found.line, found.confirmed) == (factor, "net.py", 7, True)
    held = {unit.factor for unit in world.asked[-1].pinned}
    # fixed ones fix what old memory holds
    assert world.asked[-1].lines and {"memory", "addresses"} - held == ({factor} | {"addresses"})


def test_a_pair_that_agrees_but_ends_before_the_divergence_shows_something_only_where_that_is_one_of_length() -> (
    None
):
    """With its clock pinned, a training that ends after some seconds ends sooner."""
    assert gone(Pair(steps=5), Divergence(step=9, kind="optimizer", name="steps"))
    assert not gone(Pair(steps=5), Divergence(step=9, kind="optimizer", name="w.exp_avg"))
    assert gone(Pair(steps=10), Divergence(step=9, kind="optimizer", name="w.exp_avg"))


def test_the_bound_on_runs_holds_and_what_was_found_by_then_is_told() -> None:
    late = Fault(factor="clock", site=("b.py", 2), step=6)
    world = World(faults=[Fault(factor="entropy", site=("a.py", 1)), late])
    found = explained(world, pairs=3)
    assert len(world.asked) == 3
    assert found.cause == "unseeded-rng"
    assert any("used up" in item for item in found.evidence)
    assert any("bitwise identical up to step 5" in item for item in found.evidence)


@pytest.mark.parametrize("other", ["clock", "listing"])
def test_lines_that_were_enough_are_told_though_the_runs_did_not_last_to_leave_some_out(
    other: str,
) -> None:
    needed = [Fault(factor="clock", site=("a.py", 3)), Fault(factor=other, site=("a.py", 8))]
    world = World(faults=needed, decoys=[Fault(factor="clock", site=("log.py", 1))])
    # one is watched, one line alone is not enough, all together are
    found = explained(world, pairs=3)
    # one of the three has nothing to do with it
    assert (found.cause, found.line, found.confirmed) == (
        "wall-clock",
        3,
        False,
    )
    assert {item.line for item in found.one_of} == {1, 3, 8} and found.also == ()
    assert any("fewer of these 3" in item for item in found.evidence)
    whole = explained(world, pairs=20)
    assert [item.confirmed for item in (whole, *whole.also)] == [True, True]


def test_a_nan_that_comes_from_the_fill_is_named_by_the_line_that_reserved_the_memory() -> None:
    decoys = [Fault(factor="memory", site=("net.py", at)) for at in (1, 2, 3)]
    world = World(faults=[Fault(factor="memory", site=("bank.py", 9))], decoys=decoys)
    found = diagnose_nan(Experiments(world.run, 8), 3)
    assert found is not None
    assert (found.cause, found.file, found.line, found.confirmed) == (
        "uninitialized-memory",
        "bank.py",
        9,
        True,
    )


def test_a_nan_of_another_origin_is_not_laid_to_memory() -> None:
    world = World(
        faults=[Fault(factor="memory", site=("net.py", 1), shows=False)],
        decoys=[Fault(factor="memory", site=("net.py", 3))],
    )
    assert diagnose_nan(Experiments(world.run, 8), 3) is None


FEED = Fault(factor="files", site=("feed.py", 4), outside=True)


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        (FEED, "external-input"),
        (replace(FEED, factor="network"), "external-input"),
        (replace(FEED, factor="leftovers"), "leftover-state"),
        (replace(FEED, factor="clock"), "wall-clock"),  # of a child: `date`
        (replace(FEED, direct=False), "external-input"),
    ],
)
def test_what_came_from_outside_is_observed_with_both_digests_where_all_else_is_pinned(
    fault: Fault, cause: str
) -> None:
    log = Fault(factor="clock", site=("log.py", 3))
    found = explained(World(faults=[fault], decoys=[log]), pairs=12)
    assert (found.cause, found.file, found.line) == (cause, "feed.py", 4)
    assert (found.observed, found.confirmed, found.also) == (True, False, ())
    source = f"{fault.factor}()"
    assert found.evidence == (f"observed: in step 1 {source} gave a in one run and b in the other",)
    assert found.ruled_out


@pytest.mark.parametrize("direct", [True, False])
def test_what_came_from_outside_and_does_not_decide_is_not_told(direct: bool) -> None:
    decoy = replace(FEED, direct=direct)
    found = explained(World(faults=[Fault(factor="entropy")], decoys=[decoy]), pairs=12)
    assert (found.cause, found.confirmed, found.observed) == ("unseeded-rng", True, False)
    twins = (operator("aten.index_put_.default", "a"), operator("aten.index_put_.default", "b"))
    fault = Fault(factor="none", shows=False, kind="gradient")
    found = explained(World(faults=[fault], decoys=[decoy], operators=[twins]), pairs=12)
    assert (found.cause, found.observed) == ("nondeterministic-op", False)


def test_a_cause_beside_what_came_from_outside_is_told_first() -> None:
    seeds = Fault(factor="entropy", site=("data.py", 2), step=1)
    found = explained(World(faults=[seeds, FEED]), pairs=20)
    assert [(item.cause, item.confirmed, item.observed) for item in (found, *found.also)] == [
        ("unseeded-rng", True, False),
        ("external-input", False, True),
    ]


def test_what_an_earlier_run_left_is_observed_where_a_pair_that_begins_with_it_agrees() -> None:
    left = replace(FEED, factor="leftovers")
    world = World(decoys=[replace(left, step=0)])
    found = explained(world, first=left)
    assert (found.cause, found.observed, found.file) == ("leftover-state", True, "feed.py")
    assert found.evidence == ("observed: leftovers(), which an earlier run wrote",)
    assert len(world.asked) == 1
