"""Opens the temporary folder of a gate run, with a snapshot of the checkout. If the training runs
as another user, closes the sandbox and tests it before anything is trained."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from packaging.utils import canonicalize_name

from repro_gate.checkout.inspection import Checkout, ignored_files
from repro_gate.checkout.snapshot import MANY, take_snapshot
from repro_gate.data.declared import data_path, resolve_data
from repro_gate.errors import UsageError, obeyed
from repro_gate.files import Unreadable, is_inside, parse_toml, read_text, remove_tree
from repro_gate.runs import arms
from repro_gate.runs.environment import INJECT, Variables, training_environment
from repro_gate.runs.workspaces import GateFolder, Original
from repro_gate.sandbox.cleanup import fixed_folder
from repro_gate.sandbox.confinement import (
    FILE_COMMANDS,
    PACKAGE,
    confined,
    private_folders,
    runner_files,
    sockets,
)
from repro_gate.sandbox.identity import Sandbox, chown_to_training, let_group_pass
from repro_gate.sandbox.reexec import taken_out
from repro_gate.sandbox.self_test import Exposure, prove
from repro_gate.spec.model import Spec

_MODULES = (".py", ".so", ".pyd")
# in setup.py and setup.cfg
_NAME = re.compile(r"""\bname\s*=\s*["']?([A-Za-z0-9][\w.-]*)""")
_PROJECT_BYTES = 1024 * 1024
# an interpreter that PATH is asked for
_BY_NAME = re.compile(r"(?<![\w./-])python[\d.]*(?![\w-])")


@contextmanager
def open_gate_folder(
    spec: Spec,
    checkout: Checkout,
    outer: Variables,
    sandbox: Sandbox,
    within_reach: Sequence[Path] = (),
    tell: Callable[[str], None] = lambda _: None,
) -> Iterator[GateFolder]:
    """Open a temporary folder with a snapshot of the checkout, and always remove it at the end.
    While it is open, a training with its own user is confined, which a self-test has confirmed.
    `within_reach` are further folders that the training needs; `tell` gets a line before many files
    are copied, and during a run. Raises Inconclusive if the training cannot be confined,
    UsageError if its `scratch` cannot be used.
    """
    folder = spec.path.parent
    data = resolve_data(spec.data, folder)
    with (
        fixed_folder(sandbox, _scratch(spec, checkout, sandbox)) as path,
        confined(sandbox, outer, checkout.root, data, [path, *within_reach]),
    ):
        with obeyed():
            snapshot = take_snapshot(
                checkout,
                path / "snapshot",
                [data_path(item, folder) for item in spec.data],
                tell,
            )
        for name in ("traces", "artifacts"):
            (path / name).mkdir(mode=0o700)
        let_group_pass(sandbox, path / "traces")
        if sandbox.own_user:
            # The copy has the mode of the checkout, which the training cannot read, or whose folder
            # it cannot enter.
            snapshot.root.chmod(0o700)
            _self_test(sandbox, spec, path, checkout.root, outer, data)
        yield GateFolder(
            path=path,
            snapshot=snapshot,
            outer=outer,
            sandbox=sandbox,
            original=original_of(spec, checkout),
            tell=tell,
        )


def _scratch(spec: Spec, checkout: Checkout, sandbox: Sandbox) -> Path | None:
    """Return the folder that the spec names for the runs. It must exist outside the checkout, and a
    training with its own user must not be able to replace what lies there. Raise UsageError for
    another one."""
    if spec.scratch is None:
        return None
    folder = Path(os.path.realpath(spec.path.parent / spec.scratch))
    why = ""
    if not folder.is_dir():
        why = "is not a folder that exists"
    elif is_inside(folder, checkout.root):
        why = "lies in the checkout, of which each run gets a copy"
    elif sandbox.own_user and any(
        # Everybody may replace what others have there, or its owner is the training.
        state.st_mode & 0o1002 == 0o002 or state.st_uid == sandbox.uid
        for state in map(os.stat, (folder, *folder.parents))
    ):
        why = "can be written to by the training"
    if why:
        raise UsageError(
            f"scratch: {folder} {why}",
            remedy="name another folder, as `scratch` in the spec or by --scratch",
            reason_id="usage/scratch",
        )
    return folder


