"""Claims about the preflight: pure judgement over facts of machines of all kinds, and one look at a
made-up root and at this machine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from repro_gate.checkout.inspection import inspect_checkout
from repro_gate.errors import Inconclusive, UsageError
from repro_gate.gate.preflight import (
    MIB,
    Facts,
    explains,
    look,
    preflight,
    require_scripts,
    script_of,
)
from repro_gate.spec.model import Equivalent, Hardware, Resume, Spec, Train
from tests.support.repositories import repository, write

CUDA = Spec(
    path=Path("/c/repro.yml"), train=Train(run="python t.py"), hardware=Hardware(device="cuda")
)
TWO = replace(CUDA, hardware=Hardware(device="cuda", gpus=2))
CPU = replace(CUDA, hardware=Hardware(device="cpu"))
ANY = replace(CUDA, hardware=Hardware())
LAPTOP = Facts(shm_total=8192 * MIB, shm_free=8000 * MIB)
GPU = replace(LAPTOP, devices=("nvidia0", "nvidia1"))
# as Docker starts one without options
DOCKER = Facts(shm_total=64 * MIB, shm_free=64 * MIB)


def hides(spec: Spec, value: str) -> Spec:
    return replace(spec, train=replace(spec.train, env={"CUDA_VISIBLE_DEVICES": value}))


DXG = replace(GPU, devices=("dxg",))  # nothing there to count


@pytest.mark.parametrize(
    ("spec", "facts", "listed", "remedy"),
    [
        (CPU, LAPTOP, None, None),
        (ANY, DOCKER, None, None),
        (ANY, Facts(), None, None),
        (CPU, GPU, "", None),
        (hides(ANY, ""), GPU, None, None),
        (CUDA, GPU, None, None),
        (TWO, GPU, "0,1", None),
        (TWO, GPU, "GPU-1,GPU-2", None),
        (TWO, DXG, None, None),
        (TWO, DXG, "0", None),
        (CUDA, LAPTOP, None, "runs-on"),
        (CUDA, DOCKER, None, "preflight.md"),
        *((CUDA, GPU, value, "train.env") for value in ("", "-1", "-1,0", "NoDevFiles", "-\x1b[31m")),
        (hides(CUDA, ""), GPU, "0", "train.env"),
        (CUDA, DXG, "-1", "train.env"),
        (TWO, GPU, "0", "2 GPUs"),
        (TWO, GPU, "0,-1,1", "2 GPUs"),
        (TWO, replace(GPU, devices=("nvidia0",)), None, "2 GPUs"),
    ],
)  # fmt: skip
def test_only_a_required_gpu_that_cannot_be_had_ends_the_gate_run(
    spec: Spec, facts: Facts, listed: str | None, remedy: str | None
) -> None:
    environment = {} if listed is None else {"CUDA_VISIBLE_DEVICES": listed}
    if remedy is None:
        assert preflight(spec, environment, facts) == ()
        return
    with pytest.raises(Inconclusive) as caught:
        preflight(spec, environment, facts)
    error = caught.value
    assert (error.exit_code, error.reason_id) == (3, "preflight/device")
    assert remedy in error.remedy and "\x1b" not in error.message


def test_small_shared_memory_is_a_note_with_a_gpu_and_explains_a_crash() -> None:
    for total, free, notes in ((1023, 1023, 1), (1024, 1024, 0), (8192, 255, 1), (8192, 256, 0)):
        facts = replace(GPU, shm_total=total * MIB, shm_free=free * MIB)
        ids = [item.id for item in preflight(ANY, {}, facts)]
        assert ids == ["preflight/shared-memory"] * notes
        assert preflight(ANY, {}, replace(facts, devices=())) == ()
    for line in (
        "RuntimeError: DataLoader worker (pid 71) is killed by signal: Bus error. It is possible …",
        "RuntimeError: unable to write to file </torch_71_1_0>: No space left on device (28)",
        "ncclSystemError: Error while creating shared memory segment /dev/shm/nccl-x (size 9637888)",
    ):
        (found,) = explains(["epoch 1", line], DOCKER)
        assert found.id == "preflight/shared-memory" and found.remedy
        assert explains(["epoch 1", line], LAPTOP) == ()
        assert explains(["ZeroDivisionError: division by zero"], DOCKER) == ()


def test_a_look_reads_devices_and_shared_memory(tmp_path: Path) -> None:
    (tmp_path / "dev/shm").mkdir(parents=True)
    for name in ("dev/nvidia0", "dev/nvidiactl", "dev/null"):
        (tmp_path / name).touch()
    facts = look(tmp_path)
    assert facts.devices == ("nvidia0",)
    assert facts.shm_total is not None and facts.shm_free is not None
    assert facts.shm_total >= facts.shm_free > 0
    assert look().shm_total != 0


@pytest.mark.parametrize(
    ("run", "script"),
    [
        ("python train.py --data x.py", "train.py"),
        ("A=1 torchrun --nproc_per_node 2 src/t.py", "src/t.py"),
        ("jupyter execute 'a b.ipynb'", "a b.ipynb"),
        ("python make.py && python made.py", "make.py"),
        ("python - <<'E'\nprint('a.py')\nE", ""),
        ("cd src && python t.py", ""),
        ("python $HERE/t.py", ""),
        ("python /opt/t.py", ""),
        ("python -c 'import t' t.py", ""),
        ("python -m pkg.train", ""),
        ("python 'unclosed.py", ""),
    ],
)
def test_the_script_of_a_command_is_what_stands_plainly_in_it(run: str, script: str) -> None:
    assert script_of(run) == script


def test_a_script_that_is_not_there_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    repo = repository(tmp_path / "repo")  # holds train.py
    write(repo, src__net_dot_py="", src__fit_dot_py="")
    spec = Spec(path=repo / "repro.yml", train=Train(run="python train.py"))
    there = replace(spec, resume=Resume(after=1, checkpoint="x", run="python src/fit.py"))
    checkout = inspect_checkout(repo)
    require_scripts(there, checkout)
    for changes, key, near in (
        ({"train": Train(run="python trian.py")}, "train.run", "`train.py`"),
        ({"train": Train(run="python net.py")}, "train.run", "`src/net.py`"),
        (
            {"train": Train(run="python train.py", working_directory="src")},
            "train.run",
            "`../train.py`",
        ),
        ({"train": Train(run="python other_name.py")}, "train.run", "working-directory"),
        ({"resume": replace(there.resume, run="python fitt.py")}, "resume.run", "`src/fit.py`"),
        ({"equivalent": (Equivalent(name="two", run="python src/nett.py"),)}, "two", "src/net.py"),
    ):
        with pytest.raises(UsageError) as caught:
            require_scripts(replace(there, **changes), checkout)
        assert key in str(caught.value) and near in caught.value.remedy
