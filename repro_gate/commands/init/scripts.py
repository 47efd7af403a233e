"""Which scripts of a checkout train, the likeliest first, and the command that runs each as a user
of the repository would."""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from repro_gate.commands.init.readme import AT_ROOT, Readmes, Shown, readmes
from repro_gate.commands.init.source import DOWNLOADS, LOOPS, SIGNS, Source, absent
from repro_gate.commands.init.survey import Tree, below, is_data
from repro_gate.trace import notebook

MAX_READ = 1_000  # Python files whose source is looked at
MAX_PROPOSED = 5
ENOUGH = 35  # a script below this score is not proposed

_NAMES = (
    (r"train", 50),
    (r"(main[_-])?(pre_?|fine_?)?train(er|ing)?([_-].*)?|(fine_?tune|fit)([_-].*)?", 40),
    (r".*[_-]train(ing)?", 10),
    (r"main([_-].*)?", 20),
    (r"run([_-].*)?|__main__", 15),
    (r"experiment|demo|example", 2),
)
_TRAINS = frozenset({*LOOPS, "imports a trainer", "fits a model"})
_IMPORTED = 15  # points for a loop in a module that the script imports
_NOTEBOOK = 20  # points against a notebook, where a script trains as well
_MAX_NOTEBOOKS = 100  # that are looked at
# What speaks against a script, in its folders, its name and its source: another purpose, or
# hardware that a machine may not have.
_FOLDERS = (
    (r"(test|tests|docs?|benchmarks?)", 80),
    (r"(experiments?|experimental|research|contrib|legacy|old|third_party|vendor)", 60),
    (r"(examples?|notebooks?)", 10),
    (r".*(distributed|multi[-_]?gpu|multi[-_]?node|tpu|xla|slurm|inference).*", 30),
)
_WORDS = (
    (r"tpu|xla|jax|hpu|horovod|slurm|mpi|launcher", 50),
    (r"ddp|fsdp\d?|distributed|multigpu|gpu|parallel|parallelism|deepspeed|hogwild", 30),
    (
        r"eval|evaluate|sample|generate|infer|inference|predict|benchmark|bench|test|validate|export|prepare|download|utils?",
        30,
    ),
    (r"legacy|old|llama\d?|complete|advanced|comparison|compare|ablation", 10),
    (r"mnist|toy|tiny|simple|basic|minimal", -5),
)
_SOURCES = (
    (r"^\s*(import|from) (torch_xla|jax|flax|horovod)\b", 50),
    (r"^import wandb", 10),
    (r"init_process_group|LOCAL_RANK|fully_shard|FullyShardedDataParallel", 15),
    (r"^\s*(import|from) (pytest|unittest)\b|^\s*def test_", 80),
)
_ON_CUDA_ALONE = re.compile(r"\.cuda\(\)|\.to\(.cuda.\)|device *= *.cuda")
_NOT_SCRIPTS = re.compile(r"(test_.*|conftest|setup|noxfile|__init__|configurator)\.py")
_PREPARES = re.compile(r"prepare|generate|download|preprocess|make_data")


@dataclass(frozen=True, kw_only=True)
class TrainingScript:
    """A script that probably trains. `run` is the command, `reasons` say why it was picked, `notes`
    what the user should look at."""

    path: str
    run: str
    working_directory: str
    env: dict[str, str]
    reasons: tuple[str, ...]
    notes: tuple[str, ...]
    missing: tuple[str, ...]  # what the user has to fill in
    default_seed: int | None  # of the script's own option
    named: frozenset[str]  # the paths that its source or its command names, as they stand there


