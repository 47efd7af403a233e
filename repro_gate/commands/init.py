"""`repro-gate init`: takes the script that trains, by its name and its imports, and writes a
commented `repro.yml` for it: how it is started, and the data that git ignores. Nothing of the
checkout is run."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import warnings
from argparse import Namespace
from collections import Counter
from collections.abc import Set
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from repro_gate._version import DOCS_URL, SCHEMAS_URL
from repro_gate.commands import output
from repro_gate.commands.init_github import write_workflow
from repro_gate.commands.starting import checkout_at, data_section, start_of
from repro_gate.errors import UsageError
from repro_gate.escape import for_terminal, listed
from repro_gate.files import Unreadable, is_inside, read_text, walk
from repro_gate.spec.document import written
from repro_gate.spec.model import Spec, Train
from repro_gate.trace import notebook

_MOST = {"scripts": 1_000, "folders": 20_000}  # that are looked at
_MAX_BYTES = 1024 * 1024  # of a script; notebooks hold pictures and may be larger
_FRAMEWORKS = re.compile(
    "torch|lightning|pytorch_lightning|transformers|accelerate|deepspeed|trl|fastai|ignite|composer"
    "|repro_gate"
)
_NAMES = r"(pre[-_]?)?train(ing)?|fine[-_]?tun(e|ing)|fit|main"
_SCRIPT = re.compile(
    r"(?!\.|test_|(?:conftest|setup|noxfile)\.py$).*\.(?:py|ipynb)", re.DOTALL
)
_NOT_ENTERED = re.compile(
    r"\..*|tests?|docs?|build|dist|v?env|virtualenv|node_modules|site-packages|.*\.egg-info"
)
# a line of a notebook that is no Python
_MAGIC = re.compile(r"^([ \t]*)[%!].*", re.MULTILINE)
_PATH = re.compile(r"[\w.~-]*/[\w./-]{1,200}|\.\.", re.ASCII)
_SEED = re.compile(r"(--seed[ =])\d+")
# in YAML, after the command's first word
_PLAIN = re.compile(r"[\w./{}= -]+", re.ASCII)
_LOCKFILES = ("uv.lock", "poetry.lock", "pdm.lock", "pylock.toml", "requirements.lock")

_TEXT = """\
# yaml-language-server: $schema={schemas}/spec/schema.json
# repro.yml, drafted by `repro-gate init`. It says what trains and what has to repeat; every key is described in
# {docs}/repro-yml.md
# A line that is a comment and a key is a suggestion. Editors complete and explain keys by the first line's schema.

# The version of the spec format.
version: 1

train:
  # Any command for the shell, unmodified; {{seed}} is filled in. (`snippet: |` with inline Python is the other way.)
{comments}
  run: {run}
  # The folder in which it starts, relative to this file.
  working-directory: {directory}
  # Stop after this many optimizer steps; without this key it runs to the end.
  steps: 50
  # Steps at the start that are left out of the timing.
  warmup: 5
  # How long one run may take: 90s, 20m, 1.5h.
  timeout: 20m
  # Variables for the training process; of the surroundings only an allow-list is passed on.
  env: {variables}

random-state:
  # Python, NumPy, torch (CPU and every CUDA device) and DataLoader workers get this seed.
  seed: 42
  # seeds: [1, 2, 3]      # in place of `seed`: gate the training once with each

determinism:
  # What counts as the same: every bit, or a tolerance such as {{loss: 1.0e-6, weights: 1.0e-5}}.
  compare: bitwise
  # Determinism flags that are left off, each as {{flag: …, reason: …}}.
  allow: []
  # Losses and parameters that are not finite from the first steps on fail, unless this is `true`.
  allow-nonfinite: false

capture:
  # Steps between digests: larger is faster, and finds a divergence less exactly.
  every: 1
  # Files that the training writes, as globs below the working directory: they are compared value by value after the run.
  # artifacts: [out/*.pt, out/metrics.json]

