"""Reports that the tests of every renderer share: a pass, a fail, an inconclusive one, one within a
tolerance, one with nothing measured, each answer of the baseline, another ref and a base that is
weakened, and the worst that an untrusted checkout could make of one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from msgspec import structs

from repro_gate._version import DOCS_URL
from repro_gate.baseline.config_hash import ChangedInput, ConfigHash, RootInputs
from repro_gate.baseline.model import AgainstFinding, BaselineFinding
from repro_gate.checks.interface import CheckResult, EvidenceLine
from repro_gate.compare.model import (
    Comparison,
    Cost,
    Divergence,
    Estimate,
    GpuState,
    HeatMap,
    HeatRow,
    Leg,
    NoiseFloor,
    NotRestored,
    Resumption,
    Tally,
)
from repro_gate.diagnosis.model import Diagnosis, Rate, ShownOperator, ShownUse
from repro_gate.report.document import render
from repro_gate.report.findings import remedy_of
from repro_gate.report.model import (
    SCHEMA_ID,
    BaseFinding,
    Determinism,
    Reason,
    Report,
    RunSummary,
    Subject,
    WeakenedCheck,
    determinism,
)
from repro_gate.trace.fields import Location

HOSTILE = (
    "<img src=x onerror=alert(1)></details></code>`|@octocat #1 GH-2 https://evil.example "
    "www.evil.example :tada: [a](b) ![c](d) $x$\n"
    "~~s~~\n::error "
    "file=a::b\r\n##[add-mask]c\x1b[31m\x1b]0;title\x07\u202eevil\u2066\u200b\u061c %0A%25 "
    "deadbeefdeadbeef\n"
    "```\n# heading\n| a | b |\n"
)


def attacks(name: str) -> tuple[str, ...]:
    """Texts with a name in them that must not become live: Markdown, elements, a template's."""
    return (
        name + HOSTILE,
        f"\"'><svg onload=1>{name}</title></style></pre>",
        "{{ 7*7 }}{% raw %}" + name,
    )


SUBJECT = Subject(
    spec="repro.yml",
    command="python train.py --seed {seed}",
    commit="0123456789abcdef0123456789abcdef01234567",
    uncommitted=("train.py",),
    seeds=(42,),
    versions={"python": "3.12.7", "torch": "2.13.0", "device": "cpu"},
)
SETTINGS = {
    "torch.use_deterministic_algorithms": True,
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    "cudnn.benchmark": False,
}
_STEPS = {"deterministic_step_ms": 9.34, "default_step_ms": 8.31, "timed_steps": 90}
_PEAKS = {"deterministic_peak_bytes": 520_093_696, "default_peak_bytes": 512_400_000}
_MORE = {**_STEPS, **_PEAKS, "memory_cost_pct": 1.5, "max_percent": 30.0}
_FILL = Estimate(
    cost_pct=9.8, ci95=(7.2, 12.4), flag="torch.utils.deterministic.fill_uninitialized_memory"
)
COST = Cost(
    determinism_cost_pct=12.4,
    ci95=(10.1, 14.6),
    flags=(_FILL,),
    other=Estimate(cost_pct=11.0, ci95=(4.2, 18.3)),
    **_MORE,
)
_ARMS = ("deterministic", "default")


def gpu_state(run: str, **changes: Any) -> GpuState:
    """A GPU after a run, at its full clock."""
    state = {"run": run, "arm": run[:-2], "when": "after", "gpu": "GPU-1", "slowed": ()}
    figures = {"sm_mhz": 1980.0, "memory_mhz": 2619.0, "celsius": 60.0, "watts": 500.0}
    return GpuState(**{**state, **figures, **changes})


