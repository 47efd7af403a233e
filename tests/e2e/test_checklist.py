"""Every check that looks at runs, on real trainings: what it says of a checkout with the fault, and
of its clean twin.

Faults that do not disturb each other share one gate run. `env/cublas-workspace` and
`hardware/alone` need a GPU: here only their reason to skip is shown.
"""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from repro_gate.gate.evidence import NEED_TRAINING
from tests.support.checklist_projects import (
    RANKS,
    line_of,
    lock_text,
    project,
    second_interpreter,
    source,
    spec_text,
)
from tests.support.gates import Gated, gate

STRICT = ("--set", "checklist.profile=strict")
NEED_GPU = {
    "env/cublas-workspace": "no deterministic run started CUDA",
    "hardware/alone": "training used no GPU",
}
HUB = "data/revisions"  # nothing here comes from a hub's cache
WHERE_RUNS_DIVERGE = {"data/batches", "random-state/generators", "random-state/workers"}
# each fault has a test of its own below, or in test_imports, test_leftovers and test_robust
OTHERWISE = {"code/imports-checkout", "code/pristine-workspace", "data/leftovers"}
OTHERWISE |= {"env/versions", "hardware/same", "random-state/robust"}
CONNECT = """
import contextlib, socket
with contextlib.closing(socket.socket()) as other, contextlib.suppress(OSError):
    other.setblocking(False)
    other.connect(("192.0.2.1", 443))
"""
FAULTY = {
    "first": "os.environ['OMP_SCHEDULE'] = f'static,{os.getpid()}'",
    "start": "import rescale\nimport subprocess\nimport uuid\nimport torch.backends.cpu\n\n"
    "del torch.backends.cpu.get_cpu_capability\ntorch.manual_seed(7)\nname = uuid.uuid4()\n"
    "with open('extra.json') as file:\n    extra = json.load(file)\n"
    "with open(os.environ['OUTSIDE']) as file:\n    outside = file.read()\n" + CONNECT,
    "data": "validation = records[40:56]\nsubprocess.run(['sh', '-c', 'printf x >> data.bin'], "
    "check=True)",
    "step": "if epoch == 1: torch.use_deterministic_algorithms(False)",
}


def faulty(folder: Path) -> tuple[Path, dict[str, tuple[str, str, str]]]:
    """The clean project with a fault for every check that two equal runs can fail, and what each
    must say of it in the strict profile: its status, what its evidence holds (a pattern), and a
    word of its remedy."""
    library, outside = folder / "library", folder / "outside.csv"
    library.mkdir(parents=True)
    (library / "rescale.py").write_text("FACTOR = 1.0\n")
    outside.write_text("1,2\n")
    env = f"  env: {{PYTHONPATH: {library}, OUTSIDE: {outside}}}\n"
    spec, lock = spec_text(env, "hardware: {gpu-model: H100}\n"), lock_text({"numpy": "0.0.1"})
    extra = {"extra.json": "{}\n"}
    code = project(folder / "code", source(FAULTY), spec, lock=lock, untracked=extra)
    lines = enumerate(lock.splitlines(), 1)
    place = next(number for number, line in lines if line.startswith("numpy=="))
    by = {
        part: re.escape(line_of(code, part))
        for part in ("rescale", "extra.json", "OUTSIDE", "uuid4", "algorithms(False)")
    }
    imported, flag = importlib.metadata.version("numpy"), "torch.use_deterministic_algorithms"
    elsewhere = rf"{by['rescale']}: opens {library}/rescale\.py: outside the checkout"
    untracked = rf"{by['extra.json']}: opens extra\.json: data that git does not track"
    return code, {
        "code/opened-files": (
            "fail",
            rf"^{elsewhere}\n{untracked}$",
            "or `git add` it; install what lies outside",
        ),
        "data/unchanged": ("fail", r"^data\.bin$", "path of the run's own"),
        "data/undeclared-reads": ("fail", rf"^{by['OUTSIDE']}: opens {outside}$", "sha256"),
        "data/no-network": ("fail", r"^192\.0\.2\.1:443$", "train.env"),
        "env/installed": (
            "fail",
            rf"^numpy {imported}: 0\.0\.1 at requirements\.lock:{place}, imported$",
            "lock again",
        ),
        "env/variables": ("fail", r"^\w+: OMP_SCHEDULE static,\d+ and static,\d+$", "train.env"),
        "random-state/flags": (
            "fail",
            rf"^{by['algorithms(False)']}: {flag} is False from step 3 on, and the gate ",
            "allow",
        ),
        "random-state/operators": ("fail", rf"^{flag} was off$", "leave the flag on"),
        "random-state/reseeded": (
            "fail",
            r"^seeds 42 and 43: \d+ digests compared.* 0 of which differ$",
            "{seed}",
        ),
        "random-state/os-entropy": ("warn", rf"^{by['uuid4']}: uuid\.uuid4$", "waive"),
        "hardware/device": (
            "fail",
            r"^GPU model H100 is required, training used cpu: ",
            "correct `hardware:`",
        ),
        "hardware/recorded": (
            "fail",
            r"(?m)^threads \d+$",
            "run the gate where it can read this",
        ),
    }