def training_scripts(root: Path, tree: Tree, only: str | None = None) -> list[TrainingScript]:
    """The scripts that probably train, the likeliest first; empty where none scores high enough.
    `only` names the one to describe."""
    known, paths = readmes(root, tree), {file.path for file in tree.files}
    if only is not None:
        return [_described(Source(root, only), known, paths)]
    ranked = []
    for source in _sources(root, tree):
        points, first = known.points(source.path)
        if (score := _score(source)) and score + points // 2 >= ENOUGH:
            ranked.append((score + points - _gaps(source, paths), first, source))
    # The one that the README at the root names first is the one that it recommends.
    recommended = min((first for _, first, _ in ranked if first < AT_ROOT), default=None)
    ranked.sort(
        key=lambda item: (
            -item[0] - (15 if item[1] == recommended else 0),
            item[1],
            item[2].path.count("/"),
            item[2].path,
        )
    )
    return [_described(source, known, paths) for _, _, source in ranked[:MAX_PROPOSED]]


def _sources(root: Path, tree: Tree) -> list[Source]:
    """Return the scripts and notebooks of a checkout. Of one without a loop, a module with one that
    it imports is a reason too; and that module is not started itself."""
    named = [file.path for file in tree.files if "{seed}" not in file.path]
    scripts = [path for path in named if path.endswith(".py")][:MAX_READ]
    notebooks = [path for path in named if path.endswith(notebook.SUFFIX)][:_MAX_NOTEBOOKS]
    sources = {path: Source(root, path) for path in scripts + notebooks}
    loops: dict[str, str] = {}
    for source in sources.values():
        loop = (
            ""
            if source.trains
            else next((path for path in source.modules(sources) if sources[path].trains), "")
        )
        if loop and source.is_script:
            loops[source.path] = loop
            source.reasons += (f"imports {loop}, which {sources[loop].trains}",)
    return [
        source for source in sources.values() if source.starts or source.path not in loops.values()
    ]


def _score(source: Source) -> int:
    """How much a script looks like training, by its own name, folders and text. 0 for what is
    none."""
    path = PurePosixPath(source.path)
    by_name = next(
        (points for pattern, points in _NAMES if re.fullmatch(pattern, path.stem.lower())), 0
    )
    imported = any(
        reason.startswith("imports ") and reason.endswith(LOOPS) for reason in source.reasons
    )
    score = (
        by_name
        + sum(points for _, points, reason in SIGNS if reason in source.reasons)
        - 4 * (len(path.parts) - 1)
    )
    score += _IMPORTED * imported - _NOTEBOOK * source.is_notebook
    folders = [folder.lower() for folder in path.parts[:-1]]
    # `add_test.py` is a test unless its own code trains; then it says what it tests, not how.
    words = re.split(r"[_\W]+", path.stem.lower().removesuffix("_test"))
    for table, texts in ((_FOLDERS, folders), (_WORDS, words)):
        score -= sum(
            points
            for pattern, points in table
            if any(re.fullmatch(pattern, text) for text in texts)
        )
    score -= sum(
        points for pattern, points in _SOURCES if re.search(pattern, source.text, re.MULTILINE)
    )
    score -= 8 if _ON_CUDA_ALONE.search(source.text) and "is_available" not in source.text else 0
    trains = (
        imported or _TRAINS & set(source.reasons) or (by_name >= ENOUGH and not source.is_notebook)
    )
    return (
        score
        if score > 0 and trains and not _NOT_SCRIPTS.fullmatch(path.name) and source.is_script
        else 0
    )


def _gaps(source: Source, paths: set[str]) -> int:
    """Points for what a script asks for and nobody has given: arguments, the network, and files
    that are not here."""
    lacks = any(absent(source, name, paths) for name in source.opened)
    return (
        10 * min(2, len(source.required))
        + (20 if DOWNLOADS.search(source.text) else 0)
        + (10 if lacks else 0)
    )


