"""Calls in the checkout's Python files that fetch a dataset or model from a hub, and whether each names a commit.
Files are parsed within limits and never imported; what a name stands for is followed inside its own file, as far as it is bound once."""

from __future__ import annotations

import ast
import os
import re
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from repro_gate.files import Unreadable, read_text

PINNED, LOOSE, UNRESOLVED = "pinned", "loose", "unresolved"
MAX_FILES = 20_000
MAX_FILE_BYTES = 1 << 20
MAX_PARSED_BYTES = 3 << 20  # of all files that are parsed: a second at most
_DEPTH = 8  # names followed one after the other
_UNKNOWN = object()
_ASIDE = frozenset({"test", "tests", "testing", "test_utils", "doc", "docs"})
_TEST = re.compile(r"(?:test_.*|.*_test|conftest)\.py")
_PACKAGES = (
    "transformers|datasets|diffusers|tokenizers|peft|huggingface_hub|optimum|trl|adapters|setfit|unsloth|sentence_transformers|timm|torch"
)
_IMPORT = re.compile(rf"^[ \t]*(?:from|import)[ \t][^\n#]*\b(?:{_PACKAGES})\b", re.MULTILINE)
_CALL = re.compile(
    r"^[^#\n]*\b(?:from_pretrained|load_dataset|load_dataset_builder|snapshot_download|hf_hub_download|pipeline|SentenceTransformer|"
    r"CrossEncoder|hub\.load|load|create_model)\(",
    re.MULTILINE,
)
_COMMIT = re.compile(r"(?<![0-9a-fA-F])[0-9a-fA-F]{40}(?![0-9a-fA-F])")
_REPOSITORY = re.compile(r"[A-Za-z0-9_][\w.-]{0,95}(?:/[A-Za-z0-9_][\w.-]{0,95})?", re.ASCII)
_GITHUB = re.compile(r"([\w.-]{1,100}/[\w.-]{1,100})(?::([\w./+-]{1,200}))?", re.ASCII)
_URL = re.compile(r"(?:https?|hf|s3|gs|gcs)://", re.IGNORECASE)
# `datasets.packaged_modules`: builders that read the files they are given
_BUILDERS = re.compile(
    r"csv|json|pandas|parquet|arrow|text|imagefolder|audiofolder|videofolder|pdffolder|niftifolder|webdataset|xml|sql|hdf5|lance|spark|"
    r"generator|cache|eval"
)
_NAMES = ("pretrained_model_name_or_path", "model_id", "model_name", "model_name_or_path", "identifier", "repo_id", "path")
# What code calls its own folders and files: a name like these may be a path that a run writes.
_OWN_PATH = re.compile(
    r"(?:outputs?|out|results?|checkpoints?|ckpts?|models?|data|datasets?|runs?|logs?|saved?|saved?_models?|weights|pretrained|"
    r"pretrained_models|cache|tmp|temp|local|artifacts|exp|experiments|work_dirs?)(?:/.*)?|(?:path[-_]to|your|my|tmp|temp)[-_].*|"
    r"(?:.*/)?checkpoint-\d+(?:/.*)?|.*\.(?:pt|pth|bin|ckpt|safetensors|pkl|jsonl?|ya?ml|txt|csv|tsv|parquet|arrow|py|model|zip|gz|tar|npz|npy|h5)",
    re.IGNORECASE,
)
_WRITERS = frozenset(
    {"save_pretrained", "save_model", "save_to_disk", "makedirs", "mkdir", "TrainingArguments", "Seq2SeqTrainingArguments"}
)
_WRITTEN = frozenset({"output_dir", "save_directory", "save_dir", "local_dir", "dataset_path"})
_NO_REVISION = "it takes the branch `main` as it is today"


@dataclass(frozen=True, kw_only=True)
class HubCall:
    """One call that fetches from a hub: the call in short, the repository where its name is known, and why it is not pinned."""

    path: str  # relative to the checkout's root
    line: int
    text: str
    state: str  # PINNED, LOOSE or UNRESOLVED
    repository: str = ""
    problem: str = ""

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}" + (f": {self.problem}" if self.problem else "")