_WHOLE = {"flags": (), "other": None, "why": "fewer than 12 steps for each arm"}
_WHERE = {"step": 3, "kind": "gradient", "name": "blocks.3.attn.weight"}
_FAR = {"max_abs": 1.2e-7, "max_ulp": 3, "l2": 3.4e-6, "relative_l2": 1.1e-9}
FIRST = Divergence(dtype="float32", shape=(64, 32), **_WHERE, **_FAR)
NOISE = NoiseFloor(
    identical=False,
    loss_gap=3.1e-5,
    weight_l2=2.4e-3,
    weight_relative_l2=1.8e-5,
    first_step=3,
    first_divergence=Divergence(**_WHERE),
)
_LAST = replace(FIRST, step=49, kind="parameter")
_BIAS = replace(_LAST, name="head.bias", shape=(10,), l2=None, relative_l2=None)
WEIGHTS = (
    replace(_LAST, max_abs=4.5e-4, max_ulp=81_234, l2=2.4e-3, relative_l2=1.8e-5),
    replace(_BIAS, max_abs=2.2e-5, max_ulp=912),
)
_SAME_KINDS = {"loss": Tally(1, 0), "gradient": Tally(20, 0)}
_SAME_LOSSES = tuple((step, 2.0 / (step + 1), 2.0 / (step + 1)) for step in range(50))
_TOTALS = {"identical": True, "steps": 50, "tensors": 202, "differing": 0}
SAME = Comparison(**_TOTALS, by_kind=_SAME_KINDS, losses=_SAME_LOSSES)
_KINDS = {"loss": (1, 1), "gradient": (20, 5), "parameter": (20, 8), "rng": (3, 0)}
DIFFERENT = Comparison(
    **_TOTALS | {"identical": False, "differing": 14},
    first_divergence=FIRST,
    by_kind={kind: Tally(*counts) for kind, counts in _KINDS.items()},
    by_step=tuple((step, min(step, 14)) for step in range(3, 50)),
    differing_steps=47,
    losses=tuple((step, 1.0, 1.0 if step < 4 else 1.0 + 1e-9 * 1.3**step) for step in range(50)),
    weights=WEIGHTS,
)


def check(
    name: str,
    status: str = "fail",
    message: str = "x",
    evidence: tuple[str | EvidenceLine, ...] = (),
    remedy: str = "",
) -> CheckResult:
    seen = tuple(EvidenceLine(item) if isinstance(item, str) else item for item in evidence)
    said = {"id": name, "status": status, "message": message, "remedy": remedy}
    return CheckResult(**said, category=name.partition("/")[0], evidence=seen)


_TREE = ("code/committed", "warn", "train.py has uncommitted changes", ("train.py",))
CHECKLIST = (
    check(*_TREE, "commit them, then run again"),
    check("data/checksums", "pass", "1 of 1 files have the declared SHA-256"),
    check("env/lockfile", "pass", "requirements.lock pins 41 packages"),
    check("env/image-digest", "waived", "waived until 2027-06-30: bare-metal runner"),
    check("random-state/seed-matters", "pass", "another seed gives other losses"),
    check("hardware/device", "pass", "trained on cpu, as declared"),
)


def run(name: str, **changes: object) -> RunSummary:
    """One run that was stopped at its fiftieth step."""
    arm = name.rpartition("-")[0] or name
    took = {"seconds": 12.3, "step_seconds": 5.2, "probe_seconds": 0.1}
    ended = {"steps": 50, "exit_code": 0, "outcome": "stopped", **took}
    given = {"name": name, "arm": arm, "seed": 42, "settings": SETTINGS, **ended}
    return RunSummary(**{**given, **changes})


RUNS = (
    run("deterministic-1"),
    run("default-1", seconds=10.9),
    run("default-2", seconds=11.2),
    run("deterministic-2", seconds=12.1),
    run("reseeded", seed=43, steps=2, seconds=3.4),
)


def compared(*pairs: Comparison, failed: int = 0, **measured: object) -> Determinism | None:
    """What runs with seed 42, or with the seeds 1, 2, …, were compared in."""
    seeds = (42,) if len(pairs) == 1 else range(1, len(pairs) + 1)
    results = [
        Determinism(**vars(pair), seed=seed, failed=failed)
        for seed, pair in zip(seeds, pairs, strict=True)
    ]
    return determinism(results, **{"determinism_settings": SETTINGS, **measured})