def found(gated: Gated, names: Iterable[str]) -> dict[str, str]:
    """The statuses of these checks by their names."""
    assert gated.report, gated.said
    return {name: gated.check(name)["status"] for name in names}


def evidence(gated: Gated, name: str) -> str:
    """The evidence of a check that did not pass, which must come with a remedy."""
    check = gated.check(name)
    assert check["message"] and check["remedy"], check
    return "\n".join(check["evidence"])


def all_fail(gated: Gated, names: list[str]) -> None:
    """These checks fail, and so does the gate run."""
    assert found(gated, names) == dict.fromkeys(names, "fail")
    assert gated.exit_code == 1 and set(names) <= set(gated.reason_ids), gated.said


@pytest.mark.slow
def test_a_clean_checkout_passes_every_check_in_the_strict_profile(tmp_path: Path) -> None:
    gated = gate(project(tmp_path / "code", source({}), spec_text("")), *STRICT, out=tmp_path)
    gated.must(0)
    assert found(gated, NEED_TRAINING) == {
        name: "skip" if name in (*NEED_GPU, HUB) else "pass" for name in NEED_TRAINING
    }
    for name, reason in NEED_GPU.items():
        assert gated.check(name)["message"].startswith(reason)
    assert {item["status"] for item in gated.report["checklist"]} == {"pass", "skip", "waived"}
    assert gated.check("env/image-digest")["status"] == "waived"
    assert "requirements.lock" in gated.check("env/installed")["message"]
    assert gated.check("random-state/workers")["evidence"]


def test_each_fault_is_found_with_its_evidence_and_a_remedy(tmp_path: Path) -> None:
    """In the strict profile; what the other makes of each: tests/checks."""
    code, faults = faulty(tmp_path / "dirty")
    gated = gate(code, *STRICT, out=tmp_path)
    gated.must(1)
    assert gated.report["determinism"]["identical"], "the faults are those that two equal runs hide"
    assert found(gated, faults) == {name: status for name, (status, *_) in faults.items()}
    for name, (_, pattern, remedy) in faults.items():
        assert re.search(pattern, evidence(gated, name)), (name, evidence(gated, name))
        assert remedy in gated.check(name)["remedy"], name
    assert "instruction set that torch uses" in gated.check("hardware/recorded")["message"]
    reach = "random-state/seed-reach"
    assert gated.check(reach)["status"] == "skip", "one fact is told once, by `reseeded`"
    others = {*NEED_TRAINING} - {*faults, *NEED_GPU, reach, HUB}
    # a check that no test of this file shows a fault of
    assert others == WHERE_RUNS_DIVERGE | OTHERWISE
    # one fault does not make another check fail
    assert found(gated, others) == dict.fromkeys(others, "pass")


