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
from repro_gate.spec import model
from repro_gate.spec.model import Spec
from tests.support.recorded import CPU, GPU, RECIPE, baseline, entry, outcome

A, B = "a" * 64, "b" * 64
PINNED, PINNED_TO_ANOTHER = f"ghcr.io/org/train@sha256:{A}", f"ghcr.io/org/train@sha256:{B}"
CUDNN = model.AllowedFlag("torch.backends.cudnn.deterministic", "faster")
FILL = model.AllowedFlag("torch.utils.deterministic.fill_uninitialized_memory", "slow")
NEXT_YEAR, IN_TWO_YEARS = date(2027, 1, 1), date(2028, 1, 1)


def spec(**sections: Any) -> Spec:
    return Spec(
        **{"path": Path("/x/repro.yml"), "train": model.Train(run="python train.py"), **sections}
    )


def train(**fields: Any) -> Spec:
    return spec(train=model.Train(**{"run": "python train.py", **fields}))


def data(**fields: Any) -> Spec:
    return spec(data=(model.DataItem("data/train.bin", **fields),))


def within(loss: float, weights: float) -> Spec:
    return spec(determinism=model.Determinism(model.Tolerance(loss, weights)))


def waived(until: date | None) -> Spec:
    return spec(checklist=model.Checklist(waive=(model.Waiver("env/lockfile", "no time", until),)))


def severity(value: str | None, profile: str = "basic") -> Spec:
    return spec(
        checklist=model.Checklist(profile, severity={"data/batches": value} if value else {})
    )