NOTHING = Report(
    schema=SCHEMA_ID,
    verdict="inconclusive",
    tool_version="0.1.0",
    started="2026-11-21T05:42:00Z",
    seconds=0.1,
    subject=Subject(spec="repro.yml", command="true", commit=None),
)
PASS = replace(
    NOTHING,
    verdict="pass",
    seconds=64.2,
    subject=SUBJECT,
    determinism=compared(SAME),
    noise_floor=NOISE,
    cost=COST,
    checklist=CHECKLIST,
    runs=RUNS,
    reproduce="repro-gate run repro.yml --seed 42 --steps 50",
    notes=(Reason("workspace/uncommitted", "the run includes 1 uncommitted change: train.py"),),
)
_DATA = ("data/checksums", "fail", "data/train.bin is not the declared file", ("data/train.bin",))
_WRONG = check(*_DATA, "write the new SHA-256 into repro.yml")
FAIL = replace(
    PASS,
    verdict="fail",
    determinism=compared(DIFFERENT),
    notes=(),
    reasons=(
        Reason(
            "determinism/diverged",
            "Two runs with seed 42 and all determinism flags on diverge at step 3 (gradient of "
            "blocks.3.attn.weight).",
            "See what feeds blocks.3.attn.weight: an unseeded generator, a custom kernel or the "
            "clock.",
        ),
        Reason(
            "determinism/flag-undone",
            "train.py:17 sets `torch.backends.cudnn.benchmark` to True.",
            "Remove line 17 of train.py.",
            (Location("train.py", 17),),
        ),
    ),
    checklist=(CHECKLIST[0], _WRONG, *CHECKLIST[2:]),
)
_CLOCK = {"cause": "wall-clock", "factor": "clock", "call": "time.time()"}
_ALSO = Diagnosis(**_CLOCK, file="src/model.py", line=7, confirmed=True, message="read it")
WHY = Diagnosis(
    cause="unseeded-rng",
    factor="entropy",
    call="torch.Generator().seed()",
    file="src/train.py",
    line=41,
    confirmed=True,
    message="`torch.Generator().seed()` in src/train.py:41 drew from the operating system",
    evidence=(
        "torch.Generator.seed gave other answers in the two runs, in step 0 first",
        "confirmed: with that draw held fixed, two runs are bitwise identical up to step 3",
    ),
    remedy="give the generator a seed of its own: `generator.manual_seed(seed)`",
    ruled_out=("418 operators of step 3 agree",),
    also=(_ALSO,),
    rate=Rate(3, 8),
    runs=8,
    seconds=31.5,
)
EXPLAINED = replace(
    FAIL,
    diagnosis=WHY,
    reasons=(replace(FAIL.reasons[0], remedy=remedy_of(WHY)), *FAIL.reasons[1:]),
)
_AT = '  File "train.py", line 41, in <module>'
_LOG = ("Traceback (most recent call last):", _AT, "ValueError: boom")
_CRASHED = Reason(
    "run/crashed",
    "deterministic-1 crashed at step 3 with exit code 1.",
    "Mend the training command; its log is below.",
)
INCONCLUSIVE = replace(
    NOTHING,
    seconds=64.2,
    subject=SUBJECT,
    reproduce=PASS.reproduce,
    reasons=(_CRASHED,),
    runs=(run("deterministic-1", steps=3, exit_code=1, outcome="crashed", log_tail=_LOG),),
)
TOLERATED = replace(
    PASS,
    determinism=compared(DIFFERENT),
    notes=(Reason("determinism/tolerance", "losses within 1e-06"),),
)
_SUSPECT = "-72 % lies outside -50 % to +300 %"
_NO_NOISE = {"loss_gap": 0.0, "weight_l2": 0.0, "weight_relative_l2": 0.0}
FASTER = replace(
    PASS,
    cost=replace(
        COST, determinism_cost_pct=-72.0, ci95=(-75.0, -70.0), suspicious=_SUSPECT, **_WHOLE
    ),
    noise_floor=NoiseFloor(identical=True, first_step=None, **_NO_NOISE),
    determinism=compared(SAME, SAME, non_finite=((7, "nan"), (8, "inf"))),
)
_CODE, _BIN = "sha256:" + "5e" * 32, "sha256:" + "6f" * 32
ADDRESS = ConfigHash(
    config_hash="sha256:" + "ab12cd34" * 8,
    recipe="sha256:" + "01234567" * 8,
    platform="sha256:" + "89abcdef" * 8,
    inputs=RootInputs(
        recipe={
            "code/tree": _CODE,
            "data/train.bin": _BIN,
            "seed": 42,
            "steps": None,
            "determinism/compare": {"loss": 1.0, "weights": 1e-05},
            "flags/cudnn.benchmark": False,
            "command": ["python", "train.py", "--seed", "{seed}"],
        },
        platform={"cpu/model": "EPYC 9R14", "cpu/threads": 2, "torch": "2.13.0"},
    ),
)


def address(**inputs: Mapping[str, Any]) -> ConfigHash:
    """Return `ADDRESS` with other inputs of the roots that are named."""
    return structs.replace(ADDRESS, inputs=structs.replace(ADDRESS.inputs, **inputs))