# Training that is stopped and resumes from a checkpoint must be the same training: how many optimizer steps before it is stopped, the
# file or folder that it leaves, and the command that resumes.
# resume:
#   after: 20
#   checkpoint: out/ckpt*.pt
#   run: python train.py --seed {{seed}} --resume {{checkpoint}}

# Other ways to the same training, compared bit for bit or within what rounding alone does.
# equivalent:
#   - name: accumulation
#     run: python train.py --seed {{seed}} --batch 4 --accumulate 4
#     compare: rounding

cost:
  # Runs without the flags measure what determinism costs, and the noise it removes; `false` leaves them out.
  measure: true
  # The gate fails if a step is slower by more than this many percent.
  # max-percent: 30

# The files that training reads: verified, and linked read-only into the workspace of every run. What git ignores and is not
# named here no run has. Name each, with the checksum that the first run shows.
{data}

# The lockfile that the environment you train in was built from, with every package pinned (`uv lock` or `pip-compile
# --generate-hashes` makes one), and the container image that training runs in, by its digest.
# env:
#   lockfile: {lockfile}
#   image: ghcr.io/org/train@sha256:…

# The device: `cuda`, or `cpu`, which hides the GPUs (left out: whatever the training picks); how many GPUs are needed; and which
# model the result holds for.
# hardware:
#   device: cuda
#   gpus: 1
#   gpu-model: H100

checklist:
  # `basic`: what is declared must be true, what is missing warns. `strict`: what is missing fails too.
  profile: basic
  # Checks that may fail for now, each as {{check: env/image-digest, reason: …, until: 2027-06-30}}.
  waive: []
"""  # noqa: E501


@dataclass(frozen=True, kw_only=True)
class Script:
    """A script or a notebook, as its syntax tree describes it."""

    path: PurePosixPath  # in the checkout
    modules: Set[str]  # that it imports
    literals: Set[str]  # that look like paths
    has_relative_import: bool
    has_seed_option: bool
    does_something: bool  # when it is started; other files only define

    @property
    def is_notebook(self) -> bool:
        """Return whether `jupyter` runs it."""
        return self.path.suffix == notebook.SUFFIX

    @property
    def name_rank(self) -> int:
        """Return 2 if it is named `train` or the like, 1 if a word of its name is, else 0."""
        name = self.path.stem.lower()
        word = re.search(rf"(^|[-_. ])({_NAMES})($|[-_. ])", name)
        return bool(word) + bool(re.fullmatch(_NAMES, name))

    @property
    def imports(self) -> frozenset[str]:
        """Return the packages' names."""
        return frozenset(name.partition(".")[0] for name in self.modules)

    @property
    def frameworks(self) -> list[str]:
        """Return the names of what it trains with."""
        return sorted(filter(_FRAMEWORKS.fullmatch, self.imports))

    @property
    def standing(self) -> tuple[bool, bool, int, int]:
        """Return what candidates are ordered by: the likeliest has the least. Of those with a name
        of training, the one nearest to the top is."""
        depth = len(self.path.parts) if self.name_rank else 0
        return not self.frameworks, self.is_notebook, -self.name_rank, depth

    def __str__(self) -> str:
        reasons = ["by its name"] if self.name_rank else []
        if self.frameworks:
            reasons.append(f"imports {', '.join(self.frameworks)}")
        return f"{self.path} ({', '.join(reasons) or 'named by --script'})"

    def command(self, place: PurePosixPath) -> str:
        """Return the command that runs it from a folder of the checkout."""
        path = os.path.relpath(self.path, place)
        words = ["python", f"./{path}" if path.startswith("-") else path]
        if self.is_notebook:
            words[:1] = ["jupyter", "execute"]
        elif self.has_relative_import:
            words[1:] = ["-m", ".".join(PurePosixPath(path).with_suffix("").parts)]
        return shlex.join(words)


