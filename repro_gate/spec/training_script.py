"""Which file of a checkout trains, and the command that runs it: guessed from names, from the source and from the READMEs, with reasons.

Parses Python, runs none of it. Standard library only.
"""

from __future__ import annotations

import ast
import os
import re
import shlex
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

from repro_gate.spec.readme_commands import AT_ROOT, Readmes, Shown, readmes
from repro_gate.spec.script_options import ScriptOptions, script_options
from repro_gate.spec.survey import Tree, below, head, is_data

MAX_READ = 1_000  # Python files whose source is looked at
MAX_PROPOSED = 5
ENOUGH = 35  # a script below this score is not proposed

_NAMES = (
    (r"train", 50), (r"(pre_?|fine_?)?train(er|ing)?([_-].*)?", 40), (r".*[_-]train(ing)?", 10), (r"(fine_?tune|fit)([_-].*)?", 40),
    (r"main", 20), (r"run([_-].*)?", 15), (r"__main__", 15), (r"experiment|demo|example", 2),
)  # fmt: skip
_SIGNS = (
    (r"^\s*(import|from) torch\b", 15, "imports torch"),
    (r"^\s*(import|from) (lightning|pytorch_lightning)\b", 10, "imports Lightning"),
    (r"^\s*(import|from) (transformers|accelerate)\b", 5, "imports transformers or accelerate"),
    (r"\.backward\(", 25, "calls `.backward(`"),
    (r"\b(optim\w*|opt|scaler|svi)\.step\(", 20, "steps an optimizer"),
    (r"\b\w*Trainer\(", 20, "builds a Trainer"),
    (r"^from .*\btrain(er)?(\.\w+)* import|^from .* import .*\b\w*Trainer\b", 15, "imports a trainer"),
    (r"\.fit\(|\.train\(\)", 5, "fits a model"),
)
_TRAINS = frozenset({"calls `.backward(`", "steps an optimizer", "builds a Trainer", "imports a trainer", "fits a model"})
# What speaks against a script, in its folders, its name and its source: another purpose, or hardware that a machine may not have.
_FOLDERS = (
    (r"(test|tests|docs?|benchmarks?)", 80), (r"(experiments?|experimental|research|contrib|legacy|old|third_party|vendor)", 60),
    (r"(examples?|notebooks?)", 10), (r".*(distributed|multi[-_]?gpu|multi[-_]?node|tpu|xla|slurm|inference).*", 30),
)  # fmt: skip
_WORDS = (
    (r"tpu|xla|jax|hpu|horovod|slurm|mpi|launcher", 50),
    (r"ddp|fsdp\d?|distributed|multigpu|gpu|parallel|parallelism|deepspeed|hogwild", 30),
    (r"eval|evaluate|sample|generate|infer|inference|predict|benchmark|bench|test|validate|export|prepare|download|utils?", 30),
    (r"legacy|old|llama\d?|complete|advanced|comparison|compare|ablation", 10), (r"mnist|toy|tiny|simple|basic|minimal", -5),
)  # fmt: skip
_SOURCES = (
    (r"^\s*(import|from) (torch_xla|jax|flax|horovod)\b", 50), (r"^import wandb", 10),
    (r"init_process_group|LOCAL_RANK|fully_shard|FullyShardedDataParallel", 15),
    (r"^\s*(import|from) (pytest|unittest)\b|^\s*def test_", 80),
)  # fmt: skip
_ON_CUDA_ALONE = re.compile(r"\.cuda\(\)|\.to\(.cuda.\)|device *= *.cuda")
_SETTING_UP = r"\w*seed|append|insert|filterwarnings|simplefilter|basicConfig|register\w*|update|set_\w+"
_NOT_SCRIPTS = re.compile(r"(test_.*|conftest|setup|noxfile|__init__|configurator)\.py")
_READERS = frozenset({"open", "load", "read_csv", "loadtxt", "genfromtxt", "read_parquet", "fromfile", "memmap", "read_json", "read_text"})
_PREPARES = r"prepare|generate|download|preprocess|make_data"
_DOWNLOADS = re.compile(r"\brequests\b|\burllib\b|load_dataset\(|download\w*(=True|\()|from_pretrained\(|\bobservations\b")
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