MOVES = (
    ChangedInput("recipe", "code/tree", _CODE, "sha256:" + "7a" * 32),
    ChangedInput("recipe", "data/extra.bin", None, _BIN),
    ChangedInput("recipe", "data/old.bin", _BIN, None),
    ChangedInput("platform", "cpu/threads", "2", "4"),
)
COMMIT = "89abcdef0123456789abcdef0123456789abcdef"
_RECORDED = {"recorded": "2026-11-01T09:00:00Z"}
_SAME_AGAIN = "same inputs, bitwise identical results"
LOCKED = replace(
    PASS,
    notes=(),
    config_hash=ADDRESS,
    baseline=BaselineFinding(status="unchanged", message=_SAME_AGAIN, **_RECORDED),
    base=BaseFinding("origin/main", COMMIT, "base"),
)
_OTHER_RESULTS = (
    "same inputs, different results: losses, weights, artifact out/model.pt, losses up to "
    "3.1e-05 apart; numpy, kernel changed outside the hashed inputs"
)
DRIFT = replace(
    LOCKED,
    verdict="fail",
    reasons=(Reason("baseline/drift", _OTHER_RESULTS, "See what changed outside the inputs."),),
    baseline=BaselineFinding(
        status="drift",
        message=_OTHER_RESULTS,
        unlike=("losses", "weights", "artifact out/model.pt"),
        loss_gap=3.1e-5,
        outside=("numpy: 2.1.0 -> 2.2.0", "kernel: 6.1.0 -> 6.8.0"),
        **_RECORDED,
        remedy="bring the change into the config hash (a lockfile, an image digest), then run "
        "`repro-gate baseline`",
    ),
)
_MOVED = {"status": "changed", "message": "inputs changed and so did the results"}
_UNLIKE = {"changed_inputs": MOVES, "unlike": ("losses", "weights")}
_APART = {"changed_inputs": MOVES[:1], "first_divergence": FIRST}
CHANGED = replace(
    LOCKED,
    baseline=BaselineFinding(**_MOVED, **_UNLIKE, loss_gap=0.25, **_RECORDED),
    against=AgainstFinding(ref="origin/main", commit=COMMIT, loss_gap=0.25, **_MOVED, **_APART),
)
_LOOSER = (
    WeakenedCheck(
        "determinism.allow",
        "cudnn.benchmark is left on now: `[]` before, `[cudnn.benchmark]` now",
        Location("repro.yml", 12),
    ),
    WeakenedCheck(
        "checklist.waive",
        "env/image-digest is waived now, and was not before",
        Location("repro.yml", 31),
    ),
    WeakenedCheck("repro.baseline.yml", "the entry of platform 89abcdef was rewritten by hand"),
)
WEAKENED = replace(LOCKED, base=BaseFinding("origin/main", COMMIT, "head", _LOOSER))
RECORDED = replace(
    LOCKED,
    verdict="recorded",
    determinism=None,
    noise_floor=None,
    cost=None,
    runs=RUNS[:1],
    baseline=None,
    base=None,
    reproduce="repro-gate run repro.yml --record",
)
_DEPENDS = "classes = set(names) in src/data.py:6 depends on the order of a set"
SHELL = Diagnosis(
    cause="hash-order",
    factor="hash-seed",
    call="classes = set(names)",
    file="src/data.py",
    line=6,
    confirmed=True,
    message=f"repeatable, but not robust: {_DEPENDS}, which PYTHONHASHSEED decides",
    evidence=("confirmed: with only hash-seed varied, a run diverges from the first at step 0",),
    remedy="sort what comes out of the set",
)
_FRAGILE = check(
    "random-state/robust",
    "warn",
    SHELL.message,
    (EvidenceLine(SHELL.call, Location(SHELL.file, SHELL.line)),),
    SHELL.remedy,
)
CONDITIONAL = replace(
    PASS,
    diagnosis=SHELL,
    robust=False,
    checklist=(*CHECKLIST, _FRAGILE),
)
_LOST = (NotRestored("rng:torch", "the state of the torch generator differs"),)
_LEGS = (
    Leg(number=1, begins=0, ends=10, identical=True),
    Leg(number=2, begins=6, ends=16, identical=False, not_restored=_LOST, first_divergence=FIRST),
)
RESUMED = replace(
    PASS,
    verdict="fail",
    resume=Resumption(identical=False, legs=_LEGS, not_restored=("rng:torch",)),
    reasons=(
        Reason(
            "resume/diverged",
            f"resumed at step 6, it is not the same training: {_LOST[0].message}",
            "save the named state in the checkpoint, and load it before the first resumed step "
            f"({DOCS_URL}/resume.md)",
        ),
    ),
)
ALL = {"locked": LOCKED, "drift": DRIFT, "changed": CHANGED, "weakened": WEAKENED}
ALL |= {"pass": PASS, "fail": FAIL, "explained": EXPLAINED, "inconclusive": INCONCLUSIVE}
ALL |= {"conditional": CONDITIONAL, "resumed": RESUMED}
ALL |= {"recorded": RECORDED, "tolerated": TOLERATED, "nothing": NOTHING, "faster": FASTER}


def written(path: Path, report: Report) -> Path:
    """The file, with the report as `run --json` writes it."""
    path.write_text(render(report))
    return path


