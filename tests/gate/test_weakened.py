"""Claims about weakened checks: each thing that a change asks for less is named, and nothing that
is more or the same."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from repro_gate.baseline.model import Baseline, Entry
from repro_gate.gate.weakened import weakened
from repro_gate.spec.model import (
    AllowedFlag,
    BaselineRule,
    Capture,
    Checklist,
    CostBudget,
    DataItem,
    Determinism,
    Env,
    Hardware,
    RandomState,
    Robustness,
    Spec,
    Tolerance,
    Train,
    Waiver,
)
from tests.support.recorded import CPU, GPU, RECIPE, baseline, entry, outcome

A, B = "a" * 64, "b" * 64
PINNED, PINNED_TO_ANOTHER = f"ghcr.io/org/train@sha256:{A}", f"ghcr.io/org/train@sha256:{B}"
CUDNN = AllowedFlag("torch.backends.cudnn.deterministic", "faster")
FILL = AllowedFlag("torch.utils.deterministic.fill_uninitialized_memory", "slow")
NEXT_YEAR, IN_TWO_YEARS = date(2027, 1, 1), date(2028, 1, 1)


def spec(**sections: Any) -> Spec:
    return Spec(**{"path": Path("/x/repro.yml"), "train": Train(run="python train.py"), **sections})


def train(**fields: Any) -> Spec:
    return spec(train=Train(**{"run": "python train.py", **fields}))


def data(**fields: Any) -> Spec:
    return spec(data=(DataItem("data/train.bin", **fields),))


def within(loss: float, weights: float) -> Spec:
    return spec(determinism=Determinism(Tolerance(loss, weights)))


def waived(until: date | None) -> Spec:
    return spec(checklist=Checklist(waive=(Waiver("env/lockfile", "no time", until),)))


def severity(value: str | None, profile: str = "basic") -> Spec:
    return spec(checklist=Checklist(profile, severity={"data/batches": value} if value else {}))


# (key, more, less): found one way, not the other
LESS = [
    ("baseline.on-change", spec(baseline=BaselineRule("fail")), spec()),
    ("policy", spec(policy="base"), spec()),
    ("checklist.profile", severity(None, "strict"), severity(None)),
    ("checklist.waive", spec(), waived(None)),
    ("checklist.waive", spec(), waived(NEXT_YEAR)),
    ("checklist.waive", waived(NEXT_YEAR), waived(IN_TWO_YEARS)),
    ("checklist.waive", waived(NEXT_YEAR), waived(None)),
    ("checklist.severity", severity("fail"), severity("warn")),
    ("checklist.severity", severity("fail", "strict"), severity(None, "strict")),
    ("checklist.severity", severity(None, "strict"), severity("warn", "strict")),
    ("determinism.allow", spec(), spec(determinism=Determinism(allow=(CUDNN,)))),
    ("determinism.allow-nonfinite", spec(), spec(determinism=Determinism(allow_nonfinite=True))),
    ("determinism.repeat", spec(determinism=Determinism(repeat=5)), spec()),
    ("determinism.compare", spec(), within(0.0, 0.0)),
    ("determinism.compare", within(1e-6, 1e-5), within(1e-3, 1e-5)),
    ("determinism.compare", within(1e-6, 1e-5), within(1e-6, 1e-3)),
    ("robustness.vary", spec(), spec(robustness=Robustness(Robustness().vary[1:]))),
    ("train.steps", train(), train(steps=50)),
    ("train.steps", train(steps=50), train(steps=5)),
    ("random-state.seeds", spec(random_state=RandomState((1, 2))), spec()),
    ("capture.every", spec(), spec(capture=Capture(every=10))),
    ("capture.artifacts", spec(capture=Capture(artifacts=("a", "b"))), spec(capture=Capture(artifacts=("b",)))),
    ("cost.measure", spec(), spec(cost=CostBudget(measure=False))),
    ("cost.max-percent", spec(cost=CostBudget(max_percent=30)), spec(cost=CostBudget(max_percent=90))),
    ("cost.max-percent", spec(cost=CostBudget(max_percent=30)), spec()),
    ("cost.max-regression-percent", spec(cost=CostBudget(max_regression_percent=5)), spec()),
    ("env.lockfile", spec(env=Env(lockfile="uv.lock")), spec()),
    ("env.image", spec(env=Env(image=PINNED)), spec()),
    ("env.image", spec(env=Env(image=PINNED)), spec(env=Env(image="train:latest"))),
    ("env.image", spec(env=Env(image="train:latest")), spec()),
    ("hardware.device", spec(hardware=Hardware("cuda")), spec()),
    ("hardware.device", spec(hardware=Hardware("cpu")), spec()),
    ("hardware.device", spec(hardware=Hardware("cuda")), spec(hardware=Hardware("cpu"))),
    ("hardware.gpus", spec(hardware=Hardware(gpus=8)), spec()),
    ("hardware.gpu-model", spec(hardware=Hardware(gpu_model="H100")), spec()),
    ("data", data(sha256=A), data()),
    ("data", data(sha256=A), spec()),
    ("data", data(md5="c" * 32), spec()),
    ("data", data(size=10), data()),
]  # fmt: skip
# (key, one, another): found both ways
ANOTHER = [
    ("train.run", train(), train(run="true")),
    ("train.working-directory", train(), train(working_directory="src")),
    ("train.env", train(), train(env={"FAST": "1"})),
    ("train.env", train(env={"FAST": "0"}), train(env={"FAST": "1"})),
    ("determinism.compare", within(1e-6, 1e-5), within(1e-9, 1.0)),
    ("capture.artifacts", spec(capture=Capture(artifacts=("a",))), spec(capture=Capture(artifacts=("b",)))),
    ("data", data(sha256=A), data(sha256=B)),
    ("data", data(sha256=A), data(md5="c" * 32)),
    ("env.lockfile", spec(env=Env("a.lock")), spec(env=Env("b.lock"))),
    ("hardware.gpus", spec(hardware=Hardware(gpus=8)), spec(hardware=Hardware(gpus=1))),
    ("hardware.gpu-model", spec(hardware=Hardware(gpu_model="H100")), spec(hardware=Hardware(gpu_model="B200"))),
]  # fmt: skip
# found neither way
SAME = [
    (spec(), spec(path=Path("/elsewhere/repro.yml"))),
    (spec(random_state=RandomState((1,))), spec(random_state=RandomState((2,)))),
    (train(warmup=5, timeout=60.0), train(warmup=10, timeout=600.0)),
    (spec(), spec(diagnosis=None)),
    (spec(env=Env(image=PINNED)), spec(env=Env(image=PINNED_TO_ANOTHER))),
    (spec(env=Env(image="a:1")), spec(env=Env(image="a:2"))),
    (waived(None), spec(checklist=Checklist(waive=(Waiver("env/lockfile", "better said"),)))),
    (data(sha256=A, size=10, md5="c" * 32), data(sha256=A)),
    (spec(capture=Capture(artifacts=("a", "b"))), spec(capture=Capture(artifacts=("b", "a")))),
    (
        spec(determinism=Determinism(allow=(CUDNN, FILL))),
        spec(determinism=Determinism(allow=(FILL, replace(CUDNN, reason="needed")))),
    ),
]


def keys(base: Spec, head: Spec) -> set[str]:
    found = weakened(base, head, None, None)
    assert all(item.message and item.message.isprintable() for item in found)
    return {item.key for item in found}


@pytest.mark.parametrize(("key", "more", "less"), LESS)
def test_less_is_found_and_more_is_not(key: str, more: Spec, less: Spec) -> None:
    assert (keys(more, less), keys(less, more)) == ({key}, set())


def test_what_has_no_direction_is_found_both_ways_and_what_asks_for_the_same_is_not() -> None:
    for key, one, other in ANOTHER:
        assert keys(one, other) == {key} and keys(other, one) <= {key}
    for one, other in SAME:
        assert keys(one, other) == keys(other, one) == set()
    assert keys(spec(), spec(train=Train(snippet="pass\n"))) == {"train.run", "train.snippet"}


def test_of_two_waivers_of_one_check_the_first_counts() -> None:
    short, long = waived(NEXT_YEAR).checklist.waive, waived(None).checklist.waive
    both, swapped = (spec(checklist=Checklist(waive=item)) for item in (short + long, long + short))
    assert keys(waived(NEXT_YEAR), both) == set()
    assert keys(waived(NEXT_YEAR), swapped) == {"checklist.waive"}


def test_a_message_has_the_name_and_both_values_on_one_line() -> None:
    (found,) = weakened(train(env={"FAST": "0"}), train(env={"FAST": "1"}), None, None)
    assert found.message.endswith("`FAST`: `0` -> `1`")
    command = f"python -m torch.distributed.run {'x' * 90} --epochs 10 --lr "
    (found,) = weakened(train(run=command + "0.1"), train(run=command + "0.5"), None, None)
    assert found.message.endswith("10 --lr 0.1` -> `… --epochs 10 --lr 0.5`")
    hostile = "a\n::error::forged\x1b[31m" + "x" * 500
    (found,) = weakened(spec(), train(env={hostile: hostile}), None, None)
    assert found.message.isprintable() and len(found.message) < 300


def test_who_judges_comes_first_and_a_flood_of_names_hides_nothing() -> None:
    head = spec(
        train=Train(run="true", env={f"NAME_{number:04}": "x" for number in range(2_000)}),
        checklist=Checklist(waive=(Waiver("code/clean", "x"),)),
        capture=Capture(every=2),
    )
    found = weakened(spec(policy="base"), head, None, None)
    assert list(dict.fromkeys(item.key for item in found)) == [
        "policy",
        "checklist.waive",
        "train.run",
        "train.env",
        "capture.every",
    ]
    assert len(found) == 25 and any("1,980 more" in item.message for item in found)


MOVED = {**RECIPE, "code/train.py": "sha256:" + "9" * 64}


@pytest.mark.parametrize(
    ("head", "parts"),
    [
        (
            entry(RECIPE, CPU, outcome(bits="second")),
            "rewritten losses weights optimizer out/final.pt",
        ),
        (entry(RECIPE, CPU, outcome(weights="sha256:" + "0" * 64)), "rewritten weights"),
        (entry(RECIPE, CPU, outcome(steps=5)), "rewritten steps"),
        (entry(RECIPE, CPU, outcome(optimizer=None)), "rewritten optimizer"),
        (entry(RECIPE, CPU, outcome(artifacts={})), "rewritten out/final.pt"),
        (entry(RECIPE, CPU, outcome(7)), "rewritten losses"),
        (entry(MOVED, CPU, outcome(bits="second")), "renewed losses"),
        (entry(RECIPE, GPU), "gone"),
        (None, "gone"),
    ],
)
def test_an_entry_that_is_gone_rewritten_or_renewed_is_found(
    head: Entry | None, parts: str
) -> None:
    new = None if head is None else baseline(head)
    (found,) = weakened(spec(), spec(), baseline(entry()), new)
    assert (found.key, str(found.location)) == ("repro.baseline.yml", "repro.baseline.yml")
    assert all(part in found.message for part in [entry().platform[:19], *parts.split()])


@pytest.mark.parametrize(
    ("base", "head"),
    [
        (None, None),
        (None, baseline(entry())),
        (baseline(), baseline(entry())),
        (baseline(entry()), baseline(entry(), entry(RECIPE, GPU))),
        # a no-op recorded: another recipe, the same bits
        (baseline(entry()), baseline(entry(MOVED, CPU))),
        (
            baseline(entry()),
            baseline(structs.replace(entry(), recorded="2027-01-01T00:00:00Z", outside={})),
        ),
        # more is recorded than before
        (baseline(entry(RECIPE, CPU, outcome(optimizer=None))), baseline(entry())),
        (baseline(entry(RECIPE, CPU, outcome(artifacts={}))), baseline(entry())),
        (baseline(entry()), baseline(entry(MOVED, CPU, outcome(), outcome(7)))),
    ],
)
def test_a_baseline_that_holds_the_same_bits_or_more_is_not_found(
    base: Baseline | None, head: Baseline | None
) -> None:
    assert weakened(spec(), spec(), base, head) == ()