class _Source:
    """One Python file: its text and what the syntax tree tells of it."""

    def __init__(self, root: Path, path: str) -> None:
        self.root, self.path = root, path
        self.folder = PurePosixPath(path).parent.as_posix()
        self.text = head(root / path).decode("utf-8", "replace")

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax tree; empty where the source does not parse."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the user's invalid escapes are not ours to report
                return ast.parse(self.text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return ast.Module([], [])

    @cached_property
    def is_script(self) -> bool:
        """Whether running the file does something: it has code beside imports, definitions and values. Unparsable source may."""
        return not self.tree.body or any(_acts(node) for node in self.tree.body)

    @cached_property
    def reasons(self) -> tuple[str, ...]:
        """The signs of training that its source shows."""
        return tuple(reason for pattern, _, reason in _SIGNS if re.search(pattern, self.text, re.MULTILINE))

    @cached_property
    def paths(self) -> frozenset[str]:
        """The texts of the source that look like paths."""
        texts = (node.value for node in ast.walk(self.tree) if isinstance(node, ast.Constant) and isinstance(node.value, str))
        return frozenset(text for text in texts if text.isprintable() and re.fullmatch(r"[^\s:*?]{1,200}", text))

    @cached_property
    def opened(self) -> tuple[str, ...]:
        """The files that it opens for reading by a name that stands in the source, without those that it writes."""
        read, written = [], set()
        for call in ast.walk(self.tree):
            if not isinstance(call, ast.Call):
                continue
            texts = [node.value for node in call.args if isinstance(node, ast.Constant) and isinstance(node.value, str)]
            name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
            reads = name in _READERS and not any(re.fullmatch(r"[wax][bt+]*", text) for text in texts[1:2])
            if reads and texts and texts[0] in self.paths and "." in texts[0]:
                read.append(texts[0])
            else:
                written.update(texts)
        return tuple(dict.fromkeys(name for name in read if name not in written))

    @cached_property
    def imports(self) -> frozenset[str]:
        """The names of the packages that it imports by their full names."""
        names = set()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
                names.add(node.module.partition(".")[0])
        return frozenset(names)

    def config(self, path: str) -> str:
        """The text of a YAML file beside the script, named with or without its suffix."""
        for suffix in ("", ".yaml", ".yml"):
            found = below(self.folder, path + suffix)
            if found and (self.root / found).is_file():
                return head(self.root / found).decode("utf-8", "replace")
        return ""


def training_scripts(root: Path, tree: Tree, only: str | None = None) -> list[TrainingScript]:
    """The scripts that probably train, the likeliest first; empty where none scores high enough. `only` names the one to describe."""
    known, paths = readmes(root, tree), {file.path for file in tree.files}
    if only is not None:
        return [_described(_Source(root, only), known, paths)]
    names = [file.path for file in tree.files if file.path.endswith(".py") and "{seed}" not in file.path][:MAX_READ]
    ranked = []
    for name in names:
        source = _Source(root, name)
        try:
            if not (score := _score(source)):
                continue
            points, first = known.points(name)
            if score + points // 2 >= ENOUGH:
                ranked.append((score + points + _gaps(source, paths), first, source))
        except RecursionError:  # no script of a person is nested so deep
            continue
    # The one that the README at the root names first is the one that it recommends.
    recommended = min((first for _, first, _ in ranked if first < AT_ROOT), default=None)
    order = sorted(
        ranked, key=lambda item: (-item[0] - (15 if item[1] == recommended else 0), item[1], item[2].path.count("/"), item[2].path)
    )
    return [_described(source, known, paths) for _, _, source in order[:MAX_PROPOSED]]


def _score(source: _Source) -> int:
    """How much a script looks like training, by its own name, folders and text. 0 for what is none."""
    path = PurePosixPath(source.path)
    by_content = sum(points for _, points, reason in _SIGNS if reason in source.reasons)
    by_name = next((points for pattern, points in _NAMES if re.fullmatch(pattern, path.stem.lower())), 0)
    folders = [folder.lower() for folder in path.parts[:-1]]
    against = sum(points for pattern, points in _FOLDERS if any(re.fullmatch(pattern, folder) for folder in folders))
    # `add_test.py` is a test unless its own code trains; then it says what it tests, not how.
    words = re.split(r"[_\W]+", path.stem.lower().removesuffix("_test"))
    against += sum(points for pattern, points in _WORDS if any(re.fullmatch(pattern, word) for word in words))
    against += sum(points for pattern, points in _SOURCES if re.search(pattern, source.text, re.MULTILINE))
    against += 8 if _ON_CUDA_ALONE.search(source.text) and "is_available" not in source.text else 0
    score = by_name + by_content - against - 4 * len(folders)
    trains = by_name >= ENOUGH or _TRAINS & set(source.reasons)
    return score if score > 0 and trains and not _NOT_SCRIPTS.fullmatch(path.name) and source.is_script else 0


def _gaps(source: _Source, paths: set[str]) -> int:
    """Points (below zero) for what a script asks for and nobody has given: arguments, the network, and files that are not here."""
    asked = len(script_options(source.tree, source.config).required)
    modules = [f"{source.folder}/{name}.py" for name in ("utils", "data", "dataset")]  # where a script beside them has its loaders
    texts = [source.text, *(_Source(source.root, path).text for path in modules if path in paths)]
    points = 20 if any(map(_DOWNLOADS.search, texts)) else 0
    return -10 * min(2, asked) - points - (10 if any(_absent(source, name, paths) for name in source.opened) else 0)


def _absent(source: _Source, name: str, paths: set[str]) -> bool:
    return not {below(".", name), below(source.folder, name)} & paths and not os.path.isabs(name)


def _acts(node: ast.stmt) -> bool:
    if isinstance(node, ast.If):
        return any(isinstance(item, ast.Constant) and item.value == "__main__" for item in ast.walk(node.test)) or any(
            map(_acts, [*node.body, *node.orelse])
        )
    if isinstance(node, ast.Try):
        return any(map(_acts, node.body))
    return isinstance(node, (ast.For, ast.While, ast.With)) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and _trains(node)
    )


