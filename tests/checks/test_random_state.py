"""Category `random-state`: were the flags effective, and does the seed steer everything?"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from repro_gate.checks.interface import CheckResult, Evidence, NotRobust
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
from repro_gate.checks.refused import INSTEAD, lines_of
from repro_gate.compare.traces import compare_runs
from repro_gate.runs.flags import CUDA_ONLY, ONLY_READ, WARN_ONLY
from repro_gate.runs.results import Varied
from repro_gate.spec.model import AllowedFlag, Determinism, Robustness
from repro_gate.trace.format import REFUSAL
from repro_gate.trace.model import Drawn, LoaderSeen, Refused, StepMark, Trace, Undone
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


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({}, "pass"),
        ({"CUBLAS_WORKSPACE_CONFIG": ":16:8"}, "pass"),
        ({"OMP_NUM_THREADS": "1"}, "pass"),
        ({ALGORITHMS: False}, "fail"),
        ({WARN_ONLY: True}, "fail"),
        ({"MKL_CBWR": None}, "fail"),
        ({"TORCHINDUCTOR_DETERMINISTIC": None, ONLY_READ: False}, "fail"),
    ],
)
def test_flags_must_read_back_as_set(changes: dict[str, Any], status: str) -> None:
    trace = training(settings={**ON, **changes})
    assert flags_effective(evidence(runs=(run("deterministic-1", trace),))).status == status
    assert flags_effective(evidence(runs=(run("default-1", trace),))).status == "skip"


@pytest.mark.parametrize("name", sorted(CUDA_ONLY))
def test_a_flag_of_cuda_counts_where_cuda_was_used(name: str) -> None:
    on_cpu = training(settings={**ON, name: "other"})
    found = flags_effective(evidence(runs=(run("deterministic-1", on_cpu),)))
    assert found.status == "pass" and found.evidence[0].endswith("; no CUDA device was used")
    assert found.evidence[0].startswith(f"{name} is other from step 0 on, and the gate wants ")
    facts = {**on_cpu.facts, "device": "cuda: NVIDIA H200", "gpus": "2", "process": "main"}
    found = flags_effective(evidence(runs=(run("deterministic-1", replace(on_cpu, facts=facts)),)))
    assert found.status == "fail" and "changed a determinism flag" in found.message
    one_gpu = replace(on_cpu, facts={**facts, "gpus": "1"})
    found = flags_effective(evidence(runs=(run("deterministic-1", one_gpu),)))
    assert found.status == ("pass" if name.startswith("NCCL_") else "fail")


def test_the_variable_of_inductor_counts_where_inductor_was_used() -> None:
    trace = training(settings={**ON, "TORCHINDUCTOR_DETERMINISTIC": None})
    found = flags_effective(evidence(runs=(run("deterministic-1", trace),)))
    assert found.status == "pass" and "torch.compile was not used" in found.evidence[0]


def test_a_flag_that_training_code_undid_is_named_with_its_line() -> None:
    trace = training(settings=ON)
    trace = replace(
        trace,
        settings=[ON, {**ON, ALGORITHMS: False}],
        steps=[*trace.steps[:2], StepMark(2, 1.0, 0.0, 0, 1)],
        undone=[Undone(ALGORITHMS, "False", "train.py", 7, 1)],
    )
    found = flags_effective(
        evidence(
            runs=(run("deterministic-1", training(settings=ON)), run("deterministic-2", trace))
        )
    )
    assert (found.status, found.evidence) == (
        "fail",
        (f"{ALGORITHMS} is False from step 2 on, set at train.py:7, and the gate wants True",),
    )
    assert "remove the line" in found.remedy and "determinism.allow" in found.remedy


def test_a_variable_that_was_deleted_after_its_library_had_read_it_warns() -> None:
    early, late = (Undone("MKL_CBWR", "None", "train.py", line, -1, line > 5) for line in (2, 9))
    trace = training(settings={**ON, "MKL_CBWR": None})
    found = flags_effective(evidence(runs=(run("deterministic-1", replace(trace, undone=[late])),)))
    assert (found.status, found.evidence) == (
        "warn",
        ("MKL_CBWR is not set from step 0 on, set at train.py:9, and the gate wants AUTO",),
    )
    assert "after its library had read it" in found.message
    for undone in ([], [early], [late, early]):
        assert (
            flags_effective(
                evidence(runs=(run("deterministic-1", replace(trace, undone=undone)),))
            ).status
            == "fail"
        )
    back = replace(
        training(settings=ON), undone=[Undone("MKL_CBWR", "None", "train.py", 9, 1, True)]
    )
    assert flags_effective(evidence(runs=(run("deterministic-1", back),))).status == "pass", (
        "set back, and never read meanwhile"
    )


def test_a_flag_that_was_off_for_part_of_a_step_is_worth_a_notice() -> None:
    for step, status in ((1, "warn"), (-1, "pass")):  # before the first step nothing was trained
        trace = replace(
            training(settings=ON), undone=[Undone(ALGORITHMS, "False", "train.py", 7, step)]
        )
        found = flags_effective(
            evidence(spec=spec(profile="strict"), runs=(run("deterministic-1", trace),))
        )
        assert found.status == status
    trace = replace(training(settings=ON), undone=[Undone(ALGORITHMS, "False", "train.py", 7, 1)])
    found = flags_effective(evidence(runs=(run("deterministic-1", trace),)))
    assert found.evidence == (f"{ALGORITHMS} set to False at train.py:7, in step 1",)
    assert "set it back within a step" in found.message and "leave the flag alone" in found.remedy


def test_generators_that_differ_first_fail_and_later_or_alone_warn() -> None:
    a = training()
    rng = changed(a, place_of(a, 1, "rng"), flip(1))
    reached = changed(rng, place_of(a, 1, "loss"), flip(0))
    both = changed(rng, place_of(a, 0, "gradient"), flip(0))
    found: dict[str, CheckResult] = {}
    for name, b, status in (
        ("same", a, "pass"),
        ("alone", rng, "warn"),
        ("first", reached, "fail"),
        ("later", both, "warn"),
    ):
        pair = (run("deterministic-1", a), run("deterministic-2", b))
        found[name] = generators_equal(evidence(pair=pair, comparison=compare_runs([a], [b])))
        assert found[name].status == status
    assert "the torch generator's state differs from step 1 on" in found["first"].message
    assert found["first"].evidence == ("step 1",) and "more than the seed" in found["first"].remedy
    assert (
        found["alone"].evidence == ("torch: differs from step 1 on",)
        and "no recorded number depends" in found["alone"].message
    )
    assert found["later"].evidence == (
        "1 of 2 generators differ; first divergence: gradient fc.weight at step 0",
    )
    assert found["later"].remedy == "mend the first divergence"
    assert generators_equal(evidence()).status == "skip"


def reseeded(first: Trace, control: Trace, profile: str = "basic") -> CheckResult:
    """The check's result for these two."""
    return reseeded_differs(
        evidence(
            spec=spec(profile=profile),
            pair=(run("deterministic-1", first),),
            control=run("reseeded", control),
            control_comparison=compare_runs([first], [control]),
        )
    )


