"""What goes into the config hash: the recipe's inputs from the spec and the checkout, the platform's from what training and gate saw.
Pure. Only what can change numbers is an input: not how long a run may take, what is recorded of it, or how it is judged.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence

from repro_gate.baseline.config_hash import InputValue
from repro_gate.data.declared import DataFinding
from repro_gate.runs import arms
from repro_gate.spec.model import Spec

LONG_TEXT = 1_024  # characters; a longer command or value stands by its digest, so that reports and baselines stay small
_CUDA = ("cuda", "cudnn", "nccl")
_COUNTS = ("threads", "gpu-sm-count", "cudnn")


def recipe_inputs(spec: Spec, code: str, data: Sequence[DataFinding], lockfile: str | None, folder: str = ".") -> dict[str, InputValue]:
    """What is trained, on what, and how. `code` and `lockfile` are digests; `folder` is the spec's, relative to the checkout's root.

    Paths are relative to the checkout's root, for that is how training finds them: a spec that moves, with its paths, changes nothing.
    """
    return {
        "code": code,
        **{f"data/{_path(item.path, folder)}": _found(item) for item in data},
        "lockfile": lockfile,
        **({"install": True} if spec.env.install else {}),
        "seeds": list[InputValue](spec.random_state.seeds),
        "steps": spec.train.steps,
        "command": _bounded(spec.train.run) if spec.train.run is not None else {"snippet": _bounded(spec.train.snippet or "")},
        "working-directory": _path(spec.train.working_directory, folder),
        **{f"train.env/{name}": _bounded(value) for name, value in spec.train.env.items()},
        "hardware.device": spec.hardware.device,
        **_flags(spec),
    }


def platform_inputs(facts: Mapping[str, str], machine: Mapping[str, str], image: str | None) -> dict[str, InputValue]:
    """What it is trained with. `facts` are those of a trace, `machine` those of `read_machine`, `image` the digest reference of the image
    that everything runs in; a fact that is not known is None. What training did not use is no input: no GPU of a training on the CPU."""
    device, _, model = facts.get("device", "").partition(": ")
    used: dict[str, str | None] = {"python": facts.get("python"), "torch": facts.get("torch"), "threads": facts.get("threads")}
    if device == "cuda":
        used |= {name: facts.get(name) for name in (*_CUDA, "gpu-sm-count")}
        used |= {"driver": machine.get("driver"), "gpu-model": facts.get("gpu-model") or model or None}
    else:
        used |= {"cpu-model": machine.get("cpu-model"), "cpu-isa": facts.get("cpu-isa") or model or None}
    return {"image": image.partition("@")[2] or None if image else None, **{name: _fact(name, value) for name, value in used.items()}}


def _flags(spec: Spec) -> dict[str, InputValue]:
    """Each flag of the deterministic arm with its value, None where the spec leaves it off.

    The hash seed follows the seed, which has an input of its own: only leaving it off is said here.
    """
    allow = frozenset(item.flag for item in spec.determinism.allow)
    arm = arms.deterministic(0, allow, None)
    values = {**arm.flags, **arm.environment}
    names = [*arms.IN_PROCESS, *arms.IN_ENVIRONMENT, *([arms.HASH_SEED] if arms.HASH_SEED in allow else [])]
    return {f"flag/{name}": values.get(name) for name in names}


def _found(item: DataFinding) -> InputValue:
    """An item as it was found, whatever is declared; None where it could not be read."""
    return None if item.actual is None else {"sha256": item.actual, "bytes": item.size}


def _path(path: str, folder: str) -> str:
    """A path of the spec relative to the checkout's root, `.` and `..` taken out as the gate does; an absolute one stays absolute."""
    return os.path.normpath(os.path.join(folder, path))


def _bounded(text: str) -> InputValue:
    if len(text) <= LONG_TEXT:
        return text
    return {"sha256": hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest(), "characters": len(text)}


def _fact(name: str, value: str | None) -> InputValue:
    """A fact as it was read; counts as numbers."""
    return int(value) if value is not None and name in _COUNTS and value.isascii() and value.isdecimal() and len(value) < 19 else value
