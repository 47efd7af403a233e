"""The Python that `env.install` installs on top of: asked what it is and has, and shown to the
environment made from it. The interpreter is started as the training's user, and what it says is
read within limits."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec

from repro_gate.errors import Inconclusive
from repro_gate.escape import for_terminal
from repro_gate.files import NotRegular, read_start
from repro_gate.runs.process import supervise
from repro_gate.sandbox.identity import Sandbox

ASK_SECONDS = 60.0
_MOST_SCRIPT, _MOST_SCRIPTS = 64 * 1024, 20_000
_SHEBANG = re.compile(
    rb"#!(/[^\s\0]+)[ \t]*\r?\n|#!/bin/sh\n'''exec' \"?(/[^\"\n\0]+?)\"? \"\$0\" \"\$@\"\n' '''\n"
)
_OWN_SCRIPT = re.compile(
    r"(?:python|pip|easy_install|wheel|activate|deactivate|idle|pydoc|2to3)[\w.-]*", re.IGNORECASE
)

# Site folders in their order on sys.path; under -I neither the folder that it starts in nor a
# person's own (~/.local) is among them, and a training finds neither: its HOME is empty. Of what is
# installed, only what the lock names (in the file that is given) is told.
_ASK = """
import importlib.metadata, json, os, re, sys, sysconfig
names = set(json.load(open(sys.argv[1])))
named = [path for path in sys.path if os.path.basename(path) in ("site-packages", "dist-packages")]
sites = [path for path in named if os.path.isdir(path)]
here = {}
for item in importlib.metadata.distributions(path=sites):
    name = re.sub(r"[-_.]+", "-", item.metadata["Name"] or "").lower()
    if name in names:
        here.setdefault(name, item.version)
version, scripts = sys.version.split()[0].rstrip("+"), sysconfig.get_path("scripts")
about = {"executable": sys.executable, "python": version, "scripts": scripts}
print(json.dumps({**about, "sites": sites, "installed": here}))
"""


_Text = Annotated[str, msgspec.Meta(min_length=1, max_length=4096, pattern=r"\A[^\0]*\Z")]
_Absolute = Annotated[str, msgspec.Meta(max_length=4096, pattern=r"\A/[^\0]*\Z")]


class Base(msgspec.Struct, frozen=True):
    """The Python that is installed on top of: its site folders, where its commands lie, and what it
    has of the lock's distributions."""

    executable: _Text
    python: _Text  # version
    scripts: _Text
    sites: Annotated[tuple[_Absolute, ...], msgspec.Meta(max_length=20)]
    installed: dict[str, str | None]  # normalised name -> version


def base_of(python: str, names: Path, outer: Mapping[str, str], sandbox: Sandbox) -> Base:
    """What `python` says of itself, and of the distributions that the JSON file `names` lists.
    Raises Inconclusive where it says nothing that can be used."""
    environment = {
        name: value
        for name, value in outer.items()
        if name in ("PATH", "LANG", "LD_LIBRARY_PATH") or name.startswith("PYENV_")
    }
    try:
        ended = supervise(
            [python, "-I", "-c", _ASK, str(names)],
            cwd=Path("/"),
            env=environment,
            timeout=ASK_SECONDS,
            tick=lambda _: None,
            sandbox=sandbox,
        )
    except OSError as error:
        raise _no_base(python, error.strerror or str(error)) from None
    if ended.timed_out:
        raise _no_base(python, f"it gave no answer in {ASK_SECONDS:g} s")
    base = next(
        (found for line in reversed(ended.tail) if (found := _read_base(line)) is not None), None
    )
    if base is None or ended.exit_code:
        said = next(
            (line for line in reversed(ended.tail) if line.strip()),
            f"it ended with status {ended.exit_code}",
        )
        raise _no_base(python, for_terminal(said.strip(), 300))
    return base


def _read_base(line: str) -> Base | None:
    """One line of output as a Base, None where it is none; the interpreter's answer is
    untrusted."""
    with contextlib.suppress(ValueError, RecursionError):
        return msgspec.json.decode(line, type=Base)
    return None


def show_base(folder: Path, base: Base) -> None:
    """Put the base's site folders behind the environment's own on `sys.path`, their `.pth` files
    obeyed as the base obeys them. What `--system-site-packages` shows of a base that is a virtual
    environment (the image's) is not its own but the one below."""
    site = next(folder.glob("lib/python*/site-packages"), None)
    if site is None:
        raise _no_base(base.executable, "`uv venv` made no lib/python*/site-packages with it")
    (site / "_repro_gate_base.pth").write_text(
        "".join(f"import site; site.addsitedir({path!r})\n" for path in base.sites),
        encoding="utf-8",
    )


def double_scripts(folder: Path, base: Base) -> None:
    """Commands of the base (`torchrun`, `accelerate`) name the base's interpreter in their first
    line: each gets a double that starts this one, or what they start would not see the lock's
    distributions. Whatever the lock installs takes the double's place."""
    python = os.fsencode(folder / "bin" / "python")
    first = b"#!" + python + b"\n"
    # the kernel would cut it: through the shell, as pip and uv write it
    if len(first) > 120 or b" " in python:
        first = b"#!/bin/sh\n'''exec' \"" + python + b'" "$0" "$@"\n\' \'\'\'\n'
    with contextlib.suppress(OSError):
        for name in sorted(os.listdir(base.scripts))[:_MOST_SCRIPTS]:
            source, double = Path(base.scripts, name), folder / "bin" / name
            if (
                _OWN_SCRIPT.fullmatch(name)
                or os.path.lexists(double)
                or source.is_symlink()
                or not os.access(source, os.X_OK)
            ):
                continue
            with contextlib.suppress(OSError, NotRegular):
                content = read_start(source, _MOST_SCRIPT + 1)
                begins = _SHEBANG.match(content)
                if begins is None or len(content) > _MOST_SCRIPT:
                    continue
                started = os.path.split(os.fsdecode(begins[1] or begins[2]))
                if started[0] in (base.scripts, os.path.dirname(base.executable)) and started[
                    1
                ].startswith("python"):
                    double.write_bytes(first + content[begins.end() :])
                    double.chmod(0o755)


def _no_base(python: str, why: str) -> Inconclusive:
    remedy = "see that it starts as the training's user, or put another one first on PATH"
    return Inconclusive(
        f"env.install: {python} cannot carry an environment: {why}",
        remedy=remedy,
        reason_id="install/interpreter",
    )