def test_another_seed_must_give_other_bits() -> None:
    good = reseeded(training(seed=1), training(2, seed=2))
    assert (good.status, good.evidence) == (
        "pass",
        ("seeds 42 and 43: 20 digests compared, in 13 blocks, 13 of which differ",),
    )
    same = reseeded(training(seed=1), training(2, seed=1))
    assert (same.status, same.evidence[0]) == (
        "warn",
        "seeds 42 and 43: 20 digests compared, in 13 blocks, 0 of which differ",
    )
    assert "`{seed}`" in same.remedy and "sets a seed of its own" in same.remedy
    assert reseeded(training(seed=1), training(2, seed=1), "strict").status == "fail"
    assert reseeded_differs(evidence()).status == "skip"


def test_a_control_that_differs_only_where_the_runs_do_proves_nothing() -> None:
    a = training(seed=1)
    b = changed(a, place_of(a, 1, "loss"), flip(0))
    noise = changed(training(2, seed=1), place_of(a, 1, "loss"), flip(0))
    other = changed(noise, place_of(a, 0, "loss"), flip(0))
    for control, status in ((noise, "skip"), (other, "pass"), (training(2, seed=1), "warn")):
        pair = (run("deterministic-1", a), run("deterministic-2", b))
        seen = evidence(
            pair=pair,
            control=run("reseeded", control),
            control_comparison=compare_runs([a], [control]),
        )
        found = reseeded_differs(seen)
        assert found.status == status, found
    assert (
        "nothing shows that the seed reaches the training"
        in reseeded_differs(replace(seen, control=run("reseeded", noise))).message
    )