@dataclass(frozen=True)
class Revisions:
    """The calls in `files` Python files; `unread` says of which files the gate could not tell, and why (`path: why`)."""

    files: int
    calls: tuple[HubCall, ...]
    unread: tuple[str, ...]


def find_revisions(root: Path, tracked: Iterable[str], local: Iterable[str] = (), first: Collection[str] = ()) -> Revisions:
    """Look through the tracked Python files below `root`, those of `first` before the others, in case there is too much to parse.

    `local` are further paths that the code may name: declared data.
    """
    everything = sorted(tracked, key=lambda path: (path not in first, os.fsencode(path)))
    paths = [path for path in everything if _is_training_code(path)]
    known = {parent for path in (*everything, *local) for parent in _with_parents(os.path.normpath(path))}
    calls, beyond, parsed = list[HubCall](), list[str](), 0
    unread = [f"{len(paths) - MAX_FILES} files beyond the first {MAX_FILES}"] if len(paths) > MAX_FILES else []
    for path in paths[:MAX_FILES]:
        if os.path.islink(root / path) or not os.path.lexists(root / path):
            continue  # what a link leads to is tracked itself, or elsewhere
        places = ("", path.rpartition("/")[0])

        def is_local(name: str, places: tuple[str, str] = places) -> bool:
            return any(os.path.normpath(os.path.join(place, name)) in known or os.path.lexists(root / place / name) for place in places)

        try:
            source = read_text(root / path, root, MAX_FILE_BYTES)
            if _IMPORT.search(source) and _CALL.search(source):
                if parsed + len(source) > MAX_PARSED_BYTES:
                    beyond.append(path)
                    continue
                parsed += len(source)
                calls += hub_calls(path, source, is_local)
        except Unreadable as error:
            unread.append(f"{path}: {error}")
        except SyntaxError as error:
            unread.append(f"{path}: no Python of this version: {error.msg}, line {error.lineno}"[:300])
        except (ValueError, RecursionError, MemoryError) as error:
            unread.append(f"{path}: cannot be parsed: {type(error).__name__}")
    if beyond:
        unread.insert(0, f"{len(beyond)} files with such calls beyond the first {MAX_PARSED_BYTES >> 20} MiB of code ({beyond[0]}, …)")
    return Revisions(len(paths), tuple(calls), tuple(unread))


