"""Calls in the checkout's Python files that fetch a dataset or model from a hub, and whether each
names a commit. Files are parsed within limits and never imported; a name is followed inside its own
file, as far as it is bound once."""

from __future__ import annotations

import ast
import os
import re
import warnings
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from repro_gate.files import Unreadable, read_text
from repro_gate.spec.errors import escaped

PINNED, LOOSE, UNRESOLVED = "pinned", "loose", "unresolved"
MAX_FILES = 20_000
MAX_FILE_BYTES = 1 << 20
MAX_PARSED_BYTES = 3 << 20  # of all files that are parsed: a second at most
_DEPTH = 8  # names followed one after the other
_ASIDE = re.compile(
    r"(?:.*/)?(?:(?:tests?|testing|test_utils|docs?)/.*|test_[^/]*|[^/]*_test\.py|conftest\.py)",
    re.IGNORECASE,
)
_PACKAGES = (
    *(
        "transformers",
        "datasets",
        "diffusers",
        "tokenizers",
        "peft",
        "huggingface_hub",
        "optimum",
        "trl",
        "adapters",
        "setfit",
        "unsloth",
    ),
    "sentence_transformers",
)
_FETCHING = (
    "from_pretrained",
    "pipeline",
    "snapshot_download",
    "hf_hub_download",
    "SentenceTransformer",
    "CrossEncoder",
)
_DATASETS = ("datasets.load_dataset", "datasets.load_dataset_builder")
_CALL = re.compile(
    rf"^[^#\n]*\b(?:{'|'.join(_FETCHING)}|load_dataset(?:_builder)?|hub\.load|create_model)\(",
    re.MULTILINE,
)
_COMMIT = re.compile(r"(?<![0-9a-fA-F])[0-9a-fA-F]{40}(?![0-9a-fA-F])")
_REPOSITORY = re.compile(r"[A-Za-z0-9_][\w.-]{0,95}(?:/[A-Za-z0-9_][\w.-]{0,95})?", re.ASCII)
_URL = re.compile(r"(?:https?|hf|s3|gs|gcs)://", re.IGNORECASE)
# `datasets.packaged_modules`: builders that read the files they are given
_BUILDERS = (
    *(
        "csv",
        "json",
        "pandas",
        "parquet",
        "arrow",
        "text",
        "webdataset",
        "xml",
        "sql",
        "hdf5",
        "lance",
    ),
    *("imagefolder", "audiofolder", "videofolder", "pdffolder", "niftifolder"),
)
_NAMES = (
    "pretrained_model_name_or_path",
    "model_id",
    "model_name_or_path",
    "repo_id",
    "path",
    "model",
    "repo_or_dir",
)
# What code calls its own folders and files: a name like these may be a path that a run writes.
_OWN_PATH = re.compile(
    r"(?:outputs?|out|results?|checkpoints?|ckpts?|models?|data|datasets?|runs?|logs?|saved?|saved?_models?|weights|pretrained|cache|te?mp|"
    r"local|artifacts|exp|experiments)(?:/.*)?|(?:path[-_]to|your|my|te?mp)[-_].*|(?:.*/)?checkpoint-\d+(?:/.*)?|"
    r".*\.(?:pt|pth|bin|ckpt|safetensors|pkl|jsonl?|ya?ml|txt|csv|tsv|parquet|arrow|py|zip|gz|tar|npz|npy|h5)",
    re.IGNORECASE,
)
_UNKNOWN = object()
_NO_REVISION = "it takes the branch `main` as it is today"
_MOVING = "a branch, a tag or a short commit can come to mean something else"


@dataclass(frozen=True, kw_only=True)
class HubCall:
    """One call that fetches from a hub: the call in short, the repository where its name is known,
    and why it is not pinned."""

    path: str  # relative to the checkout's root
    line: int
    text: str
    state: str  # PINNED, LOOSE or UNRESOLVED
    repository: str = ""
    problem: str = ""

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}" + (
            f": {self.problem}" if self.problem else ""
        )


