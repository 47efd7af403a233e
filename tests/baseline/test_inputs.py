"""Claims about which part of the spec, the machine and the training is an input, and which is
not."""

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
# What is given with --set: the input that it moves.
MOVING = {
    "train.run=python other.py": "command",
    "train.working-directory=sub": "working-directory",
    "train.steps=9": "steps",
    "train.env={A: b}": "train.env/A",
    "random-state.seed=7": "seeds",
    "random-state.seeds=[42, 7]": "seeds",
    "hardware.device=cpu": "hardware.device",
    "env={lockfile: requirements.baseline, install: true}": "install",
}
for _flag in FLAGS:
    _name = "TORCHINDUCTOR_DETERMINISTIC" if _flag.startswith("torch._inductor") else _flag
    MOVING[f"determinism.allow=[{{flag: {_flag}, reason: r}}]"] = f"flag/{_name}"
STILL = (
    "train.warmup=1",
    "train.timeout=5",
    "determinism.compare={loss: 1.0, weights: 1.0}",
    "determinism.allow-nonfinite=true",
    "determinism.repeat=3",
    "capture={every: 5, artifacts: ['*.pt']}",
    "cost={max-percent: 3}",
    "cost.measure=false",
    "operators.seconds=30",
    "env.image=ghcr.io/o/t@sha256:" + "0" * 64,
    "hardware.gpus=2",
    "hardware.gpu-model=H100",
    "checklist={profile: strict, severity: {env/lockfile: fail}}",
    "checklist.waive=[{check: env/lockfile, reason: r, until: 2099-01-01}]",
    "baseline={on-change: fail, pass: rounding}",
    "effect={seeds: {at-least: 4, at-most: 8}, metrics: [loss], higher-is-better: [acc], smallest: {acc: 1}, fail: worse}",
    "policy=base",
    "code={}",
    "robustness={vary: false, on-dependence: fail}",
    "diagnosis=false",
    "scratch=/shared",
    "resume={after: 1, checkpoint: out/*.pt, run: x}",
    "equivalent=[{name: a, run: x}]",
)
# tested below, in test_build, or of one value
ELSEWHERE = {"version", "train.snippet", "data", "env.lockfile"}


def inputs(folder: Path, *overrides: str, text: str = BASE) -> dict[str, InputValue]:
    (folder / "repro.yml").write_text(text)
    return recipe_inputs(load_spec(folder / "repro.yml", overrides), "sha256:c", (), None)


def changed_inputs(a: dict[str, InputValue], b: dict[str, InputValue]) -> set[str]:
    return {
        name for name in a.keys() | b.keys() if name not in a or name not in b or a[name] != b[name]
    }


@pytest.mark.parametrize(
    ("override", "moved"),
    [*((text, {name}) for text, name in MOVING.items()), *((text, set()) for text in STILL)],
)
def test_a_key_moves_its_own_input(tmp_path: Path, override: str, moved: set[str]) -> None:
    assert changed_inputs(inputs(tmp_path), inputs(tmp_path, override)) == moved


def test_every_key_of_the_schema_is_one_or_the_other() -> None:
    text = resources.files("repro_gate.spec").joinpath("schema.json").read_text()
    keys = set()
    for name, section in json.loads(text)["properties"].items():
        keys |= {f"{name}.{key}" for key in section.get("properties", ())} or {name}
    known = {override.partition("=")[0] for override in (*MOVING, *STILL)} | ELSEWHERE
    assert {key for key in keys if not known & {key, key.partition(".")[0]}} == set()


def test_flags_have_their_values_and_texts_stay_apart(tmp_path: Path) -> None:
    found = inputs(tmp_path)
    flags = {f"flag/{name}": value for name, value in {**IN_PROCESS, **IN_ENVIRONMENT}.items()}
    assert {name: found[name] for name in found if name.startswith("flag/")} == flags
    allow = "determinism.allow=[{{flag: NCCL_ALGO, reason: {}}}]"
    one, other = (inputs(tmp_path, allow.format(reason)) for reason in "ab")
    assert one == other and one["flag/NCCL_ALGO"] is None
    snippet = inputs(tmp_path, text="version: 1\ntrain:\n  snippet: python t.py\n")
    assert changed_inputs(inputs(tmp_path), snippet) == {"command"}
    one, other = (inputs(tmp_path, f"train.run={'x' * LONG_TEXT}{end}") for end in ("a", "b"))
    assert changed_inputs(one, other) == {"command"} and len(json.dumps(one["command"])) < 200
    assert inputs(tmp_path, f"train.run={'x' * LONG_TEXT}")["command"] == "x" * LONG_TEXT
    assert [
        inputs(tmp_path, f"train.env={{A: {value}}}")["train.env/A"] for value in ("'1'", "'1.0'")
    ] == ["1", "1.0"]