def hub_calls(path: str, source: str, is_local: Callable[[str], bool]) -> list[HubCall]:
    """The calls of one file that fetch a dataset or a model, by line; `is_local` says whether a name is a path of the checkout. Raises
    SyntaxError, ValueError, RecursionError or MemoryError where it cannot be parsed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # odd escapes and comparisons are not ours to report
        module = _Module(path, ast.parse(source), is_local)
    return sorted((found for call in module.calls for found in module.judged(call)), key=lambda item: item.line)


class _Module:
    """What the names of one file stand for. A name that is bound twice, or by a parameter or loop, stands for nothing known."""

    def __init__(self, path: str, tree: ast.Module, is_local: Callable[[str], bool]) -> None:
        self.path, self.is_local = path, is_local
        self.imports, self.values, self.bound = dict[str, str](), dict[str, ast.expr](), Counter[str]()
        self.calls, self.hidden = list[ast.Call](), set[str]()
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                self.calls.append(node)
            elif isinstance(node, ast.Import):
                self.imports.update(
                    {item.asname or item.name.split(".")[0]: item.name if item.asname else item.name.split(".")[0] for item in node.names}
                )
            elif isinstance(node, ast.ImportFrom) and not node.level:
                self.imports.update({item.asname or item.name: f"{node.module}.{item.name}" for item in node.names})
            elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                self.values[node.targets[0].id] = node.value
            elif isinstance(node, ast.ClassDef):
                self.bound[node.name] += 1
                if node.bases:
                    self.values[node.name] = node.bases[0]
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self.hidden.add(node.name)
            elif isinstance(node, ast.arg):
                self.hidden.add(node.arg)
            elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                self.bound[node.id] += 1
            elif isinstance(node, (ast.Attribute, ast.Subscript)) and not isinstance(node.ctx, ast.Load):
                self.hidden.add(node.attr if isinstance(node, ast.Attribute) else getattr(node.value, "id", ""))
        self.written = {text.removeprefix("./").rstrip("/") for text in self._written() if text}

    def judged(self, call: ast.Call) -> Iterator[HubCall]:
        """The call as a HubCall, where it is one."""
        root, _, rest = self._dotted(call.func).partition(".")
        leaf, given = rest.rpartition(".")[2], {item.arg: item.value for item in call.keywords}
        at = {"pipeline": 1, "from_pretrained": int(root == "peft" and "PeftModel" in rest)}.get(leaf, 0)  # after the task, the base model
        keywords = {"pipeline": ("model",), "load": ("repo_or_dir",)}.get(leaf, _NAMES)
        node = next((given[name] for name in keywords if name in given), call.args[at] if at < len(call.args) else None)
        name = self._value(node)
        if (root, rest) == ("torch", "hub.load"):
            match = _GITHUB.fullmatch(name) if isinstance(name, str) else None
            if "source" not in given or self._value(given["source"]) == "github":
                yield from self._by_revision(call, node, match[1] if match else name, match[2] if match else None, bool(match))
        elif (root, leaf) == ("timm", "create_model"):
            prefix, _, rest = name.partition(":") if isinstance(name, str) else ("", "", "")
            if prefix in ("hf_hub", "hf-hub"):
                yield from self._by_revision(call, node, rest.partition("@")[0], rest.partition("@")[2] or None, True)
        elif root == "datasets" and leaf.startswith("load_dataset") and isinstance(name, str) and _BUILDERS.fullmatch(name):
            files = given.get("data_files", call.args[3] if len(call.args) > 3 else None)
            files = self.values.get(files.id, files) if isinstance(files, ast.Name) else files
            urls = [item.value for item in ast.walk(files or ast.Pass()) if isinstance(item, ast.Constant) and isinstance(item.value, str)]
            if loose := sorted(url for url in urls if _URL.match(url) and not _COMMIT.search(url)):
                text = f"{_shown(call.func)}({_short(name)}, data_files={_short(loose[0])})"
                yield HubCall(path=self.path, line=call.lineno, text=text, state=LOOSE, problem="a URL that names no commit")
        elif (root == "datasets" and leaf in ("load_dataset", "load_dataset_builder")) or (
            root in _PACKAGES.split("|")[:-2]
            and leaf in ("from_pretrained", "pipeline", "snapshot_download", "hf_hub_download", "SentenceTransformer", "CrossEncoder")
        ):
            revision = given.get("revision")
            stated = None if revision is None else self._value(revision)
            open_ended = None in given or any(isinstance(item, ast.Starred) for item in call.args)
            if self._value(given.get("local_files_only")) is not True and not (isinstance(name, str) and self._may_be_path(name)):
                yield from self._by_revision(call, node, name, _UNKNOWN if revision is None and open_ended else stated, open_ended)

    def _by_revision(self, call: ast.Call, node: ast.expr | None, name: object, revision: object, spread: bool) -> Iterator[HubCall]:
        """A repository and the revision that the call names: None for none, _UNKNOWN where the file does not say."""
        state, problem = UNRESOLVED, ""
        if not isinstance(name, str):
            names = (ast.Name, ast.Attribute, ast.Subscript, ast.JoinedStr, ast.BinOp, ast.IfExp, ast.Starred)
            if name is not _UNKNOWN or not (isinstance(node, names) or (node is None and spread)) or (node and self._dotted(node)):
                return  # no name was given, or an object that another call made
        elif revision is None or isinstance(revision, str):
            state = PINNED if revision is not None and _COMMIT.fullmatch(revision) else LOOSE
            unpinned = _NO_REVISION if revision is None else "a branch, a tag or a short commit can come to mean something else"
            problem = "" if state == PINNED else unpinned
        shown = self._value(node)
        text = f"{_shown(call.func)}({_short(shown) if isinstance(shown, str) else '…'}"
        named = any(item.arg == "revision" for item in call.keywords) and isinstance(revision, str)
        text += f", revision={_short(str(revision))})" if named else ")"
        repository = name if isinstance(name, str) else ""
        yield HubCall(path=self.path, line=call.lineno, text=text, state=state, repository=repository, problem=problem)

    def _dotted(self, node: ast.expr, depth: int = _DEPTH) -> str:
        """The dotted name of an import that an expression stands for; an instance goes by its class. Empty where it is none."""
        attributes = list[str]()
        while isinstance(node, ast.Attribute) and len(attributes) < 20:
            attributes.append(node.attr)
            node = node.value
        found = ""
        if isinstance(node, ast.Call) and depth:
            found = self._dotted(node.func, depth - 1)
            found += "" if found.rpartition(".")[2][:1].isupper() or not found else "()"
        elif isinstance(node, ast.Name) and node.id not in self.hidden:
            found = self.imports.get(node.id, "")
            if not found and depth and node.id in self.values and self.bound[node.id] == 1:
                found = self._dotted(self.values[node.id], depth - 1)
        return ".".join([found, *reversed(attributes)]) if found else ""

    def _value(self, node: ast.expr | None, depth: int = _DEPTH) -> object:
        """The constant that an expression stands for, or _UNKNOWN; `CFG.base` is the `base` that a class of this file sets."""
        if isinstance(node, ast.Constant):
            return node.value
        name = (
            node.id
            if isinstance(node, ast.Name)
            else node.attr
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
            else ""
        )
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and not self.bound[node.value.id]:
            return _UNKNOWN  # an attribute of what some other file made
        if not depth or name not in self.values or self.bound[name] != 1 or name in self.hidden:
            return _UNKNOWN
        return self._value(self.values[name], depth - 1)

    def _may_be_path(self, name: str) -> bool:
        own = not _REPOSITORY.fullmatch(name) or _OWN_PATH.fullmatch(name) or self.is_local(name)
        return bool(own) or any(name == path or name.startswith(f"{path}/") for path in self.written)

    def _written(self) -> Iterator[str]:
        """Paths that the file's own calls write to: `save_pretrained("x")`, `output_dir="x"`."""
        for call in self.calls:
            given = [item.value for item in call.keywords if item.arg in _WRITTEN]
            name = getattr(call.func, "attr", getattr(call.func, "id", ""))
            yield from (
                text for node in (*given, *(call.args[:1] if name in _WRITERS else ())) if isinstance(text := self._value(node), str)
            )


def _shown(node: ast.expr) -> str:
    """A function as the source writes it: `AutoModel.from_pretrained`."""
    parts = list[str]()
    while isinstance(node, ast.Attribute) and len(parts) < 4:
        parts.append(node.attr)
        node = node.value
    return ".".join(reversed([*parts, node.id if isinstance(node, ast.Name) else "…"]))[:120]


def _short(text: str) -> str:
    """A text in quotes, cut to 120 characters, control characters escaped."""
    cut = text if len(text) <= 120 else text[:119] + "…"
    return f'"{cut}"' if cut.isprintable() else '"' + cut.encode("unicode_escape").decode("ascii").replace('"', '\\"') + '"'


def _is_training_code(path: str) -> bool:
    *folders, name = path.split("/")
    return name.endswith(".py") and not _TEST.fullmatch(name) and not any(folder.lower() in _ASIDE for folder in folders)


def _with_parents(path: str) -> Iterator[str]:
    while path:
        yield path
        path = path.rpartition("/")[0]
