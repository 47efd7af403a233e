"""The search, run in a small world of faults whose causes are known: what is pinned decides where a
pair of runs diverges."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from msgspec import structs

from repro_gate.compare.model import Divergence
from repro_gate.diagnosis.diagnose import OPERATORS, explain, stages
from repro_gate.diagnosis.experiments import Experiments, Trials
from repro_gate.diagnosis.model import Diagnosis, Pair, Rate, Setting, Unit
from repro_gate.diagnosis.nan import diagnose_nan
from repro_gate.diagnosis.suspects import suspects
from repro_gate.factors import PINNED, RANDOM_ORDER, Site
from repro_gate.report.findings import as_diagnosis
from repro_gate.trace.format import HANDED, SHARED, TIMED
from repro_gate.trace.model import OperatorLine, Undone, Used
from tests.support.uses import call, use

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
    timed: bool = False
    shared: bool = False
    outside: bool = False


@dataclass
class World:
    """What runs show. `decoys` differ as well, and change no number; `luck` says, pair by pair,
    whether anything diverges."""

    faults: Sequence[Fault] = ()
    decoys: Sequence[Fault] = ()
    operators: Sequence[OperatorLine] = ()  # one in each run
    lines: tuple[Sequence[Used], Sequence[Used]] = field(default_factory=lambda: LINES)
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
        operators = (self.operators[:1], self.operators[1:]) if setting.operators else ((), ())
        if setting.replay is not None:
            distinct = {"as-trained": self.distinct, "one-thread": 1}
            operators = (structs.replace(self.operators[0], distinct=distinct),), ()
        seen = [item for item in (*self.decoys, *self.faults) if item.shows and item.step < steps]
        return Pair(
            finite=all(item.factor != "memory" or pinned(item, setting) for item in self.faults),
            first=None if first is None else Divergence(step=first.step, kind=first.kind, name="w"),
            steps=steps,
            uses=(
                tuple(noted(item, "a") for item in seen),
                tuple(noted(item, "a" if pinned(item, setting) else "b") for item in seen),
            ),
            lines=self.lines if setting.lines else ((), ()),
            operators=operators,
        )


def pinned(item: Fault, setting: Setting) -> bool:
    if item.outside:
        return False
    return Unit(item.factor) in setting.pinned or Unit(item.factor, item.site) in setting.pinned


def noted(item: Fault, digest: str) -> Used:
    return use(
        item.factor,
        item.site[1],
        digest,
        file=item.site[0],
        step=max(item.step - 1, -1),
        source=f"{item.factor}()"
        + HANDED * item.handed
        + SHARED * item.shared
        + TIMED * item.timed,
        call=item.call or (f"call_{item.site[1]}()" if item.site[0] else ""),
        direct=item.direct,
        outside=item.outside,
    )


SAME = use("line", 3, file="net.py")
LINES = tuple((SAME, use("line", 7, digest, file="net.py")) for digest in "ab")
INDEX_PUT = [call("aten.index_put_.default", "i", out, phase="backward", line=41) for out in "ab"]


def explained(world: World, pairs: int = 6, **case: Any) -> Diagnosis:
    fault = (*world.faults, *world.decoys)[0]
    first = Divergence(step=fault.step, kind=fault.kind, name="w")
    return as_diagnosis(explain(first, Experiments(world.run, pairs), **case))


def told(found: Diagnosis) -> tuple[str, str, int, bool]:
    return found.cause, found.file, found.line, found.confirmed


def at(factor: str, file: str, line: int, **more: Any) -> Fault:
    return Fault(factor=factor, site=(file, line), **more)


RACE = at("threads", "pool.py", 8)
HIDDEN = Fault(factor="none", shows=False)
KERNEL = Fault(factor="none", shows=False, kind="gradient")


def test_a_training_that_watching_slows_down_tenfold_is_watched_once_and_that_is_said() -> None:
    for slow in (True, False):
        asked = list[Setting]()

        def run(setting: Setting, asked: list[Setting] = asked, slow: bool = slow) -> Pair:
            asked.append(setting)
            return Pair(failed="it was still running", slow=slow)

        target = Divergence(step=2, kind="loss", name="loss")
        found = as_diagnosis(explain(target, Experiments(run, 8), steps=STEPS))
        assert (found.cause, len(asked)) == ("unknown", 1 if slow else 3)
        assert ("ten times as long" in found.evidence[0]) is slow
        assert asked[0].only_watches and not replace(asked[0], stress=True).only_watches


def test_a_draw_of_one_line_or_a_flag_that_was_switched_off_is_the_cause_in_two_pairs() -> None:
    for factor, cause in (("entropy", "unseeded-rng"), ("listing", "file-order")):
        world = World([at(factor, "data.py", 41)])
        found = explained(world)
        assert told(found) == (cause, "data.py", 41, True) and found.factor == factor
        assert "`call_41()` in data.py:41" in found.message and len(world.asked) == 2
        assert any("bitwise identical up to step 9" in item for item in found.evidence)
    world = World([at("flags", "settings.py", 3, shows=False, kind="gradient")])
    flag = "torch.use_deterministic_algorithms"
    found = explained(world, undone=[Undone(flag, "False", "settings.py", 3, 0)])
    assert told(found)[:3] == ("determinism-disabled", "settings.py", 3)
    assert found.call == flag and len(world.asked) == 2


def test_a_time_limit_is_a_clock_that_ended_work() -> None:
    for timed, did in ((True, "ended work after a time"), (False, "read the clock")):
        found = explained(World([at("clock", "data.py", 41, timed=timed)]))
        assert told(found) == ("wall-clock", "data.py", 41, True)
        assert found.message == f"`call_41()` in data.py:41 {did}"
    # threads that take turns wait in turns: a limit that ended a wait is tried before a race
    world = World([at("clock", "data.py", 41, timed=True)], [RACE])
    assert explained(world).cause == "wall-clock" and len(world.asked) == 3
    world = World([RACE], [at("clock", "data.py", 41, timed=True)])
    assert explained(world).cause == "thread-race"


def test_what_is_read_of_shared_state_at_another_moment_is_a_race_at_the_line_that_reads() -> None:
    read = at("threads", "data.py", 30, shared=True)
    started = replace(RACE, direct=False, step=1)  # the workers of a loader
    did = "read shared state at another moment in each run"
    found = explained(World([read], [started]))
    assert told(found) == ("thread-race", "data.py", 30, True)
    assert found.message == f"`call_30()` in data.py:30 {did}"
    # where turns do not bring the runs together, it is observed, however many runs there are
    for pairs in (3, 20):
        found = explained(World([HIDDEN], [started, read]), pairs=pairs)
        assert told(found) == ("thread-race", "data.py", 30, False)
        assert found.observed and found.message.endswith(did)


def test_two_causes_are_both_found_also_the_one_that_shows_later() -> None:
    one, late = at("entropy", "a.py", 1), at("clock", "b.py", 2, step=6, kind="gradient")
    decoys = [at("clock", "log.py", line) for line in range(1, 9)]
    found = explained(World([one, late], decoys), pairs=20)
    causes = [(item.cause, item.file) for item in (found, *found.also)]
    assert causes == [("unseeded-rng", "a.py"), ("wall-clock", "b.py")]
    assert any("diverge only at step 6" in item for item in found.evidence)
    # the bound on runs holds, and what was found by then is told
    world = World([one, late])
    found = explained(world, pairs=3)
    assert len(world.asked) == 3 and found.cause == "unseeded-rng"
    for said in ("used up", "bitwise identical up to step 5"):
        assert any(said in item for item in found.evidence)


@pytest.mark.parametrize("pairs", range(4, 16))
def test_what_agreed_with_the_divergence_before_is_no_cause_of_the_next(pairs: int) -> None:
    """However early the runs are used up: what is named holds the cause."""
    one, late = at("hashing", "a.py", 2, step=3), at("listing", "b.py", 3, step=9)
    decoys = [at("clock", "log.py", 1), at("identity", "log.py", 4, step=5)]
    found = explained(World([one, late], decoys), pairs)
    told = [{use.file for use in (item, *item.one_of)} for item in (found, *found.also)]
    assert all(cause in files for cause, files in zip(("a.py", "b.py"), told, strict=False))
    assert len(told) <= 2


def test_threads_are_tried_first_and_a_race_is_named_by_who_takes_results() -> None:
    world = World([RACE], [at("clock", "log.py", 3)], luck=lambda number: number != 3)
    assert told(explained(world))[:3] == ("thread-race", "pool.py", 8)
    world = World([at("clock", "sched.py", 5)], [RACE])
    assert explained(world).file == "sched.py"
    held = [Unit("clock", ("sched.py", 5)) in setting.pinned for setting in world.asked]
    assert held == [False, False, True, True]
    lucky = World([HIDDEN], [RACE, HIDDEN], luck=lambda number: number != 3)
    assert explained(lucky, pairs=12).cause == "unknown"
    taken = at("threads", "pool.py", 9, handed=True)
    never = World([RACE], [taken], luck=lambda number: False)
    found = explained(never)
    assert told(found) == ("thread-race", "pool.py", 9, False), "it proves nothing"
    assert found.rate == Rate(1, 3)
    for pairs, confirmed in ((6, True), (2, False)):
        found = explained(World([RACE], [taken]), pairs=pairs)
        assert told(found) == ("thread-race", "pool.py", 9, confirmed)
    other = explained(World([HIDDEN], [RACE, taken]), pairs=20)
    assert told(other) == ("unknown", "net.py", 7, False)


def test_the_stages_are_tried_in_this_order() -> None:
    """What the training asked for itself, a race, operators, what no watcher sees, imports, all."""
    plain = [
        use("entropy", 1, direct=False, call="import torch"),
        use("clock", 2, direct=False),
        use("hashing", 3),
        use("clock", 0),
        use("identity", 4, source="wait" + TIMED),
    ]
    seen = suspects(plain, [structs.replace(item, digest="b") for item in plain], 0)
    flag, threads = Unit("flags", ("set.py", 9)), Unit("threads")
    entropy, clock, hashing, waits = (
        Unit(item.factor, item.site) for item in plain if item.site[0]
    )
    whole = [factor.name for factor in PINNED if factor.name != "flags"]
    *_, unseen, imports, everything = plan = stages(seen, [flag], races=True)
    own = [flag, hashing, waits, threads, waits, hashing]
    assert [stage.units for stage in plan[:2]] == [own, [*own, clock]]
    # each that is tried alone, and one more
    assert [stage.alone for stage in plan] == [4, 4, 2, 2, 2, 2, 2]
    assert plan[2] is OPERATORS and [plan[3].units, unseen.units] == [
        [Unit("memory")],
        [Unit("addresses")],
    ]
    assert imports.units == [entropy]
    names = [unit.factor for unit in everything.units]
    assert names[:4] == ["memory", "addresses", "threads", "clock"] and {*names} == {*whole}
    # nothing is likely: operators come first
    plan = stages([], [], races=False)
    assert plan[0] is OPERATORS and OPERATORS not in plan[1:]
    assert [list(stage.units) for stage in plan[1:3]] == [[], []]


def test_a_factor_that_is_pinned_at_a_line_may_be_pinned_as_a_whole_for_the_next_cause() -> None:
    late = replace(at("entropy", "", 0), step=6)
    found = explained(World([at("entropy", "a.py", 4), late]), pairs=20)
    assert told(found) == ("unseeded-rng", "a.py", 4, True)
    assert [(item.cause, item.confirmed) for item in found.also] == [("unseeded-rng", True)]
    assert found.evidence[1].startswith("confirmed: with that draw held fixed, two runs")


def test_the_operator_that_got_the_same_bits_and_gave_others_is_replayed() -> None:
    for distinct in (3, 1):
        world = World([KERNEL], operators=INDEX_PUT, distinct=distinct)
        found = explained(world)
        # not confirmed where all replays agree
        assert told(found) == ("nondeterministic-op", "net.py", 41, distinct > 1)
        assert found.op == "aten.index_put_.default"
        replayed = f"as it was called {distinct}, with one thread 1"
        assert any(replayed in item for item in found.evidence)


def test_nothing_explains_it_is_unknown_and_a_rare_race_is_made_to_come_back_under_load() -> None:
    found = explained(World([HIDDEN], [at("clock", "log.py", 2)]), pairs=6)
    assert told(found) == ("unknown", "", 0, False), "no run is left to find its line"
    assert any("every factor as a whole" in item for item in found.ruled_out)
    # where nothing else explains it: what a kernel wrote that torch does not dispatch
    reads = [call("aten.div", bits, bits, line=41, device="cuda") for bits in "ab"]
    for pairs in (6, 20):
        found = explained(World([KERNEL], operators=reads), pairs)
        assert told(found) == ("nondeterministic-op", "net.py", 41, False)
        assert "does not dispatch" in found.message and found.op is None
    # a divergence that does not come back is told with its rate
    rare = explained(World([Fault(factor="entropy")], luck=lambda number: False))
    assert (rare.cause, rare.rate) == ("unknown", Rate(1, 3))
    world = World([RACE], needs_stress=True)
    found = explained(world)
    assert told(found) == ("thread-race", "pool.py", 8, True) and found.rate == Rate(1, 3)
    assert [item.stress for item in world.asked] == [False, False, True, True, True]
    assert "came back under load" in found.evidence[0]


def test_what_draws_in_native_code_is_unknown_with_the_line_that_differed_first() -> None:
    reads = [call("aten.slice", bits, bits, line=41) for bits in "ab"]
    for fault in (KERNEL, replace(KERNEL, kind="batch")):
        found = explained(World([fault], [at("clock", "log.py", 2)], operators=reads), pairs=20)
        assert told(found) == ("unknown", "net.py", 7, False)
        assert (found.observed, found.op) == (True, None) and "net.py:7 gave" in found.message
        assert found.ruled_out and found.remedy
    found = explained(World([KERNEL], operators=reads), pairs=2)
    assert told(found) == ("unknown", "net.py", 41, False), "its reader: no run was left"
    assert not found.observed
    late = explained(World([at("entropy", "a.py", 4), replace(HIDDEN, step=6)]), pairs=20)
    causes = [(item.cause, item.file) for item in (late, *late.also)]
    assert causes == [("unseeded-rng", "a.py"), ("unknown", "net.py")]


PARTS = [at("entropy", "net.py", 3), at("clock", "net.py", 2), at("identity", "net.py", 1)]
PARTS.reverse()  # in the order in which they are read


@pytest.mark.parametrize("count", [2, 3])
def test_what_decides_only_together_is_named_by_the_line_where_the_parts_meet(count: int) -> None:
    """With nine pairs, among what two imports ask for."""
    imports = [
        at(name, "net.py", 1, direct=False, call="import torch") for name in ("clock", "entropy")
    ]
    world = World(PARTS[-count:], imports)
    found = explained(world, pairs=9)
    assert told(found) == ("unseeded-rng", "net.py", 7, True) and found.factor is None
    assert {(item.factor, item.line) for item in found.also} == {
        (item.factor, item.site[1]) for item in PARTS[-count:]
    }
    assert all(f"`call_{item.site[1]}()` in net.py:" in found.message for item in PARTS[-count:])
    assert "decide together, in net.py:7" in found.message and len(world.asked) <= 9
    # only what is read first is left free
    assert {unit.factor for unit in world.asked[-1].pinned} >= {"entropy", "threads"}
    # on one line they meet right there; the parts alone stand if no run is left to look
    same = [replace(item, site=("net.py", 3)) for item in PARTS[-count:]]
    assert told(explained(World(same), pairs=8))[1:] == ("net.py", 3, True)
    few = explained(World(PARTS[-2:]), pairs=4)
    assert told(few) == ("unseeded-rng", "net.py", 3, True) and len(few.also) == 1


def test_a_divergence_that_comes_later_confirms_nothing_and_is_looked_for_in_longer_runs() -> None:

    sums = Fault(factor="addresses", shows=False, step=1)
    clock = at("clock", "log.py", 3)
    moving = lambda number: (0, 2, 1, 3)[number % 4]  # noqa: E731
    same_at_first = lambda number: (0, 0, 2, 1, 3)[min(number, 4)]  # noqa: E731
    for late in (moving, same_at_first):
        found = explained(World([sums], [clock], late=late), pairs=20)
        assert (found.factor, found.also) == ("addresses", ())
    lucky = World([sums], [clock], late=moving, luck=lambda number: number not in (1, 3))
    assert explained(lucky).factor != "clock"
    world = World([at("entropy", "a.py", 4, step=1)], late=lambda number: 3)
    assert told(explained(world, pairs=12)) == ("unseeded-rng", "a.py", 4, True)
    assert [item.steps for item in world.asked[:2]] == [2, None]
    # a long training is cut off right after the divergence
    world = World([Fault(factor="entropy", step=3)])
    explained(world, steps=4)
    assert {item.steps for item in world.asked} == {4}


def test_a_call_that_draws_is_tried_before_an_import_that_does() -> None:
    """A library that is imported first draws for its own names; the call behind it draws what
    decides."""
    call = "import gymnasium as gym"
    imports = [at("entropy", "train.py", line, direct=False, call=call) for line in range(1, 6)]
    world = World([at("entropy", "train.py", 9, direct=False)], decoys=imports)
    found = explained(world)
    assert told(found) == ("unseeded-rng", "train.py", 9, True) and found.one_of == ()
    assert len(world.asked) == 3  # watched, operators, that line alone
    needed = explained(World(imports[3:4], decoys=imports[:3]), pairs=12)
    assert told(needed)[2:] == (4, True), "the clean twin"


def test_a_factor_that_no_line_is_known_to_use_has_to_hold_in_two_pairs() -> None:
    """The order of a set of functions: two runs agree in it by luck, while something else is held
    fixed."""
    imports = [
        at(name, "train.py", 1, direct=False, call="import torch") for name in ("entropy", "clock")
    ]
    for lucky in (0, 3):
        world = World(
            [Fault(factor="addresses", shows=False)], imports, luck=lambda at, no=lucky: at != no
        )
        found = explained(world, pairs=8)
        assert told(found) == ("process-identity", "net.py", 7, True) and found.also == ()
    clean = World(imports[:1], imports[1:])
    assert told(explained(clean, pairs=8)) == ("unseeded-rng", "train.py", 1, True)


def test_the_hashes_of_a_child_are_told_by_the_line_of_the_child_that_depends_on_them() -> None:
    for process, place in (("main#2", ("words.py", 5)), ("main", ("train.py", 10))):
        own = [use("line", 12, digest) for digest in "ab"]
        inner = [use("line", 5, digest, file="words.py", process=process) for digest in "ab"]
        world = World(
            [at("hashing", "train.py", 10)], lines=([own[0], inner[0]], [own[1], inner[1]])
        )
        found = explained(world)
        assert told(found) == ("hash-order", *place, True)
        assert found.message.endswith(RANDOM_ORDER) == (place[0] == "words.py")
    # it is tried before the race of those who start it, and what they draw
    draws = [at("entropy", "train.py", line, direct=False) for line in range(1, 6)]
    world = World([at("hashing", "train.py", 10, direct=False)], [RACE, *draws])
    assert told(explained(world)) == ("hash-order", "train.py", 10, True)
    assert len(world.asked) == 4  # watched, two with it held, lines
    assert explained(World([RACE], [at("hashing", "train.py", 10)])).cause == "thread-race"


def test_what_was_not_reduced_is_one_of_these_lines_and_never_confirmed() -> None:
    sites = [*(("log.py", line) for line in range(1, 6)), ("z.py", 9)]
    *decoys, fault = (at("entropy", *site, direct=False) for site in sites)
    found = explained(World([fault], decoys), pairs=4)
    assert told(found) == ("unseeded-rng", "log.py", 1, False)
    assert [(item.file, item.line) for item in found.one_of] == sites and found.also == ()
    assert any("fewer of these 6" in item for item in found.evidence)
    assert any(item.startswith("seen: with all of them held") for item in found.evidence)
    assert not any(item.startswith("confirmed") for item in found.evidence)
    found = explained(World([at("identity", "", 0, shows=False)]), pairs=7)
    assert told(found) == ("unknown", "", 0, False)
    assert "identity" in {item.factor for item in found.one_of}
    assert not any(item.file for item in found.one_of)


def test_operators_that_agree_in_a_pair_without_the_divergence_rule_out_nothing() -> None:
    world = World([KERNEL], luck=lambda number: number != 2)
    run = world.run

    def ran(setting: Setting) -> Pair:
        world.operators = INDEX_PUT if setting.operators and len(world.asked) > 1 else []
        return run(setting)

    world.run = ran  # type: ignore[method-assign]
    found = explained(world)
    assert (found.cause, found.op) == ("nondeterministic-op", "aten.index_put_.default")
    assert [item.steps for item in world.asked if item.operators][:2] == [3, 20]
    assert found.rate == Rate(2, 3)


def test_a_line_that_was_ruled_out_is_not_blamed_again() -> None:
    for factor, pairs in (("memory", 6), ("addresses", 7)):
        decoys = [at(factor, "train.py", line) for line in (16, 17)]
        decoys.append(at("clock", "a.py", 1, direct=False))
        world = World([at(factor, "", 0, shows=False, kind="batch")], decoys)
        found = explained(world, pairs=pairs)
        assert (found.factor, *told(found)[1:]) == (factor, "net.py", 7, True)
        held = {unit.factor for unit in world.asked[-1].pinned}
        # fixed ones fix what old memory holds
        assert world.asked[-1].lines and {"memory", "addresses"} - held == {factor, "addresses"}


def test_a_nan_is_laid_to_memory_and_a_pair_that_ends_too_soon_shows_nothing() -> None:
    decoys = [at("memory", "net.py", line) for line in (1, 2, 3)]
    world = World([at("memory", "bank.py", 9)], decoys)
    found = diagnose_nan(Experiments(world.run, 8), 3)
    assert found is not None and told(found) == ("uninitialized-memory", "bank.py", 9, True)
    # one of another origin is not laid to memory
    world = World([at("memory", "net.py", 1, shows=False)], decoys=decoys[2:])
    assert diagnose_nan(Experiments(world.run, 8), 3) is None
    for steps, name, is_gone in ((5, "steps", True), (5, "w.a", False), (10, "w.a", True)):
        target = Divergence(step=9, kind="optimizer", name=name)
        trials = Trials(experiments=Experiments(world.run, 0), target=target)
        assert trials.gone(Pair(steps=steps)) is is_gone


FEED = at("files", "feed.py", 4, outside=True)


def test_what_came_from_outside_is_observed_if_it_decides_and_after_a_cause() -> None:
    for fault, cause in (
        (FEED, "external-input"),
        (replace(FEED, factor="leftovers"), "leftover-state"),
        (replace(FEED, factor="clock"), "wall-clock"),  # of a child: `date`
        (replace(FEED, direct=False), "external-input"),
    ):
        world = World([fault], [at("clock", "log.py", 3)])
        found = explained(world, pairs=12)
        assert told(found) == (cause, "feed.py", 4, False) and found.ruled_out
        assert (found.observed, found.also) == (True, ())
        source = f"{fault.factor}()"
        assert found.evidence == (
            f"observed: in step 1 {source} returned a in one run, b in the other",
        )
    for direct in (True, False):
        decoy = replace(FEED, direct=direct)
        found = explained(World([Fault(factor="entropy")], [decoy]), pairs=12)
        assert (found.cause, found.confirmed, found.observed) == ("unseeded-rng", True, False)
        found = explained(World([KERNEL], [decoy], operators=INDEX_PUT), pairs=12)
        assert (found.cause, found.observed) == ("nondeterministic-op", False)
    found = explained(World([at("entropy", "data.py", 2, step=1), FEED]), pairs=20)
    assert [(item.cause, item.confirmed, item.observed) for item in (found, *found.also)] == [
        ("unseeded-rng", True, False),
        ("external-input", False, True),
    ]
    world = World(decoys=[replace(FEED, factor="leftovers")])
    found = explained(world)
    assert (found.cause, found.observed, found.file) == ("leftover-state", True, "feed.py")
    assert found.evidence == ("observed: leftovers(), which an earlier run wrote",)
    assert len(world.asked) == 1