def find_revisions(
    root: Path, tracked: Iterable[str], local: Sequence[str] = (), first: Collection[str] = ()
) -> tuple[list[HubCall], list[str]]:
    """The calls in the tracked Python files below `root`, those of `first` before the others, in
    case there is too much to parse; and of which files the gate could not tell, and why (`path:
    why`). `local` are further paths that the code may name: declared data."""
    ordered = sorted(tracked, key=lambda path: (path not in first, os.fsencode(path)))
    paths = [path for path in ordered if path.endswith(".py") and not _ASIDE.fullmatch(path)]
    calls, beyond, parsed = list[HubCall](), paths[MAX_FILES:], 0
    unread: list[str] = []
    for path in paths[:MAX_FILES]:
        if os.path.islink(root / path) or not os.path.lexists(root / path):
            continue  # what a link leads to is tracked itself, or elsewhere
        places = ("", path.rpartition("/")[0])

        def is_local(name: str, places: tuple[str, str] = places) -> bool:
            found = [os.path.normpath(os.path.join(place, name)) for place in places]
            return any(
                os.path.lexists(root / one)
                or any(f"{item}/".startswith(f"{one}/") for item in local)
                for one in found
            )

        try:
            source = read_text(root / path, root, MAX_FILE_BYTES)
            if not _CALL.search(source):
                continue
            if parsed + len(source) > MAX_PARSED_BYTES:
                beyond.append(path)
                continue
            parsed += len(source)
            calls += hub_calls(path, source, is_local)
        except (Unreadable, ValueError, SyntaxError, RecursionError, MemoryError) as error:
            unread.append(
                f"{path}: {'' if isinstance(error, Unreadable) else 'cannot be parsed: '}{error}"[
                    :300
                ]
            )
    if beyond:
        limits = f"the first {MAX_FILES:,} files and {MAX_PARSED_BYTES >> 20} MiB of code"
        unread.insert(0, f"{len(beyond)} files beyond {limits} ({beyond[0]}, …)")
    return calls, unread