# (key, more, less): found one way, not the other
LESS = [
    ("baseline.on-change", spec(baseline=model.BaselineRule("fail")), spec()),
    ("policy", spec(policy="base"), spec()),
    ("checklist.profile", severity(None, "strict"), severity(None)),
    ("checklist.waive", spec(), waived(None)),
    ("checklist.waive", spec(), waived(NEXT_YEAR)),
    ("checklist.waive", waived(NEXT_YEAR), waived(IN_TWO_YEARS)),
    ("checklist.waive", waived(NEXT_YEAR), waived(None)),
    ("checklist.severity", severity("fail"), severity("warn")),
    ("checklist.severity", severity("fail", "strict"), severity(None, "strict")),
    ("checklist.severity", severity(None, "strict"), severity("warn", "strict")),
    ("determinism.allow", spec(), spec(determinism=model.Determinism(allow=(CUDNN,)))),
    ("determinism.allow-nonfinite", spec(), spec(determinism=model.Determinism(allow_nonfinite=True))),
    ("determinism.repeat", spec(determinism=model.Determinism(repeat=5)), spec()),
    ("determinism.compare", spec(), within(0.0, 0.0)),
    ("determinism.compare", within(1e-6, 1e-5), within(1e-3, 1e-5)),
    ("determinism.compare", within(1e-6, 1e-5), within(1e-6, 1e-3)),
    ("robustness.vary", spec(), spec(robustness=model.Robustness(model.Robustness().vary[1:]))),
    ("train.steps", train(), train(steps=50)),
    ("train.steps", train(steps=50), train(steps=5)),
    ("random-state.seeds", spec(random_state=model.RandomState((1, 2))), spec()),
    ("capture.every", spec(), spec(capture=model.Capture(every=10))),
    ("capture.artifacts", spec(capture=model.Capture(artifacts=("a", "b"))), spec(capture=model.Capture(artifacts=("b",)))),
    ("cost.measure", spec(), spec(cost=model.CostBudget(measure=False))),
    ("cost.max-percent", spec(cost=model.CostBudget(max_percent=30)), spec(cost=model.CostBudget(max_percent=90))),
    ("cost.max-percent", spec(cost=model.CostBudget(max_percent=30)), spec()),
    ("cost.max-regression-percent", spec(cost=model.CostBudget(max_regression_percent=5)), spec()),
    ("env.lockfile", spec(env=model.Env(lockfile="uv.lock")), spec()),
    ("env.image", spec(env=model.Env(image=PINNED)), spec()),
    ("env.image", spec(env=model.Env(image=PINNED)), spec(env=model.Env(image="train:latest"))),
    ("env.image", spec(env=model.Env(image="train:latest")), spec()),
    ("hardware.device", spec(hardware=model.Hardware("cuda")), spec()),
    ("hardware.device", spec(hardware=model.Hardware("cpu")), spec()),
    ("hardware.device", spec(hardware=model.Hardware("cuda")), spec(hardware=model.Hardware("cpu"))),
    ("hardware.gpus", spec(hardware=model.Hardware(gpus=8)), spec()),
    ("hardware.gpu-model", spec(hardware=model.Hardware(gpu_model="H100")), spec()),
    ("data", data(sha256=A), data()),
    ("data", data(sha256=A), spec()),
    ("data", data(md5="c" * 32), spec()),
    ("data", data(size=10), data()),
]  # fmt: skip
# (key, one, another): found both ways
ANOTHER = [
    ("train.snippet", train(run=None, snippet="pass"), train(run=None, snippet="1")),
    ("train.run", train(), train(run="true")),
    ("train.working-directory", train(), train(working_directory="src")),
    ("train.env", train(), train(env={"FAST": "1"})),
    ("train.env", train(env={"FAST": "0"}), train(env={"FAST": "1"})),
    ("determinism.compare", within(1e-6, 1e-5), within(1e-9, 1.0)),
    ("capture.artifacts", spec(capture=model.Capture(artifacts=("a",))), spec(capture=model.Capture(artifacts=("b",)))),
    ("data", data(sha256=A), data(sha256=B)),
    ("data", data(sha256=A), data(md5="c" * 32)),
    ("env.lockfile", spec(env=model.Env("a.lock")), spec(env=model.Env("b.lock"))),
    ("hardware.gpus", spec(hardware=model.Hardware(gpus=8)), spec(hardware=model.Hardware(gpus=1))),
    ("hardware.gpu-model", spec(hardware=model.Hardware(gpu_model="H100")), spec(hardware=model.Hardware(gpu_model="B200"))),
]  # fmt: skip
# found neither way
SAME = [
    (spec(), spec(path=Path("/elsewhere/repro.yml"))),
    (spec(random_state=model.RandomState((1,))), spec(random_state=model.RandomState((2,)))),
    (train(warmup=5, timeout=60.0), train(warmup=10, timeout=600.0)),
    (spec(), spec(diagnosis=None)),
    (spec(env=model.Env(image=PINNED)), spec(env=model.Env(image=PINNED_TO_ANOTHER))),
    (spec(env=model.Env(image="a:1")), spec(env=model.Env(image="a:2"))),
    (waived(None), spec(checklist=model.Checklist(waive=(model.Waiver("env/lockfile", "better said"),)))),
    (data(sha256=A, size=10, md5="c" * 32), data(sha256=A)),
    (spec(capture=model.Capture(artifacts=("a", "b"))), spec(capture=model.Capture(artifacts=("b", "a")))),
    (spec(determinism=model.Determinism(allow=(CUDNN, FILL))), spec(determinism=model.Determinism(allow=(FILL, replace(CUDNN, reason="needed"))))),
]  # fmt: skip


def keys(base: Spec, head: Spec) -> set[str]:
    found = weakened(base, head, None, None)
    assert all(item.message and item.message.isprintable() for item in found)
    return {item.key for item in found}


@pytest.mark.parametrize(("key", "more", "less"), LESS)
def test_less_is_found_and_more_is_not(key: str, more: Spec, less: Spec) -> None:
    assert (keys(more, less), keys(less, more)) == ({key}, set())


@pytest.mark.parametrize(("key", "one", "other"), ANOTHER)
def test_what_has_no_direction_is_found_both_ways(key: str, one: Spec, other: Spec) -> None:
    assert keys(one, other) == {key} and keys(other, one) <= {key}


