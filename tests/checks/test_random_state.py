"""Category `random-state`: were the flags effective, and does the seed steer everything?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from msgspec import structs

from repro_gate.checks import random_state
from repro_gate.checks.interface import Evidence, missing
from repro_gate.checks.refused import INSTEAD
from repro_gate.compare.traces import compare_runs
from repro_gate.runs.flags import ALGORITHMS, CUDA_ONLY, ONLY_READ, WARN_ONLY
from repro_gate.runs.results import Varied
from repro_gate.spec.model import Robustness
from repro_gate.trace.fields import Location
from repro_gate.trace.model import Drawn, LoaderSeen, Refused, StepMark, Trace, Undone
from tests.checks.conftest import outcome, statuses
from tests.support.built_traces import (
    arm,
    block,
    changed,
    evidence,
    flip,
    place_of,
    run,
    spec,
    training,
)
from tests.support.gates import ROOT

ON: dict[str, Any] = {**arm().flags, **arm().environment}
UNDONE = Undone(ALGORITHMS, "False", "train.py", 7, 1)


def differing(trace: Trace, step: int, kind: str, row: int = 0) -> Trace:
    """Return the trace with another digest of this kind in a step."""
    return changed(trace, place_of(trace, step, kind), flip(row))


def flags(trace: Trace, name: str = "deterministic-1", **changes: Any) -> tuple[str, Any]:
    """Return what `flags` comes to for a run, and its lines."""
    runs = (run(name, replace(trace, **changes)),)
    return outcome(random_state.flags_effective, evidence(runs=runs))


def test_flags_must_read_back_as_set() -> None:
    for changes, status in (
        ({}, "pass"),
        ({"CUBLAS_WORKSPACE_CONFIG": ":16:8"}, "pass"),
        ({"TORCHINDUCTOR_DETERMINISTIC": None}, "pass"),  # inductor was not used
        ({ALGORITHMS: False}, "fail"),
        ({WARN_ONLY: True}, "fail"),
        ({"MKL_CBWR": None}, "fail"),
        ({"TORCHINDUCTOR_DETERMINISTIC": None, ONLY_READ: False}, "fail"),
    ):
        trace = training(settings={**ON, **changes})
        assert flags(trace)[0] == status and flags(trace, "default-1")[0] == "skip"


def test_a_flag_of_cuda_counts_where_cuda_was_used() -> None:
    for name in sorted(CUDA_ONLY):
        trace = training(settings={**ON, name: "other"})
        assert flags(trace)[0] == "pass"
        facts = {**trace.facts, "device": "cuda: NVIDIA H200", "gpus": "2", "process": "main"}
        assert flags(trace, facts=facts)[0] == "fail"
        of_one = "pass" if name.startswith("NCCL_") else "fail"
        assert flags(trace, facts={**facts, "gpus": "1"})[0] == of_one


def test_a_change_counts_if_a_step_ran_under_it_and_is_named_with_its_line() -> None:
    for at_end, undone, status, line in (
        ("AUTO", [], "pass", ""),
        ("AUTO", [UNDONE], "warn", "train.py:7: "),  # off for part of a step
        ("AUTO", [structs.replace(UNDONE, step=-1)], "pass", ""),  # before anything was trained
        # set back, never read meanwhile
        ("AUTO", [structs.replace(UNDONE, late=True)], "pass", ""),
        (None, [Undone("MKL_CBWR", "None", "train.py", 9, -1, True)], "warn", "train.py:9: "),
        (None, [Undone("MKL_CBWR", "None", "train.py", 2, -1)], "fail", "train.py:2: "),
        (
            None,
            [Undone("MKL_CBWR", "None", "a.py", n, -1, n > 5) for n in (9, 2)],
            "fail",
            "a.py:9: ",
        ),
        (None, [], "fail", "MKL_CBWR is not set "),
    ):
        judged, lines = flags(training(settings={**ON, "MKL_CBWR": at_end}), undone=undone)
        assert (judged, len(lines)) == (status, bool(line))
        assert "".join(lines).startswith(line)
    trace = training(settings=ON)
    marks = [*trace.steps[:2], StepMark(2, 1.0, 0.0, 0, 1)]
    result = flags(trace, settings=[ON, {**ON, ALGORITHMS: False}], steps=marks, undone=[UNDONE])
    # `repro-gate selftest` looks for this text
    line = f"train.py:7: {ALGORITHMS} is False from step 2 on, but the gate set True"
    assert result == ("fail", (line,))


def test_generators_that_differ_first_fail_and_later_or_alone_warn() -> None:
    a = training()
    rng = differing(a, 1, "rng", 1)
    later = "differing: 1 of 2 generator states; first divergence: gradient fc.weight at step 0"
    for b, status, lines in (
        (a, "pass", ()),
        # `repro-gate selftest` looks for this text
        (rng, "warn", ("torch: differs from step 1 on",)),
        (differing(rng, 1, "loss"), "fail", ("differing: 1 of 2 generator states",)),
        (differing(rng, 0, "gradient"), "warn", (later,)),
    ):
        pair = (run("deterministic-1", a), run("deterministic-2", b))
        facts = evidence(pair=pair, comparison=compare_runs([a], [b]))
        assert outcome(random_state.generators_equal, facts) == (status, lines)


def controlled(
    first: Trace | Sequence[Trace], control: Trace | Sequence[Trace], *second: Trace
) -> Evidence:
    """Return the evidence of a first run, a control with another seed, and a second run."""
    ours, theirs = ([item] if isinstance(item, Trace) else item for item in (first, control))
    runs = [run("deterministic-1", *ours), *(run("deterministic-2", item) for item in second)]
    return evidence(pair=tuple(runs), control=run("reseeded", *theirs))


FIRST, SAME, OTHER = training(seed=1), training(2, seed=1), training(2, seed=2)
NOISE = differing(SAME, 1, "loss")


def test_another_seed_must_give_other_bits_at_steps_that_both_runs_have() -> None:
    a = training(12)
    blocks = [*(item for item in a.blocks if item.step < 1), block(1, "parameter")]
    a = replace(a, blocks=[item for item in a.blocks if item.step in (-1, 0, 10)])
    facts = controlled(a, replace(training(2), blocks=blocks))
    assert random_state.reseeded_differs(facts).status == "warn"
    end = block(2, "parameter", seed=9)
    facts = controlled(training(12), replace(training(2), blocks=[*blocks, end]))
    assert random_state.reseeded_differs(facts).status == "warn"
    for control, second, expected in (
        (OTHER, [], ("pass", "pass")),
        (SAME, [], ("warn", "fail")),
        (differing(SAME, 0, "rng"), [], ("warn", "fail")),  # which alone is not other bits
        # what differs between runs of one seed shows nothing
        (NOISE, [differing(FIRST, 1, "loss")], ("skip", "skip")),
        (differing(NOISE, 0, "loss"), [differing(FIRST, 1, "loss")], ("pass", "pass")),
        (SAME, [differing(FIRST, 1, "loss")], ("warn", "fail")),
        (replace(OTHER, blocks=[block(0, "rng")]), [], ("skip", "skip")),  # nothing in common
    ):
        facts = controlled(FIRST, control, *second)
        assert statuses(random_state.reseeded_differs, facts) == expected
        ended = replace(facts, control=run("reseeded", control, outcome="crashed"))
        assert random_state.reseeded_differs(ended).status == "skip"


def ranks(*seeds: int) -> list[Trace]:
    return [training(2, seed=seed, key=f"rank{rank}") for rank, seed in enumerate(seeds)]


OWN = FIRST.blocks[place_of(FIRST, 0, "rng")]
TORCH = changed(
    OTHER,
    place_of(OTHER, 0, "rng"),
    lambda old: replace(old, content=old.digests[:16] + OWN.digests[16:]),
)
LATER = changed(OTHER, place_of(OTHER, 1, "rng"), lambda _: FIRST.blocks[place_of(FIRST, 1, "rng")])
CUDA = replace(FIRST, blocks=[*FIRST.blocks, block(3, "rng", [("cuda:0", "uint8", (16,))])])
BARE = replace(FIRST, blocks=[item for item in FIRST.blocks if item.kind != "rng"])


def test_another_seed_must_move_every_generator_of_every_rank() -> None:
    for first, control, status, names in (
        (FIRST, OTHER, "pass", ("python", "torch")),
        (FIRST, TORCH, "warn", ("torch",)),
        (ranks(1, 2), ranks(3, 2), "warn", ("rank1: python", "rank1: torch")),
        # where it is first recorded: the code may seed again later
        (FIRST, LATER, "pass", ("python", "torch")),
        # a device that one run never used
        (CUDA, OTHER, "pass", ("python", "torch")),
        (BARE, OTHER, "skip", ()),
        # a seed that reaches nothing is named by the other check
        (FIRST, SAME, "skip", ("python", "torch")),
    ):
        facts = controlled(first, control)
        assert outcome(random_state.seed_reaches_all, facts) == (status, names)


def test_workers_must_be_seeded_alike_in_both_runs() -> None:
    for first, second, expected, names in (
        ([(0, 4, 7)], [(0, 4, 7), (1, 0, None)], ("pass", "pass"), ["loader 0"]),
        ([(0, 4, 7)], [(0, 4, 8)], ("fail", "fail"), ["loader 0"]),
        ([(0, 4, 7)], [], ("fail", "fail"), ["loader 0"]),
        ([(0, 4, 7), (1, 2, 9)], [(0, 4, 7), (1, 2, 8)], ("fail", "fail"), ["loader 1"]),
        # a base seed that could not be read
        ([(0, 4, None)], [(0, 4, None)], ("warn", "fail"), ["loader 0"]),
        ([(0, 4, None)], [(0, 2, None)], ("fail", "fail"), ["loader 0"]),
        # without workers
        ([(0, 0, 1)], [(0, 0, 2)], ("skip", "skip"), []),
    ):
        traces = [
            replace(training(), loaders=[LoaderSeen(*item[1:]) for item in items])
            for items in (first, second)
        ]
        facts = evidence(
            pair=tuple(run(f"deterministic-{n}", item) for n, item in enumerate(traces))
        )
        assert statuses(random_state.workers_seeded, facts) == expected
        lines = outcome(random_state.workers_seeded, facts)[1]
        assert [line.partition(":")[0] for line in lines] == names


LIBRARY = Drawn("numpy.random.SeedSequence() by gymnasium.utils.seeding", "train.py", 6)
UUID = Drawn("uuid.uuid4", "log.py", 2)
BLAMED = {Location("train.py", 6): "env.reset()"}


def test_a_draw_from_the_operating_system_is_a_suspect_where_the_runs_diverged() -> None:
    for drawn, identical, blamed, status, text in (
        ([UUID], False, None, "fail", UUID.source),
        ([UUID], True, None, "warn", UUID.source),
        # a library's draw on a line's behalf is a suspect, and no alarm where the runs are equal
        ([LIBRARY], False, None, "fail", LIBRARY.source),
        ([LIBRARY], True, None, "pass", LIBRARY.source),
        ([LIBRARY, UUID], True, None, "warn", UUID.source),
        # the check and the diagnosis name the same lines
        ([LIBRARY, UUID], False, BLAMED, "fail", "env.reset()"),
        ([LIBRARY, UUID], False, {}, "warn", UUID.source),
        ([LIBRARY], False, {}, "pass", LIBRARY.source),
        ([], True, None, "pass", ""),
    ):
        a, b = training(), training() if identical else changed(training(), 3, flip(0))
        traces = (replace(a, drawn=drawn), b)
        runs = tuple(run(f"deterministic-{n}", trace) for n, trace in enumerate(traces, 1))
        comparison = compare_runs([a], [b])
        facts = evidence(runs=runs, comparison=comparison, blamed=blamed)
        result = random_state.no_os_entropy(facts)
        assert (result.status, [line.text for line in result.evidence]) == (
            status,
            [text][: bool(text)],
        )
        place = Location("log.py", 2) if text == UUID.source else Location("train.py", 6)
        assert {line.location for line in result.evidence} <= {place}
        default = (run("default-1", traces[0]), runs[1])
        assert (
            random_state.no_os_entropy(replace(facts, runs=default, blamed=None)).status == "pass"
        )


def refusing(*refused: Refused) -> Evidence:
    """Return the evidence of a run that torch ended."""
    reason = "run/no-deterministic-implementation"
    ended = run(
        "deterministic-1", outcome="crashed", problem="`put_` has no form", reason_id=reason
    )
    return evidence(runs=(ended,), refused=refused)


def test_operators_that_torch_refused_are_named_with_what_to_write_instead() -> None:
    check = random_state.operators_deterministic
    assert outcome(check, refusing()) == ("fail", ("deterministic-1: `put_` has no form",))
    first = Refused("put_", "forward", "train.py", 9)
    again = (structs.replace(first, phase="backward"), first)
    unknown = Refused("a_new_one", "forward", "", 0)
    lines = check(refusing(first, *again, unknown)).evidence
    assert [item.location for item in lines] == [*[Location("train.py", 9)] * 2, None]
    assert [INSTEAD[0][1] in item.text for item in lines] == [True, True, False]
    assert "backward" in lines[1].text and lines[2].text == "a_new_one"
    page = (ROOT / "docs/checks/random-state/operators.md").read_text()
    assert all(f"| `{name}` | {instead} |\n" in page for name, instead in INSTEAD)


def test_torch_must_have_refused_at_every_step() -> None:
    for name, settings, expected in (
        ("deterministic-1", ON, ("pass", "pass")),
        ("deterministic-1", {**ON, ALGORITHMS: False}, ("warn", "fail")),
        ("deterministic-1", {**ON, WARN_ONLY: True}, ("warn", "fail")),
        ("deterministic-1", {}, ("skip", "skip")),  # without torch
        ("default-1", ON, ("skip", "skip")),
    ):
        facts = evidence(runs=(run(name, training(settings=settings)),))
        assert statuses(random_state.operators_deterministic, facts) == expected


def varied(trace: Trace) -> Evidence:
    """Return the evidence of a varied run with two that are the same."""
    comparison = compare_runs([training()], [trace])
    item = Varied(run("deterministic-2", trace), comparison, comparison.identical)
    same = compare_runs([training()], [training()])
    return evidence(comparison=same, varied={42: item}, fragile=() if item.same else (item,))


APART = varied(differing(training(), 1, "gradient"))


def test_a_varied_run_that_diverges_alone_is_not_robust() -> None:
    for facts, expected, text in (
        (varied(training()), ("pass", "pass"), ""),
        (APART, ("warn", "fail"), "deterministic-2"),
        # a racy training shows nothing
        (replace(APART, fragile=()), ("skip", "skip"), ""),
        (replace(APART, spec=spec(robustness=Robustness(()))), ("skip", "skip"), ""),
        (replace(APART, varied={}), ("skip", "skip"), ""),
        # the diagnosis has the word
        (
            replace(APART, not_robust=missing("x", ("train.py:3",), "x")),
            ("warn", "fail"),
            "train.py:3",
        ),
    ):
        assert statuses(random_state.robust, facts) == expected
        assert text in " ".join(outcome(random_state.robust, facts)[1])