def remove_copies(folder: GateFolder) -> None:
    """Remove the checkout's copies when nothing needs them any more. Doing it before the report is
    made includes the time in the report."""
    if folder.snapshot.files >= MANY:
        folder.tell(f"removing the copies of {folder.snapshot.files:,} files")
    for name in ("run", "snapshot"):
        remove_tree(folder.path / name)


def original_of(spec: Spec, checkout: Checkout) -> Original:
    """Return the facts by which the probe recognizes the checkout's own packages. Its projects are
    at the root or above the spec."""
    root = checkout.root
    folder = Path(os.path.realpath(spec.path.parent))
    projects = {above for above in (folder, *folder.parents) if root in above.parents}
    names = (
        name for place in projects | {root} for name in _project_names(place, root)
    )
    return Original(
        root,
        ignored_files(root, _MODULES) if checkout.is_git else (),
        tuple(sorted(set(map(canonicalize_name, names)))),
    )


def _project_names(folder: Path, root: Path) -> Iterator[str]:
    """Yield the names of the distributions that the project in `folder` declares."""
    for name in ("pyproject.toml", "setup.cfg", "setup.py"):
        with suppress(Unreadable):
            text = read_text(folder / name, root, _PROJECT_BYTES)
            if name != "pyproject.toml":
                yield from _NAME.findall(text)[:100]
                continue
            document = parse_toml(text)
            with suppress(KeyError, TypeError):
                yield str(document["project"]["name"])
            with suppress(KeyError, TypeError):
                yield str(document["tool"]["poetry"]["name"])


def _self_test(
    sandbox: Sandbox,
    spec: Spec,
    path: Path,
    checkout: Path,
    outer: Variables,
    data: tuple[Path, ...],
) -> None:
    """Try every known escape in a deterministic run's environment. `train.env` is left out: it is
    untrusted and could falsify the test. `path` is the gate run's folder, with its snapshot. Raises
    Inconclusive that names each escape that succeeded.
    """
    scratch = path / "trial"
    scratch.mkdir(mode=0o700)
    chown_to_training(sandbox, scratch)
    arm = arms.deterministic(spec.seed, frozenset(), spec.train.steps)
    environment = training_environment(outer, arm, {}, scratch, spec.hardware.device)
    private = (*private_folders(outer, checkout), *runner_files(outer))
    git = checkout / ".git"
    own = (path, path / "snapshot", path / "traces")
    probe = INJECT / "sitecustomize.py"
    python = Path(sys.executable)
    gate = (PACKAGE.parent, PACKAGE, INJECT, probe, Path(sys.prefix), python)
    secrets = (*taken_out({**os.environ, **outer}), *FILE_COMMANDS, "GITHUB_EVENT_PATH")
    exposure = Exposure(
        unreadable=tuple(dict.fromkeys((*private, git, git / "config", *own))),
        unwritable=(*gate, python.resolve().parent),
        sockets=sockets(outer),
        forbidden=tuple(dict.fromkeys(secrets)),
        reach=(scratch, probe),
        data=data,
        start=_pythons(spec, outer),
    )
    prove(sandbox, exposure, environment, scratch)
    remove_tree(scratch)


def _pythons(spec: Spec, outer: Variables) -> tuple[Path, ...]:
    """Return the interpreters that the command names. Checking now that the user can start them
    gives a better message than status 126 later."""
    if "PATH" in spec.train.env:
        return ()
    names = sorted(set(_BY_NAME.findall(spec.train.run or "python train.py")))
    found = [shutil.which(name, path=outer.get("PATH", os.defpath)) for name in names]
    return tuple(Path(os.path.abspath(path)) for path in found if path)
