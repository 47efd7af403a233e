"""What goes into the config hash: the recipe from the spec, the code and the data, the platform
from what training and gate saw.

Only what can change numbers is an input: not how long a run may take, what is recorded of it, or
how it is judged.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from repro_gate.baseline.config_hash import ConfigHash, InputValue, hash_inputs
from repro_gate.baseline.model import FILE_NAME
from repro_gate.checkout.snapshot import Snapshot
from repro_gate.data.declared import DataFinding
from repro_gate.data.hashing import file_sha256
from repro_gate.errors import Inconclusive
from repro_gate.files import is_below, walk
from repro_gate.runs import arms, flags
from repro_gate.spec.model import Spec

# characters; a longer command or value stands by its digest, so that reports and baselines stay
# small
LONG_TEXT = 1_024
_FACTS = ("python", "torch", "threads", "digest")
_GPU_FACTS = ("cuda", "cudnn", "nccl", "gpu-sm-count", "gpu-model")
_COUNTS = ("threads", "gpu-sm-count", "cudnn")


def config_hash_of(
    spec: Spec,
    snapshot: Snapshot,
    data: Sequence[DataFinding],
    facts: Mapping[str, str],
    machine: Mapping[str, str],
    image: str | None,
) -> ConfigHash:
    """Return the config hash of a snapshot. `data` are the declared items as found, `facts` those
    of the first process that trained.

    Raise Inconclusive where the snapshot cannot be read.
    """
    folder = os.path.relpath(os.path.realpath(spec.path.parent), snapshot.source)
    # what has inputs of its own, or must not count
    left_out = set()
    lock = spec.env.lockfile or FILE_NAME
    for name in (spec.path.name, FILE_NAME, lock, *(item.path for item in data)):
        path = _path(name, folder)
        if os.path.isabs(path):
            above, last = os.path.split(path)
            real = os.path.join(os.path.realpath(above), last)
            path = os.path.relpath(real, snapshot.source)
        left_out.add(path)
    digest = None
    # the snapshot's copy, or, where git ignores it, the file itself
    places = (snapshot.root / folder, spec.path.parent) if spec.env.lockfile else ()
    for place in places:
        with contextlib.suppress(OSError, ValueError):  # ValueError: a NUL in the path
            digest = f"sha256:{file_sha256(place / lock)}"
            break
    code = code_digest(snapshot.root, left_out)
    recipe = recipe_inputs(spec, code, data, digest, folder)
    return hash_inputs(recipe, platform_inputs(facts, machine, image))


def recipe_inputs(
    spec: Spec,
    code: str,
    data: Sequence[DataFinding],
    lockfile: str | None,
    folder: str = ".",
) -> dict[str, InputValue]:
    """Return what is trained, on what, and how. `code` and `lockfile` are digests; `folder` is the
    spec's, relative to the checkout's root.

    Paths are relative to the checkout's root, for that is how training finds them: a spec that
    moves, with its paths, changes nothing. A flag is None if the spec leaves it off; the hash seed
    follows the seed, which has an input of its own: only leaving it off is said here.
    """
    allow = arms.allowed(spec)
    arm = arms.deterministic(0, allow, None)
    flags_on: dict[str, str | bool] = {**arm.flags, **arm.environment}
    names = [*flags.IN_PROCESS, *flags.IN_ENVIRONMENT, *(allow & {flags.HASH_SEED})]
    return {
        "code": code,
        # as it was found, whatever is declared; None if it could not be read
        **{
            f"data/{_path(item.path, folder)}": item.actual
            and {"sha256": item.actual, "bytes": item.size}
            for item in data
        },
        "lockfile": lockfile,
        **({"install": True} if spec.env.install else {}),
        "seeds": list[InputValue](spec.random_state.seeds),
        "steps": spec.train.steps,
        "command": _bounded(spec.train.run)
        if spec.train.run is not None
        else {"snippet": _bounded(spec.train.snippet or "")},
        "working-directory": _path(spec.train.working_directory, folder),
        **{
            f"train.env/{name}": _bounded(value)
            for name, value in spec.train.env.items()
        },
        "hardware.device": spec.hardware.device,
        **{f"flag/{name}": flags_on.get(name) for name in names},
    }


def platform_inputs(
    facts: Mapping[str, str], machine: Mapping[str, str], image: str | None
) -> dict[str, InputValue]:
    """Return what it is trained with. `facts` are those of a trace, `machine` those of
    `read_machine`, `image` the digest reference of the image that everything runs in; a fact that
    is not known is None. What training did not use is no input: no GPU of a training on the CPU.
    `digest` changes no number, but what a baseline records of them."""
    device, _, model = facts.get("device", "").partition(": ")
    on_gpu = device == "cuda"
    of_machine = ("driver",) if on_gpu else ("cpu-model",)
    used: dict[str, InputValue] = {name: machine.get(name) for name in of_machine}
    for name in (*_FACTS, *_GPU_FACTS) if on_gpu else _FACTS:
        value = facts.get(name, "")
        is_count = name in _COUNTS and value.isdecimal() and len(value) <= 18
        used[name] = int(value) if is_count else value or None
    if on_gpu and "hip" in facts:
        used["hip"] = facts["hip"]
    if not on_gpu:
        # torch's instruction set, or of a training without torch the machine's
        used["cpu-isa"] = model or None
    return {"image": image.partition("@")[2] or None if image else None, **used}


def _path(path: str, folder: str) -> str:
    """Return a path of the spec relative to the checkout's root, `.` and `..` taken out as the gate
    does; an absolute one stays absolute."""
    return os.path.normpath(os.path.join(folder, path))


def _bounded(text: str) -> InputValue:
    if len(text) <= LONG_TEXT:
        return text
    return {
        "sha256": hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest(),
        "characters": len(text),
    }


def code_digest(root: Path, leave_out: Collection[str]) -> str:
    """Return `sha256:…` over all files and links below `root`, but those in `leave_out` or below a
    folder in it.

    The hash is over `repro-gate/code/v1`, a NUL, and one record for each file, ordered by the bytes
    of its path: its kind (`file`, `executable` or `link`), a space, the SHA-256 of its contents (of
    a link: of its target) in hex, two spaces, the path, a NUL. Raise Inconclusive for a file that
    cannot be read. Neither the place of the checkout nor its user, times, other permissions or
    empty folders count: git does not carry them.
    """
    tree = hashlib.sha256(b"repro-gate/code/v1\0")
    try:
        files = (name for name in walk(root) if not name.endswith("/"))
        for name in sorted(files, key=os.fsencode):
            if not is_below(name, leave_out):
                path = root / name
                status = os.lstat(path)
                if stat.S_ISLNK(status.st_mode):
                    target = os.fsencode(os.readlink(path))
                    record = f"link {hashlib.sha256(target).hexdigest()}"
                else:
                    is_program = status.st_mode & stat.S_IXUSR
                    kind = "executable" if is_program else "file"
                    record = f"{kind} {file_sha256(path)}"
                tree.update(f"{record}  ".encode() + os.fsencode(name) + b"\0")
    except OSError as error:
        raise Inconclusive(
            f"{error.filename} cannot be read from the snapshot of the checkout: {error.strerror}",
            reason_id="config-hash/code",
            remedy="let nothing else write to the temporary folder (TMPDIR) while the gate runs",
        ) from error
    return f"sha256:{tree.hexdigest()}"