def init_command(options: Namespace) -> int:
    """Write `repro.yml` for the checkout at a folder, or print it. Return the exit code; raise
    UsageError."""
    folder = options.folder or Path()
    script = options.script
    if not folder.is_dir():
        raise UsageError(
            f"{folder}: is not a folder", remedy="name the folder of the checkout"
        )
    target = folder / "repro.yml"
    is_there = os.path.lexists(target)
    if options.github and not options.stdout and is_there:
        write_workflow(folder, force=options.force)
        return 0
    if not (options.stdout or options.force) and is_there:
        raise UsageError(
            f"{target}: already exists",
            remedy="write it anew with --force, or see a draft with `repro-gate init --stdout`",
        )
    scripts = [_script_at(folder, script)] if script else _candidates(folder)
    best = [script for script in scripts if script.standing == scripts[0].standing]
    if len(best) != 1:
        names = [str(script.path) for script in best]
        why = f"several scripts may be the training: {listed(names, 20)}"
        raise UsageError(
            f"{folder}: {why if names else 'no training script was found'}",
            remedy=f"name one, as in `--script {shlex.quote((*names, 'PATH')[0])}`; or write "
            f"another command by hand: {DOCS_URL}/repro-yml.md",
        )
    text = _draft(folder, best[0], scripts[1:])
    if options.stdout:
        print(text, end="")
        return 0
    output.replace(target, text)
    spec = "" if folder == Path() else f" {shlex.quote(str(folder))}"
    print(
        f"wrote {target} for {best[0]}: check `train.run`, it must be the command that you type"
    )
    print(f"first try: repro-gate run{spec} --quick --steps 2")
    if options.github:
        write_workflow(folder, force=options.force)
    return 0


def _candidates(folder: Path) -> list[Script]:
    """Return what may train, the likeliest first. Raise UsageError if the checkout is too large to
    be looked at."""
    scripts = []
    counts = Counter[str]()
    for path in walk(folder, _is_left_out):
        kind = "folders" if path.endswith("/") else "scripts"
        counts[kind] += 1
        if counts[kind] > _MOST[kind]:
            raise UsageError(
                f"{folder}: has more than {_MOST[kind]:,} {kind}",
                remedy="name the one that trains with --script PATH",
            )
        if kind == "scripts":
            with suppress(Unreadable):
                scripts.append(_read(folder, path))
    candidates = (
        script
        for script in scripts
        if script.does_something
        and (script.frameworks or (script.name_rank and not script.is_notebook))
    )
    return sorted(candidates, key=lambda script: (script.standing, script.path))


def _is_left_out(entry: os.DirEntry[str]) -> bool:
    """Return whether an entry is no script or notebook, or a folder of tests, of an environment or
    of somebody else's."""
    if not entry.is_dir(follow_symlinks=False):
        return not _SCRIPT.fullmatch(entry.name)
    if _NOT_ENTERED.fullmatch(entry.name) or not os.access(entry, os.R_OK | os.X_OK):
        return True
    return any(Path(entry, name).exists() for name in ("pyvenv.cfg", "conda-meta"))


def _script_at(folder: Path, script: Path) -> Script:
    """Return the script of `--script`, a path from the checkout or from the current folder."""
    why = f"is not a Python file or a notebook in {folder}"
    for path in (folder / script, script):
        is_script = path.is_file() and path.suffix in (".py", notebook.SUFFIX)
        if is_script and is_inside(path, folder):
            try:
                return _read(folder, os.path.relpath(path.resolve(), folder.resolve()))
            except Unreadable as error:
                why = str(error)
    raise UsageError(
        f"--script {script}: {why}",
        remedy="name another one, or write another command under `train.run`",
    )


