"""How a script of a checkout is started: the command that a README gives for it, the folder that
it runs in, the PYTHONPATH that makes the script's imports resolve, and the data that git ignores
and its code names. Nothing of it is run."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from repro_gate.checkout.inspection import Checkout, inspect_checkout, tracked_files
from repro_gate.checks.ignored import Undeclared, data_of_code
from repro_gate.checks.interface import Evidence
from repro_gate.errors import UsageError
from repro_gate.escape import counted
from repro_gate.files import Unreadable, read_text
from repro_gate.machine import gpu_devices
from repro_gate.report.numbers import size
from repro_gate.spec.document import written
from repro_gate.spec.model import Spec

_MAX_BYTES = 1024 * 1024  # of a README
_README = re.compile(r"readme(\.\w+)?", re.IGNORECASE)
_FENCE = re.compile(r"\s*(?:```|~~~)(?P<line>.*?)(?P<end>```|~~~)?\s*")
_INDENTED = re.compile(r"(?: {4}|\t)\s*[\w.]")
_PROMPT = re.compile(r"^\s*(?:[$%>!]\s*)?")
_COMMENT = re.compile(r"(?:^|\s)#.*")
_LAUNCHER = re.compile("python3?|torchrun|accelerate|deepspeed|fabric|uv")
# what a reader has to fill in, or what needs other machines
_UNFINISHED = re.compile(
    r"[<>|$`{}\[\]&]|\.\.\.|path[_/]to|\byour|--(?:n?nodes|node_rank|num_machines|machine_rank)\b",
    re.IGNORECASE,
)
_CPU = re.compile(r"\bcpu\b")
_MOST_DATA = 5  # that are suggested
_SOURCES = ("", "src", "lib")  # folders of a project that hold its packages


@dataclass(frozen=True, kw_only=True)
class Start:
    """How a script is started: in which folder, by which commands of a README, the best first, and
    with which PYTHONPATH (relative to that folder, empty if it needs none)."""

    folder: Path
    commands: Sequence[str]
    python_path: str
    modules: Sequence[Path]  # files of the checkout that the script imports


def start_of(
    script: Path,
    folder: Path,
    top: Path,
    *,
    imports: Collection[str],
    literals: Collection[str],
    as_module: bool,
) -> Start:
    """Return how `script` is started. `folder` is that of the spec, `top` the top of the checkout;
    all three are real paths. `as_module`: by `python -m`, or as a notebook."""
    above = [item for item in script.parents if item.is_relative_to(top)]
    known = _commands(script, above, top)
    if not gpu_devices():
        known.sort(key=lambda item: not _CPU.search(item[1]))
    place = folder
    if known:
        place = known[0][0]
    elif not as_module:
        places = [folder, script.parent]
        place = max(places, key=lambda place: _reached(place, top, literals))
    own = place if as_module else script.parent
    sources = [item / name for item in above for name in _SOURCES]
    found = dict[Path, None]()
    modules = []
    for name in sorted(imports):
        if name.partition(".")[0] in sys.stdlib_module_names:
            continue
        for source in (own, *sources):
            if (path := _module(source, name)) is not None:
                modules.append(path)
                found.setdefault(source)
                break
    found.pop(own, None)
    commands = [command for start, command in known if start == place]
    return Start(
        folder=place,
        commands=commands,
        python_path=os.pathsep.join(os.path.relpath(source, place) for source in found),
        modules=modules,
    )


def _module(source: Path, name: str) -> Path | None:
    """Return the file of a module below a folder of packages; None if there is none."""
    path = source.joinpath(*name.split("."))
    files = path.with_name(f"{path.name}.py"), path / "__init__.py"
    return next(filter(Path.is_file, files), None)


def _reached(place: Path, top: Path, literals: Iterable[str]) -> int:
    """Return how many paths of the code exist from a folder, less those that leave the checkout."""
    reached = 0
    for text in literals:
        path = Path(os.path.normpath(place / text))
        with suppress(OSError, ValueError):
            reached += path.exists() if path.is_relative_to(top) else -1
    return reached


def _commands(
    script: Path, folders: Sequence[Path], top: Path
) -> list[tuple[Path, str]]:
    """Return the commands for a script in the READMEs of these folders, each with the folder in
    which it runs."""
    found = dict[tuple[Path, str], None]()
    for folder in folders:
        with suppress(OSError):
            for name in sorted(filter(_README.fullmatch, os.listdir(folder))):
                with suppress(Unreadable):
                    text = read_text(folder / name, top, _MAX_BYTES)
                    found |= dict.fromkeys(_commands_in(text, folder, script))
    return list(found)


def _commands_in(text: str, folder: Path, script: Path) -> Iterator[tuple[Path, str]]:
    for block in _blocks(text):
        here = folder
        for line in block:
            plain = _COMMENT.sub("", _PROMPT.sub("", line)).strip()
            for part in re.split(r"&&|;", plain):
                command = part.strip()
                words = []
                with suppress(ValueError):
                    words = shlex.split(command)
                if words[:1] == ["cd"] and len(words) == 2:
                    here = Path(os.path.normpath(here / words[1]))
                    continue
                is_whole = command.isprintable() and not _UNFINISHED.search(command)
                if is_whole and (place := _place(words, here, script)):
                    yield place, command


def _blocks(text: str) -> Iterator[list[str]]:
    """Yield the lines of each code block of Markdown or reStructuredText, those that a backslash
    continues as one."""
    block = list[str]()
    inside = False
    for line in text.replace("\\\n", " ").splitlines():
        fence = _FENCE.fullmatch(line)
        if fence and fence["end"]:
            yield [fence["line"]]
        elif fence:
            inside = not inside
            yield block
            block = []
        elif inside or _INDENTED.match(line):
            block.append(line)
    yield block


def _place(words: list[str], here: Path, script: Path) -> Path | None:
    """Return the folder in which a command starts the script; None if it does not start it."""
    program = next((word for word in words if "=" not in word), "")
    if not _LAUNCHER.fullmatch(os.path.basename(program)):
        return None
    for last, word in pairwise(words):
        name = f"{word.replace('.', '/')}.py" if last == "-m" else word
        if os.path.normpath(here / name) == str(script):
            return here
        # written for the script's folder, in a README above it
        if word == script.name and not (here / word).exists():
            return script.parent
    return None


def checkout_at(folder: Path) -> Checkout:
    """Return the checkout of a folder; where git fails on it, the folder alone."""
    try:
        return inspect_checkout(folder)
    except UsageError:
        return Checkout(root=folder)


def data_section(spec: Spec, checkout: Checkout, modules: Iterable[Path]) -> str:
    """Return the section `data`: what git ignores and the code names, the rest as comments."""
    named: Sequence[Undeclared] = ()
    rest: Sequence[Undeclared] = ()
    with suppress(UsageError):
        tracked = tracked_files(checkout.root) if checkout.is_git else None
        evidence = Evidence(spec=spec, checkout=checkout, tracked=tracked)
        paths = [os.path.relpath(path, checkout.root) for path in modules]
        named, rest = data_of_code(evidence, paths)
    lines = ["data:", *map(_item, named)] if named else []
    if rest:
        lines.append("# Git ignores these too; add what the training reads:")
        lines += [f"# {_item(item)}" for item in rest[:_MOST_DATA]]
    example = "# data:\n#   - {path: data/train.bin, sha256: …}"
    return "\n".join(lines if named else [*lines, example])


def _item(item: Undeclared) -> str:
    about = f"{counted(item.files, 'file')}, {size(item.size)}"
    return f"  - path: {written(item.path.rstrip('/'))}  # {about}"