@pytest.mark.slow
def test_a_loader_that_is_seeded_anew_gives_other_batches_and_workers(tmp_path: Path) -> None:
    line = """import random

own = torch.Generator().manual_seed(random.Random().getrandbits(40))
train_loader.generator = own
train_loader.sampler.generator = own"""
    code = project(tmp_path / "code", source({"loaders": line}), spec_text(""))
    gated = gate(code, "--set", "diagnosis=false", out=tmp_path)
    gated.must_diverge(0, "batch")
    batches, workers, entropy = "data/batches", "random-state/workers", "random-state/os-entropy"
    all_fail(gated, [batches, workers, entropy])
    assert re.fullmatch(r"batch .+ at step 0", evidence(gated, batches))
    assert re.fullmatch(
        r"loader 0: 1 workers from base seed (\d+) in deterministic-1, "
        r"1 workers from base seed (?!\1 )\d+ in deterministic-[23]",
        evidence(gated, workers),
    )
    assert evidence(gated, entropy) == f"{line_of(code, 'random.Random()')}: random.Random()"


@pytest.mark.slow
def test_a_generator_that_the_system_seeds_is_named(tmp_path: Path) -> None:
    text = source({"step": "if epoch == 1: torch.seed()"})
    code = project(tmp_path / "code", text, spec_text(""))
    gated = gate(code, "--set", "diagnosis=false", out=tmp_path)
    gated.must_diverge(3, "rng")
    generators, entropy = "random-state/generators", "random-state/os-entropy"
    all_fail(gated, [generators, entropy])
    assert evidence(gated, generators) == "rng torch at step 3"
    assert evidence(gated, entropy) == f"{line_of(code, 'torch.seed()')}: torch.seed()"


@pytest.mark.slow
def test_an_operator_without_a_deterministic_form_is_named_with_its_line(tmp_path: Path) -> None:
    line = """if epoch == 1: torch.zeros(4).put_(torch.tensor([0]), torch.ones(1))
if epoch == 1: torch.nn.MaxUnpool1d(2)(ONE, ONE.long())""".replace("ONE", "torch.zeros(1, 1, 1)")
    code = project(tmp_path / "code", source({"step": line}), spec_text(""))
    gated = gate(code, out=tmp_path)
    name = "random-state/operators"
    check = gated.check(name)
    all_fail(gated, [name])
    assert gated.reason_ids[0] == name and check["message"].startswith("torch refuses 2 operators")
    put, unpool = check["evidence"]
    instead = "put_; instead: `index_put_` on the flattened tensor"
    assert put == f"{line_of(code, 'put_')}: {instead}"
    where = line_of(code, "MaxUnpool1d")
    assert unpool.startswith(f"{where}: max_unpooling2d_forward_out; instead: ")
    assert "determinism.allow" in check["remedy"]


def test_a_training_that_needs_an_ignored_file_does_not_run_from_a_fresh_copy(
    tmp_path: Path,
) -> None:
    text = source({"first": "with open('notes.cache') as file:\n    notes = file.read()"})
    files = {"notes.cache": "x"}
    code = project(tmp_path / "code", text, spec_text(""), ignored="*.cache\n", untracked=files)
    gated = gate(code, out=tmp_path)
    name = "code/pristine-workspace"
    gated.must(1, name, "run/crashed")
    assert gated.check(name)["status"] == "fail"
    assert evidence(gated, name) == "notes.cache (not found by deterministic-1)"
    assert "notes.cache" in gated.report["runs"][0]["log_tail"][-1]


@pytest.mark.slow
def test_ranks_must_share_hardware_and_versions(tmp_path: Path) -> None:
    """The clean twin is the example with torchrun, in test_examples."""
    other = second_interpreter(tmp_path / "venv")
    env = f"  env: {{OMP_NUM_THREADS: 1, OTHER_PYTHON: {other}, MORE_THREADS: 1}}\n"
    gated = gate(project(tmp_path / "code", RANKS, spec_text(env)), out=tmp_path)
    hardware, versions = "hardware/same", "env/versions"
    all_fail(gated, [hardware, versions])
    assert gated.report["determinism"]["identical"]
    one, two = (rf"{threads} in deterministic-1: rank{threads - 1} \(\d+\)" for threads in (1, 2))
    # whichever rank started first
    assert re.fullmatch(f"threads: (?:{one}, {two}|{two}, {one})", evidence(gated, hardware))
    assert "OMP_NUM_THREADS" in gated.check(hardware)["remedy"]
    told = evidence(gated, versions)
    assert told.startswith("interpreter: ") and str(other.parent) in told