def test_a_seed_that_reaches_nothing_is_told_once() -> None:
    a, control = training(seed=1), training(2, seed=1)
    seen = evidence(
        pair=(run("deterministic-1", a),),
        control=run("reseeded", control),
        control_comparison=compare_runs([a], [control]),
    )
    assert (
        reseeded_differs(seen).evidence[1]
        == "generators that started from the same state: python, torch"
    )
    assert (reseeded_differs(seen).status, seed_reaches_all(seen).status) == ("warn", "skip")


def test_runs_that_recorded_nothing_in_common_say_nothing_of_the_seed() -> None:
    bare = replace(training(), blocks=[block(0, "rng")])
    assert reseeded(bare, training(2, seed=2)).status == "skip"


def test_another_state_of_the_generators_alone_is_not_other_bits() -> None:
    a = training(2)
    assert reseeded(a, changed(a, place_of(a, 0, "rng"), flip(0))).status == "warn"


def test_digests_that_only_the_short_control_has_are_not_other_bits() -> None:
    """With `capture.every: 10` the long run has no digest at step 1, which is the control's
    last."""
    a = training(12)
    a = replace(a, blocks=[item for item in a.blocks if item.step in (-1, 0, 10)])
    control = replace(
        training(2), blocks=[item for item in a.blocks if item.step < 1] + [block(1, "parameter")]
    )
    assert reseeded(a, control).status == "warn"


def reached(first: Trace, control: Trace) -> CheckResult:
    """What `seed-reach` says of these two."""
    return seed_reaches_all(
        evidence(pair=(run("deterministic-1", first),), control=run("reseeded", control))
    )


def test_another_seed_must_move_every_generator() -> None:
    good = reached(training(seed=1), training(2, seed=2))
    assert (good.status, good.evidence) == ("pass", ("python", "torch"))
    fixed = training(2, seed=2)
    place = place_of(fixed, 0, "rng")
    own = training(seed=1).blocks[place_of(training(seed=1), 0, "rng")]
    fixed = changed(
        fixed, place, lambda old: replace(old, content=old.digests[:16] + own.digests[16:])
    )
    found = reached(training(seed=1), fixed)
    assert (found.status, found.evidence) == ("warn", ("torch",))
    assert "the seed does not reach 1 of 2 generators" in found.message
    assert "seeds 42 and 43" in found.message
    assert "{seed}" in found.remedy
    strict = evidence(
        spec=spec(profile="strict"),
        pair=(run("deterministic-1", training(seed=1)),),
        control=run("reseeded", training(2, seed=1)),
    )
    assert seed_reaches_all(strict).status == "fail"


def test_a_generator_counts_where_it_is_first_recorded() -> None:
    """The code may seed again later; a generator of a device that one run never used is not
    compared."""
    later = training(2, seed=2)
    same = training(seed=1).blocks[place_of(training(seed=1), 1, "rng")]
    assert (
        reached(
            training(seed=1), changed(later, place_of(later, 1, "rng"), lambda old: same)
        ).status
        == "pass"
    )
    cuda = replace(
        training(seed=1),
        blocks=[*training(seed=1).blocks, block(3, "rng", [("cuda:0", "uint8", (16,))])],
    )
    assert reached(cuda, training(2, seed=2)).evidence == ("python", "torch")