def _described(source: Source, known: Readmes, paths: set[str]) -> TrainingScript:
    shown = [item for item in known.commands if item.script == source.path]
    chosen = _chosen(shown, source, paths)
    words = list(chosen.words) if chosen else []
    given = {word.partition("=")[0] for word in words}
    missing = tuple(
        name
        for name in source.required
        if name not in given and (name.startswith("-") or not words)
    )
    start, folder = _start(source, paths, chosen or next(iter(shown), None))
    seed, default_seed = source.seed
    run = shlex.join([*start, *_without_seed(words, seed)]) + (f" {seed} {{seed}}" if seed else "")
    prepared, notes = _prepared(source, known, chosen, paths, folder)
    notes += (
        ["`jupyter execute` needs nbclient and ipykernel in the environment that trains"]
        if source.is_notebook
        else []
    )
    notes += [f"it asks for {', '.join(missing)}: add what it needs"] if missing else []
    if not seed and source.own_seed is not None:
        line, number = source.own_seed
        at = source.path if source.is_notebook else f"{source.path}:{line}"
        notes.append(
            f"it seeds itself{number and f' with {number}'} ({at}); the gate's seed does not reach "
            "it"
        )
    elif source.is_notebook:
        notes.append("it does not seed itself: the gate seeds Python, NumPy and torch from outside")
    elif not seed:
        notes.append(
            "it has no option for a seed, and does not seed itself: the gate seeds Python, NumPy "
            "and torch from outside"
        )
    if re.search(r"init_process_group|LOCAL_RANK", source.text):
        notes.append(
            "it can run distributed: `torchrun --standalone --nproc-per-node N` in place of "
            "`python` gates N processes"
        )
    seen = (
        [f"{chosen.readme} runs it so"]
        if chosen
        else [f"{shown[0].readme} runs it"]
        if shown
        else []
    )
    return TrainingScript(
        path=source.path,
        run=" && ".join([*prepared, run]),
        working_directory=folder,
        env={
            **(_python_path(source, folder, paths) if start[1] != "-m" else {}),
            **({"WANDB_MODE": "disabled"} if "wandb" in source.imports else {}),
        },
        reasons=(*seen, *source.reasons),
        notes=tuple(sorted(notes, key=lambda note: not note.startswith("it asks for"))),
        missing=missing,
        default_seed=default_seed,
        named=(source.paths - source.written) | frozenset(words),
    )


def _chosen(shown: list[Shown], source: Source, paths: set[str]) -> Shown | None:
    """The README's command that fits this version of the script, the first for a CPU if there is
    one: that runs on every machine."""
    declared, there, fits = (
        {name for names, _ in source.options for name in names},
        _with_folders(paths),
        [],
    )
    for item in shown:
        names = {word.partition("=")[0] for word in item.words if re.match(r"--?[A-Za-z]", word)}
        places = {word.rpartition("=")[2] for word in item.words if "/" in word}
        places |= {
            word
            for word in item.words[:1]
            if not word.startswith("-") and not (source.required or source.takes_words)
        }
        if (
            item.plain
            and (not declared or names <= declared)
            and {below(item.folder, place) for place in places} <= there
        ):
            fits.append(item)
    return next(
        (item for item in fits if re.search(r"\bcpu\b", " ".join(item.words))),
        next(iter(fits), None),
    )


def _without_seed(words: list[str], seed: str) -> list[str]:
    """The words of a README's command without its own seed."""
    pairs = zip(["", *words], words, strict=False)  # each word, and the one before it
    return [
        word
        for last, word in pairs
        if not seed or (seed not in (last, word) and not word.startswith(f"{seed}="))
    ]


