"""Claims about weakened checks: each thing that a change asks for less is named, and nothing that
is more or the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from repro_gate.baseline.model import Baseline, Entry
from repro_gate.gate.weakened import weakened
from repro_gate.report.model import WeakenedCheck
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

BASE = Spec(path=Path("/base/repro.yml"), train=Train(run="python train.py"))
A, B = "a" * 64, "b" * 64
DIGEST, OTHER_DIGEST = f"ghcr.io/org/train@sha256:{A}", f"ghcr.io/org/train@sha256:{B}"
CUDNN, FILL = (
    "torch.backends.cudnn.deterministic",
    "torch.utils.deterministic.fill_uninitialized_memory",
)


def spec(**sections: Any) -> Spec:
    return replace(BASE, path=Path("/head/repro.yml"), **sections)


def train(**fields: Any) -> dict[str, Any]:
    return {"train": Train(**{"run": "python train.py", **fields})}


def waivers(*items: Waiver) -> dict[str, Any]:
    return {"checklist": Checklist(waive=items)}


def severities(profile: str = "basic", **checks: str) -> dict[str, Any]:
    return {
        "checklist": Checklist(
            profile, severity={name.replace("_", "/"): worth for name, worth in checks.items()}
        )
    }


def data(**fields: Any) -> dict[str, Any]:
    return {"data": (DataItem("data/train.bin", **fields),)}


LESS = [
    (
        train(),
        train(steps=50),
        "train.steps",
        "fewer optimizer steps are run and compared: to the end -> 50",
    ),
    (train(steps=50), train(steps=5), "train.steps", "50 -> 5"),
    (
        {"random_state": RandomState((1, 2, 3))},
        {"random_state": RandomState((1,))},
        "random-state.seeds",
        "[1, 2, 3] -> [1]",
    ),
    (
        {},
        {"determinism": Determinism(allow=(AllowedFlag(CUDNN, "faster"),))},
        "determinism.allow",
        "now leaves off torch.backends.cudnn.deterministic: faster",
    ),
    (
        {"determinism": Determinism(repeat=5)},
        {},
        "determinism.repeat",
        "fewer deterministic runs are compared: 5 -> 2",
    ),
    (
        {"robustness": Robustness(stress=True)},
        {},
        "robustness.stress",
        "no run is stressed any more",
    ),
    (
        {},
        {"robustness": Robustness(())},
        "robustness.vary",
        "the second run is no longer varied in: path, home, tmpdir",
    ),
    (
        {"robustness": Robustness(("path", "home"))},
        {"robustness": Robustness(("home",))},
        "robustness.vary",
        "no longer varied in: path",
    ),
    (
        {},
        {"determinism": Determinism(allow_nonfinite=True)},
        "determinism.allow-nonfinite",
        "losses and parameters need no longer be finite",
    ),
    (
        {},
        {"determinism": Determinism(Tolerance(1e-6, 1e-5))},
        "determinism.compare",
        "bits need no longer be equal: bitwise -> losses within 1e-06, weights within 1e-05",
    ),
    (
        {"determinism": Determinism(Tolerance(1e-6, 1e-5))},
        {"determinism": Determinism(Tolerance(1e-3, 1e-5))},
        "determinism.compare.loss",
        "the tolerance was raised: 1e-06 -> 0.001",
    ),
    ({}, {"capture": Capture(every=10)}, "capture.every", "every step -> every 10 steps"),
    (
        {"capture": Capture(artifacts=("out/*.pt", "a"))},
        {"capture": Capture(artifacts=("a",))},
        "capture.artifacts",
        "`out/*.pt`",
    ),
    (
        {"capture": Capture(artifacts=("out/*.pt",))},
        {"capture": Capture(artifacts=("out/a*.pt",))},
        "capture.artifacts",
        "`out/*.pt`",
    ),
    ({}, {"cost": CostBudget(measure=False)}, "cost.measure", "no longer measured: true -> false"),
    (
        {"cost": CostBudget(max_percent=30)},
        {"cost": CostBudget(max_percent=90)},
        "cost.max-percent",
        "was raised: 30 % -> 90 %",
    ),
    ({"cost": CostBudget(max_percent=30)}, {}, "cost.max-percent", "is gone: 30 % -> none"),
    (data(), {}, "data", "`data/train.bin` is no longer declared"),
    (
        data(sha256=A),
        data(),
        "data.sha256",
        "the sha256 of `data/train.bin` is gone: aaaaaaaaaaaa -> none",
    ),
    (data(sha256=A), data(md5="c" * 32), "data.sha256", "is gone"),
    (data(md5="c" * 32), data(), "data.md5", "the md5 of `data/train.bin` is gone"),
    (data(size=10), data(), "data.size", "10 -> none"),
    ({"env": Env(lockfile="uv.lock")}, {}, "env.lockfile", "`uv.lock` -> none"),
    ({"env": Env(image=DIGEST)}, {}, "env.image", "no container image is required any more"),
    (
        {"env": Env(image=DIGEST)},
        {"env": Env(image="ghcr.io/org/train:latest")},
        "env.image",
        "no longer pinned by its digest",
    ),
    ({"hardware": Hardware("cuda")}, {}, "hardware.device", "cuda -> any"),
    ({"hardware": Hardware("cpu")}, {}, "hardware.device", "cpu -> any"),
    (
        {"hardware": Hardware("cuda", 8)},
        {"hardware": Hardware("cuda")},
        "hardware.gpus",
        "8 -> any",
    ),
    ({"hardware": Hardware(gpu_model="H100")}, {}, "hardware.gpu-model", "`H100` -> any"),
    (
        {"hardware": Hardware(gpu_model="H100 PCIe")},
        {"hardware": Hardware(gpu_model="h100")},
        "hardware.gpu-model",
        "more GPU models",
    ),
    (severities("strict"), severities("basic"), "checklist.profile", "strict -> basic"),
    (
        {},
        waivers(Waiver("env/lockfile", "no time")),
        "checklist.waive",
        "env/lockfile is waived without an end: no time",
    ),
    (
        {},
        waivers(Waiver("env/lockfile", "no time", date(2027, 6, 30))),
        "checklist.waive",
        "env/lockfile is waived until 2027-06-30: no time",
    ),
    (
        waivers(Waiver("env/lockfile", "x", date(2027, 1, 1))),
        waivers(Waiver("env/lockfile", "x", date(2028, 1, 1))),
        "checklist.waive",
        "lasts longer: until 2027-01-01 -> 2028-01-01",
    ),
    (
        waivers(Waiver("env/lockfile", "x", date(2027, 1, 1))),
        waivers(Waiver("env/lockfile", "x")),
        "checklist.waive",
        "until 2027-01-01 -> without an end",
    ),
    (
        severities(data_batches="fail"),
        severities(data_batches="warn"),
        "checklist.severity.data/batches",
        "fail -> warn",
    ),
    (
        severities(data_batches="fail"),
        severities(),
        "checklist.severity.data/batches",
        "fail -> as its profile says",
    ),
    (
        severities("strict", data_batches="fail"),
        severities("strict"),
        "checklist.severity.data/batches",
        "has a lower severity",
    ),
    (
        severities("strict"),
        severities("strict", data_batches="warn"),
        "checklist.severity.data/batches",
        "as its profile says -> warn",
    ),
    (
        severities(),
        severities(data_batches="warn"),
        "checklist.severity.data/batches",
        "has a lower severity",
    ),
    ({"baseline": BaselineRule("fail")}, {}, "baseline.on-change", "fail -> notice"),
    ({"policy": "base"}, {}, "policy", "base -> head"),
]
MIXED = [  # without a direction, or less in one thing and more in another
    (train(), train(run="true"), "train.run", "what is run changed: `python train.py` -> `true`"),
    (
        train(),
        {"train": Train(snippet="pass\n")},
        "train.snippet",
        r"`python train.py` -> `pass\n`",
    ),
    (train(), train(working_directory="src"), "train.working-directory", "`.` -> `src`"),
    (train(), train(env={"FAST": "1"}), "train.env.FAST", "none -> `1`"),
    (train(env={"FAST": "1"}), train(), "train.env.FAST", "`1` -> none"),
    (train(env={"FAST": "0"}), train(env={"FAST": "1"}), "train.env.FAST", "`0` -> `1`"),
    (
        {"determinism": Determinism(Tolerance(1e-6, 1e-5))},
        {"determinism": Determinism(Tolerance(1e-9, 1.0))},
        "determinism.compare.weights",
        "1e-05 -> 1",
    ),
    (
        {"capture": Capture(artifacts=("out/.x*",))},
        {"capture": Capture(artifacts=("out/*",))},
        "capture.artifacts",
        "`out/.x*`",
    ),
    (
        {"capture": Capture(artifacts=("out/*.pt",))},
        {"capture": Capture(artifacts=("out/?.pt",))},
        "capture.artifacts",
        "`out/*.pt`",
    ),
    (
        data(sha256=A),
        data(sha256=B),
        "data.sha256",
        "changed, so it stands for other bytes: aaaaaaaaaaaa -> bbbbbbbbbbbb",
    ),
    (data(md5="c" * 32), data(md5="d" * 32), "data.md5", "changed"),
    (
        {"hardware": Hardware("cuda")},
        {"hardware": Hardware("cpu")},
        "hardware.device",
        "cuda -> cpu",
    ),
]
NEUTRAL = [
    ({"random_state": RandomState((1,))}, {"random_state": RandomState((2,))}),
    (train(warmup=5), train(warmup=10)),
    ({}, {"diagnosis": None}),
    (train(timeout=60.0), train(timeout=600.0)),
    (train(working_directory="."), train(working_directory="./")),
    ({"env": Env(image=DIGEST)}, {"env": Env(image=OTHER_DIGEST)}),
    ({"env": Env(image="a:1")}, {"env": Env(image="a:2")}),
    ({"hardware": Hardware(gpu_model="H100")}, {"hardware": Hardware(gpu_model="B200")}),
    ({"hardware": Hardware("cpu")}, {"hardware": Hardware("cuda")}),
    (waivers(Waiver("env/lockfile", "x")), waivers(Waiver("env/lockfile", "better said"))),
    (data(md5="c" * 32), data(sha256=A)),
    (data(sha256=A, size=10), data(sha256=A)),
    (data(sha256=A), {"data": (DataItem("./data/train.bin", A),)}),
    ({"capture": Capture(artifacts=("a", "b"))}, {"capture": Capture(artifacts=("b", "a"))}),
    ({"capture": Capture(artifacts=("out/*.pt",))}, {"capture": Capture(artifacts=("out/*",))}),
    (
        severities("strict", data_batches="fail"),
        severities("strict", data_batches="fail", code_clean="fail"),
    ),
    (
        {"determinism": Determinism(allow=(AllowedFlag(CUDNN, "a"), AllowedFlag(FILL, "b")))},
        {"determinism": Determinism(allow=(AllowedFlag(FILL, "c"), AllowedFlag(CUDNN, "d")))},
    ),
]


@pytest.mark.parametrize(("before", "after", "key", "message"), LESS + MIXED)
def test_less_is_named_with_its_key_and_both_values(
    before: Mapping[str, Any], after: Mapping[str, Any], key: str, message: str
) -> None:
    found = weakened(spec(**before), spec(**after), None, None)
    assert [item.key for item in found] == [key]
    assert message in found[0].message and "\n" not in found[0].message


@pytest.mark.parametrize(("before", "after"), [item[:2] for item in LESS])
def test_the_same_step_backwards_asks_for_more_and_is_not_listed(
    before: Mapping[str, Any], after: Mapping[str, Any]
) -> None:
    assert weakened(spec(**after), spec(**before), None, None) == ()


@pytest.mark.parametrize(("before", "after"), NEUTRAL)
def test_what_asks_for_no_less_is_not_listed(
    before: Mapping[str, Any], after: Mapping[str, Any]
) -> None:
    assert weakened(spec(**before), spec(**after), None, None) == ()


def test_who_judges_and_how_strictly_comes_first() -> None:
    head = spec(
        policy="head",
        capture=Capture(every=2),
        **train(run="true"),
        checklist=Checklist(waive=(Waiver("code/clean", "x"),)),
    )
    found = weakened(replace(BASE, policy="base"), head, None, None)
    assert [item.key for item in found] == [
        "policy",
        "checklist.waive",
        "train.run",
        "capture.every",
    ]


def test_a_flood_of_variables_hides_nothing() -> None:
    head = spec(
        **train(env={f"NAME_{number:04}": "x" for number in range(2_000)}),
        checklist=Checklist("basic"),
    )
    found = weakened(spec(checklist=Checklist("strict")), head, None, None)
    assert found[0].key == "checklist.profile" and len(found) == 7
    assert "1995 more variables" in found[-1].message


def test_another_lockfile_is_listed() -> None:
    found = weakened(spec(env=Env("a.lock")), spec(env=Env("b.lock")), None, None)
    assert [(item.key, item.message) for item in found] == [
        ("env.lockfile", "another lockfile is required: `a.lock` -> `b.lock`")
    ]
    assert weakened(spec(env=Env("a.lock")), spec(env=Env("./a.lock")), None, None) == ()


def test_of_two_waivers_of_one_check_the_first_counts() -> None:
    short, long = Waiver("code/clean", "x", date(2027, 1, 1)), Waiver("code/clean", "x")
    assert weakened(spec(**waivers(short)), spec(**waivers(short, long)), None, None) == ()
    assert len(weakened(spec(**waivers(short)), spec(**waivers(long, short)), None, None)) == 1


def test_a_rechanged_item_does_not_hide_behind_another() -> None:
    before = {"data": (DataItem("a", A), DataItem("b", B))}
    after = {"data": (DataItem("c"), DataItem("a"))}
    found = weakened(spec(**before), spec(**after), None, None)
    assert [(item.key, item.message[:30]) for item in found] == [
        ("data.sha256", "the sha256 of `a` is gone: aaa"),
        ("data", "`b` is no longer declared, so "),
    ]


def test_places_are_those_of_the_changes_own_spec() -> None:
    asked: list[tuple[str | int, ...]] = []

    def place_of(path: tuple[str | int, ...]) -> str:
        asked.append(path)
        return f"repro.yml:{len(asked)}"

    allow = (AllowedFlag(FILL, "x"), AllowedFlag(CUDNN, "faster"))
    head = spec(determinism=Determinism(allow=allow), data=(DataItem("new"), DataItem("old")))
    base = spec(determinism=Determinism(allow=allow[:1]), data=(DataItem("old", A),))
    found = weakened(base, head, None, None, place_of)
    assert [item.where for item in found] == ["repro.yml:1", "repro.yml:2"]
    assert asked == [("determinism", "allow", 1), ("data", 1, "sha256")]


def test_an_item_that_a_dvc_file_stands_for_is_named_there() -> None:
    found = weakened(
        spec(**data(md5="c" * 32)),
        spec(**data(md5="d" * 32, source="data/train.bin.dvc:3")),
        None,
        None,
        lambda path: "repro.yml:1",
    )
    assert [item.where for item in found] == ["data/train.bin.dvc:3"]


def test_a_change_late_in_a_long_command_is_seen() -> None:
    command = (
        "python -m torch.distributed.run --nproc-per-node 8 train.py --config configs/large.yaml "
        "--epochs 10 --lr "
    )
    (found,) = weakened(
        spec(**train(run=command + "0.1")), spec(**train(run=command + "0.5")), None, None
    )
    assert (
        found.message == "what is run changed: `… --epochs 10 --lr 0.1` -> `… --epochs 10 --lr 0.5`"
    )


def test_text_of_a_change_stays_on_one_line() -> None:
    reason = "because\n::error::forged\x1b[31m" + "x" * 500
    (found,) = weakened(
        BASE, spec(determinism=Determinism(allow=(AllowedFlag(CUDNN, reason),))), None, None
    )
    assert "\n" not in found.message and "\x1b" not in found.message and len(found.message) < 200


# The baseline


def held(base: Baseline | None, head: Baseline | None) -> tuple[WeakenedCheck, ...]:
    found = weakened(BASE, BASE, base, head)
    assert all(
        (item.key, item.where) == ("repro.baseline.yml", "repro.baseline.yml") for item in found
    )
    return found


MOVED = {**RECIPE, "code/train.py": "sha256:" + "9" * 64}
SHORT = entry().platform[:19]


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (
            entry(RECIPE, CPU, outcome(bits="second")),
            (
                "now records other results on platform {0}: losses, weights, optimizer, artifact "
                "out/final.pt"
            ),
        ),
        (
            entry(RECIPE, CPU, outcome(weights="sha256:" + "0" * 64)),
            "rewritten: the same config hash sha256:",
        ),
        (entry(RECIPE, CPU, outcome(steps=5)), "other results on platform {0}: steps"),
        (entry(RECIPE, CPU, outcome(optimizer=None)), "other results on platform {0}: optimizer"),
        (
            entry(RECIPE, CPU, outcome(artifacts={})),
            "other results on platform {0}: artifact out/final.pt",
        ),
        (entry(RECIPE, CPU, outcome(7)), "other results on platform {0}: seed 42"),
        (
            entry(MOVED, CPU, outcome(bits="second")),
            "renewed: inputs changed and other results are recorded on platform {0}: losses",
        ),
    ],
)
def test_an_entry_that_was_rewritten_or_renewed_is_listed(head: Entry, message: str) -> None:
    (found,) = held(baseline(entry()), baseline(head))
    assert message.format(SHORT) in found.message
    assert found.message.startswith("renewed" if head.recipe != entry().recipe else "rewritten")


def test_a_baseline_and_an_entry_that_are_gone_are_listed() -> None:
    both = baseline(entry(), entry(RECIPE, GPU))
    assert [item.message for item in held(both, None)] == [
        "the baseline is gone, with what it recorded for 2 platforms"
    ]
    assert [item.message for item in held(baseline(entry()), None)] == [
        "the baseline is gone, with what it recorded for 1 platform"
    ]
    gone = held(both, baseline(entry(RECIPE, GPU)))
    assert [item.message for item in gone] == [
        f"the entry of platform {SHORT} is gone, recorded 2026-08-01T12:00:00Z"
    ]


@pytest.mark.parametrize(
    ("base", "head"),
    [
        (None, None),
        (None, baseline(entry())),
        (baseline(), baseline(entry())),
        (baseline(entry()), baseline(entry(), entry(RECIPE, GPU))),
        # a no-op recorded: another recipe, the same bits
        (
            baseline(entry()),
            baseline(entry(MOVED, CPU)),
        ),
        (
            baseline(entry()),
            baseline(
                structs.replace(
                    entry(), recorded="2027-01-01T00:00:00Z", tool_version="9", outside={}
                )
            ),
        ),
        # more is recorded than before
        (
            baseline(entry(RECIPE, CPU, outcome(optimizer=None))),
            baseline(entry()),
        ),
        (baseline(entry(RECIPE, CPU, outcome(artifacts={}))), baseline(entry())),
        (baseline(entry()), baseline(entry(MOVED, CPU, outcome(), outcome(7)))),
    ],
)
def test_a_baseline_that_holds_the_same_bits_or_more_is_no_weakening(
    base: Baseline | None, head: Baseline | None
) -> None:
    assert held(base, head) == ()


# For any spec

WORDS = st.sampled_from(
    ["a", "b", "out/*.pt", "data/x", "python train.py", "true", "a" * 200 + "x"]
)
DAYS = st.dates(date(2027, 1, 1), date(2027, 1, 5))
SMALL = st.floats(0, 1, allow_nan=False)
CHECKS = st.sampled_from(["code/clean", "data/batches", "env/lockfile"])
SPECS = st.builds(
    Spec,
    path=st.just(Path("/x/repro.yml")),
    train=st.one_of(
        st.builds(
            Train,
            run=WORDS,
            steps=st.none() | st.integers(1, 3),
            env=st.dictionaries(st.sampled_from("AB"), WORDS),
        ),
        st.builds(Train, snippet=WORDS, working_directory=WORDS, warmup=st.integers(0, 3)),
    ),
    random_state=st.builds(
        RandomState, st.lists(st.integers(0, 4), min_size=1, max_size=3, unique=True).map(tuple)
    ),
    determinism=st.builds(
        Determinism,
        st.none() | st.builds(Tolerance, SMALL, SMALL),
        st.lists(
            st.builds(AllowedFlag, st.sampled_from([CUDNN, FILL]), WORDS),
            max_size=2,
            unique_by=lambda item: item.flag,
        ).map(tuple),
    ),
    capture=st.builds(Capture, st.integers(1, 3), st.lists(WORDS, max_size=2).map(tuple)),
    cost=st.builds(CostBudget, st.booleans(), st.none() | st.floats(0, 3)),
    data=st.lists(
        st.builds(
            DataItem,
            st.sampled_from("ab"),
            st.none() | st.sampled_from([A, B]),
            st.none() | st.just("c" * 32),
            st.none() | st.just(1),
        ),
        max_size=2,
        unique_by=lambda item: item.path,
    ).map(tuple),
    env=st.builds(
        Env, st.none() | WORDS, st.none() | st.sampled_from([DIGEST, OTHER_DIGEST, "a:1"])
    ),
    hardware=st.builds(
        Hardware,
        st.sampled_from([None, "cuda", "cpu"]),
        st.none() | st.integers(1, 3),
        st.none() | st.sampled_from(["H100", "H"]),
    ),
    checklist=st.builds(
        Checklist,
        st.sampled_from(["basic", "strict"]),
        st.lists(st.builds(Waiver, CHECKS, WORDS, st.none() | DAYS), max_size=3).map(tuple),
        st.dictionaries(CHECKS, st.sampled_from(["warn", "fail"])),
    ),
    baseline=st.builds(BaselineRule, st.sampled_from(["notice", "fail"])),
    policy=st.sampled_from(["head", "base"]),
)
LOCKS = st.none() | st.lists(
    st.builds(
        entry,
        st.sampled_from([RECIPE, MOVED]),
        st.sampled_from([CPU, GPU]),
        st.builds(outcome, st.integers(1, 2), st.sampled_from(["first", "second"])),
    ),
    max_size=2,
).map(lambda entries: baseline(*entries))


def at(item: Spec, key: str) -> object:
    """What the spec holds under a dotted key of a weakening."""
    section, _, rest = key.partition(".")
    value = getattr(item, section.replace("-", "_"))
    if section in ("data", "policy") or not rest:
        return value
    name, _, inner = rest.partition(".")
    if name == "compare":
        return value.tolerance
    if name == "severity":
        return value.severity.get(inner)
    if name == "env":
        return value.env.get(inner)
    return (
        (value.run, value.snippet)
        if name in ("run", "snippet")
        else getattr(value, name.replace("-", "_"))
    )


@settings(deadline=None, max_examples=150)
@given(SPECS, LOCKS)
def test_nothing_is_less_than_itself(item: Spec, record: Baseline | None) -> None:
    assert weakened(item, replace(item, path=Path("/elsewhere/repro.yml")), record, record) == ()


@settings(deadline=None, max_examples=300)
@given(SPECS, SPECS, LOCKS, LOCKS)
def test_every_key_that_is_listed_differs(
    base: Spec, head: Spec, before: Baseline | None, after: Baseline | None
) -> None:
    for item in weakened(base, head, before, after):
        if item.key == "repro.baseline.yml":
            assert before != after
        else:
            assert at(base, item.key) != at(head, item.key), item
        assert item.message and "\n" not in item.message


@settings(deadline=None, max_examples=150)
@given(SPECS, SPECS)
def test_what_is_less_one_way_is_not_less_the_other_way_too(base: Spec, head: Spec) -> None:
    directed = (
        "train.steps",
        "random-state.seeds",
        "determinism.compare",
        "capture.every",
        "cost",
        "env.image",
        "checklist.profile",
        "baseline",
        "policy",
    )
    there, back = (
        {item.key for item in weakened(*pair, None, None) if item.key.startswith(directed)}
        for pair in ((base, head), (head, base))
    )
    assert not there & back
