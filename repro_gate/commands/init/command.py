"""`repro-gate init`: asks on a terminal which script trains, compares lockfiles with what is
installed, and writes the draft."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

from repro_gate.checks.env import compare_with_lock
from repro_gate.commands.init.draft import draft_spec
from repro_gate.commands.init.scripts import TrainingScript, training_scripts
from repro_gate.commands.init.survey import walk
from repro_gate.errors import UsageError
from repro_gate.escape import for_terminal, listed
from repro_gate.install.lockfiles import LockfileError, read_lock
from repro_gate.trace import notebook

_INSTALLED = (
    "import importlib.metadata as m, json, platform; print(json.dumps([platform.python_version(), "
    "{d.metadata['Name']: d.version for d in m.distributions() if d.metadata['Name']}]))"
)


def init(folder: Path, script: Path | None, *, to_stdout: bool, force: bool) -> int:
    """Write `repro.yml` for the checkout at `folder`, or print it. Returns the exit code; raises
    UsageError."""
    target = folder / "repro.yml"
    if not to_stdout and target.exists() and not force:
        raise UsageError(
            f"{target}: already exists",
            remedy="write it anew with --force, or see a draft with `repro-gate init --stdout`",
        )
    tree = walk(folder)
    scripts = training_scripts(
        folder, tree, _inside(folder, script) if script is not None else None
    )
    if (
        script is None
        and not to_stdout
        and len(scripts) > 1
        and sys.stdin.isatty()
        and sys.stdout.isatty()
    ):
        scripts = _choose(scripts)
    text = draft_spec(folder, tree, scripts, lambda path: _doubt(folder, path))
    if to_stdout:
        print(text, end="")
        return 0
    try:
        with target.open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise UsageError(f"{target}: cannot be written: {error.strerror}") from None
    lines = text.splitlines()
    run = next(number for number, line in enumerate(lines, 1) if line.startswith("  run: "))
    todo = (
        f"fill in `train.run` at line {run}, then: "
        if any("# FILL IN" in line for line in lines)
        else ""
    )
    took = (
        f" for {scripts[0].path} ({', '.join(scripts[0].reasons) or 'by its name'})"
        if scripts
        else ""
    )
    print(f"wrote {target}{for_terminal(took)}; next: {todo}repro-gate run {folder}")
    return 0


def _inside(folder: Path, script: Path) -> str:
    """The path of `--script` below the checkout; it may be given from the checkout or from where
    the command is run."""
    top = Path(os.path.normpath(folder.absolute()))
    for path in (folder / script, script):
        found = Path(os.path.normpath(path.absolute()))
        if (
            found.is_file()
            and found.suffix in (".py", notebook.SUFFIX)
            and found.is_relative_to(top)
        ):
            return found.relative_to(top).as_posix()
    raise UsageError(
        f"--script {script}: is not a Python file or a notebook in {folder}",
        remedy="name one, or write another command under `train.run`",
    )


def _choose(scripts: list[TrainingScript]) -> list[TrainingScript]:
    """Ask which of the scripts trains; Enter, or the end of the input, takes the first."""
    print("Which script trains?")
    for number, script in enumerate(scripts, 1):
        print(f"  {number}  {script.path}  ({', '.join(script.reasons)})")
    while True:
        try:
            answer = input("number [1]: ").strip() or "1"
        except EOFError:
            answer = "1"
        if answer.isascii() and answer.isdigit() and 1 <= int(answer) <= len(scripts):
            chosen = scripts[int(answer) - 1]
            return [chosen, *(script for script in scripts if script is not chosen)]


def _doubt(folder: Path, lockfile: str) -> str | None:
    """Why the environment of `python` was not built from a lockfile; None where it agrees, and
    where nothing is known."""
    found = _installed()
    try:
        lock = read_lock(folder / lockfile, folder)
    except LockfileError as error:
        return f"it cannot be read: {error}"
    if found is None:
        return None
    version, packages = found
    compared = compare_with_lock(
        {name: frozenset({number}) for name, number in packages.items()}, lock, frozenset(), version
    )
    if compared.differing:
        return f"`python` here was not set up from it (installed {listed(compared.differing, 1)})"
    return (
        None
        if compared.equal
        else "`python` here was not set up from it: nothing that it pins is installed"
    )


@cache
def _installed() -> tuple[str, dict[str, str]] | None:
    """The version of the training's Python, and its packages. It is asked in isolated mode, so
    nothing of the checkout runs."""
    python = shutil.which("python") or shutil.which("python3")
    try:
        answer = subprocess.run(
            [python or "python3", "-I", "-c", _INSTALLED],
            capture_output=True,
            timeout=60,
            check=True,
            cwd="/",
        )
        version, packages = json.loads(answer.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return str(version), {str(name): str(number) for name, number in packages.items()}