def hub_calls(path: str, source: str, is_local: Callable[[str], bool]) -> list[HubCall]:
    """The calls of one file that fetch a dataset or a model, by line; `is_local` says whether a
    name is a path of the checkout. Raises SyntaxError, ValueError, RecursionError or MemoryError
    where it cannot be parsed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # odd escapes and comparisons are not ours to report
        tree = ast.parse(source, path)
    module = _Module()
    module.visit(tree)
    found = (_hub_call(path, call, module, is_local) for call in module.calls)
    return sorted((call for call in found if call is not None), key=lambda item: item.line)


class _Module(ast.NodeVisitor):
    """The calls of one file, and what each of its names is bound to: the dotted name of an import,
    an expression, or None (a parameter, a loop, whatever is not an assignment)."""

    def __init__(self) -> None:
        self.calls: list[ast.Call] = []
        self.bound: dict[str, list[str | ast.expr | None]] = {}
        self.saved: list[
            ast.expr
        ] = []  # paths that the file itself writes: `save_pretrained("x")`, `output_dir="x"`

    def bind(self, name: str, value: str | ast.expr | None) -> None:
        values = self.bound.setdefault(name, [])
        if not isinstance(value, str) or value not in values:
            values.append(value)

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            module = "" if isinstance(node, ast.Import) else "." * node.level + f"{node.module}."
            for item in node.names:
                top = item.name.partition(".")[0]
                self.bind(
                    item.asname or top, f"{module}{item.name if item.asname or module else top}"
                )
        elif (
            isinstance(node, ast.Assign)
            and len(node.targets) == 1
            and isinstance(node.targets[0], ast.Name)
        ):
            self.bind(node.targets[0].id, node.value)
            self.visit(node.value)
            return
        elif isinstance(node, ast.ClassDef):
            self.bind(node.name, node.bases[0] if node.bases else None)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.arg)):
            self.bind(node.arg if isinstance(node, ast.arg) else node.name, None)
        elif isinstance(node, (ast.Name, ast.Attribute)) and not isinstance(node.ctx, ast.Load):
            self.bind(node.attr if isinstance(node, ast.Attribute) else node.id, None)
        elif isinstance(node, ast.Call):
            self.calls.append(node)
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            self.saved += (
                node.args[:1]
                if name.startswith("save") or name.endswith("TrainingArguments")
                else []
            )
            self.saved += [
                item.value
                for item in node.keywords
                if item.arg in ("output_dir", "save_directory", "local_dir")
            ]
        self.generic_visit(node)

    def followed(self, node: ast.expr | None) -> str | ast.expr | None:
        """The expression or the import that an expression stands for; `CFG.base` is the `base` that
        a class of this file sets."""
        for _ in range(_DEPTH):
            name = node.id if isinstance(node, ast.Name) else None
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and not self.imported(node.value)
            ):
                name = node.attr if node.value.id in self.bound else None
            values = self.bound.get(name, []) if name else []
            if len(values) != 1 or values[0] is None:
                break
            if isinstance(values[0], str):
                return values[0]
            node = values[0]
        return node

    def constant(self, node: ast.expr | None) -> object:
        """The constant that an expression stands for, or _UNKNOWN."""
        found = self.followed(node)
        return found.value if isinstance(found, ast.Constant) else _UNKNOWN

    def imported(self, node: ast.expr | None, depth: int = 20) -> str:
        """The dotted name of an import that an expression stands for; an instance goes by its
        class. Empty where it is none."""
        found = self.followed(node) if isinstance(node, ast.Name) else node
        if isinstance(found, str) or not depth:
            return found if isinstance(found, str) else ""
        if isinstance(found, ast.Attribute):
            above = self.imported(found.value, depth - 1)
            return f"{above}.{found.attr}" if above else ""
        if isinstance(found, ast.Call):
            name = self.imported(found.func, depth - 1)
            return name if name.rpartition(".")[2][:1].isupper() else ""
        return ""


def _hub_call(
    path: str, call: ast.Call, module: _Module, is_local: Callable[[str], bool]
) -> HubCall | None:
    """The call as a HubCall; None where it fetches nothing."""
    dotted, given = module.imported(call.func), {item.arg: item.value for item in call.keywords}
    root, last = dotted.partition(".")[0], dotted.rpartition(".")[2]
    # after the task, or the base model
    at = {"pipeline": 1, "from_pretrained": int(dotted.startswith("peft.PeftModel"))}.get(last, 0)
    names = ("model",) if last == "pipeline" else _NAMES
    node = next(
        (given[name] for name in names if name in given),
        call.args[at] if at < len(call.args) else None,
    )
    name, open_ended = (
        module.constant(node),
        None in given or any(isinstance(item, ast.Starred) for item in call.args),
    )
    revision = (
        module.constant(given["revision"])
        if "revision" in given
        else _UNKNOWN
        if open_ended
        else None
    )
    repository = name if isinstance(name, str) else ""
    if dotted == "torch.hub.load":
        if "source" in given and module.constant(given["source"]) != "github":
            return None
        repository, _, revision = repository.partition(":")
    elif root == "timm" and last == "create_model":
        if not repository.startswith(("hf_hub:", "hf-hub:")):
            return None
        repository, _, revision = repository.partition(":")[2].partition("@")
    elif dotted in _DATASETS and repository in _BUILDERS:
        return _by_url(path, call, repository, module.followed(given.get("data_files")))
    elif not (dotted in _DATASETS or (root in _PACKAGES and last in _FETCHING)) or (
        module.constant(given.get("local_files_only")) is True
        or (repository and _is_path(repository, module, is_local))
    ):
        return None
    if not repository:
        found = module.followed(node)
        is_variable = isinstance(found, ast.expr) and not isinstance(
            found, (ast.Call, ast.Constant)
        )
        if not is_variable and not (node is None and open_ended):
            return None  # no name was given, or an object that another call made
        return HubCall(path=path, line=call.lineno, text=_shown(call, "…"), state=UNRESOLVED)
    stated = module.constant(given.get("revision"))
    text = _shown(
        call, _quoted(name), f", revision={_quoted(stated)}" if isinstance(stated, str) else ""
    )
    state, problem = (
        (UNRESOLVED, "") if revision is _UNKNOWN else (LOOSE, _MOVING if revision else _NO_REVISION)
    )
    if isinstance(revision, str) and _COMMIT.fullmatch(revision):
        state, problem = PINNED, ""
    return HubCall(
        path=path, line=call.lineno, text=text, state=state, repository=repository, problem=problem
    )


def _by_url(
    path: str, call: ast.Call, builder: str, files: str | ast.expr | None
) -> HubCall | None:
    """A packaged builder of `datasets` that is given a URL without a commit in it."""
    found = (
        [item.value for item in ast.walk(files) if isinstance(item, ast.Constant)]
        if isinstance(files, ast.expr)
        else []
    )
    loose = sorted(
        url for url in found if isinstance(url, str) and _URL.match(url) and not _COMMIT.search(url)
    )
    text = _shown(call, _quoted(builder), f", data_files={_quoted(loose[0])}") if loose else ""
    return (
        HubCall(
            path=path,
            line=call.lineno,
            text=text,
            state=LOOSE,
            problem="a URL that names no commit",
        )
        if loose
        else None
    )


def _is_path(name: str, module: _Module, is_local: Callable[[str], bool]) -> bool:
    own = not _REPOSITORY.fullmatch(name) or _OWN_PATH.fullmatch(name) or is_local(name)
    saved = (
        path for node in module.saved if isinstance(path := module.constant(node), str) and path
    )
    return bool(own) or any(f"{name}/".startswith(f"{path.rstrip('/')}/") for path in saved)


def _shown(call: ast.Call, name: str, more: str = "") -> str:
    return f"{escaped(ast.unparse(call.func))[-120:]}({name}{more})"


def _quoted(value: object) -> str:
    text = str(value)
    return f'"{escaped(text if len(text) <= 120 else text[:119] + "…")}"'
