"""Checks of category `env`: can the software be installed again, and did the training use it?"""

from __future__ import annotations

import os
import re
from pathlib import Path

from packaging.utils import canonicalize_name

from repro_gate.checks.interface import (
    CHECKOUT,
    PAIR,
    TRACED,
    Evidence,
    Finding,
    by_process,
    check,
    differences,
    failed,
    missing,
    noticed,
    on_gpu,
    passed,
    skipped,
    undeclared,
)
from repro_gate.compare.traces import processes
from repro_gate.escape import counted, for_terminal
from repro_gate.install.lockfiles import (
    REMEDY,
    Lock,
    LockfileError,
    applies,
    kind_of,
    read_lock,
    same_version,
)
from repro_gate.runs.gate_folder import original_of
from repro_gate.runs.variation import as_first
from repro_gate.spec.model import THREADS

_ON_GPU = ("python", "torch", "cuda", "cudnn", "nccl", "driver")
_SAME = (*_ON_GPU, "hip", "interpreter")
_DIGEST = re.compile(r"\S+@sha256:([0-9a-f]{64})", re.IGNORECASE)
_CUBLAS = "CUBLAS_WORKSPACE_CONFIG"
_CUBLAS_FACT = "cublas-workspace-at-cuda-start"
# NVIDIA's documentation calls these two values reproducible.
_CUBLAS_VALUES = (
    ":4096:8",
    ":16:8",
)
# These differ by design in each process or run: ranks, and the rendezvous that a launcher opens.
_OF_ONE_PROCESS = re.compile(
    r"(?:LOCAL_|GROUP_|ROLE_)?RANK|MASTER_(?:ADDR|PORT)|TORCHELASTIC_.*|ROLE_NAME|.*_RUN_ID|REPRO_GATE_.*"
)
# variable whose value is varied in the second run -> its name in the spec
_VARIED = {
    "PYTHONHASHSEED": "hash-seed",
    "OMP_NUM_THREADS": THREADS,
    "MKL_NUM_THREADS": THREADS,
}
# Installers are often missing in the lock, and a training may import the gate's own package for
# `record` and `step`.
_TOOLS = {"pip", "setuptools", "wheel", "pkg-resources", "repro-gate"}
_SHOWN = 500  # characters of a variable's value


@check(
    "env/lockfile",
    "The declared lockfile is in the checkout, can be read, and pins every distribution by version "
    "and hash.",
    CHECKOUT,
)
def lockfile(evidence: Evidence) -> Finding:
    """Check the lock. Without hashes it pins only a version's name, not the installed bytes."""
    declared = evidence.spec.env.lockfile
    if declared is None:
        names = [
            os.path.relpath(path, evidence.folder)
            for place in dict.fromkeys((evidence.folder, evidence.root))
            for path in sorted(place.glob("*"))
            if (kind := kind_of(path.name))
            and (kind != "requirements" or "requirements" in path.name)
        ]
        none = (
            f"{evidence.spec.path.name}: no `env.lockfile`, and no lockfile next to it"
        )
        return undeclared(
            "no lockfile is declared, so a rerun may install other versions",
            names[:10] or [none],
            f"name it in the spec: `env: {{lockfile: {(*names, 'requirements.lock')[0]}}}`",
        )
    try:
        lock = _read(evidence, declared)
    except LockfileError as error:
        return failed(
            f"the declared lockfile cannot be used: {error}",
            (str(error),),
            f"correct env.lockfile, commit the file, or {REMEDY}",
        )
    if lock.faults:
        return missing(
            f"{declared} does not pin {counted(len(lock.faults), 'entry')}, so a rerun may install "
            "other files",
            lock.faults,
            REMEDY,
        )
    if evidence.tracked is not None and lock.path not in evidence.tracked:
        return missing(
            "the lockfile is not tracked by git, so a checkout lacks it",
            (lock.path,),
            f"run `git add {lock.path}`",
        )
    return passed(
        f"{declared} pins {counted(len(lock.pins), 'distribution')} by version and hash",
        (f"{declared}: {lock.kind}",),
    )


