"""Which file of a checkout trains, and the command that runs it: a guess from names and from the source, with its reasons.

Called by `spec.init`. Parses Python, runs none of it. Standard library only.
"""

from __future__ import annotations

import ast
import re
import shlex
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from repro_gate.spec.survey import Tree, head

MAX_READ = 1_000  # Python files whose source is looked at
ENOUGH = 35  # a script below this score is not proposed

_NAMES = (
    (r"train", 50), (r"(pre_?|fine_?)?train(er|ing)?([_-].*)?|.*[_-]train(ing)?", 40), (r"(fine_?tune|fit)([_-].*)?", 40),
    (r"main", 20), (r"run([_-].*)?", 15), (r"__main__", 15), (r"experiment|demo|example", 5),
)  # fmt: skip
_SIGNS = (
    (r"^\s*(import|from) torch\b", 15, "imports torch"),
    (r"^\s*(import|from) (lightning|pytorch_lightning)\b", 20, "imports Lightning"),
    (r"^\s*(import|from) (transformers|accelerate)\b", 15, "imports transformers or accelerate"),
    (r"\.backward\(", 25, "calls `.backward(`"),
    (r"\b(optim\w*|opt|scaler)\.step\(", 20, "steps an optimizer"),
    (r"\b\w*Trainer\(", 20, "builds a Trainer"),
    (r"\.fit\(|\.train\(\)", 5, "fits a model"),
    (r"^if __name__ ==", 10, "is a script"),
)
_PENALTIES = ((r"^(test|tests|docs?|benchmarks?)$", 80), (r"^(examples?|notebooks?|third_party|vendor|legacy|old)$", 10))
_NOT_SCRIPTS = re.compile(r"(test_.*|.*_test|conftest|setup|noxfile|__init__)\.py")
_SEED_OPTION = re.compile(r"--(random[-_]?|rng[-_]?|manual[-_]?|global[-_]?)?seed")


@dataclass(frozen=True)
class TrainingScript:
    """A script that probably trains. `run` is the command, `reasons` say why it was picked, `notes` what the user should look at."""

    path: str
    score: int
    run: str
    working_directory: str
    reasons: tuple[str, ...]
    notes: tuple[str, ...]
    default_seed: int | None  # of the script's own `--seed`


@dataclass(frozen=True)
class _Options:
    """The command-line options that a script declares with argparse or click."""

    seed: str | None = None
    default_seed: int | None = None
    required: tuple[str, ...] = ()


def training_scripts(root: Path, tree: Tree) -> list[TrainingScript]:
    """The scripts that probably train, the likeliest first; empty where none scores high enough."""
    paths = [file.path for file in tree.files if file.path.endswith(".py") and "{seed}" not in file.path][:MAX_READ]
    scored = sorted(
        ((_score(path, _source(root / path)), path) for path in paths), key=lambda pair: (-pair[0], pair[1].count("/"), pair[1])
    )
    return [_described(root, path, score, tree) for score, path in scored[:5] if score >= ENOUGH]


def _score(path: str, source: str) -> int:
    name, folders = PurePosixPath(path).name, PurePosixPath(path).parts[:-1]
    if _NOT_SCRIPTS.fullmatch(name):
        return 0
    by_name = next((points for pattern, points in _NAMES if re.fullmatch(pattern, name[:-3].lower())), 0)
    by_content = sum(points for pattern, points, _ in _SIGNS if re.search(pattern, source, re.MULTILINE))
    penalty = sum(points for pattern, points in _PENALTIES if any(re.match(pattern, folder.lower()) for folder in folders))
    return by_name + by_content - penalty - 4 * len(folders)


def _described(root: Path, path: str, score: int, tree: Tree) -> TrainingScript:
    source = _source(root / path)
    options = _options(source)
    command, folder = _command(path, source, {file.path for file in tree.files})
    seed = f" {options.seed} {{seed}}" if options.seed else ""
    notes = [f"it asks for {', '.join(options.required)}: add what it needs"] if options.required else []
    if re.search(r"init_process_group|LOCAL_RANK", source):
        notes.append("it looks distributed: `torchrun --standalone --nproc-per-node N` in place of `python` may be what you run")
    if not options.seed:
        notes.append("no `--seed` option was found: the gate seeds every generator itself, so none is needed")
    reasons = tuple(reason for pattern, _, reason in _SIGNS if re.search(pattern, source, re.MULTILINE))
    return TrainingScript(path, score, command + seed, folder, reasons, tuple(notes), options.default_seed)


def _command(path: str, source: str, paths: set[str]) -> tuple[str, str]:
    """The command and the folder it starts in. A module that needs its package is run with `-m`."""
    file = PurePosixPath(path)
    in_package = f"{file.parent}/__init__.py" in paths
    if not (file.name == "__main__.py" or (in_package and re.search(r"^\s*from \.", source, re.MULTILINE))):
        return shlex.join(["python", f"./{path}" if path.startswith("-") else path]), "."
    top = file.parent
    while f"{top.parent}/__init__.py" in paths:
        top = top.parent
    folder = top.parent
    parts = file.relative_to(folder).with_suffix("").parts
    module = ".".join(parts[:-1] if parts[-1] == "__main__" else parts)
    if not module:
        return shlex.join(["python", path]), "."
    return shlex.join(["python", "-m", module]), folder.as_posix()


def _options(source: str) -> _Options:
    """What `add_argument` and `click.option` declare. Source that does not parse declares nothing."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the user's invalid escapes are not ours to report
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return _Options()
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    declared = [call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr in ("add_argument", "option")]
    named = [(_texts(call.args), {word.arg: word.value for word in call.keywords}) for call in declared]
    seeds = [(name, words) for names, words in named for name in names if _SEED_OPTION.fullmatch(name)]
    required = [names[0] for names, words in named if names and (_constant(words.get("required")) is True or _is_positional(names, words))]
    if not seeds:
        parses_arguments = "TrainingArguments" in source and "HfArgumentParser" in source
        return _Options("--seed" if parses_arguments else None, None, tuple(required))
    default = _constant(seeds[0][1].get("default"))
    whole = isinstance(default, int) and not isinstance(default, bool) and 0 <= default < 2**32
    return _Options(seeds[0][0], default if whole and isinstance(default, int) else None, tuple(n for n in required if n != seeds[0][0]))


def _is_positional(names: Sequence[str], words: dict[str | None, ast.expr]) -> bool:
    return not names[0].startswith("-") and _constant(words.get("nargs")) not in ("?", "*") and "default" not in words


def _texts(arguments: Sequence[ast.expr]) -> list[str]:
    return [text for text in map(_constant, arguments) if isinstance(text, str) and text.isprintable()]


def _constant(node: ast.expr | None) -> object:
    return node.value if isinstance(node, ast.Constant) else None


def _source(path: Path) -> str:
    return head(path).decode("utf-8", "replace")