def _trains(node: ast.Expr) -> bool:
    """Whether a call on the top level may be the training, as `main()` or `trainer.fit(model)`; `torch.manual_seed(0)` is not."""
    names = {getattr(item, "attr", getattr(item, "id", "")) for item in ast.walk(node)}
    return not any(re.fullmatch(_SETTING_UP, name) for name in names)


def _described(source: _Source, known: Readmes, paths: set[str]) -> TrainingScript:
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
    if before and not any(_DOWNLOADS.search(_Source(source.root, item.script).text) for item in before):
        run = " && ".join([*(shlex.join(["python", _seen(item.script, folder), *item.words]) for item in before), run])
    elif before:
        command = shlex.join(["python", before[0].script, *before[0].words])
        notes.append(f"{before[0].readme} runs `{command}` first: run it once, then `repro-gate init --force` lists the data that it made")
    elif gone := [name for name in source.opened if _absent(source, name, paths)]:
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


def _config_paths(source: _Source, word: str, folder: str) -> frozenset[str]:
    """The paths that a configuration in Python names, given on the command line as nanoGPT's are."""
    found = below(folder, word) if word.endswith(".py") else None
    return _Source(source.root, found).paths if found else frozenset()


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


def _seed_note(source: _Source, options: ScriptOptions) -> list[str]:
    if options.own_seed is None:
        name = PurePosixPath(source.path).name
        return [f"{name} shows no option for a seed, and does not seed itself: the gate seeds Python, NumPy and torch from outside"]
    line, number = options.own_seed
    name, seed = PurePosixPath(source.path).name, "" if number is None else f" with {number}"
    return [f"{name} seeds itself{seed} ({source.path}:{line}); the gate's seed does not reach it"]


def _start(source: _Source, paths: set[str], shown: Shown | None) -> tuple[list[str], str]:
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


def _launcher(source: _Source, module: str, known: Readmes, paths: set[str]) -> str:
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


def _runs_beside(source: _Source, paths: set[str]) -> bool:
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


def _python_path(source: _Source, folder: str, paths: set[str]) -> tuple[tuple[str, str], ...]:
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


def _preparations(source: _Source, known: Readmes, chosen: Shown | None, paths: set[str]) -> Iterator[Shown]:
    """The scripts that a README runs before this one to make its data, where that data is not here yet."""
    if chosen is None:
        return
    absent = any(_absent(source, name, paths) for name in source.opened)
    for item in known.commands[: known.commands.index(chosen)]:
        if not re.search(_PREPARES, PurePosixPath(item.script).stem):
            continue
        home = PurePosixPath(item.script).parent.as_posix()
        made = any(path.startswith(f"{home}/") and is_data(path) for path in paths) if home != source.folder else not absent
        if (
            (item.readme, item.folder) == (chosen.readme, chosen.folder)
            and re.search(_PREPARES, PurePosixPath(item.script).stem)
            and not made
        ):
            yield item
