"""Which calls of one Python module fetch a dataset or a model from a hub, and whether each is pinned to a commit.

Known: Hugging Face's `load_dataset`, `from_pretrained`, `pipeline`, `snapshot_download`, `hf_hub_download`, `SentenceTransformer` and
`CrossEncoder`, timm's `create_model("hf_hub:…")`, and `torch.hub.load`. Not flagged: names whose weights the installed package chooses
(torchvision's, timm's own, a `pipeline` without a model) and whatever may be a path. A name or revision that the syntax does not tell is
UNRESOLVED.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from repro_gate.checks.module_names import UNKNOWN, ModuleNames, Scope

PINNED, LOOSE, UNRESOLVED = "pinned", "loose", "unresolved"

_IMPORT = rb"\b(?:from|import)[ \t][^\n#]*\b(?:%s)\b"
_HUB_IMPORT = re.compile(
    _IMPORT % rb"transformers|datasets|diffusers|tokenizers|peft|huggingface_hub|optimum|trl|adapters|setfit|unsloth|sentence_transformers"
)
_HUB_CALLS = (
    *(b"from_pretrained(", b"load_dataset(", b"load_dataset_builder(", b"snapshot_download(", b"hf_hub_download(", b"pipeline("),
    *(b"SentenceTransformer(", b"CrossEncoder("),
)
_WORTH = (  # calls, a word and an import: what a file must hold to be worth parsing
    (_HUB_CALLS, re.compile(b""), _HUB_IMPORT),
    ((b"load(",), re.compile(rb"\bhub\b"), re.compile(_IMPORT % b"torch")),
    ((b"create_model(",), re.compile(rb"\bhf[-_]hub:"), re.compile(_IMPORT % b"timm")),
)
# What stands in the line before a call's name where nothing is fetched: a comment, an example in a docstring, a definition, a method of
# the class itself, or the end of a longer name.
_NO_CALL = re.compile(rb"[ \t]*(?:#|>>>|\.\.\.[ \t])|.*(?:\b(?:def|class)[ \t]+|\b(?:self|cls|super\(\))\.|\w)\Z", re.DOTALL)
_BEFORE = 200  # bytes of a line in front of a call that are looked at

_COMMIT = re.compile(r"[0-9a-fA-F]{40}")
_ANY_COMMIT = re.compile(r"(?<![0-9a-fA-F])[0-9a-fA-F]{40}(?![0-9a-fA-F])")
_REPOSITORY = re.compile(r"[A-Za-z0-9_][\w.-]{0,95}(?:/[A-Za-z0-9_][\w.-]{0,95})?", re.ASCII)
_GITHUB = re.compile(r"([\w.-]{1,100}/[\w.-]{1,100})(?::([\w./+-]{1,200}))?", re.ASCII)
_URL = re.compile(r"(?:https?|hf|s3|gs|gcs)://", re.IGNORECASE)

# Packages whose `from_pretrained` takes a repository of the hub and a `revision`.
_PACKAGES = re.compile(r"transformers|diffusers|tokenizers|peft|huggingface_hub|optimum|trl|adapters|setfit|unsloth|sentence_transformers")
_NAMES = ("pretrained_model_name_or_path", "model_id", "model_name", "model_name_or_path", "identifier", "repo_id", "pretrained_model_name")
# `datasets.packaged_modules`: builders that read the files they are given
_BUILDERS = re.compile(
    r"csv|json|pandas|parquet|arrow|text|imagefolder|audiofolder|videofolder|pdffolder|niftifolder|webdataset|xml|sql|hdf5|"
    r"lance|spark|generator|cache|eval"
)
# What code calls its own folders and files: a name that starts or ends so may be a path that a run writes.
_FOLDERS = re.compile(
    r"output|outputs|out|result|results|checkpoint|checkpoints|ckpt|ckpts|model|models|data|dataset|datasets|run|runs|log|"
    r"logs|saved|save|saved_model|saved_models|weights|pretrained|pretrained_models|cache|tmp|temp|local|artifacts|exp|"
    r"experiments|work_dir|work_dirs"
)
_PLACEHOLDER = re.compile(r"(?:path[-_]to|your|my|tmp|temp)[-_].*", re.IGNORECASE)
_FILE = re.compile(
    r"\.(?:pt|pth|bin|ckpt|safetensors|pkl|json|jsonl|ya?ml|txt|csv|tsv|parquet|arrow|py|model|zip|gz|tar|npz|npy|h5)", re.IGNORECASE
)
_SAVED = re.compile(r"checkpoint-\d+")
_WRITERS = re.compile(r"save_pretrained|save_model|save_to_disk|makedirs|mkdir|TrainingArguments|Seq2SeqTrainingArguments")
_WRITTEN = re.compile(r"output_dir|save_directory|save_dir|local_dir|dataset_path")


@dataclass(frozen=True)
class RemoteCall:
    """One call that fetches from a hub: the call in short, the repository where its name is known, and why it is not pinned."""

    line: int
    text: str
    state: str  # PINNED, LOOSE or UNRESOLVED
    repository: str = ""
    problem: str = ""


def may_fetch(source: bytes) -> bool:
    """Whether a file is worth parsing: it imports one of the packages, and one of its lines calls something by the name of a call."""
    return any(
        any(_is_called(source, name) for name in names) and word.search(source) is not None and package.search(source) is not None
        for names, word, package in _WORTH
    )


def _is_called(source: bytes, name: bytes) -> bool:
    """Whether a line of the file calls `name`, which ends in its parenthesis; comments, examples and definitions do not count."""
    place = source.find(name)
    while place >= 0:
        if not _NO_CALL.match(source[max(source.rfind(b"\n", 0, place) + 1, place - _BEFORE) : place]):
            return True
        place = source.find(name, place + len(name))
    return False


def remote_calls(tree: ast.Module, is_local: Callable[[str], bool]) -> tuple[RemoteCall, ...] | None:
    """The module's calls that fetch a dataset or a model, in order; `is_local` says whether a name is a path of the checkout.

    None where the module asks for more look-ups than anybody's code does.
    """
    names = ModuleNames(tree)
    written = _written(names)

    def local(name: str) -> bool:
        return is_local(name) or any(name == path or name.startswith(path + "/") for path in written)

    found = [item for call, scope in names.calls() for item in _Call(names, call, scope, local).judged()]
    return None if names.exhausted else tuple(found)


def _written(names: ModuleNames) -> frozenset[str]:
    """Paths that the module's own calls write to: `save_pretrained("x")`, `output_dir="x"`."""
    paths = set()
    for call, scope in names.calls():
        function = call.func
        leaf = function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
        given = [item.value for item in call.keywords if item.arg and _WRITTEN.fullmatch(item.arg)]
        for node in [*call.args[:1], *given] if _WRITERS.fullmatch(leaf) else given:
            text = names.value(node, scope)
            if isinstance(text, str) and text:
                paths.add(text.removeprefix("./").rstrip("/"))
    return frozenset(paths)