def _start(source: Source, paths: set[str], shown: Shown | None) -> tuple[list[str], str]:
    """The command without arguments, and the folder it starts in. A module that needs its package
    is run with `-m`."""
    if source.is_notebook:  # the kernel starts in its folder, wherever the command does
        return [
            "jupyter",
            "execute",
            *([] if source.kernel == "python3" else ["--kernel_name=python3"]),
            _seen(source.path, "."),
        ], "."
    file = PurePosixPath(source.path)
    top = file.parent
    while f"{top.parent}/__init__.py" in paths:
        top = top.parent
    if shown and shown.module:
        return ["python", "-m", shown.module], shown.folder
    needs = re.search(r"^\s*from \.", source.text, re.MULTILINE) or top.name in source.imports
    own = re.findall(
        rf"^\s*(?:from|import) {re.escape(top.name)}\.(\w+)", source.text, re.MULTILINE
    )
    own = own if top.name and "sys.path" not in source.text else []
    needs = (
        needs
        if f"{file.parent}/__init__.py" in paths
        else any(f"{top}/{name}.py" in paths for name in own)
    )
    in_package = needs and not (shown and shown.plain)
    parts = [
        part for part in file.relative_to(top.parent).with_suffix("").parts if part != "__main__"
    ]
    if parts and (file.name == "__main__.py" or (in_package and file.parent.name)):
        return ["python", "-m", ".".join(parts)], top.parent.as_posix()
    folder = shown.folder if shown else source.folder if _runs_beside(source, paths) else "."
    return ["python", _seen(source.path, folder)], folder


def _seen(path: str, folder: str) -> str:
    seen = os.path.relpath(path, folder)
    return f"./{seen}" if seen.startswith("-") else seen


def _runs_beside(source: Source, paths: set[str]) -> bool:
    """Whether the script counts on being started in its own folder: it names what lies there, or
    above it, or what is nowhere yet."""
    if source.folder == "." or "__file__" in source.text:
        return False
    here = _with_folders(paths)
    beside = (
        re.fullmatch(r"(\.\./)+.*|\.\.", name)
        or (
            re.search(r"/|\.\w+$", name)
            and name.strip("./")
            and below(source.folder, name) in here
            and below(".", name) not in here
        )
        for name in source.paths
    )
    return any(beside) or any(
        "/" not in name and below(".", name) not in paths for name in source.opened
    )


def _with_folders(paths: set[str]) -> set[str]:
    return {str(parent) for path in paths for parent in PurePosixPath(path).parents} | paths


def _python_path(source: Source, folder: str, paths: set[str]) -> dict[str, str]:
    """PYTHONPATH for a script that imports a package of this checkout from another folder: the code
    under test is what it must import."""
    for base in (".", "src") if "sys.path" not in source.text else ():
        for name in sorted(source.imports):
            package, beside = (
                str(PurePosixPath(base, name)),
                str(PurePosixPath(source.folder, name)),
            )
            elsewhere = beside != package and not {f"{beside}.py", f"{beside}/__init__.py"} & paths
            # a package without `__init__.py`
            modules = any(path.startswith(f"{package}/") and path.endswith(".py") for path in paths)
            modules = modules and not source.path.startswith(f"{package}/")
            if elsewhere and (modules or f"{package}/__init__.py" in paths):
                return {"PYTHONPATH": os.path.relpath(base, folder)}
    return {}


def _prepared(
    source: Source, known: Readmes, chosen: Shown | None, paths: set[str], folder: str
) -> tuple[list[str], list[str]]:
    """The commands with which a README makes this script's data first, where it is not here yet;
    or, for a download, a note."""
    gone = [name for name in source.opened if absent(source, name, paths)]
    before = []
    for item in known.commands[: known.commands.index(chosen)] if chosen else ():
        home = PurePosixPath(item.script).parent.as_posix()
        made = (
            any(path.startswith(f"{home}/") and is_data(path) for path in paths)
            if home != source.folder
            else not gone
        )
        same = (item.readme, item.folder) == (chosen.readme, chosen.folder) if chosen else False
        if same and _PREPARES.search(PurePosixPath(item.script).stem) and not made:
            before.append(item)
    if before and not any(
        DOWNLOADS.search(Source(source.root, item.script).text) for item in before
    ):
        return [
            shlex.join(["python", _seen(item.script, folder), *item.words]) for item in before
        ], []
    again = "then `repro-gate init --force` lists"
    if before:
        command = shlex.join(["python", before[0].script, *before[0].words])
        return [], [
            f"{before[0].readme} runs `{command}` first: run it once, {again} the data that it made"
        ]
    return [], [
        f"it opens {', '.join(gone)}, not found here: make it first, {again} it as data"
    ] if gone else []