def test_every_rank_must_be_reached() -> None:
    ours = [training(seed=1, key="rank0"), training(seed=2, key="rank1")]
    theirs = [training(2, seed=3, key="rank0"), training(2, seed=2, key="rank1")]
    found = seed_reaches_all(
        evidence(pair=(run("deterministic-1", *ours),), control=run("reseeded", *theirs))
    )
    assert (found.status, found.evidence) == ("warn", ("rank1: python", "rank1: torch"))


def test_without_a_control_or_states_nothing_is_said_of_the_seed() -> None:
    assert seed_reaches_all(evidence()).status == "skip"
    bare = replace(training(), blocks=[item for item in training().blocks if item.kind != "rng"])
    assert reached(bare, training(2, seed=2)).status == "skip"


def loading(*first: LoaderSeen, second: tuple[LoaderSeen, ...] | None = None) -> CheckResult:
    """What `workers` says of two runs with these loaders."""
    traces = [
        replace(training(), loaders=list(loaders))
        for loaders in (first, first if second is None else second)
    ]
    return workers_seeded(
        evidence(
            pair=tuple(
                run(f"deterministic-{place + 1}", trace) for place, trace in enumerate(traces)
            )
        )
    )


def test_workers_must_be_seeded_alike_in_both_runs() -> None:
    loader = LoaderSeen(0, 4, 7)
    good = loading(loader, LoaderSeen(1, 0, None))
    assert (good.status, good.evidence) == ("pass", ("loader 0: 4 workers from base seed 7",))
    other = loading(loader, second=(LoaderSeen(0, 4, 8),))
    assert (other.status, other.evidence) == (
        "fail",
        ("loader 0: 4 workers from base seed 7, then 4 workers from base seed 8",),
    )
    assert "generator=torch.Generator().manual_seed(seed)" in other.remedy
    assert loading(loader, second=(LoaderSeen(0, 2, 7),)).status == "fail"
    gone = loading(loader, second=())
    assert (gone.status, gone.evidence) == (
        "fail",
        ("loader 0: 4 workers from base seed 7, then not there",),
    )


@pytest.mark.parametrize(("profile", "status"), [("basic", "warn"), ("strict", "fail")])
def test_a_base_seed_that_could_not_be_read_is_missing(profile: str, status: str) -> None:
    traces = [replace(training(), loaders=[LoaderSeen(0, 2, seed)]) for seed in (7, None)]
    pair = tuple(run(f"deterministic-{place + 1}", trace) for place, trace in enumerate(traces))
    found = workers_seeded(evidence(spec=spec(profile=profile), pair=pair))
    assert (found.status, found.evidence) == (status, ("loader 0",))


def test_loaders_without_workers_need_no_seed() -> None:
    assert loading(LoaderSeen(0, 0, 1), second=(LoaderSeen(0, 0, 2),)).status == "skip"
    assert loading().status == "skip"
    assert workers_seeded(evidence()).status == "skip"


def drawing(
    *drawn: Drawn,
    arm: str = "deterministic-1",
    identical: bool | None = True,
    blamed: dict[str, str] | None = None,
) -> CheckResult:
    """What `os-entropy` says of a run with these draws, beside a clean one."""
    a, b = training(), training() if identical else changed(training(), 3, flip(0))
    runs = (run(arm, replace(a, drawn=list(drawn))), run("deterministic-2", b))
    return no_os_entropy(
        evidence(
            runs=runs,
            comparison=None if identical is None else compare_runs([a], [b]),
            blamed=blamed,
        )
    )


def test_a_draw_from_the_operating_system_is_a_suspect_where_the_runs_diverged() -> None:
    draw = Drawn("numpy.random.default_rng()", "augment.py", 9)
    diverged = drawing(draw, identical=False)
    assert (diverged.status, diverged.evidence) == (
        "fail",
        ("augment.py:9: numpy.random.default_rng()",),
    )
    assert "default_rng(seed)" in diverged.remedy
    equal = drawing(draw)
    assert (equal.status, equal.evidence) == ("warn", diverged.evidence)
    assert "no recorded number depended on it" in equal.message
    assert "no two runs could be compared" in drawing(draw, identical=None).message


LIBRARY = Drawn("numpy.random.SeedSequence() by gymnasium.utils.seeding", "train.py", 6)
OWN = Drawn("uuid.uuid4", "log.py", 2)