def hostile(text: str = HOSTILE) -> Report:
    """A failing report in which every text that can come from outside is `text`."""
    first = replace(FIRST, name=text, process=text, dtype=text, values=(text, text), detail=text)
    rows = (
        HeatRow(text, "gradient", text, 2, " ..07?kZ+-"),
        HeatRow("main", "loss", "", 1, " .........?"),
    )
    drawn = HeatMap(steps=50, width=5, depth=2, rows=rows)
    pair = replace(DIFFERENT, first_divergence=first, weights=(first, first), heat_map=drawn)
    moves = (
        ChangedInput("recipe", text, text, text),
        ChangedInput("platform", text, None, text),
        ChangedInput("platform", text, text, None),
    )
    two, line = (text, text), {"file": text, "line": 41}
    cause = Diagnosis(
        **dict.fromkeys(("factor", "op", "call", "message", "remedy"), text),
        **line,
        cause="thread-race",
        confirmed=True,
        evidence=two,
        ruled_out=(text,),
        rate=Rate(1, 2),
        excerpt=((40, text), (41, text)),
        uses=(ShownUse(factor=text, call=text, count=2, differs=True, **line),),
        one_of=(ShownUse(factor=text, call=""), ShownUse(factor=text, call=text, **line)),
        operators=(ShownOperator(name=text, phase=text, same_outputs=False, **line),),
    )

    moved = {"message": text, "changed_inputs": moves}
    drifted = {"loss_gap": 1.0, "recorded": text, "remedy": text, "unlike": two, "outside": two}
    unlike = {"first_divergence": first, "loss_gap": math.inf}
    said, read = Reason(text, text, text), {text: text}
    gpus = tuple(
        gpu_state(f"{arm}-1", gpu=text[:200], slowed=(text[:200],) * (arm == "default"))
        for arm in _ARMS
    )
    found = check("code/x", "fail", text, (text, EvidenceLine(text, Location(text, 41))), text)
    crashed = run("x", outcome=text, exit_code=1, log_tail=(text, text), settings=read, arm=text)
    recipe = {text: text, "list": [text, {text: text}]}
    platform = {text: {text: [text, 1.0]}, "x": text}
    weakened = (WeakenedCheck(text, text, Location(text)), WeakenedCheck(text, text))
    subject = replace(SUBJECT, spec=text, command=text, commit=None, uncommitted=(text,))
    return replace(
        FAIL,
        determinism=compared(pair, determinism_settings=read),
        noise_floor=replace(NOISE, first_divergence=first),
        diagnosis=replace(cause, also=(cause, replace(cause, confirmed=False, also=(cause,)))),
        reproduce=text,
        reasons=(said,),
        notes=(said,),
        cost=replace(COST, suspicious=text, gpus=gpus),
        tool_version=text,
        started=text,
        subject=replace(subject, versions=read, sandbox=text),
        checklist=tuple(replace(found, id=text, category=name) for name in ("code", "data")),
        runs=(crashed, run(text)),
        config_hash=address(recipe=recipe, platform=platform),
        baseline=BaselineFinding(status="drift", **drifted, **moved),
        against=AgainstFinding(status="changed", ref=text, commit=COMMIT, **unlike, **moved),
        base=BaseFinding(text, COMMIT, "head", weakened),
    )


def enormous(tensors: int = 10_000, name: int = 200_000, reasons: int = 500) -> Report:
    """More than any comment holds: `tensors` weights, names of `name` characters, `reasons`
    reasons."""
    long = "`|<@#" * (name // 5)
    weights = (replace(WEIGHTS[0], name=long),) * tensors
    moves = (ChangedInput("recipe", long, long, long),) * tensors
    worst = hostile(long)
    cause, drift, against, base = worst.diagnosis, worst.baseline, worst.against, worst.base
    many, inputs = (long,) * tensors, {f"data/{index}": long[:2_000] for index in range(tensors)}
    first = replace(FIRST, name=long)
    pair = replace(DIFFERENT, weights=weights, first_divergence=first)
    return replace(
        worst,
        diagnosis=replace(cause, evidence=many, ruled_out=many, also=(cause,) * 100),
        config_hash=address(recipe=inputs),
        baseline=replace(drift, changed_inputs=moves, unlike=many, outside=many),
        against=replace(against, changed_inputs=moves, first_divergence=None, loss_gap=None),
        base=replace(base, weakened=(WeakenedCheck(long, long, Location(long)),) * tensors),
        reasons=tuple(Reason(f"made/up-{index}", long, long) for index in range(reasons)),
        determinism=compared(pair, determinism_settings={}),
    )