@check(
    "env/installed",
    "Every distribution that training imported is in the lockfile, with the version that was "
    "imported.",
)
def installed(evidence: Evidence) -> Finding:
    """Compare the imported distributions with the lock, since an unused lock proves nothing."""
    declared = evidence.spec.env.lockfile
    if declared is None:
        return skipped("no lockfile is declared")
    imported = {
        (name, version, trace.facts.get("python", ""))
        for trace in evidence.traces
        for name, version in (trace.distributions or {}).items()
    }
    if not imported:
        return skipped("no run recorded what it imported")
    try:
        lock = _read(evidence, declared)
    except LockfileError as error:
        return skipped(f"the lockfile cannot be used: {error}")
    excused = {*_TOOLS, *original_of(evidence.spec, evidence.checkout).projects}
    faults = []
    for name, version, python in sorted(imported):
        key = str(canonicalize_name(name))
        pins = [pin for pin in lock.pins if pin.name == key]
        here = [pin for pin in pins if applies(pin.marker, python)]
        versions = {str(pin.version) for pin in here}
        # an entry without a version is for `env/lockfile`
        if any(
            pin.version is None or same_version(pin.version, version) for pin in here
        ):
            continue
        if here:
            pinned = f"{', '.join(sorted(versions))} at {here[0].place}"
            faults.append(f"{name} {version}: {pinned}, imported")
        elif key not in excused:
            faults.append(f"{name} {version} is not in the lock for this machine")
    if faults:
        return failed(
            f"{declared} pins {counted(len(faults), 'imported distribution')} differently or not "
            "at all",
            faults,
            f"install only from {declared}, or lock again and commit it",
        )
    return passed(
        f"training imported the distributions that {declared} pins",
        sorted(f"{name} {version}" for name, version, _ in imported),
    )


@check(
    "env/image-digest",
    "The container image is declared by digest, and it is the one that the gate runs in.",
    CHECKOUT,
)
def image_digest(evidence: Evidence) -> Finding:
    """Compare digests, since a tag can be moved to another image. A declaration proves nothing
    unless the running image is known."""
    declared = evidence.spec.env.image
    running = evidence.running_image
    lines = [
        f"declared {declared or 'nothing'}",
        f"running {running or 'in no known image'}",
    ]
    known, digest = (_DIGEST.fullmatch(name or "") for name in (running, declared))
    example = running if known else "ghcr.io/org/train@sha256:<64 hex digits>"
    if declared is None:
        remedy = f"name it in the spec: `env: {{image: {example}}}`"
        return undeclared("no container image is declared", lines, remedy)
    if digest is None:
        remedy = f"write `{example}`; `docker buildx imagetools inspect` prints the digest of a tag"
        if "@" in declared:
            return failed(
                "the declared image's digest is incomplete or misspelt", lines, remedy
            )
        message = (
            "the declared image is named by tag, which can be moved to another image"
        )
        return missing(message, lines, remedy)
    if known is None:
        return missing(
            "the image is declared by digest, but nothing shows that training runs in it",
            lines,
            "run the gate inside that image, or waive this check with a reason",
        )
    if digest[1].lower() != known[1].lower():
        message = "the gate does not run in the declared image"
        return failed(message, lines, "correct env.image, or run in it")
    return passed("the gate runs in the declared image", (declared,))


