"""Claims about which part of the spec, the machine and the training is an input, and which is not."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

import pytest

from repro_gate.baseline.config_hash import InputValue
from repro_gate.baseline.inputs import LONG_TEXT, platform_inputs, recipe_inputs
from repro_gate.data.declared import DataFinding
from repro_gate.runs.flags import FLAGS, IN_ENVIRONMENT, IN_PROCESS
from repro_gate.spec.loader import load_spec

BASE = "version: 1\ntrain:\n  run: python t.py\n"
# every key of the schema: (what is added with --set, the inputs that it moves)
MOVING = {
    "train.run": (["train.run=python other.py"], {"command"}),
    "train.working-directory": (["train.working-directory=sub"], {"working-directory"}),
    "train.steps": (["train.steps=9"], {"steps"}),
    "train.env": (["train.env={A: b}"], {"train.env/A"}),
    "random-state.seed": (["random-state.seed=7"], {"seeds"}),
    "random-state.seeds": (["random-state.seeds=[42, 7]"], {"seeds"}),
    "hardware.device": (["hardware.device=cpu"], {"hardware.device"}),
    "env.install": (["env={lockfile: requirements.baseline, install: true}"], {"install"}),
    **{
        f"determinism.allow {flag}": (
            [f"determinism.allow=[{{flag: {flag}, reason: r}}]"],
            {f"flag/{'TORCHINDUCTOR_DETERMINISTIC' if flag.startswith('torch._inductor') else flag}"},
        )
        for flag in FLAGS
    },
}
STILL = {
    "train.warmup": ["train.warmup=1"],
    "train.compile-cache": ["train.compile-cache=true"],
    "train.timeout": ["train.timeout=5"],
    "determinism.compare": ["determinism.compare={loss: 1.0, weights: 1.0}"],
    "determinism.allow-nonfinite": ["determinism.allow-nonfinite=true"],
    "capture": ["capture={every: 5, artifacts: ['*.pt']}"],
    "cost": ["cost.max-percent=3"],
    "cost.measure": ["cost.measure=false"],
    "env.image": ["env.image=ghcr.io/o/t@sha256:" + "0" * 64],
    "hardware.gpus": ["hardware.gpus=2"],
    "hardware.gpu-model": ["hardware.gpu-model=H100"],
    "checklist": [
        "checklist.profile=strict",
        "checklist.severity={env/lockfile: fail}",
        "checklist.waive=[{check: env/lockfile, reason: r, until: 2099-01-01}]",
    ],
    "baseline": ["baseline.on-change=fail"],
    "policy": ["policy=base"],
    "code": ["code={}"],
    "determinism.repeat": ["determinism.repeat=3"],
    "robustness": ["robustness.vary=false", "robustness.stress=true"],
    "diagnosis": ["diagnosis=false"],
}
ELSEWHERE = {"version", "train.snippet", "data", "env.lockfile", "determinism.allow"}  # tested below, in test_build, or of one value


def inputs(folder: Path, overrides: list[str], text: str = BASE, **rest: str | None) -> dict[str, InputValue]:
    (folder / "repro.yml").write_text(text)
    return recipe_inputs(load_spec(folder / "repro.yml", tuple(overrides)), "sha256:c", (), rest.get("lockfile"))


def changed_inputs(a: dict[str, InputValue], b: dict[str, InputValue]) -> set[str]:
    return {name for name in a.keys() | b.keys() if name not in a or name not in b or a[name] != b[name]}


@pytest.mark.parametrize("key", MOVING)
def test_a_key_that_can_change_numbers_moves_its_own_leaf(tmp_path: Path, key: str) -> None:
    overrides, names = MOVING[key]
    assert changed_inputs(inputs(tmp_path, []), inputs(tmp_path, overrides)) == names


@pytest.mark.parametrize("key", STILL)
def test_a_key_that_cannot_change_numbers_moves_none(tmp_path: Path, key: str) -> None:
    assert inputs(tmp_path, STILL[key]) == inputs(tmp_path, [])


def test_every_key_of_the_schema_is_one_or_the_other() -> None:
    schema = json.loads(resources.files("repro_gate.spec").joinpath("schema.json").read_text())
    sections = schema["properties"]
    keys = {f"{name}.{key}" for name, section in sections.items() for key in section.get("properties", {})}
    keys |= {name for name, section in sections.items() if not section.get("properties")}
    known = MOVING.keys() | STILL.keys() | ELSEWHERE
    assert {key for key in keys if key not in known and key.partition(".")[0] not in known} == set()


def test_the_reason_why_a_flag_is_left_off_does_not_count(tmp_path: Path) -> None:
    one, other = (inputs(tmp_path, [f"determinism.allow=[{{flag: NCCL_ALGO, reason: {reason}}}]"]) for reason in ("a", "b"))
    assert one == other and one["flag/NCCL_ALGO"] is None


def test_every_flag_of_the_deterministic_condition_has_its_value(tmp_path: Path) -> None:
    flags = {name.removeprefix("flag/"): value for name, value in inputs(tmp_path, []).items() if name.startswith("flag/")}
    assert flags == {**IN_PROCESS, **IN_ENVIRONMENT}


def test_a_snippet_is_not_the_command_of_the_same_text(tmp_path: Path) -> None:
    snippet = inputs(tmp_path, [], "version: 1\ntrain:\n  snippet: python t.py\n")
    assert changed_inputs(inputs(tmp_path, []), snippet) == {"command"}


def test_a_long_command_stands_by_its_digest_and_still_moves(tmp_path: Path) -> None:
    one, other = (inputs(tmp_path, [f"train.run={'x' * LONG_TEXT}{end}"]) for end in ("a", "b"))
    assert changed_inputs(one, other) == {"command"} and len(json.dumps(one["command"])) < 200
    assert inputs(tmp_path, [f"train.run={'x' * LONG_TEXT}"])["command"] == "x" * LONG_TEXT


def test_the_type_of_nothing_is_lost(tmp_path: Path) -> None:
    one, other = (inputs(tmp_path, [f"train.env={{A: {value}}}"])["train.env/A"] for value in ("'1'", "'1.0'"))
    assert (one, other) == ("1", "1.0")


def test_data_stands_as_found_whatever_is_declared(tmp_path: Path) -> None:
    (tmp_path / "repro.yml").write_text(BASE)
    spec = load_spec(tmp_path / "repro.yml", ())
    found = [
        DataFinding(path="data/a.bin", expected="e" * 64, actual="a" * 64, size=7, files=1),
        DataFinding(path="./b", expected=None, actual=None),
        DataFinding(path="/mnt/c/", expected=None, actual="c" * 64, size=1, files=1),
    ]
    made = recipe_inputs(spec, "sha256:c", found, None, "sub")
    assert {name: value for name, value in made.items() if name.startswith("data/")} == {
        "data/sub/data/a.bin": {"sha256": "a" * 64, "bytes": 7},
        "data/sub/b": None,
        "data//mnt/c": {"sha256": "c" * 64, "bytes": 1},
    }
    assert made["working-directory"] == "sub"


CPU = {
    "python": "3.11.9",
    "torch": "2.13.0",
    "digest": "xxh3-128",
    "device": "cpu: AVX512",
    "cpu-isa": "AVX512",
    "threads": "2",
    "cuda": "12.8",
    "gpus": "0",
}
GPU = {
    "python": "3.11.9",
    "torch": "2.13.0",
    "digest": "xxh3-128",
    "device": "cuda: NVIDIA H200",
    "threads": "8",
    "cuda": "12.8",
    "cudnn": "91002",
    "nccl": "2.27.3",
    "gpu-model": "NVIDIA H200",
    "gpu-sm-count": "132",
    "cpu-isa": "AVX512",
}
MACHINE = {"cpu-model": "AMD EPYC", "driver": "570.86.15", "kernel": "Linux 6", "gpu.0.uuid": "GPU-1", "memory-bytes": "1"}


def test_a_training_on_the_cpu_has_the_cpu_and_no_gpu() -> None:
    assert platform_inputs(CPU, MACHINE, None) == {
        "image": None,
        "python": "3.11.9",
        "torch": "2.13.0",
        "digest": "xxh3-128",
        "threads": 2,
        "cpu-model": "AMD EPYC",
        "cpu-isa": "AVX512",
    }


def test_a_training_on_the_gpu_has_the_gpu_and_no_cpu() -> None:
    assert platform_inputs(GPU, MACHINE, "ghcr.io/o/t@sha256:" + "1" * 64) == {
        "image": "sha256:" + "1" * 64,
        "python": "3.11.9",
        "torch": "2.13.0",
        "digest": "xxh3-128",
        "threads": 8,
        "cuda": "12.8",
        "cudnn": 91002,
        "nccl": "2.27.3",
        "driver": "570.86.15",
        "gpu-model": "NVIDIA H200",
        "gpu-sm-count": 132,
    }


@pytest.mark.parametrize(
    ("facts", "fact"),
    [(CPU, name) for name in ("python", "torch", "digest", "threads", "cpu-isa")]
    + [(GPU, name) for name in ("python", "torch", "digest", "threads", "cuda", "cudnn", "nccl", "gpu-model", "gpu-sm-count")],
)
def test_each_fact_of_the_training_moves_its_own_leaf(facts: dict[str, str], fact: str) -> None:
    before = platform_inputs(facts, MACHINE, None)
    assert changed_inputs(before, platform_inputs({**facts, fact: "other"}, MACHINE, None)) == {fact}
    rest = {name: value for name, value in facts.items() if name != fact}
    without = platform_inputs({**rest, "device": facts["device"].partition(":")[0]}, MACHINE, None)
    assert before.keys() == without.keys() and without[fact] is None


@pytest.mark.parametrize(("facts", "fact"), [(CPU, "cpu-model"), (GPU, "driver")])
def test_each_fact_of_the_machine_moves_its_own_leaf(facts: dict[str, str], fact: str) -> None:
    before = platform_inputs(facts, MACHINE, None)
    assert changed_inputs(before, platform_inputs(facts, {**MACHINE, fact: "other"}, None)) == {fact}
    assert platform_inputs(facts, {}, None)[fact] is None


def test_what_training_did_not_use_and_what_is_this_machine_alone_moves_none() -> None:
    before = platform_inputs(CPU, MACHINE, None)
    machine = {**MACHINE, "driver": "1", "kernel": "other", "gpu.0.uuid": "GPU-2", "memory-bytes": "2", "cpu-count": "1"}
    assert platform_inputs({**CPU, "cuda": "13.0", "gpus": "8", "interpreter": "/elsewhere/python"}, machine, None) == before


def test_an_older_probe_names_the_model_in_the_device_alone() -> None:
    facts = {name: value for name, value in GPU.items() if name != "gpu-model"}
    assert platform_inputs(facts, MACHINE, None)["gpu-model"] == "NVIDIA H200"


def test_an_image_is_its_digest_whatever_the_registry() -> None:
    one, other = (platform_inputs(CPU, MACHINE, f"{name}@sha256:{'1' * 64}") for name in ("ghcr.io/o/t", "mirror.example:5000/t"))
    assert one == other
    assert platform_inputs(CPU, MACHINE, f"x@sha256:{'2' * 64}")["image"] != one["image"]
