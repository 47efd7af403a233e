"""The command that runs a training script as a user of its repository would: where it starts, its arguments, its seed, its variables."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from repro_gate.commands.init.readme_commands import Readmes, Shown
from repro_gate.commands.init.script_options import ScriptOptions, script_options
from repro_gate.commands.init.script_source import DOWNLOADS, Source, absent
from repro_gate.commands.init.survey import below, head, is_data

_PREPARES = r"prepare|generate|download|preprocess|make_data"
_NATIVE = (".pyx", ".cpp", ".cc", ".c", ".cu", ".rs", ".so", ".pyd")


@dataclass(frozen=True, kw_only=True)
class TrainingScript:
    """A script that probably trains. `run` is the command, `reasons` say why it was picked, `notes` what the user should look at."""

    path: str
    run: str
    working_directory: str
    env: tuple[tuple[str, str], ...]
    reasons: tuple[str, ...]
    notes: tuple[str, ...]
    missing: tuple[str, ...]  # what the user has to fill in
    default_seed: int | None  # of the script's own option
    named: frozenset[str]  # the paths that its source or its command names, as they stand there


def described(source: Source, known: Readmes, paths: set[str]) -> TrainingScript:
    options = script_options(source.tree, source.config)
    shown = known.of(source.path)
    chosen = _chosen(shown, options, paths)
    words = list(chosen.words) if chosen else []
    given = {word.partition("=")[0] for word in words}
    words += [word for item in options.stand_ins if item.split()[0] not in given for word in item.split()]
    missing = tuple(name for name in options.required if name not in given and (name.startswith("-") or not words))
    start, folder = _start(source, paths, chosen or next(iter(shown), None))
    env = _python_path(source, folder, paths) if start[1] != "-m" else ()
    env += (("WANDB_MODE", "disabled"),) if "wandb" in source.imports else ()
    launcher = _launcher(source, start[2], known, paths) if start[1] == "-m" else ""
    run, seeded = (launcher, False) if launcher else _with_seed(start, words, options)
    notes = [f"it asks for {', '.join(missing)}: add what it needs"] if missing else []
    notes += _seed_note(source, options) if not seeded else []
    before = [*_preparations(source, known, chosen, paths)]
    if before and not any(DOWNLOADS.search(Source(source.root, item.script).text) for item in before):
        run = " && ".join([*(shlex.join(["python", _seen(item.script, folder), *item.words]) for item in before), run])
    elif before:
        command = shlex.join(["python", before[0].script, *before[0].words])
        notes.append(f"{before[0].readme} runs `{command}` first: run it once, then `repro-gate init --force` lists the data that it made")
    elif gone := [name for name in source.opened if absent(source, name, paths)]:
        notes.append(f"it opens {', '.join(gone)}, not found here: make it first, then `repro-gate init --force` lists it as data")
    if re.search(r"init_process_group|LOCAL_RANK", source.text):
        notes.append("it can run distributed: `torchrun --standalone --nproc-per-node N` in place of `python` gates N processes")
    reasons = (*([f"{chosen.readme} runs it so"] if chosen else [f"{shown[0].readme} runs it"] if shown else []), *source.reasons)
    return TrainingScript(
        path=source.path,
        run=run,
        working_directory=folder,
        env=env,
        reasons=reasons,
        notes=tuple(notes),
        missing=missing,
        default_seed=options.default_seed,
        named=source.paths | frozenset(words) | frozenset(path for word in words for path in _config_paths(source, word, folder)),
    )


def _config_paths(source: Source, word: str, folder: str) -> frozenset[str]:
    """The paths that a configuration in Python names, given on the command line as nanoGPT's are."""
    found = below(folder, word) if word.endswith(".py") else None
    return Source(source.root, found).paths if found else frozenset()


def _chosen(shown: list[Shown], options: ScriptOptions, paths: set[str]) -> Shown | None:
    """The README's command that fits this version of the script, the first for a CPU if there is one: that runs on every machine."""
    fits, there = [], _with_folders(paths)
    for item in shown:
        names = {word.partition("=")[0] for word in item.words if re.match(r"--?[A-Za-z]", word)}
        places = {word.rpartition("=")[2] for word in item.words if "/" in word}
        places |= {word for word in item.words[:1] if not word.startswith("-") and options.required == ()}
        if item.plain and (not options.declared or names <= options.declared) and {below(item.folder, place) for place in places} <= there:
            fits.append(item)
    return next((item for item in fits if re.search(r"\bcpu\b", " ".join(item.words))), next(iter(fits), None))


def _with_seed(start: list[str], words: list[str], options: ScriptOptions) -> tuple[str, bool]:
    """The whole command, with `{seed}` where the script takes one."""
    if not options.seed:
        return shlex.join([*start, *words]), False
    name, joined = re.match(r"([^ =]+)([ =])", options.seed).groups()  # type: ignore[union-attr]  # both spellings have one
    kept, skip = [], False
    for word in words:
        if not skip and word != name and not word.startswith(f"{name}="):
            kept.append(word)
        skip = not skip and word == name
    return f"{shlex.join([*start, *kept])} {options.seed}", bool(joined)


