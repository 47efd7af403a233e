"""The environment of a run: what is not named stays outside, every `python` brings the probe."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from repro_gate.runs import arms, flags
from repro_gate.runs import environment as variables
from repro_gate.runs.environment import (
    INJECT,
    thread_count,
    training_environment,
    usable_processors,
    write_shims,
)
from repro_gate.trace.format import CONFIG_VARIABLE
from tests.support.tracing import ONE, trace_script

PLACE = Path("/place")
SECRETS = ("GITHUB_TOKEN", "HF_TOKEN", "SSH_AUTH_SOCK", "HTTPS_PROXY", "GITHUB_OUTPUT")
MARKS = "TOKEN JWT SECRET PASSWORD PASSWD CREDENTIALS API_KEY APIKEY ACCESS_KEY PRIVATE COOKIE AUTH"
PREFIXES = ("LC_", "CUDA_", "NVIDIA_", "TORCH_", "PYTORCH_", "TRITON_", "NCCL_", "OMP_", "PYENV_")


def environment(
    outer: dict[str, str], train_env: dict[str, str] | None = None, device: str | None = None
) -> dict[str, str]:
    return training_environment(
        outer, arms.deterministic(42, frozenset(), None), train_env or {}, PLACE, device
    )


def test_what_a_training_needs_passes_and_no_secret_nor_anything_else_that_is_not_named() -> None:
    needed = {"LANG": "C.UTF-8", "LC_ALL": "C", "CUDA_VISIBLE_DEVICES": "1", "VIRTUAL_ENV": "/v"}
    needed |= {"SLURM_JOB_ID": "7", "SLURMD_NODENAME": "gpu1"}
    # transports, libraries of kernels, ROCm
    needed |= {"NVTE_FLASH_ATTN": "0", "UCX_TLS": "rc", "FI_PROVIDER": "efa", "XLA_FLAGS": "--a"}
    needed |= {"HSA_OVERRIDE_GFX_VERSION": "11", "MIOPEN_FIND_MODE": "1"}
    needed |= {"FLASH_ATTENTION_TRITON_AMD_ENABLE": "TRUE"}
    marks = [*MARKS.split(), *MARKS.lower().split()]
    shaped = [f"{a}{mark}{b}" for a in PREFIXES for mark in marks for b in ("", "_2", "S")]
    others = ["SLURM_JWT", "SLURM_PROCID", "SLURM_NTASKS"]
    others += [a + "SOME_NAME" for a in ("", "MY_", "GITHUB_", "ACTIONS_", "RUNNER_", "PYTHON")]
    for name in (*SECRETS, *shaped, *others):
        made = environment({**needed, name: "hush"})
        assert needed.items() <= made.items() and "hush" not in made.values(), name


CACHES = ["TRITON_CACHE_DIR", "CUDA_CACHE_PATH", "MIOPEN_USER_DB_PATH"]


@pytest.mark.parametrize("name", CACHES)
def test_a_folder_for_compiled_code_is_the_runs_own_unless_the_spec_names_one(name: str) -> None:
    assert name not in environment({name: "/scratch/cache"})
    assert environment({}, {name: "/scratch/cache"})[name] == "/scratch/cache"


def test_the_flags_of_the_condition_win_over_the_outside_and_train_env_over_both() -> None:
    outer = {"CUBLAS_WORKSPACE_CONFIG": ":0:0", "NCCL_ALGO": "Tree", "PYTHONHASHSEED": "1"}
    assert environment(outer)["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    assert environment(outer)["PYTHONHASHSEED"] == "42"
    given = {"CUBLAS_WORKSPACE_CONFIG": ":16:8", "HF_TOKEN": "of the checkout itself"}
    assert given.items() <= environment(outer, given).items()
    default, allowed = arms.default(42, None), frozenset({"NCCL_ALGO"})
    kept = training_environment(outer, default, {}, PLACE)
    assert {name: kept[name] for name in outer} == outer, "the shell's own"
    assert not set(flags.IN_ENVIRONMENT) & set(training_environment({}, default, {}, PLACE))
    for arm in (arms.deterministic(42, allowed, None), arms.reseeded(42, allowed, 2)):
        made = training_environment(outer, arm, {}, PLACE)
        assert made["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8" and "NCCL_ALGO" not in made
    # the default condition has the hash seed of the user's shell
    for shell, env, seed in (({}, {}, None), (outer, {}, "1"), ({}, {"PYTHONHASHSEED": "2"}, "2")):
        made = training_environment(shell, default, env, PLACE)
        assert made.get("PYTHONHASHSEED") == seed


def test_omp_num_threads_chooses_the_threads() -> None:
    assert not {"OMP_NUM_THREADS", "MKL_NUM_THREADS"} & environment({}).keys()
    shell = {"OMP_NUM_THREADS": "3", "MKL_NUM_THREADS": "4", "OPENBLAS_NUM_THREADS": "5"}
    assert shell.items() <= environment(shell).items()
    chosen = environment(shell, {"OMP_NUM_THREADS": "1"})
    assert (chosen["OMP_NUM_THREADS"], chosen.get("MKL_NUM_THREADS")) == ("1", None)
    both = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "2"}
    assert environment(shell, both)["MKL_NUM_THREADS"] == "2"
    three = {"OMP_NUM_THREADS": "3"}
    counts = [thread_count(outer) for outer in ({}, three, shell)]
    assert counts == [str(usable_processors()), "3", "3 and 4"]


@pytest.mark.slow
def test_every_process_trains_with_the_chosen_threads(tmp_path: Path) -> None:
    two = str(min(2, usable_processors()))  # MKL takes no more than there are
    command = "torchrun --standalone --nproc-per-node 2 train.py"
    run = trace_script(tmp_path, ONE, command=command, env={"OMP_NUM_THREADS": two})
    threads = [trace.facts["threads"] for trace in run.traces if trace.trained]
    assert threads == [two, two], run.ended.tail


def test_places_are_fresh_and_cannot_be_moved_and_device_cpu_hides_the_gpus() -> None:
    outer = {"HOME": "/root", "TMPDIR": "/tmp", "PATH": "/bin", "CUDA_VISIBLE_DEVICES": "0"}
    env = {"HOME": "/root", "PYTHONPATH": "src", CONFIG_VARIABLE: "/else"}
    wanted = {
        "HOME": "/place/home",
        "TMPDIR": "/place/tmp",
        CONFIG_VARIABLE: "/place/probe.json",
        "PYTHONPATH": f"{INJECT}{os.pathsep}src",
        "PATH": f"/place/bin{os.pathsep}/bin",
    }
    for device, gpus in (("cpu", ""), ("cuda", "0")):
        made = environment(outer, env, device)
        assert {**wanted, "CUDA_VISIBLE_DEVICES": gpus}.items() <= made.items()


def shimmed(place: Path, command: str, **env: str) -> str:
    write_shims(place, os.pathsep.join([os.path.dirname(sys.executable), "/usr/bin", "/bin"]))
    path = os.pathsep.join([str(place / "bin"), "/usr/bin", "/bin"])
    done = subprocess.run(
        ["/bin/sh", "-c", command],
        env={"PATH": path, **env},
        cwd=place,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


PRINT = (
    f'import os, sys; print(os.environ["PYTHONPATH"], os.environ["{CONFIG_VARIABLE}"], '
    "sys.executable, sys.argv[1:])"
)
SHOW = f"""-S -c '{PRINT}' "a b" '$HOME' ''"""


def test_a_shim_puts_the_probe_first_hands_arguments_and_exit_status_on(tmp_path: Path) -> None:
    place = tmp_path / "with a space"
    place.mkdir()
    tail = f"{place / 'probe.json'} {sys.executable} ['a b', '$HOME', '']"
    for before, path in (
        ("", INJECT),
        ("PYTHONPATH=src", f"{INJECT}:src"),
        (f"PYTHONPATH=src:{INJECT}", f"{INJECT}:src:{INJECT}"),  # src may hold a sitecustomize
    ):
        assert shimmed(place, f"{before} python {SHOW}") == f"{path} {tail}"
    assert shimmed(place, "python -S -c 'raise SystemExit(7)' || echo $?") == "7"
    names = {shim.name for shim in (place / "bin").iterdir()}
    assert {"python", "python3"} <= names and "python3.19" not in names  # real ones alone


def test_the_page_lists_the_variables_that_the_code_lets_through() -> None:
    page = (Path(__file__).parents[2] / "docs/repro-yml.md").read_text(encoding="utf-8")
    shown = page.split("<!-- allowed -->\n")[1].split("<!-- /allowed -->")[0]
    pattern = variables._ALLOWED.pattern
    names, groups = pattern.split("|(?:")
    allowed = [*names.replace("?", "").split("|"), *groups.removesuffix(")_.*").split("|")]
    written = re.findall(r"`([A-Z_]+?)(?:_…)?`", shown)
    assert sorted(written) == sorted(allowed)
    begins = re.findall(r"`([A-Z_]+)_…`", shown)
    assert sorted(begins) == sorted(groups.removesuffix(")_.*").split("|"))
    whole = [name for name in written if name not in begins]
    assert all(variables._ALLOWED.fullmatch(name) for name in whole)
    assert all(variables._ALLOWED.fullmatch(f"{name}_X") for name in begins)