def test_data_stands_as_found_whatever_is_declared(tmp_path: Path) -> None:
    (tmp_path / "repro.yml").write_text(BASE)
    found = [
        DataFinding(path="data/a.bin", expected="e" * 64, actual="a" * 64, size=7),
        DataFinding(path="./b", expected=None, actual=None),
        DataFinding(path="/mnt/c/", expected=None, actual="c" * 64, size=1),
    ]
    made = recipe_inputs(load_spec(tmp_path / "repro.yml", ()), "sha256:c", found, None, "sub")
    assert {name: made[name] for name in made if name.startswith("data/")} == {
        "data/sub/data/a.bin": {"sha256": "a" * 64, "bytes": 7},
        "data/sub/b": None,
        "data//mnt/c": {"sha256": "c" * 64, "bytes": 1},
    }
    assert made["working-directory"] == "sub"


BOTH = {"python": "3.11.9", "torch": "2.13.0", "digest": "xxh3-128"}
BOTH |= {"cpu-isa": "AVX512", "cuda": "12.8"}
CPU = {**BOTH, "device": "cpu: AVX512", "threads": "2", "gpus": "0"}
GPU = {**BOTH, "device": "cuda: NVIDIA H200", "threads": "8", "cudnn": "91002", "nccl": "2.27.3"}
GPU |= {"gpu-model": "NVIDIA H200", "gpu-sm-count": "132"}
MACHINE = {"cpu-model": "AMD EPYC", "driver": "570.86.15", "kernel": "Linux 6"}
MACHINE |= {"gpu.0.uuid": "GPU-1", "memory-bytes": "1"}
OF_BOTH = {"python": "3.11.9", "torch": "2.13.0", "digest": "xxh3-128"}
OF_CPU = {**OF_BOTH, "image": None, "threads": 2, "cpu-model": "AMD EPYC", "cpu-isa": "AVX512"}
OF_GPU = {**OF_BOTH, "image": "sha256:" + "1" * 64, "threads": 8, "cuda": "12.8", "cudnn": 91002}
OF_GPU |= {"nccl": "2.27.3"}
OF_GPU |= {"driver": "570.86.15", "gpu-model": "NVIDIA H200", "gpu-sm-count": 132}


def test_a_training_has_the_facts_of_its_device_and_no_others() -> None:
    assert platform_inputs(CPU, MACHINE, None) == OF_CPU
    assert platform_inputs(GPU, MACHINE, "ghcr.io/o/t@sha256:" + "1" * 64) == OF_GPU
    for device, known in (("cpu", OF_CPU), ("cuda: x", OF_GPU)):
        assert platform_inputs({"device": device}, {}, None) == dict.fromkeys(known)
    assert platform_inputs({**GPU, "cudnn": "odd"}, MACHINE, None)["cudnn"] == "odd"
    machine = {**MACHINE, "driver": "1", "kernel": "other", "gpu.0.uuid": "GPU-2"}
    machine |= {"memory-bytes": "2", "cpu-count": "1"}
    # a GPU of ROCm's has another version to know
    amd = platform_inputs({**GPU, "cuda": "none", "hip": "6.4"}, MACHINE, None)
    assert amd == {**OF_GPU, "image": None, "cuda": "none", "hip": "6.4"}
    facts = {**CPU, "cuda": "13.0", "gpus": "8", "interpreter": "/elsewhere/python", "hip": "6.4"}
    assert platform_inputs(facts, machine, None) == OF_CPU
    # an image is its digest, whatever the registry
    for name in ("ghcr.io/o/t", "mirror.example:5000/t"):
        found = platform_inputs(CPU, MACHINE, f"{name}@sha256:{'2' * 64}")
        assert found["image"] == f"sha256:{'2' * 64}"