def test_a_draw_of_a_library_on_a_lines_behalf_is_a_suspect_and_no_alarm_where_the_runs_are_equal() -> (
    None
):
    diverged = drawing(LIBRARY, identical=False)
    assert (diverged.status, diverged.evidence) == (
        "fail",
        ("train.py:6: numpy.random.SeedSequence() by gymnasium.utils.seeding",),
    )
    equal = drawing(LIBRARY)
    assert (equal.status, equal.evidence) == (
        "pass",
        diverged.evidence,
    ) and "on behalf of 1 lines: no recorded number" in equal.message
    assert drawing(LIBRARY, OWN).evidence == ("log.py:2: uuid.uuid4",)


def test_the_check_and_the_diagnosis_name_the_same_lines() -> None:
    named = drawing(LIBRARY, OWN, identical=False, blamed={"train.py:6": "env.reset()"})
    assert (named.status, named.evidence) == (
        "fail",
        ("train.py:6: numpy.random.SeedSequence() by gymnasium.utils.seeding",),
    )
    unseen = drawing(OWN, identical=False, blamed={"train.py:6": "env.reset()"})
    assert (unseen.status, unseen.evidence) == ("fail", ("train.py:6: env.reset()",))
    other = drawing(LIBRARY, OWN, identical=False, blamed={})
    assert (other.status, other.evidence) == (
        "warn",
        ("log.py:2: uuid.uuid4",),
    ) and "for another reason" in other.message
    assert drawing(LIBRARY, identical=False, blamed={}).status == "pass"


def test_runs_without_such_a_draw_pass() -> None:
    assert drawing().status == "pass"
    assert drawing(identical=False).status == "pass"
    assert drawing(Drawn("uuid.uuid4", "train.py", 3), arm="default-1").status == "pass"
    assert no_os_entropy(evidence()).status == "skip"


def refused(*tail: str) -> CheckResult:
    """What `operators` says of a run that torch ended."""
    problem = (
        "`cumsum_cuda_kernel` has no deterministic implementation on this device, so torch refused "
        "to run it"
    )
    reason = "run/no-deterministic-implementation"
    return operators_deterministic(
        evidence(
            runs=(
                run(
                    "deterministic-1",
                    outcome="crashed",
                    problem=problem,
                    reason_id=reason,
                    tail=tail,
                ),
            )
        )
    )


def test_an_operator_that_torch_refused_is_named_with_its_line() -> None:
    found = refused(
        "Traceback (most recent call last):",
        '  File "/tmp/repro-gate-x1/workspace/train.py", line 41, in <module>',
        '  File "/tmp/repro-gate-x1/workspace/src/model.py", line 7, in forward',
        '  File "/venv/lib/python3.11/site-packages/torch/nn/functional.py", line 3, in f',
        "RuntimeError: cumsum_cuda_kernel does not have a deterministic implementation",
    )
    assert (found.status, found.evidence) == ("fail", ("src/model.py:7",))
    assert found.message.startswith("`cumsum_cuda_kernel` has no deterministic implementation")
    assert "replace the operator" in found.remedy
    assert refused().evidence[0].startswith("deterministic-1: `cumsum_cuda_kernel`")


def test_all_operators_that_torch_refuses_are_named_once_with_what_to_write_instead() -> None:
    run_of = run(
        "deterministic-1",
        outcome="crashed",
        problem="`put_` has no form",
        reason_id="run/no-deterministic-implementation",
    )
    first = Refused("put_", "forward", "train.py", 9, 1)
    named = (
        first,
        structs.replace(first, phase="backward"),
        structs.replace(first, step=2),
        Refused("a_new_one", "forward", "", 0, 2),
    )
    found = operators_deterministic(evidence(runs=(run_of,), refused=named))
    assert (found.status, found.message) == (
        "fail",
        "torch refuses 3 operators: no deterministic form on this device",
    )
    instead = "; instead: `index_put_` on the flattened tensor"
    assert found.evidence == (
        f"train.py:9: put_{instead}",
        f"train.py:9: put_, in the backward pass{instead}",
        "a_new_one",
    )
    alone = operators_deterministic(evidence(runs=(run_of,), refused=(first,)))
    assert (alone.message, alone.evidence) == (
        "`put_` has no form",
        (f"train.py:9: put_{instead}",),
    )