@pytest.mark.parametrize(("one", "other"), SAME)
def test_what_asks_for_the_same_is_not_found(one: Spec, other: Spec) -> None:
    assert keys(one, other) == keys(other, one) == set()


def test_of_two_waivers_of_one_check_the_first_counts() -> None:
    short, long = waived(NEXT_YEAR).checklist.waive, waived(None).checklist.waive
    both, swapped = (
        spec(checklist=model.Checklist(waive=item)) for item in (short + long, long + short)
    )
    assert keys(waived(NEXT_YEAR), both) == set()
    assert keys(waived(NEXT_YEAR), swapped) == {"checklist.waive"}


LONG = f"python -m torch.distributed.run {'x' * 90} --epochs 10 --lr "
HOSTILE = "a\n::error::forged\x1b[31m" + "x" * 500


@pytest.mark.parametrize(
    ("base", "head", "end"),
    [
        (train(env={"FAST": "0"}), train(env={"FAST": "1"}), "`FAST`: `0` -> `1`"),
        (train(run=LONG + "0.1"), train(run=LONG + "0.5"), "10 --lr 0.1` -> `… --epochs 10 --lr 0.5`"),
        (spec(), train(env={HOSTILE: HOSTILE}), "`"),
    ],
)  # fmt: skip
def test_a_message_has_the_name_and_both_values_on_one_line(
    base: Spec, head: Spec, end: str
) -> None:
    (found,) = weakened(base, head, None, None)
    assert found.message.endswith(end) and found.message.isprintable() and len(found.message) < 300


@pytest.mark.parametrize(("names", "entries"), [(19, 19), (20, 20), (21, 21), (2_000, 21)])
def test_a_flood_of_names_hides_nothing(names: int, entries: int) -> None:
    env = {f"NAME_{number:04}": "x" for number in range(names)}
    head = spec(
        train=model.Train(run="true", env=env),
        checklist=model.Checklist(waive=(model.Waiver("code/clean", "x"),)),
        capture=model.Capture(every=2),
    )
    found = [item.key for item in weakened(spec(policy="base"), head, None, None)]
    # who judges comes first
    assert list(dict.fromkeys(found)) == [
        "policy",
        "checklist.waive",
        "train.run",
        "train.env",
        "capture.every",
    ]
    assert found.count("train.env") == entries


MOVED = {**RECIPE, "code/train.py": "sha256:" + "9" * 64}


@pytest.mark.parametrize(
    ("head", "parts"),
    [
        (entry(RECIPE, CPU, outcome(bits="second")), "rewritten losses weights optimizer out/final.pt"),
        (entry(RECIPE, CPU, outcome(weights="sha256:" + "0" * 64)), "rewritten weights"),
        (entry(RECIPE, CPU, outcome(steps=5)), "rewritten steps"),
        (entry(RECIPE, CPU, outcome(optimizer=None)), "rewritten optimizer"),
        (entry(RECIPE, CPU, outcome(artifacts={})), "rewritten out/final.pt"),
        (entry(RECIPE, CPU, outcome(7)), "rewritten losses"),
        (entry(MOVED, CPU, outcome(bits="second")), "renewed losses"),
        (entry(RECIPE, GPU), "gone"),
        (None, "gone"),
    ],
)  # fmt: skip
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
        (baseline(entry()), baseline(structs.replace(entry(), recorded="2027-01-01T00:00:00Z", outside={}))),
        # more is recorded than before
        (baseline(entry(RECIPE, CPU, outcome(optimizer=None))), baseline(entry())),
        (baseline(entry(RECIPE, CPU, outcome(artifacts={}))), baseline(entry())),
        (baseline(entry()), baseline(entry(MOVED, CPU, outcome(), outcome(7)))),
    ],
)  # fmt: skip
def test_a_baseline_that_holds_the_same_bits_or_more_is_not_found(
    base: Baseline | None, head: Baseline | None
) -> None:
    assert weakened(spec(), spec(), base, head) == ()