@check(
    "env/versions",
    "Python, torch, CUDA, cuDNN, NCCL and driver are recorded, and the same in every process of "
    "every run.",
    TRACED,
)
def versions(evidence: Evidence) -> Finding:
    """Compare the versions that can change numbers without a change of the code."""
    facts = by_process(evidence.trained, _SAME)
    for _, values in facts:
        # `python` and `python3` of one environment are the same
        if "interpreter" in values:
            path = Path(values["interpreter"])
            values["interpreter"] = str(path.with_name(path.resolve().name))
    moved = differences(facts)
    if moved:
        return failed(
            "processes trained with different versions",
            moved,
            "start every process with the same interpreter",
        )
    drivers = (
        {"driver": evidence.machine["driver"]} if "driver" in evidence.machine else {}
    )
    same = facts[0][1] | drivers
    has_gpu = any(on_gpu(trace) for _, trace in evidence.trained)
    unknown = [
        key for key in (_ON_GPU if has_gpu else ("python",)) if not same.get(key)
    ]
    known = [f"{key} {value}" for key, value in same.items()]
    if unknown:
        return missing(
            f"the version of {', '.join(unknown)} could not be read, so a rerun cannot be compared "
            "with it",
            known,
            "make it readable: `nvidia-smi` on PATH names the driver, torch the others",
        )
    return passed(
        f"{counted(len(facts), 'training process')} had the same versions", known
    )


@check(
    "env/cublas-workspace",
    "CUBLAS_WORKSPACE_CONFIG held :4096:8 or :16:8 when CUDA started, in every deterministic run.",
)
def cublas_workspace(evidence: Evidence) -> Finding:
    """Check the value at the start of CUDA: cuBLAS reads the variable once, so a later change has
    no effect."""
    started = {
        f"{run.name}, process {trace.key}": trace.facts.get(_CUBLAS_FACT)
        for run, trace in evidence.deterministic
        if trace.trained and (_CUBLAS_FACT in trace.facts or on_gpu(trace))
    }
    if not started:
        return skipped("no deterministic run started CUDA")
    wrong = [
        f"{place}: {value or 'not set'}"
        for place, value in started.items()
        if value is not None and value not in _CUBLAS_VALUES
    ]
    if wrong:
        is_allowed = any(
            item.flag == _CUBLAS for item in evidence.spec.determinism.allow
        )
        return (noticed if is_allowed else failed)(
            f"{_CUBLAS} did not hold {' or '.join(_CUBLAS_VALUES)} when CUDA started, so cuBLAS "
            "may choose other sums",
            wrong,
            "do not unset or change it in the training code or in train.env before CUDA starts, "
            "unless determinism.allow names it",
        )
    unread = [place for place, value in started.items() if value is None]
    if unread:
        return missing(
            f"{_CUBLAS} could not be read when CUDA started",
            unread,
            "import torch before other code starts CUDA",
        )
    return passed(
        f"{_CUBLAS} was set when CUDA started in {counted(len(started), 'process')}",
        sorted({value for value in started.values() if value}),
    )


@check(
    "env/variables",
    "The environment variables that torch or CUDA read are recorded, and the same in both runs of "
    "the pair.",
    PAIR,
)
def variables(evidence: Evidence) -> Finding:
    """Compare the variables, since the code does not show a difference between them."""
    first, second = (processes(run.traces) for run in evidence.pair)
    varied = evidence.pair[1].request.varied
    lines = list[str]()
    same = set[str]()
    for label in first.keys() & second.keys():
        values = first[label].variables, second[label].variables
        for name in {*values[0], *values[1]}:
            one, other = (side.get(name, "not set") for side in values)
            # It belongs to one process, is varied itself, or is a path in a varied folder.
            if (
                one == other
                or _OF_ONE_PROCESS.fullmatch(name)
                or _VARIED.get(name) in varied
                or (varied and as_first(one) == as_first(other))
            ):
                same.add(f"{name}={for_terminal(one, _SHOWN)}")
            else:
                one, other = (for_terminal(value, _SHOWN) for value in (one, other))
                lines.append(f"{label}: {name} {one} and {other}")
    if lines:
        return failed(
            f"{counted(len(lines), 'environment variable', 'differ')} between two runs that should "
            "be the same",
            sorted(lines),
            "set them in train.env to one value, or remove the line that changes them",
        )
    if not same:
        return skipped("no environment variable was recorded")
    return passed(
        f"{counted(len(same), 'environment variable', 'were')} the same in both runs",
        sorted(same),
    )


def _read(evidence: Evidence, declared: str) -> Lock:
    return read_lock(Path(os.path.normpath(evidence.folder / declared)), evidence.root)
