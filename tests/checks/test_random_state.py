"""Category `random-state`: were the flags effective, and does the seed steer everything?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from repro_gate.checks.interface import CheckResult, Evidence
from repro_gate.checks.random_state import (
    flags_effective,
    generators_equal,
    no_os_entropy,
    operators_deterministic,
    reseeded_differs,
    robust,
    seed_reaches_all,
    workers_seeded,
)
from repro_gate.checks.refused import INSTEAD
from repro_gate.compare.traces import compare_runs
from repro_gate.runs.flags import CUDA_ONLY, ONLY_READ, WARN_ONLY
from repro_gate.runs.results import Varied
from repro_gate.spec.model import Robustness
from repro_gate.trace.fields import Location
from repro_gate.trace.model import Drawn, LoaderSeen, Refused, StepMark, Trace, Undone
from tests.checks.conftest import lines_of
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
ALGORITHMS = "torch.use_deterministic_algorithms"


def flags(trace: Trace, name: str = "deterministic-1", **changes: Any) -> tuple[str, Any]:
    """What `flags` says of a run: its status, and its lines."""
    found = flags_effective(evidence(runs=(run(name, replace(trace, **changes)),)))
    return found.status, lines_of(found)


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({}, "pass"),
        ({"CUBLAS_WORKSPACE_CONFIG": ":16:8"}, "pass"),
        ({"OMP_NUM_THREADS": "1"}, "pass"),
        ({"TORCHINDUCTOR_DETERMINISTIC": None}, "pass"),  # inductor was not used
        ({ALGORITHMS: False}, "fail"),
        ({WARN_ONLY: True}, "fail"),
        ({"MKL_CBWR": None}, "fail"),
        ({"TORCHINDUCTOR_DETERMINISTIC": None, ONLY_READ: False}, "fail"),
    ],
)
def test_flags_must_read_back_as_set(changes: dict[str, Any], status: str) -> None:
    trace = training(settings={**ON, **changes})
    assert flags(trace)[0] == status and flags(trace, "default-1")[0] == "skip"


@pytest.mark.parametrize("name", sorted(CUDA_ONLY))
def test_a_flag_of_cuda_counts_where_cuda_was_used(name: str) -> None:
    on_cpu = training(settings={**ON, name: "other"})
    assert flags(on_cpu)[0] == "pass"
    facts = {**on_cpu.facts, "device": "cuda: NVIDIA H200", "gpus": "2", "process": "main"}
    assert flags(on_cpu, facts=facts)[0] == "fail"
    alone = flags(on_cpu, facts={**facts, "gpus": "1"})
    assert alone[0] == ("pass" if name.startswith("NCCL_") else "fail")


def test_a_flag_that_training_code_undid_is_named_with_its_line() -> None:
    trace, undone = training(settings=ON), Undone(ALGORITHMS, "False", "train.py", 7, 1)
    marks = [*trace.steps[:2], StepMark(2, 1.0, 0.0, 0, 1)]
    found = flags(trace, settings=[ON, {**ON, ALGORITHMS: False}], steps=marks, undone=[undone])
    line = f"train.py:7: {ALGORITHMS} is False from step 2 on, and the gate wants True"
    assert found == ("fail", (line,))
    # off for part of a step; before the first one nothing was trained
    line = f"train.py:7: {ALGORITHMS} set to False, in step 1"
    assert flags(trace, undone=[undone]) == ("warn", (line,))
    assert flags(trace, undone=[structs.replace(undone, step=-1)])[0] == "pass"


def test_a_variable_that_was_deleted_after_its_library_had_read_it_warns() -> None:
    early, late = (Undone("MKL_CBWR", "None", "train.py", line, -1, line > 5) for line in (2, 9))
    trace = training(settings={**ON, "MKL_CBWR": None})
    line = "train.py:9: MKL_CBWR is not set from step 0 on, and the gate wants AUTO"
    assert flags(trace, undone=[late]) == ("warn", (line,))
    for undone in ([], [early], [late, early]):
        assert flags(trace, undone=undone)[0] == "fail"
    # set back, and never read meanwhile
    back = [Undone("MKL_CBWR", "None", "train.py", 9, 1, True)]
    assert flags(training(settings=ON), undone=back)[0] == "pass"


def test_generators_that_differ_first_fail_and_later_or_alone_warn() -> None:
    a = training()
    rng = changed(a, place_of(a, 1, "rng"), flip(1))
    reached = changed(rng, place_of(a, 1, "loss"), flip(0))
    both = changed(rng, place_of(a, 0, "gradient"), flip(0))
    later = "1 of 2 generators differ; first divergence: gradient fc.weight at step 0"
    for b, status, lines in (
        (a, "pass", ()),
        (rng, "warn", ("torch: differs from step 1 on",)),
        (reached, "fail", ("step 1",)),
        (both, "warn", (later,)),
    ):
        pair = (run("deterministic-1", a), run("deterministic-2", b))
        found = generators_equal(evidence(pair=pair, comparison=compare_runs([a], [b])))
        assert (found.status, lines_of(found)) == (status, lines)
    assert generators_equal(evidence()).status == "skip"


def reseeded(
    first: Trace, control: Trace, profile: str = "basic", second: Trace | None = None
) -> CheckResult:
    """What `reseeded` says of these."""
    pair = [run(f"deterministic-{n}", trace) for n, trace in enumerate((first, second), 1) if trace]
    return reseeded_differs(
        evidence(
            spec=spec(profile=profile),
            pair=tuple(pair),
            control=run("reseeded", control),
            control_comparison=compare_runs([first], [control]),
        )
    )


def test_another_seed_must_give_other_bits() -> None:
    line = "seeds 42 and 43: 20 digests compared, in 13 blocks, {} of which differ"
    first, same = training(seed=1), training(2, seed=1)
    good = reseeded(first, training(2, seed=2))
    assert (good.status, lines_of(good)) == ("pass", (line.format(13),))
    bad = reseeded(first, same)
    assert (bad.status, lines_of(bad)) == ("warn", (line.format(0),))
    assert reseeded(first, same, "strict").status == "fail"
    # another state of the generators alone is not other bits
    rng = changed(same, place_of(same, 0, "rng"), flip(0))
    assert reseeded(first, rng).status == "warn"
    bare = replace(training(), blocks=[block(0, "rng")])  # nothing in common
    assert reseeded(bare, training(2, seed=2)).status == "skip"
    assert reseeded_differs(evidence()).status == "skip"


def test_a_control_that_differs_only_where_the_runs_do_proves_nothing() -> None:
    a, same = training(seed=1), training(2, seed=1)
    b = changed(a, place_of(a, 1, "loss"), flip(0))
    noise = changed(same, place_of(a, 1, "loss"), flip(0))
    other = changed(noise, place_of(a, 0, "loss"), flip(0))
    for control, status in ((noise, "skip"), (other, "pass"), (same, "warn")):
        assert reseeded(a, control, second=b).status == status
    # a seed that reaches nothing is told once
    compared = compare_runs([a], [same])
    seen = evidence(
        pair=(run("deterministic-1", a),),
        control=run("reseeded", same),
        control_comparison=compared,
    )
    assert seed_reaches_all(seen).status == "skip"


def test_digests_that_only_the_short_control_has_are_not_other_bits() -> None:
    """With `capture.every: 10` the long run has no digest at step 1, which is the control's
    last."""
    a = training(12)
    a = replace(a, blocks=[item for item in a.blocks if item.step in (-1, 0, 10)])
    blocks = [*(item for item in a.blocks if item.step < 1), block(1, "parameter")]
    assert reseeded(a, replace(training(2), blocks=blocks)).status == "warn"


def reached(first: Sequence[Trace], control: Sequence[Trace]) -> tuple[str, Any]:
    """What `seed-reach` says of these two: its status, and its lines."""
    pair = (run("deterministic-1", *first),)
    found = seed_reaches_all(evidence(pair=pair, control=run("reseeded", *control)))
    return found.status, lines_of(found)


def test_another_seed_must_move_every_generator_of_every_rank() -> None:
    first, other = training(seed=1), training(2, seed=2)
    assert reached([first], [other]) == ("pass", ("python", "torch"))
    own = first.blocks[place_of(first, 0, "rng")]
    torch_fixed = changed(
        other,
        place_of(other, 0, "rng"),
        lambda old: replace(old, content=old.digests[:16] + own.digests[16:]),
    )
    assert reached([first], [torch_fixed]) == ("warn", ("torch",))
    ours = [training(seed=1, key="rank0"), training(seed=2, key="rank1")]
    theirs = [training(2, seed=3, key="rank0"), training(2, seed=2, key="rank1")]
    assert reached(ours, theirs) == ("warn", ("rank1: python", "rank1: torch"))
    # without a control or states nothing is said
    bare = replace(first, blocks=[item for item in first.blocks if item.kind != "rng"])
    assert reached([bare], [other])[0] == seed_reaches_all(evidence()).status == "skip"


def test_a_generator_counts_where_it_is_first_recorded() -> None:
    """The code may seed again later; a generator of a device that one run never used is not
    compared."""
    later, first = training(2, seed=2), training(seed=1)
    same = first.blocks[place_of(first, 1, "rng")]
    again = changed(later, place_of(later, 1, "rng"), lambda old: same)
    assert reached([first], [again])[0] == "pass"
    cuda = replace(first, blocks=[*first.blocks, block(3, "rng", [("cuda:0", "uint8", (16,))])])
    assert reached([cuda], [training(2, seed=2)])[1] == ("python", "torch")


WAS = "loader 0: 4 workers from base seed 7"


def loading(
    *first: LoaderSeen, second: tuple[LoaderSeen, ...] = (), profile: str = "basic"
) -> CheckResult:
    """What `workers` says of two runs with these loaders."""
    traces = [replace(training(), loaders=list(loaders)) for loaders in (first, second)]
    pair = tuple(run(f"deterministic-{place + 1}", trace) for place, trace in enumerate(traces))
    return workers_seeded(evidence(spec=spec(profile=profile), pair=pair))


@pytest.mark.parametrize(
    ("second", "profile", "status", "line"),
    [
        ((LoaderSeen(0, 4, 7), LoaderSeen(1, 0, None)), "basic", "pass", WAS),
        ((LoaderSeen(0, 4, 8),), "basic", "fail", f"{WAS}, then 4 workers from base seed 8"),
        ((LoaderSeen(0, 2, 7),), "basic", "fail", f"{WAS}, then 2 workers from base seed 7"),
        ((), "basic", "fail", f"{WAS}, then not there"),
        # a base seed that could not be read
        ((LoaderSeen(0, 4, None),), "basic", "warn", "loader 0"),
        ((LoaderSeen(0, 4, None),), "strict", "fail", "loader 0"),
    ],
)
def test_workers_must_be_seeded_alike_in_both_runs(
    second: tuple[LoaderSeen, ...], profile: str, status: str, line: str
) -> None:
    found = loading(LoaderSeen(0, 4, 7), second=second, profile=profile)
    assert (found.status, lines_of(found)) == (status, (line,))


def test_loaders_without_workers_need_no_seed_and_ranks_are_named() -> None:
    assert loading(LoaderSeen(0, 0, 1), second=(LoaderSeen(0, 0, 2),)).status == "skip"
    assert loading().status == workers_seeded(evidence()).status == "skip"
    ranks = [replace(training(key=f"rank{n}"), loaders=[LoaderSeen(0, 2, 7)]) for n in (0, 1)]
    pair = tuple(run(f"deterministic-{number}", *ranks) for number in (1, 2))
    lines = lines_of(workers_seeded(evidence(pair=pair)))
    assert [line.partition(" 2")[0] for line in lines] == ["rank0: loader 0:", "rank1: loader 0:"]


def drawing(
    *drawn: Drawn,
    arm: str = "deterministic-1",
    identical: bool | None = True,
    blamed: dict[Location, str] | None = None,
) -> CheckResult:
    """What `os-entropy` says of a run with these draws, beside a clean one."""
    a, b = training(), training() if identical else changed(training(), 3, flip(0))
    runs = (run(arm, replace(a, drawn=list(drawn))), run("deterministic-2", b))
    compared = None if identical is None else compare_runs([a], [b])
    return no_os_entropy(evidence(runs=runs, comparison=compared, blamed=blamed))


LIBRARY = Drawn("numpy.random.SeedSequence() by gymnasium.utils.seeding", "train.py", 6)
OWN = Drawn("uuid.uuid4", "log.py", 2)
BY_LIBRARY, BY_OWN = f"train.py:6: {LIBRARY.source}", "log.py:2: uuid.uuid4"
BLAMED = {Location("train.py", 6): "env.reset()"}


@pytest.mark.parametrize(
    ("drawn", "identical", "blamed", "status", "line"),
    [
        ([OWN], False, None, "fail", BY_OWN),
        ([OWN], True, None, "warn", BY_OWN),
        ([OWN], None, None, "warn", BY_OWN),
        # a library's draw on a line's behalf is a suspect, and no alarm where the runs are equal
        ([LIBRARY], False, None, "fail", BY_LIBRARY),
        ([LIBRARY], True, None, "pass", BY_LIBRARY),
        ([LIBRARY, OWN], True, None, "warn", BY_OWN),
        # the check and the diagnosis name the same lines
        ([LIBRARY, OWN], False, BLAMED, "fail", BY_LIBRARY),
        ([OWN], False, BLAMED, "fail", "train.py:6: env.reset()"),
        ([LIBRARY, OWN], False, {}, "warn", BY_OWN),
        ([LIBRARY], False, {}, "pass", BY_LIBRARY),
    ],
)
def test_a_draw_from_the_operating_system_is_a_suspect_where_the_runs_diverged(
    drawn: list[Drawn],
    identical: bool | None,
    blamed: dict[Location, str] | None,
    status: str,
    line: str,
) -> None:
    found = drawing(*drawn, identical=identical, blamed=blamed)
    assert (found.status, lines_of(found)) == (status, (line,))


def test_runs_without_such_a_draw_pass() -> None:
    assert drawing().status == "pass"
    assert drawing(identical=False).status == "pass"
    assert drawing(Drawn("uuid.uuid4", "train.py", 3), arm="default-1").status == "pass"
    assert no_os_entropy(evidence()).status == "skip"


def refusing(*tail: str, refused: tuple[Refused, ...] = ()) -> CheckResult:
    """What `operators` says of a run that torch ended."""
    ended = run(
        "deterministic-1",
        outcome="crashed",
        problem="`put_` has no form",
        reason_id="run/no-deterministic-implementation",
        tail=tail,
    )
    return operators_deterministic(evidence(runs=(ended,), refused=refused))


def test_operators_that_torch_refused_are_named_once_with_line_and_what_to_write_instead() -> None:
    found = refusing(
        "Traceback (most recent call last):",
        '  File "/tmp/repro-gate-x1/workspace/train.py", line 41, in <module>',
        '  File "/tmp/repro-gate-x1/workspace/src/model.py", line 7, in forward',
        '  File "/venv/lib/python3.11/site-packages/torch/nn/functional.py", line 3, in f',
        "RuntimeError: cumsum_cuda_kernel does not have a deterministic implementation",
    )
    assert (found.status, lines_of(found)) == (
        "fail",
        ("src/model.py:7: deterministic-1: `put_` has no form",),
    )
    assert lines_of(refusing()) == ("deterministic-1: `put_` has no form",)
    first = Refused("put_", "forward", "train.py", 9, 1)
    again = (structs.replace(first, phase="backward"), structs.replace(first, step=2))
    found = refusing(refused=(first, *again, Refused("a_new_one", "forward", "", 0, 2)))
    instead = "; instead: `index_put_` on the flattened tensor"
    lines = (f"put_{instead}", f"put_, in the backward pass{instead}")
    assert found.status == "fail"
    assert lines_of(found) == (*(f"train.py:9: {line}" for line in lines), "a_new_one")


def test_the_page_of_the_check_says_what_to_write_instead() -> None:
    page = (ROOT / "docs/checks/random-state/operators.md").read_text()
    assert all(f"| `{name}` | {instead} |\n" in page for name, instead in INSTEAD)


@pytest.mark.parametrize(("profile", "status"), [("basic", "warn"), ("strict", "fail")])
def test_torch_must_have_refused_at_every_step(profile: str, status: str) -> None:
    def judged(name: str = "deterministic-1", **changes: Any) -> tuple[str, Any]:
        runs = (run(name, training(settings={**ON, **changes})),)
        found = operators_deterministic(evidence(spec=spec(profile=profile), runs=runs))
        return found.status, lines_of(found)

    assert judged()[0] == "pass" and judged("default-1")[0] == "skip"
    for changes in ({ALGORITHMS: False}, {WARN_ONLY: True}):
        assert judged(**changes) == (status, (f"{ALGORITHMS} was off",))
    assert operators_deterministic(evidence()).status == "skip"
    without_torch = (run("deterministic-1", training(settings={})),)
    assert operators_deterministic(evidence(runs=without_torch)).status == "skip"


def differing(kind: str) -> Trace:
    """A training with one other digest of this kind in step 1."""
    trace = training()
    return changed(trace, place_of(trace, 1, kind), flip(0))


def second(trace: Trace, *, same: bool = False, problem: str = "") -> Evidence:
    """Evidence of a varied run beside two that are the same."""
    varied = replace(run("deterministic-2", trace), problem=problem)
    comparison = None if problem else compare_runs([training()], [trace])
    pair = (run("deterministic-1", training()), run("deterministic-3", training()))
    return evidence(
        pair=pair,
        comparison=compare_runs([training()], [training()]),
        varied={42: Varied(varied, comparison, same)},
        runs=(*pair, varied),
    )


def test_a_varied_run_that_diverges_alone_is_not_robust_and_says_where() -> None:
    apart = second(differing("gradient"))
    assert robust(apart).status == "warn" and "(gradient" in robust(apart).message
    assert robust(replace(apart, spec=spec(profile="strict"))).status == "fail"
    named = missing("the path decides", ("train.py:3",), "use a relative path")
    found = robust(replace(apart, not_robust=named))
    assert (found.message, lines_of(found)) == ("the path decides", ("train.py:3",))
    assert robust(second(training(), same=True)).status == "pass"
    # one that ended badly shows nothing, and one of a racy training neither
    ended = robust(second(training(), problem="it exited with status 1"))
    assert ended.status == "warn" and "it exited with status 1" in ended.message
    by_chance = {42: replace(apart.varied[42], by_chance=True)}
    assert robust(replace(apart, varied=by_chance)).status == "skip"
    unvaried = spec(robustness=Robustness(()))
    assert robust(replace(second(training(), same=True), spec=unvaried)).status == "skip"
    assert robust(evidence()).status == "skip"
