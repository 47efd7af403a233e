"""Claims about `runs.arms`: what each arm sets, and which readings count as effective."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from repro_gate.compare.cost import SETS_FLAGS, TOO_SHORT
from repro_gate.runs import arms, flags
from repro_gate.runs.arms import Alternation
from repro_gate.spec.model import AllowedFlag, Determinism, Spec, Train
from repro_gate.trace.fields import Call
from repro_gate.trace.model import Trace, Undone
from tests.support.built_traces import FACTS, ROWS, block, training

ON = arms.deterministic(42, frozenset(), None)
EFFECTIVE = {**ON.flags, **ON.environment, flags.WARN_ONLY: False, flags.ONLY_READ: True}
SET = [*flags.IN_PROCESS, *flags.IN_ENVIRONMENT]


def test_a_flag_is_effective_as_set_or_by_what_does_the_same() -> None:
    assert arms.not_effective(EFFECTIVE, ON) == {}
    others = [*((name, None) for name in flags.IN_ENVIRONMENT), (flags.WARN_ONLY, True)]
    for name in (*SET, flags.ONLY_READ):
        was = EFFECTIVE[name]
        others.append((name, not was if isinstance(was, bool) else "something else"))
    for name, other in others:
        wrong = arms.not_effective({**EFFECTIVE, name: other}, ON)
        is_unknown = name == "NCCL_ALGO" and other is not None
        said = f"{other} (NCCL does not know it)" if is_unknown else other
        assert wrong == {name: (said, EFFECTIVE[name])}
    for name, values in flags.ALSO_EFFECTIVE.items():
        assert arms.not_effective({**EFFECTIVE, name: values[0]}, ON) == {}
    for name in flags.FLAGS:  # which this torch does not have
        read = {key: value for key, value in EFFECTIVE.items() if key != name}
        assert arms.not_effective(read, ON) == {}
    for name in SET:
        arm = arms.deterministic(42, frozenset({name}), None)
        assert name not in {**arm.flags, **arm.environment}
        assert name not in arms.not_effective({**EFFECTIVE, name: "off"}, arm)


NVLS_OFF, COLLNET_ON = {"NCCL_NVLS_ENABLE": "0"}, {"NCCL_COLLNET_ENABLE": "1"}
ALGO: list[tuple[str, dict[str, str], str]] = [  # value, what else is set, which switches may add
    ("Ring", {}, ""),
    ("tree", {}, ""),
    ("PAT,RING", {}, ""),
    ("Ring,Tree", COLLNET_ON, ""),
    ("^NVLS", {}, ""),
    ("^nvls,nvlstree", {}, ""),
    ("^NVLS", COLLNET_ON, "allreduce.*collnet"),
    ("^NVLS,CollNetDirect,CollNetChain,CollNet", COLLNET_ON, ""),
    ("^NVLSTree", {}, r"allreduce.*\(nvls\)"),
    ("^Tree", {}, "allreduce.*nvls"),
    ("^Tree", NVLS_OFF, ""),
    ("NVLS", {}, "allreduce.*nvls"),
    ("Ring,NVLSTree", {}, "allreduce.*nvlstree"),
    ("CollnetDirect", {}, "allreduce.*collnetdirect"),
    ("collnetchain", NVLS_OFF, "allreduce.*collnetchain"),
    ("allreduce:tree;broadcast:ring", {}, "reducescatter.*nvls"),
    ("allreduce:tree;broadcast:ring", NVLS_OFF, ""),
    ("ring;allreduce:tree", {}, ""),
    ("AllReduce:Tree;ReduceScatter:Ring;AllGather:NVLS", {}, ""),
    ("allreduce:^nvls;reducescatter:^NVLS,NVLSTree", {}, ""),
    ("ring;allreduce:^tree", {}, "allreduce.*nvls"),
    ("ring;reducescatter:nvls", {}, "reducescatter.*nvls"),
    ("Tree, Ring", {}, "does not know"),
    ("", {}, "does not know"),
    ("^Trees", {}, "does not know"),
]


@pytest.mark.parametrize(("value", "settings", "why"), ALGO)
def test_an_algorithm_of_nccl_is_effective_unless_switches_may_add(
    value: str, settings: dict[str, str], why: str
) -> None:
    said = flags.in_network(value, settings)
    assert bool(said) == bool(why) and re.search(why, said)
    wrong = arms.not_effective({**EFFECTIVE, **settings, "NCCL_ALGO": value}, ON)
    assert wrong == ({"NCCL_ALGO": (f"{value} ({said})", "Ring")} if why else {})


def test_the_default_condition_sets_the_seed_and_no_flag() -> None:
    arm = arms.default(7, None)
    variables = {"PL_GLOBAL_SEED": "7", "PL_SEED_WORKERS": "1"}
    assert (arm.flags, arm.environment, arm.seed) == ({}, variables, 7)
    assert arms.not_effective(dict.fromkeys(flags.FLAGS, "whatever"), arm) == {}


@pytest.mark.parametrize("seed", [0, 42, 2**31 - 2, 2**31 - 1, 2**32 - 1])
def test_the_reseeded_arm_has_another_seed_that_fits_every_generator(seed: int) -> None:
    arm = arms.reseeded(seed, frozenset({"NCCL_ALGO"}), 2)
    like = arms.deterministic(seed, frozenset({"NCCL_ALGO"}), None)
    assert arm.flags == like.flags and arm.steps == 2
    assert arm.seed != seed and 0 <= arm.seed < (2**31 if seed < 2**31 else 2**32)
    assert dict(arm.environment.items() - like.environment.items()).keys() == {
        "PYTHONHASHSEED",
        "PL_GLOBAL_SEED",
    }


ALGORITHMS, FILL, CUDNN, MKLDNN = flags.SWITCHED
READ = dict.fromkeys(flags.SWITCHED, True)
CONV = Call("aten::convolution", "", "float32", "forward", "", 1, ())
ADDMM = Call("aten::addmm", "", "float32", "forward", "", 1, ())
HALF = Call("aten::addmm", "", "bfloat16", "forward", "", 1, ())


def alternation(
    *allow: str,
    steps: int = 80,
    warmup: int = 5,
    read: Any = READ,
    off: Any = None,
    calls: Any = (ADDMM,),
    **changes: Any,
) -> Alternation | str:
    """How the flags alternate in a training on a CPU that calls these operators."""
    spec = Spec(
        path=Path("/repro.yml"),
        train=Train(run="x", steps=None, warmup=warmup),
        determinism=Determinism(allow=tuple(AllowedFlag(name, "") for name in allow)),
    )
    default = {**dict.fromkeys(read, False), FILL: True, **(off or {})}
    on = replace(training(steps, settings=read), **changes)
    control = replace(training(2), calls=list(calls))
    return arms.alternation(spec, [on], [training(steps, settings=default)], [control])


@pytest.mark.parametrize(
    ("asked", "switched", "alone"),
    [
        ({}, flags.SWITCHED, [FILL]),
        ({"calls": [CONV]}, flags.SWITCHED, [FILL, MKLDNN]),
        ({"calls": [HALF]}, flags.SWITCHED, [FILL, MKLDNN]),
        ({"calls": []}, flags.SWITCHED, [FILL, MKLDNN]),
        ({"facts": {**FACTS, "device": "cuda: H100"}}, flags.SWITCHED, [FILL, CUDNN]),
        ({"read": {ALGORITHMS: True, FILL: True}}, [ALGORITHMS, FILL], [FILL]),
    ],
)
def test_arms_have_none_all_and_all_but_each_flag_that_can_matter(
    asked: Any, switched: Any, alone: list[str]
) -> None:
    found = alternation(**asked)
    assert isinstance(found, Alternation)
    assert list(found.flags) == alone and found.cycle == 1
    none, every, *others = found.arms
    assert list(none) == list(switched) and set(none.values()) == {False}
    assert set(every.values()) == {True}
    assert others == [{**every, name: False} for name in alone]
    assert found.steps == 80 // len(found.arms) * len(found.arms)


def test_a_flag_that_the_spec_leaves_off_does_not_alternate_and_a_run_has_an_end() -> None:
    found = alternation(FILL, steps=10_000)
    assert isinstance(found, Alternation) and len(found.arms) == 2
    assert FILL not in found.arms[0] and found.steps == 2 * (arms._BLOCKS + 3)


def turns(kinds: str) -> Trace:
    rows = {"a": ROWS["parameter"], "b": ROWS["buffer"]}
    blocks = [block(step, "parameter", rows[kind]) for step, kind in enumerate(kinds)]
    return replace(training(len(kinds)), blocks=blocks)


def test_why_flags_cannot_alternate_is_said() -> None:
    undone = [Undone(CUDNN, "False", "train.py", 3, 0)]
    for asked, why in (
        ({"undone": undone}, SETS_FLAGS),
        ({"off": {CUDNN: True}}, SETS_FLAGS),
        ({"steps": 13}, TOO_SHORT),
        ({"steps": 0}, TOO_SHORT),
        ({"steps": 80, "blocks": turns("aababbbaab" * 8).blocks}, "no fixed order"),
        ({"allowed": flags.SWITCHED}, "no flag"),
        ({"allowed": [ALGORITHMS]}, "no flag"),
    ):
        found = alternation(*asked.pop("allowed", ()), **asked)
        assert isinstance(found, str) and why in found
    for steps, alone in ((18, [FILL]), (17, []), (14, [])):
        few = alternation(steps=steps)
        assert isinstance(few, Alternation) and [*few.flags] == alone
    whole = alternation(steps=80, blocks=turns("ab" * 40).blocks)
    assert isinstance(whole, Alternation) and (whole.cycle, whole.steps) == (2, 78)