def _seed_note(source: Source, options: ScriptOptions) -> list[str]:
    if options.own_seed is None:
        name = PurePosixPath(source.path).name
        return [f"{name} shows no option for a seed, and does not seed itself: the gate seeds Python, NumPy and torch from outside"]
    line, number = options.own_seed
    name, seed = PurePosixPath(source.path).name, "" if number is None else f" with {number}"
    return [f"{name} seeds itself{seed} ({source.path}:{line}); the gate's seed does not reach it"]


def _start(source: Source, paths: set[str], shown: Shown | None) -> tuple[list[str], str]:
    """The command without arguments, and the folder it starts in. A module that needs its package is run with `-m`."""
    file = PurePosixPath(source.path)
    top = file.parent
    while f"{top.parent}/__init__.py" in paths:
        top = top.parent
    in_package = f"{file.parent}/__init__.py" in paths and file.parent.name
    needs = re.search(r"^\s*from \.", source.text, re.MULTILINE) or top.name in source.imports
    if file.name == "__main__.py" or (in_package and needs and not (shown and shown.plain)):
        parts = file.relative_to(top.parent).with_suffix("").parts
        if module := ".".join(parts[:-1] if parts[-1] == "__main__" else parts):
            return ["python", "-m", module], top.parent.as_posix()
    folder = shown.folder if shown else source.folder if _runs_beside(source, paths) else "."
    return ["python", _seen(source.path, folder)], folder


def _launcher(source: Source, module: str, known: Readmes, paths: set[str]) -> str:
    """The shell script of the checkout that a README runs and that starts this module, with one process where a variable says how many."""
    for path in sorted(path for path in paths if path.endswith(".sh") and "/" not in path):
        text = head(source.root / path).decode("utf-8", "replace")
        if re.search(rf"-m {re.escape(module)}\b", text) and any(f"./{path}" in readme for readme in known.texts.values()):
            processes = re.search(r"^(\w*(?:GPU|NPROC)\w*)=\$\{\1:-", text, re.MULTILINE)
            return (f"{processes[1]}=1 " if processes else "") + shlex.join(["bash", path])
    return ""


def _seen(path: str, folder: str) -> str:
    seen = os.path.relpath(path, folder)
    return f"./{seen}" if seen.startswith("-") else seen


def _runs_beside(source: Source, paths: set[str]) -> bool:
    """Whether the script counts on being started in its own folder: it names what lies there, or above it, or what is nowhere yet."""
    if source.folder == "." or "__file__" in source.text:
        return False
    here = _with_folders(paths)
    for name in source.paths:
        if re.fullmatch(r"(\.\./)*\.\./?", name) or (name.startswith("../") and name.isascii()):
            return True
        if re.search(r"/|\.\w+$", name) and name.strip("./") and below(source.folder, name) in here and below(".", name) not in here:
            return True
    return any("/" not in name and below(".", name) not in paths for name in source.opened)


def _with_folders(paths: set[str]) -> set[str]:
    return {str(parent) for path in paths for parent in PurePosixPath(path).parents} | paths


def _python_path(source: Source, folder: str, paths: set[str]) -> tuple[tuple[str, str], ...]:
    """PYTHONPATH for a script that imports a package of this checkout from another folder: the code under test is what it must import."""
    if "sys.path" in source.text:
        return ()
    for base in (".", "src"):
        for name in sorted(source.imports):
            package = str(PurePosixPath(base, name))
            beside = str(PurePosixPath(source.folder, name))
            inside = [path for path in paths if path.startswith(f"{package}/")]
            if (
                f"{package}/__init__.py" in paths
                and beside != package
                and f"{beside}.py" not in paths
                and f"{beside}/__init__.py" not in paths
            ):
                return () if any(path.endswith(_NATIVE) for path in inside) else (("PYTHONPATH", os.path.relpath(base, folder)),)
    return ()


def _preparations(source: Source, known: Readmes, chosen: Shown | None, paths: set[str]) -> Iterator[Shown]:
    """The scripts that a README runs before this one to make its data, where that data is not here yet."""
    if chosen is None:
        return
    lacking = any(absent(source, name, paths) for name in source.opened)
    for item in known.commands[: known.commands.index(chosen)]:
        if not re.search(_PREPARES, PurePosixPath(item.script).stem):
            continue
        home = PurePosixPath(item.script).parent.as_posix()
        made = any(path.startswith(f"{home}/") and is_data(path) for path in paths) if home != source.folder else not lacking
        if (
            (item.readme, item.folder) == (chosen.readme, chosen.folder)
            and re.search(_PREPARES, PurePosixPath(item.script).stem)
            and not made
        ):
            yield item
