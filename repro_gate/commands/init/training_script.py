"""Which files of a checkout train, ranked by their names, their source and what the READMEs run.

Parses Python, runs none of it. Standard library only.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

from repro_gate.commands.init.readme_commands import AT_ROOT, readmes
from repro_gate.commands.init.script_command import TrainingScript, described
from repro_gate.commands.init.script_options import script_options
from repro_gate.commands.init.script_source import DOWNLOADS, SIGNS, Source, absent
from repro_gate.commands.init.survey import Tree, below

MAX_READ = 1_000  # Python files whose source is looked at
MAX_PROPOSED = 5
ENOUGH = 35  # a script below this score is not proposed

_NAMES = (
    (r"train", 50), (r"(pre_?|fine_?)?train(er|ing)?([_-].*)?", 40), (r".*[_-]train(ing)?", 10), (r"(fine_?tune|fit)([_-].*)?", 40),
    (r"main", 20), (r"run([_-].*)?", 15), (r"__main__", 15), (r"experiment|demo|example", 2),
)  # fmt: skip
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
_NOT_SCRIPTS = re.compile(r"(test_.*|conftest|setup|noxfile|__init__|configurator)\.py")


def training_scripts(root: Path, tree: Tree, only: str | None = None) -> list[TrainingScript]:
    """The scripts that probably train, the likeliest first; empty where none scores high enough. `only` names the one to describe."""
    known, paths = readmes(root, tree), {file.path for file in tree.files}
    if only is not None:
        return [described(Source(root, only), known, paths)]
    names = [file.path for file in tree.files if file.path.endswith(".py") and "{seed}" not in file.path][:MAX_READ]
    ranked = []
    for name in names:
        source = Source(root, name)
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
    return [described(source, known, paths) for _, _, source in order[:MAX_PROPOSED]]


def _score(source: Source) -> int:
    """How much a script looks like training, by its own name, folders and text. 0 for what is none."""
    path = PurePosixPath(source.path)
    by_content = sum(points for _, points, reason in SIGNS if reason in source.reasons)
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


def _gaps(source: Source, paths: set[str]) -> int:
    """Points (below zero) for what a script asks for and nobody has given: arguments, the network, and files that are not here."""
    asked = len(script_options(source.tree, source.config).required)
    modules = [below(source.folder, f"{name}.py") for name in ("utils", "data", "dataset")]  # where scripts have their loaders
    texts = [source.text, *(Source(source.root, path).text for path in modules if path and path in paths)]
    points = 20 if any(map(DOWNLOADS.search, texts)) else 0
    return -10 * min(2, asked) - points - (10 if any(absent(source, name, paths) for name in source.opened) else 0)