def _read(folder: Path, path: str) -> Script:
    """Return what a script's syntax tree says. Raise Unreadable if it cannot be read or named in a
    command; where it does not parse, it has no imports."""
    if not path.isprintable() or "{seed}" in path:
        raise Unreadable("has a name that no `train.run` can hold: rename it")
    is_notebook = path.endswith(notebook.SUFFIX)
    limit = notebook.MAX_BYTES if is_notebook else _MAX_BYTES
    text = read_text(folder / path, folder, limit)
    cells = notebook.code_cells(text.encode()) if is_notebook else [text]
    top: list[ast.stmt] = []
    for cell in cells:
        code = _MAGIC.sub(r"\1pass", cell) if is_notebook else cell
        with (
            warnings.catch_warnings(),
            suppress(SyntaxError, ValueError, RecursionError, MemoryError),
        ):
            warnings.simplefilter("ignore")  # of the code that is read
            top += ast.parse(code).body
    modules = set[str]()
    literals = set[str]()
    arguments = set[object]()
    is_relative = False
    for node in ast.walk(ast.Module(top, [])):
        match node:
            case ast.Import():
                modules.update(alias.name for alias in node.names)
            case ast.ImportFrom(module=str(module), level=0):
                modules.add(module)
            case ast.ImportFrom():
                is_relative = True
            case ast.Call():
                arguments.update(getattr(it, "value", None) for it in node.args)
            case ast.Constant(value=str(text)) if _PATH.fullmatch(text):
                literals.add(text)
    return Script(
        path=PurePosixPath(path),
        modules=modules,
        literals=literals,
        has_relative_import=is_relative,
        has_seed_option="--seed" in arguments,
        does_something=is_notebook or any(map(_does_something, top)),
    )


def _does_something(statement: ast.stmt) -> bool:
    match statement:
        case ast.If():
            names = (getattr(node, "id", "") for node in ast.walk(statement.test))
            return "__name__" in names
        case ast.Expr(value=ast.Call()) | ast.For() | ast.While() | ast.With():
            return True
    return False


def _draft(folder: Path, script: Script, others: list[Script]) -> str:
    """Return the text of a `repro.yml` that runs `script`."""
    paths = listed([str(other.path) for other in others], 20)
    real = Path(os.path.realpath(folder))
    checkout = checkout_at(real)
    start = start_of(
        real / script.path,
        real,
        checkout.root,
        imports=script.modules,
        literals=script.literals,
        as_module=script.is_notebook or script.has_relative_import,
    )
    directory = os.path.relpath(start.folder, real)
    own = script.command(PurePosixPath(directory))
    command, *also = start.commands or [own]
    run = _seeded(command, script)
    notes = {
        f"Taken: {script}.": True,
        f"Also possible, with `repro-gate init --script PATH`: {paths}.": others,
        f"README has it too as: {listed(also, 5)}": also,
        "Where you train, it needs nbclient and ipykernel.": script.is_notebook,
        "No option --seed was found: the gate seeds Python, NumPy and torch itself.": (
            not script.has_seed_option
        ),
    }
    spec = Spec(
        path=real / "repro.yml", train=Train(run=run, working_directory=directory)
    )
    locks = (name for name in _LOCKFILES if (folder / name).is_file())
    variables = ["WANDB_MODE: disabled"] if "wandb" in script.imports else []
    if start.python_path:
        variables.append(f"PYTHONPATH: {written(start.python_path)}")
    return _TEXT.format(
        schemas=SCHEMAS_URL,
        docs=DOCS_URL,
        comments="\n".join(
            f"  # {for_terminal(note)}" for note, applies in notes.items() if applies
        ),
        run=run if _PLAIN.fullmatch(run) else json.dumps(run, ensure_ascii=False),
        directory=written(directory),
        variables=f"{{{', '.join(variables)}}}",
        data=data_section(spec, checkout, start.modules),
        lockfile=next(locks, "uv.lock"),
    )


def _seeded(run: str, script: Script) -> str:
    """Return the command with the gate's seed, in place of one that it names."""
    if not script.has_seed_option or script.is_notebook:
        return run
    known = _SEED.sub(r"\1{seed}", run)
    return known if known != run else f"{run} --seed {{seed}}"