@pytest.mark.parametrize(
    "name",
    [
        "median CUDA with indices output",
        "_bincount_cuda",
        "upsample_bilinear2d_backward_out_cuda",
        "nll_loss2d_forward_out_cuda",
    ],
)
def test_names_as_torch_gives_them_have_something_to_write_instead(name: str) -> None:
    refusal = re.search(
        REFUSAL, f"RuntimeError: {name} does not have a deterministic implementation, but you set"
    )
    assert refusal is not None and refusal[1] == name
    assert "; instead: " in lines_of([Refused(refusal[1], "forward", "a.py", 1, 0)], [])[0]


def test_the_page_of_the_check_says_what_to_write_instead() -> None:
    page = (ROOT / "docs/checks/random-state/operators.md").read_text()
    assert all(f"| `{name}` | {instead} |\n" in page for name, instead in INSTEAD)


def test_torch_must_have_refused_at_every_step() -> None:
    def judged(**changes: Any) -> CheckResult:
        return operators_deterministic(
            evidence(runs=(run("deterministic-1", training(settings={**ON, **changes})),))
        )

    good = judged()
    assert (good.status, good.message) == ("pass", "torch ran 3 steps and refused no operator")
    for changes in ({ALGORITHMS: False}, {WARN_ONLY: True}):
        off = judged(**changes)
        assert (off.status, off.evidence) == (
            "warn",
            (f"{ALGORITHMS} was off (training code switched it off)",),
        )
        assert "deterministic form" in off.remedy
        assert off.message == "torch refused no operator at 3 of 3 steps, so none was checked"


@pytest.mark.parametrize(("profile", "status"), [("basic", "warn"), ("strict", "fail")])
def test_a_flag_that_the_spec_leaves_off_checks_no_operator(profile: str, status: str) -> None:
    determinism = Determinism(allow=(AllowedFlag(ALGORITHMS, "cumsum has no other form"),))
    runs = (run("deterministic-1", training(settings={ALGORITHMS: False})),)
    found = operators_deterministic(
        evidence(spec=spec(profile=profile, determinism=determinism), runs=runs)
    )
    assert (found.status, found.evidence) == (
        status,
        (f"{ALGORITHMS} was off (the spec leaves it off: cumsum has no other form)",),
    )


def test_training_without_torch_has_no_operators() -> None:
    assert (
        operators_deterministic(
            evidence(runs=(run("deterministic-1", training(settings={})),))
        ).status
        == "skip"
    )
    assert (
        operators_deterministic(evidence(runs=(run("default-1", training(settings=ON)),))).status
        == "skip"
    )
    assert operators_deterministic(evidence()).status == "skip"


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
    found = robust(second(differing("gradient")))
    assert (
        found.status == "warn"
        and "repeatable, but not robust" in found.message
        and "(gradient" in found.message
    )
    assert (
        robust(replace(second(differing("gradient")), spec=spec(profile="strict"))).status == "fail"
    )
    named = replace(
        second(differing("gradient")),
        not_robust=NotRobust("the path decides", ("train.py:3",), "use a relative path"),
    )
    assert (robust(named).message, robust(named).evidence) == ("the path decides", ("train.py:3",))
    assert robust(second(training(), same=True)).status == "pass"


def test_a_varied_run_that_ended_badly_shows_nothing_and_one_of_a_racy_training_neither() -> None:
    assert (
        "it exited with status 1"
        in robust(second(training(), problem="it exited with status 1")).message
    )
    chance = second(differing("gradient"))
    assert (
        robust(replace(chance, varied={42: replace(chance.varied[42], by_chance=True)})).status
        == "skip"
    )
    assert (
        robust(replace(second(training(), same=True), spec=spec(robustness=Robustness(())))).status
        == "skip"
    )
    assert robust(evidence()).status == "skip"