class _Call:
    """One call, judged by what it is known as."""

    def __init__(self, names: ModuleNames, call: ast.Call, scope: Scope, is_local: Callable[[str], bool]) -> None:
        self.names, self.call, self.scope, self.is_local = names, call, scope, is_local
        self.keywords = {item.arg: item.value for item in call.keywords if item.arg is not None}

    def judged(self) -> Iterator[RemoteCall]:
        """The call as a RemoteCall, where it is one. A name that could be several functions is judged as the first that is known."""
        for origin in sorted(self.names.origins(self.call.func, self.scope)):
            root, leaf = origin.partition(".")[0], origin.rpartition(".")[2]
            if origin == "torch.hub.load":
                yield from self._torch_hub()
            elif (root, leaf) == ("timm", "create_model"):
                yield from self._timm()
            elif root == "datasets" and leaf in ("load_dataset", "load_dataset_builder"):
                yield from self._dataset()
            elif root == "huggingface_hub" and leaf in ("snapshot_download", "hf_hub_download"):
                yield from self._hub(self._argument(0, "repo_id"))
            elif root in ("transformers", "optimum") and leaf == "pipeline":
                yield from self._hub(self._argument(1, "model"))
            elif root == "sentence_transformers" and leaf in ("SentenceTransformer", "CrossEncoder"):
                yield from self._hub(self._argument(0, "model_name_or_path", "model_name"))
            elif _PACKAGES.fullmatch(root) and leaf == "from_pretrained":
                second = root == "peft" and origin.split(".")[-2].startswith("PeftModel")  # the base model comes first
                yield from self._hub(self._argument(1 if second else 0, *_NAMES))
            else:
                continue
            return

    def _hub(self, node: ast.expr | None) -> Iterator[RemoteCall]:
        """A repository of the Hugging Face hub, pinned by `revision=`."""
        name = self._value(node)
        if name is UNKNOWN:
            yield from self._unresolved_name(node)
        elif isinstance(name, str) and not self._may_be_path(name) and self._value(self.keywords.get("local_files_only")) is not True:
            yield self._by_revision(name)

    def _dataset(self) -> Iterator[RemoteCall]:
        """`load_dataset`: a repository of the hub, or a packaged builder with files of its own."""
        name = self._value(self._argument(0, "path"))
        if not isinstance(name, str) or not _BUILDERS.fullmatch(name):
            yield from self._hub(self._argument(0, "path"))
            return
        for url in sorted(set(self._urls(self._argument(3, "data_files")))):
            if not _ANY_COMMIT.search(url):
                text = self._text(name, f", data_files={_short(url)}")
                yield RemoteCall(self.call.lineno, text, LOOSE, "", "a URL that names no commit")
                return

    def _torch_hub(self) -> Iterator[RemoteCall]:
        source, name = self._value(self.keywords.get("source")), self._value(self._argument(0, "repo_or_dir"))
        if "source" in self.keywords and source != "github":
            return
        match = _GITHUB.fullmatch(name) if isinstance(name, str) else None
        if name is UNKNOWN:
            yield from self._unresolved_name(self._argument(0, "repo_or_dir"))
        elif match:
            yield self._judge(match[0], match[1], match[2], "torch.hub takes the default branch as it is today")

    def _timm(self) -> Iterator[RemoteCall]:
        name = self._value(self._argument(0, "model_name"))
        prefix, separator, rest = name.partition(":") if isinstance(name, str) else ("", "", "")
        if separator and prefix in ("hf_hub", "hf-hub"):
            repository, _, revision = rest.partition("@")
            yield self._judge(str(name), repository, revision or None, "it takes the branch `main` as it is today")

    def _by_revision(self, name: str) -> RemoteCall:
        node = self.keywords.get("revision") or self._spread_revision()
        if node is None:
            if self._spread():
                return RemoteCall(self.call.lineno, self._text(name), UNRESOLVED, name)
            return self._judge(name, name, None, "it takes the branch `main` as it is today")
        revision = self._value(node)
        if revision is None or isinstance(revision, str):
            given = f", revision={_short(revision)}" if revision is not None else ""
            return self._judge(name, name, revision, "it takes the branch `main` as it is today", given)
        return RemoteCall(self.call.lineno, self._text(name), UNRESOLVED, name)

    def _judge(self, name: str, repository: str, revision: str | None, none: str, given: str = "") -> RemoteCall:
        text = self._text(name, given)
        if revision is not None and _COMMIT.fullmatch(revision):
            return RemoteCall(self.call.lineno, text, PINNED, repository)
        problem = none if revision is None else "a branch, a tag or a short commit can come to mean something else"
        return RemoteCall(self.call.lineno, text, LOOSE, repository, problem)

    def _unresolved_name(self, node: ast.expr | None) -> Iterator[RemoteCall]:
        """A name from a variable; what is visibly a path, or an object and no name, is not counted."""
        names = (ast.Name, ast.Attribute, ast.Subscript, ast.JoinedStr, ast.BinOp, ast.IfExp)
        if node is not None and self.names.origins(node, self.scope):
            return  # what some call gave: an object
        if isinstance(node, names) or (node is None and self._spread()):
            yield RemoteCall(self.call.lineno, self._text(None), UNRESOLVED)

    def _may_be_path(self, name: str) -> bool:
        if not _REPOSITORY.fullmatch(name) or self.is_local(name):
            return True
        parts = name.split("/")
        suffix = _FILE.search(parts[-1])
        return (
            _FOLDERS.fullmatch(parts[0].lower()) is not None
            or _PLACEHOLDER.fullmatch(name) is not None
            or (suffix is not None and suffix.end() == len(parts[-1]))
            or any(_SAVED.fullmatch(part) for part in parts)
        )

    def _argument(self, place: int, *keywords: str) -> ast.expr | None:
        """The argument by keyword, else by place; None where it is not given, or a `*` may hold it."""
        for keyword in keywords:
            if keyword in self.keywords:
                return self.keywords[keyword]
        before = self.call.args[: place + 1]
        return before[place] if len(before) > place and not any(isinstance(item, ast.Starred) for item in before) else None

    def _spread(self) -> bool:
        """Whether the call takes arguments from a `*` or `**` that may hold the name or the revision."""
        return any(item.arg is None for item in self.call.keywords) or any(isinstance(item, ast.Starred) for item in self.call.args)

    def _spread_revision(self) -> ast.expr | None:
        """The revision in a `**` of a dict that stands in the module."""
        for item in self.call.keywords:
            held = self.names.literal(item.value, self.scope) if item.arg is None else None
            if isinstance(held, ast.Dict) and None not in held.keys:
                for key, value in zip(held.keys, held.values, strict=True):
                    if isinstance(key, ast.Constant) and key.value == "revision":
                        return value
            elif isinstance(held, ast.Call) and isinstance(held.func, ast.Name) and held.func.id == "dict":
                found = [entry.value for entry in held.keywords if entry.arg == "revision"]
                if found:
                    return found[0]
        return None

    def _urls(self, node: ast.expr | None) -> Iterator[str]:
        """The URLs in a text, or in a list or dict of texts and lists."""
        pending = [node]
        for _ in range(1000):
            held = pending.pop() if pending else None
            if held is None:
                return
            held = self.names.literal(held, self.scope)
            if isinstance(held, ast.Dict):
                pending += held.values
            elif isinstance(held, (ast.List, ast.Tuple)):
                pending += held.elts
            else:
                text = self._value(held)
                if isinstance(text, str) and _URL.match(text):
                    yield text

    def _value(self, node: ast.expr | None) -> object:
        return UNKNOWN if node is None else self.names.value(node, self.scope)

    def _text(self, name: str | None, more: str = "") -> str:
        """The call in short, as the source writes its function: `AutoModel.from_pretrained("gpt2")`."""
        parts: list[str] = []
        node: ast.expr = self.call.func
        while isinstance(node, ast.Attribute) and len(parts) < 4:
            parts.append(node.attr)
            node = node.value
        parts.append(node.id if isinstance(node, ast.Name) else "…")
        return f"{'.'.join(reversed(parts))[:120]}({'…' if name is None else _short(name)}{more})"


def _short(text: str) -> str:
    """A text in quotes, cut to 120 characters, control characters escaped."""
    cut = text if len(text) <= 120 else text[:119] + "…"
    return '"' + cut.encode("unicode_escape").decode("ascii").replace('"', '\\"') + '"' if not cut.isprintable() else f'"{cut}"'
