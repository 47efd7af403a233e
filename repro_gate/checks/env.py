"""Checks of category `env`: can the software be set up again, and was it what trained?"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from packaging.utils import canonicalize_name

from repro_gate.checks.interface import (
    CHECKOUT,
    Evidence,
    Finding,
    check,
    failed,
    missing,
    noticed,
    passed,
    skipped,
    undeclared,
)
from repro_gate.compare.traces import processes
from repro_gate.escape import clip
from repro_gate.files import Unreadable, read_text
from repro_gate.install.lockfiles import (
    REMEDY,
    Lock,
    LockfileError,
    Pin,
    applies,
    kind_of,
    read_lock,
    same_version,
)
from repro_gate.runs.launch import Run
from repro_gate.runs.variation import as_first
from repro_gate.spec.errors import escaped
from repro_gate.spec.model import THREADS
from repro_gate.trace.model import Trace

_ON_GPU = ("python", "torch", "cuda", "cudnn", "nccl", "driver")
_SAME = (*_ON_GPU, "interpreter")
_DIGEST = re.compile(r"\S+@sha256:([0-9a-f]{64})", re.IGNORECASE)
_CUBLAS = "CUBLAS_WORKSPACE_CONFIG"
_CUBLAS_FACT = "cublas-workspace-at-cuda-start"
_CUBLAS_VALUES = (":4096:8", ":16:8")  # the two that NVIDIA's documentation calls reproducible
# Different in each process of a run, or in each run, by what they are: ranks, and the rendezvous
# that a launcher opens.
_OF_ONE_PROCESS = re.compile(
    r"(?:LOCAL_|GROUP_|ROLE_)?RANK|MASTER_(?:ADDR|PORT)|TORCHELASTIC_.*|ROLE_NAME|.*_RUN_ID|REPRO_GATE_.*"
)
# What sets an environment up is often outside its lock, and the gate's own package may be imported
# for `record` and `step`.
_TOOLS = frozenset({"pip", "setuptools", "wheel", "pkg-resources", "repro-gate"})
_NAME = re.compile(r"""(?:^|[\s(,])name\s*=\s*["']?([A-Za-z0-9][A-Za-z0-9._-]{0,99})""")
_MAX_BYTES = 1024 * 1024
_SHOWN = 500  # characters of a variable's value


@check(
    "env/lockfile",
    "The declared lockfile is in the checkout, can be read, and pins every distribution by version "
    "and hash.",
    CHECKOUT,
)
def lockfile(evidence: Evidence) -> Finding:
    """A lock without hashes pins what an index calls a version, not the bytes that are
    installed."""
    declared = evidence.spec.env.lockfile
    if declared is None:
        found = _undeclared(evidence)
        remedy = (
            "name it in the spec: `env: {lockfile: "
            f"{found[0] if found else 'requirements.lock'}}}`"
        )
        lines = found or (
            f"{evidence.spec.path.name}: no `env.lockfile`, and no lockfile beside it",
        )
        return undeclared(
            "no lockfile is declared, so a rerun may install other versions", lines, remedy
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
            f"{declared} leaves {len(lock.faults)} entries open, so a rerun may install other "
            "files",
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
        f"{declared} pins {len(lock.pins)} distributions by version and hash",
        (f"{declared}: {lock.kind}",),
    )


@check(
    "env/installed",
    "Every distribution that training imported is in the lockfile, with the version that was "
    "imported.",
)
def installed(evidence: Evidence) -> Finding:
    """A lock that nobody installed from says nothing about the run."""
    declared = evidence.spec.env.lockfile
    if declared is None:
        return skipped("no lockfile is declared")
    imported, python = _imported(evidence)
    if not imported:
        return skipped("no run recorded what it imported")
    try:
        lock = _read(evidence, declared)
    except LockfileError as error:
        return skipped(f"the lockfile cannot be used: {error}")
    root, folder = evidence.root, evidence.folder
    found = compare_with_lock(imported, lock, own_names(root, folder, root=root), python)
    if found.wrong:
        remedy = f"install from {declared} alone, or lock again and commit it"
        return failed(
            f"training imported {len(found.wrong)} distributions that {declared} does not pin so",
            found.wrong,
            remedy,
        )
    if found.open:
        return missing(
            f"{declared} names {len(found.open)} imported distributions without a version",
            found.open,
            "pin them by ==",
        )
    return passed(
        f"{len(found.equal)} imported distributions have the version of {declared}", found.equal
    )


@check(
    "env/image-digest",
    "The container image is declared by digest, and it is the one that the gate runs in.",
    CHECKOUT,
)
def image_digest(evidence: Evidence) -> Finding:
    """A tag can be moved to another image; a digest cannot. What is declared counts only where the
    running image is known."""
    declared, running = evidence.spec.env.image, evidence.running_image
    known = _DIGEST.fullmatch(running or "")
    example = running if known else "ghcr.io/org/train@sha256:<64 hex digits>"
    if declared is None:
        lines = (
            f"{evidence.spec.path.name}: no `env.image`",
            *((f"running {running}",) if running else ()),
        )
        return undeclared(
            "no container image is declared",
            lines,
            f"name it in the spec: `env: {{image: {example}}}`",
        )
    wanted = _DIGEST.fullmatch(declared)
    if wanted is None:
        remedy = f"write `{example}`; `docker buildx imagetools inspect` prints the digest of a tag"
        if "@" in declared:
            return failed("the declared image's digest is cut or misspelt", (declared,), remedy)
        message = "the declared image is named by tag, which can be moved to another image"
        return missing(message, (declared,), remedy)
    if known is None:
        message = "the image is declared by digest, and nothing shows that training runs in it"
        return missing(
            message,
            (declared,),
            "run the gate inside that image, or waive this check with a reason",
        )
    if wanted[1].lower() != known[1].lower():
        remedy = "correct env.image, or run in it"
        return failed(
            "the gate runs in another image than the declared one",
            (f"declared {declared}", f"running {running}"),
            remedy,
        )
    return passed("the gate runs in the declared image", (declared,))


@check(
    "env/versions",
    "Python, torch, CUDA, cuDNN, NCCL and driver are recorded, and the same in every process of "
    "every run.",
    traced=True,
)
def versions(evidence: Evidence) -> Finding:
    """Each of these can change numbers without a change to the code."""
    facts = [_versions(trace, evidence) for _, trace in evidence.trained]
    moved = [key for key in _SAME if len({item.get(key) for item in facts}) > 1]
    if moved:
        lines = [
            f"{key}: {', '.join(sorted({item.get(key, 'not recorded') for item in facts}))}"
            for key in moved
        ]
        return failed(
            "processes trained with different versions",
            lines,
            "start every process with the same interpreter",
        )
    on_gpu = any(trace.facts.get("device", "").startswith("cuda") for _, trace in evidence.trained)
    unknown = [key for key in (_ON_GPU if on_gpu else ("python",)) if not facts[0].get(key)]
    shown = tuple(f"{key} {facts[0][key]}" for key in _SAME if facts[0].get(key))
    if unknown:
        message = (
            f"the version of {', '.join(unknown)} could not be read, so a rerun cannot be compared "
            "with it"
        )
        return missing(
            message,
            shown,
            "run where it can be read: `nvidia-smi` on PATH names the driver, torch the others",
        )
    return passed(f"all {len(facts)} training processes had the same versions", shown)


@check(
    "env/cublas-workspace",
    "CUBLAS_WORKSPACE_CONFIG held :4096:8 or :16:8 when CUDA started, in every deterministic run.",
)
def cublas_workspace(evidence: Evidence) -> Finding:
    """cuBLAS reads the variable once, when it makes its handle: what is set later changes
    nothing."""
    runs = [run for run in evidence.runs if run.plan.arm.name == "deterministic"]
    started = {
        f"{run.plan.name}, process {trace.key}": trace.facts.get(_CUBLAS_FACT)
        for run in runs
        for trace in run.traces
        if trace.trained
        and (_CUBLAS_FACT in trace.facts or trace.facts.get("device", "").startswith("cuda"))
    }
    if not started:
        return skipped("no deterministic run started CUDA")
    unread = [place for place, value in started.items() if value is None]
    wrong = [
        f"{place}: {value or 'not set'}"
        for place, value in started.items()
        if value not in (None, *_CUBLAS_VALUES)
    ]
    allowed = next((item for item in evidence.spec.determinism.allow if item.flag == _CUBLAS), None)
    if wrong and allowed:
        remedy = "none while the flag is under determinism.allow"
        return noticed(
            f"{_CUBLAS} was off when CUDA started, as determinism.allow says: {allowed.reason}",
            wrong,
            remedy,
        )
    if wrong:
        message = (
            f"{_CUBLAS} did not hold {' or '.join(_CUBLAS_VALUES)} when CUDA started, so cuBLAS "
            "may choose other sums"
        )
        return failed(
            message,
            wrong,
            "do not unset or change it in the training code or in train.env before CUDA starts",
        )
    if unread:
        return missing(
            f"{_CUBLAS} could not be read when CUDA started",
            unread,
            "import torch before other code starts CUDA",
        )
    message = f"{_CUBLAS} stood in the environment when CUDA started in {len(started)} processes"
    return passed(message, sorted({value for value in started.values() if value}))


@check(
    "env/variables",
    "The environment variables that torch or CUDA read are recorded, and the same in both runs of "
    "the pair.",
)
def variables(evidence: Evidence) -> Finding:
    """A variable that only one run saw is a difference that the code does not show."""
    if len(evidence.pair) < 2:
        return skipped("there is no pair of runs")
    first, second = (processes(run.traces) for run in evidence.pair[:2])
    pairs = [
        (label, first[label].variables, second[label].variables)
        for label in first
        if label in second
    ]
    if not any(one or other for _, one, other in pairs):
        return skipped("no environment variable was recorded")
    lines = [
        f"{label}: {name} {_value(one.get(name))} and {_value(other.get(name))}"
        for label, one, other in pairs
        for name in sorted(one.keys() | other.keys())
        if one.get(name) != other.get(name)
        and not _OF_ONE_PROCESS.fullmatch(name)
        and not _varied(name, one, other, evidence.pair[1])
    ]
    if lines:
        message = (
            f"{len(lines)} environment variables differ between two runs that should be the same"
        )
        return failed(
            message,
            lines,
            "set them in train.env to one value, or remove the line that changes them",
        )
    names = {f"{name}={_value(value)}" for _, one, _ in pairs for name, value in one.items()}
    return passed(f"{len(names)} environment variables were the same in both runs", sorted(names))


def _varied(name: str, one: Mapping[str, str], other: Mapping[str, str], run: Run) -> bool:
    """Whether a variable differs because the second run is varied in it, or in a folder that it
    names."""
    by_name = {
        "PYTHONHASHSEED": "hash-seed",
        "OMP_NUM_THREADS": THREADS,
        "MKL_NUM_THREADS": THREADS,
    }
    if by_name.get(name) in run.plan.varied:
        return True
    both = name in one and name in other and bool(run.plan.varied)
    return both and as_first(other[name]) == as_first(one[name])


def _read(evidence: Evidence, declared: str) -> Lock:
    return read_lock(Path(os.path.normpath(evidence.folder / declared)), evidence.root)


def _undeclared(evidence: Evidence) -> tuple[str, ...]:
    """Lockfiles beside the spec or at the root, as the spec would name them."""
    found = [
        os.path.relpath(path, evidence.folder)
        for place in dict.fromkeys((evidence.folder, evidence.root))
        for path in sorted(place.glob("*"))
        if (kind := kind_of(path.name)) and (kind != "requirements" or "requirements" in path.name)
    ]
    return tuple(found[:10])


def _imported(evidence: Evidence) -> tuple[dict[str, frozenset[str]], str | None]:
    """What training imported (name -> versions seen), and the Python that did."""
    traces = [
        trace for run in evidence.runs for trace in run.traces if trace.distributions is not None
    ]
    found: dict[str, frozenset[str]] = {}
    for trace in traces:
        for name, version in (trace.distributions or {}).items():
            found[name] = found.get(name, frozenset()) | {version}
    return found, next((trace.facts["python"] for trace in traces if "python" in trace.facts), None)


def _versions(trace: Trace, evidence: Evidence) -> dict[str, str]:
    return {
        **{key: trace.facts[key] for key in _SAME if key in trace.facts},
        **(
            {"interpreter": _interpreter(trace.facts["interpreter"])}
            if "interpreter" in trace.facts
            else {}
        ),
        **({"driver": evidence.machine["driver"]} if "driver" in evidence.machine else {}),
    }


def _interpreter(path: str) -> str:
    """The interpreter by its environment: `bin/python` and `bin/python3` of one environment are
    one."""
    return os.path.join(os.path.dirname(path), os.path.basename(os.path.realpath(path)))


def _value(value: str | None) -> str:
    if value is None:
        return "not set"
    return clip(escaped(value), _SHOWN)


@dataclass(frozen=True)
class LockComparison:
    """Imported distributions compared with a lock, as lines of evidence. `open` are those that the
    lock names without pinning them."""

    equal: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    open: list[str] = field(default_factory=list)


def compare_with_lock(
    imported: Mapping[str, frozenset[str]], lock: Lock, own: frozenset[str], python: str | None
) -> LockComparison:
    """Each imported distribution (name -> versions seen) compared with the lock's pins for this
    machine and this Python."""
    pins: dict[str, list[Pin]] = {}
    for pin in lock.pins:
        if not pin.own:
            pins.setdefault(pin.name, []).append(pin)
    own |= {pin.name for pin in lock.pins if pin.own}
    found = LockComparison()
    for given, versions in sorted(imported.items()):
        name = str(canonicalize_name(given))
        here = [pin for pin in pins.get(name, ()) if applies(pin.marker, python)]
        if not here and (name in _TOOLS or name in own):
            continue
        for version in sorted(versions):
            match = [pin for pin in here if pin.version and same_version(pin.version, version)]
            bare = [pin for pin in here if pin.version is None]
            if match:
                locked = match[0].version
                suffix = f" ({locked} in the lock)" if locked != version else ""
                found.equal.append(f"{given} {version}{suffix}")
            elif bare:
                line = f"{given} {version}: {bare[0].place} names no version"
                (found.open if bare[0].fault else found.equal).append(line)
            elif here:
                pinned = ", ".join(sorted({str(pin.version) for pin in here}))
                line = f"{given} {version}: {pinned} at {here[0].place}, imported"
                found.wrong.append(line)
            else:
                elsewhere = " (for other machines alone)" if name in pins else ""
                found.wrong.append(f"{given} {version}{elsewhere} is not in the lock")
    return found


def own_names(*folders: Path, root: Path) -> frozenset[str]:
    """Names under which the checkout's own code may be installed: what pyproject.toml, setup.cfg
    and setup.py in these folders call a name. Whoever writes these files writes the lock too, so
    reading more names than the package's excuses nothing that they could not."""
    found = set[str]()
    for path in (
        folder / name for folder in folders for name in ("pyproject.toml", "setup.cfg", "setup.py")
    ):
        with contextlib.suppress(Unreadable):
            found.update(_NAME.findall(read_text(path, root, _MAX_BYTES)))
    return frozenset(str(canonicalize_name(name)) for name in found)
