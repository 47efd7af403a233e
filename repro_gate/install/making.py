"""Makes one environment: a virtual environment on top of another environment, with the lock's distributions.

`--system-site-packages` would show the interpreter's own site folders, and where that interpreter is itself in a virtual environment (as in
the image) not those of that one. So the folders that the base has on `sys.path` are added by a `.pth` file of ours, behind the new one's.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from repro_gate.errors import Inconclusive, UsageError
from repro_gate.files import read_start
from repro_gate.install.base import Base
from repro_gate.install.pip import holds_credentials, pip_command, run
from repro_gate.install.requirements import Wanted
from repro_gate.sandbox.identity import Isolation

PTH = "_repro_gate_base.pth"
_ENSURED = frozenset({"pip", "setuptools"})  # what ensurepip installs
_MOST_SCRIPT = 64 * 1024  # bytes; launchers that pip writes have some hundred
_MOST_SCRIPTS = 20_000
_PLAIN = re.compile(rb"#!(?P<python>/[^\s\0]+)[ \t]*\r?\n")
_THROUGH_SHELL = re.compile(rb"#!/bin/sh\n'''exec' \"?(?P<python>/[^\"\n\0]+?)\"? \"\$0\" \"\$@\"\n' '''\n")
_OWN = re.compile(r"(?:python|pip|easy_install|wheel|activate|deactivate|idle|pydoc|2to3)[\w.-]*", re.IGNORECASE)


def make(folder: Path, work: Path, wanted: Wanted, base: Base, environment: dict[str, str], isolation: Isolation) -> None:
    """The environment at `folder` (empty, the training's user may write to it). `work` holds HOME, TMPDIR and the lock. Raises Inconclusive
    where a part of it fails."""
    if wanted.from_source and holds_credentials(environment):
        raise UsageError(
            f"env.install: {wanted.name} asks for source archives (--no-binary), whose code could read what the index is opened with",
            remedy="take --no-binary out of the lock, or give the index without credentials",
            reason_id="install/lockfile",
        )
    run([base.executable, "-I", "-m", "venv", "--without-pip", "--symlinks", str(folder)], "`python -m venv`", work, environment, isolation)
    _show_base(folder, base)
    _double_scripts(folder, base)
    python = folder / "bin" / "python"
    if not base.pip:
        run([str(python), "-I", "-m", "ensurepip"], "`python -m ensurepip`", work, environment, isolation)
    requirements = _written(wanted, work)
    run(pip_command(python, requirements, environment), f"installing {wanted.name}", wanted.folder, environment, isolation)
    borrowed = sorted(_ENSURED - wanted.names) if not base.pip else []
    if borrowed:  # they would stand before the base's own
        run([str(python), "-I", "-m", "pip", "uninstall", "--yes", *borrowed], "`pip uninstall`", work, environment, isolation)


def _show_base(folder: Path, base: Base) -> None:
    """Put the base's site folders behind the environment's own on `sys.path`, their `.pth` files obeyed as the base obeys them."""
    site = folder / base.purelib
    if not site.is_dir():
        raise Inconclusive(
            f"env.install: `python -m venv` made no {base.purelib} with {base.python}",
            remedy="use a CPython that follows the usual layout",
            reason_id="install/interpreter",
        )
    (site / PTH).write_text("".join(f"import site; site.addsitedir({path!r})\n" for path in base.sites), encoding="utf-8")


def _double_scripts(folder: Path, base: Base) -> None:
    """Commands of the base (`torchrun`, `accelerate`) name the base's interpreter in their first line: each gets a double that starts this
    one, or what they start would not see the lock's distributions. Whatever the lock installs takes the double's place."""
    new, source = folder / "bin", Path(base.scripts)
    try:
        names = sorted(os.listdir(source))[:_MOST_SCRIPTS]
    except OSError:
        return
    for name in names:
        text = None if _OWN.fullmatch(name) or os.path.lexists(new / name) else _body(source / name, base)
        if text is not None:
            (new / name).write_bytes(_start_of(new / "python") + text)
            (new / name).chmod(0o755)


def _body(path: Path, base: Base) -> bytes | None:
    """A launcher without the lines that name the base's interpreter; None where it is no launcher of that interpreter."""
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode) or not os.access(path, os.X_OK) or read_start(path, 2) != b"#!":
            return None
        content = read_start(path, _MOST_SCRIPT + 1)
    except OSError:
        return None
    begins = _PLAIN.match(content) or _THROUGH_SHELL.match(content)
    if begins is None or len(content) > _MOST_SCRIPT:
        return None
    folder, name = os.path.split(os.fsdecode(begins["python"]))
    ours = folder in (base.scripts, os.path.dirname(base.executable)) and name.startswith("python")
    return content[begins.end() :] if ours else None


def _start_of(python: Path) -> bytes:
    """The first lines of a launcher, as pip writes them: through the shell where the path is too long for the kernel or has a blank."""
    path = os.fsencode(python)
    if len(path) <= 120 and b" " not in path:
        return b"#!" + path + b"\n"
    return b"#!/bin/sh\n'''exec' \"" + path + b'" "$0" "$@"\n\' \'\'\'\n'


def _written(wanted: Wanted, work: Path) -> Path:
    """The lock and what it includes, as they were read, where pip reads them: not in the checkout, which somebody may change meanwhile."""
    for name, text in wanted.files:
        path = work / "lock" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o644)
        for folder in path.relative_to(work).parents:
            (work / folder).chmod(0o755)  # whatever the umask: another user reads it
    return work / "lock" / wanted.files[0][0]
