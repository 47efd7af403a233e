"""Claims about weakened checks: each thing that a change asks for less is named, and nothing that
is more or the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from msgspec import structs

from repro_gate.baseline.model import Baseline
from repro_gate.gate.weakened import weakened
from repro_gate.report.model import WeakenedCheck
from repro_gate.spec.loader import load_spec
from repro_gate.spec.model import DataItem, Spec
from tests.support.recorded import CPU, GPU, RECIPE, baseline, entry, outcome

A, B, MD5 = "a" * 64, "b" * 64, "c" * 32
IMAGE = "env: {image: ghcr.io/org/train@sha256:%s}"
CUDNN = "{flag: torch.backends.cudnn.deterministic, reason: faster}"
FILL = "{flag: torch.utils.deterministic.fill_uninitialized_memory, reason: slow}"


def spec(text: str | Spec = "", **env: str) -> Spec:
    """The spec of these lines; it trains by `python train.py` unless they say otherwise."""
    if isinstance(text, Spec):
        return text
    head = "version: 1\n" if "train: {" in text else "version: 1\ntrain: {run: python train.py}\n"
    found = load_spec(Path("/x/repro.yml"), committed=((head + text).encode(), "repro.yml"))
    return replace(found, train=replace(found.train, env=env)) if env else found


def train(more: str) -> str:
    return f"train: {{run: python train.py, {more}}}"


def data(**digests: object) -> Spec:
    return replace(spec(), data=(DataItem("data/train.bin", **digests),))  # type: ignore[arg-type]


def within(loss: float, weights: float) -> str:
    return f"determinism: {{compare: {{loss: {loss:.1e}, weights: {weights:.1e}}}}}"


def waived(*until: str, check: str = "env/lockfile") -> str:
    items = (f"{{check: {check}, reason: no time{end and f', until: {end}'}}}" for end in until)
    return f"checklist: {{waive: [{', '.join(items)}]}}"


def severity(profile: str, value: str = "") -> str:
    more = value and f", severity: {{data/batches: {value}}}"
    return f"checklist: {{profile: {profile}{more}}}"


DEPENDENT = "robustness: {on-dependence: %s}"
# (key, more, less): found one way, not the other
LESS = [
    ("baseline.on-change", "baseline: {on-change: fail}", ""),
    ("policy", "policy: base", ""),
    ("checklist.profile", severity("strict"), ""),
    ("checklist.waive", "", waived("")),
    ("checklist.waive", waived("2027-01-01"), waived("2028-01-01")),
    ("checklist.severity", severity("strict", "fail"), severity("strict")),
    ("checklist.severity", severity("strict"), severity("strict", "warn")),
    ("determinism.allow", "", f"determinism: {{allow: [{CUDNN}]}}"),
    ("determinism.allow-nonfinite", "", "determinism: {allow-nonfinite: true}"),
    ("determinism.repeat", "determinism: {repeat: 5}", ""),
    ("determinism.compare", "", within(1e-6, 1e-5)),
    ("determinism.compare", within(1e-6, 1e-5), within(1e-6, 1e-3)),
    ("robustness.vary", "", "robustness: {vary: [path]}"),
    ("robustness.on-dependence", DEPENDENT % "fail", ""),
    ("robustness.on-dependence", "", DEPENDENT % "warn"),
    ("train.steps", "", train("steps: 50")),
    ("random-state.seeds", "random-state: {seeds: [1, 2]}", "random-state: {seeds: [1]}"),
    ("capture.every", "", "capture: {every: 2}"),
    ("capture.artifacts", "capture: {artifacts: [a, b]}", "capture: {artifacts: [b]}"),
    ("cost.measure", "", "cost: {measure: false}"),
    ("cost.max-percent", "cost: {max-percent: 30}", "cost: {max-percent: 31}"),
    ("cost.max-regression-percent", "cost: {max-regression-percent: 5}", ""),
    ("env.lockfile", "env: {lockfile: uv.lock}", ""),
    ("env.image", IMAGE % A, "env: {image: train:latest}"),
    ("env.image", "env: {image: train:latest}", ""),
    ("hardware.device", "hardware: {device: cuda}", "hardware: {device: cpu}"),
    ("hardware.gpus", "hardware: {gpus: 8}", ""),
    ("hardware.gpu-model", "hardware: {gpu-model: H100}", ""),
    ("data", data(sha256=A), data()),
    ("data", data(md5=MD5), data()),
]
# (key, one, another): found both ways
ANOTHER = [
    ("train.run", "", 'train: {run: "true"}'),
    ("train.snippet", "train: {snippet: a}", "train: {snippet: b}"),
    ("train.working-directory", train("working-directory: a"), train("working-directory: b")),
    ("train.env", train("env: {FAST: 0}"), train("env: {FAST: 1}")),
    ("determinism.compare", within(1e-6, 1e-5), within(1e-9, 1.0)),
    ("capture.artifacts", "capture: {artifacts: [a]}", "capture: {artifacts: [b]}"),
    ("data", data(sha256=A), data(sha256=B)),
    ("data", data(sha256=A), data(md5=MD5)),
    ("env.lockfile", "env: {lockfile: a.lock}", "env: {lockfile: b.lock}"),
]
# found neither way
SAME = [
    ("random-state: {seed: 1}", "random-state: {seed: 2}"),
    (train("warmup: 5, timeout: 1m"), train("warmup: 10, timeout: 10m")),
    ("", "diagnosis: false"),
    (IMAGE % A, IMAGE % B),
    (data(sha256=A, md5=MD5), data(sha256=A)),
    ("capture: {artifacts: [a, b]}", "capture: {artifacts: [b, a]}"),
    (f"determinism: {{allow: [{CUDNN}, {FILL}]}}", f"determinism: {{allow: [{FILL}, {CUDNN}]}}"),
    # of two waivers of one check the first counts
    (waived("2027-01-01"), waived("2027-01-01", "")),
]


def compared(
    base: Spec, head: Spec, old: Baseline | None = None, new: Baseline | None = None
) -> tuple[WeakenedCheck, ...]:
    return weakened(base, head, old or {}, new or {}, lambda _: None)


def keys(base: str | Spec, head: str | Spec) -> set[str]:
    found = compared(spec(base), spec(head))
    assert all(item.message and item.message.isprintable() for item in found)
    return {item.key for item in found}


def test_less_is_found_and_what_has_no_direction_both_ways() -> None:
    for key, more, less in LESS:
        assert (keys(more, less), keys(less, more)) == ({key}, set())
    for key, one, other in (*ANOTHER, *(("", *pair) for pair in SAME)):
        assert keys(one, other) == keys(other, one) == ({key} if key else set())


LONG = f"train: {{run: python -m torch.distributed.run {'x' * 90} --epochs 10 --lr %s}}"
HOSTILE = "a\n::error::forged\x1b[31m" + "x" * 500


def test_a_message_has_the_name_and_both_values_and_a_flood_of_names_hides_nothing() -> None:
    for base, head, end in (
        (spec(FAST="0"), spec(FAST="1"), "`FAST`: `0` -> `1`"),
        (spec(LONG % 0.1), spec(LONG % 0.5), "10 --lr 0.1` -> `… --epochs 10 --lr 0.5`"),
        (spec(), spec(**{HOSTILE: HOSTILE}), "`"),
    ):
        [message] = [item.message for item in compared(base, head)]
        assert message.endswith(end) and message.isprintable() and len(message) < 300
    for names, entries in ((19, 19), (20, 20), (21, 21), (2_000, 21)):
        head = spec(
            f"{waived('', check='code/clean')}\ncapture: {{every: 2}}\ntrain: {{run: 'true'}}",
            **{f"NAME_{number:04}": "x" for number in range(names)},
        )
        found = [item.key for item in compared(spec("policy: base"), head)]
        # who judges comes first
        expected = ["policy", "checklist.waive", "train.run", "train.env", "capture.every"]
        assert list(dict.fromkeys(found)) == expected and found.count("train.env") == entries


MOVED = {**RECIPE, "code/train.py": "sha256:" + "9" * 64}


def test_an_entry_that_is_gone_or_rewritten_is_found_and_one_with_more_is_not() -> None:
    for head, parts in (
        (entry(RECIPE, CPU, outcome(bits="second")), "rewritten losses weights out/final.pt"),
        (entry(RECIPE, CPU, outcome(weights="sha256:" + "0" * 64)), "rewritten weights"),
        (entry(RECIPE, CPU, outcome(optimizer=None)), "rewritten optimizer"),
        (entry(RECIPE, CPU, outcome(artifacts={})), "rewritten out/final.pt"),
        (entry(MOVED, CPU, outcome(bits="second")), "renewed losses"),
        (entry(RECIPE, GPU), "removed"),
        (None, "removed"),
    ):
        new = None if head is None else baseline(head)
        (found,) = compared(spec(), spec(), baseline(entry()), new)
        assert (found.key, str(found.location)) == ("repro.baseline.yml", "repro.baseline.yml")
        assert all(part in found.message for part in [entry().platform[:19], *parts.split()])
    later = structs.replace(entry(), recorded="2027-01-01T00:00:00Z", outside={})
    for base, head in (
        (None, None),
        (None, baseline(entry())),
        (baseline(entry()), baseline(entry(), entry(RECIPE, GPU))),
        # a no-op recorded: another recipe, the same bits
        (baseline(entry()), baseline(entry(MOVED, CPU))),
        (baseline(entry()), baseline(later)),
        # more is recorded than before
        (baseline(entry(RECIPE, CPU, outcome(optimizer=None))), baseline(entry())),
        (baseline(entry()), baseline(entry(MOVED, CPU, outcome(), outcome(7)))),
    ):
        assert compared(spec(), spec(), base, head) == ()
